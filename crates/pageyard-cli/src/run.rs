//! `pageyard run`: workloads on simulated machines and on this host.

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use pageyard_lab::format::number;
use pageyard_lab::hygiene::{self, Claim, Summary};
use pageyard_lab::picture::Page;
use pageyard_lab::record::Recorder;
use pageyard_lab::result::{LineShare, Metric, RunResult};
use pageyard_lab::table::{self, Source, TableError};
use pageyard_lab::workload::{self, Host, HostOptions, Options, Recipe};
use pageyard_machine::{Costs, MachineSpec, Stop, size};
use serde::Serialize;

use crate::output::{self, print_json, write_file, write_json};
use crate::picture::{Picture, command};
use crate::policies::{Choices, note_without_effect};
use crate::progress::{Bar, Count};

const EXAMPLES: &str = "\
Examples:
  pageyard run sctp
  pageyard run kbuild --on machine:2x56 --policy Base,Step5,Step7 --set jobs=112 --set memory=node:1
  pageyard run page_fault1 --iterations 5 --json -o faults.json
  pageyard run page_fault1 --on host --policy Base,Linux612 --iterations 10
  pageyard run sctp --html sctp.html
  pageyard run trace --on machine:desktop --set trace=samples/kbuild.pgy
  pageyard run hygiene --rounds 5";

const HYGIENE: &str = "\
Examples:
  pageyard run hygiene --rounds 5
  pageyard run hygiene --rounds 5 --svg rounds.svg
  pageyard run hygiene --rounds 1 --memory 256M --trace events.txt";

/// Run a workload on a simulated machine or on this host, under one or more policies
///
/// `pageyard workloads` lists the workloads with their parameters, `pageyard machines` the
/// machines. On a simulated machine all times are virtual, and results depend only on the seed.
/// Each iteration has its own seed, which is the same for all policies.
///
/// `--on host` runs the workload for real: threads that stay on the CPUs available to this process,
/// real memory (a quarter of the free memory, at most 4 GiB, unless --memory is given) and the real
/// clock. Policies take turns in each iteration. Cache misses are not counted.
///
/// An interrupted run prints and writes nothing.
///
/// Exit code: 0, or 2 for an invalid argument.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    hygiene: Option<Workload>,
}

#[derive(clap::Args)]
struct Run {
    /// Name of the workload
    #[arg(value_name = "WORKLOAD", required = true)]
    workload: Option<String>,
    /// Where to run: host, or machine: followed by a machine's name or TOML file
    #[arg(long, value_name = "host|machine:NAME", default_value = "machine:2x56", value_parser = on)]
    on: On,
    /// Memory, such as 64G [default: the machine's own; on the host a quarter of the free memory,
    /// at most 4G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Size of a frame descriptor in bytes: 16 as in this allocator, or 64 as in Linux, for
    /// comparison. Simulated machines only
    #[arg(long, value_name = "16|64", default_value = "16", value_parser = descriptor)]
    descriptor: u32,
    /// Share of each node's memory in percent that has been in use before the workload begins: half
    /// of it stays allocated, and its free pages are in no order; 0 is a fresh heap. Simulated
    /// machines only
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=i64::from(workload::MOST_AGED)))]
    age: u8,
    /// Whose instructions the machine prices: pageyard, this allocator's, or linux, the kernel's own,
    /// of which more run under the zone lock. Simulated machines only
    #[arg(
        long,
        value_name = "linux|pageyard",
        default_value = "pageyard",
        hide_possible_values = true
    )]
    cost: Cost,
    #[command(flatten)]
    choices: Choices,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of iterations; each is one sample of every metric
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: u32,
    /// Maximum number of runs at once; results do not depend on it. Simulated machines only [default:
    /// one per CPU, as many as fit in memory]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Set a parameter of the workload; may be repeated, with another parameter
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Print JSON instead of text: a list of results, one per policy
    #[arg(long)]
    json: bool,
    /// Write the results to a file, as JSON
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Record the first iteration over time in the results, so that compare can plot it; implied by
    /// --html and --svg. Simulated machines only
    #[arg(long)]
    record: bool,
    #[command(flatten)]
    picture: Picture,
}

/// Where a workload runs.
#[derive(Clone)]
enum On {
    Machine(Box<MachineSpec>),
    Host,
}

fn on(text: &str) -> Result<On, String> {
    if text == "host" {
        return Ok(On::Host);
    }
    if !text.starts_with("machine:") {
        return Err("expected host, or machine: and a name, such as machine:2x56".into());
    }
    Ok(On::Machine(Box::new(machine(text)?)))
}

/// Opens the machine after `machine:`.
pub(crate) fn machine(text: &str) -> Result<MachineSpec, String> {
    let Some(name) = text.strip_prefix("machine:") else {
        return Err("expected machine: and a name, such as machine:2x56".into());
    };
    MachineSpec::open(Path::new(name)).map_err(|e| e.to_string())
}

fn descriptor(text: &str) -> Result<u32, &'static str> {
    text.parse().ok().filter(|n| [16, 64].contains(n)).ok_or("expected 16 or 64")
}

/// Whose instructions the machine prices.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cost {
    /// This allocator's.
    Pageyard,
    /// The kernel's own.
    Linux,
}

impl Cost {
    pub(crate) fn costs(self) -> Costs {
        match self {
            Cost::Pageyard => Costs::DEFAULT,
            Cost::Linux => Costs::LINUX,
        }
    }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as pairs=16")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[derive(Subcommand)]
enum Workload {
    /// Run kernel builds, a cache server and huge pages on one heap, and check that memory of
    /// different mobility stays separate
    ///
    /// Runs the same work under two policies, Vanilla (mobility grouping before the hygiene patches
    /// of 2024) and Linux612, with every list operation checked. Prints steals and type mismatches
    /// per round next to the published ones. The machine is simulated, so results depend only on
    /// the seed. A run of 50 rounds takes minutes.
    ///
    /// Exit code: 0, or 2 for an invalid argument.
    #[command(after_help = HYGIENE)]
    Hygiene(Hygiene),
}

#[derive(clap::Args)]
struct Hygiene {
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = hygiene::Options::default().seed)]
    seed: u64,
    /// Number of consecutive builds
    #[arg(long, value_name = "N", default_value_t = hygiene::Options::default().rounds)]
    rounds: u32,
    /// Size of the heap, such as 512M [default: 512M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Write every event under Linux612 as ftrace text; about 100 bytes per event, millions per
    /// round
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the results to a file, as JSON
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    picture: Picture,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    #[serde(flatten)]
    report: &'a hygiene::Report,
    vanilla_summary: Summary,
    linux612_summary: Summary,
    claims: Vec<Claim>,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    match &args.hygiene {
        Some(Workload::Hygiene(args)) => run_hygiene(args),
        None => run_workload(&args.run),
    }
}

fn run_workload(args: &Run) -> output::Outcome {
    let name = args.workload.as_deref().unwrap_or_default();
    if name == "hygiene" {
        return Err("hygiene has options of its own; give them after it: pageyard run hygiene \
                    [OPTIONS]"
            .into());
    }
    let recipe = workload::by_name(name).map_err(|e| format!("{e}, hygiene"))?;
    let names: Vec<&str> = args.set.iter().map(|(name, _)| name.as_str()).collect();
    if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return Err(format!("--set {}: set twice; remove one of the values", names[at]).into());
    }
    // The workload `trace` reads a file.
    let inputs =
        args.set.iter().filter(|(name, _)| name == "trace").map(|(_, path)| Path::new(path));
    let outputs = args.output.iter().map(PathBuf::as_path).chain(args.picture.outputs());
    output::check(&inputs.collect::<Vec<_>>(), &outputs.collect::<Vec<_>>())?;
    let is_kept = args.json || args.output.is_some() || args.picture.is_wanted();
    if args.record && !is_kept {
        return Err("--record: nothing shows what is recorded; add --json, -o or --html".into());
    }
    note_without_effect(&args.choices.all());
    let mut bar = Bar::new();
    let (results, place) = match &args.on {
        On::Machine(machine) => on_machine(args, &recipe, machine, &mut bar)?,
        On::Host => on_host(args, &recipe, &mut bar)?,
    };
    drop(bar);
    let drawn = args.picture.draw(|| Ok(page(&results)?));
    if let Some(path) = &args.output {
        write_json(path, &results)?;
    }
    if args.json {
        print_json(&results)?;
    } else if args.output.is_none() {
        write!(output::stdout(), "{}", table(&results, args, &place))?;
    }
    drawn?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the workload on a simulated machine. Returns the results, and where they are from.
fn on_machine(
    args: &Run,
    recipe: &Recipe,
    machine: &MachineSpec,
    bar: &mut Bar,
) -> Result<(Vec<RunResult>, String), Box<dyn Error>> {
    let options = Options {
        machine: machine.clone(),
        memory: args.memory,
        descriptor: args.descriptor,
        age: args.age,
        policies: args.choices.all(),
        seed: args.seed,
        iterations: args.iterations,
        set: args.set.clone(),
        costs: args.cost.costs(),
        limits: None,
        jobs: args.jobs,
        stop: Stop::default(),
    };
    let record = args.record || args.picture.is_wanted();
    let run = if record { workload::record } else { workload::run };
    let results = run(recipe, &options, &mut |at, all| {
        bar.show("run", Count::Runs, at, Some(all));
    })?;
    let place = format!(
        "the simulated machine {}, {} CPUs, {}{}",
        machine.name(),
        machine.cpus().len(),
        heap(args.age),
        if args.cost == Cost::Linux { ", costs of Linux's code" } else { "" },
    );
    Ok((results, place))
}

/// Runs the workload on this host, as [`on_machine`] does.
fn on_host(
    args: &Run,
    recipe: &Recipe,
    bar: &mut Bar,
) -> Result<(Vec<RunResult>, String), Box<dyn Error>> {
    let refused = [
        (
            args.descriptor != 16,
            "--descriptor: a descriptor always has 16 bytes on the host; remove this option",
        ),
        (
            args.age != 0,
            "--age: only simulated machines age the heap; remove this option, or run --on \
             machine:NAME",
        ),
        (args.jobs != 0, "--jobs: runs take turns on the host; remove this option"),
        (args.cost != Cost::Pageyard, "--cost: nothing is priced on the host; remove this option"),
        (
            args.record,
            "--record: only simulated machines are recorded; remove this option, or run --on \
             machine:NAME",
        ),
    ];
    if let Some((_, what)) = refused.iter().find(|(is_given, _)| *is_given) {
        return Err((*what).into());
    }
    let mut host = Host::open(args.memory)?;
    let place = format!("this host, {}", host.description());
    let options = HostOptions {
        policies: args.choices.all(),
        seed: args.seed,
        iterations: args.iterations,
        set: args.set.clone(),
    };
    host.check(recipe, &options)?;
    host.populate(&mut |at, all| bar.show("memory", Count::Bytes, at, Some(all)))?;
    let results = host.run(recipe, &options, &mut |at, all| {
        bar.show("run", Count::Runs, at, Some(all));
    })?;
    Ok((results, place))
}

/// Describes the heap before the workload begins.
fn heap(age: u8) -> String {
    match age {
        0 => "fresh heap".into(),
        percent => format!("aged heap ({percent}% used before)"),
    }
}

/// Renders the results as a page.
fn page(results: &[RunResult]) -> Result<Page, TableError> {
    let policies: Vec<_> = results.iter().map(|r| r.policy.as_str()).collect();
    let workload = results.first().map_or("", |r| r.workload.as_str());
    let title = format!("{workload} under {}", policies.join(", "));
    let mut page = Page::new(&title, &command());
    let source = Source { name: "this run".into(), results: results.to_vec() };
    page.compare(&[source], &table::Options::default())?;
    Ok(page)
}

/// Formats the means as a table, one column per policy.
fn table(results: &[RunResult], args: &Run, place: &str) -> String {
    let Some(first) = results.first() else { return String::new() };
    let n = args.iterations;
    let runs = if n == 1 { "one run".to_owned() } else { format!("means of {n} runs") };
    let times = if matches!(args.on, On::Host) { "real" } else { "virtual" };
    let mut out =
        format!("{} on {place}, seed {}, {runs}; times are {times}\n", first.workload, args.seed);
    let label = |m: &Metric| {
        if m.unit.is_empty() { m.name.clone() } else { format!("{}, {}", m.name, m.unit) }
    };
    // Some metrics are those of one engine: they follow the ones that stand before them there.
    let mut metrics: Vec<&Metric> = first.metrics.iter().collect();
    for result in results {
        let mut at = 0;
        for metric in &result.metrics {
            match metrics.iter().position(|m| m.name == metric.name) {
                Some(found) => at = found + 1,
                None => {
                    metrics.insert(at, metric);
                    at += 1;
                }
            }
        }
    }
    let width = metrics.iter().map(|m| label(m).len()).max().unwrap_or(0);
    let columns: Vec<usize> = results.iter().map(|r| r.policy.len().max(14)).collect();
    out += &" ".repeat(width);
    for (r, w) in results.iter().zip(&columns) {
        out += &format!(" {:>w$}", r.policy);
    }
    out.push('\n');
    for metric in metrics {
        out += &format!("{:width$}", label(metric));
        for (r, w) in results.iter().zip(&columns) {
            let found = r.metrics.iter().find(|m| m.name == metric.name);
            let value = found.and_then(Metric::mean).map_or("-".to_owned(), number);
            out += &format!(" {value:>w$}");
        }
        out.push('\n');
    }
    for result in results {
        out += &shared_lines(result);
    }
    out
}

/// Formats what CPUs waited for shared lines, if those are priced.
fn shared_lines(result: &RunResult) -> String {
    let Some(lines) = &result.lines else { return String::new() };
    let each = |l: &LineShare| format!("{} {}%", l.name, number(l.share));
    let parts = lines.parts.iter().filter(|l| l.share >= 0.001).map(each).collect::<Vec<_>>();
    let mut out = format!("waiting for shared lines under {}, of busy time\n", result.policy);
    out += &format!("  by purpose: {}\n", parts.join(", "));
    if let Some(line) = lines.busiest.first() {
        out += &format!("  the busiest line: {}\n", each(line));
    }
    out
}

fn run_hygiene(args: &Hygiene) -> output::Outcome {
    let files = args.trace.iter().chain(&args.output).map(PathBuf::as_path);
    output::check(&[], &files.chain(args.picture.outputs()).collect::<Vec<_>>())?;
    let default = hygiene::Options::default();
    let memory = args.memory.unwrap_or(default.memory);
    let options = hygiene::Options { seed: args.seed, rounds: args.rounds, memory, ..default };
    let report = match &args.trace {
        None => hygiene::run(&options, &())?,
        Some(path) => recorded(path, &options)?,
    };
    let drawn = args.picture.draw(|| {
        let mut page =
            Page::new("Mobility grouping before and after the hygiene patches", &command());
        page.hygiene(&report);
        Ok(page)
    });
    let json = Json {
        version: env!("CARGO_PKG_VERSION"),
        vanilla_summary: report.vanilla.summary(),
        linux612_summary: report.linux612.summary(),
        claims: report.claims(),
        report: &report,
    };
    if let Some(path) = &args.output {
        write_json(path, &json)?;
    }
    if args.json {
        print_json(&json)?;
    } else if args.output.is_none() {
        write!(output::stdout(), "{report}")?;
    }
    drawn?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the workload and writes its events to a file, which appears once it is complete.
fn recorded(
    path: &Path,
    options: &hygiene::Options,
) -> Result<hygiene::Report, Box<dyn std::error::Error>> {
    let (report, events) = write_file(path, |file| {
        let recorder = Recorder::new(BufWriter::new(file), options.cpus as u16, "hygiene")?;
        let report = hygiene::run(options, &recorder)?;
        let (events, _) = recorder.finish()?;
        Ok((report, events))
    })?;
    output::say!("{}: {events} events", pageyard_trace::printable(&path.to_string_lossy()));
    Ok(report)
}
