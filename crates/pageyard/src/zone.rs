//! A zone: its map, its free areas, its marks and counters, and the lock over them (spec §1.3).

use core::ops::Deref;

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::area::FreeAreas;
use crate::compact::{Compaction, Daemon};
use crate::config::Config;
use crate::deferred::Late;
use crate::frame::Map;
use crate::gfp::AllocFlags;
use crate::hooks::Observer;
use crate::hooks::Reclaim;
use crate::pcp::Pageset;
use crate::platform::Platform;
use crate::policy::{BelowHigh, Policy, Rules};
use crate::reporting::Reporting;
use crate::safety::ZoneSafety;
use crate::stats::{CpuCounters, ZoneCounters};
use crate::sync::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use crate::tuning::{Limits, Pressure};
use crate::units::{CpuId, MigrateType, NodeId, PAGEBLOCK_PAGES, Pfn, TYPES, ZoneId, ZoneKind};
use crate::watermark::{HIGH, LOW, Supply, Watermarks, boost_cap};

/// A claim boosted the watermarks; the next attempt that may wake background reclaim does so.
pub(crate) const BOOSTED_WATERMARK: u32 = 1;
/// Background reclaim is at work.
pub(crate) const RECLAIM_ACTIVE: u32 = 2;
/// The high watermark was last seen to fail.
pub(crate) const BELOW_HIGH: u32 = 4;
/// The flags that are the zone's state.
pub(crate) const FLAGS: u32 = 7;
/// Shifted by a highest zone: some CPU's requests up to there have a better zone to try first, by
/// now, than the one that its home names.
pub(crate) const OVERTAKEN: u32 = 1 << 8;

/// One CPU's part of one zone. Memory for them comes from the embedder.
#[derive(Debug)]
#[repr(align(128))]
pub struct CpuSlot<R: RawMutex> {
    /// The per-CPU lists. Order of locks: this one, then the zone's.
    pub(crate) pageset: Mutex<R, Pageset>,
    /// The CPU's part of the zone's free counter (§9.2). Zone lock.
    pub(crate) diff: AtomicU32,
    /// Above this, the part is folded into the counter.
    pub(crate) threshold: AtomicU32,
    /// Ticks until an unused remote pageset is drained (§5.15).
    pub(crate) expire: AtomicU8,
    pub(crate) node: AtomicU32,
    /// The CPU is up. Of one that is down the lists are disabled and empty (§8.5).
    pub(crate) up: AtomicBool,
    pub(crate) counters: CpuCounters,
}

impl<R: RawMutex> CpuSlot<R> {
    /// A slot that no yard uses yet.
    pub const fn new() -> Self {
        CpuSlot {
            pageset: Mutex::new(Pageset::new()),
            diff: AtomicU32::new(0),
            threshold: AtomicU32::new(0),
            expire: AtomicU8::new(0),
            node: AtomicU32::new(0),
            up: AtomicBool::new(true),
            counters: CpuCounters::new(),
        }
    }

    #[inline]
    pub(crate) fn diff(&self) -> i32 {
        self.diff.load(Relaxed) as i32
    }

    #[inline]
    pub(crate) fn set_diff(&self, n: i32) {
        self.diff.store(n as u32, Relaxed);
    }
}

impl<R: RawMutex> Default for CpuSlot<R> {
    fn default() -> Self {
        CpuSlot::new()
    }
}

/// A zone's reference copy of the limits: written under `limits_lock`, read by anybody.
#[derive(Debug)]
pub(crate) struct SharedLimits([AtomicI32; 3]);

impl SharedLimits {
    const fn disabled() -> Self {
        let Limits { batch, high_min, high_max } = Limits::DISABLED;
        SharedLimits([AtomicI32::new(batch), AtomicI32::new(high_min), AtomicI32::new(high_max)])
    }

    pub(crate) fn get(&self) -> Limits {
        let [batch, high_min, high_max] = self.0.each_ref().map(|n| n.load(Relaxed));
        Limits { batch, high_min, high_max }
    }

    pub(crate) fn set(&self, l: Limits) {
        for (n, v) in self.0.iter().zip([l.batch, l.high_min, l.high_max]) {
            n.store(v, Relaxed);
        }
    }
}

/// One zone. Memory for them comes from the embedder; [`Zone::new`] makes an empty one.
#[derive(Debug)]
#[repr(align(128))]
pub struct Zone<'a, R: RawMutex> {
    // What every request reads comes first.
    pub(crate) map: Map<'a>,
    pub(crate) cpus: &'a [CpuSlot<R>],
    /// The frame of index 0: the zone's start rounded down to the largest block.
    pub(crate) base: u64,
    pub(crate) start: Pfn,
    /// Of the zone at this position of the yard's: which zone starts in that place, lowest first.
    pub(crate) nth_by_start: u16,
    /// Pages from the first to the last, holes included.
    pub(crate) spanned: u64,
    pub(crate) flags: AtomicU32,
    pub(crate) kind: ZoneKind,
    /// Requests that prefer this zone start with NOFRAGMENT (§2.7).
    pub(crate) nofragment: AtomicBool,
    pub(crate) node: NodeId,
    pub(crate) watermarks: Watermarks,
    /// The zone's free counter, without the CPUs' parts. May be negative for a moment.
    pub(crate) nr_free: AtomicI64,
    pub(crate) free_highatomic: AtomicU64,
    pub(crate) free_cma: AtomicU64,

    pub(crate) lock: Mutex<R, ()>,
    pub(crate) areas: FreeAreas,
    pub(crate) present: AtomicU64,
    pub(crate) managed: AtomicU64,
    pub(crate) reserved_highatomic: AtomicU64,
    pub(crate) isolated_blocks: AtomicU64,
    pub(crate) boost_factor: AtomicU64,
    /// Mobility grouping is off: every block is unmovable (§2.4).
    pub(crate) ungrouped: AtomicBool,
    /// The limits that the CPUs' pagesets have, or have again once they are enabled (§5.4).
    pub(crate) limits: SharedLimits,
    /// Held while limits change.
    pub(crate) limits_lock: Mutex<R, ()>,
    /// By how many the lists are disabled (§5.5). Changes under `limits_lock`.
    pub(crate) disabled: AtomicU32,
    /// The stale or current mark below which counters are summed exactly (§9.3).
    pub(crate) drift_mark: AtomicU64,
    pub(crate) counters: ZoneCounters,
    /// State of the random numbers of shuffled lists; 0: not shuffled (§1.11). Zone lock.
    pub(crate) shuffle: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) bypasses: AtomicU64,
    /// Blocks handed out here though another node was preferred, and the other way round (§9.1).
    pub(crate) numa_miss: AtomicU64,
    pub(crate) numa_foreign: AtomicU64,
    pub(crate) numa_interleave: AtomicU64,
    /// NUMA events are counted (`numa_stat`).
    pub(crate) numa_counted: AtomicBool,
    pub(crate) compaction: Compaction,
    /// Background compaction of the node, in the first of its zones.
    pub(crate) daemon: Daemon,
    pub(crate) report: Reporting,
    pub(crate) safety: ZoneSafety,
    /// What is initialised later (§8.2).
    pub(crate) late: Late,
}

impl<R: RawMutex> Zone<'_, R> {
    /// A zone without memory.
    pub const fn new() -> Self {
        Zone {
            map: Map::EMPTY,
            cpus: &[],
            base: 0,
            flags: AtomicU32::new(0),
            kind: ZoneKind::Normal,
            nofragment: AtomicBool::new(false),
            node: NodeId(0),
            watermarks: Watermarks::new(),
            nr_free: AtomicI64::new(0),
            free_highatomic: AtomicU64::new(0),
            free_cma: AtomicU64::new(0),
            lock: Mutex::new(()),
            areas: FreeAreas::new(),
            start: Pfn(0),
            nth_by_start: 0,
            spanned: 0,
            present: AtomicU64::new(0),
            managed: AtomicU64::new(0),
            reserved_highatomic: AtomicU64::new(0),
            isolated_blocks: AtomicU64::new(0),
            boost_factor: AtomicU64::new(0),
            ungrouped: AtomicBool::new(false),
            limits: SharedLimits::disabled(),
            limits_lock: Mutex::new(()),
            disabled: AtomicU32::new(0),
            drift_mark: AtomicU64::new(0),
            counters: ZoneCounters::new(),
            shuffle: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            bypasses: AtomicU64::new(0),
            numa_miss: AtomicU64::new(0),
            numa_foreign: AtomicU64::new(0),
            numa_interleave: AtomicU64::new(0),
            numa_counted: AtomicBool::new(true),
            compaction: Compaction::new(),
            daemon: Daemon::new(),
            report: Reporting::new(),
            safety: ZoneSafety::new(),
            late: Late::none(),
        }
    }
}

impl<R: RawMutex> Default for Zone<'_, R> {
    fn default() -> Self {
        Zone::new()
    }
}

impl<'a, R: RawMutex> Zone<'a, R> {
    /// The index of a frame, or `None` for a frame outside the zone.
    #[inline]
    pub(crate) fn index_of(&self, pfn: Pfn) -> Option<u32> {
        let inside = pfn.0.wrapping_sub(self.start.0) < self.spanned;
        if inside { Some(pfn.0.wrapping_sub(self.base) as u32) } else { None }
    }

    #[inline]
    pub(crate) fn pfn(&self, idx: u32) -> Pfn {
        Pfn(self.base.wrapping_add(u64::from(idx)))
    }

    /// Index of the zone's first frame: 0 where the zone starts at a multiple of the largest block.
    pub(crate) fn first_index(&self) -> u32 {
        self.start.0.wrapping_sub(self.base) as u32
    }

    #[inline]
    pub(crate) fn slot(&self, cpu: CpuId) -> Option<&'a CpuSlot<R>> {
        self.cpus.get(cpu.0 as usize)
    }

    /// Whether there is memory in it (§1.2).
    #[inline]
    pub(crate) fn is_populated(&self) -> bool {
        self.present.load(Relaxed) != 0
    }

    /// Whether the allocator manages any of its memory (§1.2).
    pub(crate) fn is_managed(&self) -> bool {
        self.managed.load(Relaxed) != 0
    }

    /// Its pageblocks that have memory, by type.
    pub(crate) fn pageblocks(&self) -> [u64; TYPES] {
        let mut counts = [0; TYPES];
        let mut idx = 0;
        while idx < self.map.len() {
            if !self.map.block_is_absent(idx) {
                counts[self.map.block_type(idx) as usize] += 1;
            }
            idx += PAGEBLOCK_PAGES;
        }
        counts
    }

    #[inline]
    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags.load(Relaxed) & flag != 0
    }

    pub(crate) fn set_flag(&self, flag: u32) {
        self.flags.fetch_or(flag, AcqRel);
    }

    /// Clears a flag; whether it was set.
    pub(crate) fn clear_flag(&self, flag: u32) -> bool {
        self.flags.fetch_and(!flag, AcqRel) & flag != 0
    }

    #[inline]
    pub(crate) fn pressure(&self) -> Pressure {
        let flags = self.flags.load(Relaxed);
        Pressure {
            reclaim_active: flags & RECLAIM_ACTIVE != 0,
            below_high: flags & BELOW_HIGH != 0,
        }
    }

    #[inline]
    pub(crate) fn supply(&self) -> Supply {
        Supply {
            free: self.nr_free.load(Relaxed).max(0) as u64,
            highatomic: self.free_highatomic.load(Relaxed),
            cma: self.free_cma.load(Relaxed),
        }
    }

    /// With the CPUs' parts of the counter (§3.7, *snapshot*).
    pub(crate) fn supply_exact(&self) -> Supply {
        let parts: i64 = self.cpus.iter().map(|c| i64::from(c.diff())).sum();
        let free = self.nr_free.load(Relaxed).saturating_add(parts).max(0) as u64;
        Supply { free, ..self.supply() }
    }

    /// The fast form of the watermark test, against any mark (§3.7).
    #[inline]
    pub(crate) fn watermark_fast(
        &self,
        order: u8,
        mark: u64,
        highest: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        self.watermarks.ok_fast(order, mark, highest, flags, self.supply(), || {
            self.areas.has_block(order, flags)
        })
    }

    /// To be called after every change of a mark, the boost, a reserve, the pages withheld from
    /// ordinary requests, or of grouping, under the zone lock like the change itself.
    pub(crate) fn refresh_ample(&self, rules: &Rules) {
        let never = self.ungrouped.load(Relaxed);
        self.watermarks.refresh_ample(first_mark(rules), self.supply(), never);
    }

    /// The zone as one CPU uses it; `None` for a CPU that the yard was not told of.
    #[inline]
    pub(crate) fn at<'z, C: Config<Lock = R>>(
        &'z self,
        hooks: &'z C::Hooks,
        cpu: CpuId,
        policy: C::Policy,
    ) -> Option<At<'z, 'a, C>> {
        Some(At::new(self, hooks, cpu, self.slot(cpu)?, policy))
    }

    pub(crate) fn id(&self) -> ZoneId {
        ZoneId { node: self.node, kind: self.kind }
    }
}

/// The mark that a request tests first (§2.8 step 5, or without it §2.7).
#[inline(always)]
pub(crate) const fn first_mark(rules: &Rules) -> usize {
    match rules.pcp.below_high {
        BelowHigh::Ignored => LOW,
        BelowHigh::TestedAlways | BelowHigh::TestedWhileClear => HIGH,
    }
}

/// One CPU at one zone: what every request path works on.
pub(crate) struct At<'z, 'a, C: Config> {
    pub(crate) zone: &'z Zone<'a, C::Lock>,
    pub(crate) hooks: &'z C::Hooks,
    pub(crate) cpu: CpuId,
    pub(crate) slot: &'z CpuSlot<C::Lock>,
    policy: C::Policy,
}

impl<C: Config> Clone for At<'_, '_, C> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Config> Copy for At<'_, '_, C> {}

impl<'z, 'a, C: Config> At<'z, 'a, C> {
    /// `slot` must be the CPU's slot of the zone.
    #[inline(always)]
    pub(crate) fn new(
        zone: &'z Zone<'a, C::Lock>,
        hooks: &'z C::Hooks,
        cpu: CpuId,
        slot: &'z CpuSlot<C::Lock>,
        policy: C::Policy,
    ) -> Self {
        At { zone, hooks, cpu, slot, policy }
    }

    #[inline(always)]
    pub(crate) fn rules(&self) -> &Rules {
        self.policy.rules()
    }

    /// Takes the zone lock; this CPU's part of the counters changes.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, 'a, C> {
        let asked = if <C::Hooks as Observer>::MEASURE_LOCKS { self.hooks.now() } else { 0 };
        self.held(asked, self.zone.lock.lock())
    }

    /// Takes the zone lock where nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<Locked<'_, 'a, C>> {
        let asked = if <C::Hooks as Observer>::MEASURE_LOCKS { self.hooks.now() } else { 0 };
        Some(self.held(asked, self.zone.lock.try_lock()?))
    }

    #[inline]
    fn held<'l>(&'l self, asked: u64, guard: MutexGuard<'l, C::Lock, ()>) -> Locked<'l, 'a, C> {
        let counters = &self.zone.counters;
        counters.lock_holds.add(1);
        let mut since = 0;
        if <C::Hooks as Observer>::MEASURE_LOCKS {
            since = self.hooks.now();
            let waited = since.saturating_sub(asked);
            counters.wait_ns.add(waited);
            counters.waits.note(waited);
        }
        Locked { at: self, since, _guard: guard }
    }
}

/// A zone whose lock is held. Everything that changes free lists is a method of this.
pub(crate) struct Locked<'z, 'a, C: Config> {
    at: &'z At<'z, 'a, C>,
    since: u64,
    // Released after `drop` below has run.
    _guard: MutexGuard<'z, C::Lock, ()>,
}

impl<'z, 'a, C: Config> Deref for Locked<'z, 'a, C> {
    type Target = At<'z, 'a, C>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.at
    }
}

impl<C: Config> Drop for Locked<'_, '_, C> {
    #[inline]
    fn drop(&mut self) {
        if <C::Hooks as Observer>::MEASURE_LOCKS {
            let held = self.hooks.now().saturating_sub(self.since);
            self.zone.counters.hold_ns.add(held);
            self.zone.counters.holds.note(held);
        }
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Every change of what is free goes through here (§4.7), in exactly the steps that the spec
    /// names: they decide when the CPU's part is folded (§9.2), and so are observable.
    #[inline]
    pub(crate) fn account(&self, pages: i32, t: MigrateType) {
        if t == MigrateType::Isolate {
            return;
        }
        let x = self.slot.diff() + pages;
        if x.unsigned_abs() > self.slot.threshold.load(Relaxed) {
            self.fold(x);
        } else {
            self.slot.set_diff(x);
        }
        self.account_special(pages.into(), t);
    }

    /// Free pages of the types that are also counted apart.
    #[inline]
    pub(crate) fn account_special(&self, pages: i64, t: MigrateType) {
        let part = match t {
            MigrateType::HighAtomic => &self.zone.free_highatomic,
            MigrateType::Cma => &self.zone.free_cma,
            _ => return,
        };
        part.store(part.load(Relaxed).wrapping_add_signed(pages), Relaxed);
        self.zone.refresh_ample(self.rules());
    }

    /// Adds the CPU's part to the zone's counter.
    pub(crate) fn fold(&self, part: i32) {
        self.add_free(part.into());
        self.slot.set_diff(0);
    }

    /// Changes the zone's counter.
    #[inline]
    pub(crate) fn add_free(&self, pages: i64) {
        let free = self.zone.nr_free.load(Relaxed).wrapping_add(pages);
        self.zone.nr_free.store(free, Relaxed);
        if <C::Hooks as Reclaim>::REPORT_ORDER.is_some() {
            self.zone.report.saw(free);
        }
    }

    /// Boosts the watermarks after a claim on behalf of another type (§3.4).
    pub(crate) fn boost(&self, kswapd: bool) {
        let w = &self.zone.watermarks;
        let managed = self.zone.managed.load(Relaxed);
        let factor = self.zone.boost_factor.load(Relaxed);
        let Some(cap) = boost_cap(managed, w.base(HIGH), factor) else { return };
        let block = u64::from(PAGEBLOCK_PAGES);
        w.set_boost(cap.min(w.boost().saturating_add(block)));
        self.zone.refresh_ample(self.rules());
        self.zone.counters.boosts.add(1);
        if kswapd {
            self.zone.set_flag(BOOSTED_WATERMARK);
        }
    }
}
