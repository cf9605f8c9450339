//! The series under kernel builds.
//!
//! The build runs with its memory, not its CPUs, bound to one node (`numactl -m 1`), unbound, and in
//! eight groups, as published. Steps without a published figure do not run.

use super::super::agree::{Column, Kind};
use super::super::error::ReproduceError;
use super::super::experiment::{Experiment, Run, Scale};
use super::super::outcome::{Claim, Comparison, Outcome};
use super::super::simulated::{Found, Simulated};
use super::{POLICIES, Parameters, STEPS, Step, steps};
use crate::workload::STATIONARY;

/// Two processors of 112 CPUs each.
const MACHINE: &str = "2x56";

/// Seconds of the idle phase after a build. Assumed: by how much memory in use falls is published, not
/// how soon.
const IDLE: &str = "60";

/// Objects per job before the measured ones, for all steps: one that is measured later finds more
/// memory in use. A claim says whether the lists of all steps were stationary by then.
const WARM: &str = "30";

/// Measured objects per job. At the end of a build, jobs run out of objects one after the other; the more
/// objects, the smaller a part of the build that is. (The published builds have 241.)
const OBJECTS: &str = "16";

const fn kbuild(time: f64, lock: f64, free_high: f64, pages: f64) -> Step {
    [Some(time), Some(lock), Some(free_high), Some(pages), None]
}

/// A step without published figures.
const NONE: Step = [None; 5];

/// `numactl -m 1 -- make -j112`: 112 jobs on 224 CPUs, with the memory of one node.
const BOUND: [Step; 7] = [
    kbuild(100.0, 43.6, 100.0, 100.0),
    kbuild(96.6, 40.3, 49.2, 95.2),
    kbuild(96.4, 40.5, 11.3, 95.1),
    kbuild(96.1, 37.9, 13.3, 96.8),
    kbuild(86.4, 9.8, 6.2, 22.0),
    kbuild(85.9, 9.4, 4.8, 16.3),
    kbuild(87.7, 12.6, 29.0, 32.3),
];

/// `-j224`, unbound.
const UNBOUND: [Step; 7] = [
    kbuild(100.0, 16.8, 100.0, 100.0),
    NONE,
    NONE,
    kbuild(99.2, 13.9, 9.5, 97.0),
    kbuild(98.5, 5.4, 4.8, 19.2),
    NONE,
    NONE,
];

/// Eight groups of `-j28`, from the second version of the series.
const GROUPS: [Step; 7] = [
    kbuild(100.0, 13.5, 100.0, 100.0),
    kbuild(99.2, 10.6, 19.2, 95.6),
    kbuild(99.2, 11.7, 7.1, 95.6),
    kbuild(98.4, 10.0, 8.2, 97.1),
    kbuild(94.9, 0.7, 3.0, 19.0),
    kbuild(94.9, 0.6, 2.7, 15.0),
    kbuild(94.9, 0.9, 8.8, 18.6),
];

/// The same groups, from the first version.
const FIRST_GROUPS: [Step; 7] = [
    kbuild(100.0, 14.2, 100.0, 100.0),
    NONE,
    NONE,
    kbuild(98.5, 8.5, 8.1, 97.1),
    kbuild(95.0, 0.7, 3.0, 19.0),
    NONE,
    NONE,
];

/// The most memory in use, in percent of base, where published: up to 1.5 times.
const PEAK: f64 = 150.6;

/// A build: its title, the published figures by their version, its parameters.
type Build<'b> = (&'b str, &'b [(&'b str, &'b [Step; 7])], Parameters<'b>);

pub(in super::super) const EXPERIMENT: Experiment = Experiment {
    name: "auto-tuning",
    summary: "self-tuning lists: the effect of each step on a kernel build's time, zone lock and memory",
    source: "A.4",
    simulated: true,
    anchors: &[],
    run,
};

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let mut outcome = Outcome::default();
    let objects = ("objects", if small { "1" } else { OBJECTS });
    let warm = ("warm", if small { "1" } else { WARM });
    let idle = ("idle", if small { "1" } else { IDLE });
    let builds: [Build<'_>; 3] = [
        (
            "kbuild -j112, memory of node 1",
            &[("", &BOUND)],
            &[("jobs", "112"), ("memory", "node:1"), objects, warm, idle],
        ),
        ("kbuild -j224, unbound", &[("", &UNBOUND)], &[objects, warm, idle]),
        (
            "kbuild, 8 groups of -j28",
            &[(" (V2)", &GROUPS), (" (V1)", &FIRST_GROUPS)],
            &[("groups", "8"), objects, warm, idle],
        ),
    ];
    for (title, seeds, set) in &builds[..if small { 1 } else { 3 }] {
        let published = |step: &usize| seeds.iter().any(|(_, seed)| seed[*step] != NONE);
        let rows: Vec<usize> = (0..STEPS.len()).filter(published).collect();
        let policies: Vec<_> = rows.iter().map(|&step| POLICIES[step]).collect();
        let build =
            Simulated { machine: MACHINE, policies: &policies, ..steps("kbuild", set, small) };
        let found = build.run(run, title)?;
        outcome.claims.extend(warmed_up(&found, title));
        memory(&found, title, &mut outcome.claims);
        for (version, seed) in *seeds {
            outcome.tables.push(table(&format!("{title}{version}"), seed, &rows, &found));
        }
        run.show(&outcome.tables)?;
    }
    outcome.notes.push(
        "time: that in which all jobs are busy. What follows, the last objects and the linker, is a \
         small part of the published builds, with 241 objects per job, and a larger one of these. The work \
         between two page faults is derived from another build's page faults per CPU-second. The \
         share of memory that has been in use before is assumed. lock: the zones' and the LRU's, as \
         the published column counts mostly, but not only, zone locks; LRU is the latter's part."
            .into(),
    );
    Ok(outcome)
}

/// Compares a build of the steps in `rows` with one version of their published figures.
fn table(title: &str, seed: &[Step; 7], rows: &[usize], found: &Found) -> Comparison {
    let published = |i: usize| rows.iter().map(|&step| seed[step][i]).collect::<Vec<_>>();
    let columns = vec![
        found.column("time", "", Kind::Index, "busy_time", &published(0)),
        Column::new("lock", "%", Kind::Plain, &published(1), &found.sum("zone_lock", "lru_lock")),
        found.column("LRU", "%", Kind::Plain, "lru_lock", &vec![None; rows.len()]),
        found.column("free_high", "", Kind::Index, "free_high", &published(2)),
        found.column("zone pages", "", Kind::Index, "zone_pages", &published(3)),
    ];
    found.compare(title, rows.iter().map(|&step| STEPS[step]), columns)
}

/// Claims that the lists of no step still grew or shrank when the measurement began. `None` if the
/// warm-up was too short to say.
fn warmed_up(found: &Found, title: &str) -> Option<Claim> {
    let changes = found.means("warm_up_change").into_iter().collect::<Option<Vec<_>>>()?;
    let most = changes.into_iter().fold(0.0, f64::max);
    Some(Claim {
        text: format!("{title}: high is stationary after {WARM} objects per job"),
        found: format!("it changes by at most {most:.2}% between the last two thirds"),
        holds: Some(most < 100.0 * STATIONARY),
    })
}

/// Adds the claims about memory outside the zones: its peak, and that it returns when the machine
/// idles.
fn memory(found: &Found, title: &str, claims: &mut Vec<Claim>) {
    let all = |metric| found.means(metric).into_iter().flatten().collect::<Vec<_>>();
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let (peaks, idle) = (all("peak_memory"), all("idle_memory"));
    let (Some(&base), Some(&rest)) = (peaks.first(), idle.first()) else { return };
    let percent = |pages: f64, of: f64| 100.0 * pages / of.max(1.0);
    claims.push(Claim {
        text: format!("{title}: tuned lists need more memory at their peak, at most {PEAK}%"),
        found: format!(
            "{base:.0} pages with Base, at most {:.0} ({:.1}%)",
            most(&peaks),
            percent(most(&peaks), base)
        ),
        holds: Some(most(&peaks) > base && percent(most(&peaks), base) <= PEAK),
    });
    claims.push(Claim {
        text: format!("{title}: nine tenths of that return when the machine idles"),
        found: format!(
            "after the build {rest:.0} pages with Base, at most {:.0} ({:.1}%)",
            most(&idle),
            percent(most(&idle), rest)
        ),
        holds: Some(most(&idle) - rest <= 0.1 * (most(&peaks) - base)),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_between_that_of_base_and_the_published_one() {
        let holds = |peak: f64| {
            let mut claims = Vec::new();
            let found = Found::of(&[
                &[("peak_memory", &[100.0]), ("idle_memory", &[10.0])],
                &[("peak_memory", &[peak]), ("idle_memory", &[10.0])],
            ]);
            memory(&found, "", &mut claims);
            claims[0].holds
        };
        assert_eq!(holds(99.0), Some(false));
        assert_eq!(holds(150.0), Some(true));
        assert_eq!(holds(188.0), Some(false));
    }
}
