//! `pageyard topology`: checks and prints the description of a machine.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::topology::Topology;

use crate::output::{self, print_json};

const EXAMPLES: &str = "\
Examples:
  pageyard topology two-nodes
  pageyard topology machine.toml --json

A description:
  [[node]]
  memory = [\"1M..3G\", \"4G..8G\"]
  cpus = \"0-3\"
  [[cache]]
  cpus = \"0-3\"
  last_level = \"8M\"";

/// Check a machine's description and print it as tables
///
/// Prints nodes, zones, CPUs, distances, the order in which requests try the zones, and caches.
/// Built-in machines: desktop, two-nodes, four-nodes, eight-sockets.
///
/// Exit code: 0, or 2 if the description is wrong; the error names the entry.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A TOML file, or the name of a built-in machine
    #[arg(value_name = "FILE|NAME")]
    topology: PathBuf,
    /// Print JSON instead of tables, with addresses and sizes in bytes
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let topology = Topology::open(&args.topology)?;
    if args.json {
        print_json(&topology.json())?;
    } else {
        write!(output::stdout(), "{topology}")?;
    }
    Ok(ExitCode::SUCCESS)
}
