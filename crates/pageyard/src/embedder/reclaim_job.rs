//! What the allocator asks of reclaim, and the answers (spec §3.2, §7.2, §7.3).

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

/// What is to be reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimJob {
    /// The node where memory is wanted most.
    pub node: NodeId,
    /// The nodes whose memory would help.
    pub allowed: NodeMask,
    /// Zones up to this one would help.
    pub highest: ZoneKind,
    /// The order of the request.
    pub order: Order,
    /// Its flags: they say whether I/O and file systems may be entered.
    pub gfp: Gfp,
    /// How many pages to free.
    pub pages: u64,
    /// 12 at first, then down to 1: how hard to look.
    pub priority: u8,
    /// Whether pages may be written back.
    pub may_write: bool,
    /// Whether pages may be swapped out.
    pub may_swap: bool,
}

/// What reclaim of a near node may free, before a farther one is used
/// ([`Reclaim::node_reclaim`], §2.8 step 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeReclaimJob {
    /// The node.
    pub node: NodeId,
    /// The order of the request.
    pub order: Order,
    /// Its flags: they say whether it may wait, and enter I/O and file systems.
    pub gfp: Gfp,
    /// How many pages to free.
    pub pages: u64,
    /// Whether pages may be written back: bit 2 of `zone_reclaim_mode` (§10).
    pub may_write: bool,
    /// Whether mapped pages may be unmapped: its bit 4.
    pub may_unmap: bool,
    /// Pages of unmapped page cache that the node keeps: `min_unmapped_ratio` of its managed
    /// pages.
    pub min_unmapped: u64,
    /// Pages of reclaimable slab that it keeps: `min_slab_ratio` of them.
    pub min_slab: u64,
}

/// What a node has that could be freed ([`Reclaim::node_caches`]), in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeCaches {
    /// Unmapped page cache; where the job may unmap or write pages, what that makes of it.
    pub unmapped: u64,
    /// Reclaimable slab.
    pub slab: u64,
}

/// What became of a node's reclaim before a farther node is used ([`Reclaim::node_reclaim`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeReclaim {
    /// It was not tried: not allowed here, or somebody else is at it.
    NoScan,
    /// There was nothing to free.
    Full,
    /// It freed something.
    Some,
    /// It freed what was wanted.
    Success,
}

/// How waiting for background reclaim ended ([`Reclaim::throttle`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// There is enough, or the time is up.
    Done,
    /// The task is about to die.
    Killed,
}

/// What the out-of-memory hook did ([`Reclaim::out_of_memory`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oom {
    /// Somebody gives up memory, or has begun to.
    Progress,
    /// There is nobody left who could.
    Nothing,
}
