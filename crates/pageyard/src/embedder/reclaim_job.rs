//! What the allocator requests from reclaim, and the results (spec §3.2, §7.2, §7.3).

use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeMask;
use crate::base::units::{NodeId, Order, ZoneKind};

/// The watermarks of a zone, from the lowest up (§3.2).
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
    /// How thoroughly to scan: 12 at first, then down to 1.
    pub priority: u8,
    /// Whether pages may be written back.
    pub may_write: bool,
    /// Whether pages may be swapped out.
    pub may_swap: bool,
}

/// The limits for reclaiming from a near node before a farther one is used
/// ([`Reclaim::node_reclaim`](crate::Reclaim::node_reclaim), §2.8 step 6).
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// There is enough memory, or the time is up.
    Done,
    /// The task is about to be killed.
    Killed,
}

/// What the out-of-memory hook did ([`Reclaim::out_of_memory`](crate::Reclaim::out_of_memory)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oom {
    /// A task is freeing memory or will do so soon.
    Progress,
    /// No task is left that could free memory.
    Nothing,
}
