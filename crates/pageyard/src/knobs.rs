//! What an operator turns, and what follows from it: watermarks, reserves, limits of the per-CPU
//! lists, thresholds of the counters (spec §3, §5.4, §8.3, §9.3, §10).

use core::fmt::Write;

use crate::config::Config;
use crate::knob_error::{Excerpt, KnobError};
use crate::knob_table::{Follows, KNOBS, Knob};
use crate::sync::Ordering::Relaxed;
use crate::tuning::{Limits, MAX_BATCH, MAX_PAGES};
use crate::units::{PAGE_SIZE, ZONE_KINDS, ZoneId, ZoneKind};
use crate::watermark::{self, HIGH, LOW, MIN};
use crate::yard::Yard;
use crate::zone::Zone;

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

    /// Sets a setting from text (§10), as [`Yard::set_knob`] does for a yard that is there already.
    ///
    /// # Errors
    /// As [`Yard::set_knob`]; nothing has changed then.
    ///
    /// ```
    /// # use pageyard::{KnobError, Knobs};
    /// let mut knobs = Knobs::default();
    /// knobs.set("percpu_pagelist_high_fraction", "8")?;
    /// assert_eq!(knobs.percpu_pagelist_high_fraction, 8);
    /// # Ok::<(), KnobError>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        known(name)?.write(self, value)
    }

    /// Checks every range.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), KnobError> {
        KNOBS.iter().try_for_each(|knob| knob.check(self))
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// The settings now in force.
    pub fn knobs(&self) -> Knobs {
        *self.knobs.lock()
    }

    /// Writes a setting's value to `out` as text (§10): [`KNOBS`] has the names.
    ///
    /// # Errors
    /// An unknown name; a setting that cannot be read; a writer that fails.
    pub fn knob(&self, name: &str, out: &mut impl Write) -> Result<(), KnobError> {
        known(name)?.read(&self.knobs(), self.rules(), out)
    }

    /// Sets a setting from text (§10), with everything that follows from it: what writing to the
    /// kernel's file of that name does. [`KNOBS`] has the names, and says what each takes.
    ///
    /// # Errors
    /// An unknown name; a setting that cannot be written; a value out of its range. The error
    /// names them, and nothing has changed.
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), KnobError> {
        let knob = known(name)?;
        self.turn(knob.follows, |k| knob.write(k, value))
    }

    /// Changes settings, if what comes out is in range, and does what follows.
    fn turn(
        &self,
        follows: Follows,
        change: impl FnOnce(&mut Knobs) -> Result<(), KnobError>,
    ) -> Result<(), KnobError> {
        self.change(follows, change)?;
        match follows {
            Follows::Compact => self.compact_all(),
            Follows::Proactive if self.knobs.lock().compaction_proactiveness > 0 => {
                self.trigger_proactive_compaction();
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes settings, and does what follows at once: not in one frame with compaction.
    #[inline(never)]
    fn change(
        &self,
        follows: Follows,
        change: impl FnOnce(&mut Knobs) -> Result<(), KnobError>,
    ) -> Result<(), KnobError> {
        let _writing = self.settings.lock();
        let changed = self.write_knobs(change)?;
        self.follow(follows, changed);
        Ok(())
    }

    /// Whether the settings are others now. Not in one frame with what follows.
    #[inline(never)]
    fn write_knobs(
        &self,
        change: impl FnOnce(&mut Knobs) -> Result<(), KnobError>,
    ) -> Result<bool, KnobError> {
        let mut new = self.knobs();
        change(&mut new)?;
        new.check()?;
        let mut knobs = self.knobs.lock();
        let changed = *knobs != new;
        *knobs = new;
        Ok(changed)
    }

    #[inline(never)]
    fn follow(&self, follows: Follows, changed: bool) {
        let new = self.knobs();
        match follows {
            Follows::Nothing => {}
            Follows::Watermarks => self.apply_watermarks(&new),
            Follows::Boost => {
                for z in self.zones {
                    z.boost_factor.store(new.watermark_boost_factor, Relaxed);
                }
            }
            Follows::Reserves => self.apply_reserves(&new),
            // The same value again changes nothing, not even what a boost has changed meanwhile.
            Follows::Limits if !changed => {}
            Follows::Limits => self.apply_limits(&new, 0),
            Follows::NumaStat => {
                for z in self.zones {
                    z.count_numa(new.numa_stat);
                }
            }
            Follows::Compact | Follows::Proactive => {}
        }
    }

    /// Writes `min_free_kbytes`, in kB: watermarks and limits of the per-CPU lists follow (§3.2).
    ///
    /// # Errors
    /// A value above 2^40.
    pub fn set_min_free_kbytes(&self, kb: u64) -> Result<(), KnobError> {
        self.turn(Follows::Watermarks, |k| {
            k.min_free_kbytes = kb;
            k.user_min_free_kbytes = Some(kb);
            Ok(())
        })
    }

    /// Writes `watermark_scale_factor`, in ten-thousandths: watermarks and limits follow (§3.2).
    ///
    /// # Errors
    /// A value outside 1 to 3000.
    pub fn set_watermark_scale_factor(&self, factor: u64) -> Result<(), KnobError> {
        self.turn(Follows::Watermarks, |k| {
            k.watermark_scale_factor = factor;
            Ok(())
        })
    }

    /// Writes `watermark_boost_factor`, in ten-thousandths; 0 switches boosting off (§3.4).
    ///
    /// # Errors
    /// A value above 2^31.
    pub fn set_watermark_boost_factor(&self, factor: u64) -> Result<(), KnobError> {
        self.turn(Follows::Boost, |k| {
            k.watermark_boost_factor = factor;
            Ok(())
        })
    }

    /// Writes `lowmem_reserve_ratio`, one entry per zone kind; 0 switches it off there (§3.5).
    pub fn set_lowmem_reserve_ratio(&self, ratio: [u64; ZONE_KINDS]) {
        // The ratios have no range, so nothing can be refused.
        let _ = self.turn(Follows::Reserves, |k| {
            k.lowmem_reserve_ratio = ratio;
            Ok(())
        });
    }

    /// Writes `percpu_pagelist_high_fraction`: 0 lets the lists tune themselves, 8 and more fix
    /// `high` at that fraction of the zone (§5.4).
    ///
    /// # Errors
    /// 1 to 7, or above 2^31-1.
    pub fn set_percpu_pagelist_high_fraction(&self, fraction: u32) -> Result<(), KnobError> {
        self.turn(Follows::Limits, |k| {
            k.percpu_pagelist_high_fraction = fraction;
            Ok(())
        })
    }

    /// Writes `pcp_autotune`, the switch that the kernel lacks: off, `high` of all per-CPU lists
    /// stays at its lower limit (as if the upper one were the same, §5.4), on, it is tuned again.
    /// `percpu_pagelist_high_fraction` keeps its value; unless that is 0, `high` is fixed anyway.
    ///
    /// As with any change of limits, a CPU's `high` follows at its next refill or drain; an idle
    /// one's decays tick by tick.
    pub fn set_pcp_autotune(&self, on: bool) {
        // A switch has no range, so nothing can be refused.
        let _ = self.turn(Follows::Limits, |k| {
            k.pcp_autotune = on;
            Ok(())
        });
    }

    /// Gives a zone's per-CPU lists limits other than those that follow from its size, until limits
    /// are next computed (§8.3). For experiments: the kernel has no such file. `false`: there is no
    /// such zone, or the limits are out of range.
    pub fn set_pcp_limits(&self, zone: impl Into<ZoneId>, limits: Limits) -> bool {
        let Limits { batch, high_min, high_max } = limits;
        let in_range = (1..=MAX_BATCH).contains(&batch)
            && (0..=MAX_PAGES).contains(&high_min)
            && (high_min..=MAX_PAGES).contains(&high_max);
        let Some(zone) = self.zone(zone).filter(|_| in_range) else { return false };
        let _held = zone.limits_lock.lock();
        zone.limits.set(limits);
        zone.limit_pagesets(self.rules());
        true
    }

    /// Recomputes everything that depends on how many pages are managed, in the order of §8.3.
    pub(crate) fn recalculate(&self) {
        let _writing = self.settings.lock();
        let mut knobs = self.knobs();
        let (lowmem, zones) = self.lowmem_above_high(&knobs);
        let computed = watermark::min_free_kbytes(lowmem * (PAGE_SIZE / 1024));
        let user = knobs.user_min_free_kbytes.unwrap_or(0);
        knobs.min_free_kbytes = computed.max(user);
        self.apply_watermarks(&knobs);
        self.apply_thresholds();
        self.apply_reserves(&knobs);
        if knobs.huge_pages {
            let (lowmem, _) = self.lowmem_above_high(&knobs);
            let floor = watermark::huge_page_floor(zones, lowmem);
            if floor > knobs.min_free_kbytes {
                knobs.min_free_kbytes = floor;
                self.apply_watermarks(&knobs);
            }
        }
        *self.knobs.lock() = knobs;
    }

    fn is_low(zone: &Zone<'_, C::Lock>) -> bool {
        zone.kind <= ZoneKind::Normal
    }

    /// Pages of low memory above the high marks, and how many zones they are in (§3.1).
    fn lowmem_above_high(&self, knobs: &Knobs) -> (u64, u64) {
        let low = || self.zones.iter().filter(|z| Self::is_low(z));
        let above = |z: &Zone<'_, C::Lock>| {
            z.managed.load(Relaxed).saturating_sub(z.watermarks.effective(HIGH))
        };
        let populated = low().filter(|z| z.present.load(Relaxed) > 0).count() as u64;
        (low().map(above).sum::<u64>() + knobs.foreign_lowmem, populated)
    }

    /// Watermarks of all zones, then the limits that follow from them (§3.2).
    fn apply_watermarks(&self, knobs: &Knobs) {
        let own: u64 =
            self.zones.iter().filter(|z| Self::is_low(z)).map(|z| z.managed.load(Relaxed)).sum();
        let lowmem = own + knobs.foreign_lowmem;
        for z in self.zones {
            let managed = z.managed.load(Relaxed);
            let scale = knobs.watermark_scale_factor;
            let marks =
                watermark::zone_marks(z.kind, managed, lowmem, knobs.min_free_kbytes, scale);
            let _lock = z.lock.lock();
            z.watermarks.set_boost(0);
            z.watermarks.set_marks(marks);
            z.refresh_ample(self.rules());
        }
        self.apply_limits(knobs, 0);
    }

    /// Limits of the per-CPU lists (§5.4), with so many CPUs on their way up (§8.5). What stays the
    /// same is not stored.
    pub(crate) fn apply_limits(&self, knobs: &Knobs, coming: u32) {
        for z in self.zones {
            let limits = Limits::of_zone(
                &self.rules().pcp,
                z.managed.load(Relaxed),
                z.watermarks.effective(LOW),
                self.node_cpus(z, coming),
                knobs.percpu_pagelist_high_fraction,
            );
            let limits = if knobs.pcp_autotune { limits } else { limits.fixed() };
            let _held = z.limits_lock.lock();
            let was = z.limits.get();
            let follow = self.rules().limits_follow || was == Limits::DISABLED;
            if follow && was != limits {
                z.limits.set(limits);
                z.limit_pagesets(self.rules());
            }
        }
    }

    /// Pages that lower zones keep from requests for higher ones (§3.5).
    fn apply_reserves(&self, knobs: &Knobs) {
        for z in self.zones {
            let mut managed = [0; ZONE_KINDS];
            for z in self.node(z.node).map_or(&[][..], |n| n.zones) {
                managed[z.kind as usize] = z.managed.load(Relaxed);
            }
            let reserve =
                watermark::lowmem_reserve(z.kind as usize, &managed, &knobs.lowmem_reserve_ratio);
            let _lock = z.lock.lock();
            z.watermarks.set_reserve(reserve);
            z.refresh_ample(self.rules());
        }
    }

    /// Thresholds of the counters' CPU parts, and the mark below which they are summed (§9.3).
    pub(crate) fn apply_thresholds(&self) {
        let cpus = self.cpus_up();
        for z in self.zones {
            let threshold = stat_threshold(cpus, z.managed.load(Relaxed));
            for slot in z.cpus {
                slot.threshold.store(threshold, Relaxed);
            }
            let drift = u64::from(cpus) * u64::from(threshold);
            let w = &z.watermarks;
            if cpus > 1 && z.drift_mark.load(Relaxed) == 0 {
                // The kernel computes it once before any watermark exists, and never clears it.
                z.drift_mark.store(drift, Relaxed);
            }
            if drift > w.base(LOW).saturating_sub(w.base(MIN)) {
                z.drift_mark.store(w.base(HIGH) + drift, Relaxed);
            }
        }
    }

    /// How many CPUs share a zone's per-CPU share of the watermark: those of its node that are up,
    /// and those on their way; where there are none, all that are up (§5.4).
    fn node_cpus(&self, zone: &Zone<'_, C::Lock>, coming: u32) -> u32 {
        let local = self.node(zone.node).map_or(0, |n| n.cpus.load(Relaxed));
        match local + coming {
            0 => self.cpus_up(),
            n => n,
        }
    }
}

fn known(name: &str) -> Result<&'static Knob, KnobError> {
    Knob::named(name).ok_or_else(|| KnobError::Unknown { name: Excerpt::of(name) })
}

/// How far a CPU's part of a counter may go before it is folded (§9.3, the normal value).
pub fn stat_threshold(cpus: u32, managed: u64) -> u32 {
    let fls = |x: u64| u64::BITS - x.leading_zeros();
    (2 * fls(cpus.into()) * (1 + fls(managed >> 15))).min(125)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_of_9_3_and_c_1() {
        for (cpus, managed, want) in [
            (2, 3840, 4),
            (2, 772497, 24),
            (2, 622592, 24),
            (2, 1343488, 28),
            (4, 110560, 18),
            (4, 3840, 6),
            (1024, 1 << 28, 125),
        ] {
            assert_eq!(stat_threshold(cpus, managed), want, "{cpus} CPUs, {managed} pages");
        }
    }

    #[test]
    fn ranges_of_10() {
        let k = Knobs::default();
        assert!(k.check().is_ok());
        for bad in [
            Knobs { watermark_scale_factor: 0, ..k },
            Knobs { watermark_scale_factor: 3001, ..k },
            Knobs { percpu_pagelist_high_fraction: 7, ..k },
            Knobs { min_free_kbytes: u64::MAX, ..k },
            Knobs { compaction_proactiveness: 101, ..k },
            Knobs { extfrag_threshold: 1001, ..k },
            Knobs { watermark_boost_factor: u64::MAX, ..k },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Knobs { percpu_pagelist_high_fraction: 8, ..k }.check().is_ok());
    }
}
