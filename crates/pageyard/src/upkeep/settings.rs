//! Run-time settings and what they determine: watermarks, reserves, per-CPU list limits, counter
//! thresholds (spec §3, §5.4, §8.3, §9.3, §10).

use core::fmt::Write;

use crate::allocator::knob_error::KnobError;
use crate::allocator::knob_table::{Follows, known};
use crate::allocator::knobs::Knobs;
use crate::allocator::yard::Yard;
use crate::base::stats::stat_threshold;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{PAGE_SIZE, ZONE_KINDS, ZoneId, ZoneKind};
use crate::base::watermark;
use crate::base::watermark::{HIGH, LOW, MIN};
use crate::embedder::config::Config;
use crate::pcp::tuning::{Limits, MAX_BATCH, MAX_PAGES};
use crate::zone::state::Zone;

impl<'a, C: Config> Yard<'a, C> {
    /// Returns the current settings.
    pub fn knobs(&self) -> Knobs {
        self.setting(|knobs| *knobs)
    }

    /// Reads settings. Their lock is free again when it returns: a guard in a longer expression would live
    /// until the end of its statement.
    pub(crate) fn setting<T>(&self, read: impl FnOnce(&Knobs) -> T) -> T {
        read(&self.knobs.lock())
    }

    /// Writes a setting's value to `out` as text (§10). [`KNOBS`](crate::KNOBS) lists the names.
    ///
    /// # Errors
    /// Fails if the name is unknown, the setting is not readable, or the writer fails.
    pub fn knob(&self, name: &str, out: &mut impl Write) -> Result<(), KnobError> {
        known(name)?.read(&self.knobs(), self.rules(), out)
    }

    /// Sets a setting from text and applies its consequences (§10), like a write to the kernel's
    /// file of that name. [`KNOBS`](crate::KNOBS) lists the names and what each accepts.
    ///
    /// # Errors
    /// Fails if the name is unknown, the setting is not writable, or the value is out of range. The
    /// error names them. Nothing has changed.
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), KnobError> {
        let knob = known(name)?;
        self.turn(knob.follows, |k| knob.write(k, value))
    }

    /// Changes settings, if the result is in range, and applies the consequences, including
    /// compaction.
    fn turn(
        &self,
        follows: Follows,
        change: impl FnOnce(&mut Knobs) -> Result<(), KnobError>,
    ) -> Result<(), KnobError> {
        self.change(follows, change)?;
        match follows {
            Follows::Compact => self.compact_all(),
            Follows::Proactive if self.proactiveness() > 0 => {
                self.trigger_proactive_compaction();
            }
            _ => {}
        }
        Ok(())
    }

    /// Changes settings and applies the immediate consequences. Outlined to keep its frame off the
    /// stack during compaction.
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

    /// Stores the changed settings and returns whether they differ. Outlined to keep its frame off
    /// the stack in `follow`.
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
            // Writing the same value changes nothing, even if a boost has moved the watermarks
            // since.
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

    /// Sets `min_free_kbytes`, in kB. Watermarks and limits of the per-CPU lists follow (§3.2).
    ///
    /// # Errors
    /// Fails for a value above 2^40.
    pub fn set_min_free_kbytes(&self, kb: u64) -> Result<(), KnobError> {
        self.turn(Follows::Watermarks, |k| {
            k.min_free_kbytes = kb;
            k.user_min_free_kbytes = Some(kb);
            Ok(())
        })
    }

    /// Sets `watermark_scale_factor`, in ten-thousandths. Watermarks and limits follow (§3.2).
    ///
    /// # Errors
    /// Fails for a value outside 1 to 3000.
    pub fn set_watermark_scale_factor(&self, factor: u64) -> Result<(), KnobError> {
        self.turn(Follows::Watermarks, |k| {
            k.watermark_scale_factor = factor;
            Ok(())
        })
    }

    /// Sets `watermark_boost_factor`, in ten-thousandths; 0 disables boosting (§3.4).
    ///
    /// # Errors
    /// Fails for a value above 2^31.
    pub fn set_watermark_boost_factor(&self, factor: u64) -> Result<(), KnobError> {
        self.turn(Follows::Boost, |k| {
            k.watermark_boost_factor = factor;
            Ok(())
        })
    }

    /// Sets `lowmem_reserve_ratio`, one entry per zone kind; 0 disables the reserve there (§3.5).
    pub fn set_lowmem_reserve_ratio(&self, ratio: [u64; ZONE_KINDS]) {
        // The ratios have no range, so this cannot fail.
        let _ = self.turn(Follows::Reserves, |k| {
            k.lowmem_reserve_ratio = ratio;
            Ok(())
        });
    }

    /// Sets `percpu_pagelist_high_fraction`: with 0 the lists tune themselves; 8 or more fixes
    /// `high` at that fraction of the zone (§5.4).
    ///
    /// # Errors
    /// Fails for 1 to 7, or above 2^31-1.
    pub fn set_percpu_pagelist_high_fraction(&self, fraction: u32) -> Result<(), KnobError> {
        self.turn(Follows::Limits, |k| {
            k.percpu_pagelist_high_fraction = fraction;
            Ok(())
        })
    }

    /// Sets `pcp_autotune`, which the kernel lacks. If off, `high` of all per-CPU lists stays at
    /// its lower limit, as if the upper limit were the same (§5.4). If on, it is tuned again.
    /// `percpu_pagelist_high_fraction` keeps its value; unless that is 0, `high` is fixed anyway.
    ///
    /// As with any change of limits, a CPU's `high` follows at its next refill or drain; the `high`
    /// of an idle CPU decays tick by tick.
    pub fn set_pcp_autotune(&self, on: bool) {
        // A switch has no range, so this cannot fail.
        let _ = self.turn(Follows::Limits, |k| {
            k.pcp_autotune = on;
            Ok(())
        });
    }

    /// Overrides the limits of a zone's per-CPU lists until limits are next computed (§8.3). For
    /// experiments; the kernel has no such file. Returns `false` if the zone does not exist or the
    /// limits are out of range.
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

    /// Recomputes everything that depends on the number of managed pages, in the order of §8.3.
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

    /// Returns the pages of low memory above the high watermarks, and the number of populated low
    /// zones (§3.1).
    fn lowmem_above_high(&self, knobs: &Knobs) -> (u64, u64) {
        let low = || self.zones.iter().filter(|z| Self::is_low(z));
        let above = |z: &Zone<'_, C::Lock>| {
            z.managed.load(Relaxed).saturating_sub(z.watermarks.effective(HIGH))
        };
        let populated = low().filter(|z| z.present.load(Relaxed) > 0).count() as u64;
        (low().map(above).sum::<u64>() + knobs.foreign_lowmem, populated)
    }

    /// Sets the watermarks of all zones, then the limits that follow from them (§3.2).
    fn apply_watermarks(&self, knobs: &Knobs) {
        // Unlike the sum of §3.1, this includes device memory.
        let share = self.zones.iter().filter(|z| z.kind != ZoneKind::Movable);
        let own: u64 = share.map(|z| z.managed.load(Relaxed)).sum();
        let lowmem = own + knobs.foreign_lowmem;
        for z in self.zones {
            let managed = z.managed.load(Relaxed);
            let scale = knobs.watermark_scale_factor;
            let marks =
                watermark::zone_marks(z.kind, managed, lowmem, knobs.min_free_kbytes, scale);
            let _lock = z.lock.lock();
            z.watermarks.set_boost(0);
            z.watermarks.set_marks(marks);
            z.refresh_cached_mark(self.rules());
        }
        self.apply_limits(knobs, 0);
    }

    /// Sets the limits of the per-CPU lists (§5.4), with `coming` CPUs about to go online (§8.5).
    /// Unchanged limits are not stored.
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

    /// Sets the pages that lower zones withhold from requests for higher ones (§3.5).
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
            z.refresh_cached_mark(self.rules());
        }
    }

    /// Sets the thresholds of the per-CPU counter parts, and the mark below which the parts are
    /// summed (§9.3).
    pub(crate) fn apply_thresholds(&self) {
        let cpus = self.cpus_up();
        for z in self.zones {
            let threshold = stat_threshold(cpus, z.managed.load(Relaxed));
            z.set_thresholds(threshold);
            let drift = u64::from(cpus) * u64::from(threshold);
            let w = &z.watermarks;
            if cpus > 1 && z.drift_mark.load(Relaxed) == 0 {
                // The kernel computes this once before any watermark exists, and never clears it.
                z.drift_mark.store(drift, Relaxed);
            }
            if drift > w.base(LOW).saturating_sub(w.base(MIN)) {
                z.drift_mark.store(w.base(HIGH) + drift, Relaxed);
            }
        }
    }

    /// Returns how many CPUs share a zone's per-CPU part of the watermark: the online CPUs of its
    /// node plus `coming`, or all online CPUs if there are none (§5.4).
    fn node_cpus(&self, zone: &Zone<'_, C::Lock>, coming: u32) -> u32 {
        let local = self.node(zone.node).map_or(0, |n| n.cpus.load(Relaxed));
        match local + coming {
            0 => self.cpus_up(),
            n => n,
        }
    }
}
