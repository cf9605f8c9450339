//! Spec §6.2, §6.3: batch frees, and frees of all but a block's first page.

use crate::common;

use common::state::State;
use common::view::normal;
use common::{Machine, Y, all_records, o};
use pageyard::MigrateType::{Isolate, Movable};
use pageyard::{CpuId, Event, FreeError, Gfp, Order, Pfn, ZoneKind};

const ZONE: ZoneKind = ZoneKind::Normal;

/// The frames of `Event::Free`, in order.
fn freed(y: &Y<'_>) -> Vec<u64> {
    told(y).into_iter().filter(|t| !t.0).map(|t| t.1).collect()
}

/// The frames of `Event::Free` (false) and `Event::FreeBatched` (true), in order.
fn told(y: &Y<'_>) -> Vec<(bool, u64)> {
    let told = |e| match e {
        Event::Free { pfn, .. } => Some((false, pfn.0)),
        Event::FreeBatched { pfn } => Some((true, pfn.0)),
        _ => None,
    };
    y.hooks().events().into_iter().filter_map(told).collect()
}

/// As in the kernel: `Free` for every block of a group, then `FreeBatched` for each block that goes
/// to a per-CPU list.
#[test]
fn s9_5_a_batch_is_reported_in_groups_of_31() {
    let mut s = State::new(16384).limits(1, 4000, 4000);
    let mut batch = Vec::new();
    for i in 0..40u64 {
        // Every fifth block is of order 4, which per-CPU lists do not keep.
        let order = if i % 5 == 4 { 4 } else { 0 };
        s = s.block(i * 32, order, false);
        batch.push((Pfn(i * 32), o(order)));
    }
    s.run(|y: &Y<'_>| {
        y.hooks().watch();
        y.free_batch(&batch).unwrap();
        let of = |group: &[(Pfn, Order)]| -> Vec<(bool, u64)> {
            let small = group.iter().filter(|b| b.1.get() == 0);
            group.iter().map(|b| (false, b.0.0)).chain(small.map(|b| (true, b.0.0))).collect()
        };
        assert_eq!(told(y), [of(&batch[..31]), of(&batch[31..])].concat());
        let s = y.cpu_stats(ZONE, CpuId(0)).unwrap();
        assert_eq!((s.direct_frees, s.frees.blocks()), (8, 40));
    });
}

#[test]
fn s6_2_uncached_orders_go_first_in_a_group() {
    // The limits keep nothing on the lists, so the first block also goes to the zone, where it
    // merges to order 4. The block freed last is the head of its list.
    let s = State::new(4096).limits(1, 0, 0).block(0, 3, false).free(8, 3).block(64, 4, false);
    s.run(|y: &Y<'_>| {
        y.free_batch(&[(Pfn(0), o(3)), (Pfn(64), o(4))]).unwrap();
        assert_eq!(normal(y).free(4, Movable), [0, 64]);
    });
}

#[test]
fn s6_2_isolated_pages_bypass_the_list() {
    let s = State::new(4096)
        .limits(1, 1000, 1000)
        .label(1, Isolate)
        .used(10..12, false)
        .used(600..601, false);
    s.run(|y: &Y<'_>| {
        y.free_batch(&[(Pfn(10), o(0)), (Pfn(600), o(0)), (Pfn(11), o(0))]).unwrap();
        let v = normal(y);
        assert_eq!(v.cached(0, 1), [11, 10]);
        assert_eq!(v.free(0, Isolate), [600]);
        assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 0, "isolated pages are not counted");
    });
}

#[test]
fn s6_2_blocks_return_to_their_own_zones() {
    let m = Machine::new().zone(ZoneKind::Dma32, 0..8192).zone(ZoneKind::Normal, 8192..16384);
    m.run(|y: &Y<'_>| {
        let mut batch = Vec::new();
        for i in 0..100 {
            let gfp = if i % 3 == 0 { Gfp::KERNEL | Gfp::DMA32 } else { Gfp::KERNEL };
            let order = o([0, 1, 4, 9, 3][i % 5]);
            if let Ok(p) = y.alloc(order, gfp) {
                batch.push((p, order));
            }
        }
        assert!(batch.len() > 60);
        y.free_batch(&batch).unwrap();
        y.drain_all(None);
        for kind in [ZoneKind::Dma32, ZoneKind::Normal] {
            assert_eq!(y.zone_info(kind).unwrap().free_exact, 8192);
        }
    });
}

#[test]
fn s11_8_an_invalid_batch_changes_nothing() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let p: Vec<Pfn> = (0..4).map(|_| y.alloc(o(1), Gfp::KERNEL).unwrap()).collect();
        let good = [(p[0], o(1)), (p[1], o(1)), (p[2], o(1))];
        let faults = [
            ((p[1], o(1)), FreeError::DoubleFree),
            ((p[3], o(0)), FreeError::WrongOrder { allocated: o(1) }),
            ((Pfn(p[3].0 + 1), o(0)), FreeError::NotHead { head: p[3], allocated: o(1) }),
            ((Pfn(1 << 40), o(0)), FreeError::Foreign),
        ];
        let before = all_records(y);
        for (fault, want) in faults {
            for at in 2..=3 {
                let mut batch = good.to_vec();
                batch.insert(at, fault);
                let e = y.free_batch(&batch).unwrap_err();
                assert_eq!((e.index, e.error), (at, want));
                assert!(e.to_string().contains(&at.to_string()));
                assert_eq!(all_records(y), before);
            }
        }
        y.free_batch(&good).unwrap();
        y.free_batch(&[]).unwrap();
    });
}

/// Every way to free many blocks frees all of them, and rejects a batch that contains a free block.
#[test]
fn s6_2_batches_of_one_order_and_of_owners_are_freed_completely() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let taken =
            || -> Vec<Pfn> { (0..70).map(|_| y.alloc(o(2), Gfp::KERNEL).unwrap()).collect() };
        let whole = || {
            y.drain_all(None);
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 8192);
        };
        let blocks = taken();
        y.free_batch_of(o(2), &blocks).unwrap();
        whole();
        let error = y.free_batch_of(o(2), &blocks).unwrap_err();
        assert_eq!((error.index, error.error), (0, FreeError::DoubleFree));

        let owned: Vec<(Pfn, Order)> = taken().into_iter().map(|pfn| (pfn, o(2))).collect();
        y.free_batch_owned(&owned).unwrap();
        whole();
        let error = y.free_batch_owned(&owned).unwrap_err();
        assert_eq!((error.index, error.error), (0, FreeError::DoubleFree));
    });
}

#[test]
fn s6_3_a_shared_blocks_rest_is_freed_from_the_upper_half_down() {
    let s = State::new(4096).limits(63, 1000, 1000).block(512, 5, false);
    s.run(|y: &Y<'_>| {
        y.hooks().watch();
        y.free_shared(Pfn(512), o(5)).unwrap();
        assert_eq!(freed(y), [528, 520, 516, 514, 513]);
        let v = normal(y);
        assert_eq!(v.allocated.keys().collect::<Vec<_>>(), [&512]);
        assert_eq!(v.allocated[&512].0, 0);
        assert_eq!(v.free(4, Movable), [528], "each at its own order: order 4 goes to the zone");
        assert_eq!((v.cached(0, 10), v.cached(0, 1)), (&[520][..], &[513][..]));
        y.free(Pfn(512), o(0)).unwrap();
        y.drain_all(None);
        assert_eq!(normal(y).free(5, Movable), [512]);
    });
}

#[test]
fn s6_3_nothing_of_a_single_shared_page_is_freed() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let p = y.alloc(o(0), Gfp::KERNEL).unwrap();
        let before = all_records(y);
        y.free_shared(p, o(0)).unwrap();
        assert_eq!(all_records(y), before);
        y.free(p, o(0)).unwrap();
    });
}
