//! What a snapshot consists of: [`Record`]s, and what both engines check of them.

use core::ops::Range;

use lock_api::RawMutex;

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, NodeId, Order, Pfn, ZONE_KINDS};
use crate::embedder::policy::Rules;
use crate::pcp::pageset::{LISTS, is_cached_order, list_order};
use crate::pcp::tuning::{Limits, Tuning};
use crate::zone::state::{PerCpu, Zone};

/// The fields of a zone that its lists do not determine.
///
/// ```
/// # use pageyard::{Bare, Platform, Yard, ZoneKind, Record};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
/// yard.snapshot(ZoneKind::Normal, |record| {
///     if let Record::Zone(zone) = record {
///         assert_eq!(zone.managed, 64 << 8);
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneRecord {
    /// Pages backed by memory.
    pub present: u64,
    /// Pages managed by the allocator.
    pub managed: u64,
    /// MIN, LOW, HIGH and PROMO, without the boost.
    pub watermarks: [u64; 4],
    /// The watermark boost.
    pub boost: u64,
    /// Bit 0 BOOSTED_WATERMARK, 1 RECLAIM_ACTIVE, 2 BELOW_HIGH.
    pub flags: u32,
    /// Pages in highatomic blocks.
    pub reserved_highatomic: u64,
    /// Number of isolated pageblocks.
    pub isolated_blocks: u64,
    /// The lowmem reserve for each highest zone.
    pub lowmem_reserve: [u64; ZONE_KINDS],
    /// The free counter without the per-CPU deltas.
    pub nr_free: i64,
    /// Limits of the pagesets (§5.4), as they are when not disabled.
    pub limits: Limits,
    /// Whether requests that prefer this zone start with NOFRAGMENT.
    pub nofragment: bool,
    /// Whether mobility grouping is disabled.
    pub grouping_disabled: bool,
}

/// One CPU's pageset, without its lists.
///
/// ```
/// # use pageyard::{Bare, Platform, Yard, ZoneKind, Record};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
/// yard.snapshot(ZoneKind::Normal, |record| {
///     if let Record::Cpu(cpu) = record {
///         assert_eq!(cpu.tuning.count, 0, "nothing is on its lists yet");
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuRecord {
    /// The CPU.
    pub cpu: CpuId,
    /// Its node.
    pub node: NodeId,
    /// The pageset's fields; `count` is the sum of its lists.
    pub tuning: Tuning,
    /// Ticks until an unused remote pageset expires.
    pub expire: u8,
    /// The CPU's delta of the free counter.
    pub diff: i32,
    /// Its delta of the counter of free CMA pages; 0 on the packed engine, which ignores it.
    pub cma_diff: i32,
    /// A delta is folded when it exceeds this.
    pub threshold: u32,
}

/// One piece of a zone's state.
///
/// A [snapshot](crate::Yard::snapshot) consists of, in this order:
///
/// - one `Zone`;
/// - the pageblocks with memory, ascending;
/// - the free lists: orders ascending, types ascending, each from head to tail;
/// - the allocated blocks, guards and bad blocks, ascending, each followed by its poisoned frames;
/// - for each CPU, one `Cpu` and its cached blocks: lists ascending, each from head to tail.
///
/// Under a policy with [`isolate_bit`](crate::policy::Rules::isolate_bit), an isolated pageblock has
/// two records: its own type, then `Isolate`.
///
/// Frames that no record names are holes or reserved. Frame numbers are absolute.
///
/// [`restore`](crate::Yard::restore) accepts the records after the zone's in any order, with four
/// constraints: the order within each list is kept, a pageblock precedes the blocks in it, a block
/// precedes its poisoned frames, and a CPU precedes the blocks it caches.
///
/// A block is cached under its list's type, or under its pageblock's type if that has no list of
/// its own. Counters are not part of the state: those of a restored zone start at 0. On the
/// [packed engine](crate::packed), blocks in depots are cached by CPU 0.
///
/// ```
/// # use pageyard::{Bare, Gfp, Order, Platform, Yard, ZoneKind, Record};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let mut found = false;
/// yard.snapshot(ZoneKind::Normal, |record| {
///     found |= matches!(record, Record::Allocated { pfn, .. } if pfn == page);
/// });
/// assert!(found);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// The zone itself. Always the first record.
    Zone(ZoneRecord),
    /// The pageblock that holds this frame has memory and this type.
    Block {
        /// The pageblock's first frame; for the zone's first pageblock, the zone's first frame.
        pfn: Pfn,
        /// Its type.
        migrate_type: MigrateType,
    },
    /// The next free block on the list of its order and type.
    Free {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// The list's type.
        migrate_type: MigrateType,
    },
    /// A block that a policy with guards keeps off the lists (§11.6).
    Guard {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// A block that a caller owns.
    Allocated {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// Whether the owner can move it.
        movable: bool,
    },
    /// A block that is permanently [out of use](crate::OutOfUse), because a page in it was bad
    /// (§11.2).
    Bad {
        /// Its first frame.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// A frame with faulty memory (§11.3). Part of an allocated or bad block, or out of use by
    /// itself.
    Poisoned {
        /// The frame.
        pfn: Pfn,
    },
    /// A CPU's pageset.
    Cpu(CpuRecord),
    /// The next block on one of a CPU's lists.
    Cached {
        /// The CPU.
        cpu: CpuId,
        /// Index of the list, out of 14 (§5.2).
        list: usize,
        /// The block's first frame; its order is the list's.
        pfn: Pfn,
    },
}

pub(crate) fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

impl<R: RawMutex> PerCpu<R> {
    /// Returns the record of a CPU with this tuning.
    pub(crate) fn record(&self, cpu: CpuId, tuning: Tuning) -> CpuRecord {
        CpuRecord {
            cpu,
            node: NodeId(self.node.load(Relaxed) as u16),
            tuning,
            expire: self.expire.load(Relaxed),
            diff: self.diff(),
            cma_diff: self.cma_diff(),
            threshold: self.threshold.load(Relaxed),
        }
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns a CPU's part of the zone and the order of one of its lists.
    pub(crate) fn list_of(
        &self,
        rules: &Rules,
        cpu: CpuId,
        list: usize,
    ) -> Result<(&PerCpu<R>, u8), &'static str> {
        ensure(list < LISTS, "there are 14 lists, numbered from 0")?;
        let slot = self.slot(cpu).ok_or("the layout has no such CPU")?;
        let order = list_order(list);
        ensure(is_cached_order(rules, order), "the policy has no list of this order")?;
        Ok((slot, order))
    }

    /// Returns the frames of a block, all of which are in the zone.
    pub(crate) fn frames_of_block(&self, pfn: Pfn, order: u8) -> Result<Range<u32>, &'static str> {
        let pages = 1u32 << order;
        ensure(pfn.0 & u64::from(pages - 1) == 0, "the block is not aligned to its size")?;
        let idx = self.index_of(pfn).ok_or("the block is outside the zone")?;
        ensure(
            self.index_of(Pfn(pfn.0 + u64::from(pages) - 1)).is_some(),
            "the block reaches outside the zone",
        )?;
        Ok(idx..idx + pages)
    }
}
