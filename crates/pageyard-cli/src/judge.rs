//! `pageyard judge`: what a policy does better and worse than another.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::result::Versioned;
use pageyard_sweep::finish;
use pageyard_sweep::judge::{Judgement, Proposal, Suite};

use crate::output::{self, print_json};
use crate::sweep::{Limits, compute, with_fix};

const EXAMPLES: &str = "\
Examples:
  pageyard judge Step10 --against Step9
  pageyard judge Packed --trace build.pgy --trace server.pgy --seeds 5";

/// Judge a policy: what gets better and worse than under another one, and how sure that is
///
/// Both policies run the workloads of the published experiments on their simulated machines, the
/// workloads that a published change made slower, and replays of your recordings (--trace), each
/// with the same seeds. The page lists what changed with every seed, what changed with some of them
/// only, and counts the rest. Finished runs are kept in the results' folder, so the same command
/// continues, and another policy runs against the same one in half the time.
///
/// Exit code: 0, or 2 for an invalid argument or a failed run.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Policy to judge, with its settings; `pageyard policies` lists the names
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Policy to compare with
    #[arg(long, value_name = "POLICY", default_value = "Linux612")]
    against: String,
    /// Recording to replay, with its state attached; may be repeated
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// Number of seeds, from 1
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Run the workloads at their full length: hours instead of minutes
    #[arg(long)]
    full: bool,
    /// Run these workloads of the suite alone, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Folder for the results, created if it does not exist
    #[arg(short, long, value_name = "DIR", default_value = "judge.results")]
    output: PathBuf,
    #[command(flatten)]
    limits: Limits,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let suite = Suite::new(&Proposal {
        policy: args.policy.clone(),
        against: args.against.clone(),
        seeds: (1..=args.seeds).collect(),
        traces: args.traces.clone(),
        full: args.full,
        only: args.only.clone(),
    })?;
    let (_, results) = compute(&suite.plan, &args.output, &args.limits)?;
    let name = format!("{} against {}", suite.policy, suite.against);
    finish(&name, &args.output, &results).map_err(with_fix)?;
    let judgement = Judgement::new(&suite, &results);
    if args.json {
        print_json(&Versioned::of(&judgement))?;
    } else {
        write!(output::stdout(), "{judgement}")?;
    }
    Ok(ExitCode::SUCCESS)
}
