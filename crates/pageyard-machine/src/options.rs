//! What may differ between runs on the same hardware.

use crate::costs::Costs;

/// How the machine's locks choose who is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// In order of arrival, each spinning on a line of its own (MCS, Linux's qspinlock).
    Queued,
    /// All try at once on one line: the nearer one likely wins, and each further one slows the
    /// hand-over down.
    TestAndSet,
}

/// Virtual CPUs whose host has something else to do, of all moments, while they hold a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// So many acquisitions ...
    pub of: u64,
    /// ... in so many are followed by a stall ...
    pub in_all: u64,
    /// ... of so many nanoseconds.
    pub ns: u64,
}

/// What may differ between runs on the same hardware.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Decides between what is due at once, and whatever is random.
    pub seed: u64,
    /// The kind of its locks.
    pub lock: LockKind,
    /// What things cost.
    pub costs: Costs,
    /// Bytes of memory; the hardware's where nothing is said.
    pub memory: Option<u64>,
    /// Bytes of a frame descriptor: 16 as this allocator's, or 64 as Linux's. Decides how many
    /// share a cache line.
    pub descriptor: u32,
    /// How many nanoseconds a CPU may be ahead of others when it touches pages, or its own lists.
    /// That saves switches on the host; the results are reproducible, but not the same as with
    /// another value. A zone's lock, and everything else that others use, is taken strictly in
    /// order of time.
    pub look_ahead_ns: u64,
    /// Stalls with locks held; none where nothing is said.
    pub stalls: Option<Stalls>,
    /// The allocator begins with one section of each node's last zone and gets the rest before
    /// anything runs (§8.2): what is computed of the zones' sizes is then computed twice, or, by
    /// policies with that defect, for the one section alone.
    pub deferred: bool,
    /// Bytes of a task's stack on the host. Only what is used takes memory.
    pub stack: usize,
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
        }
    }
}
