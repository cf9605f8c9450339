//! The initial settings of a yard as a structure.

use pageyard::Knobs;

use crate::flags::PAGEYARD_VERSION;
use crate::sized::{self, Growing};
use crate::status::{PAGEYARD_ERR_ARGUMENT, pageyard_status, status};

/// Settings of a kernel that reclaims: the defaults of Linux 6.12.
pub const PAGEYARD_KNOBS_DEFAULT: u32 = 0;
/// Settings for a machine below about 1 GiB whose kernel does not reclaim: no floor of huge pages, no
/// boost of the watermarks, no tuning of the per-CPU lists.
pub const PAGEYARD_KNOBS_SMALL: u32 = 1;

/// Initial settings of a yard (docs/knobs.md), for pageyard_layout. Set `struct_size` to
/// sizeof(struct pageyard_knobs) and `version` to PAGEYARD_VERSION, let pageyard_core_knobs fill in
/// the rest, then change what is to differ. Fields that are switches are 0 or 1.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_knobs {
    /// sizeof(struct pageyard_knobs).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Memory kept free for the kernel's own needs, in kB. 0: computed from the memory. A larger
    /// computed value wins.
    pub min_free_kbytes: u64,
    /// Distance between the watermarks, in ten-thousandths of a zone, from 1 to 3000.
    pub watermark_scale_factor: u64,
    /// Limit of the watermark boost, in ten-thousandths of the high watermark. 0: no boost.
    pub watermark_boost_factor: u64,
    /// For each zone kind, the fraction of higher zones' pages that it reserves against their
    /// requests. 0: no reserve.
    pub lowmem_reserve_ratio: [u64; 5],
    /// Unmapped file pages that node reclaim keeps, in percent of a node.
    pub min_unmapped_ratio: u64,
    /// Reclaimable slab pages that node reclaim keeps, in percent of a node.
    pub min_slab_ratio: u64,
    /// Effort of proactive background compaction, from 0 to 100.
    pub compaction_proactiveness: u64,
    /// Zones whose fragmentation index is at most this are not compacted, from 0 to 1000.
    pub extfrag_threshold: u64,
    /// Interval at which pageyard_core_tick is called for each CPU, in seconds.
    pub stat_interval: u64,
    /// Low memory of this machine's other allocators, in pages, which share min_free_kbytes.
    pub foreign_lowmem: u64,
    /// Seed for shuffling the free lists, if `shuffle` is set.
    pub shuffle_seed: u64,
    /// Fixes `high` of the per-CPU lists at this fraction of a zone: 0, or at least 8. 0: `high` is
    /// tuned.
    pub percpu_pagelist_high_fraction: u32,
    /// Node reclaim before requests fall back to other nodes: 1 enabled, 2 writes, 4 unmaps pages.
    pub zone_reclaim_mode: u32,
    /// Switch: `high` of the per-CPU lists is tuned.
    pub pcp_autotune: u32,
    /// Switch: compaction may move pages that reclaim must not touch.
    pub compact_unevictable_allowed: u32,
    /// Switch: NUMA events are counted.
    pub numa_stat: u32,
    /// Switch: pages are demoted to slower memory instead of swapped out.
    pub memory_tiering: u32,
    /// Switch: huge pages are in use, so that whole pageblocks are kept free.
    pub huge_pages: u32,
    /// Switch: free lists are shuffled at the start.
    pub shuffle: u32,
}

// SAFETY: the two fields are followed by numbers only.
unsafe impl Growing for pageyard_knobs {
    const LEAST: usize = 152;
}

impl pageyard_knobs {
    const fn of(k: &Knobs) -> Self {
        pageyard_knobs {
            struct_size: 0,
            version: 0,
            min_free_kbytes: match k.user_min_free_kbytes {
                Some(kbytes) => kbytes,
                None => 0,
            },
            watermark_scale_factor: k.watermark_scale_factor,
            watermark_boost_factor: k.watermark_boost_factor,
            lowmem_reserve_ratio: k.lowmem_reserve_ratio,
            min_unmapped_ratio: k.min_unmapped_ratio,
            min_slab_ratio: k.min_slab_ratio,
            compaction_proactiveness: k.compaction_proactiveness,
            extfrag_threshold: k.extfrag_threshold,
            stat_interval: k.stat_interval,
            foreign_lowmem: k.foreign_lowmem,
            shuffle_seed: match k.shuffle_seed {
                Some(seed) => seed,
                None => 0,
            },
            percpu_pagelist_high_fraction: k.percpu_pagelist_high_fraction,
            zone_reclaim_mode: k.zone_reclaim_mode,
            pcp_autotune: k.pcp_autotune as u32,
            compact_unevictable_allowed: k.compact_unevictable_allowed as u32,
            numa_stat: k.numa_stat as u32,
            memory_tiering: k.memory_tiering as u32,
            huge_pages: k.huge_pages as u32,
            shuffle: k.shuffle_seed.is_some() as u32,
        }
    }
}

/// The settings of `PAGEYARD_KNOBS_SMALL`, as a caller in C passes them.
pub(crate) static SMALL: pageyard_knobs = pageyard_knobs {
    struct_size: size_of::<pageyard_knobs>() as u32,
    version: PAGEYARD_VERSION,
    ..pageyard_knobs::of(&Knobs::small())
};

/// Fills in settings: the defaults, or those of a profile.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, also for an unknown profile; PAGEYARD_ERR_VERSION.
///
/// Threads: any. Owner: everything stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_knobs(
    profile: u32,
    knobs: *mut pageyard_knobs,
) -> pageyard_status {
    let from = match profile {
        PAGEYARD_KNOBS_DEFAULT => const { &Knobs::DEFAULT },
        PAGEYARD_KNOBS_SMALL => const { &Knobs::small() },
        _ => return PAGEYARD_ERR_ARGUMENT,
    };
    // SAFETY: the header requires a writable structure.
    status(unsafe { sized::write(knobs, &pageyard_knobs::of(from)) })
}

/// Converts settings from C in their place. The core checks the ranges. Not inlined: the structure
/// would take stack below everything that `create` does.
///
/// # Safety
/// `from` must be null or point to a structure of the size in its first field.
#[inline(never)]
pub(crate) unsafe fn read_to(
    from: *const pageyard_knobs,
    to: &mut Knobs,
) -> Result<(), pageyard_status> {
    if from.is_null() {
        return Ok(());
    }
    // SAFETY: guaranteed by the caller.
    let k = unsafe { sized::read(from) }?;
    let switches = [
        k.pcp_autotune,
        k.compact_unevictable_allowed,
        k.numa_stat,
        k.memory_tiering,
        k.huge_pages,
        k.shuffle,
    ];
    if switches.iter().any(|&switch| switch > 1) {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    to.min_free_kbytes = k.min_free_kbytes;
    to.user_min_free_kbytes = (k.min_free_kbytes > 0).then_some(k.min_free_kbytes);
    to.watermark_scale_factor = k.watermark_scale_factor;
    to.watermark_boost_factor = k.watermark_boost_factor;
    to.lowmem_reserve_ratio = k.lowmem_reserve_ratio;
    to.min_unmapped_ratio = k.min_unmapped_ratio;
    to.min_slab_ratio = k.min_slab_ratio;
    to.compaction_proactiveness = k.compaction_proactiveness;
    to.extfrag_threshold = k.extfrag_threshold;
    to.stat_interval = k.stat_interval;
    to.foreign_lowmem = k.foreign_lowmem;
    to.shuffle_seed = (k.shuffle != 0).then_some(k.shuffle_seed);
    to.percpu_pagelist_high_fraction = k.percpu_pagelist_high_fraction;
    to.zone_reclaim_mode = k.zone_reclaim_mode;
    to.pcp_autotune = k.pcp_autotune != 0;
    to.compact_unevictable_allowed = k.compact_unevictable_allowed != 0;
    to.numa_stat = k.numa_stat != 0;
    to.memory_tiering = k.memory_tiering != 0;
    to.huge_pages = k.huge_pages != 0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every setting of the core passes through the structure.
    #[test]
    fn settings_survive_the_way_to_c_and_back() {
        let odd = Knobs {
            min_free_kbytes: 1,
            user_min_free_kbytes: Some(1),
            watermark_scale_factor: 2,
            watermark_boost_factor: 3,
            lowmem_reserve_ratio: [4, 5, 6, 7, 8],
            percpu_pagelist_high_fraction: 9,
            pcp_autotune: false,
            zone_reclaim_mode: 1,
            min_unmapped_ratio: 10,
            min_slab_ratio: 11,
            compaction_proactiveness: 12,
            extfrag_threshold: 13,
            compact_unevictable_allowed: false,
            stat_interval: 14,
            numa_stat: false,
            memory_tiering: true,
            huge_pages: false,
            shuffle_seed: Some(15),
            foreign_lowmem: 16,
        };
        for knobs in [Knobs::DEFAULT, Knobs::small(), odd] {
            let mut in_c = pageyard_knobs::of(&knobs);
            (in_c.struct_size, in_c.version) = (size_of::<pageyard_knobs>() as u32, 1);
            let mut back = Knobs { stat_interval: 99, ..Knobs::DEFAULT };
            // SAFETY: the structure has the size that it states.
            unsafe { read_to(&raw const in_c, &mut back) }.unwrap();
            assert_eq!(back, knobs);
        }
    }

    #[test]
    fn a_switch_is_0_or_1() {
        let switches: [fn(&mut pageyard_knobs) -> &mut u32; 6] = [
            |k| &mut k.pcp_autotune,
            |k| &mut k.compact_unevictable_allowed,
            |k| &mut k.numa_stat,
            |k| &mut k.memory_tiering,
            |k| &mut k.huge_pages,
            |k| &mut k.shuffle,
        ];
        for switch in switches {
            let mut in_c = pageyard_knobs { ..SMALL };
            let mut read = |value| {
                *switch(&mut in_c) = value;
                // SAFETY: the structure has the size that it states.
                unsafe { read_to(&raw const in_c, &mut Knobs::small()) }
            };
            assert_eq!([0, 1, 2].map(&mut read), [Ok(()), Ok(()), Err(PAGEYARD_ERR_ARGUMENT)]);
        }
    }
}
