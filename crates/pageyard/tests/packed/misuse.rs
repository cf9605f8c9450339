//! Calls that break the contract return errors and change nothing.

use std::ops::Range;

use pageyard::FreeError;
use pageyard::packed::{AddError, IsolateError, Needs, RegionError};

use crate::*;

fn pfns(range: Range<u64>) -> Range<Pfn> {
    Pfn(range.start)..Pfn(range.end)
}

#[test]
fn every_wrong_free_is_named_and_changes_nothing() {
    let storage = Storage::new(8192, 2, 2).unwrap();
    let region = storage.region(Pfn(1 << 20)).unwrap();
    let base = 1 << 20;
    region.add(pfns(base + 8..base + 8192)).unwrap();
    for order in 0..=10u8 {
        let pfn = region.alloc(cpu(0), o(order), MigrateType::Movable).unwrap();
        let before = region.validate().unwrap();
        let wrong = |pfn: Pfn, order: u8| region.free(cpu(1), pfn, o(order)).unwrap_err();
        let other = if order == 10 { 0 } else { order + 1 };
        assert_eq!(wrong(pfn, other), FreeError::WrongOrder { allocated: o(order) });
        if order > 0 {
            let allocated = o(order);
            for inside in [pfn.0 + 1, pfn.0 + u64::from(o(order).pages()) - 1] {
                let error = FreeError::NotHead { head: pfn, allocated };
                assert_eq!(wrong(Pfn(inside), 0), error);
            }
            assert_eq!(wrong(Pfn(pfn.0 + 1), order), FreeError::Misaligned);
        }
        assert_eq!(region.validate().unwrap(), before);
        region.free(cpu(1), pfn, o(order)).unwrap();
        let before = region.validate().unwrap();
        assert_eq!(wrong(pfn, order), FreeError::DoubleFree);
        assert_eq!(region.free_owned(cpu(0), pfn, o(order)), Err(FreeError::DoubleFree));
        assert_eq!(region.validate().unwrap(), before);
    }
    assert_eq!(region.free(cpu(0), Pfn(base + 3), o(0)), Err(FreeError::Reserved));
    for outside in [0, base - 1, base + 8192, u64::MAX, base + (1 << 32)] {
        assert_eq!(region.free(cpu(0), Pfn(outside), o(0)), Err(FreeError::Foreign));
        assert_eq!(region.isolate(Pfn(outside)), Err(IsolateError::Foreign));
        assert_eq!(region.block_type(Pfn(outside)), None);
    }
    let pfn = region.alloc(cpu(0), o(0), MigrateType::Movable).unwrap();
    assert_eq!(region.free(cpu(2), pfn, o(0)), Err(FreeError::UnknownCpu(cpu(2))));
    region.free(cpu(0), pfn, o(0)).unwrap();
}

#[test]
fn frames_are_added_once_and_inside_the_region() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add(pfns(100..1000)).unwrap();
    assert_eq!(region.add(pfns(0..101)), Err(AddError::Present(Pfn(100))));
    assert_eq!(region.add(pfns(4000..4097)), Err(AddError::Foreign(Pfn(4096))));
    assert_eq!(region.validate().unwrap().present, 900);
    region.add(pfns(0..100)).unwrap();
    region.add(pfns(1000..4096)).unwrap();
    region.add(pfns(7..7)).unwrap();
    assert_eq!(region.validate().unwrap().present, 4096);
    // The first two pageblocks were added in parts.
    assert_eq!(region.whole_blocks(), 8);
}

#[test]
fn storage_of_the_wrong_size_or_in_use_is_refused() {
    assert_eq!(Storage::new(0, 1, 1).unwrap_err(), RegionError::Frames);
    assert_eq!(Storage::new(1 << 31 | 1, 1, 1).unwrap_err(), RegionError::Frames);
    assert_eq!(Storage::new(512, 0, 1).unwrap_err(), RegionError::NoCpu);
    assert_eq!(Storage::new(512, 1, 0).unwrap_err(), RegionError::NoCpu);
    assert_eq!(Needs::of(Pfn(0), 512, u32::MAX, 1).unwrap_err(), RegionError::TooManyCpus);
    let storage = Storage::new(4096, 1, 1).unwrap();
    assert!(matches!(
        storage.region(Pfn(1023)).unwrap_err(),
        RegionError::Storage { part: "states", given: 4096, needed: 5120 }
    ));
    let region = storage.region(Pfn(0)).unwrap();
    assert_eq!(storage.region(Pfn(0)).unwrap_err(), RegionError::InUse);
    region.add(pfns(0..4096)).unwrap();
    assert_empty(&region, 4096);
}

#[test]
fn isolation_refuses_active_and_isolated_pageblocks() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = full(&storage, 4096);
    let pfn = region.alloc(cpu(0), o(0), MigrateType::Movable).unwrap();
    assert_eq!(region.isolate(pfn), Err(IsolateError::Busy), "a CPU refills from it");
    assert_eq!(region.unisolate(pfn), Err(IsolateError::NotIsolated));
    region.drain_all();
    region.isolate(pfn).unwrap();
    assert_eq!(region.isolate(pfn), Err(IsolateError::Isolated));
    region.free(cpu(0), pfn, o(0)).unwrap();
    region.unisolate(pfn).unwrap();
    let huge = region.alloc(cpu(0), o(9), MigrateType::Movable).unwrap();
    assert_eq!(region.isolate(huge), Err(IsolateError::Busy), "it is allocated as a whole");
    region.free(cpu(0), huge, o(9)).unwrap();
    assert_empty(&region, 4096);
}

#[test]
fn validate_needs_all_cpus() {
    let storage = Storage::new(4096, 2, 2).unwrap();
    let region = full(&storage, 4096);
    let pinned = region.pin(cpu(1)).unwrap();
    assert_eq!(region.validate().unwrap_err(), pageyard::packed::Broken::Busy);
    drop(pinned);
    region.validate().unwrap();
}
