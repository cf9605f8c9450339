//! The thread cache: no page has two owners, and none is stranded when threads sleep, exit or find
//! no memory. Forks are in `tests/fork.rs`.

#![allow(unsafe_code)] // a thread that ends itself, and the core of a yard

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use pageyard::policy::{
    Guarded, InitOnAlloc, InitOnFree, PageChecked, Poisoned, StaticPolicy, Unmapped,
};
use pageyard::{AllocError, Gfp, Order, PAGE_SIZE};
use pageyard_host::{Block, Builder, HostYard, HugePages, ThreadCache};

const ONE: Order = Order::ZERO;

fn huge() -> Order {
    Order::new(9).unwrap()
}

fn yard(bytes: u64) -> HostYard {
    Builder::new(bytes).tick(None).build().unwrap()
}

/// Pages that are neither free nor on per-CPU lists.
fn used<P: StaticPolicy>(yard: &HostYard<P>) -> u64 {
    let of = |zone| {
        let info = yard.zone_info(zone).unwrap();
        info.managed - info.free_exact - info.cached
    };
    yard.zones().map(of).sum()
}

fn take<'y, P: StaticPolicy>(yard: &'y HostYard<P>, n: usize) -> Vec<Block<'y, P>> {
    (0..n).map(|_| yard.alloc(ONE, Gfp::KERNEL).unwrap()).collect()
}

#[test]
fn pages_are_refilled_and_drained_in_bulk() {
    let yard = yard(1 << 30);
    let all = take(&yard, 6300);
    drop(all);
    let stats = yard.thread_cache_stats();
    assert!(stats.on && stats.threads == 1, "{stats:?}");
    assert_eq!(stats.refilled_pages, 63 * stats.refills);
    assert_eq!(stats.hits + stats.refills, 6300);
    assert_eq!(stats.refills, 100);
    assert!(stats.pages <= 126 && stats.pages == used(&yard), "{stats:?}");
    assert_eq!(stats.flushed_pages, 6300 - stats.pages);
    assert!(stats.flushes <= 100, "{stats:?}");
    let thread = yard.thread_cache_threads()[0];
    assert_eq!((thread.pages, thread.hits), (stats.pages, stats.hits));
    yard.drain();
    assert_eq!(used(&yard), 0);
    assert_eq!(yard.thread_cache_stats().pages, 0);
}

#[test]
fn a_freed_page_is_reused_from_the_thread_cache() {
    let yard = yard(1 << 30);
    drop(yard.alloc(ONE, Gfp::KERNEL).unwrap());
    let before = yard.thread_cache_stats();
    let at = yard.alloc(ONE, Gfp::KERNEL).unwrap().as_ptr();
    for _ in 0..1000 {
        assert_eq!(yard.alloc(ONE, Gfp::KERNEL).unwrap().as_ptr(), at);
    }
    let after = yard.thread_cache_stats();
    assert_eq!((after.hits, after.refills), (before.hits + 1001, before.refills));
    // A request of another type gets another page.
    assert_ne!(yard.alloc(ONE, Gfp::HIGHUSER_MOVABLE).unwrap().as_ptr(), at);
    // Larger blocks are cached too, and cleared if requested.
    for order in [1, 2, 3, 9] {
        let order = Order::new(order).unwrap();
        let mut block = yard.alloc(order, Gfp::KERNEL).unwrap();
        block.fill(7);
        let at = block.as_ptr();
        drop(block);
        let hits = || yard.thread_cache_stats().hits_by_order[usize::from(order.get())];
        let before = hits();
        let block = yard.alloc(order, Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert_eq!((block.as_ptr(), hits()), (at, before + 1));
        assert_eq!(block.len(), 4096 << order.get());
        assert!(block.iter().all(|&b| b == 0));
    }
}

/// The least that glibc allows.
#[test]
fn a_thread_with_a_small_stack_has_a_cache() {
    let yard = yard(1 << 30);
    std::thread::scope(|s| {
        let work = || {
            drop(take(&yard, 300));
            yard.thread_cache_threads().len()
        };
        let thread = std::thread::Builder::new().stack_size(16 << 10).spawn_scoped(s, work);
        assert_eq!(thread.unwrap().join().unwrap(), 1);
    });
}

/// A thread finds only a few yards' magazines directly, each by the yard's number modulo 4.
#[test]
fn yards_that_a_thread_uses_in_turn_serve_it_from_its_caches() {
    // Two of any five share a place.
    let yards: Vec<_> = (0..5).map(|_| yard(1 << 30)).collect();
    for _ in 0..100 {
        for yard in &yards {
            drop(yard.alloc(ONE, Gfp::KERNEL).unwrap());
            drop(yard.alloc(huge(), Gfp::KERNEL).unwrap());
        }
    }
    for stats in yards.iter().map(HostYard::thread_cache_stats) {
        let hits = [0, 9].map(|order| stats.hits_by_order[order]);
        assert_eq!((stats.refills, stats.hits, hits), (1, 99 + 99, [99, 99]), "{stats:?}");
    }
}

#[test]
fn two_ticks_drain_a_sleeping_thread() {
    let yard = yard(1 << 30);
    let (slept, wake) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| {
            drop(take(&yard, 1000));
            drop(yard.alloc(huge(), Gfp::KERNEL).unwrap());
            slept.wait();
            wake.wait();
            // The thread claims its magazine again.
            drop(take(&yard, 10));
            yard.thread_cache_threads().len()
        });
        slept.wait();
        assert!(used(&yard) > 512);
        s.spawn(|| (0..2).for_each(|_| yard.tick())).join().unwrap();
        let stats = yard.thread_cache_stats();
        assert_eq!((used(&yard), stats.pages, stats.drains), (0, 0, 1), "{stats:?}");
        wake.wait();
        assert_eq!(sleeper.join().unwrap(), 1);
    });
    // The thread freed them when it exited.
    let stats = yard.thread_cache_stats();
    assert_eq!((used(&yard), stats.threads), (0, 0), "{stats:?}");
}

#[test]
fn ticks_keep_the_pages_of_an_active_thread() {
    let yard = yard(1 << 30);
    drop(take(&yard, 100));
    std::thread::scope(|s| {
        s.spawn(|| yard.tick()).join().unwrap();
        drop(take(&yard, 1));
        s.spawn(|| yard.tick()).join().unwrap();
    });
    assert_eq!(yard.thread_cache_stats().drains, 0);
}

#[test]
fn ticks_drain_the_huge_blocks_of_a_thread_that_uses_only_pages() {
    let yard = yard(1 << 30);
    let tick = || std::thread::scope(|s| s.spawn(|| yard.tick()).join().unwrap());
    drop([(); 3].map(|()| yard.alloc(huge(), Gfp::KERNEL).unwrap()));
    drop(yard.alloc(huge(), Gfp::HIGHUSER_MOVABLE).unwrap());
    let huge_blocks = || yard.thread_cache_stats().blocks[9];
    // With refills and flushes, as many as hits.
    let use_pages = || drop(take(&yard, 300));
    use_pages();
    tick();
    use_pages();
    drop(yard.alloc(huge(), Gfp::KERNEL).unwrap());
    tick();
    assert_eq!(huge_blocks(), 3, "only those of the type that was used again");
    use_pages();
    tick();
    let stats = yard.thread_cache_stats();
    assert_eq!((stats.blocks[9], stats.drains, stats.drained_pages), (0, 2, 4 * 512));
    assert!(stats.pages > 0);
}

#[test]
fn an_exiting_thread_frees_its_cache() {
    let yard = yard(1 << 30);
    for _ in 0..50 {
        std::thread::scope(|s| {
            // A scope waits for the threads' closures; a join also waits for what they do at exit.
            let threads = [(); 2].map(|()| s.spawn(|| drop(take(&yard, 200))));
            threads.into_iter().for_each(|t| t.join().unwrap());
        });
    }
    let stats = yard.thread_cache_stats();
    assert_eq!((used(&yard), stats.threads, stats.pages), (0, 0, 0));
    assert_eq!(stats.hits + stats.refills, 50 * 2 * 200, "threads that have exited still count");
}

/// A thread that exits without the C library's knowledge: its destructors never run.
#[test]
fn a_killed_thread_strands_no_pages() {
    type Shared = (HostYard, AtomicBool);
    extern "C" fn run(shared: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the test waits for the flag, and the pointee lives as long as the process.
        let shared = unsafe { &*shared.cast::<Shared>() };
        drop(take(&shared.0, 200));
        shared.1.store(true, Relaxed);
        // SAFETY: it ends only this thread, which holds nothing that another thread waits for.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!()
    }
    let shared: &'static Shared = Box::leak(Box::new((yard(1 << 30), AtomicBool::new(false))));
    let (mut thread, to) = (0, (&raw const *shared).cast_mut().cast());
    // SAFETY: the thread's argument lives for ever, and the thread is never joined.
    assert_eq!(unsafe { libc::pthread_create(&mut thread, std::ptr::null(), run, to) }, 0);
    while !shared.1.load(Relaxed) {
        std::thread::yield_now();
    }
    let yard = &shared.0;
    assert!(yard.thread_cache_stats().pages > 0, "the thread's pages are still cached");
    // Two ticks find them unused and drain them.
    yard.tick();
    yard.tick();
    yard.drain();
    assert_eq!((used(yard), yard.thread_cache_stats().pages), (0, 0));
}

#[test]
fn thread_caches_are_drained_before_a_request_fails() {
    let yard = yard(64 << 20);
    let (slept, wake) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            drop(take(&yard, 100));
            slept.wait();
            wake.wait();
        });
        slept.wait();
        assert!(yard.thread_cache_stats().pages > 0);
        let mut held = Vec::new();
        while let Ok(block) = yard.alloc(ONE, Gfp::KERNEL | Gfp::NOWARN) {
            held.push(block);
        }
        let stats = yard.thread_cache_stats();
        assert!(stats.pages == 0 && stats.presses > 0 && stats.pressed, "{stats:?}");
        assert_eq!(used(&yard), held.len() as u64, "the sleeping thread keeps no pages");
        // Pages freed while memory is short go to the zone at once.
        held.truncate(held.len() - 5);
        assert_eq!(used(&yard), held.len() as u64);
        drop(held);
        // Memory is free again, so pages are cached again from the next tick on.
        s.spawn(|| yard.tick()).join().unwrap();
        drop(take(&yard, 100));
        let stats = yard.thread_cache_stats();
        assert!(stats.pages > 0 && !stats.pressed, "{stats:?}");
        wake.wait();
    });
}

/// Until then requests do not ask for it, which would contend for a lock.
#[test]
fn only_a_tick_lets_threads_cache_pages_after_a_shortage() {
    let yard = yard(64 << 20);
    let all = || yard.alloc(ONE, Gfp::KERNEL | Gfp::NOWARN).ok();
    drop(std::iter::from_fn(all).collect::<Vec<_>>());
    let before = yard.thread_cache_stats();
    drop(take(&yard, 1000));
    let after = yard.thread_cache_stats();
    assert_eq!((after.pressed, after.pages, after.hits), (true, 0, before.hits));
    std::thread::scope(|s| s.spawn(|| yard.tick()).join().unwrap());
    drop(take(&yard, 100));
    let stats = yard.thread_cache_stats();
    assert!(stats.pages > 0 && stats.hits > after.hits && !stats.pressed, "{stats:?}");
}

#[test]
fn thread_caches_are_drained_before_a_movable_request_fails() {
    let yard = yard(64 << 20);
    let (slept, wake) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            drop(take(&yard, 100));
            slept.wait();
            wake.wait();
        });
        slept.wait();
        assert!(yard.thread_cache_stats().pages > 0);
        let mut held = Vec::new();
        while let Ok(block) = yard.alloc_movable(ONE, Gfp::KERNEL | Gfp::NOWARN) {
            held.push(block);
        }
        assert_eq!(yard.thread_cache_stats().pages, 0);
        assert_eq!(used(&yard), held.len() as u64, "the sleeping thread keeps no pages");
        wake.wait();
    });
}

/// A page that a thread keeps is free: it must not be handed out again.
#[test]
fn a_faulty_page_in_a_thread_cache_is_out_of_use_at_once() {
    let yard = yard(64 << 20);
    let block = yard.alloc(ONE, Gfp::KERNEL).unwrap();
    let pfn = block.pfn();
    drop(block);
    assert!(yard.thread_cache_stats().pages > 0);
    assert_eq!(yard.poison_frame(pfn), Ok(pageyard::Poisoned::Removed));
    assert!(take(&yard, 1000).iter().all(|block| block.pfn() != pfn));
}

#[test]
fn threads_are_drained_while_they_work() {
    let yard = Builder::new(256 << 20).tick(Some(Duration::from_millis(1))).build().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let (send, receive) = mpsc::sync_channel::<(Block<'_>, u64)>(512);
        let workers: Vec<_> = (0..3u64)
            .map(|n| {
                let (yard, send) = (&yard, send.clone());
                s.spawn(move || {
                    // On a single CPU, the draining thread may not have run yet.
                    let enough = |i| i >= 30_000 && yard.thread_cache_stats().drains > 0;
                    for i in (0..).take_while(|&i| i % 1000 > 0 || !enough(i)) {
                        let tag = n << 32 | i;
                        let mut block = yard.alloc(ONE, Gfp::KERNEL).unwrap();
                        block[..8].copy_from_slice(&tag.to_le_bytes());
                        if i % 3 == 0 {
                            send.send((block, tag)).unwrap();
                        } else {
                            assert_eq!(block[..8], tag.to_le_bytes());
                        }
                    }
                })
            })
            .collect();
        drop(send);
        let reader = s.spawn(|| {
            for (block, tag) in receive {
                assert_eq!(block[..8], tag.to_le_bytes(), "a page had two owners");
            }
        });
        s.spawn(|| {
            while !done.load(Relaxed) {
                yard.drain();
                std::thread::yield_now();
            }
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Relaxed);
        reader.join().unwrap();
    });
    assert!(yard.thread_cache_stats().drains > 0);
    yard.drain();
    assert_eq!(used(&yard), 0);
}

/// Pressure changes while threads refill and flush, so that their limits change in the middle of
/// both.
#[test]
fn pages_have_one_owner_under_changing_pressure() {
    let how = ThreadCache::Blocks { pages: 60, larger: 0, huge: 0 };
    let yard = Builder::new(16 << 20).thread_cache(how).tick(None).build().unwrap();
    let zone = yard.zone_info(yard.zones().next().unwrap()).unwrap();
    // One flag for each page that a thread owns.
    let owned: Vec<_> = (0..zone.spanned).map(|_| AtomicBool::new(false)).collect();
    let owner = |block: &Block<'_>| &owned[(block.pfn().0 - zone.start.0) as usize];
    let done = AtomicBool::new(false);
    let until_done = |work: &dyn Fn()| {
        while !done.load(Relaxed) {
            work();
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| until_done(&|| yard.tick()));
        s.spawn(|| {
            until_done(&|| {
                let swing = || yard.alloc(huge(), Gfp::KERNEL | Gfp::NOWARN).ok();
                let held: Vec<_> = std::iter::from_fn(swing).collect();
                yard.tick();
                drop(held);
            });
        });
        let work = || {
            // The threads that change the pressure may not have run yet.
            let enough = |i| i >= 20_000 && yard.thread_cache_stats().presses > 0;
            for _ in (0..).take_while(|&i| i % 1000 > 0 || !enough(i)) {
                let take = || yard.alloc(ONE, Gfp::KERNEL | Gfp::NOWARN).ok();
                let mine: Vec<_> = std::iter::from_fn(take).take(63).collect();
                let doubled = mine.iter().any(|b| owner(b).swap(true, Relaxed));
                mine.iter().for_each(|b| owner(b).store(false, Relaxed));
                if doubled {
                    return false;
                }
            }
            true
        };
        let workers = [(); 3].map(|()| s.spawn(work));
        let well = workers.map(|w| w.join().unwrap());
        done.store(true, Relaxed);
        assert_eq!(well, [true; 3], "a page has two owners");
    });
    let stats = yard.thread_cache_stats();
    assert!(stats.presses > 0, "pressure must occur");
    yard.drain();
    assert_eq!(used(&yard), 0, "pages are lost");
}

#[test]
fn a_yard_is_dropped_before_its_threads_exit() {
    // More yards than a thread looks up at once, one after the other and side by side.
    let check = |yards: &[HostYard]| {
        for round in 0..100u64 {
            for yard in yards {
                let mut block = yard.alloc(ONE, Gfp::KERNEL).unwrap();
                block[..8].copy_from_slice(&round.to_le_bytes());
            }
        }
        assert!(yards.iter().all(|y| y.thread_cache_stats().hits > 0 || yards.len() > 4));
    };
    let (send, receive) = mpsc::channel::<Vec<HostYard>>();
    let (back, returned) = mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(move || {
            for yards in receive {
                check(&yards);
                back.send(yards).unwrap();
            }
        });
        for n in [1, 6, 1, 3] {
            send.send((0..n).map(|_| yard(64 << 20)).collect()).unwrap();
            // The other thread's magazines outlive the yards.
            drop(returned.recv().unwrap());
        }
        drop(send);
    });
}

#[test]
fn the_thread_cache_can_be_disabled_and_sized() {
    let bare = Builder::new(64 << 20).thread_cache(ThreadCache::Off).build().unwrap();
    drop(take(&bare, 100));
    assert_eq!(bare.thread_cache_stats(), Default::default());
    assert_eq!(used(&bare), 0);
    let few = ThreadCache::Blocks { pages: 8, larger: 0, huge: 0 };
    let few = Builder::new(64 << 20).thread_cache(few).build().unwrap();
    drop(take(&few, 100));
    drop(few.alloc(huge(), Gfp::KERNEL).unwrap());
    let stats = few.thread_cache_stats();
    assert!(stats.pages <= 8 && stats.refilled_pages == 4 * stats.refills, "{stats:?}");
    let many = ThreadCache::Blocks { pages: 127, larger: 0, huge: 0 };
    let error = Builder::new(64 << 20).thread_cache(many).build().unwrap_err();
    assert!(error.to_string().starts_with("thread_cache: "), "{error}");
}

/// Policies that check or fill pages do so on each allocation and free, which the cache would
/// bypass.
#[test]
fn checking_and_filling_policies_disable_the_thread_cache() {
    fn check<P: StaticPolicy + Send + Sync + 'static>(keeps_zeros: bool) {
        let builder = Builder::new(16 << 20).tick(None);
        for how in [ThreadCache::Auto, ThreadCache::Off] {
            let yard = builder.clone().thread_cache(how).build_with::<P>().unwrap();
            assert!(!yard.thread_cache_stats().on, "{}", P::NAME);
            for n in [0, 3, 9] {
                let take = || yard.alloc(Order::new(n).unwrap(), Gfp::KERNEL).unwrap();
                take().fill(0xff);
                let again = take();
                assert!(!keeps_zeros || again.iter().all(|&b| b == 0), "{}", P::NAME);
            }
        }
        let how = ThreadCache::Blocks { pages: 8, larger: 1, huge: 1 };
        let error = builder.thread_cache(how).build_with::<P>().expect_err(P::NAME);
        assert!(error.to_string().starts_with("thread_cache: the policy"), "{error}");
    }
    check::<PageChecked>(false);
    check::<Poisoned>(false);
    check::<Unmapped>(false);
    check::<InitOnAlloc>(true);
    check::<InitOnFree>(true);
    // Guards are never allocated, so the cache works with them.
    let how = ThreadCache::Blocks { pages: 8, larger: 0, huge: 0 };
    let yard = Builder::new(16 << 20).thread_cache(how).build_with::<Guarded<1>>().unwrap();
    assert!(yard.thread_cache_stats().on);
}

#[test]
fn thread_caches_are_limited_to_a_quarter_of_the_yard() {
    let how = ThreadCache::Blocks { pages: 100, larger: 0, huge: 0 };
    let yard = Builder::new(16 << 20).thread_cache(how).tick(None).build().unwrap();
    let barrier = Barrier::new(8);
    std::thread::scope(|s| {
        let work = || {
            drop(take(&yard, 50));
            barrier.wait();
            assert_eq!(yard.thread_cache_stats().threads, 3, "1024 pages, 300 for each thread");
            barrier.wait();
        };
        let threads = [(); 8].map(|()| s.spawn(work));
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    assert_eq!(used(&yard), 0);
}

#[test]
fn known_zero_pages_are_not_written() {
    let builder = Builder::new(64 << 20).huge_pages(HugePages::Never).tick(None);
    let yard = builder.build().unwrap();
    let zero = Gfp::KERNEL | Gfp::ZERO;
    let blocks: Vec<_> = (0..100).map(|_| yard.alloc(ONE, zero).unwrap()).collect();
    let large = yard.alloc(huge(), zero).unwrap();
    let medium = yard.alloc(Order::new(3).unwrap(), zero).unwrap();
    assert_eq!(yard.resident().unwrap(), 0, "no page was touched");
    assert!(blocks.iter().all(|b| b.iter().all(|&b| b == 0)));
    assert!(large.iter().chain(medium.iter()).all(|&b| b == 0));
    drop((blocks, large, medium));
    // A page that had an owner may have been written, wherever it was cached since.
    for round in 0..3 {
        let mut all = Vec::new();
        while let Ok(mut block) = yard.alloc(ONE, zero | Gfp::NOWARN) {
            assert!(block.iter().all(|&b| b == 0), "round {round}");
            block.fill(0xff);
            all.push(block);
        }
        drop(all);
        yard.drain();
    }
    let mut large = yard.alloc(huge(), zero).unwrap();
    assert!(large.iter().all(|&b| b == 0));
    large.fill(1);
}

#[test]
fn bulk_requests_use_the_thread_cache() {
    let yard = yard(64 << 20);
    let mut blocks = Vec::new();
    assert_eq!(yard.alloc_bulk(1000, Gfp::KERNEL, &mut blocks), Ok(1000));
    for (n, block) in blocks.iter_mut().enumerate() {
        block[..8].copy_from_slice(&n.to_le_bytes());
    }
    assert!(blocks.iter().enumerate().all(|(n, b)| b[..8] == n.to_le_bytes()));
    assert_eq!(used(&yard), 1000);
    yard.free_bulk(blocks.drain(..));
    assert_eq!(used(&yard), 0);
    // All pages.
    let got = yard.alloc_bulk(100_000, Gfp::KERNEL | Gfp::NOWARN, &mut blocks).unwrap();
    assert!(got > 15_000 && got == blocks.len(), "{got}");
    assert_eq!(used(&yard), got as u64 + yard.thread_cache_stats().pages);
    yard.free_bulk(blocks);
    yard.drain();
    assert_eq!(used(&yard), 0);
    let wrong = Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert_eq!(yard.alloc_bulk(2, wrong, &mut Vec::new()), Err(AllocError::BadType));
}

#[test]
fn an_iterator_that_panics_loses_no_block() {
    let yard = Builder::new(16 << 20).tick(None).thread_cache(ThreadCache::Off).build().unwrap();
    let yard: HostYard = yard;
    let mut blocks = Vec::new();
    assert_eq!(yard.alloc_bulk(62, Gfp::KERNEL, &mut blocks), Ok(62));
    let until_the_last = blocks.into_iter().enumerate().map(|(i, block)| {
        assert!(i < 61, "planted");
        block
    });
    let free = std::panic::AssertUnwindSafe(|| yard.free_bulk(until_the_last));
    assert!(std::panic::catch_unwind(free).is_err());
    yard.drain();
    assert_eq!(used(&yard), 0);
}

#[test]
fn a_bulk_request_beyond_free_memory_is_partial() {
    let yard = yard(64 << 20);
    for n in [1 << 50, usize::MAX] {
        let mut blocks = Vec::new();
        let got = yard.alloc_bulk(n, Gfp::KERNEL | Gfp::NOWARN, &mut blocks).unwrap();
        assert!(got > 15_000 && got == blocks.len(), "{got}");
        assert_eq!(used(&yard), got as u64);
        // Nothing is left, and a second request gets no more.
        assert!(yard.alloc_bulk(n, Gfp::KERNEL | Gfp::NOWARN, &mut blocks).unwrap() < 100);
    }
    yard.drain();
    assert_eq!(used(&yard), 0);
}

#[test]
fn an_impossible_alignment_allocates_nothing() {
    let yard = yard(64 << 20);
    let zone = yard.zones().next().unwrap();
    // SAFETY: the core is only read.
    let lowest = || unsafe { yard.core() }.take_lowest_free(zone).unwrap();
    lowest();
    let free = yard.zone_info(zone).unwrap().free_exact;
    for align in [1 << 40, 1 << 63] {
        let error = yard.alloc_aligned(ONE, align, Gfp::KERNEL).unwrap_err();
        assert_eq!(error, AllocError::NoMemory.into());
    }
    assert_eq!(lowest(), free, "free memory did not drop meanwhile");
    // Until every such place is in use.
    let places: Vec<_> =
        std::iter::from_fn(|| yard.alloc_aligned(ONE, 16 << 20, Gfp::KERNEL).ok()).collect();
    assert!((3..=4).contains(&places.len()), "of 64 MiB: {}", places.len());
    assert!(lowest() >= free - 4);
    let wrong = yard.alloc_aligned(ONE, 16 << 20, Gfp::MOVABLE | Gfp::RECLAIMABLE);
    assert_eq!(wrong.unwrap_err(), AllocError::BadType.into());
}

#[test]
fn blocks_are_aligned_beyond_their_size() {
    let yard = yard(64 << 20);
    for align in [4096, 64 << 10, 2 << 20, 16 << 20] {
        let mut block = yard.alloc_aligned(ONE, align, Gfp::KERNEL).unwrap();
        assert_eq!(block.as_ptr().addr().get() as u64 % align, 0);
        block.fill(1);
    }
    assert!(yard.alloc_aligned(ONE, 3 << 12, Gfp::KERNEL).is_err());
    assert!(yard.alloc_aligned(ONE, 1 << 40, Gfp::KERNEL).is_err());
    yard.drain();
    assert_eq!(used(&yard), 0);
}

#[test]
fn ranges_are_freed_on_other_threads() {
    let yard = yard(64 << 20);
    let mut range = yard.alloc_range(1500, 1, Gfp::KERNEL).unwrap();
    range.fill(1);
    std::thread::scope(|s| {
        let read = s.spawn(|| range.iter().map(|&b| usize::from(b)).sum::<usize>());
        assert!(range.iter().all(|&b| b == 1));
        assert_eq!(read.join().unwrap(), range.len());
    });
    std::thread::scope(|s| {
        s.spawn(move || {
            range.fill(2);
            drop(range);
        });
    });
    assert_eq!(used(&yard), 0);
}

#[test]
fn ranges_may_exceed_the_largest_block() {
    let yard = yard(64 << 20);
    drop(take(&yard, 100));
    let mut range = yard.alloc_range(3000, 512, Gfp::KERNEL | Gfp::ZERO).unwrap();
    assert_eq!(range.len(), 3000 * PAGE_SIZE as usize);
    assert_eq!(range.frames().start.0 % 512, 0);
    assert!(range.iter().all(|&b| b == 0));
    range.fill(7);
    assert_eq!(used(&yard), 3000);
    assert!(yard.alloc_range(20_000, 1, Gfp::KERNEL).is_err());
    assert!(yard.alloc_range(1, 3, Gfp::KERNEL).is_err());
    drop(range);
    assert_eq!(used(&yard), 0);
}
