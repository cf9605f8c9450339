//! `pageyard replay`: what other policies would have done with a recorded trace.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use pageyard_lab::replay::{
    DEFAULT_POLICIES, Input, MachineOptions, Options, Report, Stage, TickPhase, by_name, replay,
};
use serde::Serialize;

use crate::output::{self, print_json, size};

/// The trace is a recording of the kernel's page events (mm_page_alloc, mm_page_free, …) as text
/// or as a .pgy file, plain or compressed. Its zones, CPUs and per-CPU lists are taken from the
/// state files beside it or attached to it (docs/replay.md). Exit code: 0, or 2 if the trace
/// cannot be read or replayed.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The trace, or - for standard input
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Policies, one column each; changes are against the first
    #[arg(long, value_name = "P", value_delimiter = ',', default_values = DEFAULT_POLICIES)]
    policy: Vec<String>,
    /// Fixes what the trace does not record: when the statistics worker ticks
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// So many seeds from --seed on are tried to say how far results depend on it; 1: none
    #[arg(long, value_name = "N", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: u64,
    /// Where in the second ticks come: inferred from the trace's drains, random for each CPU, or a
    /// fraction of a second
    #[arg(long, value_name = "inferred|random|F", default_value = "inferred")]
    tick_phase: TickPhase,
    #[command(flatten)]
    reading: Reading,
    /// Runs at once [default: one per CPU]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    jobs: usize,
    /// Say of each CPU's lists how their tuning did, and why high moved
    #[arg(long)]
    explain: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// How a trace is read, and on what machine it is replayed.
#[derive(clap::Args, Default, PartialEq)]
pub(crate) struct Reading {
    /// Folder with the machine's state files (zoneinfo.traced_start, before/…, pfnmap.before)
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Memory from address 0 where no zoneinfo tells, such as 2G [default: up to the highest frame]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// CPUs where no zoneinfo tells [default: those in the trace]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// Last-level cache per CPU, such as 2M [default: cpu_cache of the state files, else 4M]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    cache_slice: Option<u64>,
    /// Count what is damaged or contradictory, report it, and go on
    #[arg(long)]
    pub(crate) lenient: bool,
}

impl Reading {
    pub(crate) fn machine(&self) -> MachineOptions {
        let &Reading { memory, cpus, cache_slice, .. } = self;
        MachineOptions { memory, cpus, cache_slice }
    }
}

/// The trace under this path; `-` is standard input.
pub(crate) fn input(trace: &Path) -> Input {
    if trace.as_os_str() == "-" {
        Input::Stream("standard input".into(), Box::new(std::io::stdin()))
    } else {
        Input::Path(trace.to_owned())
    }
}

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    #[serde(flatten)]
    report: &'a Report,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let policies = args.policy.iter().map(|p| by_name(p)).collect::<Result<_, _>>()?;
    let options = Options {
        policies,
        seed: args.seed,
        seeds: args.seeds,
        tick_phase: args.tick_phase,
        machine: args.reading.machine(),
        state: args.reading.state.clone(),
        lenient: args.reading.lenient,
        jobs: args.jobs,
        explain: args.explain,
    };
    let mut bar = Bar::new();
    let result =
        replay(input(&args.trace), &options, &mut |stage, at, all| bar.show(stage, at, all));
    bar.end();
    let report = result?;
    if args.json {
        print_json(&Json { version: env!("CARGO_PKG_VERSION"), report: &report })?;
    } else {
        write!(std::io::stdout().lock(), "{report}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A progress bar on standard error, where that is a terminal.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    stage: Option<Stage>,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let terminal = std::io::stderr().is_terminal();
        Bar { bar: terminal.then(|| ProgressBar::new(0)), stage: None }
    }

    pub(crate) fn show(&mut self, stage: Stage, at: u64, all: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        if self.stage != Some(stage) {
            self.stage = Some(stage);
            bar.set_message(match stage {
                Stage::Import => "import",
                Stage::Scan => "scan",
                Stage::Mirror => "lists",
                Stage::Replay => "replay",
            });
            let counts = match stage {
                Stage::Replay => "{human_pos}/{human_len}",
                _ => "{bytes}/{total_bytes}",
            };
            let style = format!("{{msg:8}} {{wide_bar}} {counts} {{eta}}");
            if let Ok(style) = ProgressStyle::with_template(&style) {
                bar.set_style(style);
            }
        }
        if let Some(all) = all {
            bar.set_length(all);
        }
        bar.set_position(at);
    }

    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
