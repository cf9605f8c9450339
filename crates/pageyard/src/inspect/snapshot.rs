//! A zone's complete state as a stream of [`Record`]s, and back. For conformance tests and
//! debugging.

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::stats::MOST_THRESHOLD;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MAX_ORDER, MigrateType, Order, PAGEBLOCK_PAGES, Pfn, ZoneId};
use crate::embedder::config::Config;
use crate::embedder::policy::Rules;
use crate::inspect::record::{CpuRecord, Record, ZoneRecord, ensure};
use crate::inspect::snapshot_packed::Sums;
use crate::pcp::pageset::{LISTS, Pageset, list_order, list_type};
use crate::pcp::tuning::{Limits, MAX_BATCH, MAX_PAGES};
use crate::zone::area::End;
use crate::zone::defences_state::change;
use crate::zone::state::{FLAGS, Zone};

/// A rejected snapshot. The zone is blank as before.
///
/// ```
/// # use pageyard::{Bare, Platform, Yard, ZoneKind};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let mut yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
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
    /// Passes a zone's state to `each`, record by record, without any lock. Returns whether the zone
    /// exists. Records do not tell poisoned frames of sections that are offline, the type that an isolated
    /// pageblock had before, nor which blocks came from the last reserves.
    ///
    /// First frees what [`free_nowait`](Yard::free_nowait) queued. No other thread may be inside the
    /// allocator during the call, and `each` must not change the yard.
    pub fn snapshot(&self, zone: impl Into<ZoneId>, mut each: impl FnMut(Record)) -> bool {
        let Some(z) = self.zone(zone) else { return false };
        self.flush_queues();
        each(Record::Zone(z.record()));
        if let Some(region) = z.region() {
            z.snapshot_packed(region, &mut each);
            return true;
        }
        let mut idx = 0;
        while idx < z.map.len() {
            if !z.map.block_is_absent(idx) {
                let pfn = z.pfn(idx).max(z.start);
                let migrate_type = z.map.block_type(idx);
                if self.rules().isolate_bit && migrate_type == MigrateType::Isolate {
                    each(Record::Block { pfn, migrate_type: z.map.own_type(idx) });
                }
                each(Record::Block { pfn, migrate_type });
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
            let tuning = slot.pageset.lock().tuning;
            each(Record::Cpu(slot.record(cpu, tuning)));
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
    /// On the [packed engine](crate::packed), the free counter and the CPUs' parts must be what the
    /// records of free blocks add up to. Cached blocks that magazines and depots have no room for,
    /// or whose pageblock has a poisoned frame, become free.
    ///
    /// Takes the yard by `&mut`: no request, drain or tick may see a zone of which a part is read.
    ///
    /// ```compile_fail,E0596
    /// # use pageyard::{Bare, Yard, ZoneKind};
    /// # type Y<'a> = Yard<'a, Bare<spin::mutex::SpinMutex<()>, ()>>;
    /// fn restore_a_shared_yard(yard: &Y<'_>) {
    ///     let _ = yard.restore(ZoneKind::Normal, []);
    /// }
    /// ```
    ///
    /// Memory is not touched. With a policy that zeroes, fills or unmaps free memory, free blocks
    /// must already be as that policy leaves them.
    ///
    /// # Errors
    /// [`RestoreError`] names the record at fault; the zone is blank again. It is also blank if the
    /// iterator panics.
    pub fn restore(
        &mut self,
        zone: impl Into<ZoneId>,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<(), RestoreError> {
        let refuse = |what| Err(RestoreError { record: 0, what });
        let Some(zone) = self.zone(zone) else { return refuse("there is no such zone") };
        if zone.is_populated() {
            return refuse("the zone has memory already; restore into a blank yard");
        }
        if zone.disabled.load(Relaxed) > 0 {
            return refuse("the zone's per-CPU lists are disabled; enable them first");
        }
        let unfinished = Unfinished { zone };
        let mut at = 0;
        let read = zone.read_records(self.rules(), records, &mut at);
        let (record, sums) = read.map_err(|what| RestoreError { record: at, what })?;
        zone.publish(self.rules(), &record, &sums);
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
            nr_free: self.nr_free.load(Relaxed).saturating_add(self.uncounted()),
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
    ) -> Result<(ZoneRecord, Sums), &'static str> {
        let mut zone = None;
        let mut sums = Sums::default();
        for (i, record) in records.into_iter().enumerate() {
            *at = i;
            ensure(
                (i == 0) == matches!(record, Record::Zone(_)),
                "the zone comes first, and only once",
            )?;
            match (record, self.region()) {
                (Record::Zone(z), _) => {
                    self.check_zone(&z)?;
                    zone = Some(z);
                }
                (Record::Cpu(c), _) => {
                    self.read_cpu(rules, &c)?;
                    sums.parts += i64::from(c.diff);
                }
                (_, None) => self.read_frames(rules, record)?,
                (_, Some(region)) => self.read_packed(rules, region, record, &mut sums)?,
            }
        }
        let zone = zone.ok_or("the zone has no memory")?;
        match self.region() {
            None => self.check_blocks(&zone)?,
            Some(_) => self.check_packed(&zone, &sums)?,
        }
        Ok((zone, sums))
    }

    /// Reads a record of a pageblock, a block or a frame.
    fn read_frames(&self, rules: &Rules, record: Record) -> Result<(), &'static str> {
        // The order is CPU list before zone lock; no record needs both at once.
        let lock = self.lock.lock();
        match record {
            Record::Zone(_) | Record::Cpu(_) => {}
            Record::Block { pfn, migrate_type } => {
                let idx = self.index_of(pfn).ok_or("the frame is outside the zone")?;
                let is_isolated = || self.map.block_type(idx) == MigrateType::Isolate;
                let isolates = migrate_type == MigrateType::Isolate && rules.isolate_bit;
                ensure(
                    self.map.block_is_absent(idx) || isolates && !is_isolated(),
                    "the pageblock appears twice",
                )?;
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
            Record::Cached { cpu, list, pfn } => {
                let (slot, order) = self.list_of(rules, cpu, list)?;
                let idx = self.occupy(pfn, order)?;
                let t = self.map.block_type(idx);
                let t = if t.is_mergeable() { list_type(list) } else { t };
                self.map.frame(idx).set_state(State::new(Kind::Cached, order, t));
                drop(lock);
                slot.pageset.lock().list(list).push_tail(&self.map, idx);
            }
        }
        Ok(())
    }

    /// Checks that the blocks add up to what the records of the zone and its CPUs say.
    fn check_blocks(&self, zone: &ZoneRecord) -> Result<(), &'static str> {
        for slot in self.cpus {
            let pageset = slot.pageset.lock();
            let pages = |i| (pageset.list(i).iter(&self.map).count() as i32) << list_order(i);
            let cached: i32 = (0..LISTS).map(pages).sum();
            ensure(pageset.tuning.count == cached, "a CPU's count is not what its lists hold")?;
        }
        let blocks = (0..self.map.len()).filter(|&i| self.map.frame(i).state() != State::RESERVED);
        let mut pages = 0;
        for idx in blocks {
            ensure(!self.map.block_is_absent(idx), "a block in a pageblock that has no record")?;
            pages += 1;
        }
        ensure(pages <= zone.managed, "more pages in blocks than managed")
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
    fn publish(&self, rules: &Rules, z: &ZoneRecord, sums: &Sums) {
        {
            let _held = self.limits_lock.lock();
            self.limits.set(z.limits);
            self.enable_restored();
        }
        let _lock = self.lock.lock();
        self.watermarks.set_marks(z.watermarks);
        self.watermarks.set_boost(z.boost);
        self.watermarks.set_reserve(z.lowmem_reserve);
        self.reserved_highatomic.store(z.reserved_highatomic, Relaxed);
        self.isolated_blocks.store(z.isolated_blocks, Relaxed);
        self.nofragment.store(z.nofragment, Relaxed);
        self.grouping_disabled.store(z.grouping_disabled, Relaxed);
        match self.region() {
            None => self.nr_free.store(z.nr_free, Relaxed),
            Some(region) => self.publish_packed(region, sums),
        }
        // After the counter, whose changes update the flags.
        self.flags.store(z.flags, Relaxed);
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
        // Where the threshold fell, a part stays as it is until it changes.
        let most = c.threshold.max(MOST_THRESHOLD);
        let fits = [c.diff, c.cma_diff].iter().all(|part| part.unsigned_abs() <= most);
        ensure(fits, "the CPU's part exceeds any threshold")?;
        slot.pageset.lock().tune(&rules.pcp, |now| *now = *t);
        slot.expire.store(c.expire, Relaxed);
        slot.threshold.store(c.threshold, Relaxed);
        match self.region() {
            None => {
                slot.set_diff(c.diff);
                slot.set_cma_diff(c.cma_diff);
                self.free_cma.fetch_sub(c.cma_diff.into(), Relaxed);
            }
            Some(region) => slot.restore_diff(region, c.cpu, c.diff),
        }
        Ok(())
    }

    /// Turns the frames of a block, so far reserved, into its tails.
    fn occupy(&self, pfn: Pfn, order: u8) -> Result<u32, &'static str> {
        let frames = self.frames_of_block(pfn, order)?;
        for i in frames.clone() {
            let frame = self.map.frame(i);
            ensure(frame.state() == State::RESERVED, "the block overlaps another one")?;
            ensure(!frame.is_poisoned(), "the block has a frame that is faulty")?;
            frame.set_state(State::TAIL);
        }
        Ok(frames.start)
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
            slot.set_cma_diff(0);
        }
        if let Some(region) = self.region() {
            return self.make_blank_packed(region);
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
