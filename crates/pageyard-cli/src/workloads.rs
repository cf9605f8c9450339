//! `pageyard workloads`: lists the workloads.

use std::io::Write;
use std::process::ExitCode;

use pageyard_lab::workload::{Param, RECIPES, Recipe};
use serde_json::json;

use crate::output::{self, print_json};

/// List the workloads of `pageyard run` with their parameters and defaults
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    if args.json {
        let param = |p: &Param| json!({"name": p.name, "default": p.default, "help": p.help});
        let workload = |r: &Recipe| {
            let params: Vec<_> = r.params.iter().map(param).collect();
            json!({"name": r.name, "summary": r.summary, "parameters": params})
        };
        print_json(&RECIPES.iter().map(workload).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
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
