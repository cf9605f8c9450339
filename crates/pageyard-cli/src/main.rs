//! The program `pageyard`: arguments in, text or JSON out. What it does is done by the libraries.

#![forbid(unsafe_code)]

mod conform;
mod knobs;
mod output;
mod replay;
mod run;
mod show;
mod topology;
mod trace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The Linux page allocator, outside Linux: replay a real kernel's page events under several
/// policies, and hold the allocator against recorded answers of the real kernel.
#[derive(Parser)]
#[command(name = "pageyard", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay a kernel's page events under several policies and compare what each would have done
    Replay(replay::Args),
    /// Run a workload on a simulated machine
    Run(run::Args),
    /// Check a machine's description and print it as tables
    Topology(topology::Args),
    /// Hold the allocator against recorded answers and states of the real Linux 6.12.117
    Conform(conform::Args),
    /// Print a recorded machine state as the kernel's zoneinfo, buddyinfo, pagetypeinfo, vmstat,
    /// show_mem, or who holds what (page_owner)
    Show(show::Args),
    /// List the allocator's settings: defaults, ranges, effects
    Knobs(knobs::Args),
    /// Import, describe and export traces of page events
    Trace(trace::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Knobs(args) => knobs::run(&args),
        Command::Trace(args) => trace::run(&args),
    };
    match result {
        Ok(code) => code,
        Err(e) if output::is_broken_pipe(e.as_ref()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("pageyard: {e}");
            ExitCode::from(2)
        }
    }
}
