//! Per-CPU lists that tune themselves (A.4): the steps of the series under three loads, the sweep
//! of batches, and the maximum size of the lists.
//!
//! The kernel build runs with its memory, not its CPUs, bound to one node (`numactl -m 1`), unbound,
//! and in eight groups, as published. The seeds ran for a fixed time, but the simulated socket
//! benchmarks do a fixed amount of work, so their counters are converted to rates per second. Their
//! machine has 128 CPUs. Whether the pairs of UNIX sockets used one zone or two is not published, so
//! both are run.

use super::agree::{Column, Kind};
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Claim, Comparison, Outcome};
use super::simulated::{Found, Simulated};
use crate::workload::STATIONARY;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "auto-tuning",
    summary: "self-tuning lists: the effect of each step on time, zone lock and memory",
    source: "A.4",
    simulated: true,
    anchors: &[],
    run,
};

const STEPS: [&str; 7] = ["Base", "Step1", "Step3", "Step5", "Step7", "Step9", "Step10"];
/// The steps at the kernel's cost: the kernel's bulk frees process one page at a time.
const POLICIES: [&str; 7] = [
    "BlockByBlock<Base>",
    "BlockByBlock<Step1>",
    "BlockByBlock<Step3>",
    "BlockByBlock<Step5>",
    "BlockByBlock<Step7>",
    "BlockByBlock<Step9>",
    "BlockByBlock<Step10>",
];
/// The lists of that machine had a `high` of 361; with this memory they have 400 (§5.4).
pub(super) const GIB: u64 = 256;
/// The machine of the socket benchmarks.
pub(super) const SOCKETS: &str = "2x32";
/// Memory that has been in use before the runs, in percent. Assumed: free pages are then scattered
/// over more memory than the jobs of a build have at once.
pub(super) const AGE: u8 = 10;
/// Seconds of the idle phase after a build. Assumed: by how much memory in use falls is published, not
/// how soon.
const IDLE: &str = "60";

/// Objects per job before the measured ones, for all steps: one that is measured later finds more
/// memory in use. A claim says whether the lists of all steps were stationary by then.
const WARM: &str = "30";

/// Measured objects per job. At the end of a build, jobs run out of objects one after the other. With 16
/// objects per job that end is a small part of the build, as it is of the published ones with 241.
const OBJECTS: &str = "16";

/// A step's published figures: time or rate, zone lock %, free_high, pages from the zone, misses %.
type Step = [Option<f64>; 5];

const fn kbuild(time: f64, lock: f64, free_high: f64, pages: f64) -> Step {
    [Some(time), Some(lock), Some(free_high), Some(pages), None]
}

const fn socket(rate: f64, lock: f64, free_high: f64, pages: f64, miss: f64) -> Step {
    [Some(rate), Some(lock), Some(free_high), Some(pages), Some(miss)]
}

const NONE: Step = [None; 5];
/// A column without published figures.
const NONE_OF_ALL: [Option<f64>; 7] = [None; 7];

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

const SCTP: [Step; 7] = [
    socket(100.0, 2.0, 100.0, 100.0, 1.3),
    socket(99.7, 2.0, 99.7, 99.7, 1.3),
    socket(105.5, 1.2, 13.2, 105.4, 1.2),
    socket(106.9, 1.2, 13.4, 106.9, 1.3),
    socket(103.5, 1.8, 6.8, 90.8, 7.6),
    socket(103.7, 1.8, 6.6, 89.8, 7.7),
    socket(106.9, 1.2, 13.5, 106.9, 1.2),
];

const UNIX: [Step; 7] = [
    socket(100.0, 50.0, 100.0, 100.0, 0.3),
    socket(117.1, 45.8, 72.6, 108.9, 0.2),
    socket(201.6, 21.2, 7.4, 111.5, 0.2),
    socket(201.9, 20.9, 7.5, 112.7, 0.3),
    socket(194.2, 19.3, 7.3, 111.5, 2.9),
    socket(193.1, 19.2, 7.2, 110.4, 2.9),
    socket(196.8, 21.0, 7.4, 111.2, 2.1),
];

/// The most memory in use, in percent of base, where published: up to 1.5 times.
const PEAK: f64 = 150.6;

type Parameters<'p> = &'p [(&'p str, &'p str)];
/// A build: its title, the published figures by their version, its parameters.
type Build<'b> = (&'b str, &'b [(&'b str, &'b [Step; 7])], Parameters<'b>);

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
        let age = if small { 1 } else { AGE };
        let found = Simulated { age, linux: true, ..steps("kbuild", set) }.run(run, title)?;
        outcome.claims.extend(warmed_up(&found, title));
        memory(&found, title, &mut outcome.claims);
        for (version, seed) in *seeds {
            outcome.tables.push(build(&format!("{title}{version}"), seed, &found));
        }
    }
    let messages = ("messages", if small { "4000" } else { "20000" });
    let writes = ("writes", if small { "4000" } else { "20000" });
    let sockets: [(&str, &str, &[Step; 7], Parameters<'_>); 3] = [
        ("SCTP, 64 pairs", "sctp", &SCTP, &[messages]),
        ("UNIX sockets, 16 pairs, all in one zone", "unix", &UNIX, &[("cpus", "0"), writes]),
        ("UNIX sockets, 16 pairs, half of them in each of two zones", "unix", &UNIX, &[writes]),
    ];
    for (title, workload, seed, set) in sockets {
        let age = if small { 1 } else { AGE };
        let sockets = Simulated { machine: SOCKETS, age, linux: true, ..steps(workload, set) };
        outcome.tables.push(socket_table(title, seed, sockets.run(run, title)?));
    }
    for machine in if small { &SWEEPS[..1] } else { &SWEEPS[..] } {
        let (table, claim) = sweep(run, machine)?;
        outcome.tables.push(table);
        outcome.claims.push(claim);
    }
    outcome.notes.push(
        "kbuild: time is that in which all jobs are busy. What follows, the last objects and the \
         linker, is a small part of the published builds, with 241 objects per job, but more than \
         half of the time of these. The work between two page faults is derived from another build's page \
         faults per CPU-second. Builds and sockets: the share of memory that has been in use before \
         is assumed. The machine prices the kernel's instructions, as for --cost linux. kbuild's \
         lock: the zones' and the LRU's, as the published column counts mostly, but not only, zone \
         locks; LRU is the latter's part."
            .into(),
    );
    outcome.notes.push(
        "miss: last-level cache misses on page contents and descriptors; the published ones are a \
         processor's counts of all code."
            .into(),
    );
    Ok(outcome)
}

fn steps<'s>(workload: &'s str, set: Parameters<'s>) -> Simulated<'s> {
    Simulated {
        workload,
        machine: "2x56",
        gib: Some(GIB),
        policies: &POLICIES,
        set,
        ..Simulated::default()
    }
}

/// Compares a build with one version of its published figures.
fn build(title: &str, seed: &[Step; 7], found: &Found) -> Comparison {
    let published = |i: usize| seed.map(|step| step[i]);
    let columns = vec![
        found.column("time", "", Kind::Index, "busy_time", &published(0)),
        Column::new("lock", "%", Kind::Plain, &published(1), &found.sum("zone_lock", "lru_lock")),
        found.column("LRU", "%", Kind::Plain, "lru_lock", &NONE_OF_ALL),
        found.column("free_high", "", Kind::Index, "free_high", &published(2)),
        found.column("zone pages", "", Kind::Index, "zone_pages", &published(3)),
    ];
    found.compare(title, STEPS, columns)
}

/// Compares a socket benchmark: the published ones ran for a fixed time.
fn socket_table(title: &str, seed: &[Step; 7], found: Found) -> Comparison {
    let published = |i: usize| seed.map(|step| step[i]);
    let counted = |name, i, metric| {
        Column::new(name, "", Kind::Index, &published(i), &found.per_second(metric))
    };
    let columns = vec![
        found.column("rate", "", Kind::Index, "rate", &published(0)),
        found.column("zone lock", "%", Kind::Plain, "zone_lock", &published(1)),
        counted("free_high", 2, "free_high"),
        counted("zone pages", 3, "zone_pages"),
        found.column("miss", "%", Kind::Plain, "miss", &published(4)),
    ];
    found.compare(title, STEPS, columns)
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
        text: format!("{title}: tuned lists need more memory at their peak (up to {PEAK}%)"),
        found: format!(
            "{base:.0} pages with Base, at most {:.0} ({:.1}%)",
            most(&peaks),
            percent(most(&peaks), base)
        ),
        holds: Some(most(&peaks) > base),
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

/// A machine of the sweep. For each batch: pages per second, then the average and the 99th
/// percentile of the hold time of a zone lock in microseconds, for frees and for allocations.
struct Sweep {
    name: &'static str,
    machine: &'static str,
    rows: &'static [(u32, [f64; 5])],
}

/// The mail names the machines only by their processors. Which simulated machine corresponds to
/// which is assumed.
const SWEEPS: [Sweep; 5] = [
    Sweep {
        name: "Sapphire Rapids",
        machine: "2x56",
        rows: &[
            (63, [513_633.4, 2.33, 3.57, 2.67, 6.83]),
            (127, [517_616.7, 4.35, 6.65, 4.22, 13.03]),
            (255, [520_822.8, 8.29, 13.32, 7.52, 25.24]),
            (511, [524_122.0, 15.79, 23.42, 14.02, 49.35]),
            (1023, [525_980.5, 30.25, 44.19, 25.36, 94.88]),
            (2047, [526_793.6, 59.39, 84.50, 45.22, 140.81]),
        ],
    },
    Sweep {
        name: "Ice Lake",
        machine: "2x32",
        rows: &[
            (63, [620_210.3, 2.21, 3.68, 2.02, 4.35]),
            (127, [627_003.0, 4.09, 6.86, 3.51, 8.28]),
            (255, [630_777.5, 7.70, 13.50, 6.17, 15.97]),
            (511, [633_651.5, 14.85, 22.62, 11.66, 31.08]),
            (1023, [637_071.1, 28.55, 42.02, 20.81, 54.36]),
            (2047, [638_089.7, 56.54, 84.06, 39.28, 91.68]),
        ],
    },
    Sweep {
        name: "Cascade Lake",
        machine: "2x20",
        rows: &[
            (63, [404_706.7, 3.29, 5.03, 3.53, 4.75]),
            (127, [422_475.2, 6.12, 9.09, 6.36, 8.76]),
            (255, [411_522.2, 11.68, 16.97, 10.90, 16.39]),
            (511, [428_124.1, 22.54, 31.28, 19.86, 32.25]),
            (1023, [414_718.4, 43.39, 62.52, 40.00, 66.33]),
            (2047, [429_848.7, 86.64, 120.34, 71.14, 106.08]),
        ],
    },
    Sweep {
        name: "Comet Lake",
        machine: "desktop",
        rows: &[
            (63, [795_183.13, 2.18, 3.55, 2.03, 3.05]),
            (127, [803_067.85, 3.91, 6.56, 3.85, 5.52]),
            (255, [812_771.10, 7.35, 10.80, 7.14, 10.20]),
            (511, [817_723.48, 14.17, 27.54, 13.43, 30.31]),
            (1023, [818_870.19, 27.72, 40.10, 27.89, 46.28]),
        ],
    },
    Sweep {
        name: "Coffee Lake",
        machine: "desktop",
        rows: &[
            (63, [510_542.8, 3.13, 4.40, 2.48, 3.43]),
            (127, [514_288.6, 5.97, 7.89, 4.65, 6.04]),
            (255, [516_889.7, 11.86, 15.58, 8.96, 12.55]),
            (511, [519_802.4, 23.10, 28.81, 16.95, 26.19]),
            (1023, [520_802.7, 45.30, 52.51, 33.19, 45.95]),
            (2047, [519_997.1, 90.63, 104.00, 65.26, 81.74]),
        ],
    },
];

/// The longest acceptable hold for a scale (the rule of that mail).
const ACCEPTABLE_US: f64 = 100.0;
/// The batch at scale 5: 63 doubled five times.
const SCALE_5: u32 = 2016;

fn sweep(run: &mut Run<'_>, machine: &Sweep) -> Result<(Comparison, Claim), ReproduceError> {
    let small = run.options.scale == Scale::Small;
    let rows = if small { &machine.rows[..3] } else { machine.rows };
    let batches = rows.iter().map(|r| r.0.to_string()).collect::<Vec<_>>().join(",");
    let set = [("batches", &*batches)];
    let title = format!("batches, {}", machine.name);
    let simulated = Simulated {
        workload: "batch",
        machine: machine.machine,
        policies: &POLICIES[..1],
        set: &set,
        ..Simulated::default()
    };
    let found = simulated.run(run, &title)?;
    let ours = |metric: &str| -> Vec<Option<f64>> {
        rows.iter().map(|r| found.means(&format!("{metric}-{}", r.0))[0]).collect()
    };
    let seed = |i: usize| rows.iter().map(|r| Some(r.1[i])).collect::<Vec<_>>();
    let metrics = ["rate", "hold_free_avg", "hold_free_p99", "hold_alloc_avg", "hold_alloc_p99"];
    let names = ["rate", "free avg", "free p99", "alloc avg", "alloc p99"];
    let columns = (0..5).map(|i| {
        let (kind, unit) = if i == 0 { (Kind::Index, "") } else { (Kind::Plain, "us") };
        Column::new(names[i], unit, kind, &seed(i), &ours(metrics[i]))
    });
    let columns = columns.collect();
    let longest: Vec<f64> = ["hold_free_p99", "hold_alloc_p99"]
        .iter()
        .flat_map(|m| rows.iter().zip(ours(m)).filter(|(r, _)| r.0 < SCALE_5))
        .filter_map(|(_, us)| us)
        .collect();
    let most = longest.iter().copied().fold(0.0, f64::max);
    let claim = Claim {
        text: format!(
            "{title}: batches below scale 5 hold the lock less than {ACCEPTABLE_US} us \
             (p99)"
        ),
        found: format!("at most {most:.1} us"),
        holds: Some(most < ACCEPTABLE_US),
    };
    let title = format!("{title}: rate and holds of the zone lock");
    Ok((found.compare(title, rows.iter().map(|r| r.0), columns), claim))
}
