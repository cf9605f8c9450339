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
fn a_part_of_a_pageblock_is_no_whole_one() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add(pfns(100..412)).unwrap();
    region.add(pfns(1024..1535)).unwrap();
    assert_eq!((region.whole_blocks(), region.free_frames()), (0, 312 + 511));
    assert_eq!(region.free_in_block(Pfn(0)), Some(312));
    region.validate().unwrap();
}

#[test]
fn memory_added_as_allocated_is_in_use() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add_allocated(Pfn(1024), o(10), MigrateType::Movable).unwrap();
    for (frame, isolated) in [
        (0, Ok(())),
        (512, Ok(())),
        (1024, Err(IsolateError::Busy)),
        (1536, Err(IsolateError::Busy)),
        (2048, Ok(())),
    ] {
        assert_eq!(region.isolate(Pfn(frame)), isolated, "{frame}");
    }
    region.unisolate(Pfn(0)).unwrap();
    region.unisolate(Pfn(512)).unwrap();
    region.unisolate(Pfn(2048)).unwrap();
    // A type that magazines do not keep becomes reclaimable: the CPU serves the page itself.
    for t in [MigrateType::Reclaimable, MigrateType::HighAtomic, MigrateType::Cma] {
        let pfn = Pfn(3000 + t as u64);
        region.add_allocated(pfn, o(0), t).unwrap();
        region.free(cpu(0), pfn, o(0)).unwrap();
        assert_eq!(region.alloc(cpu(0), o(0), MigrateType::Reclaimable), Some(pfn));
    }
    let counts = region.counts(cpu(0)).unwrap();
    assert_eq!((counts.refills, counts.taken, counts.returned), (0, 0, 0));
    assert_eq!(region.validate().unwrap().allocated, 1024 + 3);
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
fn each_error_says_what_is_wrong() {
    let texts: [(&dyn std::fmt::Display, &str); 15] = [
        (&AddError::Foreign(Pfn(7)), "frame 0x7 lies outside the region"),
        (&AddError::Present(Pfn(7)), "frame 0x7 was added before"),
        (&AddError::Misaligned(Pfn(7)), "the block at 0x7 is not aligned to its size"),
        (&AddError::Isolated(Pfn(8)), "a pageblock of the block at 0x8 is isolated"),
        (&IsolateError::Foreign, "the frame lies outside the region"),
        (&IsolateError::Isolated, "the pageblock is isolated already"),
        (&IsolateError::NotIsolated, "the pageblock is not isolated"),
        (
            &IsolateError::Busy,
            "a CPU refills from the pageblock, or it is one allocated block: drain the CPUs, or free it",
        ),
        (&RegionError::Frames, "a region has 1 to 2^31 frames, none of them beyond 2^64"),
        (&RegionError::NoCpu, "a region needs at least one CPU per cache domain"),
        (&RegionError::TooManyCpus, "the region has too many CPUs"),
        (
            &RegionError::Storage { part: "states", given: 1, needed: 2 },
            "storage has 1 elements for states; the region needs 2",
        ),
        (&RegionError::InUse, "the storage serves another region"),
        (
            &RegionError::NoMemory { what: "frame states", bytes: 5 },
            "frame states: the heap has no room for 5 bytes",
        ),
        (&pageyard::packed::Broken::Busy, "a CPU's lock is held: release it before the check"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_region_is_shown_with_its_frames_and_cpus() {
    let storage = Storage::new(4096, 3, 1).unwrap();
    let shown = format!("{:?}", storage.region(Pfn(2048)).unwrap());
    assert_eq!(shown, "Region { base: 2048, frames: 0..4096, cpus: 3, .. }");
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
