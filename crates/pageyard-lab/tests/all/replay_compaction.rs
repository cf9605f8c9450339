//! Replays of small traces in which the kernel's compaction moved pages (spec §7.4).

use pageyard_lab::replay::{MigrationSource, Report};

use crate::replay_trace::Trace;

/// A frame whose pageblock is otherwise unused, and another one.
const FROM: u64 = 0x2000;
const TO: u64 = 0x3800;

const BEGIN: &str = "mm_compaction_begin: zone_start=0x0 migrate_pfn=0x0 free_pfn=0x3e00 zone_end=0x4000, mode=sync";
const END: &str = "mm_compaction_end: zone_start=0x0 migrate_pfn=0x200 free_pfn=0x3e00 zone_end=0x4000, mode=sync \
                   status=success";

/// `pages` movable pages at [`FROM`].
fn pages(pages: u64) -> Trace {
    (0..pages).fold(Trace::new(), |t, i| t.alloc(FROM + i, 0, 1))
}

fn freed(t: Trace, from: u64, pages: u64) -> Trace {
    (0..pages).fold(t, |t, i| t.free(from + i, 0))
}

fn unmatched(r: &Report) -> (u64, u64, u64) {
    let m = r.policies[0].figures.matching.unwrap();
    (r.understanding.migrated, m.unmatched, m.replaced)
}

#[test]
fn s7_4_moved_pages_stay_in_use() {
    // Freed between begin and end: moved. Where to is seen when they are freed again.
    let moved = freed(drained().then(BEGIN), FROM, 4).then(END);
    let r = freed(moved, TO, 4).replay("Linux612");
    assert_eq!(unmatched(&r), (4, 0, 0));
    assert_eq!(r.understanding.migrations, MigrationSource::Recorded);
    assert_eq!(r.policies[0].figures.free_blocks, 12);
    assert!(
        r.to_string().contains("moved    4 blocks by compaction: recorded by tracepoints\n"),
        "{r}"
    );
    // A page may be moved again.
    let twice = freed(freed(drained().then(BEGIN), FROM, 4), TO, 4).then(END);
    let r = freed(twice, TO + 8, 4).replay("Linux612");
    assert_eq!(unmatched(&r), (8, 0, 0));
    // Other policies and the packed engine move them too.
    for policy in ["Base", "OwnedBlocks", "Packed"] {
        let moved = freed(drained().then(BEGIN), FROM, 4).then(END);
        let r = freed(moved, TO, 4).replay(policy);
        assert_eq!((unmatched(&r), r.policies[0].figures.free_blocks), ((4, 0, 0), 12), "{policy}");
    }
    // Without compaction, the same frees are of pages from before the trace.
    let r = freed(freed(pages(4), FROM, 4), TO, 4).replay("Linux612");
    assert_eq!((unmatched(&r), r.understanding.live_before), ((0, 0, 0), 4));
    assert!(!r.to_string().contains("by compaction"), "{r}");
}

/// Pages that were freed to the zone, and are freed again although none was allocated.
fn arrivals(t: Trace) -> Trace {
    (0..4).fold(t, |t, i| t.free(TO + i, 0))
}

fn drained() -> Trace {
    let t = (0..4).fold(pages(4), |t, i| t.alloc(TO + i, 0, 1));
    (0..4).fold(t, |t, i| t.free(TO + i, 0).batched(TO + i).drain(TO + i, 0, 1))
}

#[test]
fn moved_pages_are_inferred_where_pages_arrive_at_free_frames() {
    let r = arrivals(freed(drained(), FROM, 4)).replay("Linux612");
    assert_eq!(r.understanding.migrations, MigrationSource::Inferred);
    // The pages that arrive are freed singly as well, and may have been moved again.
    assert_eq!((r.understanding.migrated, unmatched(&r).1), (8, 0));
    assert!(r.to_string().contains("inferred from single frees"), "{r}");
    // Frees in batches are none of compaction's.
    let batches = (0..4).fold(drained(), |t, i| t.free(FROM + i, 0));
    let batches = (0..4).fold(batches, |t, i| t.batched(FROM + i));
    let r = batches.free(TO, 0).replay("Linux612");
    assert_eq!(r.understanding.migrations, MigrationSource::Inferred);
    assert_eq!(r.understanding.migrated, 0);
    // Nor are single frees where no page arrives.
    let r = freed(drained(), FROM, 4).replay("Linux612");
    assert_eq!((r.understanding.migrations, r.understanding.migrated), (MigrationSource::None, 0));
}

#[test]
fn a_request_that_the_kernel_served_is_served_after_compaction() {
    let r = holes_and_request().replay("Linux612");
    let ours = r.policies[0].figures;
    let m = ours.matching.unwrap();
    assert_eq!((ours.failed, m.waited, m.compacted), (0, 0, 1));
    assert!(m.moved >= 256, "{m:?}");
    assert!(
        r.to_string().contains("1 requests found no block and were served after a compaction"),
        "{r}"
    );
    // What was moved is freed where it is now.
    let r =
        (0x1900..0x2000).fold(holes_and_request(), |t, i| t.free(i * 2 + 1, 0)).replay("Linux612");
    assert_eq!(unmatched(&r).1, 0);
}

#[test]
fn s7_7_a_block_that_compaction_made_for_a_request_passes_by_the_lists() {
    let huge = |t: Trace, pfn: u64| t.locked(pfn, 9, 1).locked(pfn + 512, 9, 1).alloc(pfn, 9, 1);
    // The list of huge pages has been refilled and is empty: its contents are known.
    let known = || huge(Trace::new(), FROM).alloc(FROM + 512, 9, 1).then(BEGIN).then(END);
    let r = known().alloc(TO, 9, 1).replay("Linux612");
    assert_eq!((r.understanding.captured, r.understanding.unexplained_allocs), (1, 0));
    let ours = r.policies[0].figures;
    assert_eq!((r.recorded.moved.refill_pages, ours.moved.refill_pages), (1024, 1024));
    assert_eq!((r.recorded.zone_pages, ours.zone_pages), (1024, 1024));
    assert_eq!((ours.alloc_blocks, ours.failed), (3, 0));
}

#[test]
fn a_huge_page_that_the_kernel_refused_moves_none_to_a_list() {
    let refused = "mm_page_alloc: page=(nil) pfn=0x0 order=9 migratetype=1 gfp_flags=0x3d24ca";
    let r = (0..3).fold(Trace::new(), |t, _| t.then(refused)).alloc(FROM, 10, 1).replay("Linux612");
    let ours = r.policies[0].figures;
    assert_eq!((r.recorded.failed, ours.failed, ours.moved.refill_pages), (3, 0, 0));
    // Where memory is full, it is refused here as well.
    let full = (0..16).fold(Trace::new(), |t, i| t.alloc(i * 1024, 10, 1));
    let r = full.then(refused).replay("Linux612");
    assert_eq!((r.recorded.failed, r.policies[0].figures.failed), (1, 1));
}

/// All memory is in use, a quarter of it in single pages. Every second of these is freed, so there is no free
/// pageblock. Then one is requested, which the kernel made at 0x3000.
fn holes_and_request() -> Trace {
    let all = (0..12).fold(Trace::new(), |t, i| t.alloc(i * 1024, 10, 1));
    let singles = (0x3000..0x4000).fold(all, |t, pfn| t.alloc(pfn, 0, 1));
    let holes = (0x1800..0x2000).fold(singles, |t, i| t.free(i * 2, 0).batched(i * 2));
    holes.alloc(0x3000, 9, 1)
}

#[test]
fn s5_6_a_single_page_for_a_request_bypassed_a_locked_list() {
    let r = Trace::new().locked(FROM, 0, 1).alloc(FROM, 0, 1).replay("Linux612");
    assert_eq!((r.understanding.bypassing_allocs, r.recorded.moved.refill_holds), (1, 0));
    assert_eq!(r.recorded.zone_pages, 1);
    // Two pages are a refill.
    let two = Trace::new().locked(FROM, 0, 1).locked(FROM + 1, 0, 1).alloc(FROM, 0, 1);
    let r = two.replay("Linux612");
    assert_eq!((r.understanding.bypassing_allocs, r.recorded.moved.refill_holds), (0, 1));
    // The zone may have no second huge page.
    let r = Trace::new().locked(FROM, 9, 1).alloc(FROM, 9, 1).replay("Linux612");
    assert_eq!((r.understanding.bypassing_allocs, r.recorded.moved.refill_holds), (0, 1));
}
