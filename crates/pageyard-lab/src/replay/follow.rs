//! What follows the recorded state as the mirror derives it.

use pageyard_trace::{Compaction, Event};

use super::plan::OpKind;

/// Follows a recording. Frames are counted from the machine's lowest one.
pub(super) trait Follow {
    /// A page event, before the mirror uses it; `place` is its frame and zone.
    fn event(&mut self, event: &Event, place: Option<(u32, usize)>);

    /// An operation that the mirror derived from events.
    fn operation(&mut self, kind: OpKind, t_ns: u64, frame: u32, order: u8);

    /// Pages that went on a CPU's lists of a zone, or came off them.
    fn listed(&mut self, slot: usize, pages: i64);

    /// A tracepoint of compaction or reclaim.
    fn point(&mut self, t_ns: u64, cpu: u16, task: u32, what: &Compaction);
}
