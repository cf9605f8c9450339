//! Hysteresis for the causes of memory pressure: use that hovers at a threshold does not change the
//! level at every step.

use crate::limits::Limits;
use crate::pressure::{Cause, Level};
use crate::usage::Usage;

/// Nanoseconds for which a cause must have been over until it ends.
pub(crate) const HOLD: u64 = 1_000_000_000;

/// A limit's margin is this part of it: pressure ends below the limit less the margin.
const MARGIN: u64 = 32;

/// Whether a cause applies. It begins at once, and ends when it was over for [`HOLD`].
#[derive(Clone, Copy, Debug, Default)]
struct Latch {
    on: bool,
    /// When the cause last applied or had not passed its margin yet.
    last: u64,
}

impl Latch {
    /// Updates the state. `persists`: the cause has begun, and its margin is not passed yet.
    fn update(&mut self, begins: bool, persists: bool, now: u64) -> bool {
        if begins || self.on && persists {
            *self = Latch { on: true, last: now };
        } else if now.saturating_sub(self.last) >= HOLD {
            self.on = false;
        }
        self.on
    }
}

/// What the system says about its memory: see [`Signals`](crate::signals::Signals).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System {
    pub(crate) stalled: bool,
    /// Whether the group is near a limit, and whether it is within a 32nd of its maximum.
    pub(crate) group: Option<bool>,
}

/// The causes of pressure of a yard, with hysteresis.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    soft_limit: Latch,
    low_mark: Latch,
    min_mark: Latch,
    stall: Latch,
    group: Latch,
    group_max: Latch,
    /// The limit in force at the last update.
    allowed: u64,
}

impl Causes {
    /// Returns the level and its causes.
    pub(crate) fn update(
        &mut self,
        usage: &Usage,
        limits: Limits,
        system: System,
        now: u64,
    ) -> (Level, Vec<Cause>) {
        let allowed = limits.soft.or(limits.hard).unwrap_or(u64::MAX);
        if allowed != self.allowed {
            // Another limit: what was above the old one says nothing.
            self.soft_limit = Latch::default();
            self.allowed = allowed;
        }
        let System { stalled, group } = system;
        let margin = allowed / MARGIN;
        let soft = self.soft_limit.update(usage.used > allowed, usage.used > allowed - margin, now);
        let low = self.low_mark.update(usage.low, usage.below_high, now);
        let min = self.min_mark.update(usage.none, usage.all_low, now);
        let stall = self.stall.update(stalled, stalled, now);
        let near = self.group.update(group.is_some(), group.is_some(), now);
        let at_max = self.group_max.update(group == Some(true), group == Some(true), now);
        let all = [
            (soft, Cause::SoftLimit),
            (low, Cause::LowMark),
            (min, Cause::MinMark),
            (stall, Cause::Stall),
            (near, Cause::Group),
        ];
        let causes: Vec<_> =
            all.into_iter().filter(|(is, _)| *is).map(|(_, cause)| cause).collect();
        let level = match () {
            () if min || at_max => Level::Critical,
            () if !causes.is_empty() => Level::Moderate,
            () => Level::Calm,
        };
        (level, causes)
    }

    /// Returns how many pages in use keep the pressure of the soft limit on: those above the limit
    /// less the margin. 0 without that pressure. Reclaim that stopped at the limit itself would
    /// leave the level where it is.
    pub(crate) fn above_soft(&self, used: u64) -> u64 {
        let ends = self.allowed - self.allowed / MARGIN;
        if self.soft_limit.on { used.saturating_sub(ends) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: u64 = 100_000_000;

    /// Runs a step every 100 ms and returns the levels, without repetitions.
    fn levels(causes: &mut Causes, now: &mut u64, steps: &[(Usage, System)]) -> Vec<Level> {
        let limits = Limits { hard: None, soft: Some(3200) };
        let mut seen = Vec::new();
        for (usage, system) in steps {
            *now += STEP;
            seen.push(causes.update(usage, limits, *system, *now).0);
        }
        seen.dedup();
        seen
    }

    fn used(used: u64) -> (Usage, System) {
        (Usage { used, ..Usage::default() }, System::default())
    }

    #[test]
    fn reclaim_of_what_is_above_ends_the_pressure() {
        let (mut causes, mut now) = (Causes::default(), 0);
        levels(&mut causes, &mut now, &[used(3200)]);
        assert_eq!(causes.above_soft(3200), 0, "no pressure yet");
        levels(&mut causes, &mut now, &[used(3201)]);
        let left = 3201 - causes.above_soft(3201);
        assert_eq!(left, 3100);
        let calm = levels(&mut causes, &mut now, &[used(left); 11]);
        assert_eq!(calm.last(), Some(&Level::Calm));
    }

    #[test]
    fn use_around_the_soft_limit_changes_the_level_once() {
        let (mut causes, mut now) = (Causes::default(), 0);
        let around: Vec<_> = (0..100).map(|n| used(3150 + n % 2 * 100)).collect();
        assert_eq!(levels(&mut causes, &mut now, &around), [Level::Calm, Level::Moderate]);
        // Above the margin, the level stays however long.
        assert_eq!(levels(&mut causes, &mut now, &[used(3101); 50]), [Level::Moderate]);
        // Below it, the level falls after a second, not before.
        assert_eq!(levels(&mut causes, &mut now, &[used(3100); 9]), [Level::Moderate]);
        assert_eq!(levels(&mut causes, &mut now, &[used(3100); 2]), [Level::Calm]);
        // Between margin and limit it does not rise again.
        assert_eq!(levels(&mut causes, &mut now, &[used(3200); 50]), [Level::Calm]);
        assert_eq!(levels(&mut causes, &mut now, &[used(3201)]), [Level::Moderate]);
    }

    #[test]
    fn a_short_dip_does_not_end_pressure() {
        let (mut causes, mut now) = (Causes::default(), 0);
        let dips: Vec<_> = (0..200).map(|n| used(if n % 10 == 0 { 4000 } else { 10 })).collect();
        assert_eq!(levels(&mut causes, &mut now, &dips), [Level::Moderate]);
    }

    #[test]
    fn another_limit_is_judged_anew() {
        let (mut causes, limit) = (Causes::default(), |soft| Limits { hard: None, soft });
        let mut level = |soft| causes.update(&used(100).0, limit(soft), System::default(), 1).0;
        assert_eq!(level(Some(99)), Level::Moderate);
        assert_eq!(level(Some(101)), Level::Calm);
        assert_eq!(level(Some(99)), Level::Moderate);
        assert_eq!(level(None), Level::Calm);
    }

    #[test]
    fn watermarks_end_pressure_one_mark_higher() {
        let (mut causes, mut now) = (Causes::default(), 0);
        let at = |low, below_high, none, all_low| {
            (Usage { low, below_high, none, all_low, ..Usage::default() }, System::default())
        };
        let mut run = |step| levels(&mut causes, &mut now, &[step; 20]);
        assert_eq!(run(at(true, true, true, true)), [Level::Critical]);
        assert_eq!(run(at(true, true, false, true)), [Level::Critical], "above MIN, below LOW");
        assert_eq!(run(at(false, true, false, false)), [Level::Critical, Level::Moderate]);
        assert_eq!(run(at(false, true, false, false)), [Level::Moderate], "above LOW, below HIGH");
        assert_eq!(run(at(false, false, false, false)), [Level::Moderate, Level::Calm]);
    }

    #[test]
    fn signals_of_the_system_hold_a_second() {
        let (mut causes, mut now) = (Causes::default(), 0);
        let system = |stalled, group| (Usage::default(), System { stalled, group });
        let mut run = |step| levels(&mut causes, &mut now, &[step; 20]);
        assert_eq!(run(system(true, None)), [Level::Moderate]);
        assert_eq!(run(system(false, Some(true))), [Level::Critical]);
        assert_eq!(run(system(false, Some(false))), [Level::Critical, Level::Moderate]);
        assert_eq!(run(system(false, None)), [Level::Moderate, Level::Calm]);
    }
}
