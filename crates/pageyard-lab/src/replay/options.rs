//! Options of a replay.

use std::path::PathBuf;

use pageyard_machine::{MachineSpec, Stop};

use super::machine::MachineOptions;
use super::tick::TickPhase;
use crate::policies::Choice;

/// The stage of a replay, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Importing a text or a stream, in bytes.
    Import,
    /// The first pass, in bytes.
    Scan,
    /// The second pass, in bytes.
    Mirror,
    /// Running the policies, in operations of all runs together.
    Replay,
}

/// What a preparation keeps besides what the allocator needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Keep {
    /// The last request of each block.
    pub(super) requests: bool,
    /// The task and the flags of every request, and the cases of the recording.
    pub(super) origins: bool,
    /// The recording as a process of a timeline.
    pub(super) timeline: bool,
}

/// Options of a replay.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Policies in the order of the table. The others are compared with the first.
    pub policies: Vec<Choice>,
    /// Add the policy that stands for the recording kernel, unless `policies` has it. Its settings
    /// are those of the first policy.
    pub add_recording: bool,
    /// Seed for what the trace does not record: the times of ticks.
    pub seed: u64,
    /// Number of seeds, starting at `seed`, with which each policy that depends on ticks is
    /// replayed. 0 counts as 1.
    pub seeds: u64,
    /// The phase of ticks within the second.
    pub tick_phase: TickPhase,
    /// Machine parameters for what the trace does not record.
    pub machine: MachineOptions,
    /// The folder with the state files. Default: next to the trace or attached to it.
    pub state: Option<PathBuf>,
    /// Count faults of the trace instead of failing.
    pub lenient: bool,
    /// Number of parallel runs. 0 uses one per CPU, at most 8 and at most as many as memory allows.
    pub jobs: usize,
    /// Explain how the tuning of each CPU's lists did.
    pub explain: bool,
    /// Record a [track](crate::track) of each policy under the requested seed.
    pub record: bool,
    /// The simulated machine on which the requested seed is replayed to determine its cost. There
    /// are then no tracks and no explanations.
    pub on: Option<MachineSpec>,
    /// Ends the replay early, with [`ReplayError::Stopped`](super::ReplayError::Stopped).
    pub stop: Stop,
}
