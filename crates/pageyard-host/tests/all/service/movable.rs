//! Movable blocks and relocators.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use pageyard::{Gfp, Pfn, Relocation};
use pageyard_host::{Moving, Relocator};

use super::{MIB, QUIET, builder, forever, order, until};

#[test]
fn movable_blocks_keep_their_contents() {
    let yard = builder(64 * MIB).give_back(None).tick(None).build().unwrap();
    let mut all = Vec::new();
    while let Ok(block) = yard.alloc_movable(order(0), QUIET & !Gfp::RECLAIM) {
        block.lock()[..8].copy_from_slice(&(all.len() as u64).to_le_bytes());
        all.push((all.len() as u64, block));
    }
    // Keep every eighth page, so that no large block is free.
    all.retain(|(n, _)| n % 8 == 0);
    yard.drain();
    let mut large = Vec::new();
    while let Ok(block) = yard.alloc(order(9), QUIET & !Gfp::RECLAIM) {
        large.push(block);
    }
    assert!(large.len() < 3, "those that were kept as a reserve, if any: {}", large.len());
    // Compaction does not move a locked block.
    let (first, rest) = all.split_first().unwrap();
    let pinned = first.1.lock();
    let at = pinned.pfn();
    yard.compact();
    let block = yard.alloc(order(9), QUIET);
    assert!(block.is_ok(), "{:?}", yard.status());
    drop(large);
    assert_eq!(pinned.pfn(), at);
    assert!(yard.status().moved > 0);
    for (n, block) in rest {
        assert_eq!(block.lock()[..8], n.to_le_bytes());
    }
    drop(pinned);
    drop((block, all));
    yard.drain();
    let free = yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    assert_eq!(free, 16_384);
}

/// Owns blocks of two pages by number, with the key of each in its last word.
struct Numbered(&'static Mutex<HashMap<Pfn, u64>>);

#[allow(unsafe_code)]
// SAFETY: a block is copied and renumbered under the lock by which its owner finds it.
unsafe impl Relocator for Numbered {
    fn relocate(&self, block: &Moving) -> Relocation {
        let Ok(mut pages) = self.0.try_lock() else { return Relocation::Busy };
        if block.order() != order(1) {
            return Relocation::Refused;
        }
        let Some(key) = pages.remove(&block.from()) else { return Relocation::Refused };
        // SAFETY: only the owner of the lock accesses the block, whose last word is the key.
        let keys = unsafe {
            block.copy();
            let last = |at: NonNull<u8>| at.cast::<u64>().add(1023).read();
            (last(block.old()), last(block.new_place()))
        };
        assert_eq!(keys, (key, key));
        pages.insert(block.to(), key);
        Relocation::Moved
    }
}

#[test]
#[allow(unsafe_code)]
fn a_relocator_moves_the_blocks_it_owns_by_number() {
    let yard = forever(builder(64 * MIB).give_back(None).tick(None));
    let pages: &'static Mutex<HashMap<_, _>> = Box::leak(Box::default());
    yard.register_relocator(Numbered(pages)).keep();
    let movable = (QUIET & !Gfp::RECLAIM) | Gfp::MOVABLE;
    let mut key = 0u64;
    let mut freed = Vec::new();
    while let Ok(mut block) = yard.alloc(order(1), movable) {
        key += 1;
        if !key.is_multiple_of(8) {
            freed.push(block);
            continue;
        }
        block[8184..].copy_from_slice(&key.to_ne_bytes());
        let (pfn, size) = block.into_raw();
        // SAFETY: the relocator owns the block.
        unsafe { yard.core() }.set_movable(pfn, size, true).unwrap();
        pages.lock().unwrap().insert(pfn, key);
    }
    drop(freed);
    yard.compact();
    assert!(yard.status().moved > 250, "{:?}", yard.status());
    // Every block is still there, with its contents.
    let pages = pages.lock().unwrap();
    assert_eq!(pages.len() as u64, key / 8);
    assert_eq!(yard.status().used, key / 8 * 2);
    let large: Vec<_> =
        std::iter::from_fn(|| yard.alloc(order(9), QUIET & !Gfp::RECLAIM).ok()).collect();
    assert!(large.len() > 20, "{}", large.len());
}

/// A forgotten guard holds its lock for ever, and the owner does not wait for it.
#[test]
fn a_movable_block_whose_guard_is_forgotten_can_be_dropped() {
    let yard = forever(builder(64 * MIB).tick(None));
    let used = yard.status().used;
    let movable = yard.alloc_movable(order(3), QUIET).unwrap();
    std::mem::forget(movable.lock());
    yard.compact();
    assert_eq!(yard.status().moved, 0, "a guarded block does not move");
    assert_eq!(yard.status().used, used + 8);
    let dropped = std::thread::spawn(move || drop(movable));
    assert!(until(|| dropped.is_finished()), "the drop waits for the guard");
    dropped.join().unwrap();
    yard.drain();
    assert_eq!(yard.status().used, used);
    yard.compact();
    yard.validate().unwrap();
}

/// The block stays where it was; the pass continues and frees its targets.
#[test]
fn a_panicking_relocator_leaks_nothing() {
    struct Wrong(Arc<AtomicU64>);
    #[allow(unsafe_code)]
    // SAFETY: no block is moved.
    unsafe impl Relocator for Wrong {
        fn relocate(&self, _: &Moving) -> Relocation {
            self.0.fetch_add(1, Relaxed);
            panic!("planted: relocator")
        }
    }
    let yard = forever(builder(64 * MIB).tick(None).give_back(None));
    let asked = Arc::<AtomicU64>::default();
    yard.register_relocator(Wrong(asked.clone())).keep();
    let mut blocks: Vec<_> =
        std::iter::from_fn(|| yard.alloc(order(0), QUIET | Gfp::MOVABLE).ok()).collect();
    let mut n = 0;
    blocks.retain(|_| {
        n += 1;
        n % 8 == 0
    });
    for block in &blocks {
        #[allow(unsafe_code)]
        // SAFETY: the block stays where it is.
        unsafe { yard.core() }.set_movable(block.pfn(), block.order(), true).unwrap();
    }
    let held = blocks.len() as u64;
    yard.compact();
    assert!(asked.load(Relaxed) > 0);
    yard.validate().unwrap();
    assert_eq!(yard.status().used, held);
    drop(blocks);
    yard.drain();
    assert_eq!(yard.status().used, 0);
    yard.validate().unwrap();
}
