//! A heap of movable blocks compacts until every possible huge page is free (spec §7.4).

use crate::common;

use common::owners::*;
use common::{LINUX612, Machine, o};
use pageyard::{CompactResult, Gfp, Priority, Relocation, ZoneKind};

const PAGES: u64 = 32_768;

fn machine() -> Machine {
    Machine::normal(PAGES).cpus(&[0, 0])
}

#[test]
fn s7_4_compacting_single_pages_frees_the_maximum_of_huge_pages() {
    let m = machine();
    for (seed, percent) in [(1, 50), (2, 30), (3, 80), (4, 97), (5, 7)] {
        m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
            fragment(y, seed, &[0], percent);
            let free = free_pages(y);
            let before = huge_free(y);
            y.compact_all();
            assert_eq!(free_pages(y), free, "nothing is lost");
            assert_eq!(huge_free(y), free / 512, "of {free} free pages, {before} blocks before");
            all_is_well(y, &m);
        });
    }
}

#[test]
fn s7_4_compacting_all_orders_frees_the_maximum_of_huge_pages() {
    let m = machine();
    for seed in 0..12 {
        m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
            let orders: &[u8] = match seed % 4 {
                0 => &[0, 0, 0, 1, 2, 3],
                1 => &[3, 3, 5, 2],
                2 => &[0, 1, 2, 3, 4, 5, 6, 7, 8],
                _ => &[8, 7, 0],
            };
            fragment(y, seed, orders, [50, 35, 70][seed as usize % 3]);
            let free = free_pages(y);
            let before = huge_free(y);
            y.compact_all();
            all_is_well(y, &m);
            assert_eq!(huge_free(y), free / 512, "seed {seed}, {before} before");
            y.compact_all();
            assert_eq!(huge_free(y), free / 512, "seed {seed}, once more");
        });
    }
}

#[test]
fn s7_4_holes_and_reserved_frames_are_skipped() {
    let m = Machine::new()
        .span(ZoneKind::Normal, 700..20_000)
        .usable(700..6_000)
        .usable(7_777..19_999)
        .reserved(3_000..3_010);
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 9, &[0, 0, 2], 50);
        let before = huge_free(y);
        y.compact_all();
        all_is_well(y, &m);
        // All free frames lie below the frames in use, except for less than two pageblocks.
        let used: u64 = y.hooks().owned().values().map(|o| u64::from(o.pages())).sum();
        let lowest = y.hooks().owned().keys().next().unwrap().0;
        let above = (lowest..20_000).filter(|&p| m.may_own(pageyard::Pfn(p))).count() as u64;
        assert!(above - used < 2 * 512, "{above} frames above for {used} used ones");
        assert!(huge_free(y) > before);
    });
}

/// Unmovable pages keep their pageblocks; movable pages are packed from the top around them.
#[test]
fn s7_4_unmovable_pages_limit_compaction() {
    let m = machine();
    for seed in 0..8 {
        m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
            let mut random = Random(seed);
            let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::MEMALLOC;
            let (mut all, mut pinned) = (Vec::new(), vec![0u64; (PAGES / 512) as usize]);
            let clean: Vec<bool> = (0..pinned.len()).map(|_| random.below(3) > 0).collect();
            while let Some(pfn) = take(y, 0, gfp, false) {
                all.push(pfn);
            }
            let mut movable = 0;
            for pfn in all {
                let block = (pfn.0 / 512) as usize;
                match random.below(10) {
                    0 if !clean[block] => pinned[block] += 1,
                    0..5 => {
                        y.set_movable(pfn, o(0), true).unwrap();
                        movable += 1;
                    }
                    _ => assert!(put(y, pfn)),
                }
            }
            y.drain_all(None);
            y.compact_all();
            all_is_well(y, &m);
            // From the top down, until all movable pages are placed.
            let mut block = pinned.len();
            while movable > 0 {
                block -= 1;
                movable = u64::saturating_sub(movable, 512 - pinned[block]);
            }
            let possible = pinned[..block].iter().filter(|&&p| p == 0).count() as u64;
            assert_eq!(huge_free(y), possible, "seed {seed}");
        });
    }
}

#[test]
fn s7_4_immovable_owners_end_the_run_unchanged() {
    let m = machine();
    for (answer, tries) in
        [((|_, _| Relocation::Refused) as Answer, 1), ((|_, _| Relocation::Busy) as Answer, 10)]
    {
        m.run_with(Owners::answering(answer), LINUX612, |y: &Y<'_>| {
            fragment(y, 7, &[0, 3], 50);
            let before = common::view::normal(y);
            let owned = y.hooks().owned();
            let result = y.compact_zone(ZoneKind::Normal, None, Priority::SyncFull).unwrap();
            assert_eq!(result, CompactResult::Complete);
            let s = y.compact_stats();
            let asked = y.hooks().asked.load(std::sync::atomic::Ordering::Relaxed);
            assert_eq!(s.moved, 0);
            assert!(asked > 0 && asked <= 3 * tries * owned.len() as u64);
            all_is_well(y, &m);
            let after = common::view::normal(y);
            assert_eq!(
                common::check::free_in_pageblocks(&after),
                common::check::free_in_pageblocks(&before)
            );
            for order in 0..10 {
                y.compact_zone(ZoneKind::Normal, Some(o(order)), Priority::Async);
            }
            assert_eq!(y.hooks().owned(), owned);
        });
    }
}

#[test]
fn s7_4_blocks_whose_owners_refuse_stay_and_others_move() {
    let m = machine();
    let answer: Answer = |pfn, _| match pfn.0 * 7919 % 11 {
        0 => Relocation::Refused,
        1 => Relocation::Busy,
        _ => Relocation::Moved,
    };
    m.run_with(Owners::answering(answer), LINUX612, |y: &Y<'_>| {
        fragment(y, 8, &[0, 0, 0, 1, 2], 60);
        let before = y.hooks().owned();
        y.compact_all();
        all_is_well(y, &m);
        let s = y.compact_stats();
        assert!(s.moved > 0 && s.not_moved > 0, "{s:?}");
        let after = y.hooks().owned();
        for (&pfn, &order) in &before {
            let stays = answer(pfn, order) != Relocation::Moved;
            assert!(!stays || after.get(&pfn) == Some(&order), "{pfn}");
        }
    });
}

/// Compaction never takes the last free pages: an urgent request finds them while it runs.
#[test]
fn s7_4_targets_keep_the_zone_above_its_min_mark() {
    let m = machine().knobs(|k| k.user_min_free_kbytes = Some(8192));
    m.run_with(Owners::willing(), LINUX612, |y: &Y<'_>| {
        fragment(y, 3, &[0], 6);
        let info = y.zone_info(ZoneKind::Normal).unwrap();
        assert!(info.free < info.watermarks[0], "the zone is below its mark: {info:?}");
        y.compact_all();
        assert_eq!(y.compact_stats().moved, 0);
        all_is_well(y, &m);
    });
}
