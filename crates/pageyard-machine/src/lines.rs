//! Lines that CPUs share on the packed engine: where each one is, who waits for it, and what that
//! costs.
//!
//! The core reports each access of an atomic of the packed engine ([`pageyard::lines`]). A line is
//! owned by the core that wrote it last, until another core reads or writes it. A read takes a
//! copy, which is valid until the next write. An access to a line that is not here takes the
//! latency from where it is. A write makes the line busy until it is complete, and accesses of
//! other CPUs wait for that.
//!
//! Lines are counted from the start of each array, so that results do not depend on addresses.

use std::fmt;

use pageyard::ZoneId;
use pageyard::lines::{Part, Shared};

use crate::cache::LINE;

/// Copies that a core's caches hold: entries of a direct-mapped table.
pub(crate) const COPIES: usize = 1 << 12;
/// Lines of a core's level 1: 48 KiB, as a direct-mapped table.
pub(crate) const NEAREST: usize = 768;
/// Kinds of [`Part`].
pub(crate) const PARTS: usize = Part::FreeCounter as usize + 1;

/// A line's holders: the core that has used it last, and another core with a copy; both plus 1, 16
/// bits each. Then the number of writes.
#[derive(Clone, Copy)]
pub(crate) struct Holders(pub(crate) u64);

impl Holders {
    pub(crate) fn of(last: u32, other: u32, writes: u32) -> Holders {
        Holders(
            u64::from(writes) << 32 | u64::from(other & 0xffff) << 16 | u64::from(last & 0xffff),
        )
    }

    pub(crate) fn last(self) -> Option<u16> {
        (self.0 as u16).checked_sub(1)
    }

    pub(crate) fn other(self) -> Option<u16> {
        ((self.0 >> 16) as u16).checked_sub(1)
    }

    pub(crate) fn writes(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The copies of one core.
#[derive(Debug)]
pub(crate) struct Copies {
    /// Line and number of writes.
    pub(crate) valid: Box<[(u32, u32)]>,
    pub(crate) nearest: Box<[u32]>,
}

impl Copies {
    pub(crate) fn new() -> Copies {
        Copies {
            valid: vec![(u32::MAX, 0); COPIES].into(),
            nearest: vec![u32::MAX; NEAREST].into(),
        }
    }

    /// Returns whether level 1 has the line, and puts it there.
    pub(crate) fn is_nearest(&mut self, line: u32) -> bool {
        std::mem::replace(&mut self.nearest[line as usize % NEAREST], line) == line
    }
}

/// What happened to the lines of one purpose.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PartStats {
    /// Accesses.
    pub accesses: u64,
    /// Accesses whose line came from another core.
    pub moved: u64,
    /// Picoseconds for which they waited until the line was free.
    pub queued: u64,
    /// Picoseconds for which the line was on its way.
    pub moving: u64,
    /// The longest wait for one access, both together.
    pub longest: u64,
}

impl PartStats {
    /// Returns the picoseconds for which CPUs waited.
    pub fn waited(&self) -> u64 {
        self.queued + self.moving
    }
}

/// Which line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LineName {
    /// The zone.
    pub zone: ZoneId,
    /// The purpose of the memory.
    pub part: Part,
    /// The first element of the line: a pageblock, a CPU, a domain, or a set of the index.
    pub element: u32,
    /// The line's number in its array.
    pub line: u32,
}

impl fmt::Display for LineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LineName { part, element: n, line, .. } = *self;
        match part {
            Part::States => write!(f, "states of frames, line {line}")?,
            Part::Words => write!(f, "words of pageblock {n}")?,
            Part::Labels => write!(f, "labels of pageblocks from {n}")?,
            Part::Routes => write!(f, "routes of pageblocks from {n}")?,
            Part::Index if n < 2 => write!(f, "whole pageblocks, line {line}")?,
            Part::Index => {
                let (t, bucket) = ((n - 2) / BUCKETS, (n - 2) % BUCKETS + 1);
                write!(f, "index of type {t}, bucket {bucket}, line {line}")?;
            }
            Part::Magazines => write!(f, "magazine {n}")?,
            Part::Links => write!(f, "links of magazines from {n}")?,
            Part::Cpus => write!(f, "pageblocks of CPU {n}")?,
            Part::Depots => write!(f, "a domain's full magazines of class {n}")?,
            Part::Empties => write!(f, "empty magazines of domain {n}")?,
            Part::NodeDepot => write!(f, "the node's full magazines of class {n}")?,
            Part::NodeEmpties => f.write_str("the node's empty magazines")?,
            Part::Sparse => write!(f, "sparse pageblocks of domain {n}")?,
            Part::Upkeep => write!(f, "upkeep of domain {n}")?,
            Part::Levels => f.write_str("levels")?,
            Part::DepotPages => f.write_str("pages of the node's depot")?,
            Part::Isolated => f.write_str("number of isolated pageblocks")?,
            Part::Returned => f.write_str("pages that depots returned")?,
            Part::Loose => f.write_str("pages that moved without a CPU")?,
            Part::FreeCounter => f.write_str("free counter")?,
        }
        write!(f, " of node {} {}", self.zone.node.0, self.zone.kind)
    }
}

/// Buckets of the index, for one type.
pub(crate) const BUCKETS: u32 = 8;

/// The CPUs' waiting for one line, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineStats {
    /// Which line.
    pub name: LineName,
    /// The waiting time of all CPUs.
    pub waited: u64,
}

/// Returns a purpose as reports name it.
pub fn part_name(part: Part) -> &'static str {
    match part {
        Part::States => "states of frames",
        Part::Words => "words of a pageblock",
        Part::Labels => "labels",
        Part::Routes => "routes",
        Part::Index => "index",
        Part::Magazines => "magazines",
        Part::Links => "links of magazines",
        Part::Cpus => "pageblocks of CPUs",
        Part::Depots => "depots of domains",
        Part::Empties => "empty magazines of domains",
        Part::NodeDepot => "depot of the node",
        Part::NodeEmpties => "empty magazines of the node",
        Part::Sparse => "sparse counts",
        Part::Upkeep => "upkeep of domains",
        Part::Levels => "levels",
        Part::DepotPages => "pages of the node's depot",
        Part::Isolated => "isolated pageblocks",
        Part::Returned => "returned pages",
        Part::Loose => "loose pages",
        Part::FreeCounter => "free counter",
    }
}

/// Memory whose lines are known.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) shared: Shared,
    /// The number of its first line.
    pub(crate) first: u32,
}

/// All shared lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// In ascending order of addresses.
    pub(crate) known: Vec<Known>,
    /// The number of lines.
    pub(crate) len: usize,
    pub(crate) holders: Vec<u64>,
    /// When the line is no longer busy.
    pub(crate) free_at: Vec<u64>,
    pub(crate) waited: Vec<u64>,
    /// By core.
    pub(crate) copies: Vec<Option<Copies>>,
    pub(crate) parts: [PartStats; PARTS],
    /// By CPU: the line that it fetched last, and when that arrives.
    pub(crate) fetched: Vec<(u32, u64)>,
}

/// A line, and what is known of it.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) line: u32,
    pub(crate) part: Part,
    pub(crate) node: u16,
}

impl Lines {
    /// Adds memory; [`grow`](Lines::grow) follows. Forgets what was known of the same addresses.
    pub(crate) fn add(&mut self, shared: Shared) {
        let bytes = &shared.bytes;
        if bytes.is_empty() {
            return;
        }
        let apart =
            |k: &Known| k.shared.bytes.end <= bytes.start || bytes.end <= k.shared.bytes.start;
        self.known.retain(apart);
        let first = self.len as u32;
        self.len += bytes.len().div_ceil(LINE as usize);
        let at = self.known.partition_point(|k| k.shared.bytes.start < bytes.start);
        self.known.insert(at, Known { shared, first });
    }

    /// Makes room for the lines that were added.
    pub(crate) fn grow(&mut self) {
        for all in [&mut self.holders, &mut self.free_at, &mut self.waited] {
            // Not touched until it is used.
            let mut longer = vec![0; self.len];
            longer[..all.len()].copy_from_slice(all);
            *all = longer;
        }
    }

    /// Returns the number of lines.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub(crate) fn find(&self, address: usize) -> Option<Found> {
        let at = self.known.partition_point(|k| k.shared.bytes.start <= address).checked_sub(1)?;
        let Known { shared, first } = &self.known[at];
        let away = (address < shared.bytes.end).then(|| address - shared.bytes.start)?;
        let line = first + (away as u64 / LINE) as u32;
        Some(Found { line, part: shared.part, node: shared.zone.node.0 })
    }

    pub(crate) fn holders(&self, line: u32) -> Holders {
        Holders(self.holders[line as usize])
    }

    pub(crate) fn copies(&mut self, core: u16) -> &mut Copies {
        let core = usize::from(core);
        if core >= self.copies.len() {
            self.copies.resize_with(core + 1, || None);
        }
        self.copies[core].get_or_insert_with(Copies::new)
    }

    /// Whether a core can use the line without fetching it.
    pub(crate) fn is_here(&mut self, line: u32, core: u16, writes: bool) -> bool {
        let holders = self.holders(line);
        if holders.last() == Some(core) && (!writes || holders.other().is_none()) {
            return true;
        }
        !writes && self.copies(core).valid[line as usize % COPIES] == (line, holders.writes())
    }

    pub(crate) fn fetched(&mut self, cpu: u32) -> &mut (u32, u64) {
        let cpu = cpu as usize;
        if cpu >= self.fetched.len() {
            self.fetched.resize(cpu + 1, (u32::MAX, 0));
        }
        &mut self.fetched[cpu]
    }

    pub(crate) fn name(&self, line: u32) -> Option<LineName> {
        let number = |k: &Known| u64::from(line.checked_sub(k.first)?).into();
        let within = |k: &&Known| {
            let n: Option<u64> = number(k);
            n.is_some_and(|n| n * LINE < k.shared.bytes.len() as u64)
        };
        let known = self.known.iter().find(within)?;
        let n = number(known)?;
        let Shared { zone, part, ref bytes, .. } = known.shared;
        let element = known.shared.element_at(bytes.start + (n * LINE) as usize)?;
        Some(LineName { zone, part, element: element as u32, line: n as u32 })
    }

    /// Returns the statistics by purpose, of those that were used.
    pub(crate) fn parts(&self) -> Vec<(Part, PartStats)> {
        let part = |k: &Known| (k.shared.part, self.parts[k.shared.part as usize]);
        let mut all: Vec<_> = self.known.iter().map(part).filter(|p| p.1.accesses > 0).collect();
        all.sort_by_key(|p| p.0);
        all.dedup_by_key(|p| p.0);
        all
    }

    /// Returns the `n` lines for which CPUs waited longest, the longest first.
    pub(crate) fn busiest(&self, n: usize) -> Vec<LineStats> {
        let mut most: Vec<(u64, u32)> = Vec::new();
        for (line, &waited) in (0..).zip(&self.waited) {
            if waited > most.last().map_or(0, |m| m.0) || (waited > 0 && most.len() < n) {
                let at = most.partition_point(|m| m.0 >= waited);
                most.insert(at, (waited, line));
                most.truncate(n);
            }
        }
        let named = |(waited, line)| Some(LineStats { name: self.name(line)?, waited });
        most.into_iter().filter_map(named).collect()
    }

    pub(crate) fn forget(&mut self) {
        self.waited = vec![0; self.waited.len()];
        self.parts = Default::default();
    }
}

/// Whether a CPU may be ahead of others with what it owns of this: it is the CPU's own or belongs to
/// the owner of a block.
pub(crate) fn is_private(part: Part) -> bool {
    matches!(part, Part::States | Part::Magazines | Part::Cpus)
}
