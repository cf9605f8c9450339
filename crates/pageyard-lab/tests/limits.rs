//! Reads every format in a process with 512 MiB of address space and 10 seconds of CPU time per
//! input: the fuzzers' corpora (`fuzz/`) and mutations of them. No input may abort it, hang it, or
//! make it panic.
//!
//! `PAGEYARD_CASES=100000 cargo test --release -p pageyard-lab --test limits` tries that many
//! mutations of each; `-- FORMAT...` tries only these. A program of its own, without libtest: it
//! sets limits of its process.

#![allow(missing_docs, unreachable_pub)]

#[path = "../../../fuzz/bodies/corpora.rs"]
mod corpora;
#[path = "../../../fuzz/bodies/lab.rs"]
mod lab;
#[path = "../../../fuzz/bodies/machine.rs"]
mod machine;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/trace.rs"]
mod trace;

use std::cell::Cell;
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

const MEMORY: u64 = 512 << 20;
const SECONDS: u64 = 10;

/// A format: its name, its corpus, its reader, and the default number of mutations.
type Format = (&'static str, &'static str, fn(&[u8]), usize);

const FORMATS: [Format; 11] = [
    ("ftrace", "ftrace.zst", trace::recording, 2000),
    ("trace_dat", "trace_dat.zst", trace::recording, 2000),
    ("pgy", "pgy.zst", trace::pgy, 2000),
    ("perf", "perf.zst", trace::recording, 2000),
    ("perfetto", "perfetto.zst", trace::recording, 2000),
    ("state", "state.zst", trace::state, 4000),
    ("machine", "machine.bin", machine::machine, 2000),
    ("oracle", "oracle.zst", lab::oracle, 40),
    ("results", "results.zst", lab::results, 100),
    ("topology", "topology.zst", lab::topology, 1000),
    ("replay", "replay.zst", lab::replay, 200),
];

/// Tells a child which format to read, or which planted reader to run.
const CHILD: &str = "PAGEYARD_LIMITS";

/// Sets the limits of this process, then those of each input.
fn within_limits(corpus: &[u8], changed: usize, read: impl Fn(&[u8])) {
    let limit = |resource, n| {
        setrlimit(resource, Rlimit { current: Some(n), maximum: None }).unwrap();
    };
    limit(Resource::As, MEMORY);
    // No core file per crash.
    limit(Resource::Core, 0);
    let inputs = Cell::new(0u64);
    replay::replay(corpus, changed, |data| {
        let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec as u64;
        limit(Resource::Cpu, used + SECONDS);
        inputs.set(inputs.get() + 1);
        read(data);
    });
    println!("{} inputs", inputs.get());
}

fn child(what: &str) {
    match what {
        // The planted readers: each exceeds one of the limits at some mutation of the corpus.
        "greedy" => within_limits(&corpora::read("state.zst"), 100, |data| {
            let all = vec![1u8; (600 << 20) + data.len()];
            assert!(std::hint::black_box(&all).len() > data.len());
        }),
        "endless" => within_limits(&corpora::read("state.zst"), 100, |data| {
            while std::hint::black_box(data.len()) < usize::MAX {}
        }),
        name => {
            let (_, file, read, changed) = FORMATS.iter().find(|f| f.0 == name).unwrap();
            within_limits(&corpora::read(file), *changed, read);
        }
    }
}

/// Runs a child. Returns its output, or how it ended.
fn run(what: &str) -> Result<String, String> {
    let own = std::env::current_exe().unwrap();
    let o = Command::new(own).env(CHILD, what).output().unwrap();
    let said = String::from_utf8_lossy(&o.stdout).trim().to_owned();
    if o.status.success() {
        return Ok(said);
    }
    let told = String::from_utf8_lossy(&o.stderr).into_owned();
    Err(format!("{}: {}", o.status, told.trim()))
}

fn main() -> ExitCode {
    if let Ok(what) = std::env::var(CHILD) {
        child(&what);
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut failed = 0;
    for (name, ..) in FORMATS {
        if !wanted.is_empty() && !wanted.iter().any(|w| w == name) {
            continue;
        }
        match run(name) {
            Ok(said) => println!("limits: {name}: {said}"),
            Err(how) => {
                failed += 1;
                println!("limits: {name}: {how}");
            }
        }
    }
    for (what, ends) in [("greedy", "SIGABRT"), ("endless", "SIGXCPU")] {
        match run(what) {
            Err(how) if how.contains(ends) => {}
            other => {
                failed += 1;
                println!("limits: {what} must end by {ends}: {other:?}");
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}
