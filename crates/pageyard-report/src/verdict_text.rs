//! Verdicts as text, and their evidence as named numbers.

use core::fmt::{self, Display};

use crate::verdict::{Churn, Finding, FixedBy, Verdict};

/// A number with blanks between groups of three digits.
struct N(u64);

impl Display for N {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // From the largest group down; a `u64` has at most 20 digits.
        let mut unit = 1_000_000_000_000_000_000u64;
        let mut begun = false;
        while unit > 0 {
            let group = (self.0 / unit) % 1000;
            if begun {
                write!(f, " {group:03}")?;
            } else if group > 0 || unit == 1 {
                write!(f, "{group}")?;
                begun = true;
            }
            unit /= 1000;
        }
        Ok(())
    }
}

fn n(x: i32) -> N {
    N(x.max(0) as u64)
}

/// Thousandths as a percentage.
struct Percent(u32);

impl Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}%", self.0 / 10, self.0 % 10)
    }
}

/// A rate, rounded down to whole numbers. There are some even where that is 0.
struct Rate(u64);

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("<1"),
            n => N(n).fmt(f),
        }
    }
}

impl Display for Churn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Churn { pages, refills, drains } = *self;
        write!(
            f,
            "moves {} pages/s between its lists and the zone ({} refills/s, {} drains/s)",
            N(pages),
            Rate(refills),
            Rate(drains)
        )
    }
}

impl Display for FixedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FixedBy::Fraction(n) => {
                write!(f, "percpu_pagelist_high_fraction = {n} fixes it; 0 lets it grow")
            }
            FixedBy::Switch => f.write_str("pcp_autotune is off; 1 lets it grow"),
            FixedBy::Policy => f.write_str("the policy does not tune it"),
            FixedBy::Disabled => f.write_str("the lists are disabled"),
            FixedBy::Size => f.write_str("the zone is too small for more"),
        }
    }
}

/// "CPU 3: …", or for remote frees "CPU 3 refills and CPU 5 drains …".
impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.0;
        match self.finding {
            Finding::Settled { hits, kept, high } => write!(
                f,
                "CPU {cpu} is settled: hit rate {}, {} of its pages stay off the zone, high {}",
                Percent(hits),
                Percent(kept),
                n(high)
            ),
            Finding::RemoteFrees { from, to, others, migrate_type, pages, refilled, drained } => {
                let (mut first, mut second) = ("", "");
                if others > 1 {
                    let side = if self.cpu == from { &mut second } else { &mut first };
                    *side = " (and others)";
                }
                write!(
                    f,
                    "CPU {}{first} refills and CPU {}{second} drains {} pages/s of the same type \
                     ({migrate_type}): frees are remote; raising high will not help (refilled in \
                     all {}, drained {} pages/s)",
                    from.0,
                    to.0,
                    N(pages),
                    N(refilled),
                    N(drained)
                )
            }
            Finding::OneWay { fills, migrate_type, pages } => {
                let (does, not) =
                    if fills { ("allocates", "frees") } else { ("frees", "allocates") };
                write!(
                    f,
                    "CPU {cpu} {does} {} pages/s ({migrate_type}) more than anybody {not}: each \
                     passes the zone once; raising high will not help",
                    N(pages)
                )
            }
            Finding::ReclaimActive { churn, most } => write!(
                f,
                "CPU {cpu} {churn}: background reclaim is at work and keeps its lists to {} pages; \
                 memory is short, not high",
                n(most)
            ),
            Finding::FreeHighDrains { churn, pages, keeps_batch } => {
                let why = if keeps_batch {
                    "one batch is kept from them (FREE_HIGH_BATCH)"
                } else {
                    "FREE_HIGH_BATCH is not set: its share of the caches is small or unknown, or the \
                     policy has no such rule"
                };
                write!(
                    f,
                    "CPU {cpu} {churn}: runs of high-order frees drain {} pages/s; {why}",
                    N(pages)
                )
            }
            Finding::PinnedLow { churn, high, by } => {
                write!(f, "CPU {cpu} {churn}: high is fixed at {}; {by}", n(high))
            }
            Finding::BelowHigh { churn, high, free, mark } => write!(
                f,
                "CPU {cpu} {churn}: the zone is below its high watermark ({} pages free, {} \
                 wanted), so high ({}) may not grow",
                N(free),
                N(mark),
                n(high)
            ),
            Finding::Requested { churn, pages } => write!(
                f,
                "CPU {cpu} {churn}: explicit drains empty the lists of this zone, {} pages/s",
                N(pages)
            ),
            Finding::Sawtooth { churn, decayed, high } => write!(
                f,
                "CPU {cpu} {churn}: it works in bursts, and between them ticks drain {} pages/s; \
                 high ({}) does not last from one to the next",
                N(decayed),
                n(high)
            ),
            Finding::AtLimit { churn, high, high_max } => write!(
                f,
                "CPU {cpu} {churn}: high ({}) is at its limit of {}, an eighth of the zone shared by \
                 its CPUs; no setting raises that",
                n(high),
                n(high_max)
            ),
            Finding::Growing { churn, from, to } => write!(
                f,
                "CPU {cpu} {churn}: high has risen from {} to {}; the tuning is not done yet",
                n(from),
                n(to)
            ),
            Finding::Unsettled { churn, high } => {
                write!(f, "CPU {cpu} {churn}: no single cause stands out; high is {}", n(high))
            }
            Finding::Stranded { pages, free, ticks } => write!(
                f,
                "CPU {cpu} holds {} of the zone's {} free pages and allocates none ({} ticks)",
                n(pages),
                N(free),
                N(ticks)
            ),
            Finding::TickMissing { seconds, high, high_min } => write!(
                f,
                "CPU {cpu} has had no tick for {} s: high stays at {} instead of falling towards {}",
                N(seconds),
                n(high),
                n(high_min)
            ),
        }
    }
}

impl Finding {
    /// Returns the finding's name in data formats.
    pub const fn name(&self) -> &'static str {
        match self {
            Finding::Settled { .. } => "settled",
            Finding::RemoteFrees { .. } => "remote_frees",
            Finding::OneWay { .. } => "one_way",
            Finding::ReclaimActive { .. } => "reclaim_active",
            Finding::FreeHighDrains { .. } => "free_high_drains",
            Finding::PinnedLow { .. } => "pinned_low",
            Finding::BelowHigh { .. } => "below_high",
            Finding::Requested { .. } => "requested",
            Finding::Sawtooth { .. } => "sawtooth",
            Finding::AtLimit { .. } => "at_limit",
            Finding::Growing { .. } => "growing",
            Finding::Unsettled { .. } => "unsettled",
            Finding::Stranded { .. } => "stranded",
            Finding::TickMissing { .. } => "tick_missing",
        }
    }

    /// Passes its evidence to `tell` as named numbers, for data formats. Rates are per second,
    /// fractions in thousandths.
    pub fn evidence(&self, mut tell: impl FnMut(&'static str, u64)) {
        let of = |x: i32| x.max(0) as u64;
        match *self {
            Finding::Settled { hits, kept, high } => {
                tell("hits_permille", hits.into());
                tell("kept_permille", kept.into());
                tell("high", of(high));
            }
            Finding::RemoteFrees { from, to, others, migrate_type, pages, refilled, drained } => {
                tell("from_cpu", from.0.into());
                tell("to_cpu", to.0.into());
                tell("other_cpus", others.into());
                tell("migrate_type", migrate_type as u64);
                tell("pages_per_s", pages);
                tell("refilled_pages_per_s", refilled);
                tell("drained_pages_per_s", drained);
            }
            Finding::OneWay { fills, migrate_type, pages } => {
                tell("fills", fills.into());
                tell("migrate_type", migrate_type as u64);
                tell("pages_per_s", pages);
            }
            Finding::ReclaimActive { churn, most } => {
                churn.evidence(&mut tell);
                tell("most", of(most));
            }
            Finding::FreeHighDrains { churn, pages, keeps_batch } => {
                churn.evidence(&mut tell);
                tell("free_high_pages_per_s", pages);
                tell("keeps_batch", keeps_batch.into());
            }
            Finding::PinnedLow { churn, high, by } => {
                churn.evidence(&mut tell);
                tell("high", of(high));
                if let FixedBy::Fraction(n) = by {
                    tell("percpu_pagelist_high_fraction", n.into());
                }
            }
            Finding::BelowHigh { churn, high, free, mark } => {
                churn.evidence(&mut tell);
                tell("high", of(high));
                tell("free", free);
                tell("high_watermark", mark);
            }
            Finding::Requested { churn, pages } => {
                churn.evidence(&mut tell);
                tell("requested_pages_per_s", pages);
            }
            Finding::Sawtooth { churn, decayed, high } => {
                churn.evidence(&mut tell);
                tell("decayed_pages_per_s", decayed);
                tell("high", of(high));
            }
            Finding::AtLimit { churn, high, high_max } => {
                churn.evidence(&mut tell);
                tell("high", of(high));
                tell("high_max", of(high_max));
            }
            Finding::Growing { churn, from, to } => {
                churn.evidence(&mut tell);
                tell("high_before", of(from));
                tell("high", of(to));
            }
            Finding::Unsettled { churn, high } => {
                churn.evidence(&mut tell);
                tell("high", of(high));
            }
            Finding::Stranded { pages, free, ticks } => {
                tell("pages", of(pages));
                tell("free", free);
                tell("ticks", ticks);
            }
            Finding::TickMissing { seconds, high, high_min } => {
                tell("seconds", seconds);
                tell("high", of(high));
                tell("high_min", of(high_min));
            }
        }
    }
}

impl Churn {
    fn evidence(&self, tell: &mut impl FnMut(&'static str, u64)) {
        tell("pages_per_s", self.pages);
        tell("refills_per_s", self.refills);
        tell("drains_per_s", self.drains);
    }
}
