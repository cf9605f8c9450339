//! A zone's complete state as a stream of [`Record`]s, and back. For conformance tests and
//! debugging.

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, Order, PAGEBLOCK_PAGES, Pfn, ZONE_KINDS, ZoneId,
};
use crate::embedder::config::Config;
use crate::embedder::policy::Rules;
use crate::packed::Region;
use crate::pcp::pageset::{LISTS, Pageset, is_cached_order, list_index, list_order, list_type};
use crate::pcp::tuning::{Limits, MAX_BATCH, MAX_PAGES, Tuning};
use crate::zone::area::End;
use crate::zone::defences_state::change;
use crate::zone::state::{FLAGS, Zone};

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
    /// The delta is folded when it exceeds this.
    pub threshold: u32,
}

/// One piece of a zone's state.
///
/// A [snapshot](Yard::snapshot) consists of, in this order:
///
/// - one `Zone`;
/// - the pageblocks with memory, ascending;
/// - the free lists: orders ascending, types ascending, each from head to tail;
/// - the allocated blocks, guards and bad blocks, ascending, each followed by its poisoned frames;
/// - for each CPU, one `Cpu` and its cached blocks: lists ascending, each from head to tail.
///
/// Frames that no record names are holes or reserved. Frame numbers are absolute.
///
/// [`restore`](Yard::restore) accepts the records after the zone's in any order, with four
/// constraints: the order within each list is kept, a pageblock precedes the blocks in it, a block
/// precedes its poisoned frames, and a CPU precedes the blocks it caches.
///
/// A block is cached under its list's type, or under its pageblock's type if that has no list of
/// its own. Counters are not part of the state: those of a restored zone start at 0.
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

/// A rejected snapshot. The zone is blank as before.
///
/// ```
/// # use pageyard::{Bare, Platform, Yard, ZoneKind};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
/// let refused = yard.restore(ZoneKind::Normal, []).unwrap_err();
/// assert!(refused.to_string().contains("has memory already"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RestoreError {
    /// The index of the record at fault, from 0.
    pub record: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {}: {}", self.record, self.what)
    }
}

impl core::error::Error for RestoreError {}

impl<'a, C: Config> Yard<'a, C> {
    /// Passes a zone's complete state to `each`, record by record, without any lock. Returns
    /// whether the zone exists.
    ///
    /// No other thread may be inside the allocator during the call, and `each` must not change the
    /// yard.
    pub fn snapshot(&self, zone: impl Into<ZoneId>, mut each: impl FnMut(Record)) -> bool {
        let Some(z) = self.zone(zone) else { return false };
        each(Record::Zone(z.record()));
        if let Some(region) = z.region() {
            z.snapshot_packed(region, &mut each);
            return true;
        }
        let mut idx = 0;
        while idx < z.map.len() {
            if !z.map.block_is_absent(idx) {
                let pfn = z.pfn(idx).max(z.start);
                each(Record::Block { pfn, migrate_type: z.map.block_type(idx) });
            }
            idx += PAGEBLOCK_PAGES;
        }
        for order in (0..=MAX_ORDER).filter_map(Order::new) {
            for migrate_type in MigrateType::ALL {
                for idx in z.areas.list(order.get(), migrate_type).iter(&z.map) {
                    each(Record::Free { pfn: z.pfn(idx), order, migrate_type });
                }
            }
        }
        for idx in 0..z.map.len() {
            let state = z.map.frame(idx).state();
            let (pfn, Some(order)) = (z.pfn(idx), Order::new(state.order())) else { continue };
            match state.kind() {
                Kind::Allocated => {
                    each(Record::Allocated { pfn, order, movable: state.is_movable() })
                }
                Kind::Guard => each(Record::Guard { pfn, order }),
                Kind::Bad => each(Record::Bad { pfn, order }),
                Kind::Poisoned => {}
                _ => continue,
            }
            for frame in (idx..).zip(z.map.run(idx, order.pages())).filter(|(_, f)| f.is_poisoned())
            {
                each(Record::Poisoned { pfn: z.pfn(frame.0) });
            }
        }
        for (i, slot) in z.cpus.iter().enumerate() {
            let cpu = CpuId(i as u32);
            let tuning = *slot.pageset.lock().tuning();
            each(Record::Cpu(CpuRecord {
                cpu,
                node: NodeId(slot.node.load(Relaxed) as u16),
                tuning,
                expire: slot.expire.load(Relaxed),
                diff: slot.diff(),
                threshold: slot.threshold.load(Relaxed),
            }));
            for list in 0..LISTS {
                let mut next = slot.pageset.lock().list(list).first();
                // Bounded, so that a list corrupted by a caller's mistake still ends.
                for _ in 0..z.map.len() {
                    let Some(idx) = next.filter(|&idx| z.map.get(idx.into()).is_some()) else {
                        break;
                    };
                    each(Record::Cached { cpu, list, pfn: z.pfn(idx) });
                    next = Some(z.map.frame(idx).next());
                }
            }
        }
        true
    }

    /// Gives a blank zone (see [`Yard::blank`]) the state described by a snapshot. Blocks that are
    /// neither free nor cached may be omitted; their frames are then reserved.
    ///
    /// Reads the records without any lock. Until the last one is read, the zone has no memory for
    /// requests. Like [`online`](Yard::online) this adds memory, and only one such call runs at a
    /// time: the iterator must not call either of them.
    ///
    /// Memory is not touched. With a policy that zeroes, fills or unmaps free memory, free blocks
    /// must already be as that policy leaves them.
    ///
    /// # Errors
    /// [`RestoreError`] names the record at fault; the zone is blank again. It is also blank if the
    /// iterator panics.
    pub fn restore(
        &self,
        zone: impl Into<ZoneId>,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(), RestoreError> {
        let refuse = |what| Err(RestoreError { record: 0, what });
        let Some(zone) = self.zone(zone) else { return refuse("there is no such zone") };
        let Some(_turn) = self.begin_hotplug() else {
            return refuse("memory comes or goes further up on this task's stack");
        };
        if zone.region().is_some() {
            return refuse("the packed engine restores no snapshots");
        }
        if zone.is_populated() {
            return refuse("the zone has memory already; restore into a blank yard");
        }
        if zone.disabled.load(Relaxed) > 0 {
            return refuse("the zone's per-CPU lists are disabled; enable them first");
        }
        let unfinished = Unfinished { zone };
        let mut at = 0;
        let read = zone.read_records(self.rules(), records, &mut at);
        let record = read.map_err(|what| RestoreError { record: at, what })?;
        zone.publish(self.rules(), &record);
        core::mem::forget(unfinished);
        // A blank yard's zonelists contain all nodes. They must be rebuilt only if hotplug has
        // changed them.
        if self.zonelist_changes.load(Relaxed) > 0 {
            self.rebuild_zonelists();
        }
        Ok(())
    }
}

/// A zone that is being restored. Makes it blank again if dropped early, also by a panic.
struct Unfinished<'z, 'a, R: RawMutex> {
    zone: &'z Zone<'a, R>,
}

impl<R: RawMutex> Drop for Unfinished<'_, '_, R> {
    fn drop(&mut self) {
        self.zone.make_blank();
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// The records of a zone on the packed engine after the first. Blocks in depots are given as
    /// those of CPU 0.
    fn snapshot_packed(&self, region: &Region<'_, R>, each: &mut impl FnMut(Record)) {
        let end = self.first_index().saturating_add(self.spanned as u32);
        let blocks = (0..end).step_by(PAGEBLOCK_PAGES as usize);
        for idx in blocks.filter(|&idx| !self.block_is_absent(idx)) {
            let pfn = self.pfn(idx).max(self.start);
            each(Record::Block { pfn, migrate_type: self.block_type(idx) });
        }
        let order_of = |order| Order::new(order).unwrap_or_default();
        region.for_each_free(|idx, order, migrate_type| {
            each(Record::Free { pfn: self.pfn(idx), order: order_of(order), migrate_type });
        });
        for idx in 0..end {
            let state = self.state(idx);
            if state.kind() == Kind::Allocated {
                let (pfn, order) = (self.pfn(idx), order_of(state.order()));
                each(Record::Allocated { pfn, order, movable: state.is_movable() });
            }
            if region.blocks.is_marked(idx) && state.kind() != Kind::Reserved {
                each(Record::Poisoned { pfn: self.pfn(idx) });
            }
        }
        let cached = |cpu, idx, order, t: MigrateType| {
            let list = list_index(order, t);
            Record::Cached { cpu, list, pfn: self.pfn(idx) }
        };
        for (cpu, _) in (0..).map(CpuId).zip(self.cpus) {
            region.for_each_kept(cpu.0, |idx, order, t| each(cached(cpu, idx, order, t)));
        }
        region.for_each_in_depots(|idx, order, t| each(cached(CpuId(0), idx, order, t)));
    }
}

fn ensure(holds: bool, what: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(what) }
}

impl<R: RawMutex> Zone<'_, R> {
    fn record(&self) -> ZoneRecord {
        ZoneRecord {
            present: self.present.load(Relaxed),
            managed: self.managed.load(Relaxed),
            watermarks: self.watermarks.marks(),
            boost: self.watermarks.boost(),
            flags: self.flags.load(Relaxed) & FLAGS,
            reserved_highatomic: self.reserved_highatomic.load(Relaxed),
            isolated_blocks: self.isolated_blocks.load(Relaxed),
            lowmem_reserve: self.watermarks.reserves(),
            nr_free: self.nr_free.load(Relaxed),
            limits: self.limits.get(),
            nofragment: self.nofragment.load(Relaxed),
            grouping_disabled: self.grouping_disabled.load(Relaxed),
        }
    }

    fn read_records(
        &self,
        rules: &Rules,
        records: impl IntoIterator<Item = Record>,
        at: &mut usize,
    ) -> Result<ZoneRecord, &'static str> {
        let mut zone = None;
        for (i, record) in records.into_iter().enumerate() {
            *at = i;
            ensure(
                (i == 0) == matches!(record, Record::Zone(_)),
                "the zone comes first, and only once",
            )?;
            // The order is CPU list before zone lock; no record needs both at once.
            let lock = self.lock.lock();
            match record {
                Record::Zone(z) => {
                    self.check_zone(&z)?;
                    zone = Some(z);
                }
                Record::Block { pfn, migrate_type } => {
                    let idx = self.index_of(pfn).ok_or("the frame is outside the zone")?;
                    ensure(self.map.block_is_absent(idx), "the pageblock appears twice")?;
                    self.map.set_block_type(idx, migrate_type);
                }
                Record::Free { pfn, order, migrate_type } => {
                    let idx = self.occupy(pfn, order.get())?;
                    let last = idx + order.pages() - 1;
                    ensure(
                        rules.carried_types
                            || [idx, last].iter().all(|&i| self.map.block_type(i) == migrate_type),
                        "the block is on another type's list than its pageblock's",
                    )?;
                    self.areas.insert(&self.map, idx, order.get(), migrate_type, End::Tail);
                    if migrate_type == MigrateType::HighAtomic {
                        self.free_highatomic.fetch_add(order.pages().into(), Relaxed);
                    }
                    if migrate_type == MigrateType::Cma {
                        self.free_cma.fetch_add(order.pages().into(), Relaxed);
                    }
                }
                Record::Allocated { pfn, order, movable } => {
                    let idx = self.occupy(pfn, order.get())?;
                    let t = self.map.block_type(idx);
                    let state = State::new(Kind::Allocated, order.get(), t).with_movable(movable);
                    self.map.frame(idx).set_state(state);
                }
                Record::Guard { pfn, order } => {
                    let guards = rules.safety.guard_min_order;
                    ensure(order.get() < guards, "the policy has no guards of this order")?;
                    let idx = self.occupy(pfn, order.get())?;
                    let t = self.map.block_type(idx);
                    self.map.frame(idx).set_state(State::new(Kind::Guard, order.get(), t));
                    change(&self.safety.guards, order.pages().into());
                }
                Record::Bad { pfn, order } => {
                    let idx = self.occupy(pfn, order.get())?;
                    let state = State::new(Kind::Bad, order.get(), self.map.block_type(idx));
                    self.map.frame(idx).set_state(state);
                    self.safety.bad.fetch_add(order.pages().into(), Relaxed);
                }
                Record::Poisoned { pfn } => self.read_poisoned(pfn)?,
                Record::Cpu(c) => {
                    drop(lock);
                    self.read_cpu(rules, &c)?;
                }
                Record::Cached { cpu, list, pfn } => {
                    ensure(list < LISTS, "there are 14 lists, numbered from 0")?;
                    let slot = self.slot(cpu).ok_or("the layout has no such CPU")?;
                    let order = list_order(list);
                    ensure(is_cached_order(rules, order), "the policy has no list of this order")?;
                    let idx = self.occupy(pfn, order)?;
                    let t = self.map.block_type(idx);
                    let t = if t.is_mergeable() { list_type(list) } else { t };
                    self.map.frame(idx).set_state(State::new(Kind::Cached, order, t));
                    drop(lock);
                    slot.pageset.lock().list(list).push_tail(&self.map, idx);
                }
            }
        }
        let zone = zone.ok_or("the zone has no memory")?;
        for slot in self.cpus {
            let pageset = slot.pageset.lock();
            let pages = |i| (pageset.list(i).iter(&self.map).count() as i32) << list_order(i);
            let cached: i32 = (0..LISTS).map(pages).sum();
            ensure(pageset.tuning().count == cached, "a CPU's count is not what its lists hold")?;
        }
        let blocks = (0..self.map.len()).filter(|&i| self.map.frame(i).state() != State::RESERVED);
        let mut pages = 0;
        for idx in blocks {
            ensure(!self.map.block_is_absent(idx), "a block in a pageblock that has no record")?;
            pages += 1;
        }
        ensure(pages <= zone.managed, "more pages in blocks than managed")?;
        Ok(zone)
    }

    fn check_zone(&self, z: &ZoneRecord) -> Result<(), &'static str> {
        ensure(z.present > 0 && z.present <= self.spanned, "present is not within the span")?;
        ensure(z.managed <= z.present, "more pages managed than present")?;
        ensure(z.watermarks.is_sorted() && z.watermarks[3] < 1 << 52, "watermarks do not ascend")?;
        ensure(z.boost < 1 << 52, "the boost is larger than any zone")?;
        ensure(z.lowmem_reserve.iter().all(|&r| r < 1 << 52), "a reserve larger than any zone")?;
        ensure(z.nr_free.unsigned_abs() < 1 << 52, "a counter larger than any zone")?;
        ensure(z.flags <= FLAGS, "only the lowest three flags have a meaning")?;
        check_limits(&z.limits)
    }

    /// Publishes the zone once everything it holds is in place. From here on, requests find it.
    fn publish(&self, rules: &Rules, z: &ZoneRecord) {
        {
            let _held = self.limits_lock.lock();
            self.limits.set(z.limits);
        }
        let _lock = self.lock.lock();
        self.watermarks.set_marks(z.watermarks);
        self.watermarks.set_boost(z.boost);
        self.watermarks.set_reserve(z.lowmem_reserve);
        self.flags.store(z.flags, Relaxed);
        self.reserved_highatomic.store(z.reserved_highatomic, Relaxed);
        self.isolated_blocks.store(z.isolated_blocks, Relaxed);
        self.nofragment.store(z.nofragment, Relaxed);
        self.grouping_disabled.store(z.grouping_disabled, Relaxed);
        self.nr_free.store(z.nr_free, Relaxed);
        self.refresh_cached_mark(rules);
        self.managed.store(z.managed, Relaxed);
        self.present.store(z.present, Relaxed);
    }

    fn read_cpu(&self, rules: &Rules, c: &CpuRecord) -> Result<(), &'static str> {
        let slot = self.slot(c.cpu).ok_or("the layout has no such CPU")?;
        let t = &c.tuning;
        // A CPU that comes online gets limits with the mark that it is online.
        let _held = self.limits_lock.lock();
        ensure(slot.node.load(Relaxed) == c.node.0.into(), "the layout has the CPU elsewhere")?;
        ensure(
            slot.up.load(Relaxed) || t.count == 0 && t.limits == Limits::DISABLED,
            "the CPU is down, and has no lists; bring it up first",
        )?;
        check_limits(&t.limits)?;
        let pages = 0..=MAX_PAGES;
        ensure(
            [t.count, t.high, t.free_count, t.count_min].iter().all(|n| pages.contains(n)),
            "a count of the pageset is negative or above 2^28",
        )?;
        ensure(t.alloc_factor <= 6 && t.free_factor <= 14, "a factor of the pageset is too large")?;
        ensure(t.flags < 4, "a pageset has two flags")?;
        ensure(c.threshold <= 1 << 16, "the threshold is above 2^16")?;
        ensure(c.diff.unsigned_abs() <= c.threshold, "the CPU's part exceeds its threshold")?;
        slot.pageset.lock().tune(&rules.pcp, |now| *now = *t);
        slot.expire.store(c.expire, Relaxed);
        slot.threshold.store(c.threshold, Relaxed);
        slot.set_diff(c.diff);
        Ok(())
    }

    /// Turns the frames of a block, so far reserved, into its tails.
    fn occupy(&self, pfn: Pfn, order: u8) -> Result<u32, &'static str> {
        let pages = 1u32 << order;
        ensure(pfn.0 & u64::from(pages - 1) == 0, "the block is not aligned to its size")?;
        let idx = self.index_of(pfn).ok_or("the block is outside the zone")?;
        ensure(
            self.index_of(Pfn(pfn.0 + u64::from(pages) - 1)).is_some(),
            "the block reaches outside the zone",
        )?;
        for i in idx..idx + pages {
            let frame = self.map.frame(i);
            ensure(frame.state() == State::RESERVED, "the block overlaps another one")?;
            ensure(!frame.is_poisoned(), "the block has a frame that is faulty")?;
            frame.set_state(State::TAIL);
        }
        Ok(idx)
    }

    /// Marks a frame of a block as poisoned, or takes a frame that is in no block out of use. Zone
    /// lock.
    fn read_poisoned(&self, pfn: Pfn) -> Result<(), &'static str> {
        let idx = self.index_of(pfn).ok_or("the frame is outside the zone")?;
        ensure(!self.map.frame(idx).is_poisoned(), "the frame is faulty already")?;
        match self.map.block_over(idx).map(|(_, state)| state.kind()) {
            Some(Kind::Allocated | Kind::Bad) => {}
            Some(_) => return Err("a faulty frame in a block that is neither allocated nor bad"),
            None => {
                self.occupy(pfn, 0)?;
                let state = State::new(Kind::Poisoned, 0, self.map.block_type(idx));
                self.map.frame(idx).set_state(state);
                change(&self.safety.poisoned, 1);
            }
        }
        self.map.poison(idx);
        Ok(())
    }

    /// Undoes what the records read so far have done. The zone's own fields have not changed yet.
    fn make_blank(&self) {
        for slot in self.cpus {
            *slot.pageset.lock() = Pageset::new();
            slot.expire.store(0, Relaxed);
            slot.threshold.store(0, Relaxed);
            slot.set_diff(0);
        }
        let _lock = self.lock.lock();
        // A frame that was faulty before stays so. It is in no block: `occupy` refused it.
        for frame in self.map.run(0, self.map.len()) {
            if frame.state() != State::RESERVED {
                frame.set_poisoned(false);
                frame.set_state(State::RESERVED);
            }
        }
        self.map.clear_blocks();
        self.areas.clear();
        self.safety.clear();
        self.free_highatomic.store(0, Relaxed);
        self.free_cma.store(0, Relaxed);
    }
}

fn check_limits(l: &Limits) -> Result<(), &'static str> {
    ensure((1..=MAX_BATCH).contains(&l.batch), "a batch is 1 to 2^14 pages")?;
    let pages = 0..=MAX_PAGES;
    ensure(
        pages.contains(&l.high_min) && pages.contains(&l.high_max),
        "high_min and high_max are 0 to 2^28 pages",
    )
}
