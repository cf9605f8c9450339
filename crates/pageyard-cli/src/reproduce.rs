//! `pageyard reproduce`: the experiments of the seeds, beside what was published.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::picture::Page;
use pageyard_lab::reproduce::sensitivity::{Sensitivity, sensitivity};
use pageyard_lab::reproduce::{
    self, EXPERIMENTS, Experiment, Options, Report, ReproduceError, Scale, fast_path,
};
use pageyard_machine::Costs;
use serde::Serialize;

use crate::output::{self, print_json, write_file};
use crate::picture::{Picture, command};
use crate::progress::{Bar, Count};

const EXAMPLES: &str = "\
Examples:
  pageyard reproduce list
  pageyard reproduce auto-tuning
  pageyard reproduce all --small
  pageyard reproduce recalculate --sensitivity
  pageyard reproduce all -o reproduced.json --html reproduced.html";

/// Run published experiments again, and print what was published beside what is found
///
/// Each is a mail or commit that changed the page allocator. Machines are simulated: figures are of a
/// model with one table of costs for all experiments (`pageyard calibrate` prints it), and nothing but
/// the seed decides. fast-path alone is not simulated: it counts this program's instructions, for
/// which valgrind must be installed; without it, `all` leaves that experiment out and says so.
///
/// Below each column stands in what it agrees: `direction`, of the published changes those that go the
/// same way here, by more than 1%; `order`, of the pairs of rows those in the same order; `factor`, the
/// largest between the two figures.
///
/// Exit code: 0, or 2 for a wrong argument.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Experiments by name; all; or list, which names them
    #[arg(value_name = "NAME", required = true, value_delimiter = ',')]
    experiments: Vec<String>,
    /// Decides everything that is left to chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs of each simulated workload, each with a seed of its own; figures are their means
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    iterations: u32,
    /// Shortened runs: seconds instead of minutes
    #[arg(long)]
    small: bool,
    /// Instead of the figures, how far they move when each cost of the machine is halved and doubled
    /// (shortened runs, some 60 of them)
    #[arg(long)]
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

/// One exercise of the core's hot paths, for callgrind to count (`pageyard reproduce fast-path`)
#[derive(clap::Args)]
pub(crate) struct HotPath {
    /// The core, or the core without an idea
    variant: String,
    /// What is done
    pattern: String,
    /// Operations to warm up
    #[arg(value_parser = clap::value_parser!(u32).range(1..=131_072))]
    size: u32,
    /// Operations after that
    #[arg(value_parser = clap::value_parser!(u32).range(..=131_072))]
    n: u32,
}

pub(crate) fn hot_path(args: &HotPath) -> output::Outcome {
    fast_path::exercise(&args.variant, &args.pattern, args.size as usize, args.n as usize)?;
    Ok(ExitCode::SUCCESS)
}

/// What is written as JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Found {
    Report(Report),
    Sensitivity(Sensitivity),
    LeftOut(LeftOut),
}

/// Of all experiments, one that cannot be run here.
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
            Found::LeftOut(l) => writeln!(f, "{} is left out: {}", l.experiment, l.left_out),
        }
    }
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    if args.experiments == ["list"] {
        return list();
    }
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
        costs: Costs::default(),
        program: Some(std::env::current_exe()?),
    };
    let text = !args.json && args.output.is_none();
    let mut all = Vec::new();
    for (i, experiment) in experiments.iter().enumerate() {
        let mut bar = Bar::new();
        let mut tell = |what: &str, at, of| bar.show(what, Count::Runs, at, Some(of));
        let found = if args.sensitivity {
            sensitivity(experiment, &options, &mut tell).map(Found::Sensitivity)
        } else {
            reproduce::run(experiment, &options, &mut tell).map(Found::Report)
        };
        drop(bar);
        let found = match found {
            // Whoever asked for all still gets the others.
            Err(ReproduceError::Unavailable { experiment, why }) if every => {
                Found::LeftOut(LeftOut { experiment, left_out: why })
            }
            found => found?,
        };
        // An experiment takes minutes: its figures are shown when they are there.
        if text {
            let between = if i > 0 { "\n" } else { "" };
            write!(output::stdout(), "{between}{found}")?;
        }
        all.push(found);
    }
    if args.picture.is_wanted() {
        let reports: Vec<Report> = all
            .iter()
            .filter_map(|f| if let Found::Report(r) = f { Some(r.clone()) } else { None })
            .collect();
        let mut page = Page::new("Published experiments, run again", &command());
        page.reproduced(&reports);
        args.picture.write(&page)?;
    }
    if let Some(path) = &args.output {
        write_file(path, |file| {
            let mut file = BufWriter::new(file);
            serde_json::to_writer_pretty(&mut file, &all)?;
            writeln!(file)?;
            file.flush()?;
            Ok(())
        })?;
    }
    if args.json {
        print_json(&all)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> output::Outcome {
    let mut out = output::stdout();
    for Experiment { name, summary, source, .. } in EXPERIMENTS {
        writeln!(out, "{name:14} {summary} ({source})")?;
    }
    Ok(ExitCode::SUCCESS)
}
