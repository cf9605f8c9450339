//! Compares the yard with a second, obviously correct implementation, which records where each
//! frame is (`table.rs`). Covers random machines, requests, ranges, placed blocks, settings,
//! hotplug, isolation, faulty frames, and hooks that refuse, lie or work.
//! [`Yard::validate`](pageyard::Yard::validate) runs after every step; every frame is compared
//! after each refusal and at the end.
//!
//! `PAGEYARD_CASES=20000 cargo test --release -p pageyard --test all model::` runs more cases;
//! `PAGEYARD_SEED=n` starts from another seed. A failing case is shrunk and printed with its seed.

mod ops;
mod port;
mod reach;
mod session;
mod table;
mod world;

use ops::{Op, STEP, machine, machine_of, op, op_of};
use pageyard::policy::*;
use port::{LIES, Lie};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};
use reach::{REACHED, REACHES};
use session::{Mode, Session};

use crate::common::{Chosen, Machine};

/// Cases per policy, unless `PAGEYARD_CASES` says otherwise.
const CASES: u32 = 24;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

const LINUX612: Chosen = &<TypeChecked>::RULES;
/// Guards, and weaker grouping of the types.
const OLDER: Chosen = &Guarded::<2, TwoPassBulkFree<Vanilla<Base>>>::RULES;

fn run<P: Policy>(policy: P, machine: &Machine, ops: &[Op], lie: Lie, mode: Mode) {
    world::with_yard(policy, machine, |y, world| {
        let s = Session::new(y, world, policy, machine, lie, mode);
        for (i, op) in ops.iter().enumerate() {
            s.apply(op);
            if (i + 1).is_multiple_of(mode.every()) {
                s.check();
            }
        }
        s.finish();
    });
}

/// Runs random cases; fails with the message of the smallest failing case.
fn explore(
    policy: impl Policy,
    cases: u32,
    shrink: u32,
    seed: u64,
    lie: Lie,
) -> Result<(), String> {
    let config = ProptestConfig {
        cases,
        max_shrink_iters: shrink,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let all = (machine(), prop::collection::vec(op(), 1..MOST_STEPS));
    let tested = runner.run(&all, |(machine, ops)| {
        run(policy, &machine, &ops, lie, Mode::Random);
        Ok::<(), TestCaseError>(())
    });
    tested.map_err(|e| format!("seed {seed}: {e}"))
}

/// Steps in a case.
const MOST_STEPS: usize = 60;
/// Runs one case made from a fuzzer's bytes: the first eight choose the policy and the machine,
/// every eight that follow one step. One input in eight, chosen by its hash, is checked after every
/// step and every refusal; the others every 20 steps and at the end.
#[allow(dead_code)] // only the fuzz target calls it
pub(crate) fn from_bytes(data: &[u8]) {
    let hash = data.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, &b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    case(data, if (hash >> 32).is_multiple_of(8) { Mode::Thorough } else { Mode::Quick });
}

fn case(data: &[u8], mode: Mode) {
    let (parts, _) = data.as_chunks::<STEP>();
    let Some((first, steps)) = parts.split_first() else { return };
    let machine = machine_of(first);
    let ops: Vec<Op> = steps.iter().take(MOST_STEPS).map(op_of).collect();
    match first[0] % 8 {
        0..4 => run(LINUX612, &machine, &ops, Lie::None, mode),
        4..7 => run(Packed, &machine, &ops, Lie::None, mode),
        _ => run(OLDER, &machine, &ops, Lie::None, mode),
    }
}

fn agrees(policy: impl Policy) {
    let asked = number("PAGEYARD_CASES").or_else(|| number("PROPTEST_CASES"));
    let cases = asked.map_or(CASES, |n| n as u32);
    let seed = number("PAGEYARD_SEED").unwrap_or(1);
    if let Err(e) = explore(policy, cases, 4096, seed, Lie::None) {
        panic!("{e}");
    }
}

#[test]
fn linux612_matches_the_model() {
    agrees(LINUX612);
}

#[test]
fn owned_blocks_match_the_model() {
    agrees(&TypeChecked::<OwnedBlocks>::RULES);
}

#[test]
fn the_packed_engine_matches_the_model() {
    agrees(Packed);
}

#[test]
fn an_older_kernel_with_guards_matches_the_model() {
    agrees(OLDER);
}

/// Inputs that the fuzzer kept, and mutations of them (`fuzz/`, docs/verification.md).
#[test]
fn the_fuzzers_corpus() {
    let corpus = include_bytes!("../../../../../fuzz/corpus/operations.bin");
    crate::replay::replay(corpus, 40, |data| case(data, Mode::Thorough));
}

#[test]
fn random_steps_reach_every_operation() {
    REACHED.take();
    explore(LINUX612, 150, 0, 2, Lie::None).unwrap();
    let reached = REACHED.take();
    eprintln!("{reached:?}");
    let never: Vec<_> = REACHES.iter().filter(|r| !reached.contains_key(*r)).collect();
    assert!(never.is_empty(), "never: {never:?}");
}

#[test]
fn each_planted_defect_is_detected() {
    // Silences the expected panics of this thread.
    let here = std::thread::current().id();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != here {
            told(info);
        }
    }));
    let found = LIES.map(|(lie, words)| (lie, words, explore(LINUX612, 300, 0, 1, lie)));
    drop(std::panic::take_hook());
    for (lie, words, found) in found {
        let said = found.expect_err(&format!("{lie:?} is not found"));
        // Exclude the failing case that follows: it may contain the same words.
        let said = said.split("minimal failing input").next().unwrap_or_default();
        assert!(said.contains(words), "{lie:?} is found by something else: {said}");
    }
}
