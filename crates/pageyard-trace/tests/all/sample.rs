//! The sample in the repository: a recorded build with its state files attached.

use pageyard_trace::state::StateDir;
use pageyard_trace::{Format, Options, TraceReader};

#[test]
fn the_recorded_build_is_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy");
    let mut reader = TraceReader::open(path, Options::default()).unwrap();
    assert_eq!(reader.format(), Format::Pgy);
    let state = StateDir::from_attachments(reader.attachments()).unwrap();
    let zones = state.traced_start.zoneinfo.unwrap();
    let free: u64 = zones.zones.iter().map(|zone| zone.free).sum();
    let map = state.pfnmap_before.unwrap();
    let free_in_map = (0..map.len() as u64).filter(|&pfn| map.is_free(pfn)).count();
    assert_eq!(free, free_in_map as u64);

    let mut records = Vec::new();
    while reader.next_chunk(&mut records).unwrap() {}
    let summary = reader.summary();
    let kinds = summary.kinds;
    assert_eq!((kinds.alloc, kinds.free, kinds.free_batched), (358_771, 347_629, 341_966));
    assert_eq!((kinds.zone_locked, kinds.drain, kinds.ext_frag), (82_915, 62_938, 1));
    assert_eq!((summary.marks, summary.lost, summary.declared_cpus), (6, 0, Some(4)));
    let progress = reader.progress();
    assert_eq!(Some(progress.consumed), progress.total);
}
