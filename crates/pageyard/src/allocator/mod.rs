//! The allocator over all zones: layout, initialization, settings.

pub(crate) mod init;
pub(crate) mod init_error;
pub(crate) mod knob_error;
pub(crate) mod knob_table;
pub(crate) mod knobs;
pub(crate) mod layout;
#[cfg(feature = "alloc")]
pub(crate) mod memory_map;
#[cfg(feature = "alloc")]
pub(crate) mod owned_storage;
pub(crate) mod start;
pub(crate) mod vm_events;
pub(crate) mod yard;
pub(crate) mod zonelists;
