//! The allocator as its embedder sees it.

use core::fmt;

use lock_api::{Mutex, RawMutex};

use crate::allocator::knobs::Knobs;
use crate::allocator::start::Deferred;
use crate::allocator::vm_events::EventCounters;
use crate::base::busy::BusyFlag;
use crate::base::node_mask::NodeMask;
use crate::base::reclaimers::Reclaimers;
use crate::base::stats::{BlockCounts, CpuStats, NumaStats, ZoneStats, ZoneTotals};
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, Order, PAGEBLOCK_ORDER, Pfn, TYPES, ZONE_KINDS, ZoneId,
    ZoneKind,
};
use crate::base::watermark::LOW;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Policy, Rules};
use crate::pcp::tuning::Tuning;
use crate::zone::at::At;
use crate::zone::node::{CpuZones, Node};
use crate::zone::state::{BELOW_HIGH, BOOSTED_WATERMARK, PerCpu, RECLAIM_ACTIVE, Zone};
use crate::zone::zonelist::Zonelist;

/// A page allocator over the zones of all nodes.
///
/// `C` names its lock, its hooks and its policy: [`Bare`](crate::Bare), [`Hooked`](crate::Hooked) or a
/// [`Config`] of the embedder's own. All methods take `&self`; any number of CPUs may call them at once.
/// Memory for its maps is borrowed for `'a` from the embedder (see [`Yard::new`]).
pub struct Yard<'a, C: Config> {
    /// Node by node, within a node from the highest kind down.
    pub(crate) zones: &'a [Zone<'a, C::Lock>],
    /// By number.
    pub(crate) nodes: &'a [Node<'a, C::Lock>],
    /// By CPU.
    pub(crate) cpu_zones: &'a [CpuZones<'a, C::Lock>],
    pub(crate) hooks: C::Hooks,
    pub(crate) cpus: u32,
    pub(crate) knobs: Mutex<C::Lock, Knobs>,
    /// Held by the one who changes a setting, until what follows from it is in force. Apart from
    /// `knobs`, so that settings can be read meanwhile.
    pub(crate) settings: Mutex<C::Lock, ()>,
    /// BusyGuard by the one who brings memory or takes it away (§8.4).
    pub(crate) hotplug: BusyFlag,
    /// The task that has it, inverted; 0: none.
    pub(crate) hotplug_task: AtomicU64,
    /// Held by the one who drains all CPUs (§5.16).
    pub(crate) draining: Mutex<C::Lock, ()>,
    /// BusyGuard by the one who makes somebody give up memory (§2.10).
    pub(crate) oom: BusyFlag,
    /// Tasks inside a hook that frees memory.
    pub(crate) reclaimers: Reclaimers,
    /// When a failure was last reported; 0: never.
    pub(crate) warned: AtomicU64,
    /// Counts the beginnings and ends of rewriting the zonelists: odd meanwhile.
    pub(crate) zonelist_changes: AtomicU64,
    pub(crate) events: EventCounters,
    /// What is initialised later, and where the memory is (§8.2).
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneInfo {
    /// Which zone.
    pub kind: ZoneKind,
    /// Of which node.
    pub node: NodeId,
    /// Its first frame.
    pub start: Pfn,
    /// Pages from first to last, holes included.
    pub spanned: u64,
    /// Pages that are memory.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// The free counter, the CPUs' parts not included, not below 0 (§9.2).
    pub free: u64,
    /// The free counter with the CPUs' parts.
    pub free_exact: u64,
    /// Pages on per-CPU lists.
    pub cached: u64,
    /// MIN, LOW, HIGH, PROMO without the boost (§3.2).
    pub watermarks: [u64; 4],
    /// What is added to them at the moment (§3.4).
    pub boost: u64,
    /// Pages kept from requests that could use higher zones, per highest zone (§3.5).
    pub lowmem_reserve: [u64; ZONE_KINDS],
    /// Pages in blocks reserved for high-order atomic requests (§3.8).
    pub reserved_highatomic: u64,
    /// Free pages on the lists of those blocks.
    pub free_highatomic: u64,
    /// Below the high watermark when last tested.
    pub below_high: bool,
    /// Background reclaim is at work.
    pub reclaim_active: bool,
    /// A claim boosted the watermarks and background reclaim has not been woken for it yet.
    pub boosted: bool,
}

impl<'a, C: Config> Yard<'a, C> {
    #[inline(always)]
    pub(crate) fn rules(&self) -> &Rules {
        self.policy.rules()
    }

    /// The policy it was made with.
    pub const fn policy(&self) -> C::Policy {
        self.policy
    }

    /// A zone as one CPU uses it; `None` for a CPU that the yard was not told of.
    #[inline]
    pub(crate) fn at<'z>(
        &'z self,
        zone: &'z Zone<'a, C::Lock>,
        cpu: CpuId,
    ) -> Option<At<'z, 'a, C>> {
        zone.at(&self.hooks, cpu, self.policy)
    }

    /// Returns the machine it runs on, with what hooks into the allocator.
    pub fn hooks(&self) -> &C::Hooks {
        &self.hooks
    }

    /// The task that executes the caller (see [`Reclaim::task`]).
    pub(crate) fn task(&self) -> u64 {
        self.hooks.task().unwrap_or_else(|| self.hooks.cpu().0.into())
    }

    /// The machine it runs on, to be changed before the yard [has memory](Yard::init).
    pub fn hooks_mut(&mut self) -> &mut C::Hooks {
        &mut self.hooks
    }

    /// How many CPUs it serves.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// How many zones it has.
    pub fn zones(&self) -> usize {
        self.zones.len()
    }

    /// Its zones: node by node, within a node from the highest kind down.
    pub fn zone_ids(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.zones.iter().map(Zone::id)
    }

    /// How many nodes it has, those without memory included.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The node of a CPU; `None` for one that the layout does not name.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        Some(self.cpu_zones.get(cpu.0 as usize)?.node)
    }

    /// The distance between two nodes; `None` where there is no such node.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u8> {
        self.node(to)?;
        Some(self.node(from)?.distance(to))
    }

    /// The zones that requests from a node may use up to a kind, in the order in which they try
    /// them (§2.5); none for a node that there is not.
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

    /// The zone that holds a frame, and the frame's index there.
    #[inline]
    pub(crate) fn locate(&self, pfn: Pfn) -> Option<(&'a Zone<'a, C::Lock>, u32)> {
        // Bisection over the zones by their starts: the last one that does not start above.
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

    /// Whether a frame lies in one of the zones, and in which.
    pub fn zone_of(&self, pfn: Pfn) -> Option<ZoneId> {
        Some(self.locate(pfn)?.0.id())
    }

    /// The type of the pageblock that holds a frame; `None` outside the zones.
    pub fn block_type(&self, pfn: Pfn) -> Option<MigrateType> {
        let (zone, idx) = self.locate(pfn)?;
        Some(zone.map.block_type(idx))
    }

    /// What a zone has and is; `None` where there is no such zone.
    pub fn zone_info(&self, zone: impl Into<ZoneId>) -> Option<ZoneInfo> {
        let z = self.zone(zone)?;
        let counter = z.nr_free.load(Relaxed);
        let parts: i64 = z.cpus.iter().map(|c| i64::from(c.diff())).sum();
        let cached: i64 = z.cpus.iter().map(|c| i64::from(c.pageset.lock().tuning().count)).sum();
        Some(ZoneInfo {
            kind: z.kind,
            node: z.node,
            start: z.start,
            spanned: z.spanned,
            present: z.present.load(Relaxed),
            managed: z.managed.load(Relaxed),
            free: counter.max(0) as u64,
            free_exact: counter.saturating_add(parts).max(0) as u64,
            cached: cached.max(0) as u64,
            watermarks: z.watermarks.marks(),
            boost: z.watermarks.boost(),
            lowmem_reserve: z.watermarks.reserves(),
            reserved_highatomic: z.reserved_highatomic.load(Relaxed),
            free_highatomic: z.free_highatomic.load(Relaxed),
            below_high: z.has_flag(BELOW_HIGH),
            reclaim_active: z.has_flag(RECLAIM_ACTIVE),
            boosted: z.has_flag(BOOSTED_WATERMARK),
        })
    }

    /// By how many pages the free counter of a zone, the CPUs' parts not included, is above the low
    /// watermark with its boost (§3.2); negative below it. `None` where there is no such zone. Takes
    /// no lock, unlike [`zone_info`](Yard::zone_info).
    pub fn above_low(&self, zone: impl Into<ZoneId>) -> Option<i64> {
        let z = self.zone(zone)?;
        let mark = i64::try_from(z.watermarks.effective(LOW)).unwrap_or(i64::MAX);
        Some(z.nr_free.load(Relaxed).saturating_sub(mark))
    }

    /// Free blocks of a zone by order, of all types (buddyinfo); `None` where there is no such
    /// zone.
    pub fn free_blocks(&self, zone: impl Into<ZoneId>) -> Option<[u64; MAX_ORDER as usize + 1]> {
        let z = self.zone(zone)?;
        Some(core::array::from_fn(|o| z.areas.blocks(o as u8)))
    }

    /// Free blocks of a zone by order and list type (pagetypeinfo); `None` where there is no such
    /// zone. Each list is counted under the zone lock, block by block: for people, not for hot paths.
    pub fn free_blocks_by_type(&self, zone: impl Into<ZoneId>) -> Option<BlockCounts> {
        let z = self.zone(zone)?;
        let mut counts = BlockCounts::default();
        for (order, row) in counts.0.iter_mut().enumerate() {
            for (t, n) in MigrateType::ALL.into_iter().zip(row) {
                let _lock = z.lock.lock();
                *n = z.areas.list(order as u8, t).iter(&z.map).count() as u64;
            }
        }
        Some(counts)
    }

    /// Pageblocks of a zone by type (pagetypeinfo); `None` where there is no such zone.
    pub fn pageblocks(&self, zone: impl Into<ZoneId>) -> Option<[u64; TYPES]> {
        Some(self.zone(zone)?.pageblocks())
    }

    /// The unusable free space index (§9.6) of a zone for requests of an order, in thousandths: 0
    /// where all free memory could serve them, 1000 where none could. `None` where there is no
    /// such zone.
    pub fn unusable_index(&self, zone: impl Into<ZoneId>, order: Order) -> Option<u32> {
        Some(unusable_index(&self.free_blocks(zone)?, order))
    }

    /// The tuning of one CPU's lists in a zone (§5.1).
    pub fn pageset(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<Tuning> {
        Some(*self.zone(zone)?.slot(cpu)?.pageset.lock().tuning())
    }

    /// Counters of one CPU in a zone.
    pub fn cpu_stats(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<CpuStats> {
        Some(self.zone(zone)?.slot(cpu)?.counters.read())
    }

    /// The main counters of a zone and its CPUs; `None` where there is no such zone.
    pub fn zone_totals(&self, zone: impl Into<ZoneId>) -> Option<ZoneTotals> {
        let z = self.zone(zone)?;
        let mut totals = z.counters.totals();
        totals.failures = z.failures.load(Relaxed);
        for PerCpu { counters, .. } in z.cpus {
            totals.allocs += counters.handed_out();
            totals.frees += counters.taken_back();
            totals.refills += counters.refills.get();
        }
        Some(totals)
    }

    /// Counters of a zone.
    pub fn zone_stats(&self, zone: impl Into<ZoneId>) -> Option<ZoneStats> {
        let z = self.zone(zone)?;
        Some(z.counters.read(z.failures.load(Relaxed), z.bypasses.load(Relaxed), z.numa()))
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// What follows from the counts by CPU need not be counted where blocks are handed out.
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

    /// NUMA events are counted from now on, or not (`numa_stat`, §10); one caller at a time.
    pub(crate) fn count_numa(&self, on: bool) {
        self.numa_counted.store(on, Relaxed);
        for slot in self.cpus {
            slot.counters.numa.switch(on, slot.counters.handed_out());
        }
    }

    /// Counts one of the NUMA events that do not follow from the counts by CPU.
    pub(crate) fn note_numa(&self, event: impl Fn(&Self) -> &AtomicU64) {
        if self.numa_counted.load(Relaxed) {
            event(self).fetch_add(1, Relaxed);
        }
    }
}

/// Pages in free blocks of an order and above. 128 bits hold any counts.
fn pages(blocks: &[u64; MAX_ORDER as usize + 1], from: u8) -> u128 {
    blocks.iter().enumerate().skip(from.into()).map(|(o, &n)| u128::from(n) << o).sum()
}

/// The unusable free space index (§9.6) of these free blocks per order, in thousandths.
pub fn unusable_index(blocks: &[u64; MAX_ORDER as usize + 1], order: Order) -> u32 {
    let free = pages(blocks, 0);
    let small = free - pages(blocks, order.get());
    (small * 1000).checked_div(free).unwrap_or(1000) as u32
}

/// The fragmentation index (§9.6) of these free blocks per order for a request that fails, in
/// thousandths: towards 0 it fails for want of memory, towards 1000 for fragmentation. -1000: it
/// would not fail.
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
    fn indices_of_9_6_and_c_6() {
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
