//! What formats share whose records are not in order of time, and whose tasks have their names from
//! other records: `perf.data` and Perfetto.

mod queue;
mod threads;

use crate::error::{Position, TraceError};
use crate::event::Record;
use crate::shared::Shared;

pub(crate) use queue::{Item, Queue};
pub(crate) use threads::Threads;

/// Appends the records of the items that can be given, until `out` holds `max`.
///
/// # Errors
/// Fails if time goes back.
pub(crate) fn give(
    queue: &mut Queue,
    threads: &mut Threads,
    shared: &mut Shared,
    out: &mut Vec<Record>,
    max: usize,
) -> Result<(), TraceError> {
    while out.len() < max
        && let Some((t_ns, position, item)) = queue.pop()
    {
        if let Some(record) = threads.record(t_ns, item, shared) {
            shared.push(out, record, Position::Byte(position))?;
        }
    }
    Ok(())
}
