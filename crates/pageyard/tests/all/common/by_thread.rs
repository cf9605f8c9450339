//! A platform for tests with threads of their own: each is a CPU.

use std::cell::Cell;

use pageyard::{CpuId, Defences, Observer, Platform, Reclaim};

thread_local! {
    /// The CPU that this thread is.
    pub(crate) static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Every thread is the CPU that it says it is.
#[derive(Debug)]
pub(crate) struct ByThread;

impl Platform for ByThread {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Reclaim for ByThread {}
impl Observer for ByThread {}
impl Defences for ByThread {}
