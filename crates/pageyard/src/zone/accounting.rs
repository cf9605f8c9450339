//! Counting free pages (spec §4.7), with the CPUs' parts of the counters (§9.1, §9.2).

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::zone::at::Locked;

impl<C: Config> Locked<'_, '_, C> {
    /// Accounts for every change of the number of free pages (§4.7), in exactly the steps of the
    /// spec. The steps decide when the CPU's part is folded (§9.2) and are therefore observable.
    #[inline]
    pub(crate) fn account(&self, pages: i32, t: MigrateType) {
        if t == MigrateType::Isolate {
            return;
        }
        let x = self.slot.diff() + pages;
        if x.unsigned_abs() > self.slot.threshold.load(Relaxed) {
            self.fold(x);
        } else {
            self.slot.set_diff(x);
        }
        self.account_special(1, pages, t);
    }

    /// Accounts for `times` changes of the free pages of a type that is also counted separately.
    #[inline(always)]
    pub(crate) fn account_special(&self, times: u32, pages: i32, t: MigrateType) {
        if matches!(t, MigrateType::HighAtomic | MigrateType::Cma) {
            self.account_set_apart(times, pages, t);
        }
    }

    #[cold]
    #[inline(never)]
    fn account_set_apart(&self, times: u32, pages: i32, t: MigrateType) {
        if t == MigrateType::Cma {
            // CPUs have parts of this counter, as of that of all free pages (§9.1).
            let threshold = self.slot.threshold.load(Relaxed);
            let (folded, part) = fold_each(self.slot.cma_diff(), threshold, times, pages);
            self.slot.set_cma_diff(part);
            return self.add_free_cma(folded);
        }
        let counter = &self.zone.free_highatomic;
        let change = i64::from(pages) * i64::from(times);
        counter.store(counter.load(Relaxed).wrapping_add_signed(change), Relaxed);
        self.zone.refresh_cached_mark(self.rules());
    }

    /// Adds the CPU's part to the zone's free counter.
    pub(crate) fn fold(&self, part: i32) {
        self.add_free(part.into());
        self.slot.set_diff(0);
    }

    /// Adds the CPU's parts to the zone's counters. Returns whether there were any.
    pub(crate) fn fold_all(&self) -> bool {
        let (free, cma) = (self.slot.diff(), self.slot.cma_diff());
        if free != 0 {
            self.fold(free);
        }
        if cma != 0 {
            self.slot.set_cma_diff(0);
            self.add_free_cma(cma.into());
        }
        (free, cma) != (0, 0)
    }

    /// Changes the zone's free counter.
    #[inline]
    pub(crate) fn add_free(&self, pages: i64) {
        let free = self.zone.nr_free.load(Relaxed).wrapping_add(pages);
        self.zone.nr_free.store(free, Relaxed);
        if self.hooks.report_order().is_some() {
            self.zone.report.saw(free);
        }
    }

    fn add_free_cma(&self, pages: i64) {
        let free = self.zone.free_cma.load(Relaxed).wrapping_add(pages);
        self.zone.free_cma.store(free, Relaxed);
        self.zone.refresh_cached_mark(self.rules());
    }

    /// Calls [`account`](Self::account) `times` times in effect.
    #[inline]
    pub(crate) fn account_each(&self, times: u32, pages: i32, t: MigrateType) {
        if t == MigrateType::Isolate {
            return;
        }
        let threshold = self.slot.threshold.load(Relaxed);
        let (folded, part) = fold_each(self.slot.diff(), threshold, times, pages);
        self.slot.set_diff(part);
        self.add_free(folded);
        self.account_special(times, pages, t);
    }
}

/// Returns what `times` changes by `step` add to the counter, because the CPU's part exceeded the
/// threshold, and the part left after them (§9.2).
#[inline]
fn fold_each(part: i32, threshold: u32, times: u32, step: i32) -> (i64, i32) {
    if step == 0 || times < 8 {
        // For few changes a loop is cheaper than the divisions.
        let (mut folded, mut part) = (0, part);
        for _ in 0..times {
            part += step;
            if part.unsigned_abs() > threshold {
                folded += i64::from(part);
                part = 0;
            }
        }
        return (folded, part);
    }
    // Normalise the sign so that the part climbs towards the threshold.
    let up = i64::from(step.signum());
    let (part, step) = (i64::from(part) * up, i64::from(step.unsigned_abs()));
    let (threshold, times) = (i64::from(threshold), i64::from(times));
    let first = (threshold - part).max(0) / step + 1;
    if first > times {
        return (0, ((part + times * step) * up) as i32);
    }
    let period = threshold / step + 1;
    let left = times - first;
    let folded = part + first * step + left / period * period * step;
    (folded * up, (left % period * step * up) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_2_batched_folding_equals_single_folding() {
        for threshold in [0, 1, 6, 18, 125] {
            for part in -(threshold as i32)..=threshold as i32 {
                for step in [1, -1, 2, -2, 8, -8, 512, -512] {
                    let (mut folded, mut now) = (0, part);
                    for times in 1..300 {
                        now += step;
                        if now.unsigned_abs() > threshold {
                            folded += i64::from(now);
                            now = 0;
                        }
                        assert_eq!(
                            fold_each(part, threshold, times, step),
                            (folded, now),
                            "{part} {threshold} {times} {step}"
                        );
                    }
                }
            }
        }
    }
}
