//! A zone: its map, free areas, watermarks and counters, and the lock that protects them (spec
//! §1.3).

use lock_api::{Mutex, RawMutex};

use crate::base::frame::Map;
use crate::base::gfp::AllocFlags;
use crate::base::near_mark::{NEAR_MARK, NearMark};
use crate::base::shared::{OwnLine, loads};
use crate::base::stats::{CpuCounters, ZoneCounters};
use crate::base::sync::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use crate::base::units::{
    CACHED_TYPES, CpuId, MAX_ORDER, MigrateType, NodeId, PAGEBLOCK_PAGES, Pfn, TYPES, ZoneId,
    ZoneKind, block_end, block_start,
};
use crate::base::watermark::{HIGH, LOW, MIN, Supply, Watermarks, boost_cap};
use crate::embedder::policy::{BelowHigh, Rules};
use crate::packed::Region;
use crate::pcp::pageset::Pageset;
use crate::pcp::tuning::{Limits, Pressure};
use crate::zone::area::FreeAreas;
use crate::zone::compaction_state::{Compaction, Daemon};
use crate::zone::defences_state::ZoneSafety;
use crate::zone::deferred_part::DeferredPart;
use crate::zone::free_queue::FreeQueue;
use crate::zone::reporting_state::Reporting;

/// In a link between a CPU's own pageblocks (`zone/owned.rs`): the list ends here.
pub(crate) const END: u32 = 1;
/// A claim boosted the watermarks: the next attempt that may wake background reclaim wakes it.
pub(crate) const BOOSTED_WATERMARK: u32 = 1;
/// Background reclaim is active.
pub(crate) const RECLAIM_ACTIVE: u32 = 2;
/// The last test of the high watermark failed.
pub(crate) const BELOW_HIGH: u32 = 4;
/// The flags of the zone's state.
pub(crate) const FLAGS: u32 = 7;
/// Shifted by a highest zone: for requests up to that zone, some CPU has a better first zone by now
/// than its `CpuZones` names.
pub(crate) const ZONELIST_STALE: u32 = 1 << 8;

/// The per-CPU part of a zone. The embedder provides the memory.
///
/// ```
/// use pageyard::PerCpu;
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// // Room for 4 CPUs of one zone, as part of a `Storage`.
/// let room: [PerCpu<Lock>; 4] = [const { PerCpu::new() }; 4];
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct PerCpu<R: RawMutex> {
    /// The per-CPU lists. Lock order: this lock, then the zone lock.
    pub(crate) pageset: Mutex<R, Pageset>,
    /// The CPU's part of the zone's free counter (§9.2). Zone lock.
    pub(crate) diff: AtomicU32,
    /// Its part of the counter of free CMA pages (exact engine). Zone lock.
    cma_diff: AtomicU32,
    /// Above this value, a part is folded into the zone's counter.
    pub(crate) threshold: AtomicU32,
    /// Above this value, the part of the CPU's cache domain is folded (packed engine). 0: it has none.
    pub(crate) domain_threshold: AtomicU32,
    /// Ticks until an unused remote pageset is drained (§5.15).
    pub(crate) expire: AtomicU8,
    pub(crate) node: AtomicU32,
    /// By type: the first pageblock that the CPU owns and of which a part is free. Zone lock.
    pub(crate) own_blocks: [AtomicU32; CACHED_TYPES],
    /// The CPU is online. The lists of an offline CPU are disabled and empty (§8.5).
    pub(crate) up: AtomicBool,
    pub(crate) counters: CpuCounters,
}

impl<R: RawMutex> PerCpu<R> {
    /// Returns a part that no yard uses yet.
    pub const fn new() -> Self {
        PerCpu {
            pageset: Mutex::new(Pageset::new()),
            diff: AtomicU32::new(0),
            cma_diff: AtomicU32::new(0),
            threshold: AtomicU32::new(0),
            domain_threshold: AtomicU32::new(0),
            expire: AtomicU8::new(0),
            node: AtomicU32::new(0),
            own_blocks: [const { AtomicU32::new(END) }; CACHED_TYPES],
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

    #[inline]
    pub(crate) fn cma_diff(&self) -> i32 {
        self.cma_diff.load(Relaxed) as i32
    }

    #[inline]
    pub(crate) fn set_cma_diff(&self, n: i32) {
        self.cma_diff.store(n as u32, Relaxed);
    }
}

impl<R: RawMutex> Default for PerCpu<R> {
    fn default() -> Self {
        PerCpu::new()
    }
}

/// A zone's reference copy of the limits, written under `limits_lock` and read without a lock.
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

/// One zone. The embedder provides the memory; [`Zone::new`] returns an empty zone.
///
/// ```
/// use pageyard::Zone;
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// // Room for one zone, as part of a `Storage`.
/// let room: [Zone<'_, Lock>; 1] = [const { Zone::new() }; 1];
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct Zone<'a, R: RawMutex> {
    // Fields that every request reads come first.
    pub(crate) map: Map<'a>,
    pub(crate) cpus: &'a [PerCpu<R>],
    /// The frame of index 0: the zone's start rounded down to the largest block.
    pub(crate) base: u64,
    pub(crate) start: Pfn,
    /// For the zone at this position in the yard's array: the index of the zone that starts at that
    /// rank, lowest start first.
    pub(crate) nth_by_start: u16,
    /// Pages from the first to the last frame, including holes.
    pub(crate) spanned: u64,
    pub(crate) flags: AtomicU32,
    pub(crate) kind: ZoneKind,
    /// Requests that prefer this zone start with NOFRAGMENT (§2.7).
    pub(crate) nofragment: AtomicBool,
    pub(crate) node: NodeId,
    pub(crate) watermarks: Watermarks,
    /// The zone's free counter, without the CPUs' parts. May be negative temporarily.
    pub(crate) nr_free: OwnLine<AtomicI64>,
    pub(crate) free_highatomic: AtomicU64,
    pub(crate) free_cma: AtomicI64,

    pub(crate) lock: Mutex<R, ()>,
    /// Frees that could not take the lock.
    pub(crate) queue: FreeQueue,
    /// The zone's memory on the packed engine; map and areas are empty then. Frames have the same
    /// indices in both.
    pub(crate) packed: Option<Region<'a, R>>,
    pub(crate) areas: FreeAreas,
    pub(crate) present: AtomicU64,
    pub(crate) managed: AtomicU64,
    pub(crate) reserved_highatomic: AtomicU64,
    pub(crate) isolated_blocks: AtomicU64,
    pub(crate) boost_factor: AtomicU64,
    /// Mobility grouping is disabled: every block is unmovable (§2.4).
    pub(crate) grouping_disabled: AtomicBool,
    /// The limits of the CPUs' pagesets while they are enabled (§5.4).
    pub(crate) limits: SharedLimits,
    /// Held while limits change.
    pub(crate) limits_lock: Mutex<R, ()>,
    /// Number of callers that have disabled the lists (§5.5). Changes under `limits_lock`.
    pub(crate) disabled: AtomicU32,
    /// The watermark below which the CPUs' parts are summed too (§9.3). May be outdated.
    pub(crate) drift_mark: AtomicU64,
    pub(crate) counters: ZoneCounters,
    /// State of the random number generator of shuffled lists; 0 if not shuffled (§1.11). Zone
    /// lock.
    pub(crate) shuffle: AtomicU64,
    /// A frame of the pageblock that was claimed last, under a policy that steers. Zone lock.
    pub(crate) steered_to: AtomicU32,
    pub(crate) failures: AtomicU64,
    /// Pages of contiguous ranges and of places that compaction moved blocks to. The kernel's events
    /// do not count them as allocated, but their frees (§9.1).
    pub(crate) placed_pages: AtomicU64,
    pub(crate) bypasses: AtomicU64,
    /// Blocks allocated here although another node was preferred, and the reverse (§9.1).
    pub(crate) numa_miss: AtomicU64,
    pub(crate) numa_foreign: AtomicU64,
    pub(crate) numa_interleave: AtomicU64,
    /// Whether NUMA events are counted (`numa_stat`).
    pub(crate) numa_counted: AtomicBool,
    pub(crate) compaction: Compaction,
    /// Background compaction of the node; used in the first of its zones.
    pub(crate) daemon: Daemon,
    pub(crate) report: Reporting,
    pub(crate) safety: ZoneSafety,
    /// The part of the zone that is initialised later (§8.2).
    pub(crate) deferred_part: DeferredPart,
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns a zone without memory.
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
            nr_free: OwnLine(AtomicI64::new(0)),
            free_highatomic: AtomicU64::new(0),
            free_cma: AtomicI64::new(0),
            lock: Mutex::new(()),
            queue: FreeQueue::new(),
            packed: None,
            areas: FreeAreas::new(),
            start: Pfn(0),
            nth_by_start: 0,
            spanned: 0,
            present: AtomicU64::new(0),
            managed: AtomicU64::new(0),
            reserved_highatomic: AtomicU64::new(0),
            isolated_blocks: AtomicU64::new(0),
            boost_factor: AtomicU64::new(0),
            grouping_disabled: AtomicBool::new(false),
            limits: SharedLimits::disabled(),
            limits_lock: Mutex::new(()),
            disabled: AtomicU32::new(0),
            drift_mark: AtomicU64::new(0),
            counters: ZoneCounters::new(),
            shuffle: AtomicU64::new(0),
            steered_to: AtomicU32::new(0),
            failures: AtomicU64::new(0),
            placed_pages: AtomicU64::new(0),
            bypasses: AtomicU64::new(0),
            numa_miss: AtomicU64::new(0),
            numa_foreign: AtomicU64::new(0),
            numa_interleave: AtomicU64::new(0),
            numa_counted: AtomicBool::new(true),
            compaction: Compaction::new(),
            daemon: Daemon::new(),
            report: Reporting::new(),
            safety: ZoneSafety::new(),
            deferred_part: DeferredPart::none(),
        }
    }
}

impl<R: RawMutex> Default for Zone<'_, R> {
    fn default() -> Self {
        Zone::new()
    }
}

impl<'a, R: RawMutex> Zone<'a, R> {
    /// Returns the zone's region on the packed engine. Without the feature `packed` there is none,
    /// and no code for it.
    #[inline(always)]
    pub(crate) fn region(&self) -> Option<&Region<'a, R>> {
        if cfg!(feature = "packed") { self.packed.as_ref() } else { None }
    }

    /// Returns whether the zone is on the packed engine.
    #[inline(always)]
    pub(crate) fn is_packed(&self) -> bool {
        self.region().is_some()
    }

    /// Returns the type of the pageblocks that serve movable requests. Where types are not kept apart, all
    /// are of one.
    pub(crate) fn movable_type(&self) -> MigrateType {
        match self.grouping_disabled.load(Relaxed) {
            true => MigrateType::Unmovable,
            false => MigrateType::Movable,
        }
    }

    /// Returns the index of a frame, or `None` for a frame outside the zone.
    #[inline]
    pub(crate) fn index_of(&self, pfn: Pfn) -> Option<u32> {
        let inside = pfn.0.wrapping_sub(self.start.0) < self.spanned;
        if inside { Some(pfn.0.wrapping_sub(self.base) as u32) } else { None }
    }

    /// Returns one past the zone's last frame.
    pub(crate) fn end(&self) -> Pfn {
        Pfn(self.start.0.wrapping_add(self.spanned))
    }

    #[inline]
    pub(crate) fn pfn(&self, idx: u32) -> Pfn {
        Pfn(self.base.wrapping_add(u64::from(idx)))
    }

    /// Returns the index of the zone's first frame: 0 if the zone starts at a multiple of the
    /// largest block.
    pub(crate) fn first_index(&self) -> u32 {
        self.start.0.wrapping_sub(self.base) as u32
    }

    /// Returns the first index of a frame's pageblock, or `None` if that crosses an edge of the zone.
    pub(crate) fn whole_block(&self, idx: u32) -> Option<u32> {
        let is_inside =
            block_start(idx) >= self.first_index() && self.pfn(block_end(idx)) <= self.end();
        is_inside.then_some(block_start(idx))
    }

    #[inline]
    pub(crate) fn slot(&self, cpu: CpuId) -> Option<&'a PerCpu<R>> {
        self.cpus.get(cpu.0 as usize)
    }

    /// Returns whether the zone has memory (§1.2).
    #[inline]
    pub(crate) fn is_populated(&self) -> bool {
        self.present.load(Relaxed) != 0
    }

    /// Returns whether the allocator manages any memory of the zone (§1.2).
    pub(crate) fn is_managed(&self) -> bool {
        self.managed.load(Relaxed) != 0
    }

    /// Takes pageblocks that are no longer reserved out of the highatomic reserve's size. Zone lock.
    pub(crate) fn shrink_reserve(&self, blocks: u64) {
        let reserved = self.reserved_highatomic.load(Relaxed);
        let left = reserved.saturating_sub(blocks * u64::from(PAGEBLOCK_PAGES));
        self.reserved_highatomic.store(left, Relaxed);
    }

    /// Returns the number of pageblocks that have memory, by type.
    pub(crate) fn pageblocks(&self) -> [u64; TYPES] {
        if let Some(region) = self.region() {
            return region.pageblocks();
        }
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

    /// Clears a flag. Returns whether it was set.
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
        let counter = if self.is_packed() { loads(&self.nr_free) } else { &self.nr_free };
        let (highatomic, cma) = match self.region() {
            Some(region) if region.blocks.has_set_apart() => region.blocks.free_in_set_apart(),
            _ => (self.free_highatomic.load(Relaxed), self.free_cma()),
        };
        Supply { free: counter.load(Relaxed).max(0) as u64, highatomic, cma }
    }

    /// Returns the counter of free CMA pages, without the CPUs' parts (exact engine).
    #[inline]
    fn free_cma(&self) -> u64 {
        self.free_cma.load(Relaxed).max(0) as u64
    }

    /// Returns the supply with the CPUs' parts of the counter (§3.7, *snapshot*).
    pub(crate) fn supply_exact(&self) -> Supply {
        let parts: i64 = self.cpus.iter().map(|c| i64::from(c.diff())).sum();
        let parts = parts.saturating_add(self.uncounted());
        let free = self.nr_free.load(Relaxed).saturating_add(parts).max(0) as u64;
        Supply { free, ..self.supply() }
    }

    /// Returns the pages that neither the free counter nor the CPUs' parts have counted: those of cache
    /// domains and those that moved without a CPU's part, less what was freed into isolated pageblocks
    /// since their isolation. 0 on the exact engine.
    pub(crate) fn uncounted(&self) -> i64 {
        let Some(region) = self.region() else { return 0 };
        let isolated = self.isolated_blocks.load(Relaxed) > 0;
        let freed = if isolated { region.freed_into_isolated() } else { 0 };
        region.loose_pages().saturating_add(region.depots.parts()).saturating_sub(freed)
    }

    /// Tests the watermark in the fast form, against any mark (§3.7).
    #[inline]
    pub(crate) fn watermark_fast(
        &self,
        order: u8,
        mark: u64,
        highest: ZoneKind,
        flags: AllocFlags,
    ) -> bool {
        self.watermarks
            .ok_fast(order, mark, highest, flags, self.supply(), || self.has_block(order, flags))
    }

    /// Returns whether the zone keeps its unboosted MIN mark without a block of this order.
    #[inline(always)]
    pub(crate) fn can_spare(&self, order: u8, flags: AllocFlags) -> bool {
        self.can_spare_for(order, ZoneKind::Dma, flags)
    }

    /// The same, with what the zone reserves against requests for zones up to `highest` (§3.3).
    #[inline(always)]
    pub(crate) fn can_spare_for(&self, order: u8, highest: ZoneKind, flags: AllocFlags) -> bool {
        let mark = self.watermarks.base(MIN).saturating_add(1 << order);
        self.watermarks.ok(0, mark, highest, flags, self.supply(), || true)
    }

    /// Clears BELOW_HIGH after pages were freed, if the zone is above its high watermark again.
    pub(crate) fn note_above_high(&self) {
        if self.has_flag(BELOW_HIGH) {
            let mark = self.watermarks.effective(HIGH);
            let none = AllocFlags::WMARK_MIN;
            if self.watermarks.ok(0, mark, ZoneKind::Movable, none, self.supply(), || true) {
                self.clear_flag(BELOW_HIGH);
            }
        }
    }

    /// Returns whether the zone has a free block of at least `order` that these flags may use
    /// (§3.7).
    pub(crate) fn has_block(&self, order: u8, flags: AllocFlags) -> bool {
        match self.region() {
            None => self.areas.has_block(order, flags),
            Some(region) => {
                let urgent = AllocFlags::HIGHATOMIC | AllocFlags::OOM;
                let all = !flags.contains(AllocFlags::NO_WAIT);
                let of = |t| region.blocks.has_run_set_apart(order, t, all);
                region.blocks.has_block(order, all)
                    || flags.contains(AllocFlags::CMA) && of(MigrateType::Cma)
                    || flags.intersects(urgent) && of(MigrateType::HighAtomic)
            }
        }
    }

    /// Returns the largest boost of the watermarks (§3.4), or `None` if they are never boosted.
    pub(crate) fn boost_cap(&self) -> Option<u64> {
        let factor = self.boost_factor.load(Relaxed);
        boost_cap(self.managed.load(Relaxed), self.watermarks.base(HIGH), factor)
    }

    /// Returns the number of free blocks by order.
    pub(crate) fn free_blocks(&self) -> [u64; MAX_ORDER as usize + 1] {
        match self.region() {
            None => core::array::from_fn(|o| self.areas.blocks(o as u8)),
            Some(region) => region.free_blocks(None),
        }
    }

    /// Returns the type of the pageblock that contains a frame.
    pub(crate) fn block_type(&self, idx: u32) -> MigrateType {
        match self.region() {
            None => self.map.block_type(idx),
            Some(region) => region.blocks.listed_type(idx / PAGEBLOCK_PAGES),
        }
    }

    /// Recomputes the cached watermark. Call it after every change of a mark, the boost, a reserve,
    /// the pages withheld from ordinary requests, or grouping. The caller must hold the zone lock,
    /// as for the change itself.
    #[inline(never)]
    pub(crate) fn refresh_cached_mark(&self, rules: &Rules) {
        let never = self.grouping_disabled.load(Relaxed);
        self.watermarks.refresh_cached_mark(first_mark(rules), self.most_withheld(), never);
        if self.is_packed() {
            self.near_mark().note_marks();
        }
    }

    /// Returns the supply with as many pages in pageblocks set apart as the cached watermark assumes: on
    /// the packed engine, which counts these only on demand, all that could be free.
    #[inline]
    pub(crate) fn most_withheld(&self) -> Supply {
        let (highatomic, cma) = match self.region() {
            Some(region) => region.blocks.pages_set_apart(),
            None => (self.free_highatomic.load(Relaxed), self.free_cma()),
        };
        Supply { free: self.nr_free.load(Relaxed).max(0) as u64, highatomic, cma }
    }

    /// Returns whether the zone is certainly above the mark that a request up to `highest` tests first.
    #[inline]
    pub(crate) fn is_far_above_mark(&self, highest: ZoneKind) -> bool {
        self.is_packed() && !self.has_flag(NEAR_MARK << highest as u32)
    }

    /// Returns what says whether requests must read the free counter.
    pub(crate) fn near_mark(&self) -> NearMark<'_> {
        NearMark {
            flags: &self.flags,
            counter: &self.nr_free,
            marks: self.watermarks.cached_marks(),
        }
    }

    pub(crate) fn id(&self) -> ZoneId {
        ZoneId { node: self.node, kind: self.kind }
    }
}

/// Returns the mark that a request tests first (§2.8 step 5, or §2.7 without it).
#[inline(always)]
pub(crate) const fn first_mark(rules: &Rules) -> usize {
    match rules.pcp.below_high {
        BelowHigh::Ignored => LOW,
        BelowHigh::TestedAlways | BelowHigh::TestedWhileClear => HIGH,
    }
}
