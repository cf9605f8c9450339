//! Compares contestants in all timed patterns, in one run with interleaved rounds.
//!
//! It is a runner of its own instead of criterion (see `benches/single.rs` for that). Criterion and
//! divan measure one function for seconds and then the next. On a shared machine, a ratio of two
//! such results compares two different moments. They also measure wall time. Here round runs
//! every contestant once, in random order, and measures the CPU time of the thread. Ratios are
//! computed per round before their median is taken.

use std::fs;
use std::path::PathBuf;

use clap::Parser;
use serde::Serialize;

use crate::contestants::{CPUS, Contestant, FRAMES, Floor, Pageyard, PageyardOwned, Visitor};
use crate::packed::{Packed, PackedOwned, PackedPinned};
use crate::patterns::{HELD, PATTERNS, Pattern, Rng, Sample};

/// Goal for the hot pair: its maximum time relative to the floor.
const PAIR_GOAL: f64 = 1.15;
/// How often a run is repeated in which a thread lost its CPU.
const RETRIES: usize = 10;

/// Times pageyard beside its peers.
#[derive(Parser)]
struct Args {
    /// Rounds per pattern.
    #[arg(long, default_value_t = 41)]
    rounds: usize,
    /// 11 short rounds.
    #[arg(long)]
    quick: bool,
    /// Seed of the random orders.
    #[arg(long, default_value_t = 0x5EED)]
    seed: u64,
    /// Only patterns whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Also writes everything, every round included, to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The rows of this project.
const OURS: [&str; 5] =
    [Pageyard::NAME, PageyardOwned::NAME, Packed::NAME, PackedPinned::NAME, PackedOwned::NAME];

/// The contestants of a comparison.
pub trait Field {
    /// Visits all of them, in the order of the table.
    fn each(visitor: &mut impl Visitor);
}

/// One contestant, ready to run, with its type erased.
struct Entry {
    name: &'static str,
    run: Box<dyn Fn(u64) -> Sample>,
}

struct Entries {
    pattern: Pattern,
    pairs: usize,
    made: Vec<Entry>,
}

impl Visitor for Entries {
    fn visit<A: Contestant + 'static>(&mut self) {
        let (a, pattern, pairs) = (A::new(), self.pattern, self.pairs);
        let run = Box::new(move |seed| pattern.run(&a, pairs, seed));
        self.made.push(Entry { name: A::NAME, run });
    }
}

/// A median and the quartiles around it.
#[derive(Clone, Copy, Serialize)]
struct Spread {
    median: f64,
    low: f64,
    high: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut v: Vec<f64> = values.collect();
        v.sort_by(f64::total_cmp);
        let at = |part: f64| v[((v.len() - 1) as f64 * part).round() as usize];
        Spread { median: at(0.5), low: at(0.25), high: at(0.75) }
    }

    fn ratio(ours: &[f64], theirs: &[f64]) -> Spread {
        Spread::of(ours.iter().zip(theirs).map(|(a, b)| a / b))
    }

    fn show(&self) -> String {
        format!("{:.2} ({:.2}-{:.2})", self.median, self.low, self.high)
    }
}

#[derive(Serialize)]
struct Column {
    contestant: &'static str,
    ns: Spread,
    rounds: Vec<f64>,
}

/// The result of one of this project's rows.
#[derive(Serialize)]
struct Standing {
    contestant: &'static str,
    to_floor: Spread,
    to_best_peer: Spread,
    goal_met: bool,
}

#[derive(Serialize)]
struct Outcome {
    pattern: &'static str,
    threads: usize,
    best_peer: &'static str,
    ours: Vec<Standing>,
    /// Fraction of runs in which a thread lost its CPU even after all retries.
    disturbed: f64,
    contestants: Vec<Column>,
}

#[derive(Serialize)]
struct Report {
    machine: String,
    seed: u64,
    rounds: usize,
    pairs: usize,
    held: usize,
    frames: usize,
    cpus: usize,
    patterns: Vec<Outcome>,
}

fn measure<F: Field>(pattern: Pattern, args: &Args, rounds: usize, pairs: usize) -> Outcome {
    let mut entries = Entries { pattern, pairs, made: Vec::new() };
    F::each(&mut entries);
    let entries = entries.made;
    let mut times = vec![Vec::new(); entries.len()];
    let mut disturbed = 0;
    // Warm-up rounds, to fill the caches and touch all records.
    entries.iter().for_each(|e| {
        (e.run)(args.seed);
        (e.run)(args.seed);
    });
    let mut order: Vec<usize> = (0..entries.len()).collect();
    let mut rng = Rng(args.seed);
    for round in 0..rounds {
        rng.shuffle(&mut order);
        for &i in &order {
            let seed = args.seed + (round * CPUS) as u64;
            let mut sample = (entries[i].run)(seed);
            for _ in 0..RETRIES {
                if sample.undisturbed {
                    break;
                }
                sample = (entries[i].run)(seed);
            }
            times[i].push(sample.ns);
            disturbed += usize::from(!sample.undisturbed);
        }
    }
    let contestants: Vec<Column> = entries
        .iter()
        .zip(times)
        .map(|(e, rounds)| Column {
            contestant: e.name,
            ns: Spread::of(rounds.iter().copied()),
            rounds,
        })
        .collect();
    let of = |name| contestants.iter().find(|c| c.contestant == name).expect("takes part");
    let floor = of(Floor::NAME);
    let best = contestants
        .iter()
        .filter(|c| c.contestant != Floor::NAME && !OURS.contains(&c.contestant))
        .min_by(|a, b| a.ns.median.total_cmp(&b.ns.median))
        .expect("there are peers");
    let standing = |contestant| {
        let rounds = &of(contestant).rounds;
        let to_floor = Spread::ratio(rounds, &floor.rounds);
        let to_best_peer = Spread::ratio(rounds, &best.rounds);
        let goal_met = if is_hot_pair(&pattern) {
            to_floor.median <= PAIR_GOAL
        } else {
            to_best_peer.median < 1.0
        };
        Standing { contestant, to_floor, to_best_peer, goal_met }
    };
    Outcome {
        pattern: pattern.name,
        threads: pattern.threads,
        best_peer: best.contestant,
        ours: OURS.map(standing).into(),
        disturbed: disturbed as f64 / (rounds * entries.len()) as f64,
        contestants,
    }
}

fn is_hot_pair(pattern: &Pattern) -> bool {
    pattern.name.starts_with("pair-4k")
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cpus} CPUs", model.map_or("unknown", |m| m.1))
}

fn print(report: &Report) {
    println!(
        "{}; {} rounds, seed {:#x}, {} pairs, {} frames held of {}; a pair is one operation\n",
        report.machine, report.rounds, report.seed, report.pairs, report.held, report.frames
    );
    let Some(first) = report.patterns.first() else { return };
    println!("ns of thread CPU time per operation, medians (2t: of the slower thread)");
    print!("{:24}", "");
    report.patterns.iter().for_each(|p| print!("{:>16}", p.pattern));
    println!();
    for (i, c) in first.contestants.iter().enumerate() {
        print!("{:24}", c.contestant);
        report.patterns.iter().for_each(|p| print!("{:>16.1}", p.contestants[i].ns.median));
        println!();
    }
    for (i, name) in OURS.iter().enumerate() {
        print_ratios(report, name, i);
    }
}

fn print_ratios(report: &Report, name: &str, i: usize) {
    println!("\nratios of {name}, medians of the rounds' ratios (half of them lie within)");
    println!(
        "{:16}{:20}{:20}{:24}{:28}disturbed",
        "", "to the floor", "to the best peer", "which", "goal"
    );
    for p in &report.patterns {
        let ours = &p.ours[i];
        let goal = match p.pattern {
            name if name.starts_with("pair-4k") => format!("floor, {PAIR_GOAL}"),
            _ => "best peer, below 1".to_owned(),
        };
        let goal = format!("{goal}: {}", if ours.goal_met { "met" } else { "MISSED" });
        println!(
            "{:16}{:20}{:20}{:24}{goal:28}{:.0}%",
            p.pattern,
            ours.to_floor.show(),
            ours.to_best_peer.show(),
            p.best_peer,
            p.disturbed * 100.0
        );
    }
}

/// Runs the comparison that the program's arguments describe and prints its tables.
///
/// # Errors
/// If the file of `--json` cannot be written.
pub fn run<F: Field>() -> std::io::Result<()> {
    let args = Args::parse();
    let (rounds, pairs) = if args.quick { (11, 10_000) } else { (args.rounds.max(1), 50_000) };
    let wanted = |p: &Pattern| p.timed && p.name.contains(&args.only);
    let patterns = PATTERNS
        .into_iter()
        .filter(wanted)
        .map(|p| measure::<F>(p, &args, rounds, pairs))
        .collect();
    let report = Report {
        machine: machine(),
        seed: args.seed,
        rounds,
        pairs,
        held: HELD,
        frames: FRAMES,
        cpus: CPUS,
        patterns,
    };
    print(&report);
    match args.json {
        // Written to a temporary file first, so that the result is complete or absent.
        Some(file) => {
            let (text, part) =
                (serde_json::to_string_pretty(&report)?, file.with_extension("part"));
            fs::write(&part, text).and_then(|()| fs::rename(&part, file))
        }
        None => Ok(()),
    }
}
