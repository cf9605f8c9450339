//! Fragments of pages (§6.4): cut from the end of a block, freed on any thread, and the block used
//! again only when all are free.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{AllocError, Gfp, Order};
use pageyard_host::{
    Builder, Fragment, FragmentCache, FragmentError, HostYard, HugePages, SystemFiles, ThreadCache,
};

fn yard<P: StaticPolicy + Send + Sync + 'static>() -> Arc<HostYard<P>> {
    let builder = Builder::new(16 << 20).huge_pages(HugePages::Never).tick(None);
    let builder = builder.system(SystemFiles::none()).thread_cache(ThreadCache::Off);
    Arc::new(builder.build_with().unwrap())
}

fn used<P: StaticPolicy>(yard: &HostYard<P>) -> u64 {
    let zones = yard.zones().filter_map(|z| yard.zone_info(z));
    zones.map(|z| z.managed - z.free_exact - z.cached).sum()
}

fn start<P: StaticPolicy>(fragment: &Fragment<P>) -> usize {
    fragment.as_ptr().addr()
}

#[test]
fn fragments_are_disjoint_and_aligned() {
    let yard = yard::<Packed>();
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
    let mut draw = 1u64;
    let mut all: Vec<(Fragment, u8)> = Vec::new();
    for n in 0..2000u64 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = match (draw >> 40) % 10 {
            0 => 1 + (draw >> 20) as usize % 32_768,
            1 => 32_768,
            2 => 1,
            _ => 1 + (draw >> 20) as usize % 2000,
        };
        let align = 1 << ((draw >> 50) % 13);
        let mut fragment = cache.alloc(bytes, align).unwrap();
        assert_eq!((fragment.len(), start(&fragment) % align), (bytes, 0));
        fragment.fill(n as u8);
        all.push((fragment, n as u8));
        while all.len() > (draw >> 30) as usize % 100 {
            let (fragment, byte) = all.swap_remove((draw >> 10) as usize % all.len());
            assert!(fragment.iter().all(|&b| b == byte), "a fragment was overwritten");
        }
    }
    drop((all, cache));
    assert_eq!((used(&yard), Arc::strong_count(&yard)), (0, 1));
}

#[test]
fn a_block_is_used_again_when_its_fragments_are_free() {
    let yard = yard::<Packed>();
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
    // From the end of a block of 32 KiB down to its start.
    let first = cache.alloc(1024, 1).unwrap();
    let block = start(&first) - 31 * 1024;
    assert_eq!(block % 32_768, 0);
    for n in (0..31).rev() {
        let fragment = cache.alloc(1024, 1).unwrap();
        assert_eq!(start(&fragment), block + n * 1024);
    }
    assert_eq!(used(&yard), 8);
    // One fragment is left, so the next ones are from another block.
    let second = cache.alloc(1024, 1).unwrap();
    assert!(!(block..block + 32_768).contains(&start(&second)));
    assert_eq!(used(&yard), 16);
    drop(first);
    assert_eq!(used(&yard), 8, "the last fragment of a closed block frees it");
    let end = start(&second);
    drop(second);
    (0..31).for_each(|_| drop(cache.alloc(1024, 1).unwrap()));
    // Used up, and all free.
    assert_eq!(start(&cache.alloc(1024, 1).unwrap()), end);
    assert_eq!(used(&yard), 8);
    // The most fragments that a block can have, without running out of references.
    let bytes: Vec<_> = (0..100_000).map(|_| cache.alloc(1, 1).unwrap()).collect();
    drop(bytes);
    drop(cache);
    assert_eq!(used(&yard), 0);
}

#[test]
fn fragments_keep_their_yard() {
    let yard = yard::<Packed>();
    let drops = Arc::new(AtomicU64::new(0));
    struct Last(Arc<AtomicU64>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let last = Last(drops.clone());
    yard.register_shrinker(move |_: &pageyard::ReclaimJob| last.0.load(SeqCst)).keep();
    let mut fragment = FragmentCache::new(&yard, Gfp::KERNEL | Gfp::ZERO).alloc(100, 8).unwrap();
    drop(yard);
    assert!(fragment.iter().all(|&b| b == 0));
    fragment.fill(1);
    assert_eq!(drops.load(SeqCst), 0);
    drop(fragment);
    assert_eq!(drops.load(SeqCst), 1);
}

fn freed_on_threads<P: StaticPolicy + Send + Sync + 'static>() {
    let yard = yard::<P>();
    std::thread::scope(|s| {
        let sent: Vec<_> = (0..3)
            .map(|_| {
                let (send, receive) = mpsc::sync_channel::<(Fragment<P>, u8)>(8);
                s.spawn(move || {
                    for (mut fragment, byte) in receive {
                        assert!(fragment.iter().all(|&b| b == byte), "used again too early");
                        fragment.fill(0xee);
                    }
                });
                send
            })
            .collect();
        let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
        for n in 0..30_000usize {
            // Some fill a chunk at once, so that the cache meets the last drop of it.
            let mut fragment = cache.alloc(1 + n * 7919 % 9000, 8).unwrap();
            fragment.fill(n as u8);
            sent[n % 3].send((fragment, n as u8)).unwrap();
        }
    });
    assert_eq!((used(&yard), Arc::strong_count(&yard)), (0, 1));
}

#[test]
fn fragments_are_freed_on_other_threads() {
    freed_on_threads::<Packed>();
    freed_on_threads::<Linux612>();
}

#[test]
fn a_page_replaces_a_missing_block() {
    let yard = yard::<Packed>();
    let one = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN | Gfp::MEMALLOC).ok();
    let pages: Vec<_> = std::iter::from_fn(one).collect();
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL | Gfp::NOWARN);
    assert_eq!(cache.alloc(1, 1).unwrap_err(), FragmentError::Alloc(AllocError::NoMemory));
    // Every other page, and no larger block.
    let mut n = 0;
    let mut pages = pages;
    pages.sort_by_key(|p| p.pfn());
    pages.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    yard.drain();
    let page = cache.alloc(4096, 4096).unwrap();
    assert_eq!(start(&page) % 4096, 0);
    let none = cache.alloc(4097, 1).unwrap_err();
    assert_eq!(none, FragmentError::Alloc(AllocError::NoMemory));
    let part = cache.alloc(100, 1).unwrap();
    drop(pages);
    yard.drain();
    assert_eq!(cache.alloc(4097, 1).unwrap().len(), 4097);
    drop((page, part, cache));
    assert_eq!(used(&yard), 0);
}

#[test]
fn impossible_fragments_are_errors() {
    let yard = yard::<Packed>();
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
    for bytes in [0, 32_769, usize::MAX] {
        assert_eq!(cache.alloc(bytes, 1).unwrap_err(), FragmentError::Size(bytes));
    }
    for align in [0, 3, 8192, usize::MAX] {
        assert_eq!(cache.alloc(1, align).unwrap_err(), FragmentError::Align(align));
    }
    assert_eq!(used(&yard), 0, "nothing was allocated");
    let text = format!("{cache:?} {:?}", cache.alloc(10, 1).unwrap());
    assert!(text.contains("FragmentCache") && text.contains("bytes: 10"), "{text}");
}

#[test]
fn after_a_larger_block_was_missing_the_next_chunks_are_pages() {
    let yard = yard::<Packed>();
    let all = Gfp::ATOMIC | Gfp::MEMALLOC;
    let pieces: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, all).ok()).collect();
    let odd: Vec<_> = pieces.into_iter().filter(|b| b.pfn().0 % 2 == 1).collect();
    let mut cache = FragmentCache::new(&yard, Gfp::KERNEL);
    let mut fragments = vec![cache.alloc(4096, 1).unwrap()];
    drop(odd);
    yard.drain();
    assert_eq!(used(&yard), 1);
    // 64 pages, and then the larger block that there is again.
    let mut next = |n| fragments.extend((0..n).map(|_| cache.alloc(4096, 1).unwrap()));
    next(1);
    assert_eq!(used(&yard), 1 + 1);
    next(63);
    assert_eq!(used(&yard), 1 + 64);
    next(1);
    assert_eq!(used(&yard), 1 + 64 + 8);
    // What needs a larger block asks for one at once.
    let mut other = FragmentCache::new(&yard, Gfp::KERNEL);
    fragments.push(other.alloc(4097, 1).unwrap());
    assert_eq!(used(&yard), 1 + 64 + 8 + 8);
}
