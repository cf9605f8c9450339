//! `pageyard workloads`: lists the workloads.

use std::io::Write;
use std::process::ExitCode;

use pageyard_lab::workload::RECIPES;

use crate::output;

/// List the workloads of `pageyard run` with their parameters and defaults
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> output::Outcome {
    let mut out = output::stdout();
    for recipe in RECIPES {
        writeln!(out, "{:14} {}", recipe.name, recipe.summary)?;
        for p in recipe.params {
            writeln!(out, "    {:28} {}", format!("{}={}", p.name, p.default), p.help)?;
        }
    }
    writeln!(
        out,
        "{:14} kernel builds, a cache server and huge pages: separation by mobility",
        "hygiene"
    )?;
    writeln!(out, "    for its options: pageyard help run hygiene")?;
    Ok(ExitCode::SUCCESS)
}
