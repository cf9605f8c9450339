//! `pageyard soak`: random work on real memory, with a record of every page's owner.

use std::error::Error;
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::str::FromStr;

use pageyard::policy::Rules;
use pageyard_lab::format::{self, duration, grouped, many};
use pageyard_lab::replay::{PolicyError, by_name};
use pageyard_machine::size;
use pageyard_soak::{LEAST_OF_A_YARD, Phase, Plan, Report, soak};

use crate::arguments::number;
use crate::output::{self, print_json};
use crate::progress::{Bar, Count};

/// Load yards of real memory for minutes or hours, and check who owns each page
///
/// Runs phases of about a second. Each phase creates its own yards. Threads that start and exit
/// allocate and free memory through every public interface while settings, limits and memory
/// change. A shadow map records the owner of every page, which detects pages that are allocated
/// twice or freed by another owner. In some phases, pages also contain patterns that are
/// checked. After each phase everything is freed, and every yard must be exactly empty. Prints what
/// each phase consists of. Exits with code 1 if it finds an error.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Duration in minutes
    #[arg(long, default_value_t = 2.0, value_name = "N", value_parser = number(0.01, 100_000.0))]
    minutes: f64,
    /// Maximum memory in the yards of a phase
    #[arg(long, default_value = "1G", value_name = "SIZE", value_parser = size)]
    size: u64,
    /// Policy of all yards [default: Linux612 and Packed in turns]
    #[arg(long, value_name = "POLICY")]
    policy: Option<OnlyRules>,
    /// Number of allocating threads [default: two per CPU, at least four]
    #[arg(long)]
    threads: Option<usize>,
    /// Random seed; the interleaving of threads still differs from run to run
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Repeat only this phase
    #[arg(long, value_name = "N")]
    phase: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// The rules of one policy, without settings.
#[derive(Clone, Copy)]
struct OnlyRules(&'static Rules);

impl FromStr for OnlyRules {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<OnlyRules, PolicyError> {
        let choice = by_name(text)?;
        if !choice.settings.is_empty() {
            let why = "a soak changes settings itself; leave them out".to_owned();
            return Err(PolicyError { name: choice.name, why });
        }
        // The yards keep a reference to the rules until the program ends.
        Ok(OnlyRules(Box::leak(Box::new(choice.rules))))
    }
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    if args.size < LEAST_OF_A_YARD {
        let (given, least) = (format::size(args.size), format::size(LEAST_OF_A_YARD));
        return Err(format!("--size {given}: expected at least {least}").into());
    }
    let seconds = (args.minutes * 60.0).ceil() as u64;
    let plan = Plan::new(seconds);
    let threads = args.threads.unwrap_or(plan.threads);
    let (only, seed) = (args.phase, args.seed);
    let rules = args.policy.map(|OnlyRules(rules)| rules);
    let plan = Plan { size: args.size, threads, seed, only, rules, ..plan };
    let mut bar = Bar::new();
    let mut tenths = 0;
    let mut begun = None;
    let mut printed = Ok(());
    let report = soak(&plan, &mut |phase| {
        bar.show("seconds", Count::Runs, tenths / 10, Some(seconds));
        tenths += 1;
        if !args.json && begun != Some(phase.number) {
            begun = Some(phase.number);
            printed = bar.without(|| print_phase(phase));
        }
        if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    drop(bar);
    printed?;
    if args.json {
        print_json(&report)?
    } else {
        print(&report)?
    }
    Ok(if report.found.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Flushes at once, because the process may die in this phase.
fn print_phase(phase: &Phase) -> Result<(), Box<dyn Error>> {
    let mut out = output::stdout();
    writeln!(out, "{phase}")?;
    Ok(out.flush()?)
}

fn print(r: &Report) -> Result<(), Box<dyn Error>> {
    let mut out = output::stdout();
    writeln!(
        out,
        "\n{}, {}, {} threads, {}, seed {}\n",
        duration((r.seconds * 1e9) as u64),
        many(r.phases, "phase"),
        r.threads,
        format::size(r.size),
        r.seed
    )?;
    writeln!(out, "Operations, blocks by what held them, and checks")?;
    for (what, n) in &r.counts.0 {
        writeln!(out, "{what:<20}{:>15}", grouped(*n))?;
    }
    match &r.found {
        None => writeln!(out, "\nno errors found")?,
        Some(f) => writeln!(out, "\nERROR in {}:\n{}", f.configuration, f.found)?,
    }
    Ok(())
}
