//! Spec §8.1 and the rules for layouts: every refusal; a refusal writes nothing.

use crate::common;

use common::check::{Owned, check};
use common::{Lock, Machine, Maps, Stage, Y, frames};
use pageyard::policy::Linux612;
use pageyard::{Frame, InitError, Needs, NodeId, PerCpu, Pfn, Yard, ZoneKind, ZoneSpec};

/// Two zones, with a range of every kind for the tests to break.
fn good() -> Machine {
    Machine::new()
        .zone(ZoneKind::Dma32, 0..4096)
        .zone(ZoneKind::Normal, 4096..8192)
        .reserved(100..200)
}

fn refused(change: impl FnOnce(&mut Machine)) -> InitError {
    let mut m = good();
    change(&mut m);
    let e = m.refusal().expect("the layout is bad");
    assert!(!e.to_string().is_empty());
    e
}

#[test]
fn every_invalid_layout_is_rejected_with_its_reason() {
    use InitError::*;
    assert_eq!(good().refusal(), None);
    assert_eq!(refused(|m| m.zones.clear()), NoZones);
    assert_eq!(refused(|m| m.cpus.clear()), NoCpus);
    assert_eq!(refused(|m| m.zones[1].span = frames(5..5)), EmptyZone(1));
    assert_eq!(refused(|m| m.zones[0].span = Pfn(9)..Pfn(3)), EmptyZone(0));
    assert_eq!(refused(|m| m.zones[1].span = frames(4096..1 << 33)), ZoneTooLarge(1));
    assert_eq!(
        refused(|m| m.zones[1].span = frames((1 << 52) - 5..(1 << 52) + 1)),
        ZoneTooLarge(1)
    );
    assert_eq!(refused(|m| m.zones[1].span = frames(u64::MAX - 5..u64::MAX)), ZoneTooLarge(1));
    assert_eq!(refused(|m| m.zones[1].span = frames(4095..8192)), ZonesOverlap(0, 1));
    assert_eq!(refused(|m| m.zones[1].kind = ZoneKind::Dma32), SameKind(0, 1));
    assert_eq!(refused(|m| m.zones[1].node = NodeId(64)), TooManyNodes(NodeId(64)));
    assert_eq!(refused(|m| m.cpus[0] = NodeId(99)), TooManyNodes(NodeId(99)));
    assert_eq!(refused(|m| m.distances = vec![10, 20]), DistanceCount(2));
    assert_eq!(refused(|m| m.distances = vec![11]), BadDistance(NodeId(0), NodeId(0)));
    let near = vec![10, 20, 10, 10];
    assert_eq!(refused(|m| m.distances = near.clone()), BadDistance(NodeId(1), NodeId(0)));
    assert_eq!(refused(|m| m.usable[1] = frames(4096..4096)), EmptyRange(1));
    assert_eq!(refused(|m| m.usable[1] = frames(0..1)), RangesOverlap(0, 1));
    assert_eq!(refused(|m| m.usable[1] = frames(4096..8193)), OutsideZones(1));
    assert_eq!(refused(|m| m.usable.push(frames(u64::MAX - 1..u64::MAX))), OutsideZones(2));
    assert_eq!(refused(|m| m.reserved.push(Pfn(9)..Pfn(3))), BadReserved(1));
    let knob = refused(|m| m.knobs.watermark_scale_factor = 0);
    assert!(matches!(knob, Knob(e) if e.to_string().contains("watermark_scale_factor")), "{knob}");
    let knob = refused(|m| m.knobs.percpu_pagelist_high_fraction = 7);
    assert!(matches!(knob, Knob(e) if e.to_string().contains('7')), "{knob}");
}

#[test]
fn too_small_storage_is_rejected_and_unchanged() {
    let m = good();
    let layout = m.layout();
    let needs = layout.needs::<Lock>().unwrap();
    let shorter: [fn(&mut Needs); 6] = [
        |n| n.frames -= 1,
        |n| n.blocks -= 1,
        |n| n.zones -= 1,
        |n| n.slots -= 1,
        |n| n.nodes -= 1,
        |n| n.cpu_zones -= 1,
    ];
    for (i, shorten) in shorter.into_iter().enumerate() {
        let mut short = needs;
        shorten(&mut short);
        let maps = Maps::new(&short);
        // The maps' fields are private, but they can be printed.
        let before = format!("{maps:?}");
        maps.lend(&short, |storage| {
            let answer: Result<Y<'_, Linux612>, _> = Yard::new(&layout, storage, Stage::default());
            let Err(InitError::TooSmall { needed, given, .. }) = answer else { panic!("{i}") };
            assert_eq!(needed, given + 1);
        });
        assert_eq!(format!("{maps:?}"), before);
    }
}

/// Asserts that a fresh yard of this layout is valid and manages exactly `pages` pages.
fn manages(m: &Machine, pages: u64) {
    assert_eq!(m.refusal(), None);
    m.run(|y: &Y<'_>| {
        check(y, m, &Owned::new());
        let info: Vec<_> = y.zone_ids().map(|k| y.zone_info(k).unwrap()).collect();
        assert_eq!(info.iter().map(|i| i.managed).sum::<u64>(), pages);
        assert_eq!(info.iter().map(|i| i.free).sum::<u64>(), pages, "no CPU's part is pending");
    });
}

#[test]
fn layouts_come_in_any_order_with_ranges_of_any_kind() {
    let m = Machine::new()
        .span(ZoneKind::Normal, 5000..20_000)
        .span(ZoneKind::Dma, 0..3000)
        // Ranges need not be ascending; one range covers only the end of DMA.
        .usable(15_000..20_000)
        .usable(2990..3000)
        .usable(5000..9000);
    manages(&m, 9010);
    // Reserved: inside, across the ends, twice the same, touching, empty, in no zone, in a hole.
    let m = m
        .reserved(5100..5200)
        .reserved(5150..5250)
        .reserved(8990..15_010)
        .reserved(0..2995)
        .reserved(5250..5260)
        .reserved(6000..6000)
        .reserved(1 << 60..u64::MAX)
        .reserved(9500..9600)
        .reserved(5100..5200);
    manages(&m, 9010 - 160 - 20 - 5);
}

#[test]
fn one_usable_range_may_cross_from_zone_to_zone() {
    let m = Machine::new()
        .span(ZoneKind::Normal, 3001..9000)
        .span(ZoneKind::Dma, 7..3001)
        .usable(7..9000);
    manages(&m, 8993);
}

#[test]
fn zones_of_one_frame_and_zones_without_memory() {
    for at in [0, 1, 1023, 1024, (1 << 52) - 1] {
        manages(&Machine::new().zone(ZoneKind::Normal, at..at + 1), 1);
    }
    manages(&Machine::new().span(ZoneKind::Normal, 0..4096), 0);
    manages(&Machine::normal(4096).reserved(0..4096), 0);
}

#[test]
fn s1_2_present_counts_memory_and_managed_excludes_reserved() {
    let m = Machine::new()
        .span(ZoneKind::Normal, 1000..9000)
        .usable(1000..2000)
        .usable(3000..9000)
        .reserved(1990..3010);
    m.run(|y: &Y<'_>| {
        let i = y.zone_info(ZoneKind::Normal).unwrap();
        assert_eq!((i.start, i.spanned, i.present, i.managed), (Pfn(1000), 8000, 7000, 6980));
        // Pageblocks 1 (from 1000) to 17: all but 4, which is a hole, have memory.
        assert_eq!(y.pageblocks(ZoneKind::Normal).unwrap()[1], 16);
    });
}

#[test]
fn needs_count_every_map_and_larger_storage_works() {
    let n = good().cpus(&[0, 0, 1]).layout().needs::<Lock>().unwrap();
    assert_eq!((n.frames, n.blocks, n.zones, n.slots), (8192, 16, 2, 6));
    assert!(n.bytes >= 8192 * size_of::<Frame>() + 16 + 6 * size_of::<PerCpu<Lock>>());
    // A zone's map begins at a multiple of the largest block.
    let odd = Machine::new().zone(ZoneKind::Normal, 1500..3000).layout().needs::<Lock>().unwrap();
    assert_eq!((odd.frames, odd.blocks), (3000 - 1024, 4));
    let spec = ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: frames(0..1) };
    assert_eq!(spec.clone(), spec);
}
