//! Work that takes a given time, measured in instructions: several threads on one CPU each execute
//! their own, as tasks of a real machine do. The clock is used only once, to determine the rate.

use std::hint::black_box;
use std::sync::OnceLock;

use pageyard_host::clock;

/// Denominator for fractions of a round.
const PARTS: u64 = 1024;

/// Executes a chain of `n` dependent additions.
fn rounds(n: u64) {
    let mut x = 0u64;
    for i in 0..n {
        x = black_box(x.wrapping_add(i));
    }
    black_box(x);
}

/// Returns the rounds per [`PARTS`] nanoseconds on an undisturbed CPU: the most of several tries.
fn rate() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        const TRY: u64 = 20_000;
        let one = |_| {
            let start = clock::now();
            rounds(TRY);
            TRY * PARTS / (clock::now() - start).max(1)
        };
        (0..200).map(one).max().unwrap_or(PARTS).max(1)
    })
}

/// Measures this host's speed, before any other measurement.
pub(super) fn calibrate() {
    rate();
}

/// Works for `ns` nanoseconds.
pub(super) fn work(ns: u64) {
    // Saturation needs longer runs than any that occur.
    rounds(ns.saturating_mul(rate()) / PARTS);
}
