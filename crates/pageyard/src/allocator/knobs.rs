//! The settings of an allocator, by the kernel's names (spec §10).

use crate::base::units::ZONE_KINDS;

/// The settings of an allocator, by the kernel's names (spec §10).
///
/// ```
/// use pageyard::Knobs;
///
/// let mut knobs = Knobs { watermark_scale_factor: 100, ..Knobs::default() };
/// knobs.set("min_free_kbytes", "8192")?;
/// assert_eq!((knobs.min_free_kbytes, knobs.check()), (8192, Ok(())));
/// # Ok::<(), pageyard::KnobError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Knobs {
    /// Memory kept free for the kernel's own needs, in kB. Computed (§3.1) unless written.
    pub min_free_kbytes: u64,
    /// The value set by the user, if any.
    pub user_min_free_kbytes: Option<u64>,
    /// Distance between the watermarks, in ten-thousandths of a zone (1 to 3000).
    pub watermark_scale_factor: u64,
    /// Limit of the watermark boost, in ten-thousandths of the high watermark; 0 disables boosting.
    pub watermark_boost_factor: u64,
    /// For each zone, the fraction of higher zones' pages that it withholds from their requests; 0
    /// disables the reserve.
    pub lowmem_reserve_ratio: [u64; ZONE_KINDS],
    /// Fixes `high` of the per-CPU lists at this fraction of a zone; 0 lets it be tuned.
    pub percpu_pagelist_high_fraction: u32,
    /// Whether `high` of the per-CPU lists is tuned, if no fraction fixes it. The kernel has no
    /// such switch ([`Yard::set_pcp_autotune`](crate::Yard::set_pcp_autotune)).
    pub pcp_autotune: bool,
    /// Whether a node is reclaimed before requests go to other nodes. Bits: 1 enables it, 2 allows
    /// writing pages, 4 allows unmapping them.
    pub zone_reclaim_mode: u32,
    /// Unmapped file pages that node reclaim leaves on a node, in percent.
    pub min_unmapped_ratio: u64,
    /// Reclaimable slab pages that node reclaim leaves on a node, in percent.
    pub min_slab_ratio: u64,
    /// Effort of proactive background compaction, 0 to 100 (§7.8).
    pub compaction_proactiveness: u64,
    /// A zone is not compacted if its fragmentation index is at most this value (§7.5).
    pub extfrag_threshold: u64,
    /// Whether compaction may migrate pages that reclaim must not touch.
    pub compact_unevictable_allowed: bool,
    /// How often the embedder should call [`Yard::tick`](crate::Yard::tick) for each CPU, in
    /// seconds.
    pub stat_interval: u64,
    /// Whether NUMA events are counted (§9.1). If not, their counts stay unchanged.
    pub numa_stat: bool,
    /// Whether pages are demoted to slower memory instead of swapped out: zones are kept free up to
    /// the PROMO watermark (§7.1).
    pub memory_tiering: bool,
    /// Whether huge pages are in use, so that whole pageblocks are worth keeping free (§3.1).
    pub huge_pages: bool,
    /// Seed for shuffling the free lists at the start and for adding largest blocks at a random end
    /// (`page_alloc.shuffle`, §1.11). Read only at the start.
    pub shuffle_seed: Option<u64>,
    /// Low-memory pages (zones up to NORMAL) that other allocators of this machine manage and that
    /// share `min_free_kbytes` with this allocator.
    pub foreign_lowmem: u64,
}

impl Default for Knobs {
    /// Returns [`Knobs::DEFAULT`].
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Knobs {
    /// Returns settings for a small machine, below about 1 GiB, whose embedder does not reclaim.
    ///
    /// The defaults suit a kernel that reclaims: what they withhold comes back under pressure.
    /// Without reclaim it is lost to ordinary requests. These settings differ in:
    ///
    /// - `huge_pages: false`. The floor of huge pages (§3.1) raises `min_free_kbytes` to keep whole
    ///   pageblocks free, up to 5% of low memory. A small machine has few huge pages to gain.
    /// - `watermark_boost_factor: 0`. A boost (§3.4) adds up to 150% of the high watermark and only
    ///   background reclaim ends it.
    /// - `pcp_autotune: false`. `high` of the per-CPU lists stays at its lower limit (§5.4), so fewer
    ///   pages wait on lists of CPUs that do not need them.
    ///
    /// On one CPU with 222 MiB, ordinary requests get 56,146 single pages instead of 53,746; with 40
    /// MiB, 10,016 instead of 9,728. See also
    /// [`Platform::drain_on_failure`](crate::Platform::drain_on_failure).
    ///
    /// ```
    /// use pageyard::Knobs;
    ///
    /// let knobs = Knobs { stat_interval: 5, ..Knobs::small() };
    /// assert!(!knobs.huge_pages && knobs.check().is_ok());
    /// ```
    pub const fn small() -> Knobs {
        Knobs {
            huge_pages: false,
            watermark_boost_factor: 0,
            pcp_autotune: false,
            ..Knobs::DEFAULT
        }
    }

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
