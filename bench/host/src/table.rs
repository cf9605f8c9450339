//! The results, as tables and as JSON.

use std::collections::BTreeMap;
use std::fs;

use serde::Serialize;

use crate::contestants::{is_of_frames, is_peer};
use crate::patterns::Found;

/// The median.
pub fn middle(values: &[f64]) -> f64 {
    part(values, 0.5)
}

fn part(values: &[f64], at: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(((sorted.len().max(1) - 1) as f64 * at).round() as usize)
        .copied()
        .unwrap_or(f64::NAN)
}

/// A median of rounds, with the minimum and the maximum.
#[derive(Clone, Copy, Serialize)]
pub struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        Spread { median: middle(values), least: part(values, 0.0), most: part(values, 1.0) }
    }

    fn ratio(ours: &[f64], theirs: &[f64]) -> Spread {
        Spread::of(&ours.iter().zip(theirs).map(|(a, b)| a / b).collect::<Vec<_>>())
    }
}

#[derive(Serialize)]
struct Contestant {
    name: String,
    /// By pattern: the median of each round's process.
    rounds: Found,
    /// By pattern: the ratio of pageyard to this contestant.
    ratios: BTreeMap<String, Spread>,
}

#[derive(Serialize)]
pub struct Report {
    machine: String,
    seed: u64,
    rounds: u32,
    times: u32,
    contestants: Vec<Contestant>,
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let system = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, {cpus} CPUs, Linux {}", model.map_or("unknown", |m| m.1), system.trim())
}

impl Report {
    pub fn new(seed: u64, rounds: u32, times: u32, names: &[&str], found: Vec<Found>) -> Report {
        let ours = found[0].clone();
        let to = |theirs: &Found| {
            let both =
                |(k, v): (&String, &Vec<f64>)| Some((k.clone(), Spread::ratio(v, theirs.get(k)?)));
            ours.iter().filter_map(both).collect()
        };
        let contestants = names.iter().zip(found).map(|(name, rounds)| Contestant {
            name: (*name).to_owned(),
            ratios: to(&rounds),
            rounds,
        });
        Report { machine: machine(), seed, rounds, times, contestants: contestants.collect() }
    }

    pub fn print(&self, patterns: &[(&str, &str)]) {
        println!(
            "{}; {} rounds of {}, seed {:#x}\n",
            self.machine, self.rounds, self.times, self.seed
        );
        println!("ns per operation, medians (CPU time of the thread, of the slower of two)\n");
        print!("| |");
        self.contestants.iter().for_each(|c| print!(" {} |", c.name));
        println!(" pageyard to the best peer (rounds) | to the best of frames |");
        println!("|---|{}---|---|", "---|".repeat(self.contestants.len()));
        let timed = patterns.iter().map(|(name, _)| (*name).to_owned());
        let others = |name: &String| !patterns.iter().any(|(p, _)| p == name);
        let mut extra: Vec<String> =
            self.contestants.iter().flat_map(|c| c.rounds.keys().cloned()).filter(others).collect();
        extra.sort();
        extra.dedup();
        let timed: Vec<String> = timed.collect();
        for name in timed.iter().chain(&extra) {
            if !self.contestants.iter().any(|c| c.rounds.contains_key(name)) {
                continue;
            }
            print!("| {name} |");
            for c in &self.contestants {
                match c.rounds.get(name) {
                    Some(v) => print!(" {:.1} |", middle(v)),
                    None => print!(" |"),
                }
            }
            for among in [is_peer, is_of_frames] {
                let peers = self.contestants.iter().filter(|c| among(&c.name));
                let of = |c: &Contestant| c.rounds.get(name).map_or(f64::INFINITY, |v| middle(v));
                let best = peers
                    .filter(|c| c.ratios.contains_key(name))
                    .min_by(|a, b| of(a).total_cmp(&of(b)));
                match best.filter(|_| timed.contains(name)) {
                    Some(c) => {
                        let r = c.ratios[name];
                        print!(" {:.2} ({:.2}–{:.2}) {} |", r.median, r.least, r.most, c.name);
                    }
                    None => print!(" |"),
                }
            }
            println!();
        }
        println!();
        for (name, what) in
            patterns.iter().filter(|(n, w)| timed.contains(&(*n).to_owned()) && !w.is_empty())
        {
            println!("{name}: {what}");
        }
    }
}
