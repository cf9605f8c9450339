//! One zone under its lock: free lists by order and type, fallbacks, the state of each mechanism.

pub(crate) mod accounting;
pub(crate) mod area;
pub(crate) mod at;
pub(crate) mod buddy;
pub(crate) mod compaction_state;
pub(crate) mod defences;
pub(crate) mod defences_state;
pub(crate) mod deferred_part;
pub(crate) mod free_queue;
pub(crate) mod mobility;
pub(crate) mod node;
pub(crate) mod owned;
pub(crate) mod packed_parts;
pub(crate) mod reporting_state;
pub(crate) mod run;
pub(crate) mod shuffle;
pub(crate) mod state;
pub(crate) mod steer;
pub(crate) mod view;
pub(crate) mod zonelist;
