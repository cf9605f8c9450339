//! The machine under the heap: which CPU runs, what time it is, whether reclaim was woken.

use std::cell::Cell;

use pageyard::{CpuId, Event, NodeId, Order, Platform, ZoneKind};

use crate::record::Observer;

/// One CPU runs at a time; who runs is set by the workload.
#[derive(Debug)]
pub(super) struct Host<'o, O> {
    cpu: Cell<u32>,
    now: Cell<u64>,
    woken: Cell<bool>,
    observer: &'o O,
}

impl<'o, O: Observer> Host<'o, O> {
    pub(super) fn new(observer: &'o O) -> Self {
        Host { cpu: Cell::new(0), now: Cell::new(0), woken: Cell::new(false), observer }
    }

    pub(super) fn run_on(&self, cpu: u32) {
        self.cpu.set(cpu);
    }

    /// Time goes on to this moment, in nanoseconds, unless it is there already.
    pub(super) fn advance_to(&self, ns: u64) {
        self.now.set(self.now.get().max(ns));
    }

    /// Whether background reclaim was woken since this was last asked.
    pub(super) fn take_wake(&self) -> bool {
        self.woken.take()
    }
}

impl<O: Observer> Platform for Host<'_, O> {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }

    fn now(&self) -> u64 {
        self.now.get()
    }

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        if O::ACTIVE {
            // Nothing takes time here, but no two events happen at one moment.
            self.now.set(self.now.get() + 1);
            self.observer.observe(self.now.get(), cpu, event);
        }
    }

    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.woken.set(true);
    }
}
