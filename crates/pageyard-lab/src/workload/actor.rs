//! The interface that workloads are written against, independent of the world they run in: tasks on
//! CPUs that work, wait for each other, and allocate.
//!
//! The simulated machine implements it in virtual time ([`sim`](super::sim)), threads of this host
//! in real time ([`host`](super::host)). Jobs are `Send` and share plain data through the standard
//! library's locks and atomics, so both worlds run them unchanged.

use pageyard::policy::{Engine, Policy};
use pageyard::tuning::Limits;
use pageyard::{Config, CpuId, Gfp, NodeId, Order, Pfn, Yard, ZoneId, ZoneStats};

/// A block and its order, as [`Yard::free_batch`](pageyard::Yard::free_batch) takes it.
pub type Block = (Pfn, Order);

/// Blocks that one actor sends to another together.
pub type Parcel = Vec<Block>;

/// The work of an actor.
pub type Job<'env> = Box<dyn FnOnce(&dyn Actor<'env>) + Send + 'env>;

/// A pipe of the plan, by its index in [`Plan::pipes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PipeId(pub usize);

/// A barrier of the plan, by its index in [`Plan::barriers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BarrierId(pub usize);

/// The state of a zone that a workload can observe: between stages, or during one for its own
/// counters.
#[derive(Clone, Copy, Debug)]
pub struct ZoneView {
    /// Which zone.
    pub id: ZoneId,
    /// Its counters.
    pub stats: ZoneStats,
    /// The limits of its per-CPU lists.
    pub limits: Limits,
    /// The sum of `high` over all CPUs' lists: where frees return pages to the zone (spec §5.1).
    pub high: u64,
    /// Its watermarks: MIN, LOW, HIGH, PROMO (spec §3.2).
    pub watermarks: [u64; 4],
    /// Base pages that left its free lists.
    pub pages_taken: u64,
}

/// Returns how many base pages left a zone's free lists. On the packed engine those that left the
/// zone on balance at each refill.
pub(super) fn pages_taken<C: Config>(yard: &Yard<'_, C>, zone: ZoneId) -> u64 {
    let taken = yard.zone_stats(zone).map_or(0, |z| z.pages_taken);
    if yard.policy().rules().engine != Engine::Packed {
        return taken;
    }
    let cpus = (0..yard.cpus()).filter_map(|cpu| yard.cpu_stats(zone, CpuId(cpu)));
    taken + cpus.map(|s| s.refilled_pages + s.direct_alloc_pages).sum::<u64>()
}

impl ZoneView {
    pub(super) fn all<C: Config>(yard: &Yard<'_, C>) -> Vec<ZoneView> {
        let view = |id| {
            // All CPUs have the same limits; read those of the first online CPU.
            let cpu = (0..yard.cpus()).map(CpuId).find(|&cpu| yard.is_up(cpu))?;
            let limits = yard.pageset(id, cpu)?.limits;
            let watermarks = yard.zone_info(id)?.watermarks;
            let highs = (0..yard.cpus()).filter_map(|cpu| yard.pageset(id, CpuId(cpu)));
            // A list that was never used has no `high` yet; its first use sets it to the least.
            let high = highs.map(|t| t.high.max(t.limits.high_min).max(0) as u64).sum();
            let (stats, pages_taken) = (yard.zone_stats(id)?, pages_taken(yard, id));
            Some(ZoneView { id, stats, limits, high, watermarks, pages_taken })
        };
        yard.zone_ids().filter_map(view).collect()
    }
}

/// A task on a CPU.
///
/// No lock may be held across a call of this trait's methods: other actors run meanwhile.
pub trait Actor<'env> {
    /// Returns the actor's CPU.
    fn cpu(&self) -> CpuId;
    /// Returns the time in nanoseconds.
    fn now(&self) -> u64;
    /// Works for `ns` nanoseconds outside the allocator.
    fn think(&self, ns: u64);
    /// Like [`think`](Actor::think), while `_bytes` bytes arrive evenly from a node's memory. Takes
    /// longer if that exceeds the bandwidth. A world without a bandwidth model only works.
    fn work(&self, ns: u64, _bytes: u64, _node: NodeId) {
        self.think(ns);
    }
    /// Leaves the CPU to other actors until `ns`.
    fn sleep_until(&self, ns: u64);
    /// Must be called before reading state that other actors change, except for pipes and barriers.
    fn sync(&self);
    /// Moves to another CPU.
    fn migrate(&self, to: CpuId);
    /// Returns a random number below `n`, from the actor's own stream.
    fn random(&self, n: u64) -> u64;
    /// Returns an exponentially distributed random number with this mean.
    fn random_exponential(&self, mean: u64) -> u64;
    /// Returns a log-normally distributed random number.
    fn random_log_normal(&self, median: u64, p99: u64) -> u64;

    /// Allocates a block. Returns `None` on failure, which the run counts.
    fn alloc(&self, order: Order, gfp: Gfp) -> Option<Block>;
    /// Like [`alloc`](Actor::alloc), preferably from this node.
    fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Option<Block>;
    /// Frees a block.
    fn free(&self, block: Block);
    /// Frees blocks as a list (spec §6.2).
    fn free_list(&self, blocks: &[Block]);
    /// Reads or writes the first `bytes` bytes of a block.
    fn touch(&self, block: Block, bytes: u64);

    /// Sends a parcel; waits while the pipe is full.
    fn send(&self, pipe: PipeId, parcel: Parcel);
    /// Receives the oldest parcel; waits while the pipe is empty. Returns `None` if the pipe is
    /// closed and empty.
    fn receive(&self, pipe: PipeId) -> Option<Parcel>;
    /// Closes a pipe: nothing more will be sent.
    fn close(&self, pipe: PipeId);
    /// Waits until all actors of the barrier have arrived.
    fn meet(&self, barrier: BarrierId);
    /// Spawns another actor.
    fn spawn(&self, cpu: CpuId, job: Job<'env>);
    /// Returns the number of free pages, including those on per-CPU lists.
    fn free_pages(&self) -> u64;
    /// Returns the number of pages on free lists in blocks of at least a huge page. Looks at all
    /// memory on the packed engine.
    fn free_huge_pages(&self) -> u64;
    /// Returns the zones. Takes the locks of per-CPU lists, so it is too slow for frequent
    /// measurements.
    fn zones(&self) -> Vec<ZoneView>;
    /// Takes one of the plan's [LRU locks](Plan::lru_locks), works for `ns` nanoseconds, and releases
    /// it. A world without these locks only works.
    fn hold_lru(&self, _lock: usize, ns: u64) {
        self.think(ns);
    }
    /// Returns the number of pages on the zones' free lists.
    fn zone_free(&self) -> u64;
    /// Records completed work in the workload's unit, such as pages or messages.
    fn done(&self, work: u64);
}

/// Where the actors of a stage are spawned.
pub trait Stage<'env> {
    /// Spawns an actor on a CPU.
    fn spawn(&self, cpu: CpuId, job: Job<'env>);
}

/// A workload with its parameters fixed: what its actors do, stage by stage. A stage begins when
/// all actors of the previous one have ended. Only [`run`](Plan::run) is measured.
pub trait Plan: Sync {
    /// Returns the capacity of each pipe, in parcels.
    fn pipes(&self) -> Vec<usize> {
        Vec::new()
    }
    /// Returns the number of actors that meet at each barrier.
    fn barriers(&self) -> Vec<usize> {
        Vec::new()
    }
    /// Returns the number of locks of lists that files and processes have their pages on.
    fn lru_locks(&self) -> usize {
        0
    }
    /// Whether all but one section of each node's last zone is initialised late, before the plan
    /// begins (§8.2).
    fn deferred(&self) -> bool {
        false
    }
    /// Returns limits for all per-CPU lists that replace those derived from the zones' sizes.
    fn limits(&self) -> Option<Limits> {
        None
    }
    /// Runs first, before `setup`.
    fn prepare<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// Prepares the state that the measured stage needs, and warms up.
    fn setup<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// Runs the measured stage.
    fn run<'env>(&'env self, stage: &dyn Stage<'env>);
    /// Frees what is left.
    fn finish<'env>(&'env self, _: &dyn Stage<'env>) {}
    /// Returns the workload's own metrics, in addition to those measured for every run.
    fn measures(&self) -> Vec<Measure> {
        Vec::new()
    }
}

/// One value of one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Measure {
    /// The metric's name.
    pub name: String,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// Which way is better.
    pub better: crate::result::Better,
    /// The value; `None` if nothing was counted.
    pub value: Option<f64>,
}
