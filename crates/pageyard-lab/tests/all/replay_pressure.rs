//! Replays of small traces under memory pressure: reclaim that was at work, and requests that waited or failed.

use pageyard_lab::replay::ReclaimSource;

use crate::replay_trace::{F, Trace, drain, frees};

/// A request that failed.
const REFUSED: &str = "mm_page_alloc: page=(nil) pfn=0x0 order=10 migratetype=1 gfp_flags=0x820";

#[test]
fn each_end_of_reclaim_may_be_followed_by_a_drain_of_all_lists() {
    // Two requests of one task, 10 us apart: both drain CPU 0's list.
    let end = "mm_vmscan_direct_reclaim_end: nr_reclaimed=0";
    let one = |t: Trace, us: u64, pfn: u64| {
        let t = t.line(0, "a-1", us, &format!("mm_page_free: page=0x1 pfn={pfn:#x} order=0"));
        t.line(1, "b-2", us + 1, end).line(1, "b-2", us + 2, &drain(pfn, 0, 1))
    };
    let r = one(one(Trace::new(), 10_000_000, F), 10_000_010, F + 1).replay("Linux612");
    assert_eq!(r.understanding.requested_drains, 2);
    assert_eq!(r.policies[0].figures.moved, r.recorded.moved);
    assert_eq!(r.recorded.moved.drain_pages, 2);
    // Where such ends are recorded, a drain without one is no drain of all lists, but a page that
    // the mirror has on the wrong list.
    let t = Trace::new().line(1, "b-2", 9_000_000, end).free(F, 0).free(F + 1, 0);
    let other = "mm_page_free: page=0x1 pfn=0x2100 order=0";
    let t = t.line(1, "b-2", 10_000_010, other).line(1, "b-2", 10_000_011, &drain(F, 0, 1));
    let r = t.replay("Linux612");
    assert_eq!((r.understanding.requested_drains, r.policies[0].figures.moved.drain_pages), (0, 0));
}

/// The 21 frees, after some lines.
fn frees_after(lines: &[(u64, &str)]) -> Trace {
    let start = lines
        .iter()
        .fold(Trace::new(), |t, (ms, event)| t.line(1, "kswapd0-50", 9_000_000 + ms * 1000, event));
    (0..21).fold(start, |t, i| {
        let free = format!("mm_page_free: page=0x1 pfn={:#x} order=0", F + i);
        t.line(0, "a-1", 10_000_000 + i, &free)
    })
}

#[test]
fn s5_10_lists_shrink_while_recorded_kswapd_is_active() {
    // RECLAIM_ACTIVE: high stays at 12, so that 9 pages go at the 12th free and at the 21st.
    let r = frees_after(&[(0, "mm_vmscan_kswapd_wake: nid=0 order=0")]).replay("Linux612");
    let moved = r.policies[0].figures.moved;
    assert_eq!((moved.drain_pages, moved.drain_holds), (18, 2));
    assert_eq!((r.reclaim.source, r.reclaim.runs), (ReclaimSource::Recorded, 1));
    assert_eq!(r.reading.ignored, 0);
    assert!(r.to_string().contains("kswapd active 1 times, "), "{r}");
    assert!(r.to_string().contains(": recorded by tracepoints\n"), "{r}");
    // It sleeps before the frees.
    let slept = [
        (0, "mm_vmscan_kswapd_wake: nid=0 order=0"),
        (500, "mm_vmscan_direct_reclaim_begin: order=0 gfp_flags=0xcc0"),
        (900, "mm_vmscan_kswapd_sleep: nid=0"),
    ];
    let r = frees_after(&slept).replay("Linux612");
    let moved = r.policies[0].figures.moved;
    assert_eq!((moved.drain_pages, moved.drain_holds), (9, 1));
    assert_eq!((r.reclaim.runs, r.reclaim.active_ms, r.reclaim.direct), (1, 800, 1));
    // Reclaim on another node does not affect these zones.
    let r = frees_after(&[(0, "mm_vmscan_kswapd_wake: nid=3 order=0")]).replay("Linux612");
    assert_eq!(r.policies[0].figures.moved.drain_holds, 1);
}

#[test]
fn active_kswapd_is_inferred_from_its_page_events() {
    let page = |pfn: u64| format!("mm_page_free: page=0x1 pfn={pfn:#x} order=0");
    let (before, after) = (page(F + 0x100), page(F + 0x101));
    let active = frees_after(&[(990, &before)]).line(1, "kswapd0-50", 10_000_030, &after);
    let r = active.replay("Linux612");
    let moved = r.policies[0].figures.moved;
    assert_eq!((moved.drain_pages, moved.drain_holds), (18, 2));
    assert_eq!((r.reclaim.source, r.reclaim.runs), (ReclaimSource::Inferred, 1));
    assert!(r.to_string().contains(": inferred from its page events\n"), "{r}");
    // kswapd napped meanwhile: its pages are more than a tenth of a second apart.
    let napped = frees_after(&[(800, &before)]).line(1, "kswapd0-50", 10_000_030, &after);
    let r = napped.replay("Linux612");
    assert_eq!((r.policies[0].figures.moved.drain_holds, r.reclaim.runs), (1, 2));
    let none = frees().replay("Linux612");
    assert_eq!(none.reclaim.source, ReclaimSource::None);
    assert!(none.to_string().contains("reclaim  none: no events of kswapd\n"), "{none}");
}

/// All 16 blocks of the largest order are in use, by requests that may reclaim.
fn full() -> Trace {
    (0..16).fold(Trace::new(), |t, i| {
        let gfp = if i < 4 { 0xcc1 } else { 0xcc0 };
        t.then(&format!(
            "mm_page_alloc: page=0x1 pfn={:#x} order=10 migratetype=1 gfp_flags={gfp:#x}",
            i * 1024
        ))
    })
}

#[test]
fn recorded_failed_requests_are_repeated() {
    let r = full().then(REFUSED).replay("Linux612");
    assert_eq!((r.recorded.failed, r.policies[0].figures.failed), (1, 1));
    assert!(!r.to_string().contains("warning:"), "{r}");
    // If the request is served, its block is freed at once.
    let again = (0..20).fold(Trace::new(), |t, _| t.then(REFUSED)).alloc(F, 10, 1);
    let r = again.replay("Linux612");
    let ours = r.policies[0].figures;
    assert_eq!((r.recorded.failed, ours.failed, ours.alloc_blocks), (20, 0, 1));
}

#[test]
fn requests_that_may_reclaim_are_served_below_the_watermarks() {
    let r = full().replay("Linux612");
    let ours = r.policies[0].figures;
    assert_eq!((ours.failed, ours.alloc_blocks), (0, 16));
    let below = ours.matching.unwrap().below_marks;
    assert!((1..16).contains(&below), "{below}");
    let says =
        format!("up to {below} requests took a block from below the MIN watermark, 0 waited");
    assert!(r.to_string().contains(&says), "{r}");
}

/// `GFP_NOWAIT`: the kernel had more pages free than MIN. Here they may be some percent fewer.
#[test]
fn requests_that_cannot_wait_are_served_from_half_of_the_watermark() {
    // All of the first zone, and of the second one, in blocks that no list keeps.
    let first = (0..4).fold(Trace::new(), |t, i| {
        let pfn = i * 1024;
        t.then(&format!(
            "mm_page_alloc: page=0x1 pfn={pfn:#x} order=10 migratetype=1 gfp_flags=0xcc1"
        ))
    });
    let all = (0..0x300).fold(first, |t, i| {
        let pfn = 0x1000 + i * 16;
        t.then(&format!(
            "mm_page_alloc: page=0x1 pfn={pfn:#x} order=4 migratetype=1 gfp_flags=0x804"
        ))
    });
    let r = all.replay("Linux612");
    let (ours, min) = (r.policies[0].figures, r.machine.zones[1].watermarks[0]);
    assert_eq!(ours.alloc_blocks + ours.failed, 4 + 0x300);
    let left = ours.failed * 16;
    assert!(left > min / 2 && left <= min / 2 + 32, "{left} left, MIN {min}");
}

#[test]
fn requests_without_a_block_are_served_after_later_frees_or_counted() {
    // The trace never freed the old block; it is freed when its frame is allocated again.
    let r = full().alloc(0x1000, 10, 1).free(0x1000, 10).replay("Linux612");
    let ours = r.policies[0].figures;
    let m = ours.matching.unwrap();
    assert_eq!((ours.failed, m.replaced, m.waited), (0, 1, 1));
    assert_eq!((ours.alloc_blocks, ours.free_blocks), (17, 1));
    // Half a block becomes free, which is too little: the request waits until the trace frees its
    // block, and counts as failed.
    let halves = || {
        let all = (0..15).fold(Trace::new(), |t, i| t.alloc(i * 1024, 10, 1));
        all.alloc(0x3c00, 9, 1).alloc(0x3e00, 9, 1).alloc(0x3c00, 10, 1)
    };
    let r = halves().free(0x3c00, 10).replay("Linux612");
    let ours = r.policies[0].figures;
    let m = ours.matching.unwrap();
    assert_eq!((ours.failed, m.waited, m.of_failed), (1, 0, 1));
    // It still waits when the trace ends.
    let r = halves().replay("Linux612");
    assert_eq!(r.policies[0].figures.failed, 1);
    let warning = "warning: 1 requests fail under Linux612, but 0 failed in the recording";
    assert!(r.to_string().contains(warning), "{r}");
}
