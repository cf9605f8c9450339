//! The cache model: where a line is when a CPU accesses it.
//!
//! Caches are modelled as FIFO. For each core and each last-level cache, the machine counts the
//! bytes brought in. Every line (of a page's contents, of descriptors) keeps a stamp: which core
//! touched it last, and both counts at that moment. The line is still cached while fewer bytes than
//! the cache's capacity have come in since. That is exact for a cache that replaces the oldest
//! line. A least-recently-used cache would keep a line that is used repeatedly; here such a line is
//! brought in again after every capacity's worth of other bytes.
//!
//! A stamp is one word: core + 1 (11 bits), the core's count (24 bits) and the last-level cache's
//! count (29 bits), in pages. Zero, the value of fresh memory, means that no CPU has touched the
//! line. A count that wraps around (after 64 GiB in a core, 2 TiB in a last-level cache) can make
//! an old line look new, by chance, in about one of ten thousand cases.

use crate::costs::Costs;
use crate::spec::{MachineSpec, Place};

const CORE_BITS: u32 = 24;
const LAST_BITS: u32 = 29;
const CORE_MASK: u64 = (1 << CORE_BITS) - 1;
const LAST_MASK: u64 = (1 << LAST_BITS) - 1;
/// Shift from bytes to stamp units: counts are kept in bytes and stamped in pages.
const UNIT: u32 = 12;
/// The distance for which the costs of remote accesses are given.
const GIVEN_DISTANCE: u64 = 21;

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// Where a line was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// The core's private caches.
    Private,
    /// The complex's last-level cache.
    LastLevel,
    /// Another core of the complex.
    Complex,
    /// Another complex of the socket.
    Socket,
    /// Another socket, at this distance.
    Remote(u8),
    /// The local node's memory.
    Memory,
    /// Another node's memory, at this distance.
    MemoryRemote(u8),
}

/// Number of kinds of [`Level`].
pub const LEVELS: usize = 7;

impl Level {
    /// Returns a small number that identifies the kind.
    pub fn index(self) -> usize {
        match self {
            Level::Private => 0,
            Level::LastLevel => 1,
            Level::Complex => 2,
            Level::Socket => 3,
            Level::Remote(_) => 4,
            Level::Memory => 5,
            Level::MemoryRemote(_) => 6,
        }
    }

    /// Whether the access missed the complex's last-level cache: a miss as processors count it.
    pub fn is_miss(self) -> bool {
        self.index() >= Level::Socket.index()
    }

    /// Returns the latency of one access on which others depend.
    pub(crate) fn latency(self, c: &Costs) -> u64 {
        match self {
            Level::Private => c.private_hit,
            Level::LastLevel => c.last_level_hit,
            Level::Complex => c.transfer_complex,
            Level::Socket => c.transfer_socket,
            Level::Remote(d) => scaled(c.transfer_remote, d),
            Level::Memory => c.memory,
            Level::MemoryRemote(d) => scaled(c.memory_remote, d),
        }
    }

    /// Returns the cost of a line of a chain, where each line names the next.
    pub(crate) fn walk(self, c: &Costs) -> u64 {
        let in_proportion = |cost: u64, to: u64| (cost * self.latency(c)).checked_div(to);
        match self {
            Level::Private => c.walk_private,
            Level::Memory | Level::MemoryRemote(_) => {
                in_proportion(c.walk_memory, c.memory).unwrap_or(c.walk_memory)
            }
            Level::LastLevel | Level::Complex | Level::Socket | Level::Remote(_) => {
                in_proportion(c.walk_last_level, c.last_level_hit).unwrap_or(c.walk_last_level)
            }
        }
    }

    /// Returns the cost of a line of a sequential access.
    pub(crate) fn stream(self, c: &Costs) -> u64 {
        match self {
            Level::Private => c.stream_private,
            Level::LastLevel => c.stream_last_level,
            Level::Complex | Level::Socket => c.stream_transfer,
            Level::Memory => c.stream_memory,
            Level::Remote(d) | Level::MemoryRemote(d) => scaled(c.stream_remote, d),
        }
    }
}

fn scaled(cost: u64, distance: u8) -> u64 {
    cost * u64::from(distance) / GIVEN_DISTANCE
}

/// Returns the level that a line comes from, between the CPU that wrote it last and the one that
/// accesses it.
pub(crate) fn between(spec: &MachineSpec, from: Place, to: Place) -> Level {
    if from.core == to.core {
        Level::Private
    } else if from.complex == to.complex {
        Level::Complex
    } else if from.socket == to.socket {
        Level::Socket
    } else {
        Level::Remote(spec.distance(from.node, to.node))
    }
}

/// All caches, and the stamps of all lines.
#[derive(Debug)]
pub(crate) struct Caches {
    /// One CPU of each core.
    cores: Vec<Place>,
    /// Bytes brought into each core's caches, and into each last-level cache.
    brought: Vec<u64>,
    brought_last: Vec<u64>,
    /// Their capacities, in stamped units.
    holds: u64,
    holds_last: u64,
    /// Stamps of page contents by frame; not backed by memory until written.
    contents: Vec<u64>,
    /// Stamps of descriptors by line.
    descriptors: Vec<u64>,
    /// Stamps of the lines that CPUs share on the packed engine.
    shared: Vec<u64>,
    /// Size of a descriptor in bytes.
    descriptor: u64,
}

/// What to look up.
#[derive(Clone, Copy)]
pub(crate) enum Line {
    /// All of a page's contents.
    Contents(u64),
    /// The line that holds a frame's descriptor.
    Descriptor(u64),
    /// A line that CPUs share on the packed engine, by number.
    Shared(u32),
}

impl Caches {
    /// Creates the caches for frames below `frames`.
    pub(crate) fn new(spec: &MachineSpec, frames: u64, descriptor: u64) -> Self {
        let mut cores = vec![spec.cpus[0]; spec.cores()];
        for place in &spec.cpus {
            cores[usize::from(place.core)] = *place;
        }
        Caches {
            brought: vec![0; cores.len()],
            brought_last: vec![0; spec.complexes()],
            cores,
            holds: spec.private >> UNIT,
            holds_last: spec.in_effect >> UNIT,
            contents: vec![0; frames as usize],
            descriptors: vec![0; (frames * descriptor).div_ceil(LINE) as usize],
            shared: Vec::new(),
            descriptor,
        }
    }

    /// Makes room for the stamps of this many shared lines.
    pub(crate) fn share(&mut self, lines: usize) {
        let mut longer = vec![0; lines.max(self.shared.len())];
        longer[..self.shared.len()].copy_from_slice(&self.shared);
        self.shared = longer;
    }

    /// Returns the place of a core.
    pub(crate) fn place_of(&self, core: u16) -> Place {
        self.cores[usize::from(core)]
    }

    /// Returns the line that holds a frame's descriptor.
    #[inline]
    pub(crate) fn line_of(&self, pfn: u64) -> u64 {
        pfn * self.descriptor / LINE
    }

    /// Records that a CPU touches `bytes` bytes of a line. Returns where the line was and the
    /// socket it came from, or `None` if it was in no cache.
    #[inline]
    pub(crate) fn touch(
        &mut self,
        spec: &MachineSpec,
        me: Place,
        line: Line,
        bytes: u64,
    ) -> Option<(Level, u16)> {
        let stamp = match line {
            Line::Contents(pfn) => self.contents.get_mut(pfn as usize),
            Line::Descriptor(pfn) => {
                self.descriptors.get_mut((pfn * self.descriptor / LINE) as usize)
            }
            Line::Shared(line) => self.shared.get_mut(line as usize),
        };
        let stamp = stamp?;
        let core = usize::from(me.core);
        let complex = usize::from(me.complex);
        let mut from = me.socket;
        let level = if *stamp == 0 {
            None
        } else {
            let last = usize::try_from(*stamp >> (CORE_BITS + LAST_BITS)).unwrap_or(1) - 1;
            let theirs = self.cores[last];
            let age =
                |count: u64, stamped: u64, mask: u64| (count >> UNIT).wrapping_sub(stamped) & mask;
            let age_core = age(self.brought[last], *stamp >> LAST_BITS, CORE_MASK);
            let age_last = age(self.brought_last[usize::from(theirs.complex)], *stamp, LAST_MASK);
            let in_core = age_core < self.holds;
            let in_last = age_last < self.holds_last || in_core;
            if last == core && in_core {
                Some(Level::Private)
            } else if theirs.complex == me.complex && last != core && in_core {
                Some(Level::Complex)
            } else if theirs.complex == me.complex && in_last {
                Some(Level::LastLevel)
            } else if theirs.complex != me.complex && in_last {
                from = theirs.socket;
                Some(between(spec, theirs, me))
            } else {
                None
            }
        };
        // A hit does not change when the line came in.
        let (mut came, mut came_last) = (*stamp >> LAST_BITS & CORE_MASK, *stamp & LAST_MASK);
        if level != Some(Level::Private) {
            self.brought[core] += bytes;
            came = self.brought[core] >> UNIT & CORE_MASK;
        }
        if level.is_none_or(Level::is_miss) {
            self.brought_last[complex] += bytes;
            came_last = self.brought_last[complex] >> UNIT & LAST_MASK;
        }
        *stamp =
            (u64::from(me.core) + 1) << (CORE_BITS + LAST_BITS) | came << LAST_BITS | came_last;
        level.map(|level| (level, from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two complexes of two cores; a core holds 2 pages, a last-level cache 8.
    fn spec() -> MachineSpec {
        let text = "sockets = 2\ncores = 4\ncomplex = 2\nclock_mhz = 1000\nlast_level = '32K'\n\
                    private = '8K'\nmemory = '1G'\ndistances = [[10, 21], [21, 10]]";
        crate::spec::Description::from_toml("test", text).unwrap().check().unwrap()
    }

    #[test]
    fn a_page_is_cached_where_last_touched_until_evicted() {
        let spec = spec();
        let mut c = Caches::new(&spec, 64, 16);
        let mut touch = |cpu: usize, pfn| {
            c.touch(&spec, spec.cpus[cpu], Line::Contents(pfn), 4096).map(|l| l.0)
        };
        assert_eq!(touch(0, 1), None, "never touched");
        assert_eq!(touch(0, 1), Some(Level::Private));
        assert_eq!(touch(1, 1), Some(Level::Complex));
        assert_eq!(touch(2, 1), Some(Level::Socket));
        assert_eq!(touch(4, 1), Some(Level::Remote(21)));
        // CPU 0 brings in three pages: the first leaves its own caches, but not the last level.
        for pfn in 10..13 {
            assert_eq!(touch(0, pfn), None);
        }
        assert_eq!(touch(0, 10), Some(Level::LastLevel));
        assert_eq!(touch(1, 12), Some(Level::Complex));
        assert_eq!(touch(1, 11), Some(Level::LastLevel), "evicted from CPU 0 by then");
        for pfn in 20..28 {
            touch(0, pfn);
        }
        assert_eq!(touch(0, 10), None, "evicted from the last level too");
    }

    #[test]
    fn a_loop_that_fits_hits_and_one_that_does_not_misses() {
        let spec = spec();
        let mut c = Caches::new(&spec, 64, 16);
        for (pages, hits) in [(8, 8 * 9), (10, 0)] {
            let mut seen = 0;
            for _ in 0..10 {
                for pfn in 0..pages {
                    let at =
                        c.touch(&spec, spec.cpus[0], Line::Contents(pfn + (pages - 8) * 16), 4096);
                    seen += u32::from(at.is_some_and(|l| !l.0.is_miss()));
                }
            }
            assert_eq!(seen, hits, "{pages} pages");
        }
    }

    #[test]
    fn descriptors_share_lines() {
        let spec = spec();
        let mut c = Caches::new(&spec, 64, 16);
        let mut touch = |cpu: usize, pfn| {
            c.touch(&spec, spec.cpus[cpu], Line::Descriptor(pfn), LINE).map(|l| l.0)
        };
        assert_eq!(touch(0, 8), None);
        assert_eq!(touch(0, 11), Some(Level::Private));
        assert_eq!(touch(0, 12), None);
        assert_eq!(touch(4, 9), Some(Level::Remote(21)));
        let mut c = Caches::new(&spec, 64, 64);
        c.touch(&spec, spec.cpus[0], Line::Descriptor(8), LINE);
        assert_eq!(c.touch(&spec, spec.cpus[0], Line::Descriptor(9), LINE), None);
    }
}
