//! The report on memory that a kernel logs when a request fails (§9.8): for every zone one line of
//! sizes, one of reserves, one of free blocks.
//!
//! The spec names the first and the last fields of the first line and leaves the middle open. The
//! middle is what reports in public logs show, with their capital K where they have one. The
//! summary lines of the machine and its nodes around the zones belong to the kernel's other parts
//! and are not written.

use core::fmt::{self, Write};

use lock_api::RawMutex;

use super::{Extra, populated, zone_stat};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::units::{MAX_ORDER, MigrateType, NodeId, PAGE_SIZE, TYPES};
use crate::yard::Yard;
use crate::zone::Zone;

/// Orders that a report shows.
const ORDERS: usize = MAX_ORDER as usize + 1;

/// What a report says of one zone. Counts are pages; it prints kB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneReport<'t> {
    /// Its node.
    pub node: NodeId,
    /// Its name, such as `DMA32`.
    pub zone: &'t str,
    /// Free pages.
    pub free: u64,
    /// The boost of the marks.
    pub boost: u64,
    /// MIN, LOW, HIGH as they are in force: with the boost (§3.3).
    pub marks: [u64; 3],
    /// Pages in blocks reserved for high-order atomic requests (§3.8).
    pub reserved_highatomic: u64,
    /// Free pages of those blocks.
    pub free_highatomic: u64,
    /// Pages that are memory.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Pages on the lists of all CPUs.
    pub free_pcp: u64,
    /// Pages on the lists of the CPU that reports.
    pub local_pcp: u64,
    /// Free pages of contiguous-memory areas.
    pub free_cma: u64,
    /// Reserve against requests for each higher zone (§3.5).
    pub protection: &'t [u64],
}

/// The free blocks of one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockSupply {
    /// How many.
    pub blocks: u64,
    /// For each migrate type, whether some of them are on its list. None: the types are not shown.
    pub types: [bool; TYPES],
}

fn kb(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE / 1024)
}

/// A type's letter in the list of free blocks.
const fn letter(t: MigrateType) -> char {
    match t {
        MigrateType::Unmovable => 'U',
        MigrateType::Movable => 'M',
        MigrateType::Reclaimable => 'E',
        MigrateType::HighAtomic => 'H',
        MigrateType::Cma => 'C',
        MigrateType::Isolate => 'I',
    }
}

impl ZoneReport<'_> {
    /// Writes the lines of sizes and of reserves. `stat` tells the zone's counters by name
    /// ([`ZONE_STATS`](super::ZONE_STATS)), in pages.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_sizes(&self, out: &mut impl Write, stat: impl Fn(&str) -> u64) -> fmt::Result {
        write!(out, "Node {} {}", self.node.0, self.zone)?;
        let [min, low, high] = self.marks;
        let marks = [
            ("free", self.free),
            ("boost", self.boost),
            ("min", min),
            ("low", low),
            ("high", high),
        ];
        let highatomic = [
            ("reserved_highatomic", self.reserved_highatomic),
            ("free_highatomic", self.free_highatomic),
        ];
        let counters = [
            ("active_anon", stat("nr_zone_active_anon")),
            ("inactive_anon", stat("nr_zone_inactive_anon")),
            ("active_file", stat("nr_zone_active_file")),
            ("inactive_file", stat("nr_zone_inactive_file")),
            ("unevictable", stat("nr_zone_unevictable")),
            ("writepending", stat("nr_zone_write_pending")),
            ("present", self.present),
            ("managed", self.managed),
            ("mlocked", stat("nr_mlock")),
            ("bounce", stat("nr_bounce")),
            ("free_pcp", self.free_pcp),
            ("local_pcp", self.local_pcp),
            ("free_cma", self.free_cma),
        ];
        marks.into_iter().try_for_each(|(name, n)| write!(out, " {name}:{}kB", kb(n)))?;
        highatomic.into_iter().try_for_each(|(name, n)| write!(out, " {name}:{}KB", kb(n)))?;
        counters.into_iter().try_for_each(|(name, n)| write!(out, " {name}:{}kB", kb(n)))?;
        out.write_str("\nlowmem_reserve[]:")?;
        self.protection.iter().try_for_each(|n| write!(out, " {n}"))?;
        out.write_char('\n')
    }

    /// Writes the line of free blocks, from order 0 up.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_blocks(
        &self,
        out: &mut impl Write,
        orders: impl IntoIterator<Item = BlockSupply>,
    ) -> fmt::Result {
        write!(out, "Node {} {}: ", self.node.0, self.zone)?;
        let (mut size, mut total) = (PAGE_SIZE / 1024, 0u64);
        for BlockSupply { blocks, types } in orders {
            write!(out, "{blocks}*{size}kB ")?;
            if types.contains(&true) {
                out.write_char('(')?;
                for (t, _) in MigrateType::ALL.into_iter().zip(types).filter(|(_, any)| *any) {
                    out.write_char(letter(t))?;
                }
                out.write_str(") ")?;
            }
            total = total.saturating_add(blocks.saturating_mul(size));
            size = size.saturating_mul(2);
        }
        writeln!(out, "= {total}kB")
    }
}

impl<R: RawMutex, E: Platform, P: Policy> Yard<'_, R, E, P> {
    /// Writes the report on memory (§9.8) of every zone that has any: first the sizes and reserves
    /// of all zones, then their free blocks. The CPU that calls is the local one.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_show_mem(&self, out: &mut impl Write, extra: &impl Extra) -> fmt::Result {
        let local = self.platform.cpu();
        for z in populated(self.zones) {
            let stat = |name: &str| zone_stat(z, name, extra);
            let cached = z.cpus.iter().map(|c| c.pageset.lock().tuning().count.max(0) as u64);
            let local_pcp = cached.clone().nth(local.0 as usize).unwrap_or(0);
            let report = ZoneReport { free_pcp: cached.sum(), local_pcp, ..sizes(z) };
            let report = ZoneReport { protection: &z.watermarks.reserves(), ..report };
            report.write_sizes(out, stat)?;
        }
        populated(self.zones).try_for_each(|z| sizes(z).write_blocks(out, blocks(z)))
    }
}

/// The sizes of a zone, but for its reserves and per-CPU lists.
fn sizes<'z, R: RawMutex>(z: &'z Zone<'_, R>) -> ZoneReport<'z> {
    let boost = z.watermarks.boost();
    let [min, low, high, _] = z.watermarks.marks().map(|mark| mark.saturating_add(boost));
    let supply = z.supply();
    ZoneReport {
        node: z.node,
        zone: z.kind.name(),
        free: supply.free,
        boost,
        marks: [min, low, high],
        reserved_highatomic: z.reserved_highatomic.load(Relaxed),
        free_highatomic: supply.highatomic,
        present: z.present.load(Relaxed),
        managed: z.managed.load(Relaxed),
        free_pcp: 0,
        local_pcp: 0,
        free_cma: supply.cma,
        protection: &[],
    }
}

/// A zone's free blocks at one moment.
fn blocks<R: RawMutex>(z: &Zone<'_, R>) -> [BlockSupply; ORDERS] {
    let _lock = z.lock.lock();
    core::array::from_fn(|order| {
        let order = order as u8;
        let types = MigrateType::ALL.map(|t| !z.areas.list(order, t).is_empty());
        BlockSupply { blocks: z.areas.blocks(order), types }
    })
}
