//! `pageyard replay`: replays a recorded trace under other policies.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pageyard_lab::picture::Page;
use pageyard_lab::replay::{
    Input, MachineOptions, Options, Stage, TickPhase, replay, timeline, why,
};
use pageyard_lab::result::Versioned;
use pageyard_machine::{MachineSpec, Stop, size};
use pageyard_trace::Release;

use crate::output::{self, print_json};
use crate::picture::{Picture, command};
use crate::policies::{Choices, note_without_effect};
use crate::progress::{Bar, Count};

const EXAMPLES: &str = "\
Examples:
  pageyard replay samples/kbuild.pgy
  pageyard replay build.txt --policy Linux612,'Vanilla<Base>' --explain
  pageyard replay samples/kbuild.pgy --why --limit 5
  pageyard replay samples/kbuild.pgy --html kbuild.html
  pageyard replay samples/kbuild.pgy --perfetto kbuild.pftrace
  pageyard replay samples/kbuild.pgy --policy Linux612,Linux612+high=400
  pageyard replay samples/kbuild.pgy --on machine:2x56
  trace-cmd report -t | pageyard replay - --json";

/// Replay a kernel's page events under several policies and compare the results
///
/// The trace is a recording of the kernel's page events (mm_page_alloc, mm_page_free, …): a .pgy
/// file, as pageyard record makes it, a trace.dat, perf.data or Perfetto file, or the text of
/// trace-cmd report, perf script or the kernel's trace file, plain or compressed. Its zones, CPUs
/// and per-CPU lists are read from the state files next to it or attached to it. The policy that
/// stands for the recording kernel is a column by default. The chapter "Replaying your machine"
/// describes how to record a trace, what is inferred and how accurate a replay is.
///
/// Exit code: 0, or 2 if the trace cannot be read or replayed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The trace, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    #[command(flatten)]
    choices: Choices,
    /// Seed for what the trace does not record: when the statistics worker ticks
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Number of seeds to try, starting at --seed, to measure sensitivity (1 disables it)
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Phase of the ticks within a second: inferred from the trace's drains, random for each CPU,
    /// or a fraction of a second
    #[arg(long, value_name = "inferred|random|F", default_value = "inferred")]
    tick_phase: TickPhase,
    #[command(flatten)]
    reading: Reading,
    /// Maximum number of parallel runs [default: one per CPU, at most 8]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Explain how the tuning of each CPU's lists performed, and why high changed
    #[arg(long)]
    explain: bool,
    /// Explain each request that failed, was slow, or took a block of another type, instead of
    /// printing the table
    ///
    /// Names the frame, the pageblock and its types over time, and the tasks that allocated the
    /// pages in it: for the recording, and for the policies of --policy [default: the one that
    /// models the recording kernel]. The chapter "Replaying your machine" says what counts as
    /// slow.
    #[arg(long, conflicts_with_all = ["explain", "record", "html", "svg", "on", "seeds", "jobs"])]
    why: bool,
    /// Number of cases that --why prints in full for the recording and for each policy. JSON has all
    #[arg(long, value_name = "N", default_value_t = 20, requires = "why", conflicts_with = "json")]
    limit: usize,
    /// Record the replay over time in the JSON; implied by --html and --svg
    #[arg(long)]
    record: bool,
    /// Write a trace that ui.perfetto.dev opens: counters, refills and drains, claims and failures of
    /// the recording and of each policy, one process each. The chapter "Replaying your
    /// machine" lists the tracks
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "why"])]
    perfetto: Option<PathBuf>,
    /// Replay on a simulated machine, and report what the operations cost there in virtual time:
    /// machine: followed by a name from `pageyard machines` or a TOML file
    #[arg(long, value_name = "machine:NAME", value_parser = crate::run::machine,
          conflicts_with_all = ["explain", "record", "html", "svg"])]
    on: Option<MachineSpec>,
    #[command(flatten)]
    picture: Picture,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// How to read a trace, and the machine on which it is replayed.
#[derive(clap::Args, Default, PartialEq)]
pub(crate) struct Reading {
    /// Folder with the machine's state files (zoneinfo.traced_start, before/…, pfnmap.before)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Memory from address 0, such as 2G. Without zoneinfo, the size of the machine [default: up to
    /// the highest frame]. With zoneinfo, replays a machine of this size even if the trace is too
    /// short for it
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Number of CPUs without zoneinfo [default: those in the trace]. Another number than that of a
    /// zoneinfo is an error
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<u32>,
    /// Last-level cache per CPU, such as 2M [default: from cpu_cache in the state files, else 4M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) cache_slice: Option<u64>,
    /// The kernel that recorded the trace, such as 6.12.30 [default: as the trace or the state files
    /// say; else unknown]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kernel: Option<Release>,
    /// Count damaged or contradictory parts, report them, and continue
    #[arg(long)]
    pub(crate) lenient: bool,
}

impl Reading {
    pub(crate) fn machine(&self) -> MachineOptions {
        let &Reading { memory, cpus, cache_slice, kernel, .. } = self;
        MachineOptions { memory, cpus, cache_slice, kernel }
    }
}

/// Returns the trace at this path; `-` is standard input.
pub(crate) fn input(trace: &Path) -> Input {
    if trace.as_os_str() == "-" {
        Input::Stream("standard input".into(), Box::new(std::io::stdin()))
    } else {
        Input::Path(trace.to_owned())
    }
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let outputs = args.perfetto.iter().map(PathBuf::as_path).chain(args.picture.outputs());
    output::check(&[&args.trace], &outputs.collect::<Vec<_>>())?;
    note_without_effect(&args.choices.all());
    let options = Options {
        policies: args.choices.all(),
        add_recording: args.choices.is_default(),
        seed: args.seed,
        seeds: args.seeds,
        tick_phase: args.tick_phase,
        machine: args.reading.machine(),
        state: args.reading.state.clone(),
        lenient: args.reading.lenient,
        jobs: args.jobs,
        explain: args.explain,
        record: args.record || args.picture.is_wanted(),
        on: args.on.clone(),
        stop: Stop::default(),
    };
    if args.why {
        return run_why(args, options);
    }
    let mut bar = Bar::new();
    let update = &mut |stage, at, all| show(&mut bar, stage, at, all);
    let report = match &args.perfetto {
        None => replay(input(&args.trace), &options, update)?,
        Some(path) => output::write_file(path, |mut file| {
            Ok(timeline(input(&args.trace), &options, &mut file, update)?)
        })?,
    };
    drop(bar);
    let drawn = args.picture.draw(|| {
        let mut page = Page::new(&format!("Replay of {}", report.reading.input), &command());
        page.replay(&report);
        Ok(page)
    });
    if args.json {
        print_json(&Versioned::of(&report))?;
    } else {
        write!(output::stdout(), "{report}")?;
    }
    drawn?;
    Ok(ExitCode::SUCCESS)
}

/// Explains what stood in the way of requests.
fn run_why(args: &Args, options: Options) -> output::Outcome {
    let policies = args.choices.given();
    if policies.is_empty() && args.choices.has_knobs() {
        return Err("--knob applies to the policies of --policy here; add --policy".into());
    }
    let options = Options { policies, ..options };
    let mut bar = Bar::new();
    let update = &mut |stage, at, all| show(&mut bar, stage, at, all);
    let blame = why(input(&args.trace), &options, update)?;
    drop(bar);
    if args.json {
        print_json(&Versioned::of(&blame))?;
    } else {
        let mut out = std::io::BufWriter::new(output::stdout());
        blame.write(&mut out, args.limit)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the progress of a replay.
pub(crate) fn show(bar: &mut Bar, stage: Stage, at: u64, all: Option<u64>) {
    let (stage, count) = match stage {
        Stage::Import => ("import", Count::Bytes),
        Stage::Scan => ("scan", Count::Bytes),
        Stage::Mirror => ("lists", Count::Bytes),
        Stage::Replay => ("replay", Count::Operations),
    };
    bar.show(stage, count, at, all);
}
