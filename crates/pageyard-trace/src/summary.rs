//! Totals of a reader: counts by kind, ignored events, faults.

use std::collections::BTreeMap;

use crate::compaction::{Compaction, VMSCAN};
use crate::compaction_layout::POINTS;
use crate::error::TraceError;
use crate::event::{Event, Kind};
use crate::printable::printable;

/// The kernel's names of the page events.
pub(crate) const PAGE_EVENTS: [&str; 6] = [
    "mm_page_alloc",
    "mm_page_free",
    "mm_page_free_batched",
    "mm_page_alloc_zone_locked",
    "mm_page_pcpu_drain",
    "mm_page_alloc_extfrag",
];

/// Number of events of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// `mm_page_alloc`, failed requests included.
    pub alloc: u64,
    /// Number of these that failed.
    pub alloc_failed: u64,
    /// `mm_page_free`.
    pub free: u64,
    /// `mm_page_free_batched`.
    pub free_batched: u64,
    /// `mm_page_alloc_zone_locked`.
    pub zone_locked: u64,
    /// `mm_page_pcpu_drain`.
    pub drain: u64,
    /// `mm_page_alloc_extfrag`.
    pub ext_frag: u64,
}

impl KindCounts {
    /// Counts one event.
    #[inline]
    pub fn add(&mut self, event: &Event) {
        match event.kind {
            Kind::Alloc { pfn, .. } => {
                self.alloc += 1;
                self.alloc_failed += u64::from(pfn.is_none());
            }
            Kind::Free { .. } => self.free += 1,
            Kind::FreeBatched { .. } => self.free_batched += 1,
            Kind::ZoneLocked { .. } => self.zone_locked += 1,
            Kind::Drain { .. } => self.drain += 1,
            Kind::ExtFrag { .. } => self.ext_frag += 1,
        }
    }

    /// Returns the kernel's names and the counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let &KindCounts { alloc, free, free_batched, zone_locked, drain, ext_frag, .. } = self;
        PAGE_EVENTS.into_iter().zip([alloc, free, free_batched, zone_locked, drain, ext_frag])
    }

    /// Returns the total number of events.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, n)| n).sum()
    }
}

/// Number of events of each tracepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionCounts([u64; POINTS.len()]);

impl CompactionCounts {
    /// Counts one event.
    pub fn add(&mut self, event: &Compaction) {
        self.0[event.values().0] += 1;
    }

    /// Returns the kernel's names and the counts.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        POINTS.iter().map(|p| p.name).zip(self.0)
    }

    /// Returns the total number of events.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the number of reclaim events.
    pub fn reclaim(&self) -> u64 {
        self.iter().filter(|(name, _)| name.starts_with(VMSCAN)).map(|(_, n)| n).sum()
    }
}

/// Faults in the input, in lenient mode.
#[derive(Debug, Default)]
pub struct Malformed {
    /// Number of faulty lines or chunks, backward jumps in time included.
    pub count: u64,
    /// The first faults.
    pub first: Vec<TraceError>,
}

impl Malformed {
    /// Number of faults kept with their position; the rest are only counted.
    pub const KEPT: usize = 8;

    pub(crate) fn add(&mut self, error: TraceError) {
        self.count += 1;
        if self.first.len() < Self::KEPT {
            self.first.push(error);
        }
    }
}

/// Events with other names, which the reader ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    by_name: BTreeMap<Box<str>, u64>,
}

impl Ignored {
    /// Maximum number of distinct names, to bound memory. Further ones are counted under
    /// [`Ignored::OTHERS`].
    pub const MAX_NAMES: usize = 1024;
    /// Name for the events beyond [`Ignored::MAX_NAMES`].
    pub const OTHERS: &'static str = "(others)";

    /// Returns names and counts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.by_name.iter().map(|(name, &count)| (&**name, count))
    }

    /// Returns the total number of events.
    pub fn total(&self) -> u64 {
        self.by_name.values().sum()
    }

    pub(crate) fn add(&mut self, name: &str) {
        if let Some(count) = self.by_name.get_mut(name) {
            *count += 1;
        } else {
            let name = printable(name);
            let others =
                self.by_name.len() >= Self::MAX_NAMES && !self.by_name.contains_key(&*name);
            let name = if others { Self::OTHERS } else { &name };
            *self.by_name.entry(name.into()).or_insert(0) += 1;
        }
    }
}

/// Totals of what a reader has read so far; complete at the end of the input.
#[derive(Debug, Default)]
pub struct Summary {
    /// Page events by kind.
    pub kinds: KindCounts,
    /// Compaction and reclaim events.
    pub compaction: CompactionCounts,
    /// Marks.
    pub marks: u64,
    /// Number of CPUs that the recording declares (`cpus=N`), if any.
    pub declared_cpus: Option<u16>,
    /// Release of the kernel that recorded, such as `6.12.117+deb12-cloud-amd64`, if the recording
    /// says so.
    pub kernel_release: Option<String>,
    /// Clock of the recorded times, such as `mono`, if the recording says so.
    pub clock: Option<String>,
    /// Names of the events that the recorder enabled, whether they happened or not, if the file says
    /// so.
    pub enabled_events: Option<Vec<String>>,
    /// Number of events that the recorder reports as lost; a gap without a number counts as one.
    pub lost: u64,
    /// Events with other names.
    pub ignored: Ignored,
    /// Faults (lenient mode only; strict mode ends with the first fault).
    pub malformed: Malformed,
    /// For a `.pgy` file: number of faults in the recording it was imported from.
    pub malformed_at_import: u64,
    /// Times of the earliest and the latest record, in nanoseconds.
    pub span_ns: Option<(u64, u64)>,
}
