//! Spec §11.8: every free that is refused; a refusal changes nothing.

use crate::common;

use common::{Machine, Y, all_records, o};
use pageyard::FreeError::*;
use pageyard::{FreeError, Gfp, Order, Pfn, ZoneKind};

fn machine() -> Machine {
    Machine::new()
        .span(ZoneKind::Normal, 4096..16384)
        .usable(4096..12288)
        .usable(13312..16384)
        .reserved(8192..8200)
}

/// Asserts that every way to free refuses this block with this error and changes nothing.
fn refused(y: &Y<'_>, pfn: u64, order: u8, want: FreeError) {
    let (pfn, order) = (Pfn(pfn), o(order));
    let before = all_records(y);
    assert_eq!(y.free(pfn, order), Err(want));
    assert_eq!(y.free_direct(pfn, order), Err(want));
    assert_eq!(y.free_shared(pfn, order), Err(want));
    assert_eq!(y.set_movable(pfn, order, true), Err(want));
    assert_eq!(y.split(pfn, order, Order::ZERO), Err(want));
    let e = y.free_batch(&[(pfn, order)]).unwrap_err();
    assert_eq!((e.index, e.error), (0, want));
    assert_eq!(all_records(y), before, "{want}");
}

#[test]
fn s11_8_foreign_frames() {
    machine().run(|y: &Y<'_>| {
        for pfn in [0, 4095, 16384, 1 << 40, u64::MAX] {
            refused(y, pfn, 0, Foreign);
            refused(y, pfn, 10, Foreign);
        }
    });
}

#[test]
fn s11_8_reserved_frames_and_holes() {
    machine().run(|y: &Y<'_>| {
        for pfn in [8192, 8199, 12288, 13311] {
            refused(y, pfn, 0, Reserved);
        }
        refused(y, 12288, 10, Reserved);
    });
}

#[test]
fn s11_8_double_frees_whether_the_block_is_cached_free_or_merged() {
    machine().run(|y: &Y<'_>| {
        let a = y.alloc(o(0), Gfp::KERNEL).unwrap();
        let b = y.alloc(o(4), Gfp::KERNEL).unwrap();
        y.free(a, o(0)).unwrap();
        refused(y, a.0, 0, DoubleFree);
        y.free(b, o(4)).unwrap();
        refused(y, b.0, 4, DoubleFree);
        y.drain_all(None);
        refused(y, a.0, 0, DoubleFree);
        refused(y, 4096 + 5, 0, DoubleFree);
        refused(y, 4096 + 512, 9, DoubleFree);
    });
}

#[test]
fn s11_8_wrong_order_misaligned_and_inside_a_block() {
    machine().run(|y: &Y<'_>| {
        for order in [1u8, 3, 4, 9, 10] {
            let p = y.alloc(o(order), Gfp::KERNEL).unwrap();
            let allocated = o(order);
            refused(y, p.0, order - 1, WrongOrder { allocated });
            refused(y, p.0, 0, WrongOrder { allocated });
            for inside in [1, 1 << (order - 1), (1 << order) - 1] {
                refused(y, p.0 + inside, 0, NotHead { head: p, allocated });
            }
            refused(y, p.0 + 1, 1, Misaligned);
            y.free(p, o(order)).unwrap();
        }
    });
}

#[test]
fn s11_8_tails_of_free_and_cached_blocks_are_double_frees() {
    machine().run(|y: &Y<'_>| {
        let p = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.free(p, o(3)).unwrap();
        for i in 1..8 {
            refused(y, p.0 + i, 0, DoubleFree);
        }
    });
}

#[test]
fn s11_8_a_split_larger_than_the_block_is_rejected() {
    machine().run(|y: &Y<'_>| {
        let p = y.alloc(o(2), Gfp::KERNEL).unwrap();
        let before = all_records(y);
        assert_eq!(y.split(p, o(2), o(3)), Err(WrongOrder { allocated: o(2) }));
        assert_eq!(all_records(y), before);
        y.set_movable(p, o(2), true).unwrap();
        y.split(p, o(2), o(1)).unwrap();
        let v = common::view::normal(y);
        assert_eq!(v.allocated[&p.0], (1, true), "the owner can still move it");
        assert_eq!(v.allocated[&(p.0 + 2)], (1, true));
        refused(y, p.0, 2, WrongOrder { allocated: o(1) });
        y.free(p, o(1)).unwrap();
        y.free(Pfn(p.0 + 2), o(1)).unwrap();
    });
}

#[test]
fn free_errors_describe_the_fault() {
    let e = NotHead { head: Pfn(4096), allocated: o(3) };
    assert!(e.to_string().contains("0x1000") && e.to_string().contains('3'), "{e}");
    assert!(WrongOrder { allocated: o(9) }.to_string().contains('9'));
}
