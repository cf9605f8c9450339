//! Pages in use, counted in two ways that must agree: managed pages that are neither free nor
//! cached, and pages allocated minus pages freed. A caller compares them with what it owns to find
//! a leak.

use crate::common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use common::any::any_hooks;
use common::{LINUX612, Lock, Machine, Y, frames, o};
use pageyard::{
    CmaArea, CpuId, Defences, Gfp, Hooked, MigrateType, Observer, Order, Pfn, Platform, Reclaim,
    Relocation, SECTION_PAGES, Yard, ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;

/// Asserts that both counts report `pages` pages in use.
fn in_use<C: pageyard::Config>(y: &Yard<'_, C>, pages: u64, what: &str) {
    let info = y.zone_info(NORMAL).unwrap();
    let totals = y.zone_totals(NORMAL).unwrap();
    assert_eq!(info.in_use(), pages, "{what}: managed minus free and cached");
    assert_eq!(totals.alloc_pages - totals.free_pages, pages, "{what}: allocated minus freed");
}

/// Single, bulk and range requests, split blocks and CMA areas count on both sides.
#[test]
fn every_kind_of_request_counts_on_both_sides() {
    Machine::normal(16 << 10).run(|y: &Y<'_>| {
        let large = y.alloc(o(5), Gfp::KERNEL).unwrap();
        in_use(y, 32, "a block");
        y.split(large, o(5), o(0)).unwrap();
        y.free(large, o(0)).unwrap();
        in_use(y, 31, "a split block");
        let mut slots = [None; 40];
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut slots), Ok(40));
        in_use(y, 71, "a bulk request");
        y.alloc_contig(frames(4000..7000), MigrateType::Movable, Gfp::KERNEL).unwrap();
        in_use(y, 3071, "a contiguous range");
        y.free_contig(frames(4000..5000)).unwrap();
        in_use(y, 2071, "a part of the range");
        y.alloc_contig(frames(8192..8704), MigrateType::Movable, Gfp::KERNEL | Gfp::COMP).unwrap();
        in_use(y, 2583, "a range as one block");
        y.alloc_at(Pfn(9000), o(2), Gfp::KERNEL).unwrap();
        in_use(y, 2587, "a block at a frame");
        let bitmap: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let area: CmaArea<'_, Lock> =
            CmaArea::new(y, frames(10240..12288), Order::ZERO, &bitmap).unwrap();
        let first = area.alloc(y, 700, 1, Gfp::KERNEL).unwrap();
        in_use(y, 3287, "a part of a CMA area");
        area.free(y, first, 700).unwrap();
        y.free(Pfn(9000), o(2)).unwrap();
        y.free_contig(frames(8192..8704)).unwrap();
        y.free_contig(frames(5000..7000)).unwrap();
        slots.iter().flatten().for_each(|&p| y.free(p, o(0)).unwrap());
        (1..32).for_each(|i| y.free(Pfn(large.0 + i), o(0)).unwrap());
        in_use(y, 0, "nothing");
        // Cached pages are free after a drain; the counter follows at the tick.
        y.drain_all(None);
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!((info.free_exact, info.cached), (info.managed, 0));
        y.tick(CpuId(0));
        assert_eq!(y.zone_info(NORMAL).unwrap().free, info.managed);
    });
}

/// A migrated block is counted once, whether compaction or offlining moved it.
#[test]
fn blocks_that_move_count_once() {
    #[derive(Default)]
    struct Moves(RefCell<BTreeMap<Pfn, Order>>);
    impl Platform for Moves {}
    impl Reclaim for Moves {
        fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
            let mut blocks = self.0.borrow_mut();
            assert_eq!(blocks.remove(&from), Some(order));
            blocks.insert(to, order);
            Relocation::Moved
        }
    }
    impl Observer for Moves {}
    impl Defences for Moves {}
    const S: u64 = SECTION_PAGES;
    let moves = Moves::default();
    let machine = Machine::normal(2 * S);
    machine.run_on_under(any_hooks(&moves), LINUX612, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        for i in 0..2000 {
            let pfn = y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap();
            y.set_movable(pfn, o(0), true).unwrap();
            if i % 3 == 0 {
                moves.0.borrow_mut().insert(pfn, o(0));
            } else {
                y.free(pfn, o(0)).unwrap();
            }
        }
        let pages = moves.0.borrow().len() as u64;
        in_use(y, pages, "movable blocks");
        let before: Vec<Pfn> = moves.0.borrow().keys().copied().collect();
        y.drain_all(None);
        y.compact_all();
        assert!(before.iter().any(|p| !moves.0.borrow().contains_key(p)), "nothing moved");
        in_use(y, pages, "compacted blocks");
        y.offline(frames(S..2 * S)).unwrap();
        in_use(y, pages, "blocks that left a section");
        y.online(frames(S..2 * S)).unwrap();
        std::mem::take(&mut *moves.0.borrow_mut())
            .iter()
            .for_each(|(&p, &o)| y.free(p, o).unwrap());
        in_use(y, 0, "nothing");
    });
}

/// Released memory is managed and free.
#[test]
fn released_memory_is_not_in_use() {
    Machine::normal(4096).reserved(100..1000).run(|y: &Y<'_>| {
        let page = y.alloc(o(0), Gfp::KERNEL).unwrap();
        in_use(y, 1, "before");
        y.release(frames(100..1000)).unwrap();
        in_use(y, 1, "after");
        y.free(page, o(0)).unwrap();
        in_use(y, 0, "at the end");
    });
}
