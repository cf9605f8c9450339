//! Defects as they once were, for tests that must find them. Not part of the interface.

use std::sync::atomic::AtomicBool;

/// A fill of a thread's magazine reads its limit again for each block. If another thread sets it to
/// 0 meanwhile, pages are lost, and others get two owners.
pub static FILL_READS_LIMIT_AGAIN: AtomicBool = AtomicBool::new(false);
