//! Runs many schedules, each from a seed; a failing one is reported by its seed.
//!
//! `PAGEYARD_SCHEDULES=10000 cargo test -p pageyard-shuttle` tries that many seeds per test;
//! `PAGEYARD_SEED=0x5eed0007 cargo test -p pageyard-shuttle NAME` replays one.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

const FIRST: u64 = 0x5eed_0000;
/// Schedules per seed in which threads have priorities that change at a few points (PCT).
const BY_PRIORITY: usize = 8;
/// At how many points the priorities change.
const CHANGES: usize = 3;

/// A failing seed, and why it fails.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) seed: u64,
    pub(crate) why: String,
}

fn config() -> Config {
    let mut config = Config::new();
    // A yard with shuttle's atomics is large, and is built on a thread's stack.
    config.stack_size = 4 << 20;
    config.max_steps = MaxSteps::FailAfter(10_000_000);
    // The seed is enough to reproduce it.
    config.failure_persistence = FailurePersistence::None;
    config
}

/// Runs one seed: random switches anywhere, or a few lasting priority changes.
fn run(seed: u64, body: &Arc<dyn Fn() + Send + Sync>) -> Result<usize, Found> {
    let body = body.clone();
    let once = move || {
        if seed.is_multiple_of(2) {
            Runner::new(RandomScheduler::new_from_seed(seed, 1), config()).run(move || body())
        } else {
            let pct = PctScheduler::new_from_seed(seed, CHANGES, BY_PRIORITY);
            Runner::new(pct, config()).run(move || body())
        }
    };
    catch_unwind(AssertUnwindSafe(once)).map_err(|panic| Found { seed, why: message(&*panic) })
}

fn message(panic: &(dyn Any + Send)) -> String {
    match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => panic.downcast_ref::<&str>().unwrap_or(&"a panic without a message").to_string(),
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|e| panic!("{name}={text}: {e}; give a number, as 7 or 0x7")))
}

/// Returns the first of `seeds` seeds that breaks `body`.
pub(crate) fn find(seeds: u64, body: impl Fn() + Send + Sync + 'static) -> Result<usize, Found> {
    let body: Arc<dyn Fn() + Send + Sync> = Arc::new(body);
    let mut schedules = 0;
    for seed in FIRST..FIRST + seeds {
        schedules += run(seed, &body)?;
    }
    Ok(schedules)
}

/// Runs `body` with one seed.
pub(crate) fn one(seed: u64, body: impl Fn() + Send + Sync + 'static) -> Result<usize, Found> {
    run(seed, &(Arc::new(body) as Arc<dyn Fn() + Send + Sync>))
}

/// Panics with the seed if one of `seeds` seeds breaks `body`.
pub(crate) fn explore(name: &str, seeds: u64, body: impl Fn() + Send + Sync + 'static) {
    let found = match number("PAGEYARD_SEED") {
        Some(seed) => one(seed, body),
        None => find(number("PAGEYARD_SCHEDULES").unwrap_or(seeds), body),
    };
    match found {
        Ok(schedules) => println!("{name}: {schedules} schedules"),
        Err(Found { seed, why }) => {
            panic!("{name}: {why}\nrepeat with PAGEYARD_SEED={seed:#x}")
        }
    }
}
