//! What may differ between runs on the same hardware.

use crate::costs::Costs;
use crate::stop::Stop;

/// How the machine's locks choose the next owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// In order of arrival; each waiter spins on its own line (MCS, Linux's qspinlock).
    Queued,
    /// All waiters retry on one line. A nearer waiter is more likely to win, and each further one
    /// slows down the hand-over.
    TestAndSet,
}

/// Stalls of virtual CPUs that hold a lock, as when the host preempts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// On average, `of` acquisitions ...
    pub of: u64,
    /// ... in `in_all` are followed by a stall ...
    pub in_all: u64,
    /// ... of `ns` nanoseconds.
    pub ns: u64,
}

/// What may differ between runs on the same hardware.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Seeds all random decisions, including the order of simultaneous events.
    pub seed: u64,
    /// The kind of the machine's locks.
    pub lock: LockKind,
    /// The cost model.
    pub costs: Costs,
    /// Bytes of memory; `None` uses the hardware's.
    pub memory: Option<u64>,
    /// Bytes of a frame descriptor: 16 in this allocator, or 64 in Linux. Decides how many share a
    /// cache line.
    pub descriptor: u32,
    /// How many nanoseconds a CPU may run ahead of others when it touches pages or its own lists.
    /// This saves switches on the host. Results are reproducible, but differ from those with
    /// another value. Zone locks and everything else that CPUs share are taken strictly in order of
    /// time.
    pub look_ahead_ns: u64,
    /// Stalls with locks held; `None` disables them.
    pub stalls: Option<Stalls>,
    /// Starts the allocator with one section of each node's last zone, and initialises the rest
    /// before anything runs (§8.2). Values derived from zone sizes are then computed twice or, by
    /// policies with that defect, from the one section alone.
    pub deferred: bool,
    /// Bytes of a task's stack on the host. Only pages that are used take memory.
    pub stack: usize,
    /// Ends a run early.
    pub stop: Stop,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 0,
            lock: LockKind::Queued,
            costs: Costs::default(),
            memory: None,
            descriptor: 16,
            look_ahead_ns: 1000,
            stalls: None,
            deferred: false,
            stack: 256 << 10,
            stop: Stop::default(),
        }
    }
}
