//! The statistics of another process, safe to print.

use pageyard_host::{PageError, YardStats, clock, read_stats};
use pageyard_lab::format::duration;
use pageyard_trace::printable;

/// Reads the statistics that the process publishes. They are untrusted, so active characters are
/// escaped.
pub(super) fn read(pid: u32) -> Result<Vec<YardStats>, PageError> {
    let mut yards = read_stats(pid)?;
    let clean = |text: &mut String| *text = printable(text).into_owned();
    for y in &mut yards {
        clean(&mut y.level);
        for z in &mut y.zones {
            clean(&mut z.kind);
            clean(&mut z.map);
        }
    }
    Ok(yards)
}

/// Returns how old figures of this time are, or nothing if they are current.
pub(super) fn age(at_ns: u64) -> String {
    match clock::now().saturating_sub(at_ns) {
        0..2_000_000_000 => String::new(),
        ns => format!(", figures {} old", duration(ns)),
    }
}
