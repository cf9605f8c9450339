//! Sorts by time what records say. Those of a round may be earlier than those of the round before,
//! but not than those of the round before that.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::compaction::Compaction;
use crate::event::Kind;

/// What a record says.
pub(crate) enum Item {
    Page {
        cpu: u16,
        tid: u32,
        kind: Kind,
    },
    Compaction {
        cpu: u16,
        tid: u32,
        what: Box<Compaction>,
    },
    Mark {
        cpu: u16,
        text: String,
    },
    /// A task has a new name.
    Comm {
        tid: u32,
        comm: Box<[u8]>,
    },
    /// A task begins.
    Fork {
        tid: u32,
        parent: u32,
    },
}

/// An item and its place: time, number of its record, byte offset.
struct Entry {
    t_ns: u64,
    number: u64,
    position: u64,
    item: Item,
}

/// The earliest entry is the greatest, so that the heap gives it first.
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.t_ns, other.number).cmp(&(self.t_ns, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// Items that wait for earlier ones.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
    latest: u64,
    /// The latest time before the last end of a round.
    latest_before: u64,
    /// Items up to this time can be given.
    until: Option<u64>,
}

impl Queue {
    /// Bytes of an item, without those that it points to.
    pub(crate) const ENTRY: usize = size_of::<Entry>();

    pub(crate) fn push(&mut self, t_ns: u64, position: u64, item: Item) {
        self.heap.push(Entry { t_ns, number: self.count, position, item });
        self.count += 1;
        self.latest = self.latest.max(t_ns);
    }

    /// Notes the end of a round: nothing earlier than the latest of the round before can follow.
    pub(crate) fn finish_round(&mut self) {
        self.until = Some(self.latest_before);
        self.latest_before = self.latest;
    }

    /// Notes the end of all records.
    pub(crate) fn finish(&mut self) {
        self.until = Some(u64::MAX);
    }

    /// Returns whether an item can be given.
    pub(crate) fn is_ready(&self) -> bool {
        self.heap.peek().is_some_and(|first| self.until.is_some_and(|until| first.t_ns <= until))
    }

    /// Returns the earliest item with its time and position, if it can be given.
    pub(crate) fn pop(&mut self) -> Option<(u64, u64, Item)> {
        self.is_ready().then(|| self.heap.pop()).flatten().map(|e| (e.t_ns, e.position, e.item))
    }
}
