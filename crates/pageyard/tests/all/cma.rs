//! Spec §4.3 steps 0 and 2, §4.12: contiguous memory areas.

use crate::common;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use common::random::Random;
use common::state::State;
use common::view::normal;
use common::{Lock, Machine, Y, frames, o};
use pageyard::MigrateType::{Cma, Movable, Unmovable};
use pageyard::{CmaArea, CmaError, ContigError, CpuId, Gfp, IsolateError, Pfn, Place, ZoneKind};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const GFP: Gfp = Gfp::KERNEL;

type Area<'b> = CmaArea<'b, Lock>;

/// Two pageblocks, one of them CMA; `ours` and `cma` pages of them free, in order-0 blocks.
fn mixed(ours: u64, cma: u64) -> State {
    let mut s = State::new(1024).label(1, Cma);
    for p in (0..2 * ours).step_by(2).chain((512..512 + 2 * cma).step_by(2)) {
        s = s.free(p, 0);
    }
    s.limits(4, 0, 0)
}

#[test]
fn s4_3_step_0_cma_first_while_more_than_half_of_free_memory() {
    mixed(10, 13).run(|y: &Y<'_>| {
        let from = || y.alloc(o(0), MOVABLE).map(|p| if p.0 < 512 { 'o' } else { 'c' }).unwrap();
        // 13 of 23, 12 of 22 (half is 11) and 11 of 21 are more than half, rounded down; 10 of 20
        // are not.
        let got: String = (0..23).map(|_| from()).collect();
        assert_eq!(got, "ccc".to_owned() + &"oc".repeat(10));
        assert!(y.alloc(o(0), MOVABLE).is_err());
    });
}

#[test]
fn s9_1_free_cma_pages_are_counted_in_cpu_parts() {
    // As above, but neither counter learns of what is taken: 13 is more than half of 23 until no CMA
    // page is left.
    mixed(10, 13).cpu(0, |c| c.threshold = 20).run(|y: &Y<'_>| {
        let from = || y.alloc(o(0), MOVABLE).map(|p| if p.0 < 512 { 'o' } else { 'c' }).unwrap();
        let supply = || y.supply(ZoneKind::Normal).map(|s| (s.free, s.cma)).unwrap();
        let got: String = (0..20).map(|_| from()).collect();
        assert_eq!(got, "c".repeat(13) + &"o".repeat(7));
        assert_eq!(supply(), (23, 13));
        y.fold(CpuId(0));
        assert_eq!(supply(), (3, 0));
        let v = normal(y);
        assert_eq!((v.cpus[0].diff, v.cpus[0].cma_diff, v.cpus[0].expire), (0, 0, 3), "§5.15");
    });
}

#[test]
fn s9_1_a_cma_part_is_in_a_snapshot() {
    let s = mixed(40, 40).cpu(0, |c| (c.threshold, c.cma_diff) = (20, -7));
    s.run(|y: &Y<'_>| {
        // The counter says 47, and 40 are free.
        assert_eq!(y.supply(ZoneKind::Normal).unwrap().cma, 47);
        for n in 8..=20 {
            y.alloc(o(0), MOVABLE).unwrap();
            assert_eq!(normal(y).cpus[0].cma_diff, -n);
        }
        y.alloc(o(0), MOVABLE).unwrap();
        assert_eq!((normal(y).cpus[0].cma_diff, y.supply(ZoneKind::Normal).unwrap().cma), (0, 26));
    });
}

#[test]
fn s3_6_cma_pages_are_withheld_as_the_counters_say() {
    // 544 pages free. 20 are taken, of which no counter knows: 544 − 512 are not above 32.
    let s = State::new(1024).label(1, Cma).free(512, 9);
    let s = (0..64).step_by(2).fold(s, |s, p| s.free(p, 0)).limits(4, 0, 0);
    let s = s.cpu(0, |c| c.threshold = 20).set(|z| z.watermarks = [32; 4]);
    s.run(|y: &Y<'_>| {
        for _ in 0..20 {
            assert!(y.alloc(o(0), MOVABLE).unwrap().0 >= 512);
        }
        assert!(y.alloc(o(0), GFP | Gfp::NOWARN).is_err());
    });
}

/// Every request is of the unmovable type then, and CMA pages are for the movable one.
#[test]
fn s2_4_without_grouping_no_request_gets_cma_pages() {
    mixed(2, 100).set(|z| z.grouping_disabled = true).run(|y: &Y<'_>| {
        let atomic = MOVABLE | Gfp::NOWARN;
        let got: Vec<_> = std::iter::from_fn(|| y.alloc(o(0), atomic).ok()).collect();
        assert_eq!(got, [Pfn(0), Pfn(2)]);
        assert_eq!(y.alloc_bulk_each(3, atomic, |_| ()), Ok(0));
        assert!(y.alloc_at(Pfn(512), o(0), MOVABLE).is_err());
        assert!(y.alloc_with(o(0), atomic, Place { align: 2, below: None }).is_err());
    });
}

#[test]
fn s4_3_step_2_cma_before_another_type_s_block_is_claimed() {
    let s = State::new(1536).label(1, Cma).label(2, Unmovable);
    s.free(512, 0).free(1024, 9).limits(1, 0, 0).run(|y: &Y<'_>| {
        // 1 of 513: step 0 does not apply, and the movable lists are empty.
        assert_eq!(y.alloc(o(0), MOVABLE), Ok(Pfn(512)));
        assert_eq!(normal(y).label(1024), Unmovable);
        assert_eq!(y.alloc(o(0), MOVABLE), Ok(Pfn(1024)), "then it is claimed");
        assert_eq!(normal(y).label(1024), Movable);
    });
}

#[test]
fn s4_3_a_refill_from_cma_stays_there_and_its_pages_are_movable_ones() {
    let s = mixed(0, 6).limits(4, 100, 100);
    s.run(|y: &Y<'_>| {
        let pfn = y.alloc(o(0), MOVABLE).unwrap();
        let v = normal(y);
        assert!(v.cached(0, 1).iter().all(|p| *p >= 512), "cached on the movable list");
        assert!(!v.cached(0, 1).is_empty());
        assert!(y.alloc(o(0), GFP).is_err(), "free CMA pages do not serve other types");
        assert!(y.alloc(o(0), Gfp::ATOMIC | Gfp::MEMALLOC).is_err());
        y.free(pfn, o(0)).unwrap();
        y.drain_all(None);
        assert_eq!(normal(y).free(0, Cma).len(), 6);
    });
}

#[test]
fn s3_6_other_requests_do_not_count_cma_pages() {
    let s = mixed(20, 200).set(|z| z.watermarks = [30, 30, 30, 30]);
    s.run(|y: &Y<'_>| {
        assert!(y.alloc(o(0), GFP).is_err(), "20 pages are not above 30");
        assert!(y.alloc(o(0), MOVABLE).is_ok());
    });
}

#[test]
fn s4_12_only_whole_movable_pageblocks_become_cma() {
    let s = State::new(2048).free(0, 10).free(1024, 9).used(1536..2048, false);
    s.run(|y: &Y<'_>| {
        let misaligned = |r| Err(CmaError::Misaligned(frames(r)));
        assert_eq!(y.make_cma(frames(0..700)), misaligned(0..700));
        let refused = CmaError::Isolate(IsolateError::Unmovable(Pfn(1536)));
        assert_eq!(y.make_cma(frames(512..2048)), Err(refused));
        y.make_cma(frames(512..1536)).unwrap();
        let v = normal(y);
        assert_eq!((v.label(0), v.label(512), v.label(1024)), (Movable, Cma, Cma));
        assert_eq!((v.free(9, Cma), v.free(9, Movable)), (&[512, 1024][..], &[0][..]));
        assert_eq!(v.zone.isolated_blocks, 0);
        let again = CmaError::Isolate(IsolateError::Unmovable(Pfn(512)));
        assert_eq!(y.make_cma(frames(512..1024)), Err(again));
    });
    // The tails of an unmovable block pass isolation, but may not be in an area.
    State::new(1024).block(0, 10, false).run(|y: &Y<'_>| {
        let refused = CmaError::Isolate(IsolateError::Unmovable(Pfn(0)));
        assert_eq!(y.make_cma(frames(512..1024)), Err(refused));
        assert_eq!(normal(y).label(512), Movable);
    });
}

fn with_area(bit: u8, f: impl FnOnce(&Y<'_>, &Area<'_>)) {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let bitmap: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(!0)).collect();
        let area = Area::new(y, frames(4096..6144), o(bit), &bitmap).unwrap();
        assert_eq!(area.range(), frames(4096..6144));
        f(y, &area);
    });
}

#[test]
fn s4_12_first_fit_with_alignment() {
    with_area(0, |y, area| {
        let take = |pages, align| area.alloc(y, pages, align, GFP).map(|p| p.0);
        assert_eq!(take(100, 1), Ok(4096));
        assert_eq!(take(10, 64), Ok(4096 + 128));
        assert_eq!(take(28, 1), Ok(4096 + 100), "the gap");
        assert_eq!(take(1, 1), Ok(4096 + 138));
        assert_eq!(take(1000, 1024), Ok(5120));
        assert_eq!(take(1000, 1024), Err(CmaError::Full));
        assert_eq!(take(0, 1), Err(CmaError::NoPages));
        assert_eq!(take(1, 0), Err(CmaError::BadAlign(0)));
        let s = area.stats();
        assert_eq!((s.alloc_success, s.alloc_fail, s.used), (5, 3, 1139));
        let told = ["cma_alloc_success", "cma_alloc_fail"].map(|n| y.vm_events().by_name(n));
        assert_eq!(told, [Some(5), Some(3)], "vmstat's (§9.1)");
        area.free(y, Pfn(4096), 50).unwrap();
        assert_eq!(take(51, 1), Ok(4096 + 139), "the 50 free frames in front are too few");
        assert_eq!(area.free(y, Pfn(4096), 50), Err(CmaError::NotOurs(Pfn(4096))));
        assert_eq!(area.free(y, Pfn(6140), 50), Err(CmaError::NotOurs(Pfn(6140))));
        assert_eq!(area.free(y, Pfn(0), 1), Err(CmaError::NotOurs(Pfn(0))));
        assert_eq!(area.free(y, Pfn(4146), 0), Err(CmaError::NotOurs(Pfn(4146))));
        assert_eq!(y.zone_info(ZoneKind::Normal).unwrap().managed, 8192);
    });
}

#[test]
fn s4_12_a_busy_range_is_skipped() {
    with_area(3, |y, area| {
        // In use and immovable: this platform does not relocate blocks.
        y.alloc_at(Pfn(4096 + 20), o(0), MOVABLE).unwrap();
        assert_eq!(area.alloc(y, 3, 1, GFP), Ok(Pfn(4096)));
        assert_eq!(area.alloc(y, 16, 1, GFP), Ok(Pfn(4096 + 24)));
        assert_eq!(
            area.alloc(y, 8, 1, GFP),
            Ok(Pfn(4096 + 8)),
            "frames of the abandoned attempt are free"
        );
        assert_eq!(area.stats().used, 32);
        let all = area.alloc(y, 2048 - 16, 16, GFP);
        assert_eq!(all, Err(CmaError::Full));
        y.alloc_at(Pfn(6143), o(0), MOVABLE).unwrap();
        let busy = CmaError::Contig(ContigError::Busy(Pfn(6143)));
        assert_eq!(area.alloc(y, 2048 - 40, 8, GFP), Err(busy));
        assert_eq!(area.stats().used, 32, "a failed request clears its bits");
    });
}

#[test]
fn s4_12_invalid_areas_are_rejected() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let bitmap: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let area = |r, bit| Area::new(y, frames(r), o(bit), &bitmap).map(|_| ());
        assert_eq!(area(0..512, 0), Err(CmaError::TooSmall { needed: 8, given: 3 }));
        assert_eq!(area(512..1024, 10), Err(CmaError::Misaligned(frames(512..1024))));
        assert_eq!(area(0..100, 0), Err(CmaError::Misaligned(frames(0..100))));
        assert_eq!(area(0..0, 0), Err(CmaError::Isolate(IsolateError::EmptyRange)));
        assert_eq!(normal(y).label(0), Movable);
        assert_eq!(area(0..512, 3), Ok(()));
    });
}

/// The bitmap and the frames agree under random allocations and frees.
#[test]
fn s4_12_a_soak_of_one_area() {
    for bit in [0, 2] {
        with_area(bit, |y, area| {
            let mut held: BTreeMap<u64, u64> = BTreeMap::new();
            let mut movable = Vec::new();
            let mut numbers = Random(7);
            let mut random = |n: u64| numbers.below(n as usize) as u64;
            for _ in 0..600 {
                match random(5) {
                    0 | 1 => {
                        let (pages, align) = (1 + random(200), 1 << random(8));
                        if let Ok(pfn) = area.alloc(y, pages, align, GFP) {
                            assert_eq!(pfn.0 % align, 0);
                            let before = held.range(..=pfn.0).next_back();
                            assert!(before.is_none_or(|(p, n)| p + n <= pfn.0));
                            let after = held.range(pfn.0..).next();
                            assert!(after.is_none_or(|(&p, _)| pfn.0 + pages <= p));
                            held.insert(pfn.0, pages);
                        }
                    }
                    2 | 3 => {
                        let nth = random(held.len().max(1) as u64) as usize;
                        if let Some((&pfn, &pages)) = held.iter().nth(nth) {
                            area.free(y, Pfn(pfn), pages).unwrap();
                            held.remove(&pfn);
                        }
                    }
                    _ if movable.len() < 40 => movable.extend(y.alloc(o(0), MOVABLE)),
                    _ => movable.drain(..).for_each(|p| y.free(p, o(0)).unwrap()),
                }
                let bits: u64 = held.values().map(|n| n.div_ceil(1 << bit) << bit).sum();
                assert_eq!(area.stats().used, bits);
            }
            let v = normal(y);
            for (&pfn, &pages) in &held {
                assert!((pfn..pfn + pages).all(|p| v.allocated[&p] == (0, false)));
            }
            held.iter().for_each(|(&p, &n)| area.free(y, Pfn(p), n).unwrap());
            movable.into_iter().for_each(|p| y.free(p, o(0)).unwrap());
            y.drain_all(None);
            let v = normal(y);
            assert!(v.allocated.is_empty() && v.all_free().all(|f| f.1 >= 9));
            assert_eq!(v.all_free().filter(|f| f.2 == Cma).map(|f| 1 << f.1).sum::<u64>(), 2048);
        });
    }
}

#[test]
fn s4_12_a_block_is_freed_to_its_area() {
    let m = Machine::normal(8192);
    m.run(|y: &Y<'_>| {
        let bitmap: [AtomicU64; 16] = Default::default();
        let area = Area::new(y, frames(4096..5120), o(0), &bitmap).unwrap();
        let pfn = area.alloc(y, 512, 512, GFP | Gfp::COMP).unwrap();
        assert_eq!(normal(y).allocated[&pfn.0], (9, false), "one block");
        let half = area.free(y, pfn, 256);
        assert!(
            matches!(half, Err(CmaError::Free(_))),
            "{half:?}: a block cannot be freed in part"
        );
        assert_eq!(area.stats().used, 512);
        area.free(y, pfn, 512).unwrap();
        assert_eq!(area.stats().used, 0);
        // A block is aligned to its size, whatever is used before it.
        let page = area.alloc(y, 1, 1, GFP).unwrap();
        assert_eq!(page, Pfn(4096));
        assert_eq!(area.alloc(y, 512, 1, GFP | Gfp::COMP), Ok(Pfn(4608)));
        area.free(y, Pfn(4608), 512).unwrap();
        area.free(y, page, 1).unwrap();
        y.drain_all(None);
        assert_eq!(y.zone_info(ZoneKind::Normal).unwrap().free_exact, 8192);
        assert_eq!(area.alloc(y, 1024, 1, GFP), Ok(Pfn(4096)));
    });
}

/// Whatever a movable zone has in use passes as movable, at the start of a pageblock too (§4.11).
#[test]
fn s4_12_pageblocks_of_a_movable_zone_in_use_become_cma() {
    let machine =
        Machine::new().zone(ZoneKind::Normal, 0..1024).zone(ZoneKind::Movable, 1024..2048);
    machine.run(|y: &Y<'_>| {
        y.alloc_at(Pfn(1024), o(0), MOVABLE).unwrap();
        assert_eq!(y.make_cma(frames(1024..1536)), Ok(()));
        assert_eq!(y.block_type(Pfn(1024)), Some(Cma));
        y.validate().unwrap();
    });
}
