//! Compares pages from pageyard-host with those of the allocators that programs use today.
//!
//! Every contestant runs in its own process, in a new random order each round. Ratios are computed
//! within a round; the result is their median. `cargo bench -p pageyard-host` builds and runs this.

mod contestants;
mod frames;
mod pages;
mod patterns;
mod table;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use pageyard_bench::patterns::Rng;

use contestants::{NAMES, Visitor};
use pages::Pages;
use patterns::{Found, PATTERNS};

/// Times pages from pageyard-host beside those from other allocators.
#[derive(Parser)]
#[command(name = "side")]
struct Args {
    /// How often each contestant's process is run.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How often each pattern is done in a process, not counting two that warm up.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Only patterns whose names contain this.
    #[arg(long, default_value = "")]
    only: String,
    /// Only these contestants, and pageyard.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Seed of the random orders.
    #[arg(long, default_value_t = 0x5EED)]
    seed: u64,
    /// Also writes everything, every process's medians included, to this file.
    #[arg(long)]
    json: Option<PathBuf>,
    /// One contestant, in this process: what the others are started with.
    #[arg(long, hide = true)]
    contestant: Option<String>,
    /// What cargo passes to every bench.
    #[arg(long, hide = true)]
    bench: bool,
}

struct Run<'a>(&'a Args, &'a str, &'a mut Found);

impl Visitor for Run<'_> {
    fn visit<P: Pages>(self, pages: &'static P, _: bool) {
        let Run(args, name, found) = self;
        let does = contestants::does(name);
        *found = patterns::run(pages, &args.only, args.times as usize, does);
    }
}

fn one(args: &Args, name: &str) -> Result<(), Box<dyn Error>> {
    let mut found = Found::new();
    let known = contestants::with(name, Run(args, name, &mut found));
    known.ok_or_else(|| format!("--contestant {name}: expected one of {}", NAMES.join(", ")))?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

/// Runs a contestant's process. Returns the median of each pattern.
fn child(args: &Args, name: &str) -> Result<Found, Box<dyn Error>> {
    let out = Command::new(std::env::current_exe()?)
        .args(["--contestant", name, "--only", &args.only, "--times", &args.times.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    if !out.status.success() {
        return Err(format!("the process of {name} ended with {}", out.status).into());
    }
    let found: Found = serde_json::from_slice(&out.stdout)?;
    Ok(found.into_iter().map(|(k, v)| (k, vec![table::middle(&v)])).collect())
}

fn all(args: &Args) -> Result<(), Box<dyn Error>> {
    if let Some(other) = args.peers.iter().find(|p| !NAMES.contains(&p.as_str())) {
        return Err(format!("--peers {other}: expected one of {}", NAMES.join(", ")).into());
    }
    let chosen =
        |n: &&str| *n == NAMES[0] || args.peers.is_empty() || args.peers.iter().any(|p| p == n);
    let names: Vec<&str> = NAMES.into_iter().filter(chosen).collect();
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut found = vec![Found::new(); names.len()];
    let mut rng = Rng(args.seed);
    for round in 0..args.rounds {
        rng.shuffle(&mut order);
        for &i in &order {
            eprintln!("round {} of {}: {}", round + 1, args.rounds, names[i]);
            for (pattern, values) in child(args, names[i])? {
                found[i].entry(pattern).or_default().extend(values);
            }
        }
    }
    let report = table::Report::new(args.seed, args.rounds, args.times, &names, found);
    report.print(&PATTERNS);
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        // Replace the file atomically.
        let part = file.with_extension("part");
        fs::write(&part, text).and_then(|()| fs::rename(&part, file)).map_err(|e| {
            format!("--json {}: {e}; name a file in a writable folder", file.display())
        })?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let done = match &args.contestant {
        Some(name) => one(&args, name),
        None => all(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
