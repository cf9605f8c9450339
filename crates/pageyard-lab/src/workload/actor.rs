//! What a workload is written against, once for all worlds: tasks on CPUs that work, wait for each
//! other, and allocate.
//!
//! The simulated machine implements it in virtual time ([`sim`](super::sim)), threads of this host in
//! real time ([`host`](super::host)). Jobs are `Send` and share plain data through locks and atomics
//! of the standard library, so that both run them as they are.

use pageyard::tuning::Limits;
use pageyard::{Config, CpuId, Gfp, NodeId, Order, Pfn, Yard, ZoneId, ZoneStats};

/// A block and its order, as [`Yard::free_batch`](pageyard::Yard::free_batch) takes it.
pub type Block = (Pfn, Order);

/// Blocks that go from one actor to another together.
pub type Parcel = Vec<Block>;

/// What an actor does.
pub type Job<'env> = Box<dyn FnOnce(&dyn Actor<'env>) + Send + 'env>;

/// A pipe of the plan, by its place in [`Plan::pipes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeId(pub usize);

/// A barrier of the plan, by its place in [`Plan::barriers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierId(pub usize);

/// A zone as a workload may look at it: between stages, or in the middle for what it counts.
#[derive(Clone, Copy, Debug)]
pub struct ZoneView {
    /// Which zone.
    pub id: ZoneId,
    /// Its counters.
    pub stats: ZoneStats,
    /// The limits of its per-CPU lists.
    pub limits: Limits,
    /// Its watermarks: MIN, LOW, HIGH, PROMO (spec §3.2).
    pub watermarks: [u64; 4],
}

impl ZoneView {
    pub(super) fn all<C: Config>(yard: &Yard<'_, C>) -> Vec<ZoneView> {
        let view = |id| {
            // All CPUs have the same limits; the first one that is up tells.
            let cpu = (0..yard.cpus()).map(CpuId).find(|&cpu| yard.is_up(cpu))?;
            let limits = yard.pageset(id, cpu)?.limits;
            let watermarks = yard.zone_info(id)?.watermarks;
            Some(ZoneView { id, stats: yard.zone_stats(id)?, limits, watermarks })
        };
        yard.zone_ids().filter_map(view).collect()
    }
}

/// A task on a CPU.
///
/// Nothing that is locked may stay so while a method of this trait is called: others run meanwhile.
pub trait Actor<'env> {
    /// Its CPU.
    fn cpu(&self) -> CpuId;
    /// The time in nanoseconds.
    fn now(&self) -> u64;
    /// Works for so many nanoseconds outside the allocator.
    fn think(&self, ns: u64);
    /// The same, while so many bytes come from a node's memory, evenly; longer where that is more
    /// than there is way for. A world that cannot tell only works.
    fn work(&self, ns: u64, _bytes: u64, _node: NodeId) {
        self.think(ns);
    }
    /// Leaves its CPU to others until then.
    fn sleep_until(&self, ns: u64);
    /// To be called before it looks at what others change, other than through pipes and barriers.
    fn sync(&self);
    /// Goes on on another CPU.
    fn migrate(&self, to: CpuId);
    /// A random number below `n`, from a stream of its own.
    fn random(&self, n: u64) -> u64;
    /// An exponentially distributed one with this mean.
    fn random_exponential(&self, mean: u64) -> u64;
    /// A log-normally distributed one.
    fn random_log_normal(&self, median: u64, p99: u64) -> u64;

    /// Allocates a block; `None` where there was none, which the run counts.
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block>;
    /// The same, preferably from this node.
    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block>;
    /// Gives a block back.
    fn free(&self, block: Block);
    /// Gives blocks back as a list (spec §6.2).
    fn free_list(&self, blocks: &[Block]);
    /// Reads or writes the first so many bytes of a block.
    fn touch(&self, block: Block, bytes: u64);

    /// Sends a parcel; waits while the pipe is full.
    fn send(&self, pipe: PipeId, parcel: Parcel);
    /// The oldest parcel; waits while there is none. `None`: the pipe is closed and empty.
    fn receive(&self, pipe: PipeId) -> Option<Parcel>;
    /// Nothing more will be sent.
    fn close(&self, pipe: PipeId);
    /// Waits until all who are to come have come.
    fn meet(&self, barrier: BarrierId);
    /// Another actor.
    fn spawn(&self, cpu: CpuId, job: Job<'env>);
    /// Free pages, those on per-CPU lists included, and how many of them lie on free lists in
    /// blocks of a huge page or more.
    fn free_memory(&self) -> (u64, u64);
    /// The zones. Takes locks of per-CPU lists: not for what is measured often.
    fn zones(&self) -> Vec<ZoneView>;
    /// So much of the workload's work is done: pages, messages, whatever its unit is.
    fn done(&self, work: u64);
}

/// Where actors begin.
pub trait Stage<'env> {
    /// An actor on a CPU.
    fn spawn(&self, cpu: CpuId, job: Job<'env>);
}

/// A workload with its parameters decided: what its actors do, stage by stage. A stage begins when all
/// actors of the one before have ended; only [`run`](Plan::run) is measured.
pub trait Plan: Sync {
    /// How many parcels fit into each pipe.
    fn pipes(&self) -> Vec<usize> {
        Vec::new()
    }
    /// How many actors meet at each barrier.
    fn barriers(&self) -> Vec<usize> {
        Vec::new()
    }
    /// Whether all but one section of each node's last zone is initialised later, before the plan
    /// begins (§8.2).
    fn deferred(&self) -> bool {
        false
    }
    /// Limits of all per-CPU lists other than those that follow from the zones' sizes.
    fn limits(&self) -> Option<Limits> {
        None
    }
    /// Before anything else.
    fn prepare<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// What has to be there before, and warming up.
    fn setup<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// What is measured.
    fn run<'env>(&'env self, stage: &dyn Stage<'env>);
    /// Gives back what is left.
    fn finish<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// What it measured itself, beside what is measured of every run.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// One value of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Measure {
    /// The metric's name.
    pub name: String,
    /// Its unit; empty where it is just a number.
    pub unit: &'static str,
    /// Which way is better.
    pub better: crate::result::Better,
    /// The value.
    pub value: f64,
}
