//! Spec §2.3, §2.5, §3.5: which zone serves a request, and what lower zones reserve.

use crate::common;

use common::{Machine, Y, o};
use pageyard::{AllocError, FreeError, Gfp, MigrateType, Pfn, ZoneKind};

/// Four zones in one node, a few MiB each, marks close to 0.
fn four_zones() -> Machine {
    Machine::new()
        .zone(ZoneKind::Movable, 24576..32768)
        .zone(ZoneKind::Dma, 0..4096)
        .zone(ZoneKind::Normal, 16384..24576)
        .zone(ZoneKind::Dma32, 4096..16384)
}

fn serving(y: &Y<'_>, gfp: Gfp) -> Option<ZoneKind> {
    Some(y.zone_of(y.alloc(o(5), gfp).ok()?)?.kind)
}

#[test]
fn s2_5_zones_are_tried_from_the_highest_kind_down() {
    four_zones().run(|y: &Y<'_>| {
        use ZoneKind::*;
        assert!(y.zone_ids().map(|z| z.kind).eq([Movable, Normal, Dma32, Dma]));
    });
}

#[test]
fn s2_3_flags_select_the_highest_zone() {
    four_zones().run(|y: &Y<'_>| {
        assert_eq!(serving(y, Gfp::KERNEL), Some(ZoneKind::Normal));
        assert_eq!(serving(y, Gfp::HIGHUSER), Some(ZoneKind::Normal), "HIGHMEM alone: NORMAL");
        assert_eq!(serving(y, Gfp::KERNEL | Gfp::MOVABLE), Some(ZoneKind::Normal));
        assert_eq!(serving(y, Gfp::HIGHUSER_MOVABLE), Some(ZoneKind::Movable));
        assert_eq!(serving(y, Gfp::KERNEL | Gfp::DMA32), Some(ZoneKind::Dma32));
        assert_eq!(serving(y, Gfp::KERNEL | Gfp::DMA), Some(ZoneKind::Dma));
        assert_eq!(serving(y, Gfp::KERNEL | Gfp::DMA | Gfp::MOVABLE), Some(ZoneKind::Dma));
    });
}

#[test]
fn s2_3_s2_4_invalid_flags_are_rejected() {
    four_zones().run(|y: &Y<'_>| {
        for bits in [3, 5, 6, 7, 0xb, 0xd, 0xe, 0xf] {
            let gfp = Gfp::KERNEL | Gfp::from_bits_retain(bits);
            assert_eq!(y.alloc(o(0), gfp), Err(AllocError::BadZone), "{bits:#x}");
            assert_eq!(y.alloc_bulk(gfp, &mut [None; 4]), Err(AllocError::BadZone));
        }
        let both = Gfp::KERNEL | Gfp::MOVABLE | Gfp::RECLAIMABLE;
        assert_eq!(y.alloc(o(0), both), Err(AllocError::BadType));
        assert_eq!(y.alloc_bulk_each(4, both, |_| ()), Err(AllocError::BadType));
    });
}

#[test]
fn s2_8_a_movable_request_falls_through_all_zones_and_a_dma_request_through_none() {
    let m = four_zones().knobs(|k| k.lowmem_reserve_ratio = [0; 5]);
    m.run(|y: &Y<'_>| {
        let mut order_of_zones = Vec::new();
        while let Some(z) = serving(y, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) {
            if order_of_zones.last() != Some(&z) {
                order_of_zones.push(z);
            }
        }
        use ZoneKind::*;
        // Every zone down to its LOW mark first, then every zone down to MIN.
        assert_eq!(order_of_zones, [[Movable, Normal, Dma32, Dma]; 2].concat());
    });
    four_zones().run(|y: &Y<'_>| {
        while serving(y, Gfp::KERNEL | Gfp::DMA).is_some() {}
        let info = y.zone_info(ZoneKind::Dma32).unwrap();
        assert_eq!(info.free_exact, info.managed, "nothing above DMA was touched");
    });
}

#[test]
fn s3_5_a_lower_zone_keeps_its_reserve_from_requests_for_higher_ones() {
    // DMA32 keeps 8192/8 pages from NORMAL requests, and none from its own.
    let m = Machine::new()
        .zone(ZoneKind::Dma32, 0..8192)
        .zone(ZoneKind::Normal, 8192..16384)
        .knobs(|k| k.lowmem_reserve_ratio = [8; 5]);
    m.run(|y: &Y<'_>| {
        let reserve = y.zone_info(ZoneKind::Dma32).unwrap().lowmem_reserve;
        assert_eq!(reserve, [0, 0, 1024, 1024, 1024]);
        while serving(y, Gfp::KERNEL).is_some() {}
        let dma32 = y.zone_info(ZoneKind::Dma32).unwrap();
        let left = dma32.free_exact;
        let mark = dma32.watermarks[0] + 1024;
        assert!((mark..=mark + 31).contains(&left), "{left} left, mark {mark}");
        let mut own = 0;
        while serving(y, Gfp::KERNEL | Gfp::DMA32).is_some() {
            own += 1;
        }
        assert_eq!(own, 1024 / 32, "its own requests find all of the reserve");
    });
}

#[test]
fn s1_2_device_memory_serves_no_request() {
    let m = Machine::new().zone(ZoneKind::Device, 0..8192).zone(ZoneKind::Normal, 8192..16384);
    m.run(|y: &Y<'_>| {
        for gfp in [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC | Gfp::MEMALLOC] {
            while let Ok(pfn) = y.alloc(o(5), gfp) {
                assert_eq!(y.zone_of(pfn), Some(ZoneKind::Normal.into()));
            }
        }
        assert_eq!(y.zone_info(ZoneKind::Device).unwrap().free_exact, 8192);
    });
}

#[test]
fn s2_5_a_kind_without_a_zone_has_no_memory() {
    Machine::new().zone(ZoneKind::Movable, 0..8192).run(|y: &Y<'_>| {
        assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut [None; 4]), Ok(0));
        assert!(y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).is_ok());
        assert_eq!(y.zone_info(ZoneKind::Normal), None);
        assert!(!y.snapshot(ZoneKind::Normal, |_| panic!("no zone, no record")));
    });
}

#[test]
fn s2_1_order_10_is_the_largest_block() {
    Machine::normal(65536).run(|y: &Y<'_>| {
        let pfn = y.alloc(o(10), Gfp::KERNEL).unwrap();
        assert_eq!(pfn.0 % 1024, 0);
        assert_eq!(y.block_type(pfn), Some(MigrateType::Unmovable), "claimed whole");
        y.free(pfn, o(10)).unwrap();
        let s = y.cpu_stats(ZoneKind::Normal, pageyard::CpuId(0)).unwrap();
        assert_eq!((s.direct_allocs, s.direct_frees), (1, 1), "no per-CPU list keeps order 10");
    });
}

#[test]
fn s11_8_an_unknown_cpu_is_an_error_and_changes_nothing() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        y.hooks().on(1);
        let before = common::all_records(y);
        let cpu = pageyard::CpuId(1);
        assert_eq!(y.alloc(o(0), Gfp::KERNEL), Err(AllocError::UnknownCpu(cpu)));
        assert_eq!(y.alloc_bulk(Gfp::KERNEL, &mut [None]), Err(AllocError::UnknownCpu(cpu)));
        assert_eq!(y.free(pfn, o(0)), Err(FreeError::UnknownCpu(cpu)));
        assert_eq!(y.free_shared(pfn, o(0)), Err(FreeError::UnknownCpu(cpu)));
        let batch = y.free_batch(&[(pfn, o(0))]).unwrap_err();
        assert_eq!((batch.index, batch.error), (0, FreeError::UnknownCpu(cpu)));
        assert!(!y.tick(cpu));
        y.drain_all(None);
        assert_eq!(common::all_records(y), before);
        y.hooks().on(0);
        y.free_batch(&[(Pfn(pfn.0), o(0))]).unwrap();
    });
}
