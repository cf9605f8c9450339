//! How to replay.

use std::path::PathBuf;

use pageyard_machine::MachineSpec;

use super::machine::MachineOptions;
use super::tick::TickPhase;
use crate::policies::Choice;

/// What is being done, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading a text or a stream for the first time. Bytes.
    Import,
    /// The first pass. Bytes.
    Scan,
    /// The second pass. Bytes.
    Mirror,
    /// The policies. Operations, of all runs together.
    Replay,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// Policies in the order of the table; the first is what others are compared with.
    pub policies: Vec<Choice>,
    /// What the trace does not record (the tick's moments) follows from this number.
    pub seed: u64,
    /// With so many seeds, from `seed` on, each policy that depends on ticks is replayed.
    pub seeds: u64,
    /// Where within the second ticks come.
    pub tick_phase: TickPhase,
    /// The machine, where the trace does not say.
    pub machine: MachineOptions,
    /// The folder with the state files; default: beside the trace or attached to it.
    pub state: Option<PathBuf>,
    /// Count what is wrong with the trace and go on.
    pub lenient: bool,
    /// Runs at once; 0: as many as the machine has CPUs.
    pub jobs: usize,
    /// Say of each CPU's lists how their tuning did.
    pub explain: bool,
    /// Record a [track](crate::track) of each policy under the seed asked for.
    pub record: bool,
    /// The simulated machine on which the seed asked for is replayed, with what that costs there;
    /// no track and no explanations then.
    pub on: Option<MachineSpec>,
}
