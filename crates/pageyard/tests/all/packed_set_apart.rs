//! CMA areas (spec §4.12) and the highatomic reserve (§3.8) on the packed engine.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::common::by_thread::{ByThread, CPU, by_thread};
use crate::common::state::State;
use crate::common::view::normal;
use crate::common::{Chosen, LINUX612, Lock, Machine, Y, all_records, frames, o};
use pageyard::MigrateType::{Cma, HighAtomic, Isolate, Movable};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    CmaArea, CmaError, Gfp, Hooked, IsolateError, Mark, MigrateType, Order, Pfn, PlaceError,
    Record, Yard, ZoneKind,
};

const PACKED: Chosen = &<Packed>::RULES;
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
const KERNEL: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
const ZONE: ZoneKind = ZoneKind::Normal;

type Area<'b> = CmaArea<'b, Lock>;

fn label(y: &Y<'_>, pfn: u64) -> MigrateType {
    let records = all_records(y);
    let of = |r: &Record| match *r {
        Record::Block { pfn: p, migrate_type } if p.0 == pfn & !511 => Some(migrate_type),
        _ => None,
    };
    records[0].1.iter().find_map(of).unwrap()
}

/// Allocates until a request fails.
fn take_all(y: &Y<'_>, order: Order, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| y.alloc(order, gfp).ok()).collect()
}

/// Nothing is lost, and no pageblock but those of the area is CMA.
fn check_free(y: &Y<'_>, pages: u64, cma: u64) {
    y.drain_all(None);
    y.validate().unwrap();
    let info = y.zone_info(ZONE).unwrap();
    assert_eq!((info.free_exact, info.cached), (pages, 0));
    assert_eq!(y.pageblocks(ZONE).unwrap()[Cma as usize], cma);
}

#[test]
fn s4_3_only_movable_requests_use_cma_pageblocks() {
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(4096..6144)).unwrap();
        y.validate().unwrap();
        assert_eq!((label(y, 4096), label(y, 6143), label(y, 6144)), (Cma, Cma, Movable));
        let again = CmaError::Isolate(IsolateError::Unmovable(Pfn(4096)));
        assert_eq!(y.make_cma(frames(4096..4608)), Err(again));
        let of_area = |p: &Pfn| (4096..6144).contains(&p.0);
        let all = KERNEL | Gfp::MEMALLOC;
        let orders = [0, 1, 3, 6, 8];
        let kernel: Vec<_> = orders
            .iter()
            .flat_map(|&n| take_all(y, o(n), all).into_iter().map(move |p| (p, n)))
            .collect();
        assert!(!kernel.iter().any(|(p, _)| of_area(p)));
        let pages: u64 = kernel.iter().map(|&(_, n)| 1u64 << n).sum();
        assert_eq!(pages, 8192 - 2048, "everything else");
        let whole = y.alloc_at(Pfn(4608), o(9), MOVABLE);
        assert_eq!(whole, Err(PlaceError::Withheld(Pfn(4608), Cma)));
        let refused = y.alloc_at(Pfn(5000), o(0), KERNEL);
        assert_eq!(refused, Err(PlaceError::Withheld(Pfn(5000), Cma)));
        y.alloc_at(Pfn(5000), o(0), MOVABLE).unwrap();
        // Large and small blocks, up to the last page.
        let large = take_all(y, o(8), MOVABLE | Gfp::MEMALLOC);
        assert_eq!(large.len(), 7);
        let small = take_all(y, o(0), MOVABLE | Gfp::MEMALLOC);
        assert_eq!(small.len(), 255);
        assert!(large.iter().chain(&small).all(of_area));
        y.validate().unwrap();
        kernel.iter().for_each(|&(p, n)| y.free(p, o(n)).unwrap());
        large.iter().for_each(|&p| y.free(p, o(8)).unwrap());
        small.iter().chain(&[Pfn(5000)]).for_each(|&p| y.free(p, o(0)).unwrap());
        check_free(y, 8192, 4);
    });
}

/// While CMA pageblocks have more than half of the free pages, they serve movable requests first.
#[test]
fn s4_3_step_0_cma_first_while_more_than_half_of_free_memory() {
    Machine::normal(4096).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(0..3072)).unwrap();
        let taken: Vec<_> = (0..2500).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
        let others = taken.iter().filter(|p| p.0 >= 3072).count();
        // 3,072 of 4,096 at first. From 1,024 each on, ordinary pages serve until they are fewer.
        let first = taken.iter().position(|p| p.0 >= 3072).unwrap();
        assert!((2040..=2050).contains(&first), "{first}");
        assert!((150..=460).contains(&others), "{others}");
        taken.iter().for_each(|&p| y.free(p, o(0)).unwrap());
        check_free(y, 4096, 6);
    });
}

/// Found by a review: bulk requests and `try_alloc` took ordinary pages alone, down to far below the
/// reserve, since their watermark counted the area.
#[test]
fn s4_3_bulk_requests_and_try_alloc_leave_ordinary_pages_to_others() {
    let of_area = |p: &&Pfn| p.0 < 16384;
    Machine::normal(32768).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(0..16384)).unwrap();
        let kernel = || y.alloc(o(0), KERNEL).and_then(|p| y.free(p, o(0)).map_err(|_| panic!()));
        let mut pages = Vec::new();
        while pages.len() < 16_000 {
            assert_ne!(y.alloc_bulk_each(64, MOVABLE, |p| pages.push(p)).unwrap(), 0);
        }
        let cma = pages.iter().filter(of_area).count();
        assert!((7_900..=8_300).contains(&cma), "{cma}");
        assert!(kernel().is_ok());
        pages.drain(..).for_each(|p| y.free(p, o(0)).unwrap());
        check_free(y, 32768, 32);

        pages.extend(std::iter::from_fn(|| y.try_alloc(o(0), Gfp::MOVABLE).ok()));
        assert_eq!(pages.iter().filter(of_area).count(), 0);
        let info = y.zone_info(ZONE).unwrap();
        assert!(info.free_exact - 16384 + 64 >= info.watermarks[0], "{info:?}");
        pages.drain(..).for_each(|p| y.free(p, o(0)).unwrap());
        check_free(y, 32768, 32);
    });
}

#[test]
fn s3_6_other_requests_do_not_count_cma_pages() {
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(0..4096)).unwrap();
        let min = y.zone_info(ZONE).unwrap().watermarks[0];
        let got = take_all(y, o(0), KERNEL).len() as u64;
        let most = 4096 - min;
        assert!(got <= most && got + 64 > most, "{got} of {most}");
        assert!(y.alloc(o(3), KERNEL).is_err());
        assert!(y.alloc(o(3), MOVABLE).is_ok() && y.alloc(o(0), MOVABLE).is_ok());
        y.validate().unwrap();
    });
    // Found by a review: larger blocks of an area counted as blocks for all requests.
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        let passes = || y.passes(ZONE, Mark::Min, o(3), ZONE).unwrap();
        let ordinary = take_all(y, o(0), KERNEL | Gfp::MEMALLOC);
        ordinary
            .iter()
            .filter(|p| p.0 < 4096 || p.0 % 2 == 0)
            .for_each(|&p| y.free(p, o(0)).unwrap());
        y.drain_all(None);
        assert!(passes());
        y.make_cma(frames(0..4096)).unwrap();
        assert!(!passes());
    });
}

#[test]
fn s4_12_an_area_serves_ranges_and_keeps_its_pageblocks() {
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        let bitmap: [AtomicU64; 16] = Default::default();
        let area = Area::new(y, frames(4096..5120), o(0), &bitmap).unwrap();
        for gfp in [KERNEL, KERNEL | Gfp::COMP] {
            let pfn = area.alloc(y, 512, 512, gfp).unwrap();
            let part = area.alloc(y, 100, 1, KERNEL).unwrap();
            y.validate().unwrap();
            assert_eq!((pfn, part), (Pfn(4096), Pfn(4608)));
            let movable = |r: &Record| matches!(r, Record::Allocated { movable: true, .. });
            assert!(!all_records(y)[0].1.iter().any(movable), "no owner said so");
            assert_eq!((label(y, 4096), label(y, 4608)), (Cma, Cma));
            // A pageblock that one block fills cannot be isolated.
            if gfp.contains(Gfp::COMP) {
                assert!(y.isolate(frames(4096..4608), Cma).is_err());
                assert!(area.free(y, pfn, 256).is_err());
            }
            area.free(y, pfn, 512).unwrap();
            area.free(y, part, 100).unwrap();
            check_free(y, 8192, 2);
        }
        let block = area.alloc(y, 512, 512, KERNEL | Gfp::COMP).unwrap();
        y.split(block, o(9), o(2)).unwrap();
        (0..128).for_each(|n| y.free(Pfn(block.0 + 4 * n), o(2)).unwrap());
        check_free(y, 8192, 2);
        // Isolation keeps what the pageblock is for; its end may say otherwise.
        y.isolate(frames(4096..4608), Cma).unwrap();
        assert_eq!(label(y, 4096), Isolate);
        y.unisolate(frames(4096..4608), Cma).unwrap();
        check_free(y, 8192, 2);
        y.isolate(frames(4096..4608), Cma).unwrap();
        y.unisolate(frames(4096..4608), Movable).unwrap();
        check_free(y, 8192, 1);
        assert!(y.alloc(o(9), KERNEL).is_ok());
    });
}

/// What is in the way is moved, and compaction leaves CMA pageblocks alone.
#[test]
fn s4_12_movable_pages_make_room_for_a_range() {
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        let bitmap: [AtomicU64; 32] = Default::default();
        let area = Area::new(y, frames(4096..6144), o(0), &bitmap).unwrap();
        let held: Vec<_> = (0..6000).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
        let mut inside = held.iter().filter(|p| (4096..6144).contains(&p.0));
        assert!(inside.next().is_some());
        held.iter().step_by(2).for_each(|&p| y.free(p, o(0)).unwrap());
        y.compact_all();
        y.drain_all(None);
        assert_eq!(y.pageblocks(ZONE).unwrap()[Cma as usize], 4);
        y.validate().unwrap();
        // Without an owner that moves them, pages in use stay: other parts of the area serve.
        let got: Vec<_> = std::iter::from_fn(|| area.alloc(y, 1, 1, KERNEL).ok()).collect();
        assert!(!got.is_empty());
        assert!(got.iter().all(|p| (4096..6144).contains(&p.0)));
        got.iter().for_each(|&p| area.free(y, p, 1).unwrap());
        held.iter().skip(1).step_by(2).for_each(|&p| y.free(p, o(0)).unwrap());
        check_free(y, 8192, 4);
    });
}

fn reserved(y: &Y<'_>) -> (u64, u64) {
    let info = y.zone_info(ZONE).unwrap();
    (info.reserved_highatomic, y.pageblocks(ZONE).unwrap()[HighAtomic as usize])
}

/// Takes all memory but 64 pages in each of the first pageblocks, which are less than the low watermark
/// but for the CMA pageblocks: urgent requests reach the slow path and its reserve. Returns what is in use.
fn short(y: &Y<'_>) -> Vec<Pfn> {
    let low = y.zone_info(ZONE).unwrap().watermarks[1];
    let mut all = take_all(y, o(0), KERNEL | Gfp::MEMALLOC);
    all.sort_unstable();
    let first = all[0].0 & !511;
    let is_free = |p: &Pfn| p.0 % 512 < 64 && p.0 - first < (low / 64) * 512;
    let (free, held) = all.into_iter().partition::<Vec<_>, _>(is_free);
    free.into_iter().for_each(|p| y.free_direct(p, o(0)).unwrap());
    y.drain_all(None);
    held
}

#[test]
fn s3_8_urgent_requests_reserve_the_pageblock_that_served_them() {
    Machine::normal(102_400).run_under(PACKED, |y: &Y<'_>| {
        let held = short(y);
        assert_eq!(reserved(y), (0, 0));
        let mut urgent = vec![(y.alloc(o(0), Gfp::ATOMIC).unwrap(), 0)];
        assert_eq!(reserved(y), (0, 0), "order 0");
        urgent.push((y.alloc(o(2), Gfp::ATOMIC).unwrap(), 2));
        assert_eq!(reserved(y), (512, 1), "also of an order that magazines keep");
        let home = urgent[1].0.0 & !511;
        assert_eq!(label(y, home), HighAtomic);
        y.validate().unwrap();
        let info = y.zone_info(ZONE).unwrap();
        assert!((1..=60).contains(&info.free_highatomic), "{}", info.free_highatomic);
        // The reserve serves such requests first, and no others while there is other memory.
        let kept = y.alloc(o(1), Gfp::ATOMIC).unwrap();
        urgent.push((kept, 1));
        assert_ne!(kept.0 & !511, home, "magazines keep order 1");
        let next = y.alloc(o(4), Gfp::ATOMIC).unwrap();
        urgent.push((next, 4));
        assert_eq!(next.0 & !511, home);
        let others: Vec<_> = (0..100).map(|_| y.alloc(o(0), Gfp::NOWAIT)).collect();
        assert!(others.iter().flatten().all(|p| p.0 & !511 != home));
        for _ in 0..6 {
            urgent.push((y.alloc(o(5), Gfp::ATOMIC).unwrap(), 5));
        }
        // One percent, rounded up: two pageblocks.
        assert_eq!(reserved(y), (1024, 2));
        urgent.iter().for_each(|&(p, n)| y.free(p, o(n)).unwrap());
        held.iter().chain(others.iter().flatten()).for_each(|&p| y.free(p, o(0)).unwrap());
        y.drain_all(None);
        assert!(y.unreserve_highatomic(Movable, false));
        assert!(!y.unreserve_highatomic(Movable, false), "one is kept");
        y.validate().unwrap();
        assert!(y.unreserve_highatomic(Movable, true) && !y.unreserve_highatomic(Movable, true));
        assert_eq!(reserved(y), (0, 0));
        check_free(y, 102_400, 0);
        assert_eq!(y.free_blocks(ZONE).unwrap()[10], 100, "all of it is whole again");
    });
}

/// A refused range ends the isolation of its pageblocks; those of an area stay the area's.
#[test]
fn s4_12_a_refused_range_leaves_pageblocks_of_an_area_to_it() {
    Machine::normal(2048).run_under(PACKED, |y: &Y<'_>| {
        let area = || frames(1024..1536);
        y.make_cma(area()).unwrap();
        y.isolate(area(), Cma).unwrap();
        assert!(y.alloc_contig(area(), Movable, KERNEL).is_err());
        assert_eq!(label(y, 1024), Cma);
        check_free(y, 2048, 1);
    });
}

#[test]
fn s3_8_a_reserved_pageblock_that_is_isolated_leaves_the_reserve() {
    Machine::normal(102_400).run_under(PACKED, |y: &Y<'_>| {
        let held = short(y);
        let urgent = y.alloc(o(3), Gfp::ATOMIC).unwrap();
        let home = urgent.0 & !511;
        assert_eq!(label(y, home), HighAtomic);
        held.iter().for_each(|&p| y.free(p, o(0)).unwrap());
        y.free(urgent, o(3)).unwrap();
        y.drain_all(None);
        y.isolate(frames(home..home + 512), Movable).unwrap();
        assert_eq!(reserved(y), (0, 0));
        y.validate().unwrap();
        y.unisolate(frames(home..home + 512), Movable).unwrap();
        assert_eq!(label(y, home), Movable);
        check_free(y, 102_400, 0);
    });
}

/// Snapshots with both kinds of pageblocks, from each engine to each.
#[test]
fn s1_3_pageblocks_that_are_set_apart_are_restored() {
    let machine = Machine::normal(102_400);
    for from in [PACKED, LINUX612] {
        machine.run_under(from, |y: &Y<'_>| {
            y.make_cma(frames(1024..4096)).unwrap();
            let held = short(y);
            y.alloc(o(3), Gfp::ATOMIC).unwrap();
            let movable: Vec<_> = (0..300).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
            y.drain_all(None);
            let before = all_records(y);
            let info = y.zone_info(ZONE).unwrap();
            assert_eq!(reserved(y), (512, 1));
            for to in [PACKED, LINUX612] {
                let twin = Machine { knobs: y.knobs(), ..machine.clone() };
                twin.restored(to, &before, |z| {
                    z.validate().unwrap();
                    let after = z.zone_info(ZONE).unwrap();
                    assert_eq!(after.free_highatomic, info.free_highatomic);
                    assert_eq!(after.free_exact, info.free_exact);
                    assert_eq!(
                        (reserved(z), z.pageblocks(ZONE)),
                        (reserved(y), y.pageblocks(ZONE))
                    );
                    held.iter().chain(&movable).for_each(|&p| z.free(p, o(0)).unwrap());
                    z.drain_all(None);
                    z.validate().unwrap();
                });
            }
        });
    }
    State::new(4096).label(1, HighAtomic).machine.blank_under(PACKED, |y: &mut Y<'_>| {
        let records = State::new(4096).label(1, HighAtomic).records();
        let e = y.restore(ZONE, records.iter().copied()).unwrap_err();
        assert!(e.to_string().contains("smaller than its pageblocks"), "{e}");
        y.validate().unwrap();
        let one = State::new(4096).label(1, Cma).free(512, 9).set(|z| z.managed = 512);
        y.restore(ZONE, one.records()).unwrap();
        y.validate().unwrap();
        assert_eq!(normal(y).label(512), Cma);
    });
}

/// Found by a review: a block of order 9 on its way through a CMA pageblock became whole after the
/// pageblock was no longer CMA.
#[test]
fn a_cached_block_as_large_as_its_cma_pageblock() {
    let machine = Machine::normal(8192);
    let idle = machine.run_under(LINUX612, |y: &Y<'_>| {
        y.make_cma(frames(0..2048)).unwrap();
        let all = take_all(y, o(9), MOVABLE | Gfp::MEMALLOC);
        all.iter().for_each(|&p| y.free(p, o(9)).unwrap());
        all_records(y)
    });
    let cached = |r: &&Record| matches!(r, Record::Cached { pfn, .. } if pfn.0 < 2048);
    let Some(&Record::Cached { pfn, .. }) = idle[0].1.iter().find(cached) else { unreachable!() };
    let home = pfn.0 & !511;
    machine.restored(PACKED, &idle, |y| {
        y.isolate(frames(home..home + 512), Cma).unwrap();
        y.unisolate(frames(home..home + 512), Movable).unwrap();
        check_free(y, 8192, 3);
        y.isolate(frames(home..home + 512), Movable).unwrap();
        assert!(!take_all(y, o(0), KERNEL).iter().any(|p| p.0 & !511 == home));
        y.unisolate(frames(home..home + 512), Movable).unwrap();
        y.validate().unwrap();
    });
}

/// A faulty frame of a CMA pageblock, free or in use.
#[test]
fn s11_3_faulty_frames_of_an_area() {
    Machine::normal(8192).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(4096..5120)).unwrap();
        y.poison_frame(Pfn(4100)).unwrap();
        let used = y.alloc_at(Pfn(4200), o(3), MOVABLE).map(|()| Pfn(4200)).unwrap();
        y.poison_frame(Pfn(4203)).unwrap();
        y.validate().unwrap();
        y.free(used, o(3)).unwrap();
        y.drain_all(None);
        y.validate().unwrap();
        let all = take_all(y, o(0), MOVABLE | Gfp::MEMALLOC);
        assert_eq!(all.len(), 8190);
        assert!(!all.contains(&Pfn(4100)) && !all.contains(&Pfn(4203)));
        all.iter().for_each(|&p| y.free(p, o(0)).unwrap());
        [4100, 4203].iter().for_each(|&p| y.unpoison_frame(Pfn(p)).unwrap());
        check_free(y, 8192, 2);
    });
}

/// Requests of all kinds on several threads, while an area serves ranges, pageblocks are isolated and the
/// reserve comes and goes. No unmovable block lies in the area, and nothing is lost.
#[test]
fn threads_beside_an_area_and_a_reserve() {
    type Y = Yard<'static, Hooked<Lock, ByThread, Packed>>;
    const FIRST: u64 = 1 << 20;
    let memory = FIRST << 12..(FIRST << 12) + (64 << 20);
    let y = Y::from_memory_map(&[memory], &[], 4, by_thread()).unwrap();
    let bitmap: [AtomicU64; 64] = std::array::from_fn(|_| AtomicU64::new(0));
    let span = FIRST + 4096..FIRST + 8192;
    let area = Area::new(&y, frames(span.clone()), o(0), &bitmap).unwrap();
    let (done, ranges) = (AtomicBool::new(false), AtomicU64::new(0));
    let inside = Mutex::new(0u64);
    std::thread::scope(|s| {
        let (y, area, done, ranges, inside, span) = (&y, &area, &done, &ranges, &inside, &span);
        let workers: Vec<_> = (0..3u32)
            .map(|cpu| {
                s.spawn(move || {
                    let kinds = [
                        (KERNEL, 0),
                        (MOVABLE, 0),
                        (Gfp::ATOMIC | Gfp::NOWARN, 2),
                        (MOVABLE, 3),
                        (KERNEL | Gfp::RECLAIMABLE, 1),
                        (MOVABLE, 6),
                    ];
                    let (mut held, mut x, mut seen) = (Vec::new(), 7 + u64::from(cpu), 0);
                    CPU.set(cpu);
                    for n in 0..30_000usize {
                        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (gfp, order) = kinds[(x >> 40) as usize % kinds.len()];
                        // Now nearly all of the memory, now little of it.
                        let most = if n / 3000 % 2 == 0 { 4000 } else { 50 };
                        if held.len() < most
                            && let Ok(pfn) = y.alloc(o(order), gfp)
                        {
                            let in_area = span.contains(&pfn.0);
                            assert!(!in_area || gfp == MOVABLE, "{pfn} for {gfp:?}");
                            seen += u64::from(in_area);
                            held.push((pfn, order));
                        } else if !held.is_empty() {
                            let (pfn, order) = held.swap_remove((x >> 20) as usize % held.len());
                            y.free(pfn, o(order)).unwrap();
                        }
                    }
                    held.into_iter().for_each(|(p, n)| y.free(p, o(n)).unwrap());
                    *inside.lock().unwrap() += seen;
                })
            })
            .collect();
        s.spawn(move || {
            CPU.set(3);
            let mut n = 0u64;
            while !done.load(Relaxed) {
                n += 1;
                if let Ok(pfn) = area.alloc(y, 1 + n * 37 % 600, 1, KERNEL) {
                    ranges.fetch_add(1, Relaxed);
                    area.free(y, pfn, 1 + n * 37 % 600).unwrap();
                }
                let at = span.start + n * 512 % 4096;
                if y.isolate(frames(at..at + 512), Cma).is_ok() {
                    y.unisolate(frames(at..at + 512), Cma).unwrap();
                }
                _ = y.unreserve_highatomic(Movable, n.is_multiple_of(2));
                y.drain_all(None);
            }
        });
        workers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Relaxed);
    });
    assert!(ranges.load(Relaxed) > 0 && *inside.lock().unwrap() > 0);
    while y.unreserve_highatomic(Movable, true) {}
    y.drain_all(None);
    y.validate().unwrap();
    let info = y.zone_info(ZONE).unwrap();
    assert_eq!((info.free_exact, info.reserved_highatomic), (64 << 8, 0));
    assert_eq!(y.pageblocks(ZONE).unwrap()[Cma as usize], 8);
    assert_eq!(area.alloc(&y, 4096, 1, KERNEL), Ok(Pfn(span.start)));
}
