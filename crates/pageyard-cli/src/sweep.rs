//! `pageyard sweep`: all combinations of policies, settings, inputs and seeds.

use std::collections::BTreeSet;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use pageyard_lab::format::grouped;
use pageyard_lab::replay::{Choice, by_name};
use pageyard_machine::{Stop, size};
use pageyard_sweep::{
    CELLS, CellResult, Done, Plan, Store, SweepError, available_memory, finish, hash_of_file, text,
};
use pageyard_trace::printable;
use serde::Serialize;

use crate::output::{self, print_json};
use crate::policies::note_without_effect;
use crate::progress::{Bar, Count};
use crate::signals;

const EXAMPLES: &str = "\
Example:
  pageyard sweep samples/sweep.toml -o results";

/// Run every combination of policies, settings, traces, workloads, machines and seeds
///
/// SWEEP.toml lists what is combined, as the chapter "Sweeps" describes. Each combination is a cell.
/// Finished cells are kept in the results' folder, under a hash of their inputs and of this program,
/// so the same command continues an interrupted sweep, and a changed one computes only what is new.
/// The folder then contains results.parquet, with one row per measurement, and index.html, with the
/// Pareto fronts.
///
/// Exit code: 0, or 2 for an invalid description or a failed cell. Ctrl-C ends it at once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Description of the sweep
    #[arg(value_name = "SWEEP.toml")]
    sweep: PathBuf,
    /// Folder for the results, created if it does not exist [default: the description's path with .results in place of .toml]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// What cells may take of this machine.
#[derive(clap::Args)]
pub(crate) struct Limits {
    /// Number of runs at once [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    jobs: Option<u64>,
    /// Memory for all runs together, such as 16G [default: three quarters of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
}

/// Adds what to do where there is no room for a file.
pub(crate) fn with_fix(e: SweepError) -> Box<dyn Error> {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    match &e {
        SweepError::File { path, source }
            if matches!(source.kind(), FileTooLarge | QuotaExceeded | StorageFull) =>
        {
            output::named(&printable(&path.to_string_lossy()), source).into()
        }
        _ => e.into(),
    }
}

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    cells: usize,
    cached: usize,
    computed: usize,
    folder: &'a Path,
}

/// Computes the cells that are not in the results' folder yet, with progress on stderr.
pub(crate) fn compute(
    plan: &Plan,
    folder: &Path,
    limits: &Limits,
) -> Result<(Done, Vec<CellResult>), Box<dyn Error>> {
    let policies: BTreeSet<&str> = plan.cells.iter().map(|cell| &*cell.policy).collect();
    let choices: Result<Vec<Choice>, _> = policies.into_iter().map(by_name).collect();
    note_without_effect(&choices?);
    let cells = folder.join(CELLS);
    let store = Store::open(&cells)?;
    signals::say_at_the_end(format!(
        "finished cells are in {}; the same command continues",
        printable(&cells.to_string_lossy()),
    ));
    let program = std::env::current_exe().and_then(|path| hash_of_file(&path));
    let (program, _) = program.map_err(|e| format!("this program's file: {e}"))?;
    let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = limits.jobs.map_or_else(cpus, |n| n as usize);
    let memory = limits.memory.unwrap_or_else(available_memory);
    let bar = Mutex::new(Bar::new());
    // A signal ends the program at any moment; finished cells are whole files.
    let stop = Stop::default();
    pageyard_sweep::run(plan, &store, &program, jobs, memory, &stop, &|d| {
        if let Ok(mut bar) = bar.lock() {
            bar.show("cells", Count::Runs, (d.cached + d.computed) as u64, Some(d.cells as u64));
        }
    })
    .map_err(with_fix)
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let plan = Plan::read(&args.sweep)?;
    let folder = args.output.clone().unwrap_or_else(|| args.sweep.with_extension("results"));
    let (done, results) = compute(&plan, &folder, &args.limits)?;
    let name = args.sweep.file_stem().unwrap_or_default().to_string_lossy();
    let fronts = finish(&name, &folder, &results).map_err(with_fix)?;
    if args.json {
        let (cells, cached, computed) = (done.cells, done.cached, done.computed);
        let version = env!("CARGO_PKG_VERSION");
        print_json(&Json { version, cells, cached, computed, folder: &folder })?;
    } else {
        let mut out = output::stdout();
        let [cells, cached, computed] =
            [done.cells, done.cached, done.computed].map(|n| grouped(n as u64));
        writeln!(out, "{cells} cells: {cached} cached, {computed} computed")?;
        writeln!(out, "results: {}\n", folder.display())?;
        write!(out, "{}", text(&fronts))?;
    }
    Ok(ExitCode::SUCCESS)
}
