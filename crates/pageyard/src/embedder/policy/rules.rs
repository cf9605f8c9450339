//! What a policy may choose.

use crate::base::gfp::Gfp;

/// Everything a policy may choose.
///
/// ```
/// # use pageyard::*;
/// # type Lock = spin::mutex::SpinMutex<()>;
/// use pageyard::policy::{Linux612, Rules, StaticPolicy};
///
/// // A policy chosen at run time is a reference to rules.
/// static RULES: Rules = Rules { high_order_lists: false, ..Linux612::RULES };
/// let yard: Yard<'_, Bare<Lock, (), &Rules>> = Yard::with_policy(Parts::new(()), &RULES);
/// assert!(!yard.policy().high_order_lists);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The engine that keeps free memory.
    pub engine: Engine,
    /// Keep orders 1 to 3 and 9 on the per-CPU lists, not only order 0 (§5.2).
    pub high_order_lists: bool,
    /// How a bulk free walks the lists (§5.12, §5.12a).
    pub bulk_free: BulkFree,
    /// A page that enters a per-CPU list keeps its type and returns to the zone under that type,
    /// even if its block has changed type since. Off: the block's type is read under the zone lock
    /// when the page returns to the zone (§4.10a).
    pub carried_types: bool,
    /// How a request is served when the lists of its own type are empty (§4.4–4.6).
    pub fallback: Fallback,
    /// If a request may not claim a block, move the block's free pages to the lists of the
    /// request's type anyway. Later requests of that type find them there; only the block's label
    /// stays. Off: lists and labels change together, and the rest of a stolen block stays on its
    /// list (§4.10e).
    pub moves_unclaimed: bool,
    /// Boost the watermarks also for a fallback that only steals, as for a claim (before 6.12.29,
    /// §3.4).
    pub boost_on_steal: bool,
    /// Isolation is a bit beside a pageblock's type, and a pageblock gets its own type back when its
    /// isolation ends, as in Linux 6.17 and later. Off: it gets the type that the caller names
    /// (§4.11).
    pub isolate_bit: bool,
    /// Requests mix types in a pageblock only after reclaim and compaction declined, and background
    /// reclaim balances whole pageblocks: `vm.defrag_mode` of Linux 6.15 and later (B.1).
    pub defrag_mode: bool,
    /// Requests that are not movable claim whole pageblocks in 1 GiB regions that hold such pages
    /// already, and background compaction keeps two pageblocks free there.
    pub steered: bool,
    /// Recompute the limits of the per-CPU lists with everything else that depends on the zone
    /// sizes (§8.3). Off: compute them once, at the start.
    pub limits_follow: bool,
    /// How the per-CPU lists are tuned.
    pub pcp: PcpRules,
    /// Compare block type and list type at every list operation and count mismatches (§4.8).
    pub type_checks: bool,
    /// Checks and defences against callers' mistakes and memory faults.
    pub safety: Safety,
}

/// How free memory is kept.
///
/// ```
/// use pageyard::policy::{Engine, Linux612, Packed, StaticPolicy};
///
/// assert_eq!(Linux612::RULES.engine, Engine::Exact);
/// assert_eq!(Packed::RULES.engine, Engine::Packed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// As in Linux: lists of free blocks under a zone lock, per-CPU lists that tune themselves.
    Exact,
    /// The [packed engine](crate::packed): bits, magazines, and the fullest pageblocks first.
    Packed,
}

/// Checks and defences (spec §11), all off by default. They are part of the policy so that a
/// disabled one compiles to nothing. The kernel uses boot parameters instead.
///
/// ```
/// use pageyard::policy::{Linux612, Rules, Safety, StaticPolicy};
///
/// let safety = Safety { poison: true, ..Safety::OFF };
/// assert!(safety.checks_pages());
/// let poisoned = Rules { safety, ..Linux612::RULES };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Safety {
    /// Check the embedder's own description of every page when it is freed and when it is allocated
    /// ([`Defences::page_state`](crate::Defences::page_state), §11.1). Every other check here
    /// except guards turns this on as well.
    pub page_checks: bool,
    /// Fill free memory with a pattern, and verify it before the memory is allocated (§11.4).
    pub poison: bool,
    /// Zero all memory that is allocated (§11.5). No effect if `poison` is on.
    pub init_on_alloc: bool,
    /// Zero memory when it is freed and never when it is allocated, not even for requests with ZERO
    /// (§11.5). No effect if `poison` is on.
    pub init_on_free: bool,
    /// Unmap memory while it is free (§11.6).
    pub unmap: bool,
    /// Turn the parts of orders below this that a split leaves over into guards (§11.6). 0 disables
    /// guards; at most [`MAX_GUARD_ORDER`].
    pub guard_min_order: u8,
}

/// The largest [`Safety::guard_min_order`], half of the largest order as in the kernel (spec §10).
pub const MAX_GUARD_ORDER: u8 = 5;
/// The largest [`PcpRules::scale_max`].
pub const MAX_SCALE: u8 = 6;

impl Rules {
    /// Returns the first rule that is out of range: its name, its value and the largest allowed
    /// value. Only an embedder's own policy can have one.
    pub(crate) const fn out_of_range(&self) -> Option<(&'static str, u8, u8)> {
        if self.pcp.scale_max > MAX_SCALE {
            return Some(("scale_max", self.pcp.scale_max, MAX_SCALE));
        }
        if self.safety.guard_min_order > MAX_GUARD_ORDER {
            return Some(("guard_min_order", self.safety.guard_min_order, MAX_GUARD_ORDER));
        }
        None
    }

    /// Returns the first rule of a proposal that the rules ask for
    /// ([`Policy::PROPOSALS`](super::Policy::PROPOSALS)).
    pub(crate) const fn proposal(&self) -> Option<&'static str> {
        match (self.pcp.owned_blocks, self.steered, self.defrag_mode) {
            (true, ..) => Some("owned_blocks"),
            (_, true, _) => Some("steered"),
            (.., true) => Some("defrag_mode"),
            _ => None,
        }
    }

    /// Whether the policy asks for the packed engine. Without the feature `packed` none does that can
    /// create an allocator.
    #[inline(always)]
    pub(crate) const fn is_packed(&self) -> bool {
        cfg!(feature = "packed") && matches!(self.engine, Engine::Packed)
    }
}

impl Safety {
    /// Every check and defence off.
    pub const OFF: Safety = Safety {
        page_checks: false,
        poison: false,
        init_on_alloc: false,
        init_on_free: false,
        unmap: false,
        guard_min_order: 0,
    };

    /// Returns whether pages are checked (§11.1).
    pub const fn checks_pages(&self) -> bool {
        self.page_checks || self.poison || self.init_on_alloc || self.init_on_free || self.unmap
    }

    /// Returns whether memory is zeroed when it is freed. Poisoning overrides it (§11.4).
    pub(crate) const fn zeroes_free(&self) -> bool {
        self.init_on_free && !self.poison
    }

    /// Returns whether the contents or mapping of memory change when it becomes free.
    pub(crate) const fn fills(&self) -> bool {
        self.poison || self.zeroes_free() || self.unmap
    }

    /// Returns the flags with which a block is prepared: with or without ZERO (§11.5).
    pub(crate) const fn prepared_as(&self, gfp: Gfp) -> Gfp {
        if self.zeroes_free() {
            gfp.difference(Gfp::ZERO)
        } else if self.init_on_alloc && !self.poison {
            gfp.union(Gfp::ZERO)
        } else {
            gfp
        }
    }
}

/// How pages move from the per-CPU lists to the zone.
///
/// ```
/// use pageyard::policy::{BulkFree, Linux612, Rules, StaticPolicy, TwoPassBulkFree};
///
/// let rules = Rules { bulk_free: BulkFree::TwoPass, ..Linux612::RULES };
/// assert_eq!(rules, <TwoPassBulkFree>::RULES);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkFree {
    /// One pass under the zone lock: a list is emptied before the next is examined (§5.12).
    /// Neighbouring blocks that follow each other on it are freed as one.
    SinglePass,
    /// Like `SinglePass`, but block by block, as in the kernel: the same results at the kernel's
    /// cost.
    BlockByBlock,
    /// Pages are gathered first, then freed under the lock (§5.12a).
    TwoPass,
}

/// How a request is served when its own type has no free block.
///
/// ```
/// use pageyard::policy::{Fallback, LargestFirst, Linux612, StaticPolicy};
///
/// assert_eq!(Linux612::RULES.fallback, Fallback::ClaimThenSteal);
/// assert_eq!(<LargestFirst>::RULES.fallback, Fallback::LargestBlock);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// Look for a block to claim, from the largest order down. If there is none, steal, from the
    /// smallest order up (§4.4, §4.5).
    ClaimThenSteal,
    /// Search once for the largest block. If it cannot be claimed, steal from it (§4.6).
    LargestBlock,
}

/// The tuning of the per-CPU lists, step by step (spec §5.17).
///
/// ```
/// use pageyard::policy::{Linux612, PcpRules, Rules, StaticPolicy};
///
/// let pcp = PcpRules { scale_max: 0, ..Linux612::RULES.pcp };
/// let one_batch_at_a_time = Rules { pcp, ..Linux612::RULES };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpRules {
    /// How `high` is computed: its fixed value, or its initial value if it is tuned.
    pub high: High,
    /// S of §5.8: how many times a batch may double, at most [`MAX_SCALE`].
    pub scale_max: u8,
    /// Step 1: a high-order free drains the lists only if the previous free was high-order too.
    pub free_high_twice: bool,
    /// Steps 2 and 3: how large the CPU's cache slice must be for one batch to stay cached in that
    /// drain.
    pub keep_batch: KeepBatch,
    /// Step 4: the number of pages freed at once doubles at most `scale_max` times.
    pub free_scale_capped: bool,
    /// Step 5: refills double as well.
    pub alloc_scale: bool,
    /// Step 7: `high` moves between its limits.
    pub growth: Growth,
    /// Step 8: how the lists react to the high watermark.
    pub below_high: BelowHigh,
    /// Step 9: `high` decays at most by the smallest count since the last tick.
    pub count_min: bool,
    /// Step 10: frees are counted in pages, not in doublings.
    pub free_count: bool,
    /// With `free_count`: high-order frees drain the lists only after enough pages were freed in a
    /// row: a batch plus half of `high_min`, as in Linux 6.16 and later (B.3).
    pub free_high_late: bool,
    /// A free that overflows a CPU's lists drains them a batch at a time, without a lock in between
    /// (B.4).
    pub chunked_drain: bool,
    /// A CPU claims whole pageblocks for its lists and splits them without the zone lock. Their pages
    /// return to its lists, whichever CPU frees them, and merge there before they are drained.
    pub owned_blocks: bool,
    /// How far `high` falls in each tick.
    pub decay: Decay,
}

/// How the `high` of a zone's per-CPU lists is computed (§5.4).
///
/// ```
/// use pageyard::policy::{High, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { high: High::SixBatches, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum High {
    /// The CPU's share of the low watermark, but at least four batches.
    ShareOfLow,
    /// Six batches, as in Linux up to 5.13; 0 if the batch is below one page.
    SixBatches,
}

/// When FREE_HIGH_BATCH is set for a CPU (§5.13).
///
/// ```
/// use pageyard::policy::{KeepBatch, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { keep_batch: KeepBatch::Never, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepBatch {
    /// Never.
    Never,
    /// The CPU's slices of all data and unified caches hold more than four batches.
    AllLevelsAbove4,
    /// The CPU's slice of the last-level cache holds more than three batches.
    LastLevelAbove3,
}

/// When a refill raises `high`.
///
/// ```
/// use pageyard::policy::{Growth, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { growth: Growth::Fixed, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Never: `high` is fixed.
    Fixed,
    /// Unless background reclaim is active (the series as first sent).
    UnlessReclaim,
    /// Unless the zone is below its high watermark.
    UnlessBelowHigh,
}

/// How the per-CPU lists use the high watermark.
///
/// ```
/// use pageyard::policy::{BelowHigh, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { below_high: BelowHigh::Ignored, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BelowHigh {
    /// They ignore it.
    Ignored,
    /// Every request tests the high watermark first.
    TestedAlways,
    /// The high watermark is tested only while the last test passed (§2.8 step 5).
    TestedWhileClear,
}

/// The decay of `high` in one tick (§5.14).
///
/// ```
/// use pageyard::policy::{Decay, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { decay: Decay::None, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// None. The tick drains nothing.
    None,
    /// To four fifths. The excess is drained in one go.
    Fifth,
    /// By one eighth. The excess is drained batch by batch.
    Eighth,
}
