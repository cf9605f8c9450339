//! Per-CPU lists that tune themselves (A.4): the steps of the series, in three experiments: kernel
//! [builds], [sockets], and the sweep of [batches].

pub(super) mod batches;
pub(super) mod builds;
pub(super) mod sockets;

use super::simulated::Simulated;

const STEPS: [&str; 7] = ["Base", "Step1", "Step3", "Step5", "Step7", "Step9", "Step10"];
/// The steps at the kernel's cost: the kernel's bulk frees process one page at a time.
const POLICIES: [&str; 7] = [
    "BlockByBlock<Base>",
    "BlockByBlock<Step1>",
    "BlockByBlock<Step3>",
    "BlockByBlock<Step5>",
    "BlockByBlock<Step7>",
    "BlockByBlock<Step9>",
    "BlockByBlock<Step10>",
];
/// The lists of that machine had a `high` of 361; with this memory they have 400 (§5.4).
pub(super) const GIB: u64 = 256;
/// The machine of the socket benchmarks.
pub(super) const SOCKETS: &str = "2x32";
/// Memory that has been in use before the runs, in percent. Assumed: free pages are then scattered
/// over more memory than the jobs of a build have at once.
pub(super) const AGE: u8 = 10;

/// A step's published figures: time or rate, zone lock %, free_high, pages from the zone, misses %.
type Step = [Option<f64>; 5];

/// Parameters of a workload.
type Parameters<'p> = &'p [(&'p str, &'p str)];

/// The steps under a workload, on memory that has been in use before, or on almost fresh memory for
/// a `small` run.
fn steps<'s>(workload: &'s str, set: Parameters<'s>, small: bool) -> Simulated<'s> {
    Simulated {
        workload,
        gib: Some(GIB),
        policies: &POLICIES,
        set,
        age: if small { 1 } else { AGE },
        linux: true,
        ..Simulated::default()
    }
}
