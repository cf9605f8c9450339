//! The common input of all runs, and the outcome of each.

use std::fs::File;
use std::sync::Arc;

use pageyard_machine::Stop;

use super::blame::Collector;
use super::explain::Explained;
use super::figures::{Figures, Price};
use super::held::Held;
use super::machine::Machine;
use super::names::Names;
use super::plan::Plan;
use super::requests::Requests;
use super::start::Start;
use super::tick::PhaseSource;
use crate::track::Track;

/// The common input of all runs.
pub(super) struct Setting<'a> {
    pub(super) machine: &'a Machine,
    pub(super) start: &'a Start,
    pub(super) plan: &'a Plan,
    pub(super) phase: &'a PhaseSource,
    /// Time of the first record, and of the first snapshot.
    pub(super) first_ns: u64,
    pub(super) snapshot_ns: u64,
    pub(super) last_ns: u64,
    /// The origin of each request, if it is needed.
    pub(super) requests: Option<&'a Requests>,
    /// The names of the tasks, if the cases of each run are collected.
    pub(super) blame: Option<&'a Arc<Names>>,
    /// The number of the run's process in a timeline, if one is written.
    pub(super) process: Option<u32>,
    /// Ends the run early.
    pub(super) stop: &'a Stop,
    /// Whether tracks are recorded.
    pub(super) record: bool,
    /// Whether the tuning of the lists is explained.
    pub(super) explain: bool,
}

/// The outcome of a run.
pub(super) struct Outcome {
    pub(super) figures: Figures,
    pub(super) explained: Option<Vec<Explained>>,
    pub(super) held: Option<Held>,
    pub(super) cases: Option<Collector>,
    pub(super) track: Option<Track>,
    /// Its process of a timeline.
    pub(super) timeline: Option<File>,
    /// The cost on a simulated machine.
    pub(super) price: Option<Price>,
}
