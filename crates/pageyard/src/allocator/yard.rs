//! The allocator's main type and its queries.

use core::fmt;

use lock_api::{Mutex, RawMutex};

use crate::allocator::knobs::Knobs;
use crate::allocator::start::Deferred;
use crate::allocator::vm_events::EventCounters;
use crate::base::busy::BusyFlag;
use crate::base::node_mask::NodeMask;
use crate::base::reclaimers::Reclaimers;
use crate::base::stats::{
    BlockCounts, BlockSupply, CpuStats, DrainReason, NumaStats, ZoneStats, ZoneTotals,
};
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, Order, PAGEBLOCK_ORDER, Pfn, TYPES, ZONE_KINDS, ZoneId,
    ZoneKind,
};
use crate::base::watermark::{LOW, Supply};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Engine, Policy, Rules};
use crate::packed::CpuCounts;
use crate::pcp::tuning::Tuning;
use crate::zone::at::At;
use crate::zone::node::{CpuZones, Node};
use crate::zone::state::{BELOW_HIGH, BOOSTED_WATERMARK, PerCpu, RECLAIM_ACTIVE, Zone};
use crate::zone::zonelist::Zonelist;

/// A page allocator over the zones of all nodes.
///
/// `C` names its lock, hooks and policy: [`Bare`](crate::Bare), [`Hooked`](crate::Hooked) or the
/// embedder's own [`Config`]. All methods take `&self`; any number of CPUs may call them
/// concurrently. The maps are borrowed from the embedder for `'a` (see [`Yard::new`]).
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let order = Order::for_bytes(10_000).unwrap();
/// let block = yard.alloc(order, Gfp::KERNEL)?;
/// assert!(yard.free(block, order).is_ok());
/// # Ok::<(), AllocError>(())
/// ```
pub struct Yard<'a, C: Config> {
    /// Ordered by node, then from the highest kind down.
    pub(crate) zones: &'a [Zone<'a, C::Lock>],
    /// Indexed by node number.
    pub(crate) nodes: &'a [Node<'a, C::Lock>],
    /// Indexed by CPU number.
    pub(crate) cpu_zones: &'a [CpuZones<'a, C::Lock>],
    pub(crate) hooks: C::Hooks,
    pub(crate) cpus: u32,
    pub(crate) knobs: Mutex<C::Lock, Knobs>,
    /// Held while a setting is changed and its consequences are applied. Separate from `knobs`, so
    /// that settings stay readable meanwhile.
    pub(crate) settings: Mutex<C::Lock, ()>,
    /// Held while memory is added or removed (§8.4).
    pub(crate) hotplug: BusyFlag,
    /// The task that holds `hotplug`, inverted; 0: none.
    pub(crate) hotplug_task: AtomicU64,
    /// Held while all CPUs are drained (§5.16).
    pub(crate) draining: Mutex<C::Lock, ()>,
    /// Held while the out-of-memory hook may run (§2.10).
    pub(crate) oom: BusyFlag,
    /// Tasks inside a hook that frees, counts or moves memory.
    pub(crate) reclaimers: Reclaimers,
    /// Time of the last failure report; 0: never.
    pub(crate) warned: AtomicU64,
    /// Incremented before and after each rewrite of the zonelists: odd during a rewrite.
    pub(crate) zonelist_changes: AtomicU64,
    pub(crate) events: EventCounters,
    /// State of deferred initialization (§8.2); `None` if none was requested.
    pub(crate) deferred: Option<Deferred<'a>>,
    pub(crate) policy: C::Policy,
}

impl<C: Config> fmt::Debug for Yard<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yard")
            .field("nodes", &self.nodes.len())
            .field("zones", &self.zones.len())
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}

/// A zone's size and state at one moment, in base pages.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let info = yard.zone_info(ZoneKind::Normal).unwrap();
/// let [min, low, high, _] = info.watermarks;
/// assert!(min < low && low < high && high < info.free);
/// assert_eq!(info.managed, (64 << 20) / PAGE_SIZE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// The zone's kind.
    pub kind: ZoneKind,
    /// The zone's node.
    pub node: NodeId,
    /// Its first frame.
    pub start: Pfn,
    /// Pages from the first frame to the last, holes included.
    pub spanned: u64,
    /// Pages that are memory.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// The free counter without the per-CPU parts, clamped at 0 (§9.2). Watermark tests use it. It
    /// lags behind `free_exact` until each CPU's part is folded, by a [tick](Yard::tick) or when it
    /// exceeds its threshold; a drain does not fold.
    pub free: u64,
    /// The free counter including the per-CPU parts, clamped at 0. Exact while nothing else runs: a part
    /// that is folded meanwhile may count twice or not at all.
    pub free_exact: u64,
    /// Pages on per-CPU lists.
    pub cached: u64,
    /// MIN, LOW, HIGH and PROMO without the boost (§3.2).
    pub watermarks: [u64; 4],
    /// The current boost of the watermarks (§3.4).
    pub boost: u64,
    /// Pages withheld from requests that could use higher zones, by their highest zone (§3.5).
    pub lowmem_reserve: [u64; ZONE_KINDS],
    /// Pages in blocks reserved for high-order atomic requests (§3.8).
    pub reserved_highatomic: u64,
    /// Free pages on the lists of those blocks.
    pub free_highatomic: u64,
    /// The zone was below the high watermark when last tested.
    pub below_high: bool,
    /// Background reclaim is active.
    pub reclaim_active: bool,
    /// A claim boosted the watermarks and background reclaim has not been woken for it yet.
    pub boosted: bool,
    /// Mobility grouping is disabled: every block counts as unmovable (§2.4).
    pub grouping_disabled: bool,
}

impl ZoneInfo {
    /// Returns the managed pages that are neither free nor on a per-CPU list: those that callers own
    /// and those [out of use](crate::OutOfUse) or isolated. While no thread is inside the allocator
    /// and nothing is out of use or isolated, this is
    /// [`alloc_pages - free_pages`](crate::ZoneTotals::alloc_pages): a leak shows as pages in use
    /// that no owner knows.
    ///
    /// ```
    /// # use pageyard::*;
    /// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
    /// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
    /// let block = yard.alloc(Order::HUGE, Gfp::KERNEL)?;
    /// assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().in_use(), 512);
    /// yard.free(block, Order::HUGE).unwrap();
    /// assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().in_use(), 0);
    /// # Ok::<(), AllocError>(())
    /// ```
    pub const fn in_use(&self) -> u64 {
        self.managed.saturating_sub(self.free_exact).saturating_sub(self.cached)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    #[inline(always)]
    pub(crate) fn rules(&self) -> &Rules {
        self.policy.rules()
    }

    /// Returns whether the rules ask for the packed engine: at compile time, if the policy is known
    /// then.
    #[inline(always)]
    pub(crate) fn is_packed(&self) -> bool {
        let never = const { matches!(<C::Policy as Policy>::ENGINE, Some(Engine::Exact)) };
        !never && self.rules().is_packed()
    }

    /// Returns the allocator's policy.
    pub const fn policy(&self) -> C::Policy {
        self.policy
    }

    /// A zone as seen by one CPU; `None` for a CPU that the layout does not name.
    #[inline]
    pub(crate) fn at<'z>(
        &'z self,
        zone: &'z Zone<'a, C::Lock>,
        cpu: CpuId,
    ) -> Option<At<'z, 'a, C>> {
        zone.at(&self.hooks, cpu, self.policy)
    }

    /// A zone as seen by the CPU that executes the caller, or by the first one if the platform names a CPU
    /// that the layout does not have.
    pub(crate) fn at_any<'z>(&'z self, zone: &'z Zone<'a, C::Lock>) -> Option<At<'z, 'a, C>> {
        let at = self.at(zone, self.hooks.cpu());
        at.or_else(|| self.at(zone, CpuId(0)))
    }

    /// Returns the hooks.
    pub fn hooks(&self) -> &C::Hooks {
        &self.hooks
    }

    /// Returns the task of the caller (see [`Reclaim::task`]), or the CPU number if tasks are
    /// unknown.
    pub(crate) fn task(&self) -> u64 {
        self.hooks.task().unwrap_or_else(|| self.hooks.cpu().0.into())
    }

    /// Returns the hooks for modification, before the allocator [has memory](Yard::init).
    pub fn hooks_mut(&mut self) -> &mut C::Hooks {
        &mut self.hooks
    }

    /// Sets the policy before the allocator [is initialized](Yard::init), for a policy that is a value.
    /// Returns whether it did: with other rules, an allocator in use would give pages twice.
    ///
    /// ```
    /// use pageyard::policy::{Linux61, Linux612, Rules, StaticPolicy};
    /// use pageyard::*;
    /// # type Lock = spin::mutex::SpinMutex<()>;
    ///
    /// let mut yard: Yard<'_, Hooked<Lock, (), &Rules>> = Yard::with_policy((), &Linux612::RULES);
    /// assert!(yard.set_policy(&Linux61::RULES));
    /// ```
    pub fn set_policy(&mut self, policy: C::Policy) -> bool {
        let is_new = self.zones.is_empty();
        if is_new {
            self.policy = policy;
        }
        is_new
    }

    /// Returns the number of CPUs that the layout names.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Returns the number of zones.
    pub fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Iterates over the zones: by node, within a node from the highest kind down.
    pub fn zone_ids(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.zones.iter().map(Zone::id)
    }

    /// Returns the number of nodes, including those without memory.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the node of a CPU; `None` for a CPU that the layout does not name.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        Some(self.cpu_zones.get(cpu.0 as usize)?.node)
    }

    /// Returns the distance between two nodes; `None` if either node does not exist.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        self.node(to)?;
        Some(self.node(from)?.distance(to))
    }

    /// Iterates over the zones that requests from a node may use, up to a kind, in the order in
    /// which requests try them (§2.5). Empty if the node does not exist.
    pub fn zonelist(&self, from: NodeId, highest: ZoneKind) -> impl Iterator<Item = ZoneId> {
        Zonelist::new(self.nodes, from, highest, NodeMask::ALL).map(Zone::id)
    }

    pub(crate) fn zone(&self, id: impl Into<ZoneId>) -> Option<&'a Zone<'a, C::Lock>> {
        let id = id.into();
        self.node(id.node)?.zones.iter().find(|z| z.kind == id.kind)
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&'a Node<'a, C::Lock>> {
        self.nodes.get(usize::from(id.0))
    }

    /// Returns the zone that contains a frame and the frame's index in it.
    #[inline]
    pub(crate) fn locate(&self, pfn: Pfn) -> Option<(&'a Zone<'a, C::Lock>, u32)> {
        // Binary search for the last zone that starts at or below the frame.
        let (mut low, mut high) = (0, self.zones.len());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let zone = self.zones.get(usize::from(self.zones.get(middle)?.nth_by_start))?;
            if zone.start <= pfn {
                low = middle;
            } else {
                high = middle;
            }
        }
        let zone = self.zones.get(usize::from(self.zones.get(low)?.nth_by_start))?;
        Some((zone, zone.index_of(pfn)?))
    }

    /// Returns the zone that contains a frame; `None` outside the zones.
    pub fn zone_of(&self, pfn: Pfn) -> Option<ZoneId> {
        Some(self.locate(pfn)?.0.id())
    }

    /// Returns the type of the pageblock that contains a frame; `None` outside the zones.
    pub fn block_type(&self, pfn: Pfn) -> Option<MigrateType> {
        let (zone, idx) = self.locate(pfn)?;
        Some(zone.block_type(idx))
    }

    /// Returns a zone's size and state; `None` if the zone does not exist.
    // Inlined, so that the caller's stack holds only the figures that it uses. Not in debug builds, as
    // `alloc_from`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub fn zone_info(&self, zone: impl Into<ZoneId>) -> Option<ZoneInfo> {
        let z = self.zone(zone)?;
        let counter = z.nr_free.load(Relaxed);
        let cached: i64 = match z.region() {
            None => z.cpus.iter().map(|c| i64::from(c.pageset.lock().tuning.count)).sum(),
            Some(region) => region.kept_pages() as i64,
        };
        Some(ZoneInfo {
            kind: z.kind,
            node: z.node,
            start: z.start,
            spanned: z.spanned,
            present: z.present.load(Relaxed),
            managed: z.managed.load(Relaxed),
            free: counter.max(0) as u64,
            free_exact: z.supply_exact().free,
            cached: cached.max(0) as u64,
            watermarks: z.watermarks.marks(),
            boost: z.watermarks.boost(),
            lowmem_reserve: z.watermarks.reserves(),
            reserved_highatomic: z.reserved_highatomic.load(Relaxed),
            free_highatomic: z.supply().highatomic,
            below_high: z.has_flag(BELOW_HIGH),
            reclaim_active: z.has_flag(RECLAIM_ACTIVE),
            boosted: z.has_flag(BOOSTED_WATERMARK),
            grouping_disabled: z.grouping_disabled.load(Relaxed),
        })
    }

    /// Returns whether a zone has memory (§1.2); `false` if the zone does not exist. Takes no lock.
    pub fn is_populated(&self, zone: impl Into<ZoneId>) -> bool {
        self.zone(zone).is_some_and(Zone::is_populated)
    }

    /// Returns a zone's free pages without the per-CPU parts of the counter; `None` if the zone
    /// does not exist. Takes no lock, unlike [`zone_info`](Yard::zone_info).
    pub fn supply(&self, zone: impl Into<ZoneId>) -> Option<Supply> {
        Some(self.zone(zone)?.supply())
    }

    /// Returns by how many pages a zone's free counter, without the per-CPU parts, exceeds the
    /// boosted low watermark (§3.2). Negative below the watermark; `None` if the zone does not
    /// exist. Takes no lock, unlike [`zone_info`](Yard::zone_info).
    pub fn above_low(&self, zone: impl Into<ZoneId>) -> Option<i64> {
        let z = self.zone(zone)?;
        let mark = i64::try_from(z.watermarks.effective(LOW)).unwrap_or(i64::MAX);
        Some(z.nr_free.load(Relaxed).saturating_sub(mark))
    }

    /// Returns the free blocks of a zone by order, all types together (buddyinfo); `None` if the
    /// zone does not exist.
    pub fn free_blocks(&self, zone: impl Into<ZoneId>) -> Option<[u64; MAX_ORDER as usize + 1]> {
        Some(self.zone(zone)?.free_blocks())
    }

    /// Returns the free blocks of a zone by order and list type (pagetypeinfo); `None` if the zone
    /// does not exist. Counts each list block by block under the zone lock, so it is not for hot
    /// paths.
    pub fn free_blocks_by_type(&self, zone: impl Into<ZoneId>) -> Option<BlockCounts> {
        let z = self.zone(zone)?;
        let mut counts = BlockCounts::default();
        if let Some(region) = z.region() {
            for t in MigrateType::ALL {
                let blocks = region.free_blocks(Some(t));
                for (row, n) in counts.0.iter_mut().zip(blocks) {
                    row[t as usize % TYPES] = n;
                }
            }
            return Some(counts);
        }
        for (order, row) in counts.0.iter_mut().enumerate() {
            for (t, n) in MigrateType::ALL.into_iter().zip(row) {
                *n = z.count_free_list(order as u8, t, usize::MAX);
            }
        }
        Some(counts)
    }

    /// Returns the length of one free list of a zone, at most `limit`; `None` if the zone does not
    /// exist. Counts block by block under the zone lock.
    pub fn count_free_list(
        &self,
        zone: impl Into<ZoneId>,
        order: Order,
        t: MigrateType,
        limit: usize,
    ) -> Option<u64> {
        let zone = self.zone(zone)?;
        Some(match zone.region() {
            None => zone.count_free_list(order.get(), t, limit),
            Some(region) => {
                let blocks = region.free_blocks(Some(t));
                let n = blocks.get(usize::from(order.get())).copied().unwrap_or(0);
                n.min(limit as u64)
            }
        })
    }

    /// Returns a zone's free blocks by order, and the types of the lists that have any, at one
    /// moment; `None` if the zone does not exist. Takes the zone lock.
    pub fn block_supply(
        &self,
        zone: impl Into<ZoneId>,
    ) -> Option<[BlockSupply; MAX_ORDER as usize + 1]> {
        let z = self.zone(zone)?;
        if let Some(region) = z.region() {
            let types = MigrateType::ALL.map(|t| region.free_blocks(Some(t)));
            return Some(core::array::from_fn(|order| {
                let of = |blocks: &[u64; MAX_ORDER as usize + 1]| blocks[order % blocks.len()];
                BlockSupply {
                    blocks: types.iter().map(of).sum(),
                    types: types.each_ref().map(|blocks| of(blocks) > 0),
                }
            }));
        }
        let _lock = z.lock.lock();
        Some(core::array::from_fn(|order| {
            let order = order as u8;
            let types = MigrateType::ALL.map(|t| !z.areas.list(order, t).is_empty());
            BlockSupply { blocks: z.areas.blocks(order), types }
        }))
    }

    /// Returns the pageblocks of a zone by type (pagetypeinfo); `None` if the zone does not exist.
    pub fn pageblocks(&self, zone: impl Into<ZoneId>) -> Option<[u64; TYPES]> {
        Some(self.zone(zone)?.pageblocks())
    }

    /// Returns a zone's unusable free space index (§9.6) for requests of an order, in thousandths:
    /// 0 if all free memory could serve them, 1000 if none could. `None` if the zone does not
    /// exist.
    pub fn unusable_index(&self, zone: impl Into<ZoneId>, order: Order) -> Option<u32> {
        Some(unusable_index(&self.free_blocks(zone)?, order))
    }

    /// Returns the tuning of one CPU's lists in a zone (§5.1); `None` if the zone or CPU does not
    /// exist. On the packed engine, the count is that of the CPU's magazines, and nothing else of the
    /// tuning has an effect.
    pub fn pageset(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<Tuning> {
        let zone = self.zone(zone)?;
        let tuning = zone.slot(cpu)?.pageset.lock().tuning;
        let count = zone.region().map_or(tuning.count, |region| region.kept_by(cpu.0) as i32);
        Some(Tuning { count, ..tuning })
    }

    /// Returns the pages in the depots of a zone on the [packed engine](crate::packed); `None` if the
    /// zone does not exist, and on the exact engine.
    pub fn depot_pages(&self, zone: impl Into<ZoneId>) -> Option<u64> {
        Some(self.zone(zone)?.region()?.depots.pages())
    }

    /// Returns how far one CPU's part of a zone's free counter may go before it is folded (§9.3);
    /// `None` if the zone or CPU does not exist.
    pub fn stat_threshold(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<u32> {
        Some(self.zone(zone)?.slot(cpu)?.threshold.load(Relaxed))
    }

    /// Returns the counters of one CPU in a zone; `None` if the zone or CPU does not exist. On the
    /// packed engine, pages pass between CPUs through depots, so only the sum over all CPUs says how
    /// many are cached. What depots returned to the zone is in the counters of CPU 0, as drained by
    /// [`Decay`](DrainReason::Decay).
    pub fn cpu_stats(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<CpuStats> {
        let zone = self.zone(zone)?;
        let mut stats = zone.slot(cpu)?.counters.read();
        if cpu.0 == 0
            && let Some(region) = zone.region()
        {
            let decayed = &mut stats.drained_pages[DrainReason::Decay as usize];
            *decayed = decayed.wrapping_add(region.depot_returned());
        }
        Some(stats)
    }

    /// Returns what one CPU's magazines did in a zone on the [packed engine](crate::packed); `None` if
    /// the zone or CPU does not exist, if the CPU is in a request, and on the exact engine.
    pub fn magazine_counts(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<CpuCounts> {
        self.zone(zone)?.region()?.counts(cpu)
    }

    /// Returns the main counters of a zone, summed over its CPUs; `None` if the zone does not
    /// exist.
    pub fn zone_totals(&self, zone: impl Into<ZoneId>) -> Option<ZoneTotals> {
        let z = self.zone(zone)?;
        let mut totals = z.counters.totals();
        totals.failures = z.failures.load(Relaxed);
        for PerCpu { counters, .. } in z.cpus {
            totals.allocs += counters.handed_out();
            totals.frees += counters.taken_back();
            totals.refills += counters.refills.get();
            totals.alloc_pages += counters.pages_out();
            totals.free_pages += counters.pages_back();
        }
        totals.alloc_pages += z.placed_pages.load(Relaxed);
        Some(totals)
    }

    /// Returns the NUMA counters of a zone, a part of [`zone_stats`](Yard::zone_stats); `None` if
    /// the zone does not exist.
    pub fn numa_stats(&self, zone: impl Into<ZoneId>) -> Option<NumaStats> {
        Some(self.zone(zone)?.numa())
    }

    /// Returns the counters of a zone; `None` if the zone does not exist.
    pub fn zone_stats(&self, zone: impl Into<ZoneId>) -> Option<ZoneStats> {
        let z = self.zone(zone)?;
        Some(z.counters.read(z.failures.load(Relaxed), z.bypasses.load(Relaxed), z.numa()))
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Counts the blocks on one free list under the zone lock, at most `limit`.
    fn count_free_list(&self, order: u8, t: MigrateType, limit: usize) -> u64 {
        let _lock = self.lock.lock();
        self.areas.list(order, t).iter(&self.map).take(limit).count() as u64
    }

    /// Derives the NUMA counters from per-CPU counts where possible, so that allocation need not
    /// count them.
    pub(crate) fn numa(&self) -> NumaStats {
        let mut numa = NumaStats {
            miss: self.numa_miss.load(Relaxed),
            foreign: self.numa_foreign.load(Relaxed),
            interleave: self.numa_interleave.load(Relaxed),
            ..NumaStats::default()
        };
        for slot in self.cpus {
            let local = slot.node.load(Relaxed) == u32::from(self.node.0);
            let part = if local { &mut numa.local } else { &mut numa.other };
            *part += slot.counters.numa.of(slot.counters.handed_out());
        }
        numa.hit = (numa.local + numa.other).saturating_sub(numa.miss);
        numa
    }

    /// Switches counting of NUMA events (`numa_stat`, §10). Callers must not run concurrently.
    pub(crate) fn count_numa(&self, on: bool) {
        self.numa_counted.store(on, Relaxed);
        for slot in self.cpus {
            slot.counters.numa.switch(on, slot.counters.handed_out());
        }
    }

    /// Counts a NUMA event that cannot be derived from the per-CPU counts.
    pub(crate) fn note_numa(&self, event: impl Fn(&Self) -> &AtomicU64) {
        if self.numa_counted.load(Relaxed) {
            event(self).fetch_add(1, Relaxed);
        }
    }
}

/// Returns the pages in free blocks of order `from` and above. 128 bits hold any counts.
fn pages(blocks: &[u64; MAX_ORDER as usize + 1], from: u8) -> u128 {
    blocks.iter().enumerate().skip(from.into()).map(|(o, &n)| u128::from(n) << o).sum()
}

/// Returns the unusable free space index (§9.6) for free blocks given by order, in thousandths.
pub fn unusable_index(blocks: &[u64; MAX_ORDER as usize + 1], order: Order) -> u32 {
    let free = pages(blocks, 0);
    let small = free - pages(blocks, order.get());
    (small * 1000).checked_div(free).unwrap_or(1000) as u32
}

/// Returns the fragmentation index (§9.6) for free blocks given by order and a request that fails,
/// in thousandths. Near 0, the request fails for lack of memory; near 1000, because of
/// fragmentation. Returns -1000 if the request would not fail.
pub fn fragmentation_index(blocks: &[u64; MAX_ORDER as usize + 1], order: Order) -> i32 {
    let free = pages(blocks, 0);
    let count: u128 = blocks.iter().map(|&n| u128::from(n)).sum();
    if count == 0 {
        return 0;
    }
    if blocks.iter().skip(order.get().into()).any(|&n| n > 0) {
        return -1000;
    }
    let need = 1000 + free * 1000 / u128::from(order.pages());
    (1000 - (need / count) as i64) as i32
}

const _: () = assert!(PAGEBLOCK_ORDER < MAX_ORDER);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s9_6_c_6_indices_follow_from_the_free_blocks_of_each_order() {
        let o = |n| Order::new(n).unwrap();
        let dma = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 3];
        assert_eq!(unusable_index(&dma, o(9)), 66);
        assert_eq!(unusable_index(&dma, o(10)), 200);
        assert_eq!(unusable_index(&[0; 11], o(0)), 1000);

        let mut b = [0; 11];
        b[0] = 1;
        assert_eq!(fragmentation_index(&b, o(1)), -500);
        b[0] = 1024;
        assert_eq!(fragmentation_index(&b, o(9)), 998);
        let mut b = [0; 11];
        b[6] = 32;
        assert_eq!(fragmentation_index(&b, o(9)), 844);
        assert_eq!(fragmentation_index(&b, o(6)), -1000);
        assert_eq!(fragmentation_index(&[0; 11], o(6)), 0);
    }
}
