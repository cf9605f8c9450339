//! The report as text: both series side by side, next to the published ones.

use std::fmt;

use serde::Serialize;

use super::published::PUBLISHED;
use super::{Report, Round, Series};
use crate::stats;

/// The round from which the published series with the patches stays at `SETTLED` steals or fewer
/// (A.3).
const SETTLED_BY: usize = 14;
const SETTLED: u64 = 3;
/// Number of final rounds that are checked for rounds without any steal (A.3).
const LAST: usize = 30;

/// Summary statistics of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The first round, counted from 1, from which no round has more than 3 steals; `None` if the
    /// last round has more.
    pub settled_from: Option<usize>,
    /// Number of rounds without a steal among the last 30.
    pub without_steal: usize,
    /// Number of rounds that `without_steal` covers.
    pub last: usize,
    /// Like `settled_from`, for the sum of steals and claims.
    pub fallbacks_settled_from: Option<usize>,
    /// Fallbacks (steals and claims) per round: mean and median.
    pub fallbacks: [f64; 2],
    /// Steals per round: mean and median.
    pub steals: [f64; 2],
    /// Mismatches per round: mean and median.
    pub mismatches: [f64; 2],
    /// Mismatches that are not steals, over all rounds.
    pub beyond_steals: u64,
    /// List operations in which the types of block and list differed, over all rounds and the
    /// initial fill.
    pub type_check_failures: u64,
}

impl Summary {
    fn of(series: &[[u64; 3]], type_check_failures: u64) -> Summary {
        let last = series.len().min(LAST);
        let column = |i: usize| series.iter().map(|s| s[i]).collect::<Vec<u64>>();
        let (steals, fallbacks, mismatches) = (column(0), column(1), column(2));
        let settled_from = |values: &[u64]| {
            let unsettled = values.iter().rposition(|&n| n > SETTLED);
            Some(unsettled.map_or(1, |at| at + 2)).filter(|&from| from <= values.len())
        };
        Summary {
            settled_from: settled_from(&steals),
            fallbacks_settled_from: settled_from(&fallbacks),
            fallbacks: mean_and_median(&fallbacks),
            without_steal: steals[steals.len() - last..].iter().filter(|&&s| s == 0).count(),
            last,
            steals: mean_and_median(&steals),
            mismatches: mean_and_median(&mismatches),
            beyond_steals: series.iter().map(|&[s, _, m]| m.saturating_sub(s)).sum(),
            type_check_failures,
        }
    }
}

fn mean_and_median(values: &[u64]) -> [f64; 2] {
    if values.is_empty() {
        return [0.0; 2];
    }
    let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
    [mean, stats::median(&values.iter().map(|&v| v as f64).collect::<Vec<_>>())]
}

impl Series {
    /// Computes the summary of the rounds.
    pub fn summary(&self) -> Summary {
        let rounds: Vec<_> =
            self.rounds.iter().map(|r| [r.steals, r.fallbacks(), r.mismatches]).collect();
        let failures = self.rounds.iter().chain([&self.start]).map(|r| r.type_check_failures);
        Summary::of(&rounds, failures.sum())
    }
}

/// A statement about the published series, checked against this run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// The statement.
    pub text: String,
    /// Whether it holds here; `None` if there are too few rounds.
    pub holds: Option<bool>,
}

impl Report {
    /// Checks this run against the guarantees of the patches and of §4.8, and against the shape of
    /// the published series (A.3). What `Vanilla` meets as well says nothing about the patches and is
    /// left out.
    pub fn claims(&self) -> Vec<Claim> {
        let (v, l) = (self.vanilla.summary(), self.linux612.summary());
        let rounds = self.linux612.rounds.len();
        let claim = |text: &str, holds| Claim { text: text.into(), holds };
        // Of one policy: not a claim where the other one meets it too.
        let patched = |text: &str, least: usize, holds: fn(&Summary) -> bool| {
            let holds = [&v, &l].map(|s| (rounds >= least).then(|| holds(s)));
            (holds[0] != Some(true)).then(|| claim(text, holds[1]))
        };
        let enough = |least: usize, holds: bool| (rounds >= least).then_some(holds);
        let late = |s: &Series| s.rounds.iter().skip(SETTLED_BY - 1).copied().collect::<Vec<_>>();
        let sum = |s: &Series, f: fn(&Round) -> u64| late(s).iter().map(f).sum::<u64>();
        let steals = [&self.vanilla, &self.linux612].map(|s| sum(s, |r| r.steals));
        let fallbacks = [&self.vanilla, &self.linux612].map(|s| sum(s, Round::fallbacks));
        let mismatches = [&self.vanilla, &self.linux612].map(|s| sum(s, |r| r.mismatches));
        let going_on = |s: &Series| {
            let last = s.rounds.iter().rev().take(LAST);
            last.filter(|r| r.mismatches > 0).count() * 2 > LAST
        };
        let of_patches = [
            patched("Linux612: no list operation on the wrong list", 0, |s| {
                s.type_check_failures == 0
            }),
            patched("Linux612: no mismatches beyond steals", 0, |s| s.beyond_steals == 0),
            patched("Linux612: at most 3 steals per round from round 14", SETTLED_BY, |s| {
                s.settled_from.is_some_and(|r| r <= SETTLED_BY)
            }),
            patched(
                "Linux612: at most 3 fallbacks (with claims) per round from round 14",
                SETTLED_BY,
                |s| s.fallbacks_settled_from.is_some_and(|r| r <= SETTLED_BY),
            ),
            patched("Linux612: most of the last 30 rounds without a steal", LAST, |s| {
                s.without_steal * 2 > s.last
            }),
        ];
        let mut claims: Vec<Claim> = of_patches.into_iter().flatten().collect();
        claims.extend([
            claim(
                "from round 14 Vanilla has more mismatches than Linux612",
                enough(SETTLED_BY, mismatches[0] > mismatches[1]),
            ),
            claim(
                "mismatches in most of the last 30 rounds under Vanilla, not under Linux612",
                enough(LAST, going_on(&self.vanilla) && !going_on(&self.linux612)),
            ),
            claim(
                "from round 14 Vanilla has more steals than Linux612",
                enough(SETTLED_BY, steals[0] > steals[1]),
            ),
            claim(
                "from round 14 Vanilla has more fallbacks than Linux612",
                enough(SETTLED_BY, fallbacks[0] > fallbacks[1]),
            ),
        ]);
        claims
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "hygiene: {} rounds of kernel build, cache server and huge pages on one heap of {}, \
             {} CPUs, seed {}\n\
             \x20 simulated machine: reclaims page cache and slabs, compacts, no swap\n\
             \x20 a steal keeps the pageblock's type, a claim changes it; both are fallbacks, which \
             were published as \"steals\" (4.10, A.3)\n",
            self.linux612.rounds.len(),
            crate::format::size(self.memory),
            self.cpus,
            self.seed
        )?;
        self.rounds(f)?;
        writeln!(f)?;
        self.summaries(f)?;
        writeln!(f)?;
        for claim in self.claims() {
            let holds = match claim.holds {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "-",
            };
            writeln!(f, "  {holds:>3}  {}", claim.text)?;
        }
        self.counts(f)
    }
}

impl Report {
    fn rounds(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut marks = [0; 4];
        let row = |i: usize| {
            let (v, l) = (&self.vanilla.rounds[i], &self.linux612.rounds[i]);
            [v.steals, l.steals, v.mismatches, l.mismatches]
        };
        let fallbacks = |s: &Series, i: usize| s.rounds[i].fallbacks();
        let count = self.vanilla.rounds.len().min(self.linux612.rounds.len());
        for i in 0..count {
            for (most, n) in marks.iter_mut().zip(row(i)) {
                *most = n.max(*most);
            }
        }
        let steals = marks[0].max(marks[1]);
        let mismatches = marks[2].max(marks[3]);
        writeln!(
            f,
            "{:5} | {:^39} | {:^16} | {:^39} |    published (A.3)",
            "", "steals", "fallbacks", "mismatches"
        )?;
        writeln!(
            f,
            "{:5} | {:>7} {:11} {:>8} {:10} | {:>7} {:>8} | {:>7} {:11} {:>8} {:10} | {:>14} {:>14}",
            "round",
            "Vanilla",
            "",
            "Linux612",
            "",
            "Vanilla",
            "Linux612",
            "Vanilla",
            "",
            "Linux612",
            "",
            "fallbacks",
            "mismatches"
        )?;
        for i in 0..count {
            let [vs, ls, vm, lm] = row(i);
            write!(
                f,
                "{:5} | {vs:7} {:11} {ls:8} {:10} | {:7} {:8} | {vm:7} {:11} {lm:8} {:10} |",
                i + 1,
                bar(vs, steals),
                bar(ls, steals),
                fallbacks(&self.vanilla, i),
                fallbacks(&self.linux612, i),
                bar(vm, mismatches),
                bar(lm, mismatches)
            )?;
            match PUBLISHED.get(i) {
                Some(p) => writeln!(
                    f,
                    " {:>8} {:>5} {:>9} {:>4}",
                    p.vanilla_steals, p.patched_steals, p.vanilla_mismatches, p.patched_mismatches
                )?,
                None => writeln!(f)?,
            }
        }
        writeln!(f, "        bars: logarithmic, ten # for the largest of both columns")
    }

    fn summaries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let published =
            |pick: fn(&super::Published) -> (u64, u64)| Summary::of(&fallbacks_alone(pick), 0);
        let columns = [
            self.vanilla.summary(),
            self.linux612.summary(),
            published(|p| (p.vanilla_steals, p.vanilla_mismatches)),
            published(|p| (p.patched_steals, p.patched_mismatches)),
        ];
        writeln!(
            f,
            "{:42} {:>10} {:>10} {:>18} {:>18}",
            "", "Vanilla", "Linux612", "published, before", "published, after"
        )?;
        let mut row = |label: &str, text: fn(&Summary) -> String, computed_only: bool| {
            write!(f, "{label:42}")?;
            for (i, s) in columns.iter().enumerate() {
                let width = if i < 2 { 10 } else { 18 };
                let text = if computed_only && i >= 2 { "-".into() } else { text(s) };
                write!(f, " {text:>width$}")?;
            }
            writeln!(f)
        };
        let settled = |s: &Summary| s.settled_from.map_or("never".into(), |r| r.to_string());
        row("at most 3 steals per round, from round", settled, true)?;
        let settled =
            |s: &Summary| s.fallbacks_settled_from.map_or("never".into(), |r| r.to_string());
        row("at most 3 fallbacks per round, from round", settled, false)?;
        let without = |s: &Summary| format!("{} of {}", s.without_steal, s.last);
        row("rounds without a steal, of the last 30", without, true)?;
        row("steals per round, mean", |s| format!("{:.1}", s.steals[0]), true)?;
        row("steals per round, median", |s| format!("{:.1}", s.steals[1]), true)?;
        row("fallbacks per round, mean", |s| format!("{:.1}", s.fallbacks[0]), false)?;
        row("fallbacks per round, median", |s| format!("{:.1}", s.fallbacks[1]), false)?;
        row("mismatches per round, mean", |s| format!("{:.1}", s.mismatches[0]), false)?;
        row("mismatches per round, median", |s| format!("{:.1}", s.mismatches[1]), false)?;
        row("mismatches beyond steals, all rounds", |s| s.beyond_steals.to_string(), true)?;
        row(
            "blocks on the wrong list (4.8), all rounds",
            |s| s.type_check_failures.to_string(),
            true,
        )
    }

    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for s in [&self.vanilla, &self.linux612] {
            let sum = |of: fn(&Round) -> u64| s.rounds.iter().map(of).sum::<u64>();
            writeln!(
                f,
                "{:9} {} requests ({} failed), {} huge pages allocated and {} failed, {} pages \
                 reclaimed in the background and {} directly, {} claims;\n\
                 \x20         {} blocks allocated from another type's pageblock, per-CPU lists \
                 included; pageblocks at the end: {} unmovable, {} movable, {} reclaimable",
                s.policy,
                sum(|r| r.requests),
                sum(|r| r.failed),
                sum(|r| r.huge),
                sum(|r| r.huge_missed),
                sum(|r| r.reclaimed),
                sum(|r| r.reclaimed_directly),
                sum(|r| r.claims),
                sum(|r| r.mixed),
                s.pageblocks[0],
                s.pageblocks[1],
                s.pageblocks[2]
            )?;
        }
        Ok(())
    }
}

/// Converts a published series into rounds: its column of steals counts fallbacks.
fn fallbacks_alone(pick: fn(&super::Published) -> (u64, u64)) -> Vec<[u64; 3]> {
    let row = |(fallbacks, mismatches)| [fallbacks, fallbacks, mismatches];
    PUBLISHED.iter().map(pick).map(row).collect()
}

/// Returns a logarithmic bar: its length is proportional to the number's binary digits, ten marks
/// for the largest.
fn bar(n: u64, most: u64) -> String {
    let digits = |n: u64| (u64::BITS - n.leading_zeros()) as usize;
    let most = digits(most).max(1);
    "#".repeat((digits(n) * 10).div_ceil(most).min(10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_of_the_published_series() {
        let of = |pick: fn(&super::super::Published) -> (u64, u64)| {
            Summary::of(&fallbacks_alone(pick), 0)
        };
        let patched = of(|p| (p.patched_steals, p.patched_mismatches));
        assert_eq!((patched.settled_from, patched.without_steal), (Some(14), 20));
        assert_eq!(patched.steals[1], 1.0);
        let vanilla = of(|p| (p.vanilla_steals, p.vanilla_mismatches));
        assert_eq!((vanilla.settled_from, vanilla.steals[1]), (None, 1328.0));
    }

    #[test]
    fn bars() {
        assert_eq!(bar(0, 1000), "");
        assert_eq!(bar(1000, 1000), "##########");
        assert!(bar(1, 1000).len() < bar(30, 1000).len());
        assert_eq!(bar(0, 0), "");
    }
}
