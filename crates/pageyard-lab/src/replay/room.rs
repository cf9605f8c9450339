//! Limits of the memory for a replay's tables. A few bytes of a trace or of a zoneinfo file can
//! describe any machine, so the limit grows with the trace.

use super::error::ReplayError;
use super::explain;
use super::lists::LISTS;
use super::machine::{Machine, MachineZone};
use super::mirror::Slot;
use super::on_machine;
use super::options::{Keep, Options};
use super::pages;
use super::requests;
use super::restore::{Parts, refused};
use crate::memory::Lock;
use crate::track;

/// Bytes allowed for any trace: the tables of a machine of 45 GiB.
const FREE: u64 = 256 << 20;
/// Bytes allowed in addition for each page event. A recording of a 1 TiB machine reaches the size
/// of its tables in 400,000 events, less than a second of a busy machine.
const PER_EVENT: u64 = 16 << 10;

/// Bytes per frame of the first two passes: the lists' links and places, order, flags, blocks in
/// use. The state at the start takes one more byte and is kept.
const PASSES: u64 = 12 + 3;
const START: u64 = 1;
/// Bytes per frame of a run's map from recorded blocks to allocated ones.
const MAP: u64 = 5;

/// Bytes that a replay needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    passes: u64,
    stays: u64,
    run: u64,
    allowed: u64,
}

impl Room {
    /// Computes what a replay on this machine needs.
    ///
    /// # Errors
    /// Fails if no allocator can manage such a machine.
    pub(super) fn new(
        machine: &Machine,
        options: &Options,
        keep: Keep,
    ) -> Result<Room, ReplayError> {
        let frames = machine.frames() as u64;
        let slots = (machine.zones.len() * machine.cpus.len()) as u64;
        let of = |n: u64, each: u64| n.saturating_mul(each);
        let lists = size_of::<Slot>() + size_of::<[Vec<u32>; LISTS]>() + LISTS * 8 + 40;
        let requests = if keep.requests { requests::PER_FRAME } else { 0 };
        let follow = keep.origins || keep.timeline || options.record;
        let follow = if follow { pages::PER_FRAME } else { 0 };
        let needs = Parts::of(machine).layout().needs::<Lock>().map_err(refused)?;
        let noted = if options.explain && options.on.is_none() { explain::PER_LIST } else { 0 };
        let sampled = if options.record { track::PER_LIST } else { 0 };
        let lists_of_run = (noted + sampled) as u64;
        let caches = if options.on.is_some() {
            // The caches are numbered from frame 0.
            of(machine.zones.last().map_or(0, MachineZone::end), on_machine::PER_FRAME)
        } else {
            0
        };
        let run = (needs.bytes as u64)
            .saturating_add(of(frames, MAP + follow))
            .saturating_add(of(slots, lists_of_run))
            .saturating_add(caches);
        let stays = of(frames, START + requests);
        let stays = stays.saturating_add(of(frames, follow));
        let passes = of(frames, PASSES).saturating_add(of(slots, lists as u64));
        Ok(Room { passes, stays, run, allowed: FREE })
    }

    /// Returns the minimum: one run at a time, after the tables of the passes are freed.
    pub(super) fn least(&self) -> u64 {
        self.stays.saturating_add(self.passes.max(self.run))
    }

    /// Returns whether the replay needs more than any trace may use, so that the trace must be
    /// long.
    pub(super) fn is_large(&self) -> bool {
        self.least() > FREE
    }

    /// Sets the limit for a number of events, or to the required size if the user confirmed the
    /// machine's size (`said`). Returns whether the replay fits.
    pub(super) fn allow(&mut self, events: u64, said: bool) -> bool {
        let by_length = events.saturating_mul(PER_EVENT).saturating_add(FREE);
        self.allowed = by_length.max(if said { self.least() } else { 0 });
        self.least() <= self.allowed
    }

    /// Returns the allowed bytes.
    pub(super) fn allowed(&self) -> u64 {
        self.allowed
    }

    /// Returns how many runs fit at once.
    pub(super) fn runs(&self) -> usize {
        let rest = self.allowed.saturating_sub(self.stays);
        usize::try_from(rest / self.run.max(1)).unwrap_or(usize::MAX).max(1)
    }
}
