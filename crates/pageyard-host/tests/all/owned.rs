//! Blocks that keep their yard alive: the last one drops it, on any thread, in callbacks, and under
//! locks that callbacks wait for.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{Gfp, Order, PAGE_SIZE, ReclaimJob};
use pageyard_host::{Builder, HostYard, HugePages, OwnedBlock, OwnedRange, SystemFiles};

use crate::example::example;

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn builder() -> Builder {
    Builder::new(32 << 20).huge_pages(HugePages::Never).system(SystemFiles::none())
}

/// Waits until the condition holds, for at most a minute.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Counts its drops.
struct Last(Arc<AtomicU64>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Registers a value that is dropped with the yard. Returns the number of its drops.
fn dropped_with<P: StaticPolicy>(yard: &HostYard<P>) -> Arc<AtomicU64> {
    let drops = Arc::new(AtomicU64::new(0));
    let last = Last(drops.clone());
    yard.register_shrinker(move |_: &ReclaimJob| last.0.load(SeqCst)).keep();
    drops
}

#[test]
fn the_last_block_drops_the_yard() {
    let yard = Arc::new(builder().tick(None).build().unwrap());
    let drops = dropped_with(&yard);
    let mut block = yard.alloc_owned(order(3), Gfp::KERNEL | Gfp::ZERO).unwrap();
    let mut range = yard.alloc_range_owned(1500, 1, Gfp::KERNEL).unwrap();
    drop(yard);
    assert!(block.iter().all(|&b| b == 0));
    block.fill(1);
    range.fill(2);
    assert_eq!((block.len(), range.len()), (8 << 12, 1500 << 12));
    drop(block);
    // The yard still works.
    let other = range.yard().alloc_owned(Order::ZERO, Gfp::KERNEL).unwrap();
    assert!(range.iter().all(|&b| b == 2));
    drop(range);
    assert_eq!(drops.load(SeqCst), 0);
    drop(other);
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn blocks_change_between_borrowed_and_owned() {
    let [yard, other] = [0, 1].map(|_| Arc::new(builder().tick(None).build().unwrap()));
    let free = || yard.zones().map(|z| yard.zone_info(z).unwrap().free_exact).sum::<u64>();
    let before = free();
    let mut block = yard.alloc_aligned(order(1), 1 << 20, Gfp::KERNEL).unwrap();
    block.fill(5);
    let pfn = block.pfn();
    // Another yard's reference is refused, and the block stays.
    let block = block.into_owned(&other).unwrap_err();
    let owned = block.into_owned(&yard).unwrap();
    assert_eq!((owned.pfn(), owned.order(), Arc::strong_count(&yard)), (pfn, order(1), 2));
    let owned = owned.into_block(&other).unwrap_err();
    let block = owned.into_block(&yard).unwrap();
    assert_eq!((block.pfn(), Arc::strong_count(&yard)), (pfn, 1));
    assert!(block.iter().all(|&b| b == 5));
    let text = format!("{:?}", block.into_owned(&yard).unwrap());
    assert!(text.starts_with("OwnedBlock"), "{text}");
    yard.drain();
    assert_eq!((free(), Arc::strong_count(&yard)), (before, 1));
}

#[test]
fn ranges_change_between_borrowed_and_owned() {
    let [yard, other] = [0, 1].map(|_| Arc::new(builder().tick(None).build().unwrap()));
    let range = yard.alloc_range(1500, 1, Gfp::KERNEL).unwrap();
    let frames = range.frames();
    let owned = range.into_owned(&other).unwrap_err().into_owned(&yard).unwrap();
    assert_eq!((owned.frames(), Arc::strong_count(&yard)), (frames.clone(), 2));
    let range = owned.into_range(&other).unwrap_err().into_range(&yard).unwrap();
    assert_eq!((range.frames(), Arc::strong_count(&yard)), (frames, 1));
    drop(range);
    yard.drain();
    assert!(yard.alloc_range(5000, 1, Gfp::KERNEL).is_ok());
}

fn dropped_on_threads<P: StaticPolicy + Send + Sync + 'static>() {
    for round in 0..40u64 {
        let builder = if round % 2 == 0 { builder() } else { builder().tick(None) };
        let yard = Arc::new(builder.build_with::<P>().unwrap());
        let drops = dropped_with(&yard);
        let start = Barrier::new(3);
        let mut parts: Vec<Vec<OwnedBlock<P>>> = (0..3).map(|_| Vec::new()).collect();
        for n in 0..90 {
            let mut block = yard.alloc_owned(order((n % 4) as u8), Gfp::KERNEL).unwrap();
            block.fill(n as u8);
            parts[n % 3].push(block);
        }
        drop(yard);
        std::thread::scope(|s| {
            for (thread, blocks) in parts.into_iter().enumerate() {
                let start = &start;
                s.spawn(move || {
                    start.wait();
                    for (n, block) in blocks.into_iter().enumerate() {
                        let byte = (3 * n + thread) as u8;
                        assert!(block.iter().all(|&b| b == byte), "a block was overwritten");
                    }
                });
            }
        });
        assert!(until(|| drops.load(SeqCst) == 1), "{}", drops.load(SeqCst));
    }
}

/// Which thread drops the last one differs from round to round.
#[test]
fn owned_blocks_are_dropped_on_other_threads() {
    dropped_on_threads::<Packed>();
    dropped_on_threads::<Linux612>();
}

/// At the thread's end, after the thread cache's own state may be gone.
#[test]
fn the_last_block_may_be_a_threads_local() {
    thread_local! {
        static KEPT: Mutex<Option<(OwnedBlock, OwnedRange)>> = const { Mutex::new(None) };
    }
    for early in [false, true] {
        let yard = Arc::new(builder().build().unwrap());
        let drops = dropped_with(&yard);
        let thread = std::thread::spawn(move || {
            if early {
                // Destructors run in some order: this one is registered first.
                KEPT.with(|kept| drop(kept.lock().unwrap()));
            }
            let block = yard.alloc_owned(Order::ZERO, Gfp::KERNEL).unwrap();
            let range = yard.alloc_range_owned(10, 1, Gfp::KERNEL).unwrap();
            KEPT.with(|kept| *kept.lock().unwrap() = Some((block, range)));
        });
        thread.join().unwrap();
        assert!(until(|| drops.load(SeqCst) == 1));
    }
}

/// A block that makes the worker call its shrinkers and listeners: more than the soft limit.
fn above_soft_limit(thread_cache: bool) -> (Arc<HostYard>, OwnedBlock) {
    let builder = builder().soft_limit(PAGE_SIZE).tick(Some(Duration::from_millis(5)));
    let builder = match thread_cache {
        true => builder,
        false => builder.thread_cache(pageyard_host::ThreadCache::Off),
    };
    let yard = Arc::new(builder.build().unwrap());
    let block = yard.alloc_owned(order(10), Gfp::KERNEL).unwrap();
    (yard, block)
}

#[test]
fn the_last_block_may_be_dropped_by_a_shrinker_of_its_yard() {
    for thread_cache in [false, true] {
        let (yard, block) = above_soft_limit(thread_cache);
        let drops = dropped_with(&yard);
        // Not owned by the callback: the yard would own itself.
        let cache = Arc::new(Mutex::new(None));
        let shrunk = Arc::downgrade(&cache);
        let (freed, on) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let seen = (freed.clone(), on.clone());
        let shrink = move |_: &ReclaimJob| {
            let Some(cache) = shrunk.upgrade() else { return 0 };
            let Some(block): Option<OwnedBlock> = cache.lock().unwrap().take() else { return 0 };
            *seen.1.lock().unwrap() = std::thread::current().name().map(str::to_owned);
            drop(block);
            seen.0.store(true, SeqCst);
            1024
        };
        yard.register_shrinker(shrink).keep();
        // The callback may take the block as soon as it is there: the yard goes before it.
        drop(yard);
        *cache.lock().unwrap() = Some(block);
        assert!(until(|| freed.load(SeqCst)));
        assert_eq!(on.lock().unwrap().as_deref(), Some("pageyard"), "on the yard's own thread");
        assert!(until(|| drops.load(SeqCst) == 1));
    }
}

/// A drop that waited for the yard's thread would wait for ever: that thread waits for the lock.
#[test]
fn the_last_block_may_be_dropped_under_a_lock_that_a_callback_waits_for() {
    let (yard, block) = above_soft_limit(true);
    let drops = dropped_with(&yard);
    let lock = Arc::new(Mutex::new(()));
    let inside = Arc::new(AtomicBool::new(false));
    let (own, told) = (lock.clone(), inside.clone());
    let held = lock.lock().unwrap();
    yard.register_shrinker(move |_: &ReclaimJob| {
        told.store(true, SeqCst);
        drop(own.lock());
        0
    })
    .keep();
    assert!(until(|| inside.load(SeqCst)), "the worker waits for the lock");
    drop(yard);
    let dropping = std::thread::spawn(move || drop(block));
    let done = until(|| dropping.is_finished());
    drop(held);
    assert!(done, "the drop of a block waits for the yard's thread");
    dropping.join().unwrap();
    assert!(until(|| drops.load(SeqCst) == 1));
}

#[test]
fn a_buffer_pool_owns_its_yard_and_frames() {
    let output =
        Command::new(example("buffer_pool", "buffer_pool.rs")).arg("20000").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.starts_with("20000 of 20000 additions") && !said.contains(" 0 shrinks"), "{said}");
}
