//! What compaction looks at and tries, where it begins and ends, and what it leaves to others.

use super::*;

/// A run that ended where nothing moved is followed by one that begins behind that place.
#[test]
fn s7_4_the_next_run_goes_on_behind_pageblocks_that_stay() {
    let refuses = |from: Pfn| from.0 < (1 << 20) + 140 * 512;
    let (stays, made) = (CompactResult::Complete, CompactResult::Success);
    // A low order is sought in the whole zone at once.
    for (n, results) in [(5, &[stays, stays, made][..]), (1, &[made])] {
        let yard = yard(512, Mover::refusing(refuses));
        leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
        for &result in results {
            let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncLight);
            assert_eq!(
                done,
                Some(result),
                "order {n} {:?} {:?}",
                yard.compact_stats(),
                yard.free_blocks(ZoneKind::Normal)
            );
        }
        yard.validate().unwrap();
    }
}

/// Nothing defers an impatient request after a failure, so it looks at a part of a large zone alone; the
/// next one goes on behind it.
#[test]
fn s7_4_impatient_requests_look_at_a_part_of_the_zone_each() {
    let locked: fn(Pfn) -> bool = |pfn| pfn.0 < (1 << 20) + 1100 * 512;
    let yard = yard(2 * 1200, Mover { is_locked: Box::new(locked), ..Mover::new() });
    yard.set_knob("compact_unevictable_allowed", "0").unwrap();
    leave(&yard, |n| n % 2 == 0);
    let request = || yard.alloc(order(5), Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY | Gfp::NOWARN);
    // It compacts twice.
    request().unwrap_err();
    request().unwrap();
    yard.validate().unwrap();
}

/// If all owners refuse, a request tries a few runs of each pageblock, and all runs of a limited number.
#[test]
fn s7_4_a_request_of_a_low_order_tries_all_runs_of_some_pageblocks() {
    let yard = yard(2 * 1200, Mover::refusing(|_| true));
    leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
    let compact = || yard.compact_zone(ZoneKind::Normal, Some(order(3)), Priority::SyncLight);
    compact().unwrap();
    let asked = yard.hooks().moves.take();
    let mut of_block = BTreeMap::<u64, usize>::new();
    asked.iter().for_each(|(pfn, _)| *of_block.entry(pfn.0 / 512).or_default() += 1);
    assert!(of_block.len() >= 1190, "a few runs of each: {}", of_block.len());
    // A run of 8 pages has 4 in use.
    assert!(asked.len() <= (1200 * 4 + 1024 * 64) * 4, "{}", asked.len());
    assert_eq!(of_block.values().filter(|&&asked| asked > 32).count(), 1024, "all runs of these");
    compact().unwrap();
    let next: BTreeSet<_> =
        yard.hooks().moves.borrow().iter().map(|(pfn, _)| pfn.0 / 512).collect();
    assert!(next.len() >= 1190);
}

/// Whether a costly request is worth a compaction, and the score, follow from the free blocks, which are not
/// all counted for them.
#[test]
fn s7_5_s7_8_fragmentation_follows_from_the_free_blocks() {
    let layouts: [fn(u64) -> bool; 4] = [
        |n| n % 2 == 0 || n > 12_000,
        |n| n % 8 == 0,
        |n| n % 16 == 7 || n % 1024 >= 512,
        |n| n % 128 == 0 || n < 9000,
    ];
    let mut answers = [0, 0];
    for stays in layouts {
        for threshold in [0, 300, 500, 800, 930, 980, 990, 1000] {
            for n in 4..8 {
                let yard = yard(64, Mover::refusing(|_| true));
                leave_of(&yard, Gfp::KERNEL, stays);
                yard.set_knob("extfrag_threshold", &threshold.to_string()).unwrap();
                let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
                let lacks = (0..=threshold).contains(&fragmentation_index(&blocks, order(n)));
                let done = yard.compact_for(order(n), Gfp::KERNEL, Priority::SyncLight);
                let result = done.unwrap().result;
                let is_skipped = result == CompactResult::Skipped;
                let has_block = blocks[n as usize..].iter().any(|&n| n > 0);
                assert_eq!(has_block, result == CompactResult::Success, "{n} {result:?}");
                assert!(has_block || is_skipped == lacks, "{n} {threshold} {result:?} {blocks:?}");
                answers[usize::from(lacks)] += 1;
                let score = compact::zone_score(&blocks);
                let present = yard.zone_info(ZoneKind::Normal).unwrap().present;
                let score = compact::node_score([(present, score)].into_iter());
                assert_eq!(yard.fragmentation_score(NodeId(0)), score);
            }
        }
    }
    assert!(answers[0] > 20 && answers[1] > 20, "{answers:?}");
}

/// Free pages of an isolated pageblock serve no request. Proactive compaction and `compact_all` therefore isolate
/// pageblocks only while the zone stays above HIGH, and above the largest boost, which another CPU's claim may cause.
#[test]
fn s7_8_proactive_compaction_leaves_the_zone_above_high() {
    for (mib, free) in [(32, 1792), (64, 3584), (128, 8000), (64, 8000)] {
        let lowest = Rc::new(Cell::new(u64::MAX));
        let place: Rc<RefCell<Weak<Moving>>> = Rc::default();
        let (seen, here) = (lowest.clone(), place.clone());
        let yard = Rc::new(yard(
            mib,
            Mover::with(move |_, _| {
                let yard = here.borrow().upgrade().expect("the yard is alive");
                seen.set(seen.get().min(yard.zone_info(ZoneKind::Normal).unwrap().free_exact));
                Relocation::Moved
            }),
        ));
        *place.borrow_mut() = Rc::downgrade(&yard);
        let all = take_all(&yard, 0, Gfp::HIGHUSER_MOVABLE);
        let sparse = all.iter().filter(|pfn| pfn.0 % 8 != 0).take(free);
        sparse.for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.drain_all(None);
        yard.trigger_proactive_compaction();
        _ = yard.compact_background(NodeId(0));
        yard.compact_all();
        let high = yard.zone_info(ZoneKind::Normal).unwrap().watermarks[2];
        let boosted = high + high * 15_000 / 10_000;
        assert!(lowest.get() >= boosted, "{} of {boosted}", lowest.get());
        assert_eq!(lowest.get() < u64::MAX, free > 2000, "with too little to spare nothing moves");
        yard.validate().unwrap();
    }
}

/// An impatient request tries pageblocks of its type alone. A patient one begins where another one ended.
#[test]
fn s7_4_patient_requests_begin_at_pageblocks_that_impatient_ones_passed() {
    for (n, gfp) in [(1, Gfp::KERNEL), (3, Gfp::KERNEL), (5, Gfp::KERNEL | Gfp::RETRY_MAYFAIL)] {
        let yard = yard(4096, Mover::refusing(|pfn| pfn.0 >= (1 << 20) + 250 * 512));
        leave(&yard, |n| n % 2 == 0);
        for _ in 0..6 {
            yard.alloc(order(n), gfp | Gfp::NOWARN).unwrap();
        }
        yard.validate().unwrap();
    }
}

/// Owners of the first half of memory move nothing.
#[test]
fn s2_10_a_request_of_a_low_order_tries_all_of_a_zone() {
    for n in [1, 3] {
        let yard = yard(4096, Mover::refusing(|pfn| pfn.0 < (1 << 20) + 1500 * 512));
        leave(&yard, |n| n % 2 == 0);
        for _ in 0..4 {
            yard.alloc(order(n), Gfp::KERNEL | Gfp::NOWARN).unwrap();
        }
    }
}

/// Pageblocks that cannot be emptied are not all looked at by each impatient request.
#[test]
fn s7_4_impatient_requests_look_at_few_sparse_pageblocks() {
    let looked: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
    let seen = looked.clone();
    let is_locked = move |pfn: Pfn| {
        seen.borrow_mut().insert(pfn.0 / 512);
        pfn.0 % 512 == 508
    };
    let yard = yard(2400, Mover { is_locked: Box::new(is_locked), ..Mover::new() });
    yard.set_knob("compact_unevictable_allowed", "0").unwrap();
    leave(&yard, |n| n % 4 == 0);
    let request = || yard.alloc(order(9), Gfp::HIGHUSER_MOVABLE | Gfp::NORETRY | Gfp::NOWARN);
    request().unwrap_err();
    let first = looked.take();
    assert!((1..=2 * 64).contains(&first.len()), "{}", first.len());
    // The next one goes on behind them.
    request().unwrap_err();
    assert!(looked.take().is_disjoint(&first));
}

/// A zone that can spare one pageblock at a time: only the owners in one pageblock move their pages.
#[test]
fn s7_4_a_zone_with_little_to_spare_passes_over_no_pageblock() {
    for (n, from, stride, moves) in [(3, 20, 2, 25), (9, 24, 8, 29)] {
        let first = 1 << 20;
        let yard = yard(64, Mover::refusing(move |pfn| (pfn.0 - first) / 512 != moves));
        leave(&yard, |n| n < from * 512 || n % stride == 0);
        let [_, _, high, _] = yard.zone_info(ZoneKind::Normal).unwrap().watermarks;
        let free = yard.zone_info(ZoneKind::Normal).unwrap().free_exact;
        assert!((high..high * 5 / 2 + 1024).contains(&free), "{free} of {high}");
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(n)), Priority::SyncFull);
        assert_eq!(done, Some(CompactResult::Success), "order {n}");
        yard.validate().unwrap();
    }
}

/// Whatever part of a run is in use, its blocks are asked to move once. Half of memory has room, and no run that
/// can be made.
#[test]
fn s7_4_each_run_is_tried_once() {
    for used in [1, 4, 5, 7, 8, 9, 16] {
        let yard = yard(64, Mover::refusing(|_| true));
        let has_runs = |n: u64| n < 16 * 512;
        for page in leave(&yard, |n| if has_runs(n) { n % 16 < used } else { n % 2 == 0 }) {
            // One run of each pageblock stays, or the pageblock would be emptied as a whole.
            let can_move = has_runs(page.0 - (1 << 20)) && page.0 % 512 >= 16;
            yard.set_movable(page, Order::ZERO, can_move).unwrap();
        }
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(4)), Priority::SyncLight);
        assert_eq!(done, Some(CompactResult::Complete));
        let asked = yard.hooks().moves.take().into_iter().map(|(from, _)| from);
        let mut asked: Vec<_> = asked.collect();
        asked.sort();
        let firsts = (0..16 * 512).step_by(16).filter(|n| n % 512 != 0);
        assert!(asked.into_iter().eq(firsts.map(|n| Pfn((1 << 20) + n))), "{used} used");
    }
}

/// Runs of the first pageblock stay. Two others are tried together then, and both have a run.
#[test]
fn s7_4_no_more_is_moved_once_a_run_is_free() {
    let stays = |pfn: Pfn| pfn.0 < (1 << 20) + 512;
    let yard = yard(64, Mover::refusing(stays));
    leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
    let done = yard.compact_zone(ZoneKind::Normal, Some(order(4)), Priority::SyncLight);
    assert_eq!(done, Some(CompactResult::Success));
    assert_eq!(yard.compact_stats().moved, 2 * 8);
}

/// A request that tries all of a zone looks at 64 sparse pageblocks. The next one begins with the same ones.
#[test]
fn s7_4_a_run_over_all_of_a_zone_leaves_the_place_of_others() {
    let yard = yard(2 * 80, Mover::refusing(|_| true));
    leave(&yard, |n| n % 16 == 0);
    let [first, next] = [Priority::SyncFull, Priority::SyncLight].map(|priority| {
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(5)), priority);
        assert_eq!(done, Some(CompactResult::Complete));
        // Otherwise the CPU would go on refilling from the first one.
        yard.drain_all(None);
        yard.hooks().moves.take()[0].0
    });
    assert_eq!(first, next);
}

/// The free blocks are counted pageblock by pageblock until they are too many for a lack of memory: 900 are just
/// too few, and the last pageblock has one more.
#[test]
fn s7_5_the_free_block_that_shows_fragmentation_is_counted() {
    for (last, result) in [(0, CompactResult::Skipped), (1, CompactResult::Complete)] {
        let yard = yard(64, Mover::new());
        let in_last = 31 * 512..31 * 512 + last;
        leave_of(&yard, Gfp::KERNEL, |n| (n % 16 < 8 || n >= 900 * 16) && !in_last.contains(&n));
        let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
        assert_eq!((blocks[0], blocks[3]), (last, 900));
        assert_eq!(fragmentation_index(&blocks, order(4)), 499 + last as i32);
        yard.set_knob("extfrag_threshold", "499").unwrap();
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(4)), Priority::SyncLight);
        assert_eq!(done, Some(result));
    }
}

/// The CPU refills from the pageblock in which what moves finds its places. That one is tried too.
#[test]
fn s7_4_a_pageblock_that_gave_places_is_tried_too() {
    for moves in 0..32 {
        let yard = yard(64, Mover::refusing(move |pfn| (pfn.0 - (1 << 20)) / 512 != moves));
        leave_mixed(&yard, Gfp::HIGHUSER_MOVABLE);
        let done = yard.compact_zone(ZoneKind::Normal, Some(order(4)), Priority::SyncLight);
        assert_eq!(done, Some(CompactResult::Success), "{moves}");
        yard.validate().unwrap();
    }
}
