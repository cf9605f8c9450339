//! The recording over time, as its events show it.

use pageyard_lab::replay::{Input, Options, by_name, replay};
use pageyard_trace::state::StateDir;
use pageyard_trace::{Options as Reading, TraceReader};

use crate::sample;

/// The kernel's own buddyinfo, read just before the recording ended, has the very blocks that
/// follow from the events and the state at the start.
#[test]
fn free_blocks_at_the_end_equal_the_kernels_own_count() {
    let path = sample("kbuild.pgy");
    let reader = TraceReader::open(&path, Reading::default()).unwrap();
    let state = StateDir::from_attachments(reader.attachments()).unwrap();
    let options = Options {
        policies: vec![by_name("Linux612").unwrap()],
        record: true,
        ..Options::default()
    };
    let report = replay(Input::Path(path), &options, &mut |_, _, _| {}).unwrap();
    let track = report.recorded_track.unwrap();
    let rows = state.traced_end.buddyinfo.unwrap().rows;
    assert!(rows.len() >= 2);
    for row in rows {
        let zone = track.zones.iter().find(|z| (z.node, &z.zone) == (row.node, &row.zone)).unwrap();
        let blocks: Vec<u64> = (zone.pages_by_order.iter().enumerate())
            .map(|(order, pages)| pages.last().unwrap() >> order)
            .collect();
        assert_eq!(blocks, row.free, "node {} zone {}", row.node, row.zone);
    }
    // Lists: no value of `high`, and a list for each that a policy has.
    assert!(track.lists.iter().all(|l| l.high.is_empty() && l.count.len() == track.times_ns.len()));
    let policy = report.policies[0].track.as_ref().unwrap();
    let lists = |t: &pageyard_lab::track::Track| -> Vec<(u32, String)> {
        t.lists.iter().map(|l| (l.cpu, l.zone.clone())).collect()
    };
    assert_eq!(lists(&track), lists(policy));
    // The holds of the lists' refills and drains are those of the table.
    let sum: u64 = track.lists.iter().flat_map(|l| l.refills.iter().chain(&l.drains)).sum();
    let moved = report.recorded.moved;
    assert_eq!(sum, moved.refill_holds + moved.drain_holds);
}
