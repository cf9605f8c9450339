//! `pageyard top`: lists processes that have yards, and shows the yards of one, live.

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use pageyard_host::YardStats;
use pageyard_lab::format::{grouped, pages};

mod draw;
mod processes;
mod read;
pub(crate) mod screen;

use self::read::{age, read};
use crate::arguments::number;
use crate::output::{self, print_json};

/// Show the yards of a running process: requests, use, limits, pressure, zones, per-CPU lists
///
/// Without PID, lists the processes that have yards. A process must use pageyard-host and publish
/// statistics, which is the default. The worker of a yard publishes them about twice a second;
/// figures are at most about a second old, unless the process is stopped; their age is shown then.
/// Processes of other users are shown to root only.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Process ID; without it, a list of all processes that have yards
    pid: Option<u32>,
    /// Print the current state and exit
    #[arg(long)]
    once: bool,
    /// Print one JSON document and exit, for use by programs
    #[arg(long)]
    json: bool,
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = number(0.1, 3600.0))]
    every: f64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let Some(pid) = args.pid else {
        return processes::list(args.json);
    };
    if args.json {
        print_json(&read(pid)?)?;
    } else if args.once || !io::stdout().is_terminal() {
        let mut out = output::stdout();
        let yards = read(pid)?;
        for (n, y) in (1..).zip(&yards) {
            let which = match yards.len() {
                1 => String::new(),
                all => format!(", yard {n} of {all}"),
            };
            writeln!(out, "process {}{which}, pressure {}{}", y.pid, y.level, age(y.at_ns))?;
            print(&mut out, y)?;
        }
    } else {
        screen::watch(Duration::from_secs_f64(args.every), || read(pid))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, y: &YardStats) -> io::Result<()> {
    let limit = |l: Option<u64>| l.map_or("none".into(), pages);
    let (used, resident) = (pages(y.used), pages(y.resident));
    writeln!(out, "  {used} in use, {resident} resident of {}", pages(y.pages))?;
    writeln!(out, "  limits: soft {}, hard {}", limit(y.soft_limit), limit(y.hard_limit))?;
    writeln!(out, "  given back {}, fetched again {}", pages(y.given_back), pages(y.fetched))?;
    let by_order = |counts: &[u64]| {
        let some = counts.iter().enumerate().filter(|(_, n)| **n > 0);
        let each = some.map(|(order, n)| format!("order {order}: {}", grouped(*n)));
        let each = each.collect::<Vec<_>>().join(", ");
        if each.is_empty() { "none".to_owned() } else { each }
    };
    if y.allocs.is_empty() {
        writeln!(out, "  {}", draw::NOT_PUBLISHED)?;
    } else {
        writeln!(out, "  blocks allocated {}", by_order(&y.allocs))?;
        writeln!(out, "  blocks freed {}", by_order(&y.frees))?;
        let cache = &y.thread_cache;
        if cache.on {
            writeln!(
                out,
                "  thread cache: {} {}, {}, {} requests served, {} refills, {} flushes, {} \
                 drains",
                cache.threads,
                if cache.threads == 1 { "thread" } else { "threads" },
                pages(cache.pages),
                grouped(cache.hits),
                grouped(cache.refills),
                grouped(cache.flushes),
                grouped(cache.drains)
            )?;
        } else {
            writeln!(out, "  thread cache: none")?;
        }
    }
    for z in &y.zones {
        writeln!(
            out,
            "  node {}, zone {}: {} free, {} on lists, zone lock taken {} times, lists busy {} times",
            z.node,
            z.kind,
            pages(z.free),
            pages(z.cached),
            grouped(z.lock_holds),
            grouped(z.bypasses)
        )?;
        writeln!(out, "    free blocks by order {:?}; pageblocks {}", z.free_blocks, z.map)?;
        for c in &z.cpus {
            // The packed engine's magazines have no such limits.
            let limits = match c.batch {
                0 => "high -, batch -".to_owned(),
                _ => {
                    format!("high {} ({} to {}), batch {}", c.high, c.high_min, c.high_max, c.batch)
                }
            };
            writeln!(
                out,
                "    CPU {}: count {}, {limits}, {} allocated, {} freed",
                c.cpu,
                c.count,
                grouped(c.allocs),
                grouped(c.frees)
            )?;
        }
    }
    Ok(())
}
