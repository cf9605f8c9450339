//! `pageyard soak`: a long mixed load on real memory, everything looked at again and again.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use pageyard_soak::{Plan, Report, soak};

use crate::output::{self, print_json};
use crate::progress::{Bar, Count};

/// Load a yard of real memory for minutes or hours, and look whether anything is wrong
///
/// Threads that come and go allocate in every way there is and give back on other threads, while settings,
/// limits and memory change, and pages become faulty. Every page that somebody holds bears a pattern of its own, so a page
/// that is handed out twice is seen. Once a second everybody stands still and the allocator's
/// invariants are checked. Ends with code 1 where something was found.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long
    #[arg(long, default_value_t = 2.0, value_name = "N")]
    minutes: f64,
    /// Memory of the yard
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    size: u64,
    /// Threads that allocate; two for each CPU, but at least four, if not given
    #[arg(long)]
    threads: Option<usize>,
    /// Where random choices start; what threads do to each other differs all the same
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    if !(0.01..=100_000.0).contains(&args.minutes) {
        return Err(format!("--minutes {}: give 0.01 to 100000", args.minutes).into());
    }
    let most = u64::MAX >> 20;
    if args.size > most {
        return Err(format!("--size {}: give at most {most} MiB", args.size).into());
    }
    let seconds = (args.minutes * 60.0).ceil() as u64;
    let plan = Plan::new(seconds);
    let threads = args.threads.unwrap_or(plan.threads);
    let plan = Plan { size: args.size << 20, threads, seed: args.seed, ..plan };
    let mut bar = Bar::new();
    let mut tenths = 0;
    let report = soak(&plan, &mut |_| {
        tenths += 1;
        bar.show("seconds", Count::Runs, tenths / 10, Some(seconds));
    })?;
    drop(bar);
    if args.json {
        print_json(&report)?
    } else {
        print(&report)?
    }
    Ok(if report.found.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

fn print(r: &Report) -> Result<(), Box<dyn Error>> {
    let mut out = output::stdout();
    let (seconds, mib) = (r.seconds, r.size >> 20);
    writeln!(out, "{seconds:.0} s, {} threads, {mib} MiB, seed {}\n", r.threads, r.seed)?;
    let c = &r.counts;
    for (what, n) in [
        ("blocks handed out", c.blocks),
        ("single pages in bulk", c.bulk_pages),
        ("movable blocks", c.movables),
        ("contiguous ranges", c.ranges),
        ("requests refused", c.refused),
        ("pages handed out in all", c.pages),
        ("  of these zero, as asked for", c.zeros),
        ("looks at what is held", c.checked),
        ("given back by another thread", c.passed_on),
        ("threads that came and went", c.threads_ended),
        ("settings changed", c.settings),
        ("limits changed", c.limits),
        ("sections of memory taken out", c.sections),
        ("  that were in use and stayed", c.sections_kept),
        ("pages that became faulty", c.faulty),
        ("compactions of everything", c.compactions),
        ("blocks moved", c.moved),
        ("pages given up by a cache", c.shrunk),
        ("pages given back to the system", c.given_back),
        ("  fetched again", c.fetched),
        ("times all was checked", c.validated),
    ] {
        writeln!(out, "{what:<31}{n:>15}")?;
    }
    match &r.found {
        None => writeln!(out, "\nnothing was found")?,
        Some(found) => writeln!(out, "\nFOUND: {found}")?,
    }
    Ok(())
}
