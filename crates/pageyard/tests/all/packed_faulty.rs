//! Frames with faulty memory on the packed engine (spec §11.3), poisoned in every state and while
//! other threads allocate and free.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::common::any::{SharedHooks, shared_hooks};
use crate::common::by_thread::{CPU, churn};
use crate::common::random::Random;
use pageyard::policy::Packed;
use pageyard::*;

type Lock = spin::mutex::SpinMutex<()>;
type Y = Yard<'static, Hooked<Lock, SharedHooks<'static>, Packed>>;

const N: ZoneKind = ZoneKind::Normal;
const FIRST: u64 = 1 << 20;
const PAGES: u64 = 8192;

/// A platform whose threads choose their CPU, and which accepts free page reports.
struct Threads;

impl Platform for Threads {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}
impl Observer for Threads {}
impl Defences for Threads {}
impl Reclaim for Threads {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        thread::yield_now();
        true
    }
}

fn yard() -> Y {
    let usable = [FIRST << 12..(FIRST + PAGES) << 12];
    Y::from_memory_map(&usable, &[], 4, shared_hooks(Threads)).unwrap()
}

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

/// Checks the invariants and the numbers of pages out of use and free.
fn check(y: &Y, out: u64, free: u64) {
    y.validate().unwrap();
    assert_eq!(y.out_of_use(N).unwrap(), OutOfUse { poisoned: out, ..OutOfUse::default() });
    let info = y.zone_info(N).unwrap();
    assert_eq!((info.managed, info.free_exact + info.cached), (PAGES, free));
}

/// Allocates all remaining memory. No request gets a frame that is out of use.
fn all_but(y: &Y, poisoned: &[Pfn]) {
    let mut got = BTreeSet::new();
    while let Ok(pfn) = y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN) {
        assert!(!poisoned.contains(&pfn) && got.insert(pfn), "{pfn}");
    }
    assert_eq!(got.len() as u64, PAGES - poisoned.len() as u64);
}

#[test]
fn s11_3_a_free_frame_is_out_of_use_at_once() {
    let y = yard();
    let bad = Pfn(FIRST + 5);
    assert_eq!(y.poison_frame(bad), Ok(Poisoned::Removed));
    assert_eq!(y.is_poisoned(bad), Some(true));
    assert_eq!(y.poison_frame(bad), Err(PoisonError::Already));
    assert_eq!(y.free(bad, Order::ZERO), Err(FreeError::OutOfUse));
    check(&y, 1, PAGES - 1);
    let free = y.free_blocks(N).unwrap();
    assert_eq!(&free[..10], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "the halves that do not contain it");
    all_but(&y, &[bad]);
}

#[test]
fn s11_3_frames_in_magazines_depots_and_reported_pageblocks_are_out_of_use_at_once() {
    let y = yard();
    CPU.set(1);
    let page = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    y.free(page, Order::ZERO).unwrap();
    let block = y.alloc(order(3), Gfp::KERNEL).unwrap();
    y.free(block, order(3)).unwrap();
    let huge = y.alloc(Order::HUGE, Gfp::HIGHUSER_MOVABLE).unwrap();
    y.free(huge, Order::HUGE).unwrap();
    let pages: Vec<Pfn> =
        (0..1000).map(|_| y.alloc(Order::ZERO, Gfp::RECLAIMABLE).unwrap()).collect();
    pages.iter().for_each(|&pfn| y.free(pfn, Order::ZERO).unwrap());
    assert!(y.zone_info(N).unwrap().cached > 128, "some are in depots");
    CPU.set(0);
    assert_eq!(y.report_free_pages(N, Order::MAX, 1024), 1024);
    let bad = [page, Pfn(block.0 + 3), Pfn(huge.0 + 511), pages[0], pages[999], Pfn(FIRST + 7000)];
    for pfn in bad {
        assert_eq!(y.poison_frame(pfn), Ok(Poisoned::Removed), "{pfn}");
        y.validate().unwrap();
    }
    check(&y, bad.len() as u64, PAGES - bad.len() as u64);
    all_but(&y, &bad);
}

/// For every way to free, every kind of order, and every position in the block.
#[test]
fn s11_3_a_frame_in_use_is_out_of_use_when_its_block_is_freed() {
    type Way = fn(&Y, Pfn, Order);
    let ways: [Way; 5] = [
        |y, p, o| y.free(p, o).unwrap(),
        |y, p, o| y.free_owned(p, o).unwrap(),
        |y, p, o| y.free_direct(p, o).unwrap(),
        |y, p, o| y.free_batch(&[(p, o)]).unwrap(),
        |y, p, o| {
            y.split(p, o, Order::ZERO).unwrap();
            (0..o.pages().into()).for_each(|i| y.free(Pfn(p.0 + i), Order::ZERO).unwrap());
        },
    ];
    for way in ways {
        for order in [0, 1, 3, 4, 6, 8, 9, 10].map(order) {
            for at in [0, order.pages() / 2, order.pages() - 1].map(u64::from) {
                let y = yard();
                let block = y.alloc(order, Gfp::KERNEL).unwrap();
                let bad = Pfn(block.0 + at);
                assert_eq!(y.poison_frame(bad), Ok(Poisoned::WhenFreed));
                check(&y, 0, PAGES - u64::from(order.pages()));
                way(&y, block, order);
                check(&y, 1, PAGES - 1);
                assert_eq!(y.free(bad, Order::ZERO), Err(FreeError::OutOfUse));
                y.drain_all(None);
                check(&y, 1, PAGES - 1);
                all_but(&y, &[bad]);
            }
        }
    }
}

#[test]
fn s11_3_a_frame_can_be_unpoisoned_in_use_and_out_of_use() {
    let y = yard();
    let block = y.alloc(order(4), Gfp::KERNEL).unwrap();
    let (in_use, freed) = (Pfn(block.0 + 2), Pfn(block.0 + 9));
    for pfn in [in_use, freed] {
        assert_eq!(y.poison_frame(pfn), Ok(Poisoned::WhenFreed));
    }
    y.unpoison_frame(in_use).unwrap();
    assert_eq!(y.unpoison_frame(in_use), Err(PoisonError::NotPoisoned));
    y.free(block, order(4)).unwrap();
    check(&y, 1, PAGES - 1);
    y.unpoison_frame(freed).unwrap();
    check(&y, 0, PAGES);
    y.drain_all(None);
    assert_eq!(y.free_blocks(N).unwrap()[10], PAGES / 1024, "the block has merged again");
    // Frees to the pageblock are cached again.
    y.alloc_at(block, Order::ZERO, Gfp::KERNEL).unwrap();
    y.free(block, Order::ZERO).unwrap();
    assert_eq!(y.zone_info(N).unwrap().cached, 1);
}

#[test]
fn s11_3_ranges_and_sections_with_a_faulty_frame() {
    let y = yard();
    let bad = Pfn(FIRST + 700);
    y.poison_frame(bad).unwrap();
    let range = Pfn(FIRST + 512)..Pfn(FIRST + 1024);
    assert!(y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL).is_err());
    check(&y, 1, PAGES - 1);
    // While the pageblock is isolated, frames of it go out of use and return.
    y.isolate(range.clone(), MigrateType::Movable).unwrap_err();
    y.unpoison_frame(bad).unwrap();
    y.isolate(range.clone(), MigrateType::Movable).unwrap();
    assert_eq!(y.poison_frame(bad), Ok(Poisoned::Removed));
    y.unisolate(range.clone(), MigrateType::Movable).unwrap();
    check(&y, 1, PAGES - 1);
    y.unpoison_frame(bad).unwrap();
    check(&y, 0, PAGES);
    let got = y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL);
    assert!(got.is_ok());
}

#[test]
fn s11_3_a_faulty_frame_leaves_and_returns_with_its_section() {
    let usable = [FIRST << 12..(FIRST + 4 * SECTION) << 12];
    let y = Y::from_memory_map(&usable, &[], 2, shared_hooks(Threads)).unwrap();
    let section = Pfn(FIRST + SECTION)..Pfn(FIRST + 2 * SECTION);
    let bad = [Pfn(section.start.0 + 3), Pfn(section.start.0 + 9000)];
    for pfn in bad {
        y.poison_frame(pfn).unwrap();
    }
    y.offline(section.clone()).unwrap();
    y.validate().unwrap();
    assert_eq!(y.out_of_use(N).unwrap().poisoned, 0);
    assert_eq!(y.zone_info(N).unwrap().managed, 3 * SECTION);
    y.online(section).unwrap();
    y.validate().unwrap();
    assert_eq!(y.out_of_use(N).unwrap().poisoned, 2);
    let info = y.zone_info(N).unwrap();
    assert_eq!((info.managed, info.free_exact), (4 * SECTION, 4 * SECTION - 2));
    bad.iter().for_each(|&pfn| y.unpoison_frame(pfn).unwrap());
    y.validate().unwrap();
    assert_eq!(y.zone_info(N).unwrap().free_exact, 4 * SECTION);
}

const SECTION: u64 = 32_768;

/// Three threads allocate and free, and one of them reports free pages. A fourth poisons and
/// unpoisons frames in any state. No thread gets a frame that is out of use.
#[test]
fn s11_3_frames_are_poisoned_while_others_work() {
    let y = yard();
    let stop = AtomicBool::new(false);
    let mut poisoned = BTreeSet::new();
    thread::scope(|s| {
        for cpu in 0..3 {
            let (stop, y) = (&stop, &y);
            s.spawn(move || {
                churn(y, cpu, stop, |pick| match pick >> 8 & 1023 {
                    0 => y.drain_all(None),
                    1 => _ = y.report_free_pages(N, Order::HUGE, 2048),
                    2 => _ = y.tick(CpuId(cpu)),
                    3 => {
                        let first = FIRST + (pick as u64 >> 20) % PAGES;
                        let frames = Pfn(first)..Pfn(first + 2048);
                        _ = y.report_free_pieces(frames, Order::ZERO, u64::MAX, |_, _| true);
                    }
                    _ => {}
                });
            });
        }
        CPU.set(3);
        let mut random = Random(99);
        for _ in 0..3000 {
            let pfn = Pfn(FIRST + random.below(PAGES as usize) as u64);
            match y.poison_frame(pfn) {
                Ok(_) => assert!(poisoned.insert(pfn)),
                Err(e) => assert_eq!(e, PoisonError::Already),
            }
            if poisoned.len() > 300 {
                let pfn = poisoned.pop_first().unwrap();
                y.unpoison_frame(pfn).unwrap();
            }
            thread::yield_now();
        }
        stop.store(true, Relaxed);
    });
    y.drain_all(None);
    let n = poisoned.len() as u64;
    check(&y, n, PAGES - n);
    for pfn in poisoned {
        assert_eq!(y.free(pfn, Order::ZERO), Err(FreeError::OutOfUse));
        y.unpoison_frame(pfn).unwrap();
    }
    y.drain_all(None);
    check(&y, 0, PAGES);
    assert_eq!(y.free_blocks(N).unwrap()[10], PAGES / 1024);
}
