//! `pageyard top`: shows the yards of another process, live.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use pageyard_host::{PageError, YardStats, read_stats};
use pageyard_trace::printable;

mod draw;
pub(crate) mod screen;

use crate::output::{self, print_json};

/// Show the yards of a running process: use, limits, pressure, zones, per-CPU lists, fragmentation.
///
/// The process must use pageyard-host and publish statistics, which is the default.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Process id
    pid: u32,
    /// Print the current state and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON document and exit, for use by programs
    #[arg(long)]
    json: bool,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    every: f64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    if args.json {
        print_json(&read(args.pid)?)?;
    } else if args.once || !io::stdout().is_terminal() {
        let mut out = output::stdout();
        read(args.pid)?.iter().try_for_each(|y| print(&mut out, y))?;
    } else {
        if !(0.1..=3600.0).contains(&args.every) {
            return Err(format!("--every {}: expected 0.1 to 3600 seconds", args.every).into());
        }
        screen::watch(Duration::from_secs_f64(args.every), || read(args.pid))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the statistics that the process publishes. They are untrusted, so active characters are
/// escaped.
fn read(pid: u32) -> Result<Vec<YardStats>, PageError> {
    let mut yards = read_stats(pid)?;
    let clean = |text: &mut String| *text = printable(text).into_owned();
    for y in &mut yards {
        clean(&mut y.level);
        for z in &mut y.zones {
            clean(&mut z.kind);
            clean(&mut z.map);
        }
    }
    Ok(yards)
}

fn print(out: &mut impl Write, y: &YardStats) -> io::Result<()> {
    let mib = |pages: u64| format!("{:.1} MiB", pages as f64 / 256.0);
    let limit = |l: Option<u64>| l.map_or("none".into(), mib);
    writeln!(out, "process {}, pressure {}", y.pid, y.level)?;
    writeln!(out, "  {} in use, {} resident of {}", mib(y.used), mib(y.resident), mib(y.pages))?;
    writeln!(out, "  limits: soft {}, hard {}", limit(y.soft_limit), limit(y.hard_limit))?;
    writeln!(out, "  given back {}, fetched again {}", mib(y.given_back), mib(y.fetched))?;
    for z in &y.zones {
        writeln!(
            out,
            "  node {}, zone {}: {} free, {} on lists, zone lock taken {} times, lists busy {} times",
            z.node,
            z.kind,
            mib(z.free),
            mib(z.cached),
            z.lock_holds,
            z.bypasses
        )?;
        writeln!(out, "    free blocks by order {:?}; pageblocks {}", z.free_blocks, z.map)?;
        for c in &z.cpus {
            writeln!(
                out,
                "    CPU {}: count {}, high {} ({} to {}), batch {}, {} allocated, {} freed",
                c.cpu, c.count, c.high, c.high_min, c.high_max, c.batch, c.allocs, c.frees
            )?;
        }
    }
    Ok(())
}
