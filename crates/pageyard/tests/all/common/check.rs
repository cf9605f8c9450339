//! The invariants that hold while no thread is inside the yard.

use std::collections::BTreeMap;

use pageyard::policy::Policy;
use pageyard::{Config, MigrateType, Order, Pfn, Yard};

use super::Machine;
use super::view::{View, list_order, view};

/// What callers own.
pub(crate) type Owned = BTreeMap<Pfn, Order>;

/// Panics where an invariant is broken; the module doc of `properties.rs` lists them.
pub(crate) fn check<C: Config>(y: &Yard<'_, C>, machine: &Machine, owned: &Owned) {
    y.validate().unwrap_or_else(|e| panic!("{e}"));
    let mut allocated = 0;
    for kind in y.zone_ids() {
        let v = view(y, kind);
        let info = y.zone_info(kind).unwrap();
        let pages = frames_are_in_one_place(&v, machine);
        let out = y.out_of_use(kind).unwrap();
        assert_eq!(
            pages + out.bad + out.poisoned,
            info.managed,
            "{kind}: free + cached + allocated + guards + out of use = managed"
        );
        assert_eq!(v.guards.values().map(|o| 1u64 << o).sum::<u64>(), out.guards, "{kind}: guards");
        counters_match(y, kind, &v);
        if !y.policy().rules().carried_types {
            lists_match_labels(&v);
        }
        merged_as_far_as_can_be(&v);
        for (&pfn, &(order, _)) in &v.allocated {
            let known = owned.get(&Pfn(pfn)).map(|o| o.get());
            assert_eq!(known, Some(order), "{kind}: {pfn:#x} is in use, but has no owner");
            allocated += 1;
        }
    }
    assert_eq!(allocated, owned.len(), "a block with an owner is not in use");
}

/// Every block is aligned, lies in usable memory, and shares no frame with another. Returns the
/// number of pages.
fn frames_are_in_one_place(v: &View, machine: &Machine) -> u64 {
    let free = v.all_free().map(|(p, o, _)| (p, o));
    let cached = v.all_cached().map(|(p, _, l)| (p, list_order(l)));
    let allocated = v.allocated.iter().map(|(&p, &(o, _))| (p, o));
    let guards = v.guards.iter().map(|(&p, &o)| (p, o));
    let mut all: Vec<(u64, u8)> = free.chain(cached).chain(allocated).chain(guards).collect();
    all.sort_unstable();
    let mut end = 0;
    for &(pfn, order) in &all {
        assert_eq!(pfn % (1 << order), 0, "{pfn:#x} is not aligned to order {order}");
        assert!(pfn >= end, "{pfn:#x} of order {order} is in two places");
        end = pfn + (1 << order);
        assert!((pfn..end).all(|p| machine.may_own(Pfn(p))), "{pfn:#x} is not managed memory");
    }
    all.iter().map(|&(_, o)| 1 << o).sum()
}

fn counters_match<C: Config>(y: &Yard<'_, C>, kind: pageyard::ZoneId, v: &View) {
    let info = y.zone_info(kind).unwrap();
    let sum = |keep: &dyn Fn(MigrateType) -> bool| -> u64 {
        v.all_free().filter(|f| keep(f.2)).map(|(_, o, _)| 1 << o).sum()
    };
    assert_eq!(info.free_exact, sum(&|t| t != MigrateType::Isolate), "{kind}: the free counter");
    if !y.policy().rules().carried_types {
        let highatomic = sum(&|t| t == MigrateType::HighAtomic);
        assert_eq!(info.free_highatomic, highatomic, "{kind}: free highatomic pages");
    }
    let blocks = y.free_blocks(kind).unwrap();
    for order in 0..=10u8 {
        let n = v.all_free().filter(|f| f.1 == order).count() as u64;
        assert_eq!(blocks[usize::from(order)], n, "{kind}: free blocks of order {order}");
    }
    for c in &v.cpus {
        let on_lists: i32 = v
            .all_cached()
            .filter(|&(_, cpu, _)| cpu == c.cpu.0)
            .map(|(_, _, l)| 1 << list_order(l))
            .sum();
        assert_eq!(c.tuning.count, on_lists, "{kind}: count of CPU {}", c.cpu.0);
        let t = &c.tuning;
        assert!(t.high >= 0 && t.free_count >= 0 && t.alloc_factor <= 6, "{kind}: {t:?}");
        assert!(c.diff.unsigned_abs() <= c.threshold, "{kind}: CPU part above its threshold");
    }
}

/// With the hygiene rules (§4.8), a free block is on the list of all its pageblocks' type.
fn lists_match_labels(v: &View) {
    for (pfn, order, t) in v.all_free() {
        for p in (pfn..pfn + (1 << order)).step_by(512) {
            assert_eq!(v.label(p), t, "{pfn:#x} of order {order} is on the wrong list");
        }
    }
}

/// No two free blocks lie side by side that §1.7 would have merged. Whole pageblocks of one type
/// may: un-reserving (§3.8) and conversion (§4.9) relabel without merging.
fn merged_as_far_as_can_be(v: &View) {
    let free: BTreeMap<(u64, u8), MigrateType> =
        v.all_free().map(|(p, o, t)| ((p, o), t)).collect();
    for (&pfn, &order) in &v.guards {
        let buddy = pfn ^ (1 << order);
        assert!(!free.contains_key(&(buddy, order)), "{pfn:#x} of order {order} is still a guard");
    }
    for &(pfn, order) in free.keys().filter(|k| k.1 < 9) {
        let buddy = pfn ^ (1 << order);
        assert!(
            !free.contains_key(&(buddy, order)),
            "{pfn:#x} and {buddy:#x} of order {order} are both free"
        );
    }
}

/// The free blocks of a zone in pieces of a pageblock at most, sorted: the same for any two
/// states in which the same frames are free and merged.
pub(crate) fn free_in_pageblocks(v: &View) -> Vec<(u64, u8)> {
    let mut all: Vec<(u64, u8)> = v
        .all_free()
        .flat_map(|(p, o, _)| {
            let step = o.min(9);
            (p..p + (1 << o)).step_by(1 << step).map(move |p| (p, step))
        })
        .collect();
    all.sort_unstable();
    all
}
