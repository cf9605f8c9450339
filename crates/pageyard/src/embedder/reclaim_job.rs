//! What the allocator requests from reclaim, and the results (spec §3.2, §7.2, §7.3).

use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeMask;
use crate::base::units::{NodeId, Order, ZoneKind};

/// The watermarks of a zone, from the lowest up (§3.2).
///
/// ```
/// use pageyard::Mark;
///
/// assert_ne!(Mark::Low, Mark::High);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Mark {
    /// Below it, only urgent requests are served.
    Min = 0,
    /// Below it, background reclaim is woken.
    Low = 1,
    /// At it, background reclaim stops.
    High = 2,
    /// At it, pages may move in from slower memory.
    Promo = 3,
}

/// The goal of one direct reclaim, in pages (§7.3).
pub(crate) const SWAP_CLUSTER_MAX: u64 = 32;

/// A request for reclaim.
///
/// ```
/// use pageyard::{Reclaim, ReclaimJob};
///
/// struct Cache;
/// impl Reclaim for Cache {
///     fn reclaim(&self, job: &ReclaimJob) -> u64 {
///         let most = if job.may_write { job.pages } else { job.pages / 2 };
///         // Free `most` pages of the cache; return how many it were.
///         # 0
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimJob {
    /// The node where memory is needed most.
    pub node: NodeId,
    /// The nodes whose memory helps the request.
    pub allowed: NodeMask,
    /// Memory in zones up to this one helps the request.
    pub highest: ZoneKind,
    /// The order of the request.
    pub order: Order,
    /// Flags of the request: whether reclaim may start I/O and enter file systems.
    pub gfp: Gfp,
    /// Number of pages to free.
    pub pages: u64,
    /// How thoroughly to scan: [`FIRST_PRIORITY`](Self::FIRST_PRIORITY), then down to 1.
    pub priority: u8,
    /// Whether pages may be written back.
    pub may_write: bool,
    /// Whether pages may be swapped out.
    pub may_swap: bool,
}

impl ReclaimJob {
    /// The priority of a first attempt. Each step below it scans twice as many pages.
    pub const FIRST_PRIORITY: u8 = 12;
}

/// The limits for reclaiming from a near node before a farther one is used
/// ([`Reclaim::node_reclaim`](crate::Reclaim::node_reclaim), §2.8 step 6).
///
/// ```
/// use pageyard::{NodeReclaimJob, NodeReclaim, Reclaim};
///
/// struct Caches;
/// impl Reclaim for Caches {
///     fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
///         // Free `job.pages` clean pages of `job.node`, dirty ones only if `job.may_write`.
///         NodeReclaim::NoScan
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeReclaimJob {
    /// The node.
    pub node: NodeId,
    /// The order of the request.
    pub order: Order,
    /// Flags of the request: whether reclaim may wait, start I/O and enter file systems.
    pub gfp: Gfp,
    /// Number of pages to free.
    pub pages: u64,
    /// Whether pages may be written back: bit 2 of `zone_reclaim_mode` (§10).
    pub may_write: bool,
    /// Whether mapped pages may be unmapped: bit 4 of `zone_reclaim_mode` (§10).
    pub may_unmap: bool,
    /// Pages of unmapped page cache that the node keeps: `min_unmapped_ratio` of its managed pages.
    pub min_unmapped: u64,
    /// Pages of reclaimable slab that the node keeps: `min_slab_ratio` of its managed pages.
    pub min_slab: u64,
}

/// The freeable pages of a node ([`Reclaim::node_caches`](crate::Reclaim::node_caches)).
///
/// ```
/// use pageyard::{NodeCaches, NodeReclaimJob, Reclaim};
///
/// struct Caches;
/// impl Reclaim for Caches {
///     fn node_caches(&self, job: &NodeReclaimJob) -> Option<NodeCaches> {
///         // Pages of this node's caches.
///         Some(NodeCaches { unmapped: 4096, slab: 512 })
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCaches {
    /// Unmapped page cache. If the job may unmap or write pages, includes the pages that this makes
    /// freeable.
    pub unmapped: u64,
    /// Reclaimable slab.
    pub slab: u64,
}

/// The outcome of reclaiming from a near node before a farther one is used
/// ([`Reclaim::node_reclaim`](crate::Reclaim::node_reclaim)).
///
/// ```
/// use pageyard::{NodeReclaim, NodeReclaimJob, Reclaim};
///
/// struct Caches;
/// impl Reclaim for Caches {
///     fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
///         // Nothing of `job.node` can be freed.
///         NodeReclaim::Full
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeReclaim {
    /// Not tried: not allowed here, or another task is already doing it.
    NoScan,
    /// There was nothing to free.
    Full,
    /// Freed some pages, but fewer than requested.
    Some,
    /// Freed the requested pages.
    Success,
}

/// How waiting for background reclaim ended ([`Reclaim::throttle`](crate::Reclaim::throttle)).
///
/// ```
/// use pageyard::{NodeId, Reclaim, Throttle};
///
/// struct Tasks;
/// impl Reclaim for Tasks {
///     fn throttle(&self, _: NodeId, _: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
///         while !enough() {
///             std::thread::yield_now();
///         }
///         Throttle::Done
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// There is enough memory, or the time is up.
    Done,
    /// The task is about to be killed.
    Killed,
}

/// What the out-of-memory hook did ([`Reclaim::out_of_memory`](crate::Reclaim::out_of_memory)).
///
/// ```
/// use pageyard::{Oom, Reclaim, ReclaimJob};
///
/// struct Killer;
/// impl Reclaim for Killer {
///     fn out_of_memory(&self, job: &ReclaimJob) -> Oom {
///         // A task was made to exit: its memory will be free soon.
///         Oom::Progress
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oom {
    /// A task is freeing memory or will do so soon.
    Progress,
    /// No task is left that could free memory.
    Nothing,
}
