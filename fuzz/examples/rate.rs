//! `cargo run --release --example rate [--features lab] -- SECONDS [TARGET...]` prints how often
//! each target runs per second, on its corpus and mutations of it, for at least SECONDS. It uses no
//! fuzzer instrumentation, so that two versions of a target can be compared on stable.

#[path = "../../crates/pageyard/tests/all/common/mod.rs"]
#[allow(unused_imports)]
mod common;
#[path = "../bodies/knobs.rs"]
mod knobs;
#[cfg(feature = "lab")]
#[path = "../bodies/lab.rs"]
mod lab;
#[path = "../bodies/machine.rs"]
mod machine;
#[path = "../../crates/pageyard/tests/all/model/mod.rs"]
#[allow(dead_code, unused_imports)]
mod model;
#[path = "../bodies/replay.rs"]
#[allow(dead_code)]
mod replay;
#[path = "../bodies/trace.rs"]
mod trace;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

type Target = (&'static str, fn(&[u8]));

const TARGETS: &[Target] = &[
    ("ftrace", trace::recording),
    ("pgy", trace::pgy),
    ("state", trace::state),
    ("machine", machine::machine),
    ("knobs", knobs::knobs),
    ("operations", model::from_bytes),
    #[cfg(feature = "lab")]
    ("oracle", lab::oracle),
    #[cfg(feature = "lab")]
    ("results", lab::results),
    #[cfg(feature = "lab")]
    ("topology", lab::topology),
    #[cfg(feature = "lab")]
    ("replay", lab::replay),
];

/// The corpus of a target, decompressed by the program zstd if it is compressed.
fn corpus(name: &str) -> Vec<u8> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let packed = base.with_extension("zst");
    if !packed.exists() {
        return std::fs::read(base.with_extension("bin")).unwrap();
    }
    let out = Command::new("zstd").arg("-dcq").arg(&packed).output().expect("zstd runs");
    assert!(out.status.success(), "{packed:?}");
    out.stdout
}

fn main() {
    let mut args = std::env::args().skip(1);
    let seconds = args.next().and_then(|s| s.parse().ok()).expect("rate SECONDS [TARGET...]");
    let wanted: Vec<String> = args.collect();
    for (name, run) in
        TARGETS.iter().filter(|t| wanted.is_empty() || wanted.iter().any(|w| w == t.0))
    {
        let corpus = corpus(name);
        let begun = Instant::now();
        let runs = std::cell::Cell::new(0u64);
        let mut changed = 1;
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            replay::replay(&corpus, changed, |data| {
                run(data);
                runs.set(runs.get() + 1);
            });
            changed *= 2;
        }
        println!("{name:12} {:10.1} a second", runs.get() as f64 / begun.elapsed().as_secs_f64());
    }
}
