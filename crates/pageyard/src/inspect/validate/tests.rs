//! Plants faults behind the allocator's back and checks that each one is found and named.

extern crate std;
use std::format;
use std::vec::Vec;

use super::*;
use crate::allocator::knobs::Knobs;
use crate::allocator::layout::{Layout, ZoneSpec};
use crate::allocator::owned_storage::OwnedStorage;
use crate::base::gfp::Gfp;
use crate::base::list::List;
use crate::base::units::{NodeId, Pfn, ZoneKind};
use crate::embedder::config::Hooked;
use crate::embedder::hooks::{Defences, Observer, Reclaim};
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Guarded, Linux612, OwnedBlocks, StaticPolicy};
use crate::zone::area::End;

type Lock = spin::mutex::SpinMutex<()>;

/// Hooks that have free blocks of order 9 and above reported.
struct Stage;

impl Platform for Stage {}

impl Reclaim for Stage {
    const REPORT_ORDER: Option<Order> = Order::new(9);

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        true
    }
}

impl Observer for Stage {}
impl Defences for Stage {}

const Z: ZoneKind = ZoneKind::Normal;
const SINGLE: State = State::new(Kind::Allocated, 0, MigrateType::Unmovable);

/// Runs `f` on a yard of 16 pageblocks and two CPUs, with blocks in every state. Frame number and
/// index are the same.
fn with_yard<P: StaticPolicy>(
    f: impl for<'y> FnOnce(&Yard<'y, Hooked<Lock, Stage, P>>, &Zone<'y, Lock>, Pfn),
) {
    let span = Pfn(0)..Pfn(8192);
    let spec = ZoneSpec { kind: Z, node: NodeId(0), span: span.clone() };
    let layout = Layout {
        zones: &[spec],
        usable: &[span],
        reserved: &[Pfn(5)..Pfn(8)],
        cpus: &[NodeId(0); 2],
        distances: &[],
        knobs: Knobs { huge_pages: false, ..Knobs::default() },
    };
    let mut maps = OwnedStorage::new(&layout).unwrap();
    let y: Yard<'_, Hooked<Lock, Stage, P>> = Yard::new(&layout, maps.storage(), Stage).unwrap();
    let mut kept = Vec::new();
    for order in [0, 0, 0, 3, 0, 5, 0, 0] {
        kept.push(y.alloc(Order::new(order).unwrap(), Gfp::KERNEL).unwrap());
    }
    y.free(kept[0], Order::ZERO).unwrap();
    y.free(kept[2], Order::ZERO).unwrap();
    assert_eq!(y.validate(), Ok(()));
    f(&y, &y.zones[0], kept[3]);
}

/// Plants a fault in a yard with an allocated block of order 3 at the given frame, and returns what
/// `validate` finds.
fn planted(
    plant: impl for<'y> FnOnce(&Yard<'y, Hooked<Lock, Stage>>, &Zone<'y, Lock>, u32),
) -> Broken {
    let mut found = None;
    with_yard(|y, z, block| {
        plant(y, z, block.0 as u32);
        let e = y.validate().unwrap_err();
        assert!(format!("{e}").starts_with(&format!("{}: ", z.id())), "{e}");
        found = Some(e.broken);
    });
    found.unwrap()
}

/// Returns the head of a list of free blocks, of order `least` or above.
fn free(z: &Zone<'_, Lock>, least: u8) -> (u32, u8, MigrateType) {
    let all = |o| MigrateType::ALL.into_iter().map(move |t| (o, t));
    let mut lists = (least..=MAX_ORDER).flat_map(all);
    lists.find_map(|(o, t)| Some((z.areas.first(o, t)?, o, t))).unwrap()
}

/// Passes to `f` a list of CPU 0 with more than one page.
fn with_cached(z: &Zone<'_, Lock>, f: impl FnOnce(&mut Pageset, &List)) {
    let mut pageset = z.cpus[0].pageset.lock();
    let list = List::new();
    let of = pageset.list(0);
    assert!(of.first() != of.last(), "at least two pages of this type are cached");
    f(&mut pageset, &list);
}

fn counted(b: Broken) -> Tally {
    let Broken::Count { of, says, is } = b else { panic!("{b:?}") };
    assert_ne!(says, is);
    of
}

#[test]
fn duplicate_and_lost_frames_are_detected() {
    let inner = planted(|_, z, block| z.map.frame(block + 3).set_state(SINGLE));
    assert!(matches!(inner, Broken::Overlap { .. }));
    let lost = planted(|_, z, block| z.map.frame(block).set_state(State::TAIL));
    assert_eq!(lost, Broken::Lost);
    let twice = planted(|_, z, _| z.map.frame(free(z, 0).0).set_state(SINGLE));
    assert!(matches!(twice, Broken::Misplaced { .. }));
    let reserved = planted(|_, z, block| z.map.set_states(block, 8, State::RESERVED));
    assert_eq!(counted(reserved), Tally::Managed);
}

#[test]
fn invalid_blocks_are_detected() {
    let state = |o| State::new(Kind::Allocated, o, MigrateType::Unmovable);
    let order = planted(|_, z, block| z.map.frame(block).set_state(state(12)));
    assert_eq!(order, Broken::Order(12));
    let misaligned = planted(|_, z, block| {
        z.map.frame(block).set_state(SINGLE);
        z.map.frame(block + 1).set_state(state(2));
    });
    assert!(matches!(misaligned, Broken::Misaligned(_)));
    let absent = planted(|_, z, _| z.map.clear_blocks());
    assert!(matches!(absent, Broken::Absent | Broken::Label { .. }), "{absent:?}");
}

#[test]
fn blocks_in_transit_are_detected() {
    let held = State::new(Kind::Held, 3, MigrateType::Unmovable);
    assert_eq!(planted(|_, z, block| z.map.frame(block).set_state(held)), Broken::Held);
    let leaving = planted(|_, z, block| {
        let f = z.map.frame(block);
        assert!(f.begin_free(f.state()));
    });
    assert_eq!(leaving, Broken::BeingFreed);
}

#[test]
fn broken_list_links_are_detected() {
    // Blocks of the largest order, because several are on one list.
    let list = |z: &Zone<'_, Lock>| {
        let (first, o, t) = free(z, MAX_ORDER);
        assert_ne!(z.areas.list(o, t).last(), Some(first));
        (first, z.areas.list(o, t).last().unwrap())
    };
    let back = planted(|_, z, _| z.map.frame(list(z).1).set_prev(3));
    assert_eq!(back, Broken::Link);
    let ring = planted(|_, z, _| z.map.frame(list(z).1).set_next(list(z).0));
    assert_eq!(ring, Broken::Link);
    let cut = planted(|_, z, _| z.map.frame(list(z).0).set_next(NIL));
    assert_eq!(cut, Broken::End);
    let away = planted(|_, z, _| z.map.frame(list(z).1).set_next(1 << 30));
    assert!(matches!(away, Broken::Misplaced { .. }));
    let off = planted(|_, z, _| {
        let (first, o, t) = free(z, MAX_ORDER);
        z.areas.list(o, t).unlink(&z.map, first, z.map.frame(first));
    });
    assert!(matches!(off, Broken::Unlisted(_)));
}

#[test]
fn a_detached_ring_is_found_by_its_count() {
    let ring = planted(|_, z, _| {
        let (first, o, t) = free(z, MAX_ORDER);
        let f = z.map.frame(first);
        let second = f.next();
        for idx in [first, second] {
            z.areas.list(o, t).unlink(&z.map, idx, z.map.frame(idx));
        }
        for (a, b) in [(first, second), (second, first)] {
            z.map.frame(a).set_next(b);
            z.map.frame(a).set_prev(b);
        }
    });
    assert!(matches!(counted(ring), Tally::Listed(..)));
}

#[test]
fn mismatched_types_are_detected() {
    let label = planted(|_, z, _| {
        let (idx, _, t) = free(z, PAGEBLOCK_ORDER);
        let other = if t == MigrateType::Movable { 2 } else { 1 };
        z.map.set_block_type(idx, MigrateType::from_bits(other));
    });
    assert!(matches!(label, Broken::Label { .. }));
    let isolated = planted(|y, z, _| {
        y.isolate(Pfn(4096)..Pfn(4608), MigrateType::Movable).unwrap();
        z.isolated_blocks.store(0, Relaxed);
    });
    assert_eq!(counted(isolated), Tally::Isolated);
}

#[test]
fn unmerged_buddies_are_detected() {
    let halves = planted(|_, z, _| {
        // Split the smallest free block into two halves.
        let (idx, o, t) = free(z, 1);
        z.areas.remove(&z.map, idx, o, t);
        assert!(o <= PAGEBLOCK_ORDER);
        for half in [idx, idx + (1 << (o - 1))] {
            z.areas.insert(&z.map, half, o - 1, t, End::Head);
        }
    });
    assert!(matches!(halves, Broken::Unmerged(_)));
    with_yard::<Guarded<1>>(|y, z, _| {
        let guard = |i: &u32| z.map.frame(*i).state().is(Kind::Guard, 0);
        let idx = (0..8192).find(guard).expect("an odd number of pages is in use");
        z.map.frame(idx).set_state(SINGLE);
        let e = y.validate().unwrap_err();
        assert_eq!(counted(e.broken), Tally::Guards);
        assert_eq!(e.frame, None);
    });
}

#[test]
fn per_cpu_lists() {
    let count =
        planted(|_, z, _| with_cached(z, |p, _| p.tune(&Linux612::RULES.pcp, |t| t.count += 1)));
    assert_eq!(counted(count), Tally::Cached(CpuId(0)));
    // A drain returns although the count is too large, also when it exceeds what one hold of the zone lock frees.
    with_yard::<Linux612>(|y, z, _| {
        with_cached(z, |p, _| p.tune(&Linux612::RULES.pcp, |t| t.count += 100_000));
        y.drain_all(None);
        assert!(y.validate().is_err());
    });
    // Both the list and its count are lost.
    let gone = planted(|_, z, _| {
        with_cached(z, |p, _| {
            let n = p.list(0).iter(&z.map).count() as i32;
            p.list(0).clear();
            p.tune(&Linux612::RULES.pcp, |t| t.count -= n);
        });
    });
    assert!(matches!(gone, Broken::Unlisted(_)));
    // One page at the head of two CPUs' lists.
    let twice = planted(|_, z, _| {
        with_cached(z, |p, _| {
            let idx = p.list(0).last().unwrap();
            let mut other = z.cpus[1].pageset.lock();
            other.list(0).push_tail(&z.map, idx);
            other.tune(&Linux612::RULES.pcp, |t| t.count += 1);
        });
    });
    assert_eq!(counted(twice), Tally::AllCached);
    let unused = planted(|_, z, _| {
        with_cached(z, |p, _| {
            let idx = p.list(0).pop_tail(&z.map).unwrap();
            p.list(15).push_tail(&z.map, idx);
        });
    });
    assert_eq!(unused, Broken::UnusedList(CpuId(0)));
    let down = planted(|_, z, _| z.cpus[0].up.store(false, Relaxed));
    assert_eq!(down, Broken::UnusedList(CpuId(0)));
    let part = planted(|_, z, _| z.cpus[1].set_diff(100_000));
    assert_eq!(part, Broken::Threshold(CpuId(1)));
}

#[test]
fn counters() {
    type Plant = for<'y> fn(&Zone<'y, Lock>);
    let plants: [(Plant, Tally); 7] = [
        (|z| _ = z.nr_free.fetch_add(1, Relaxed), Tally::Free),
        (|z| _ = z.free_highatomic.fetch_add(1, Relaxed), Tally::FreeHighatomic),
        (|z| _ = z.free_cma.fetch_add(1, Relaxed), Tally::FreeCma),
        (|z| _ = z.managed.fetch_sub(1, Relaxed), Tally::Managed),
        (|z| _ = z.safety.bad.fetch_add(1, Relaxed), Tally::Bad),
        (|z| _ = z.safety.poisoned.fetch_add(1, Relaxed), Tally::Poisoned),
        (|z| _ = z.report.reported.fetch_add(512, Relaxed), Tally::Reported),
    ];
    for (plant, tally) in plants {
        assert_eq!(counted(planted(|_, z, _| plant(z))), tally);
    }
    // A block on its list that is counted nowhere, and one missing from the block counter.
    let unaccounted = planted(|_, z, block| {
        z.areas.insert(&z.map, block, 3, MigrateType::Unmovable, End::Head);
    });
    assert!(matches!(unaccounted, Broken::Count { of: Tally::Free, .. } | Broken::Unmerged(_)));
    let uncounted = planted(|_, z, _| {
        let (idx, o, t) = free(z, 0);
        z.areas.remove(&z.map, idx, o, t);
        z.map.frame(idx).set_state(State::new(Kind::Free, o, t));
        z.areas.list(o, t).push_tail(&z.map, idx);
    });
    assert!(matches!(counted(uncounted), Tally::Blocks(_)));
}

#[test]
fn an_undercounted_highatomic_reserve_is_detected() {
    let reserve = |z: &Zone<'_, Lock>, counted: u64| {
        let (idx, o, t) = free(z, MAX_ORDER);
        z.areas.move_to(&z.map, idx, o, t, MigrateType::HighAtomic);
        z.map.set_range_type(idx, o, MigrateType::HighAtomic);
        z.free_highatomic.fetch_add(1 << o, Relaxed);
        z.reserved_highatomic.store(counted, Relaxed);
    };
    assert_eq!(counted(planted(|_, z, _| reserve(z, 1023))), Tally::ReservedHighatomic);
    // Equal or higher is valid: a contiguous range that takes such a pageblock leaves it counted.
    for enough in [1024, 1536] {
        assert_eq!(
            planted(|_, z, _| reserve(z, enough)),
            Broken::CachedMark,
            "the next fault is found"
        );
    }
}

#[test]
fn poisoned_and_reported_frames() {
    let free_one = planted(|_, z, _| z.map.frame(free(z, 3).0 + 2).set_poisoned(true));
    assert_eq!(free_one, Broken::Poison);
    let untainted = planted(|_, z, block| z.map.frame(block).set_poisoned(true));
    assert_eq!(untainted, Broken::Taint);
    let good = planted(|y, z, block| {
        y.free(Pfn(block.into()), Order::new(3).unwrap()).unwrap();
        y.poison_frame(Pfn(block.into())).unwrap();
        z.map.frame(block).set_poisoned(false);
    });
    assert_eq!(good, Broken::Poison);
    let small = planted(|_, z, _| {
        let f = z.map.frame(free(z, 0).0);
        f.set_state(f.state().with_reported());
    });
    assert!(matches!(small, Broken::Reported(_)));
    with_yard::<Linux612>(|y, z, _| {
        assert!(y.report_free_pages(Z, Order::ZERO, 2048) > 0);
        assert_eq!(y.validate(), Ok(()));
        let reported = |i: &u32| z.map.frame(*i).state().is_reported();
        let idx = (0..8192).find(reported).unwrap();
        let s = z.map.frame(idx).state();
        z.map.frame(idx).set_state(State::new(Kind::Free, s.order(), s.migrate_type()));
        assert_eq!(counted(y.validate().unwrap_err().broken), Tally::Reported);
    });
}

#[test]
fn watermarks() {
    let falling = planted(|_, z, _| z.watermarks.set_marks([4, 3, 5, 6]));
    assert_eq!(falling, Broken::Watermarks);
    let stale = planted(|_, z, _| z.watermarks.set_boost(512));
    assert_eq!(stale, Broken::CachedMark);
}

#[test]
fn wrong_owners_of_pageblocks_are_detected() {
    let planted = |plant: fn(&Zone<'_, Lock>, u32)| {
        let mut found = None;
        with_yard::<OwnedBlocks>(|y, z, _| {
            plant(z, free(z, PAGEBLOCK_ORDER).0);
            found = Some(y.validate().unwrap_err().broken);
        });
        assert_eq!(found, Some(Broken::Owner));
    };
    planted(|z, whole| z.map.frame(whole).set_word(1));
    planted(|z, whole| z.map.frame(whole + 1).set_word(1));
    planted(|z, _| {
        let idx = z.cpus[0].pageset.lock().list(0).first().unwrap();
        let frame = z.map.frame(idx);
        frame.set_state(frame.state().at_owner());
        // CPU 1 owns the pageblock, but the block is on a list of CPU 0.
        z.map.frame(idx & !(PAGEBLOCK_PAGES - 1)).set_word(2);
    });
}
