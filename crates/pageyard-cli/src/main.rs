//! The program `pageyard`: parses arguments and prints text or JSON. The libraries do the work.

mod arguments;
mod closed;
mod compare;
mod conform;
mod judge;
mod knobs;
mod machines;
mod manual;
mod memory;
mod output;
mod picture;
mod policies;
mod progress;
mod record;
mod replay;
mod reproduce;
mod run;
mod show;
mod signals;
mod soak;
mod sweep;
mod top;
mod topology;
mod trace;
mod workloads;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use pageyard_lab::reproduce::fast_path;
use pageyard_trace::printable;

use crate::output::say;

#[global_allocator]
static MEMORY: memory::OrEnd = memory::OrEnd;

const START: &str = "\
Begin with:
  pageyard replay samples/kbuild.pgy
  pageyard help replay

A trace named - is read from standard input. A file named - is written to standard output, and the
command's text goes to standard error.";

/// The Linux page allocator, outside Linux: replay a real kernel's page events under several
/// policies, and check the allocator against recorded answers of the real kernel.
#[derive(Parser)]
#[command(name = "pageyard", version, max_term_width = 100, after_help = START)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// Each command is described where its arguments are defined.
#[derive(Subcommand)]
enum Command {
    Record(record::Args),
    Replay(replay::Args),
    Run(run::Args),
    Reproduce(reproduce::Args),
    Compare(compare::Args),
    Workloads(workloads::Args),
    Machines(machines::Args),
    Calibrate(machines::Calibrate),
    Top(top::Args),
    Topology(topology::Args),
    Conform(conform::Args),
    Show(show::Args),
    Soak(soak::Args),
    Sweep(sweep::Args),
    Judge(judge::Args),
    Knobs(knobs::Args),
    Policies(policies::Args),
    Trace(trace::Args),
    #[command(hide = true)]
    Man(manual::Man),
    #[command(hide = true)]
    Completions(manual::Completions),
}

fn main() -> ExitCode {
    memory::named(printable(&picture::command()).into_owned());
    let words = || std::env::args_os().skip(1);
    let done = match words().next().is_some_and(|first| first == fast_path::COMMAND) {
        // Its instructions are counted, so no other thread runs.
        true => reproduce::HotPath::try_parse_from(words()).map(|args| reproduce::hot_path(&args)),
        false => arguments::parse::<Cli>().map(|cli| perform(cli.command)),
    };
    let done = match done {
        Ok(done) => done,
        Err(e) => return arguments::answer(&e),
    };
    match done.and_then(|code| Ok(output::stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(e) => {
            let e = output::not_written().map_or(e, Into::into);
            if output::is_broken_pipe(e.as_ref()) {
                return ExitCode::SUCCESS;
            }
            // One line, whatever the message quotes.
            say!("pageyard: {}", printable(&output::without_numbers(&e)));
            ExitCode::from(2)
        }
    }
}

fn perform(command: Command) -> output::Outcome {
    signals::watch().map_err(|e| format!("signals: {e}"))?;
    match command {
        Command::Record(args) => record::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Workloads(args) => workloads::run(&args),
        Command::Machines(args) => machines::run(&args),
        Command::Calibrate(args) => machines::calibrate(&args),
        Command::Top(args) => top::run(&args),
        Command::Topology(args) => topology::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Judge(args) => judge::run(&args),
        Command::Knobs(args) => knobs::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Man(args) => manual::man(&args, Cli::command()),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
    }
}
