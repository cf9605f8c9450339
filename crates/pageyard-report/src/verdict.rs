//! Judges the tuning of a zone's per-CPU lists, CPU by CPU, and names what stands in its way. A
//! pure function of the counters before and after an interval.

use pageyard::policy::{Decay, Engine, Growth, Policy, Rules};
use pageyard::tuning::{FREE_HIGH_BATCH, Tuning};
use pageyard::{
    COSTLY_ORDER, Config, CpuId, CpuStats, DrainReason, Knobs, MAX_ORDER, MigrateType,
    PAGEBLOCK_ORDER, TYPES, Yard, ZoneId, ZoneInfo,
};

/// One CPU in one zone at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuSample {
    /// Its counters.
    pub stats: CpuStats,
    /// The tuning of its lists.
    pub tuning: Tuning,
}

/// All CPUs in one zone over an interval.
#[derive(Clone, Copy, Debug)]
pub struct Interval<'s> {
    /// The zone, at the end of the interval.
    pub zone: &'s ZoneInfo,
    /// The samples at the beginning, indexed by CPU number.
    pub before: &'s [CpuSample],
    /// The samples at the end, indexed by CPU number.
    pub after: &'s [CpuSample],
    /// The interval's length in nanoseconds. 0 (no clock) counts as one second. Use some seconds,
    /// so that the findings show whether the tick keeps up.
    pub ns: u64,
    /// The settings.
    pub knobs: &'s Knobs,
    /// The policy's rules.
    pub rules: &'s Rules,
}

/// A finding about a CPU's lists of one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The zone.
    pub zone: ZoneId,
    /// The CPU.
    pub cpu: CpuId,
    /// What was found.
    pub finding: Finding,
}

/// Traffic between a CPU's lists and the zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Churn {
    /// Pages per second, refilled plus drained.
    pub pages: u64,
    /// Refills per second.
    pub refills: u64,
    /// Bulk frees per second.
    pub drains: u64,
}

/// What fixes `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FixedBy {
    /// `percpu_pagelist_high_fraction`, with this value.
    Fraction(u32),
    /// `pcp_autotune` is off.
    Switch,
    /// The policy does not tune `high`.
    Policy,
    /// The per-CPU lists are disabled.
    Disabled,
    /// The size of the zone: it is so small that the upper and lower limit are equal (§5.4).
    Size,
}

/// A finding with its evidence. Pages are base pages; `high` is in pages.
///
/// A CPU that works gets one of the first twelve. The last two may be reported in addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The lists serve nearly all requests.
    Settled {
        /// Requests served without the zone, in thousandths.
        hits: u32,
        /// Pages allocated or freed that did not pass through the zone, in thousandths.
        kept: u32,
        /// `high` now.
        high: i32,
    },
    /// One CPU allocates what others free, so neither CPU's lists can help.
    RemoteFrees {
        /// The CPU that allocates and refills.
        from: CpuId,
        /// The CPU that frees and drains. If there are several, the one that frees most.
        to: CpuId,
        /// Number of CPUs on the other side of the judged CPU.
        others: u32,
        /// The type of the pages.
        migrate_type: MigrateType,
        /// Pages per second that take this path.
        pages: u64,
        /// Pages per second that `from` refills, of all types.
        refilled: u64,
        /// Pages per second that `to` drains, of all types.
        drained: u64,
    },
    /// Memory fills or empties: pages of a type are allocated and not freed, or freed and not
    /// allocated. Each page passes through the zone once.
    OneWay {
        /// Whether memory fills; otherwise it empties.
        fills: bool,
        /// The type of the pages.
        migrate_type: MigrateType,
        /// The excess of allocated over freed pages per second, or the reverse.
        pages: u64,
    },
    /// Background reclaim keeps the lists short (§5.10).
    ReclaimActive {
        /// The traffic.
        churn: Churn,
        /// The most pages that the lists hold meanwhile.
        most: i32,
    },
    /// High-order frees drain the lists (§5.9).
    FreeHighDrains {
        /// The traffic.
        churn: Churn,
        /// Pages per second that these drains free to the zone.
        pages: u64,
        /// Whether the policy keeps one batch on the lists (FREE_HIGH_BATCH, §5.13).
        keeps_batch: bool,
    },
    /// `high` is fixed and too low for the work.
    PinnedLow {
        /// The traffic.
        churn: Churn,
        /// The value of `high`.
        high: i32,
        /// What fixes it.
        by: FixedBy,
    },
    /// The zone is below its high watermark, so `high` must not grow (§5.8, §5.10).
    BelowHigh {
        /// The traffic.
        churn: Churn,
        /// `high` now.
        high: i32,
        /// Free pages.
        free: u64,
        /// The high watermark.
        mark: u64,
    },
    /// The lists are drained on request again and again (§5.16).
    Requested {
        /// The traffic.
        churn: Churn,
        /// Pages per second drained on request in the zone.
        pages: u64,
    },
    /// Work comes in bursts. Between bursts, ticks drain pages that the next burst refills (§5.14,
    /// §5.15).
    Sawtooth {
        /// The traffic.
        churn: Churn,
        /// Pages per second that ticks drain.
        decayed: u64,
        /// `high` now.
        high: i32,
    },
    /// `high` is at its upper limit and too low for the work.
    AtLimit {
        /// The traffic.
        churn: Churn,
        /// `high` now.
        high: i32,
        /// Its limit.
        high_max: i32,
    },
    /// `high` is still rising: the tuning has not settled yet.
    Growing {
        /// The traffic.
        churn: Churn,
        /// `high` at the beginning.
        from: i32,
        /// `high` now.
        to: i32,
    },
    /// Refills and drains continue for none of these reasons.
    Unsettled {
        /// The traffic.
        churn: Churn,
        /// `high` now.
        high: i32,
    },
    /// Pages are cached on a CPU that allocates nothing.
    Stranded {
        /// Pages on its lists.
        pages: i32,
        /// Free pages of the zone, including those on per-CPU lists.
        free: u64,
        /// Ticks of the CPU during the interval.
        ticks: u64,
    },
    /// `high` is above its lower limit and the CPU works, but no tick arrives to lower it.
    TickMissing {
        /// Seconds without a tick.
        seconds: u64,
        /// `high` now.
        high: i32,
        /// Its lower limit.
        high_min: i32,
    },
}

/// Fewer pages than this number of batches are inconclusive. A cold list's refills double from one
/// batch to 16 (§5.8), which is start-up and not a steady state.
const LEAST_BATCHES: u64 = 16;
/// Settled lists pass at most one page in this many on to the zone. A page that bounces counts once
/// on each side, so work that the lists do not help at all has a ratio of one in one. Decay costs a
/// busy CPU an eighth of its lists per second, far below one in ten.
const SETTLED: u64 = 10;
/// Pages count as stranded from this fraction of the zone's free memory: one page in a hundred
/// would be missed.
const STRANDED: u64 = 100;
/// Single ticks may be late; this many in a row are missing.
const TICKS_MISSED: u64 = 3;

impl Interval<'_> {
    /// Judges every CPU and passes each verdict to `tell`. A CPU that did too little gets none, and
    /// so do all on the packed engine, whose magazines have a fixed size.
    ///
    /// Where `before` and `after` differ in length, CPUs missing from either are skipped.
    pub fn verdicts(&self, mut tell: impl FnMut(Verdict)) {
        if self.rules.engine == Engine::Packed {
            return;
        }
        let zone = ZoneId { node: self.zone.node, kind: self.zone.kind };
        for number in 0..self.cpus() {
            let cpu = CpuId(number as u32);
            let Some(work) = self.work(number) else { continue };
            let judged = if work.is_enough() { self.judge(number, &work) } else { None };
            let found = [judged, self.stranded(&work), self.tick_missing(&work)];
            for finding in found.into_iter().flatten() {
                tell(Verdict { zone, cpu, finding });
            }
        }
    }

    fn cpus(&self) -> usize {
        self.before.len().min(self.after.len())
    }

    /// Returns what a CPU did, if both samples exist.
    fn work(&self, cpu: usize) -> Option<Work> {
        let (before, after) = (self.before.get(cpu)?, self.after.get(cpu)?);
        let stats = after.stats.since(&before.stats);
        let pages = |rows: &[[u64; TYPES]]| -> u64 {
            let rows = rows.iter().zip(0u8..).filter(|&(_, o)| self.is_cached(o));
            rows.map(|(row, o)| row.iter().fold(0, |a: u64, n| a.saturating_add(n << o))).sum()
        };
        let requested = pages(&stats.allocs.0).saturating_add(pages(&stats.frees.0));
        Some(Work { stats, requested, before: before.tuning, after: after.tuning })
    }

    fn is_cached(&self, order: u8) -> bool {
        let high_order = order <= COSTLY_ORDER || order == PAGEBLOCK_ORDER;
        order == 0 || self.rules.high_order_lists && high_order
    }

    /// Returns the pages of a type that a CPU allocated minus those it freed, in orders that lists
    /// keep.
    fn net(&self, cpu: usize, t: MigrateType) -> i64 {
        let (Some(b), Some(a)) = (self.before.get(cpu), self.after.get(cpu)) else { return 0 };
        let of = |rows: &[[u64; TYPES]], o: usize| {
            rows.get(o).and_then(|row| row.get(t as usize)).copied().unwrap_or(0)
        };
        let mut net = 0i64;
        for order in (0..=MAX_ORDER).filter(|&o| self.is_cached(o)) {
            let o = usize::from(order);
            let allocs = of(&a.stats.allocs.0, o).wrapping_sub(of(&b.stats.allocs.0, o));
            let frees = of(&a.stats.frees.0, o).wrapping_sub(of(&b.stats.frees.0, o));
            net = net.wrapping_add((allocs.wrapping_sub(frees) << order) as i64);
        }
        net
    }

    fn judge(&self, cpu: usize, work: &Work) -> Option<Finding> {
        if work.is_settled() {
            let requests = work.stats.hits().saturating_add(work.stats.refills);
            return Some(Finding::Settled {
                hits: thousandths(work.stats.hits(), requests),
                kept: thousandths(work.requested - work.passed(), work.requested),
                high: work.after.high,
            });
        }
        match self.one_way(cpu, work) {
            Some(t) => self.imbalance(cpu, t),
            None => Some(self.local(work)),
        }
    }

    /// Returns the type with the largest net flow in one direction, if that is at least half of a
    /// CPU's traffic with the zone.
    fn one_way(&self, cpu: usize, work: &Work) -> Option<MigrateType> {
        let net = |t: &MigrateType| self.net(cpu, *t).unsigned_abs();
        let most = MigrateType::ALL.into_iter().max_by_key(net)?;
        (net(&most).saturating_mul(2) >= work.passed()).then_some(most)
    }

    /// Judges a CPU that allocates more of a type than it frees, or less: another CPU may balance
    /// it.
    fn imbalance(&self, cpu: usize, t: MigrateType) -> Option<Finding> {
        let own = self.net(cpu, t);
        let opposite = |of: usize, own: i64| {
            let net = self.net(of, t);
            if net.signum() == -own.signum() { net.unsigned_abs() } else { 0 }
        };
        let others = || (0..self.cpus()).filter(|&c| c != cpu).map(|c| (opposite(c, own), c));
        let total = others().fold(0u64, |sum, (n, _)| sum.saturating_add(n));
        let flow = own.unsigned_abs().min(total);
        let partner = others().max_by_key(|&(n, c)| (n, core::cmp::Reverse(c)));
        let fills = own > 0;
        let Some((most, partner)) =
            partner.filter(|_| flow.saturating_mul(2) >= own.unsigned_abs())
        else {
            let pages = self.rate(own.unsigned_abs());
            return Some(Finding::OneWay { fills, migrate_type: t, pages });
        };
        // Report the pair once, unless the partner's own largest partner is another CPU.
        let theirs = self.net(partner, t);
        let back = (0..self.cpus())
            .filter(|&c| c != partner)
            .map(|c| (opposite(c, theirs), c))
            .max_by_key(|&(n, c)| (n, core::cmp::Reverse(c)));
        if !fills && back.is_some_and(|(_, c)| c == cpu) && self.is_judged_remote(partner, t) {
            return None;
        }
        let (from, to) = if fills { (cpu, partner) } else { (partner, cpu) };
        let moved = |c: usize, pages: fn(&Work) -> u64| self.work(c).map_or(0, |w| pages(&w));
        Some(Finding::RemoteFrees {
            from: CpuId(from as u32),
            to: CpuId(to as u32),
            // A CPU whose flow is below a tenth of the largest one is not counted.
            others: others().filter(|&(n, _)| n > 0 && n >= most / 10).count() as u32,
            migrate_type: t,
            pages: self.rate(flow),
            refilled: self.rate(moved(from, |w| w.stats.refilled_pages)),
            drained: self.rate(moved(to, |w| w.stats.all_drained_pages())),
        })
    }

    /// Returns whether a CPU gets a verdict of its own for its imbalance in this type.
    fn is_judged_remote(&self, cpu: usize, t: MigrateType) -> bool {
        self.work(cpu).is_some_and(|work| {
            work.is_enough() && !work.is_settled() && self.one_way(cpu, &work) == Some(t)
        })
    }

    /// Explains why pages pass through the zone although the CPU that allocates them also frees
    /// them.
    fn local(&self, work: &Work) -> Finding {
        let s = &work.stats;
        let churn = Churn {
            pages: self.rate(work.passed()),
            refills: self.rate(s.refills),
            drains: self.rate(s.all_drains()),
        };
        let Tuning { high, limits, .. } = work.after;
        let by = |reason: DrainReason| s.drained_pages.get(reason as usize).copied().unwrap_or(0);
        let most_of = |pages: u64| pages > 0 && pages.saturating_mul(2) >= s.all_drained_pages();
        if self.zone.reclaim_active {
            let most = limits.batch.saturating_mul(4).min(high);
            return Finding::ReclaimActive { churn, most };
        }
        if most_of(by(DrainReason::FreeHigh)) {
            let keeps_batch = work.after.flags & FREE_HIGH_BATCH != 0;
            let pages = self.rate(by(DrainReason::FreeHigh));
            return Finding::FreeHighDrains { churn, pages, keeps_batch };
        }
        // Drains are counted on the CPU that requests them, so sum over the whole zone.
        let requested = (0..self.cpus())
            .filter_map(|c| self.work(c))
            .map(|w| w.stats.drained_pages.get(DrainReason::Drain as usize).copied().unwrap_or(0))
            .fold(0, u64::saturating_add);
        if most_of(requested) {
            return Finding::Requested { churn, pages: self.rate(requested) };
        }
        if limits.high_max <= limits.high_min {
            return Finding::PinnedLow { churn, high, by: self.fixed_by(work) };
        }
        if self.zone.below_high {
            let [_, _, mark, _] = self.zone.watermarks;
            let mark = mark.saturating_add(self.zone.boost);
            return Finding::BelowHigh { churn, high, free: self.zone.free, mark };
        }
        let ticks = by(DrainReason::Decay).saturating_add(by(DrainReason::Expire));
        if most_of(ticks) {
            return Finding::Sawtooth { churn, decayed: self.rate(ticks), high };
        }
        // A tick may just have taken an eighth.
        if high >= limits.high_max - (limits.high_max >> 3) {
            return Finding::AtLimit { churn, high, high_max: limits.high_max };
        }
        if high > work.before.high {
            return Finding::Growing { churn, from: work.before.high, to: high };
        }
        Finding::Unsettled { churn, high }
    }

    fn fixed_by(&self, work: &Work) -> FixedBy {
        let limits = work.after.limits;
        if limits.high_max == 0 {
            FixedBy::Disabled
        } else if matches!(self.rules.pcp.growth, Growth::Fixed) {
            FixedBy::Policy
        } else if self.knobs.percpu_pagelist_high_fraction != 0 {
            FixedBy::Fraction(self.knobs.percpu_pagelist_high_fraction)
        } else if !self.knobs.pcp_autotune {
            FixedBy::Switch
        } else {
            FixedBy::Size
        }
    }

    fn stranded(&self, work: &Work) -> Option<Finding> {
        let asked = work.stats.allocs.blocks() > work.stats.direct_allocs;
        let pages = work.after.count;
        let free = self.zone.free_exact.saturating_add(self.zone.cached);
        let held = pages.max(0) as u64;
        (!asked && held > 0 && held.saturating_mul(STRANDED) >= free).then_some(Finding::Stranded {
            pages,
            free,
            ticks: work.stats.ticks,
        })
    }

    fn tick_missing(&self, work: &Work) -> Option<Finding> {
        let Tuning { high, limits, .. } = work.after;
        let decays = !matches!(self.rules.pcp.decay, Decay::None);
        let due = self.knobs.stat_interval.saturating_mul(TICKS_MISSED);
        let seconds = self.ns / NS;
        // An idle CPU may sleep through its ticks, as in the kernel; a CPU that works gets them.
        (decays
            && work.requested > 0
            && work.stats.ticks == 0
            && seconds >= due
            && work.before.high > limits.high_min
            && high > limits.high_min)
            .then_some(Finding::TickMissing { seconds, high, high_min: limits.high_min })
    }

    /// Converts a count to a rate per second, rounded.
    fn rate(&self, n: u64) -> u64 {
        let ns = u128::from(if self.ns == 0 { NS } else { self.ns });
        let rate = (u128::from(n) * u128::from(NS) + ns / 2).checked_div(ns).unwrap_or(0);
        rate.min(u64::MAX.into()) as u64
    }
}

const NS: u64 = 1_000_000_000;

impl CpuSample {
    /// Returns the current sample of one CPU in a zone; `None` if the zone or CPU does not exist.
    pub fn of<C: Config>(
        yard: &Yard<'_, C>,
        zone: impl Into<ZoneId>,
        cpu: CpuId,
    ) -> Option<CpuSample> {
        let zone = zone.into();
        let (stats, tuning) = (yard.cpu_stats(zone, cpu)?, yard.pageset(zone, cpu)?);
        Some(CpuSample { stats, tuning })
    }
}

/// Judges the tuning of all CPUs' lists of a zone between two moments. `before` and `after` hold
/// each CPU's samples, indexed by CPU number and taken `ns` nanoseconds apart. Returns whether the
/// zone exists. See [`Interval`].
pub fn verdicts<C: Config>(
    yard: &Yard<'_, C>,
    zone: impl Into<ZoneId>,
    before: &[CpuSample],
    after: &[CpuSample],
    ns: u64,
    tell: impl FnMut(Verdict),
) -> bool {
    let Some(zone) = yard.zone_info(zone) else { return false };
    let (knobs, policy) = (yard.knobs(), yard.policy());
    let rules = policy.rules();
    Interval { zone: &zone, before, after, ns, knobs: &knobs, rules }.verdicts(tell);
    true
}

/// What one CPU did in the interval.
struct Work {
    stats: CpuStats,
    /// Pages that it allocated and freed, in orders that lists keep.
    requested: u64,
    before: Tuning,
    after: Tuning,
}

impl Work {
    /// Whether a CPU did enough for a verdict on its lists.
    fn is_enough(&self) -> bool {
        self.requested >= LEAST_BATCHES * self.after.limits.batch.max(1) as u64
    }

    /// Whether its lists served most of that without the zone.
    fn is_settled(&self) -> bool {
        self.passed().saturating_mul(SETTLED) <= self.requested
    }

    /// Pages that its lists refilled from the zone and drained to it.
    fn passed(&self) -> u64 {
        self.stats.refilled_pages.saturating_add(self.stats.all_drained_pages())
    }
}

fn thousandths(part: u64, of: u64) -> u32 {
    (u128::from(part) * 1000).checked_div(of.into()).unwrap_or(1000) as u32
}
