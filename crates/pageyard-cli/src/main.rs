//! The program `pageyard`: arguments in, text or JSON out. What it does is done by the libraries.

#![forbid(unsafe_code)]

mod compare;
mod conform;
mod knobs;
mod machines;
mod output;
mod picture;
mod progress;
mod replay;
mod reproduce;
mod run;
mod show;
mod soak;
mod top;
mod topology;
mod trace;
mod workloads;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pageyard_lab::reproduce::fast_path;

const START: &str = "\
Begin with:
  pageyard replay samples/kbuild.pgy
  pageyard help replay";

/// The Linux page allocator, outside Linux: replay a real kernel's page events under several
/// policies, and hold the allocator against recorded answers of the real kernel.
#[derive(Parser)]
#[command(name = "pageyard", version, max_term_width = 100, after_help = START)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// What each does is said where its arguments are.
#[derive(Subcommand)]
enum Command {
    Replay(replay::Args),
    Run(run::Args),
    Reproduce(reproduce::Args),
    #[command(name = fast_path::COMMAND, hide = true)]
    HotPath(reproduce::HotPath),
    Compare(compare::Args),
    Workloads(workloads::Args),
    Machines(machines::Args),
    Calibrate(machines::Calibrate),
    Top(top::Args),
    Topology(topology::Args),
    Conform(conform::Args),
    Show(show::Args),
    Soak(soak::Args),
    Knobs(knobs::Args),
    Trace(trace::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::HotPath(args) => reproduce::hot_path(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Calibrate(args) => machines::calibrate(&args),
        Command::Top(args) => top::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Soak(args) => soak::run(&args),
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
