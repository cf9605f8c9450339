//! Yards over real memory, used by threads. What is written into a block stays there until the
//! block is freed, so no page has two owners; at the end all memory is free.

#![allow(unsafe_code)] // raw blocks become blocks again

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use pageyard::policy::{Base, Linux612, Packed, StaticPolicy};
use pageyard::{CpuId, Gfp, Knobs, Order, PAGE_SIZE, ZoneId};
use pageyard_host::{Block, Builder, HostLock, HostYard, HugePages, RawYard, cpu};

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Number of free pages after the per-CPU lists are drained.
fn free_pages<P: StaticPolicy>(yard: &HostYard<P>) -> u64 {
    yard.drain();
    let zones: Vec<ZoneId> = yard.zones().collect();
    zones.iter().map(|&z| yard.zone_info(z).unwrap().free_exact).sum()
}

/// Asserts that this many pages are free. The yard's worker may be moving a CPU's part to the free counter, in
/// which case a reader sees the part twice: then counts again until the worker has finished.
fn assert_free<P: StaticPolicy>(yard: &HostYard<P>, pages: u64) {
    let mut free = free_pages(yard);
    for _ in 0..1_000 {
        if free == pages {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
        free = free_pages(yard);
    }
    panic!("{free} pages are free, not {pages}");
}

/// A small random generator; only variety matters, not quality.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % n
    }
}

/// Marks every page of a block, at both ends, as written by this thread.
fn mark<P: StaticPolicy>(block: &mut Block<'_, P>, tag: u64) {
    for page in block.chunks_exact_mut(PAGE_SIZE as usize) {
        page[..8].copy_from_slice(&tag.to_le_bytes());
        page[4088..].copy_from_slice(&(!tag).to_le_bytes());
    }
}

fn check<P: StaticPolicy>(block: &Block<'_, P>, tag: u64) {
    for page in block.chunks_exact(PAGE_SIZE as usize) {
        assert_eq!(page[..8], tag.to_le_bytes(), "a page had two owners");
        assert_eq!(page[4088..], (!tag).to_le_bytes(), "a page had two owners");
    }
}

fn churn<P: StaticPolicy>(yard: &HostYard<P>, thread: u64, rounds: u64) {
    let mut draw = Draw(thread);
    let mut held: Vec<(Block<'_, P>, u64)> = Vec::new();
    for round in 0..rounds {
        if draw.below(3) > 0 || held.is_empty() {
            let order = order(draw.below(6) as u8);
            let Ok(mut block) = yard.alloc(order, Gfp::KERNEL | Gfp::NOWARN) else {
                held.clear();
                continue;
            };
            let tag = thread << 40 | round << 1;
            mark(&mut block, tag);
            held.push((block, tag));
        } else {
            let (block, tag) = held.swap_remove(draw.below(held.len() as u64) as usize);
            check(&block, tag);
        }
        if round % 500 == 0
            && let Some(cpus) = cpu::allowed().ok().filter(|c| !c.is_empty())
        {
            // Lists belong to the running CPU, and threads migrate.
            let _ = cpu::bind(&[cpus[draw.below(cpus.len() as u64) as usize]]);
        }
    }
    held.iter().for_each(|(block, tag)| check(block, *tag));
}

#[test]
fn migrating_threads_never_share_a_page() {
    fn run<P: StaticPolicy + Send + Sync + 'static>() {
        let builder = Builder::new(64 << 20).tick(Some(Duration::from_millis(2)));
        let yard = builder.build_with::<P>().unwrap();
        let all = free_pages(&yard);
        std::thread::scope(|s| {
            for thread in 1..=4 {
                let yard = &yard;
                s.spawn(move || churn(yard, thread, 5_000));
            }
        });
        assert_free(&yard, all);
    }
    run::<Packed>();
    run::<Linux612>();
    run::<Base>();
}

#[test]
fn blocks_are_freed_on_other_threads() {
    let yard = Builder::new(32 << 20).build().unwrap();
    let all = free_pages(&yard);
    std::thread::scope(|s| {
        let (send, receive) = mpsc::sync_channel::<(Block<'_>, u64)>(64);
        s.spawn(|| {
            for tag in 0..10_000 {
                let mut block = yard.alloc(order((tag % 4) as u8), Gfp::KERNEL).unwrap();
                mark(&mut block, tag);
                send.send((block, tag)).unwrap();
            }
            drop(send);
        });
        s.spawn(move || receive.iter().for_each(|(block, tag)| check(&block, tag)));
    });
    assert_free(&yard, all);
}

#[test]
fn a_full_yard_fails_and_recovers() {
    let yard = Builder::new(16 << 20).build().unwrap();
    let all = free_pages(&yard);
    let held = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..3 {
            s.spawn(|| {
                while let Ok(block) = yard.alloc(order(0), Gfp::KERNEL | Gfp::NOWARN) {
                    held.lock().unwrap().push(block);
                }
            });
        }
    });
    let mut held = held.into_inner().unwrap();
    assert!(held.len() as u64 > all * 9 / 10, "{} of {all}", held.len());
    for (tag, block) in held.iter_mut().enumerate() {
        mark(block, tag as u64);
    }
    for (tag, block) in held.iter().enumerate() {
        check(block, tag as u64);
    }
    drop(held);
    assert_free(&yard, all);
    assert!(yard.alloc(order(10), Gfp::KERNEL).is_ok(), "all memory has merged");
}

#[test]
fn blocks_are_aligned_and_zeroed_when_asked() {
    // Write every page, including the reserves, so that none is zero by chance. Nothing is returned
    // to the system meanwhile.
    let yard = Builder::new(32 << 20).give_back(None).build().unwrap();
    let pages = free_pages(&yard);
    let mut all = Vec::new();
    // The worker may isolate free pages briefly for compaction, so a few attempts fail.
    for _ in 0..pages + (1 << 20) {
        match yard.alloc(order(0), Gfp::KERNEL | Gfp::MEMALLOC | Gfp::NOWARN) {
            Ok(mut block) => {
                block.fill(0xff);
                all.push(block);
            }
            Err(_) if all.len() as u64 == pages => break,
            Err(_) => thread::yield_now(),
        }
    }
    assert_eq!(all.len() as u64, pages);
    drop(all);
    yard.drain();
    for n in 0..=10 {
        let block = yard.alloc(order(n), Gfp::KERNEL).unwrap();
        assert_eq!(block.len(), 4096 << n);
        assert_eq!(block.as_ptr().as_ptr().addr() % block.len(), 0);
        assert!(block.contains(&0xff), "order {n}");
        let mut zeroed = yard.alloc(order(n), Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert!(zeroed.iter().all(|&b| b == 0), "order {n}");
        zeroed.fill(0xff);
    }
}

#[test]
fn raw_blocks_stay_allocated_until_converted_back() {
    let yard = Builder::new(16 << 20).build().unwrap();
    let all = free_pages(&yard);
    let mut block = yard.alloc(order(1), Gfp::KERNEL).unwrap();
    mark(&mut block, 5);
    let (pfn, order) = block.into_raw();
    assert_free(&yard, all - 2);
    // SAFETY: its ownership was given up above.
    let block = unsafe { yard.from_raw(pfn, order) }.unwrap();
    check(&block, 5);
    drop(block);
    assert_free(&yard, all);
    // SAFETY: the frame is in no yard, so no block results.
    assert!(unsafe { yard.from_raw(pageyard::Pfn(1), order) }.is_none());
}

#[test]
fn memory_is_populated_on_demand_or_at_once() {
    let builder = Builder::new(32 << 20).huge_pages(HugePages::Never);
    let yard = builder.build().unwrap();
    assert_eq!(yard.resident().unwrap(), 0);
    let mut block = yard.alloc(order(2), Gfp::KERNEL).unwrap();
    block.fill(1);
    assert_eq!(yard.resident().unwrap(), 4);
    let yard = builder.prefault(true).build().unwrap();
    assert_eq!(yard.resident().unwrap(), 8192);
}

#[test]
fn ticks_shrink_unused_lists() {
    let yard = Builder::new(256 << 20).tick(None).build().unwrap();
    let zone = yard.zones().next().unwrap();
    // A long run of requests makes `high` grow; then all pages are freed.
    let blocks: Vec<_> = (0..20_000).map(|_| yard.alloc(order(0), Gfp::KERNEL).unwrap()).collect();
    drop(blocks);
    let cached = || yard.zone_info(zone).unwrap().cached;
    let before = cached();
    std::thread::scope(|s| {
        s.spawn(|| (0..100).for_each(|_| yard.tick()));
    });
    assert!(cached() < before, "{} of {before}", cached());
    let ticks: u64 =
        yard.cpus().iter().map(|&c| yard.cpu_stats(zone, CpuId(c)).unwrap().ticks).sum();
    assert_eq!(ticks, 100 * yard.cpus().len() as u64);
}

#[test]
fn a_raw_yard_works_by_frame_number() {
    let builder = Builder::new(16 << 20);
    let yard: RawYard = builder.build_raw::<_, HostLock, _>(()).unwrap();
    let pfn = yard.alloc(order(1), Gfp::KERNEL | Gfp::ZERO).unwrap();
    let words = yard.words(pfn, order(1)).unwrap();
    assert_eq!(words.all().len(), 1024);
    words.touch(4096);
    let touched = words.all().iter().filter(|w| w.load(std::sync::atomic::Ordering::Relaxed) != 0);
    assert_eq!(touched.count(), 64);
    yard.free(pfn, order(1)).unwrap();
    assert!(yard.free(pfn, order(1)).is_err());
    assert!(yard.words(pageyard::Pfn(0), order(0)).is_none());
    // Another policy on the same memory.
    let region = yard.into_region();
    let yard: RawYard<Base> = builder.build_on(Base::POLICY, region, ()).unwrap();
    let pfn = yard.alloc(order(1), Gfp::KERNEL | Gfp::ZERO).unwrap();
    let words = yard.words(pfn, order(1)).unwrap();
    assert!(words.all().iter().all(|w| w.load(std::sync::atomic::Ordering::Relaxed) == 0));
}

#[test]
fn a_deferred_yard_grows_on_request() {
    // The packed engine initialises all memory at the start.
    let yard: RawYard<Linux612> = Builder::new(1 << 30).deferred(true).build_raw(()).unwrap();
    let zone = yard.core().zone_ids().next().unwrap();
    let managed = || yard.core().zone_info(zone).unwrap().managed;
    let begun = managed();
    assert!(begun < 1 << 18, "{begun}");
    let held = Mutex::new(Vec::new());
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                for _ in 0..40 {
                    let pfn = yard.alloc(order(10), Gfp::KERNEL).unwrap();
                    yard.words(pfn, order(10)).unwrap().touch(1);
                    held.lock().unwrap().push(pfn);
                }
            });
        }
    });
    assert!(managed() > begun, "{begun}");
    while !yard.core().finish_deferred() {}
    assert_eq!(managed(), 1 << 18);
    let mut held = held.into_inner().unwrap();
    held.sort_unstable();
    held.dedup();
    assert_eq!(held.len(), 80);
    for pfn in held {
        yard.free(pfn, order(10)).unwrap();
    }
    assert_eq!(yard.core().zone_info(zone).unwrap().free_exact, 1 << 18);
}

#[test]
fn invalid_builder_options_are_named() {
    let told = |b: Builder| b.build().unwrap_err().to_string();
    let good = || Builder::new(16 << 20);
    let size = told(Builder::new(4096));
    assert!(size.starts_with("size 4096 bytes: expected at least 4194304"), "{size}");
    assert!(told(Builder::new(1 << 60)).starts_with("size "));
    // More than one zone can have.
    assert!(told(Builder::new(1 << 45).nodes([0])).starts_with("size 35184372088832 bytes: "));
    let cpu = told(good().cpus([60_000]));
    assert!(cpu.starts_with("cpus: CPU 60000 is not online; online are 0"), "{cpu}");
    assert_eq!(told(good().cpus([])), "cpus: name at least one");
    let node = told(good().nodes([900]));
    assert!(node.starts_with("nodes: node 900 has no memory; nodes with memory are 0"), "{node}");
    assert_eq!(told(good().nodes([])), "nodes: name at least one, and each once");
    assert_eq!(told(good().nodes([0, 0])), "nodes: name at least one, and each once");
    assert!(told(good().tick(Some(Duration::ZERO))).starts_with("tick: "));
    let knobs = Knobs { watermark_scale_factor: 0, ..Knobs::default() };
    assert!(told(good().knobs(knobs)).starts_with("knobs: "));
}

#[test]
fn cpus_without_a_list_share_one() {
    let first = cpu::allowed().unwrap()[0];
    let yard = Builder::new(16 << 20).cpus([first]).build().unwrap();
    let all = free_pages(&yard);
    std::thread::scope(|s| {
        for thread in 1..=3 {
            let yard = &yard;
            s.spawn(move || churn(yard, thread, 3_000));
        }
    });
    assert_free(&yard, all);
    assert_eq!(yard.cpus(), [first]);
}
