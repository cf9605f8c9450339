//! What compaction makes and moves: blocks for requests, whole pageblocks, beside what stays.

use super::*;

#[test]
fn compaction_empties_sparse_pageblocks() {
    let yard = yard(64, Mover::new());
    let mut left = leave(&yard, |n| n % 8 == 3 || n >= 12_000);
    let huge = || {
        let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
        blocks[9] + 2 * blocks[10]
    };
    let before = huge();
    yard.compact_all();
    yard.validate().unwrap();
    let moves = yard.hooks().moves.take();
    assert_eq!(yard.compact_stats().moved, moves.len() as u64);
    for (from, to) in moves {
        let place = left.iter_mut().find(|pfn| **pfn == from).expect("a page in use moved");
        *place = to;
    }
    assert!(huge() > before + 15, "{} of {before} and more", huge());
    left.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    yard.validate().unwrap();
    assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().free_exact, 64 << 8);
}

#[test]
fn compaction_leaves_locked_blocks() {
    let locked: fn(Pfn) -> bool = |pfn| pfn.0 % 512 < 128;
    let relocate = move |from, _| {
        assert!(!locked(from), "a locked block is moved");
        Relocation::Moved
    };
    for (wanted, stays) in [(None, 8), (Some(order(4)), 2)] {
        let yard = yard(64, Mover { is_locked: Box::new(locked), ..Mover::with(relocate) });
        yard.set_knob("compact_unevictable_allowed", "0").unwrap();
        leave(&yard, |n| n % stays == 0);
        yard.compact_zone(ZoneKind::Normal, wanted, Priority::SyncLight).unwrap();
        // A locked block keeps its pageblock, or a part of it, as it is.
        assert_eq!(yard.hooks().moves.borrow().is_empty(), wanted.is_none());
        yard.validate().unwrap();
    }
}

#[test]
fn compaction_ends_no_isolation_but_its_own() {
    // Of whole pageblocks, and of a part of each.
    ends_no_isolation_but_its_own(8, None);
    ends_no_isolation_but_its_own(2, Order::new(4));
}

fn ends_no_isolation_but_its_own(stays: u64, wanted: Option<Order>) {
    let place: Rc<RefCell<Weak<Moving>>> = Rc::default();
    let isolated = Rc::new(Cell::new(None));
    let (here, mine) = (place.clone(), isolated.clone());
    let relocate = move |from: Pfn, _: Pfn| {
        let yard = here.borrow().upgrade().expect("the yard is alive");
        let range = from..Pfn(from.0 + 1);
        if mine.get().is_none() {
            // Ends compaction's isolation, then isolates the pageblock itself.
            yard.unisolate(range.clone(), MigrateType::Movable).unwrap();
            if yard.isolate(range, MigrateType::Movable).is_ok() {
                mine.set(Some(from));
            }
        }
        Relocation::Busy
    };
    let yard = Rc::new(yard(64, Mover::with(relocate)));
    *place.borrow_mut() = Rc::downgrade(&yard);
    leave(&yard, |n| n % stays == 0);
    yard.compact_zone(ZoneKind::Normal, wanted, Priority::SyncLight).unwrap();
    let pfn = isolated.get().expect("a pageblock was isolated");
    assert_eq!(yard.block_type(pfn), Some(MigrateType::Isolate));
    yard.unisolate(pfn..Pfn(pfn.0 + 1), MigrateType::Movable).unwrap();
    yard.validate().unwrap();
}

#[test]
fn compaction_of_a_zone_joins_half_used_pageblocks() {
    let yard = yard(64, Mover::new());
    // 500 pages stay in use, in two pageblocks.
    leave(&yard, |n| n < 1000 && n % 2 == 1);
    let whole = || yard.free_blocks(ZoneKind::Normal).unwrap()[9..].iter().sum::<u64>();
    let before = whole();
    yard.compact_all();
    let moved = yard.hooks().moves.borrow().len();
    assert!((244..=256).contains(&moved), "one pageblock is emptied: {moved} moves");
    assert_eq!(whole(), before + 1);
    yard.compact_all();
    assert_eq!(yard.hooks().moves.borrow().len(), moved, "no half-used pageblocks are left");
    yard.validate().unwrap();
}

/// Found by a review: compaction for a request moved nothing out of pageblocks that were half used, and the
/// request ended in the out-of-memory hook.
#[test]
fn s2_10_a_request_of_a_low_order_compacts_half_used_pageblocks() {
    for (n, rest) in (1..=3).flat_map(|n| [(n, 0), (n, 1)]) {
        let yard = yard(64, Mover::new());
        leave(&yard, |n| n % 2 == rest);
        assert!(yard.alloc(order(n), Gfp::NOWAIT).is_err(), "no block of this order is free");
        yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN).unwrap();
        let moved = yard.hooks().moves.borrow().len();
        assert!(moved <= 1 << n, "no more pages than a block has: {moved}");
        yard.validate().unwrap();
    }
}

/// Of 256 pageblocks that are half used, 128 hold an unmovable page and stay.
#[test]
fn s2_10_a_request_of_a_low_order_passes_over_pageblocks_that_stay() {
    let yard = yard(512, Mover::new());
    let left = leave(&yard, |n| n % 2 == 0);
    for page in left.into_iter().filter(|page| page.0 % 512 == 0).take(128) {
        yard.set_movable(page, Order::ZERO, false).unwrap();
    }
    yard.alloc(order(1), Gfp::KERNEL | Gfp::NOWARN).unwrap();
    yard.validate().unwrap();
}

/// A search for half-used pageblocks leaves no place behind all sparse ones, where the next run would begin.
#[test]
fn s7_4_a_refused_run_for_a_low_order_hides_no_sparse_pageblock() {
    let refuses = Rc::new(Cell::new(true));
    let answer = refuses.clone();
    let yard = yard(512, Mover::refusing(move |_| answer.get()));
    leave(&yard, |n| n % if n < 8 * 512 { 4 } else { 2 } == 0);
    yard.compact_for(order(2), Gfp::KERNEL | Gfp::NOWARN, Priority::SyncLight).unwrap();
    refuses.set(false);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(5)), Priority::SyncLight);
    assert_eq!(done, Some(CompactResult::Success));
    yard.validate().unwrap();
}

/// Found by a review: one unmovable page kept its pageblock as it was, and such requests failed.
#[test]
fn s7_4_requests_compact_beside_pages_that_stay() {
    for (n, gfp) in
        (1..PAGEBLOCK_ORDER).flat_map(|n| [(n, Gfp::HIGHUSER_MOVABLE), (n, Gfp::KERNEL)])
    {
        let yard = yard(64, Mover::new());
        leave_mixed(&yard, gfp);
        let types = yard.pageblocks(ZoneKind::Normal);
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncLight);
        assert_eq!(done, Some(CompactResult::Success));
        let moved = yard.hooks().moves.borrow().len();
        assert!((1..=1 << (n - 1)).contains(&moved), "half of a block of order {n}: {moved}");
        assert_eq!(yard.pageblocks(ZoneKind::Normal), types);
        yard.validate().unwrap();
        for _ in 0..20 {
            yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        }
        yard.validate().unwrap();
    }
}

#[test]
fn s7_4_the_fewest_pages_move() {
    let yard = yard(64, Mover::new());
    let stays = |n| match n % 512 / 16 {
        0 | 1 => true,
        5 => n % 16 == 0,
        _ => n % 2 == 0,
    };
    leave(&yard, stays);
    yard.alloc(order(4), Gfp::KERNEL | PATIENT).unwrap();
    assert_eq!(yard.hooks().moves.borrow().len(), 1);
}

/// Owners refuse to move the blocks of the best run in each pageblock, and all in the first pageblocks.
#[test]
fn s7_4_blocks_that_owners_keep_are_passed_over() {
    for n in [1, 4, 7] {
        let refuses = move |from: Pfn| from.0 % 512 < 2 << n || from.0 < (1 << 20) + 16 * 512;
        let yard = yard(64, Mover::refusing(refuses));
        leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// No run is sought inside a block that is as large, which would need the run that is wanted.
#[test]
fn s7_4_blocks_as_large_as_the_run_stay() {
    for (n, large) in [(4, 4), (4, 8), (1, 1), (1, 6)] {
        let yard = yard(64, Mover::new());
        let all = take_all(&yard, large, Gfp::HIGHUSER_MOVABLE);
        // The second half of the pageblocks, but for the first ones, is in single pages. Every second one of
        // these is free.
        let first = (1 << 20) + 8 * 512;
        for block in all.into_iter().filter(|b| b.0 % 512 >= 256 && b.0 >= first) {
            yard.free(block, order(large)).unwrap();
        }
        leave(&yard, |n| n % 2 == 0);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        assert!(yard.hooks().moves.borrow().len() <= 1 << (n - 1));
        yard.validate().unwrap();
    }
}

/// A request that gives up soon moves nothing out of other types' pageblocks.
#[test]
fn s7_4_an_impatient_request_compacts_pageblocks_of_its_type() {
    let gfps = [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL];
    for (of, other) in [(gfps[0], gfps[1]), (gfps[1], gfps[0])] {
        let yard = yard(64, Mover::new());
        leave_mixed(&yard, of);
        let compact = |gfp: Gfp| {
            let done = yard.compact_for(order(4), gfp | Gfp::NOWARN, Priority::Async).unwrap();
            (done.result == CompactResult::Success, yard.hooks().moves.take().len())
        };
        assert_eq!(compact(other), (false, 0));
        let (served, moved) = compact(of);
        assert!(served && (1..=8).contains(&moved), "{moved}");
        yard.validate().unwrap();
    }
}

/// What is compacted for a background request is there when it is asked for.
#[test]
fn s7_8_background_compaction_makes_blocks_beside_pages_that_stay() {
    let yard = yard(64, Mover::new());
    leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
    let gfp = Gfp::NOWAIT | Gfp::NOWARN;
    assert!(yard.alloc(order(5), gfp).is_err());
    yard.request_compaction(NodeId(0), order(5), ZoneKind::Normal);
    assert!(yard.compact_background(NodeId(0)).worked);
    yard.alloc(order(5), gfp).unwrap();
    yard.validate().unwrap();
}

/// Of a zone where no pageblock is more than half free, proactive compaction makes one with huge pages.
#[test]
fn s7_8_proactive_compaction_joins_half_used_pageblocks() {
    let yard = yard(64, Mover::new());
    leave(&yard, |n| n % 2 == 0);
    assert_eq!(yard.fragmentation_score(NodeId(0)), 99);
    yard.trigger_proactive_compaction();
    assert!(yard.compact_background(NodeId(0)).worked);
    let score = yard.fragmentation_score(NodeId(0));
    assert!(score <= 80, "the score at which it stops: {score}");
    let moved = yard.hooks().moves.borrow().len();
    assert!(moved <= 2048, "it stops there: {moved}");
    yard.validate().unwrap();
}

/// One pageblock is emptied into another, for a request that takes its time.
#[test]
fn s7_4_a_request_for_a_huge_page_joins_half_used_pageblocks() {
    let gfp = Gfp::HIGHUSER_MOVABLE | PATIENT;
    for n in [9, 10] {
        let yard = yard(128, Mover::new());
        leave(&yard, |n| n % 8 != 7);
        assert!(yard.alloc(order(n), gfp | Gfp::NORETRY).is_err());
        assert_eq!(yard.hooks().moves.take().len(), 0);
        yard.alloc(order(n), gfp).unwrap();
        let moved = yard.hooks().moves.borrow().len();
        assert!((448..4000).contains(&moved), "{moved}");
        yard.validate().unwrap();
    }
}

/// A run whose first frame is free is as good as another.
#[test]
fn s7_4_runs_begin_with_free_frames_too() {
    for n in 1..PAGEBLOCK_ORDER {
        let yard = yard(64, Mover::new());
        leave(&yard, |n| n % 2 == 1);
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        assert!(yard.hooks().moves.borrow().len() <= 1 << (n - 1));
    }
}

/// The cheapest runs of each pageblock stay, whatever their number.
#[test]
fn s7_4_many_runs_that_stay_hide_no_other() {
    for n in 1..=5 {
        let refuses = move |from: Pfn| (from.0 % 512) >> n < 8;
        let yard = yard(64, Mover::refusing(refuses));
        leave(&yard, |frame| match (frame % 512) >> n < 8 {
            true => frame % (1 << n) == 0,
            false => frame % 2 == 0,
        });
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// A block that has no place, as all free memory is in smaller pieces, ends no compaction.
#[test]
fn s7_4_a_block_without_a_place_stays_alone() {
    for n in [2, 3, 4, 6] {
        let yard = yard(64, Mover::new());
        // Each pageblock begins with a pair of pages as one block, then a free page, then one in use.
        for pair in take_all(&yard, 1, Gfp::HIGHUSER_MOVABLE) {
            if pair.0 % 512 != 0 {
                yard.free(pair, order(1)).unwrap();
            }
        }
        leave(&yard, |frame| if frame % 512 < 4 { frame % 512 == 3 } else { frame % 4 != 3 });
        assert!(yard.alloc(order(1), Gfp::NOWAIT).is_err());
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// Pageblocks that hold something unmovable are no attempts.
#[test]
fn s7_4_pageblocks_that_cannot_be_emptied_hide_no_others() {
    for (count, mib) in [(9, 128), (100, 512), (200, 512)] {
        let yard = yard(mib, Mover::new());
        let mixed = |frame: u64| frame / 512 < count;
        let left = leave(&yard, |frame| match mixed(frame) {
            true => frame % 5 < 2,
            false => frame % 4 != 3,
        });
        for page in left.into_iter().filter(|page| mixed(page.0 - (1 << 20)) && page.0 % 512 < 5) {
            yard.set_movable(page, Order::ZERO, false).unwrap();
        }
        yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// All of a zone is all of it, wherever an earlier run ended.
#[test]
fn s10_compact_memory_begins_at_no_place() {
    let refuses = Rc::new(Cell::new(true));
    let answer = refuses.clone();
    let yard = yard(512, Mover::refusing(move |_| answer.get()));
    leave(&yard, |n| n % 8 == 0);
    for _ in 0..2 {
        yard.compact_zone(ZoneKind::Normal, Some(order(9)), Priority::SyncLight).unwrap();
    }
    refuses.set(false);
    yard.compact_all();
    let free = yard.free_blocks(ZoneKind::Normal).unwrap();
    assert_eq!(free[9] + 2 * free[10], 256 - 32);
}

/// Owners may have asked for the zone or the node.
#[test]
fn s7_4_blocks_stay_in_their_zone() {
    let usable = [0..64 << 20, 1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
    let gfp = Gfp::DMA32 | Gfp::MOVABLE;
    let pages: Vec<_> = (0..4000).map(|_| yard.alloc(Order::ZERO, gfp).unwrap()).collect();
    for &page in pages.iter().filter(|page| page.0 % 4 != 0) {
        yard.free(page, Order::ZERO).unwrap();
    }
    yard.compact_all();
    let moves = yard.hooks().moves.take();
    assert!(moves.len() > 100, "{}", moves.len());
    for (from, to) in moves {
        assert!(to.0 < 1 << 20, "{from} moved to {to}");
    }
    yard.validate().unwrap();
}

/// CPUs refill from all pageblocks: they are drained first.
#[test]
fn s7_4_pageblocks_from_which_cpus_refill_are_compacted() {
    let cpu = Rc::new(Cell::new(0));
    let usable = [1 << 32..(1 << 32) + (16 << 20)];
    let mover = Mover { cpu: cpu.clone(), ..Mover::new() };
    let yard: Moving =
        On::new(mover, |hooks| Yard::from_memory_map(&usable, &[], 8, hooks).unwrap());
    leave(&yard, |n| n % 2 == 0);
    for n in 0..8 {
        cpu.set(n);
        for gfp in [Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL] {
            yard.alloc(Order::ZERO, gfp).unwrap();
        }
    }
    for n in [2, 4] {
        yard.alloc(order(n), Gfp::KERNEL | PATIENT).unwrap();
    }
    yard.validate().unwrap();
}

/// In a small zone all memory is of one type.
#[test]
fn s7_4_zones_without_grouping_are_compacted() {
    for blocks in [4, 5, 6] {
        let usable = [1 << 32..(1 << 32) + (blocks << 21)];
        let yard: Moving =
            On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
        for page in leave(&yard, |n| n % 16 < 6) {
            yard.set_movable(page, Order::ZERO, true).unwrap();
        }
        yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | PATIENT).unwrap();
        yard.validate().unwrap();
    }
}

/// Where nothing moves, pageblocks keep their types.
#[test]
fn s4_1_compaction_changes_no_types() {
    let yard = yard(64, Mover::with(|_, _| Relocation::Refused));
    let gfps = [Gfp::KERNEL, Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE];
    let take = |gfp: Gfp| yard.alloc(order(8), gfp | Gfp::MEMALLOC | Gfp::NOWARN).ok();
    let blocks: Vec<_> = gfps.into_iter().cycle().map_while(take).collect();
    for &block in &blocks {
        yard.set_movable(block, order(8), true).unwrap();
    }
    for &block in blocks.iter().step_by(2) {
        yard.free(block, order(8)).unwrap();
    }
    yard.drain_all(None);
    let types = yard.pageblocks(ZoneKind::Normal).unwrap();
    assert!(types[0] > 0 && types[1] > 0, "{types:?}");
    for n in [9, 10] {
        yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncFull).unwrap();
        assert_eq!(yard.pageblocks(ZoneKind::Normal), Some(types));
    }
    yard.compact_all();
    assert_eq!(yard.pageblocks(ZoneKind::Normal), Some(types));
}

/// Between MIN and LOW a request would take its pages from a lower zone, where no block of the order is.
#[test]
fn s7_4_a_zone_below_low_compacts_into_itself() {
    let usable = [64 << 20..128 << 20, 1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 1, hooks).unwrap());
    let info = |kind| yard.zone_info(kind).unwrap();
    let (low, high): (Vec<_>, Vec<_>) =
        take_all(&yard, 0, Gfp::HIGHUSER_MOVABLE).into_iter().partition(|page| page.0 < 1 << 20);
    for page in low {
        match page.0 % 2 {
            0 => yard.free(page, Order::ZERO).unwrap(),
            _ => yard.set_movable(page, Order::ZERO, false).unwrap(),
        }
    }
    let [min, low, ..] = info(ZoneKind::Normal).watermarks;
    for page in high.into_iter().filter(|page| page.0 % 4 == 1).take((min + low) as usize / 2) {
        yard.free(page, Order::ZERO).unwrap();
    }
    yard.drain_all(None);
    assert!(info(ZoneKind::Normal).free_exact < low && info(ZoneKind::Dma32).free_exact > low);
    for priority in [Priority::SyncLight, Priority::SyncFull] {
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(2)), priority);
        assert_eq!(done, Some(CompactResult::Success));
    }
    yard.alloc(order(2), Gfp::KERNEL | PATIENT).unwrap();
    yard.validate().unwrap();
}

/// No search finds pageblocks from which CPUs refill.
#[test]
fn s7_4_huge_pages_are_made_of_pageblocks_from_which_cpus_refill() {
    let usable = [1 << 32..(1 << 32) + (64 << 20)];
    let yard: Moving =
        On::new(Mover::new(), |hooks| Yard::from_memory_map(&usable, &[], 8, hooks).unwrap());
    leave(&yard, |n| n >= 8 * 512 || n % 8 == 0);
    for cpu in 0..8 {
        yard.hooks().cpu.set(cpu);
        yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    }
    yard.hooks().cpu.set(0);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(9)), Priority::SyncFull);
    assert_eq!(done, Some(CompactResult::Success));
    yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).unwrap();
    yard.validate().unwrap();
}
