//! `pageyard machines` and `pageyard calibrate`: the simulated hardware and its costs.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use pageyard_machine::format::{grouped, size};
use pageyard_machine::spec::SHIPPED;
use pageyard_machine::{Costs, MachineSpec, calibrate};
use serde_json::json;

use crate::output::{self, print_json};

/// List the simulated machines for `pageyard run --on`
///
/// Their files are in crates/pageyard-machine/machines. A TOML file can be given in place of a
/// name; `detected` is the current machine.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    // A machine that cannot be detected is left out.
    let names = SHIPPED.iter().map(|s| s.0).chain(["detected"]);
    let all = names.filter_map(|name| Some((name, MachineSpec::open(Path::new(name)).ok()?)));
    if args.json {
        let json = |(name, spec): (&str, MachineSpec)| {
            json!({
                "name": name,
                "cpus": spec.cpus().len(),
                "nodes": spec.nodes(),
                "memory_bytes": spec.memory(),
                "last_level_bytes": spec.last_level(),
                "private_bytes": spec.private(),
                "clock_mhz": spec.clock_mhz(),
            })
        };
        print_json(&all.map(json).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    writeln!(
        out,
        "{:10} {:>5} {:>6} {:>8} {:>12} {:>12} {:>6}",
        "machine", "CPUs", "nodes", "memory", "last level", "private", "MHz"
    )?;
    for (name, spec) in all {
        writeln!(
            out,
            "{name:10} {:>5} {:>6} {:>8} {:>12} {:>12} {:>6}",
            grouped(spec.cpus().len() as u64),
            spec.nodes(),
            size(spec.memory()),
            size(spec.last_level()),
            size(spec.private()),
            grouped(spec.clock_mhz().into()),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Measure the costs of the simulated machine on this host, as far as possible
///
/// Prints the measurements next to the table of costs, with the source of each number. Does not
/// change the table. Takes 20 seconds on a quiet host.
#[derive(clap::Args)]
pub(crate) struct Calibrate {}

pub(crate) fn calibrate(_: &Calibrate) -> output::Outcome {
    let costs = Costs::default();
    let spec = MachineSpec::detect()?;
    let report = calibrate::Report { found: calibrate::calibrate(&spec), costs: &costs };
    writeln!(output::stdout(), "{report}\n{}", costs.table())?;
    Ok(ExitCode::SUCCESS)
}
