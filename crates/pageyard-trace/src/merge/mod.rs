//! What formats share whose records are not in order of time, and whose tasks have their names from
//! other records: `perf.data` and Perfetto.

mod queue;
mod threads;

pub(crate) use queue::{Item, Queue};
pub(crate) use threads::Threads;
