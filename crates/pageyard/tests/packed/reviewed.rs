//! Regressions found by a review of the engine. Each of these tests failed before the fix.

use pageyard::packed::{Needs, RegionError};

use crate::*;

const M: MigrateType = MigrateType::Movable;
const U: MigrateType = MigrateType::Unmovable;

/// Storage in use is refused, whatever the CPU's magazines hold and however they were exchanged.
#[test]
fn storage_in_use_is_refused_later_too() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = full(&storage, 4096);
    let held: Vec<_> = (0..65).map(|_| region.alloc(cpu(0), o(0), U).unwrap()).collect();
    for pfn in held {
        region.free(cpu(0), pfn, o(0)).unwrap();
    }
    assert!(storage.region(Pfn(0)).is_err(), "two regions share one storage");
}

/// A refused call leaves the region that uses the storage as it is.
#[test]
fn a_refused_region_changes_nothing() {
    let storage = Storage::new(4096, 2, 2).unwrap();
    let region = full(&storage, 4096);
    let held: Vec<_> = (0..200).map(|_| region.alloc(cpu(0), o(0), U).unwrap()).collect();
    for &pfn in &held[..100] {
        region.free(cpu(0), pfn, o(0)).unwrap();
    }
    region.validate().unwrap();
    assert!(storage.region(Pfn(0)).is_err());
    region.validate().unwrap();
    for &pfn in &held[100..] {
        region.free(cpu(0), pfn, o(0)).unwrap();
    }
    assert_empty(&region, 4096);
}

#[test]
fn isolated_before_added_gives_nothing() {
    let storage = Storage::new(1024, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(0)).unwrap();
    region.add(Pfn(0)..Pfn(512)).unwrap();
    assert_eq!(region.alloc(cpu(0), o(0), M), None, "the only pageblock is isolated");
}

#[test]
fn isolated_before_added_is_whole_afterwards() {
    let storage = Storage::new(1024, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(0)).unwrap();
    region.add(Pfn(0)..Pfn(512)).unwrap();
    region.unisolate(Pfn(0)).unwrap();
    region.validate().unwrap();
}

#[test]
fn isolated_before_added_then_isolated_again() {
    let storage = Storage::new(1024, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(0)).unwrap();
    region.add(Pfn(0)..Pfn(512)).unwrap();
    region.unisolate(Pfn(0)).unwrap();
    region.isolate(Pfn(0)).unwrap();
    assert_eq!(region.alloc(cpu(0), o(9), M), None);
    region.validate().unwrap();
}

#[test]
fn regions_end_below_the_last_frame_number() {
    for (first, frames) in [(u64::MAX - 1023, 1024), (u64::MAX - 1023, 4096), (u64::MAX, 1)] {
        assert_eq!(Needs::of(Pfn(first), frames, 1, 1), Err(RegionError::Frames));
    }
    // The highest possible region.
    let storage = Storage::new(1024, 1, 1).unwrap();
    let region = storage.region(Pfn(u64::MAX - 2047)).unwrap();
    region.add(region.frames()).unwrap();
    let pfn = region.alloc(cpu(0), o(10), M).unwrap();
    assert_eq!(pfn, Pfn(u64::MAX - 2047));
    region.free(cpu(0), pfn, o(10)).unwrap();
    assert_eq!(region.free(cpu(0), Pfn(u64::MAX), o(0)), Err(pageyard::FreeError::Foreign));
}
/// Allocates everything as single pages; then frees all but those that `keep` names.
fn keep(region: &R<'_>, t: MigrateType, keep: impl Fn(u64) -> bool) -> Vec<Pfn> {
    let mut held = vec![];
    while let Some(pfn) = region.alloc(cpu(0), o(0), t) {
        held.push(pfn);
    }
    let (kept, mut freed): (Vec<_>, Vec<_>) = held.into_iter().partition(|pfn| keep(pfn.0));
    // Free one frame of each word in turn, so that labels are up to date.
    freed.sort_by_key(|pfn| (pfn.0 % 64, pfn.0));
    for pfn in freed {
        region.free(cpu(0), pfn, o(0)).unwrap();
    }
    region.drain_all();
    region.validate().unwrap();
    kept
}

/// Fragmented pageblocks must not hide a pageblock of the same bucket that can serve the request.
#[test]
fn a_free_block_is_found_behind_fragmented_pageblocks() {
    let mut failed = vec![];
    for order in 1..=8u8 {
        let storage = Storage::new(16 * 512, 1, 1).unwrap();
        let region = full(&storage, 16 * 512);
        // Frees every second frame, and the upper half of the last pageblock.
        _ = keep(&region, M, |f| if f / 512 == 15 { f % 512 < 256 } else { f % 2 == 0 });
        assert_eq!(region.free_in_block(Pfn(15 * 512)), Some(256));
        if region.alloc(cpu(0), o(order), M).is_none() {
            failed.push(order);
        }
    }
    assert_eq!(failed, [], "orders that failed");
}

/// A request that fails must not give pageblocks to its type.
#[test]
fn a_failed_request_relabels_nothing() {
    let storage = Storage::new(16 * 512, 1, 1).unwrap();
    let region = full(&storage, 16 * 512);
    _ = keep(&region, M, |f| f % 8 == 0);
    let types = || (0..16).map(|b| region.block_type(Pfn(b * 512)).unwrap()).collect::<Vec<_>>();
    let before = types();
    for _ in 0..20 {
        assert_eq!(region.alloc(cpu(0), o(3), U), None, "no run of eight is free");
    }
    assert_eq!(types(), before);
}

/// A request can use what its own CPU keeps for another type or order.
#[test]
fn a_request_gets_what_its_own_cpu_keeps() {
    let storage = Storage::new(2 * 512, 1, 1).unwrap();
    let mut failed = vec![];
    let region = full(&storage, 2 * 512);
    // One page, freed: all memory is free.
    let pfn = region.alloc(cpu(0), o(0), M).unwrap();
    region.free(cpu(0), pfn, o(0)).unwrap();
    match region.alloc(cpu(0), o(10), M) {
        None => failed.push("order 10 after a single page"),
        Some(pfn) => region.free(cpu(0), pfn, o(10)).unwrap(),
    }
    region.drain_all();
    let huge: Vec<_> = (0..2).map(|_| region.alloc(cpu(0), o(9), M).unwrap()).collect();
    for pfn in huge {
        region.free(cpu(0), pfn, o(9)).unwrap();
    }
    match region.alloc(cpu(0), o(0), M) {
        None => failed.push("order 0 after huge pages"),
        Some(pfn) => region.free(cpu(0), pfn, o(0)).unwrap(),
    }
    if region.alloc(cpu(0), o(9), U).is_none() {
        failed.push("an unmovable huge page after movable ones");
    }
    assert_eq!(failed, [""; 0]);
}

#[test]
fn a_pinned_cpu_that_is_given_up_drains_on_request() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = full(&storage, 4096);
    let mut pinned = region.pin(cpu(0)).unwrap();
    let page = pinned.alloc(o(0), M).unwrap();
    pinned.free(page, o(0)).unwrap();
    assert!(!region.drain(cpu(0)));
    drop(pinned);
    assert_eq!(region.whole_blocks(), 8);
}

#[test]
fn isolated_pageblocks_are_not_added_as_allocated() {
    let storage = Storage::new(2048, 1, 1).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(512)).unwrap();
    let error = pageyard::packed::AddError::Isolated(Pfn(0));
    assert_eq!(region.add_allocated(Pfn(0), o(10), M), Err(error));
    region.unisolate(Pfn(512)).unwrap();
    region.add_allocated(Pfn(0), o(10), M).unwrap();
    region.add_allocated(Pfn(1024), o(3), M).unwrap();
    region.split(Pfn(0), o(10), o(6)).unwrap();
    (0..16).for_each(|n| region.free(cpu(0), Pfn(n * 64), o(6)).unwrap());
    region.validate().unwrap();
    assert_eq!(region.whole_blocks(), 2);
}
