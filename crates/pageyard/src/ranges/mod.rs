//! Operations on ranges: isolation, contiguous ranges, compaction, hotplug, reporting.

pub(crate) mod balloon;
pub(crate) mod cma;
pub mod compact;
pub(crate) mod contig;
pub(crate) mod cursor;
pub(crate) mod deferred;
pub(crate) mod evacuate;
pub(crate) mod hotplug;
pub(crate) mod hwpoison;
pub(crate) mod isolate;
pub(crate) mod migrate;
pub(crate) mod packed;
pub(crate) mod place;
pub(crate) mod release;
pub(crate) mod report_pieces;
pub(crate) mod reporting;
pub(crate) mod scatter;
pub(crate) mod shootdown;
