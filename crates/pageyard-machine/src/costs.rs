//! The cost model: what operations cost in virtual time. One table; each number has its unit and
//! its source.
//!
//! No number of this table is fitted to an experiment. (Some of the workloads' own numbers are derived
//! from published figures: the anchors of `pageyard reproduce`.) Change one to see what depends on it;
//! result tables list the costs that differ from their defaults.

use std::fmt;

/// How well a number is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confidence {
    /// Measured by this project; the source names the measurement.
    Measured,
    /// Published; verified against the publication when it was entered.
    Published,
    /// Published; quoted from memory and not verified again.
    Quoted,
    /// Not measured: an order of magnitude.
    Assumed,
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Confidence::Measured => "measured",
            Confidence::Published => "published",
            Confidence::Quoted => "quoted",
            Confidence::Assumed => "assumed",
        })
    }
}

/// One row of the cost table.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Name of the field of [`Costs`].
    pub name: &'static str,
    /// Default value.
    pub default: u64,
    /// Unit.
    pub unit: &'static str,
    /// How well the value is known.
    pub confidence: Confidence,
    /// Where the value is from.
    pub source: &'static str,
    /// Reads the value from a cost model.
    pub get: fn(&Costs) -> u64,
    /// Sets the value in a cost model.
    pub set: fn(&mut Costs, u64),
}

macro_rules! unit {
    () => {
        "ps"
    };
    ($unit:literal) => {
        $unit
    };
}

macro_rules! costs {
    ($( $(#[$doc:meta])* $name:ident = $value:literal $($unit:literal)?, $confidence:ident, $source:literal; )*) => {
        /// The cost model, in picoseconds of virtual time unless a unit is given.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Costs { $( $(#[$doc])* pub $name: u64, )* }

        impl Costs {
            /// The default values.
            pub const DEFAULT: Costs = Costs { $( $name: $value, )* };
        }

        impl Default for Costs {
            fn default() -> Self {
                Costs::DEFAULT
            }
        }

        /// All costs, in the order of the table.
        pub const TABLE: &[Cost] = &[ $( Cost {
            name: stringify!($name),
            default: $value,
            unit: unit!($($unit)?),
            confidence: Confidence::$confidence,
            source: $source,
            get: |c| c.$name,
            set: |c, ps| c.$name = ps,
        }, )* ];
    };
}

/// Duration of one of Linux's instructions.
const LINUX_INSTRUCTION: u64 = 131;

costs! {
    /// Taking a free lock whose line is in the CPU's own cache; also a failed attempt.
    lock = 6_000, Quoted,
        "Fog, Instruction tables: lock cmpxchg 18 to 20 cycles (Skylake); at 3 GHz";
    /// Releasing a lock that has no waiters.
    unlock = 1_500, Quoted, "a store; lock and unlock together: calibrate, row lock pair, says 7,240 of one Xeon";
    /// Passing a queued lock to the next waiter, without the transfer of the line that this waiter
    /// spins on.
    handover = 6_000, Quoted, "the exchange of the queue's tail or head, as `lock`";
    /// Delay that each further waiter of a test-and-set lock adds to a hand-over by its own
    /// attempts.
    tas_waiter = 20_000, Assumed,
        "each attempt holds the line for part of a transfer; David et al. (SOSP 2013) show the trend";
    /// A line in the core's private caches (level 2).
    private_hit = 4_000, Quoted, "Intel optimization manual: level 2, 14 cycles; at 3.5 GHz";
    /// A line in the complex's last-level cache.
    last_level_hit = 21_200, Quoted, "Molka et al. (ICPP 2015), Haswell-EP: level 3";
    /// A line last written by another core of the complex.
    transfer_complex = 49_000, Quoted,
        "Molka et al. (ICPP 2015): modified in another core's level 2; David et al.: 51 ns (109 cycles)";
    /// A line last written by a core of another complex of the socket.
    transfer_socket = 100_000, Quoted,
        "AnandTech, EPYC 7763 (2021): 80 to 112 ns between complexes of a socket";
    /// A line last written by a core of another socket at distance 21; scaled in proportion for
    /// other distances.
    transfer_remote = 136_000, Quoted,
        "David et al. (SOSP 2013), Xeon: modified, one hop, 289 cycles at 2.13 GHz";
    /// A line in the local node's memory and in no cache.
    memory = 96_400, Quoted, "Molka et al. (ICPP 2015): local memory";
    /// A line in another node's memory at distance 21; scaled in proportion for other distances.
    memory_remote = 146_000, Quoted, "Molka et al. (ICPP 2015): remote memory";
    /// A line of a sequential read or write, from the core's private caches.
    stream_private = 930, Quoted, "Molka et al. (ICPP 2015): level 2, 69 GB/s";
    /// A line of a sequential access, from the last-level cache.
    stream_last_level = 2_440, Quoted, "Molka et al. (ICPP 2015): level 3, 26.2 GB/s";
    /// A line of a sequential access, from the caches of another core or another complex.
    stream_transfer = 7_500, Quoted, "Molka et al. (ICPP 2015): core to core, about 8.5 GB/s";
    /// A line of a sequential access, from the local node's memory.
    stream_memory = 6_200, Quoted, "Molka et al. (ICPP 2015): one core, 10.3 GB/s";
    /// A line of a sequential access, from another node's caches or memory at distance 21; scaled
    /// in proportion for other distances.
    stream_remote = 8_000, Quoted, "Molka et al. (ICPP 2015): one core, remote, 8.0 GB/s";
    /// A line of a chain, where each line names the next, from the core's private caches:
    /// descriptors on lists. Other cores' caches and other nodes are scaled in proportion to the
    /// cost of a single line there.
    walk_private = 3_240, Measured, "calibrate, row line of a chain in order, of 262K: an Intel Xeon";
    /// A line of a chain, from the last-level cache.
    walk_last_level = 4_250, Measured,
        "calibrate, row line of a chain in order, of 4192K: an Intel Xeon";
    /// A line of a chain, from the local node's memory.
    walk_memory = 13_500, Measured,
        "calibrate, row line of a chain in order, of 524288K: an Intel Xeon";
    /// Zeroing a line that is in the core's private caches.
    clear_hit = 1_220, Measured, "calibrate, row line of a page cleared, of 256K: an Intel Xeon";
    /// Zeroing a line that is in the last-level cache or in another core's caches.
    clear_last_level = 2_400, Measured,
        "calibrate, row line of a page cleared, of 4096K: an Intel Xeon";
    /// Zeroing a line that is in memory or in another complex.
    clear_miss = 4_670, Published,
        "clear_page of 4 KiB on AMD Milan, 13.7 GB/s (Linux commit cb431accb36e)";
    /// Number of lines that a core can have in flight at once, to memory or to other cores. At full
    /// load Memory Latency Checker shows, by Little's law, 15 for a Cascade Lake core and 20 for an
    /// Ice Lake one (published: github, gjbex/Code-optimization, info/).
    lines_in_flight = 16 "lines", Quoted,
        "Intel optimization manual: fill buffers of level 1, Golden Cove (12 before)";
    /// Duration of instructions while another thread of the core works, in thousandths of their
    /// duration on an otherwise idle core.
    smt_work = 1_600 "1/1000", Quoted,
        "Marr et al. (Intel Technology Journal, 2002): two threads do 16% to 30% more than one; 1.25 in all";
    /// Duration of instructions while the other thread of the core spins for a lock, in
    /// thousandths.
    smt_spin = 1_050 "1/1000", Assumed,
        "PAUSE takes 140 cycles per iteration (Intel optimization manual, Skylake)";
    /// The instructions of a successful request, without locks and descriptors.
    alloc_path = 6_000, Measured,
        "the core's bench of 2026-11-21: alloc-64k 9.9 ns, less the lock's share";
    /// The instructions of a free.
    free_path = 5_000, Measured, "that bench: free-in-order 8.7 ns, less the lock's share";
    /// The instructions of a request on the packed engine, refills included, without locks and
    /// lines.
    packed_alloc_path = 8_500, Assumed,
        "alloc_path by instructions, 2026-11-23: 69 for each page of alloc-64k against 49";
    /// The instructions of a free on the packed engine, frees to the zone included.
    packed_free_path = 4_700, Assumed,
        "free_path by instructions, 2026-11-23: 86 for each page of free-in-order against 92";
    /// Cost of each page of a bulk request, without its descriptor.
    bulk_page = 2_000, Assumed, "a pop and a store";
    /// The instructions for a block that leaves a free list, under the zone lock.
    zone_take = 300, Measured, "calibrate, row a page from the zone: an Intel Xeon";
    /// The instructions for a block that goes to a free list, under the zone lock.
    zone_free = 860, Measured, "calibrate, row a page to the zone: an Intel Xeon";
    /// The instructions for each descriptor whose links change: that of a block put on a free list
    /// or taken off one, and those of its neighbours.
    link = 3_100, Measured, "calibrate, row a block on or off a free list: an Intel Xeon";
    /// Examining a frame while scanning a pageblock.
    scan_frame = 1_550, Quoted, "stream_memory for a descriptor of 16 bytes";
    /// Switching from one task to another on a CPU.
    context_switch = 1_200_000, Assumed, "lmbench lat_ctx on current servers: 1 to 2 us";
    /// From a wake-up until the idle CPU of the sleeper runs it.
    wakeup = 2_000_000, Assumed, "an interrupt between CPUs, and leaving the idle loop";
    /// How long a task runs while other tasks wait for its CPU.
    time_slice = 3_000_000_000, Quoted, "Linux 6.12 base slice: 3 ms on 8 CPUs and more (2.8 from 6.15)";
}

impl Costs {
    /// The costs of Linux's own code, where they differ from ours. The machine prices this
    /// allocator's instructions, and published figures are of the kernel's: Linux 6.12.117 takes 570
    /// instructions to allocate a single page and 315 to free it, refills and drains included
    /// (counted by this project, as those of docs/performance.md).
    ///
    /// - An instruction takes 0.13 ns, as ours do on average: 9.9 + 8.7 ns for 51.4 + 90 instructions
    ///   (docs/performance.md). That the kernel's take as long is assumed.
    /// - A third of each number runs under the zone lock: assumed. That is 190 instructions for a page
    ///   from a free list and 105 for one that goes to one, links included, so that a link costs
    ///   nothing by itself. Lines that miss the caches are priced one by one, as always.
    pub const LINUX: Costs = Costs {
        alloc_path: 380 * LINUX_INSTRUCTION,
        free_path: 210 * LINUX_INSTRUCTION,
        zone_take: 190 * LINUX_INSTRUCTION,
        zone_free: 105 * LINUX_INSTRUCTION,
        link: 0,
        ..Costs::DEFAULT
    };

    /// Returns the name and the value of each cost that differs from its default.
    pub fn changed(&self) -> Vec<(&'static str, u64)> {
        let of = |row: &Cost| (row.name, (row.get)(self), row.default);
        TABLE.iter().map(of).filter(|r| r.1 != r.2).map(|r| (r.0, r.1)).collect()
    }

    /// Formats the table: name, value, unit, confidence, source.
    pub fn table(&self) -> String {
        let mut out = format!("{:18} {:>14} {:6} {:9}  source\n", "cost", "value", "unit", "from");
        for row in TABLE {
            let (value, source) = ((row.get)(self), row.source);
            let changed = if value == row.default { "" } else { " (changed)" };
            let value = crate::format::grouped(value);
            let (unit, from) = (row.unit, row.confidence);
            out += &format!("{:18} {value:>14} {unit:6} {from:9}  {source}{changed}\n", row.name);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts add up to the counted instructions, and only the allocator's code differs.
    #[test]
    fn linux_costs_are_those_of_its_instructions() {
        let Costs { alloc_path, free_path, zone_take, zone_free, .. } = Costs::LINUX;
        assert_eq!(alloc_path + zone_take, 570 * LINUX_INSTRUCTION);
        assert_eq!(free_path + zone_free, 315 * LINUX_INSTRUCTION);
        let changed: Vec<_> = Costs::LINUX.changed().into_iter().map(|c| c.0).collect();
        assert_eq!(changed, ["alloc_path", "free_path", "zone_take", "zone_free", "link"]);
        assert!(Costs::DEFAULT.changed().is_empty());
    }
}
