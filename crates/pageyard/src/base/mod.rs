//! The basis of all other modules: units, flags, the frame map, lists, watermarks, counters.

pub(crate) mod busy;
pub(crate) mod frame;
pub(crate) mod free_error;
pub(crate) mod gfp;
#[cfg(feature = "alloc")]
pub(crate) mod heap;
#[cfg(feature = "lines")]
pub mod lines;
pub(crate) mod list;
pub(crate) mod near_mark;
pub(crate) mod node_mask;
pub mod put;
pub(crate) mod reclaimers;
pub(crate) mod shared;
pub(crate) mod stats;
pub(crate) mod sync;
pub(crate) mod units;
pub(crate) mod unwind;
pub(crate) mod wakeups;
pub mod watermark;
