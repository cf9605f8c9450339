//! Past defects, for tests that must find them. Not part of the interface.

use std::sync::atomic::AtomicBool;

/// Makes a fill of a thread's magazine read the limit again for each block. If another thread sets
/// the limit to 0 in the meantime, some pages are lost and others get two owners.
pub static FILL_READS_LIMIT_AGAIN: AtomicBool = AtomicBool::new(false);
