//! `pageyard run`: workloads on simulated machines.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use pageyard_lab::hygiene::{self, Claim, Summary};
use pageyard_lab::record::Recorder;
use pageyard_lab::topology::size;
use serde::Serialize;

use crate::output::{self, print_json, write_file};

const EXAMPLES: &str = "\
Examples:
  pageyard run hygiene --rounds 5
  pageyard run hygiene --rounds 1 --memory 256M --trace events.txt";

/// Run a workload on a simulated machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    workload: Workload,
}

#[derive(Subcommand)]
enum Workload {
    /// Kernel builds, a cache server and huge pages on one heap: does memory of different mobility
    /// stay apart?
    ///
    /// The same work is done under two policies, Vanilla (mobility grouping before the hygiene
    /// patches of 2024) and Linux612, with every list operation checked. Prints steals and type
    /// mismatches round by round beside the published ones. The machine is simulated; nothing but
    /// the seed decides. A run of 50 rounds takes minutes.
    ///
    /// Exit code: 0, or 2 for a wrong argument.
    #[command(after_help = EXAMPLES)]
    Hygiene(Hygiene),
}

#[derive(clap::Args)]
struct Hygiene {
    /// Decides everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = hygiene::Options::default().seed)]
    seed: u64,
    /// How many builds, one after another
    #[arg(long, value_name = "N", default_value_t = hygiene::Options::default().rounds)]
    rounds: u32,
    /// Size of the heap, such as 512M [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Write every event under Linux612 as ftrace text; about 100 bytes an event, millions a round
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    #[serde(flatten)]
    report: &'a hygiene::Report,
    vanilla_summary: Summary,
    linux612_summary: Summary,
    claims: Vec<Claim>,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    match &args.workload {
        Workload::Hygiene(args) => run_hygiene(args),
    }
}

fn run_hygiene(args: &Hygiene) -> output::Outcome {
    let default = hygiene::Options::default();
    let memory = args.memory.unwrap_or(default.memory);
    let options = hygiene::Options { seed: args.seed, rounds: args.rounds, memory, ..default };
    let report = match &args.trace {
        None => hygiene::run(&options, &())?,
        Some(path) => recorded(path, &options)?,
    };
    if args.json {
        print_json(&Json {
            version: env!("CARGO_PKG_VERSION"),
            vanilla_summary: report.vanilla.summary(),
            linux612_summary: report.linux612.summary(),
            claims: report.claims(),
            report: &report,
        })?;
    } else {
        write!(std::io::stdout().lock(), "{report}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs it with its events going to a file, which appears when it is whole.
fn recorded(
    path: &Path,
    options: &hygiene::Options,
) -> Result<hygiene::Report, Box<dyn std::error::Error>> {
    let (report, events) = write_file(path, |file| {
        let recorder = Recorder::new(BufWriter::new(file), options.cpus as u16, "hygiene")?;
        let report = hygiene::run(options, &recorder)?;
        let (events, _) = recorder.finish().map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((report, events))
    })?;
    eprintln!("{}: {events} events", path.display());
    Ok(report)
}
