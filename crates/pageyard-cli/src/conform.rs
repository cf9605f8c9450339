//! `pageyard conform`: checks every answer and state against the real kernel.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::conform::{Outcome, run_file};
use pageyard_lab::format::grouped;
use serde::Serialize;

use crate::output::{self, print_json};

const EXAMPLES: &str = "\
Example:
  pageyard conform samples/oracle/*.zst";

/// Check the allocator against recorded answers and states of the real Linux 6.12.117
///
/// Each recording covers one zone, or two zones that a request walks in order. It is restored,
/// executed operation by operation, and compared in full.
///
/// Exit code: 0 if everything is identical, 1 if something differs, 2 if a file cannot be read.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Recordings: JSON lines, plain or compressed with zstd
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Totals of all recordings.
#[derive(Default, Serialize)]
struct Total {
    recordings: usize,
    recordings_identical: usize,
    answers: u64,
    answers_identical: u64,
    states: u64,
    states_identical: u64,
}

#[derive(Serialize)]
struct Report {
    recordings: Vec<Outcome>,
    total: Total,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let mut out = output::stdout();
    let mut report = Report { recordings: Vec::new(), total: Total::default() };
    for file in &args.files {
        let outcome = run_file(file)?;
        if !args.json {
            writeln!(out, "{outcome}")?;
        }
        let t = &mut report.total;
        t.recordings += 1;
        t.recordings_identical += usize::from(outcome.matches());
        t.answers += outcome.answers_recorded;
        t.answers_identical += outcome.answers;
        t.states += outcome.states_recorded;
        t.states_identical += outcome.states;
        report.recordings.push(outcome);
    }
    let t = &report.total;
    let same = t.recordings_identical == t.recordings;
    if args.json {
        drop(out);
        print_json(&report)?;
    } else {
        writeln!(
            out,
            "conform: {}/{} recordings, {}/{} answers, {}/{} states identical",
            t.recordings_identical,
            t.recordings,
            grouped(t.answers_identical),
            grouped(t.answers),
            grouped(t.states_identical),
            grouped(t.states)
        )?;
    }
    Ok(if same { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
