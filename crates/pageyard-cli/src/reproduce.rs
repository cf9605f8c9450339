//! `pageyard reproduce`: repeats published experiments and compares with the published figures.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::picture::Page;
use pageyard_lab::reproduce::sensitivity::{Sensitivity, sensitivity};
use pageyard_lab::reproduce::{
    self, Comparison, EXPERIMENTS, Experiment, Options, Report, ReproduceError, Scale, Watch,
    fast_path,
};
use serde::Serialize;
use serde_json::json;

use crate::output::{self, print_json, write_json};
use crate::picture::{Picture, command};
use crate::progress::{Bar, Count};
use crate::run::Cost;

const EXAMPLES: &str = "\
Examples:
  pageyard reproduce list
  pageyard reproduce auto-tuning-batches --cost linux
  pageyard reproduce all --small
  pageyard reproduce recalculate --sensitivity
  pageyard reproduce all -o reproduced.json --html reproduced.html";

/// Repeat published experiments, and print the published figures next to the new ones
///
/// Each experiment is a mail or commit that changed the page allocator. Machines are simulated: one
/// table of costs serves all experiments (`pageyard calibrate` prints it), and results depend only
/// on the seed. Three experiments do not use the table. hygiene counts on a heap without CPUs. truth
/// compares the machine with this host. fast-path counts this program's instructions and requires
/// valgrind; without valgrind, `all` skips that experiment and says so.
///
/// Below each column is a summary of its agreement. `direction`: how many of the published changes
/// go the same way here, by more than 1%. `order`: how many pairs of rows are in the same order.
/// `factor`: the largest ratio between the two figures.
///
/// Exit code: 0, or 2 for an invalid argument.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Names of experiments, all, or list (prints the names)
    #[arg(value_name = "NAME", required = true, value_delimiter = ',')]
    experiments: Vec<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each simulated workload, each with its own seed; figures are the means
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
    /// Whose instructions the machine prices: pageyard, this allocator's, or linux, the kernel's own.
    /// auto-tuning, auto-tuning-sockets, recalculate and regression use linux in any case
    #[arg(
        long,
        value_name = "linux|pageyard",
        default_value = "pageyard",
        hide_possible_values = true
    )]
    cost: Cost,
    /// Maximum number of simulated runs at once; results do not depend on it [default: one per CPU, as
    /// many as fit in memory]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Shorten the runs to seconds instead of minutes
    #[arg(long)]
    small: bool,
    /// Print how far the figures move when each cost of the machine is halved and doubled, instead
    /// of the figures themselves (about 75 shortened runs)
    #[arg(long, conflicts_with_all = ["html", "svg"])]
    sensitivity: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Write the reports to a file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    picture: Picture,
}

// A parser of its own: under callgrind, describing all other commands takes longer than the rest.
/// Exercise the core's hot paths once, for callgrind to count (`pageyard reproduce fast-path`)
#[derive(clap::Parser)]
#[command(name = fast_path::COMMAND)]
pub(crate) struct HotPath {
    /// The core, or the core without one design idea
    variant: String,
    /// The operation
    pattern: String,
    /// Warm-up operations
    #[arg(value_parser = clap::value_parser!(u32).range(1..=131_072))]
    size: u32,
    /// Counted operations after the warm-up
    #[arg(value_parser = clap::value_parser!(u32).range(..=131_072))]
    n: u32,
}

pub(crate) fn hot_path(args: &HotPath) -> output::Outcome {
    fast_path::exercise(&args.variant, &args.pattern, args.size as usize, args.n as usize)?;
    Ok(ExitCode::SUCCESS)
}

/// Result of an experiment, as written to JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Report(Report),
    Sensitivity(Sensitivity),
    LeftOut(LeftOut),
}

/// An experiment of `all` that cannot run here.
#[derive(Serialize)]
struct LeftOut {
    experiment: &'static str,
    left_out: String,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Found::Report(r) => r.fmt(f),
            Found::Sensitivity(s) => s.fmt(f),
            Found::LeftOut(l) => writeln!(f, "{}: skipped: {}", l.experiment, l.left_out),
        }
    }
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let outputs = args.output.iter().map(PathBuf::as_path).chain(args.picture.outputs());
    let outputs: Vec<_> = outputs.collect();
    if args.experiments == ["list"] {
        return match outputs.first() {
            Some(file) => {
                Err(format!("{}: list writes no file; use --json > FILE", file.display()).into())
            }
            None => list(args.json),
        };
    }
    output::check(&[], &outputs)?;
    let every = args.experiments == ["all"];
    let experiments: Vec<Experiment> = if every {
        EXPERIMENTS.to_vec()
    } else {
        args.experiments.iter().map(|n| reproduce::by_name(n)).collect::<Result<_, _>>()?
    };
    let options = Options {
        seed: args.seed,
        iterations: args.iterations,
        scale: if args.small { Scale::Small } else { Scale::Full },
        costs: args.cost.costs(),
        jobs: args.jobs,
        program: Some(std::env::current_exe()?),
    };
    let text = !args.json && args.output.is_none();
    let mut all = Vec::new();
    let mut failed = None;
    for (i, experiment) in experiments.iter().enumerate() {
        if text && i > 0 {
            writeln!(output::stdout())?;
        }
        let report = Report::empty(experiment, &options);
        let heading = (text && !args.sensitivity).then_some(&report);
        let mut screen = Screen { bar: Bar::new(), heading, begun: false };
        let found = if args.sensitivity {
            sensitivity(experiment, &options, &mut screen).map(Found::Sensitivity)
        } else {
            reproduce::run(experiment, &options, &mut screen).map(Found::Report)
        };
        let begun = screen.begun;
        drop(screen);
        let found = match found {
            // With `all`, the other experiments still run.
            Err(ReproduceError::Unavailable { experiment, why }) if every => {
                Found::LeftOut(LeftOut { experiment, left_out: why })
            }
            Ok(found) => found,
            // What is done by then is not lost.
            Err(e) => {
                failed = Some(e);
                break;
            }
        };
        if text {
            match &found {
                // The tables are printed already.
                Found::Report(report) if begun => write!(output::stdout(), "{}", report.closing())?,
                found => write!(output::stdout(), "{found}")?,
            }
        }
        all.push(found);
    }
    let drawn = args.picture.draw(|| {
        let reports: Vec<Report> = all
            .iter()
            .filter_map(|f| if let Found::Report(r) = f { Some(r.clone()) } else { None })
            .collect();
        let mut page = Page::new("Published experiments, repeated", &command());
        page.reproduced(&reports);
        Ok(page)
    });
    if let Some(path) = &args.output {
        write_json(path, &all)?;
    }
    if args.json {
        print_json(&all)?;
    }
    drawn?;
    failed.map_or(Ok(ExitCode::SUCCESS), |e| Err(e.into()))
}

/// Shows a running experiment. A table takes minutes, so it is printed as soon as it is available.
struct Screen<'r> {
    bar: Bar,
    /// The report whose heading is printed before the first table; `None` if tables are not printed.
    heading: Option<&'r Report>,
    begun: bool,
}

impl Watch for Screen<'_> {
    fn progress(&mut self, part: &str, done: u64, all: u64) {
        self.bar.show(part, Count::Runs, done, Some(all));
    }

    fn table(&mut self, table: &Comparison) -> std::io::Result<()> {
        let Some(report) = self.heading else { return Ok(()) };
        let mut out = output::stdout();
        self.bar.without(|| {
            if !self.begun {
                write!(out, "{}", report.heading())?;
            }
            write!(out, "\n{table}")?;
            out.flush()
        })?;
        self.begun = true;
        Ok(())
    }
}

fn list(json: bool) -> output::Outcome {
    if json {
        let entry =
            |e: &Experiment| json!({ "name": e.name, "summary": e.summary, "source": e.source });
        print_json(&EXPERIMENTS.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    for Experiment { name, summary, source, .. } in EXPERIMENTS {
        writeln!(out, "{name:20} {summary} ({source})")?;
    }
    Ok(ExitCode::SUCCESS)
}
