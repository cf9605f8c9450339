//! Work that takes a given time, in instructions: of several threads on one CPU each takes its own,
//! as tasks of a real machine do. The clock says only once how many they are.

use std::hint::black_box;
use std::sync::OnceLock;

use pageyard_host::clock;

/// Fractions of a round are counted in so many parts.
const PARTS: u64 = 1024;

/// A chain of additions, each of which waits for the one before.
fn rounds(n: u64) {
    let mut x = 0u64;
    for i in 0..n {
        x = black_box(x.wrapping_add(i));
    }
    black_box(x);
}

/// Rounds in [`PARTS`] nanoseconds on an undisturbed CPU: the most of several tries.
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

/// Measures how fast this host is, before anything else is measured.
pub(super) fn calibrate() {
    rate();
}

/// Works for so many nanoseconds.
pub(super) fn work(ns: u64) {
    // No run lasts so long that this loses anything.
    rounds(ns.saturating_mul(rate()) / PARTS);
}
