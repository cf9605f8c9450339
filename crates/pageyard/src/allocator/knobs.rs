//! The settings of an allocator, by the kernel's names (spec §10).

use crate::base::units::ZONE_KINDS;

/// The settings of an allocator, by the kernel's names (spec §10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// Memory kept free for the kernel's own needs, in kB. Computed (§3.1) unless written.
    pub min_free_kbytes: u64,
    /// The value that was written, if any.
    pub user_min_free_kbytes: Option<u64>,
    /// Distance of the watermarks, in ten-thousandths of a zone (1 to 3000).
    pub watermark_scale_factor: u64,
    /// The most that watermarks are boosted by, in ten-thousandths of the high mark; 0: never.
    pub watermark_boost_factor: u64,
    /// Per zone, the fraction of higher zones' pages that it keeps from their requests; 0: none.
    pub lowmem_reserve_ratio: [u64; ZONE_KINDS],
    /// Fixes `high` of the per-CPU lists at this fraction of a zone; 0: tuned.
    pub percpu_pagelist_high_fraction: u32,
    /// `high` of the per-CPU lists is tuned, where no fraction fixes it. The kernel has no such
    /// switch ([`Yard::set_pcp_autotune`]).
    pub pcp_autotune: bool,
    /// A node is reclaimed before requests go to others: 1 at all, 2 by writing pages, 4 by
    /// unmapping them.
    pub zone_reclaim_mode: u32,
    /// Unmapped file pages that reclaim of a node leaves it, in percent.
    pub min_unmapped_ratio: u64,
    /// Reclaimable slab pages that reclaim of a node leaves it, in percent.
    pub min_slab_ratio: u64,
    /// How hard background compaction works ahead of requests, 0 to 100 (§7.8).
    pub compaction_proactiveness: u64,
    /// A zone whose fragmentation index is at most this is not compacted (§7.5).
    pub extfrag_threshold: u64,
    /// Compaction may move pages that reclaim must leave alone.
    pub compact_unevictable_allowed: bool,
    /// How often the embedder is to call [`Yard::tick`] for each CPU, in seconds.
    pub stat_interval: u64,
    /// NUMA events are counted (§9.1). Off, they stay what they were.
    pub numa_stat: bool,
    /// Pages move to slower memory rather than out: zones are kept free up to the PROMO mark (§7.1).
    pub memory_tiering: bool,
    /// Huge pages are in use, so that whole pageblocks are worth keeping free (§3.1).
    pub huge_pages: bool,
    /// Free lists are shuffled at start, and largest blocks go to a random end, by random numbers
    /// from this seed (`page_alloc.shuffle`, §1.11). Read at start only.
    pub shuffle_seed: Option<u64>,
    /// Pages of low memory (zones up to NORMAL) that other allocators of this machine manage and
    /// that share `min_free_kbytes` with this one.
    pub foreign_lowmem: u64,
}

impl Default for Knobs {
    /// [`Knobs::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Knobs {
    /// The kernel's defaults (spec §10).
    pub const DEFAULT: Knobs = Knobs {
        min_free_kbytes: 0,
        user_min_free_kbytes: None,
        watermark_scale_factor: 10,
        watermark_boost_factor: 15000,
        lowmem_reserve_ratio: [256, 256, 32, 0, 0],
        percpu_pagelist_high_fraction: 0,
        pcp_autotune: true,
        zone_reclaim_mode: 0,
        min_unmapped_ratio: 1,
        min_slab_ratio: 5,
        compaction_proactiveness: 20,
        extfrag_threshold: 500,
        compact_unevictable_allowed: true,
        stat_interval: 1,
        numa_stat: true,
        memory_tiering: false,
        huge_pages: true,
        shuffle_seed: None,
        foreign_lowmem: 0,
    };
}
