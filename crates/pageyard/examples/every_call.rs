//! Every public method of a yard, each in a function of its own, without anything that could
//! panic here. `scripts/no-panic.sh` looks into the machine code of these for a way to panic.

use lock_api::Mutex;
use pageyard::compact::{Background, Deferral};
use pageyard::policy::{
    Guarded, InitOnFree, Linux612, Poisoned as Filled, Policy, TwoPassBulkFree, Vanilla,
};
use pageyard::tuning::CacheSlice;
use pageyard::{
    AllocError, BatchError, CmaArea, CmaError, CompactResult, CompactStats, Compacted, ContigError,
    CpuId, CpuSample, CpuSlot, Event, FaultPlan, Faults, Frame, FreeError, Gfp, HighChange,
    HighReason, History, Home, HotplugError, InitError, Invalid, IsolateError, KnobError, Knobs,
    Layout, Mark, MigrateType, Node, NodeId, NodeMask, Order, PageOwner, Pageblock, Pfn, Place,
    PlaceError, Platform, PoisonError, Poisoned, Priority, ReclaimTask, Record, Relocation,
    RestoreError, Ring, Storage, Task, VmEvent, Yard, Zone, ZoneId, ZoneKind, ZoneSpec, poison,
};
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

type Lock = spin::mutex::SpinMutex<()>;
type Y<'a, P> = Yard<'a, Lock, Machine, P>;

/// Moves blocks, and wants to know of free ones.
struct Machine;

impl Platform for Machine {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        match std::hint::black_box(from.0 % 3) {
            0 => Relocation::Moved,
            1 => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }
}

/// Declares the functions, and one that calls them all.
macro_rules! calls {
    ($($name:ident($y:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(#[inline(never)]
        fn $name<P: Policy>($y: &Y<'_, P> $(, $arg: $type)*) -> $out { $body })*

        fn all<P: Policy>(y: &Y<'_, P>) {
            $(let _ = std::hint::black_box($name(y $(, std::hint::black_box($value))*));)*
        }
    };
}

/// Takes any text.
struct Paper;

impl fmt::Write for Paper {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        std::hint::black_box(s);
        Ok(())
    }
}

const KIND: ZoneKind = ZoneKind::Normal;
const RANGE: Range<Pfn> = Pfn(1024)..Pfn(2048);

/// An event for a history.
const CHANGE: Event = Event::High {
    zone: ZoneId { node: NodeId(0), kind: KIND },
    change: HighChange {
        from: 0,
        to: 1,
        count: 0,
        refills: 0,
        drains: 0,
        reason: HighReason::Decay,
    },
};

calls! {
    call_alloc(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.alloc(order, gfp) }
    call_alloc_on(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL, node: NodeId = NodeId(0))
        -> Result<Pfn, AllocError> { y.alloc_on(node, order, gfp) }
    call_alloc_bulk_on(y, slots: &mut [Option<Pfn>] = &mut [None; 100], gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, AllocError> { y.alloc_bulk_on(NodeMask(1), gfp, slots) }
    call_is_pfmemalloc(y, pfn: Pfn = Pfn(7)) -> bool { y.is_pfmemalloc(pfn) }
    call_kswapd(y, freed: u64 = 7)
        -> Option<ReclaimTask> { y.kswapd(NodeId(0)).map(|mut k| k.next(freed)) }
    call_distance(y, node: NodeId = NodeId(0)) -> Option<u8> { y.distance(node, NodeId(0)) }
    call_node_of(y, cpu: CpuId = CpuId(0)) -> Option<NodeId> { y.node_of(cpu) }
    call_zonelist(y, node: NodeId = NodeId(0)) -> Option<ZoneId> { y.zonelist(node, KIND).next() }
    call_free(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free(pfn, order) }
    call_free_direct(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_direct(pfn, order) }
    call_free_shared(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_shared(pfn, order) }
    call_split(y, pfn: Pfn = Pfn(7), order: Order = Order::MAX)
        -> Result<(), FreeError> { y.split(pfn, order, Order::ZERO) }
    call_set_movable(y, pfn: Pfn = Pfn(7), order: Order = Order::MAX)
        -> Result<(), FreeError> { y.set_movable(pfn, order, true) }
    call_free_batch(y, blocks: &[(Pfn, Order)] = &[(Pfn(7), Order::ZERO)])
        -> Result<(), BatchError> { y.free_batch(blocks) }
    call_alloc_bulk(y, slots: &mut [Option<Pfn>] = &mut [None; 100], gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, AllocError> { y.alloc_bulk(gfp, slots) }
    call_alloc_bulk_each(y, n: usize = 100, gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, AllocError> { y.alloc_bulk_each(n, gfp, |pfn| _ = std::hint::black_box(pfn)) }
    call_tick(y, cpu: CpuId = CpuId(0)) -> bool { y.tick(cpu) }
    call_drain_cpu(y, cpu: CpuId = CpuId(0)) -> () { y.drain_cpu(cpu, None) }
    call_drain_all(y) -> () { y.drain_all(Some(KIND.into())) }
    call_disable_pcp(y) -> () { drop(y.disable_pcp(KIND)) }
    call_set_cache_slice(y, slice: CacheSlice = CacheSlice::default())
        -> bool { y.set_cache_slice(CpuId(0), slice) }
    call_unreserve_highatomic(y, t: MigrateType = MigrateType::Movable)
        -> bool { y.unreserve_highatomic(t, true) }
    call_passes(y, order: Order = Order::HUGE)
        -> Option<bool> { y.passes(KIND, Mark::High, order, KIND) }
    call_lower_boost(y, pages: u64 = 9) -> bool { y.lower_boost(KIND, pages) }
    call_total_reserve(y) -> u64 { y.total_reserve() }
    call_validate(y) -> Result<(), Invalid> { y.validate() }
    call_set_reclaim_active(y) -> bool { y.set_reclaim_active(KIND, true) }
    call_set_min_free_kbytes(y, n: u64 = 1)
        -> Result<(), KnobError> { y.set_min_free_kbytes(n) }
    call_set_watermark_scale_factor(y, n: u64 = 1)
        -> Result<(), KnobError> { y.set_watermark_scale_factor(n) }
    call_set_watermark_boost_factor(y, n: u64 = 1)
        -> Result<(), KnobError> { y.set_watermark_boost_factor(n) }
    call_set_lowmem_reserve_ratio(y, n: u64 = 1)
        -> () { y.set_lowmem_reserve_ratio([n; 5]) }
    call_set_percpu_pagelist_high_fraction(y, n: u32 = 1)
        -> Result<(), KnobError> { y.set_percpu_pagelist_high_fraction(n) }
    call_knobs(y) -> Knobs { y.knobs() }
    call_knob(y, name: &str = "lowmem_reserve_ratio")
        -> Result<(), KnobError> { y.knob(name, &mut Paper) }
    call_set_knob(y, name: &str = "lowmem_reserve_ratio", value: &str = " 256 1\n")
        -> Result<(), KnobError> { y.set_knob(name, value) }
    call_set_pcp_autotune(y, on: bool = true) -> () { y.set_pcp_autotune(on) }
    call_set_pcp_limits(y, batch: i32 = 63, high_min: i32 = 126, high_max: i32 = 126) -> bool {
        y.set_pcp_limits(KIND, pageyard::tuning::Limits { batch, high_min, high_max })
    }
    call_snapshot(y) -> bool { y.snapshot(KIND, |r| _ = std::hint::black_box(r)) }
    call_restore(y, records: &[Record] = &[])
        -> Result<(), RestoreError> { y.restore(KIND, records.iter().copied()) }
    call_zone_info(y) -> bool { y.zone_info(KIND).is_some() }
    call_zone_stats(y) -> bool { y.zone_stats(KIND).is_some() }
    call_cpu_stats(y) -> bool { y.cpu_stats(KIND, CpuId(0)).is_some() }
    call_pageset(y) -> bool { y.pageset(KIND, CpuId(0)).is_some() }
    call_free_blocks(y) -> bool { y.free_blocks(KIND).is_some() }
    call_free_blocks_by_type(y) -> bool { y.free_blocks_by_type(KIND).is_some() }
    call_pageblocks(y) -> bool { y.pageblocks(KIND).is_some() }
    call_unusable_index(y, order: Order = Order::HUGE)
        -> Option<u32> { y.unusable_index(KIND, order) }
    call_cpu_sample(y) -> bool { y.cpu_sample(KIND, CpuId(0)).is_some() }
    call_verdicts(y, samples: &[CpuSample] = &[CpuSample::default(); 3]) -> bool {
        y.verdicts(KIND, samples, samples, 1, |v| _ = write!(Paper, "{v}"))
    }
    call_evidence(y, samples: &[CpuSample] = &[CpuSample::default(); 3]) -> bool {
        y.verdicts(KIND, samples, samples, 1, |v| v.finding.evidence(|_, n| _ = std::hint::black_box(n)))
    }
    call_history(y, ring: &Mutex<Lock, Ring<3>> = &Mutex::new(Ring::new())) -> bool {
        History::new(&[KIND.into()], y.cpus(), std::slice::from_ref(ring)).is_some_and(|h| {
            h.note(1, CpuId(0), &std::hint::black_box(CHANGE));
            h.read(KIND, CpuId(0)).is_some_and(|r| r.iter().count() > 0)
        })
    }
    call_block_type(y, pfn: Pfn = Pfn(7)) -> Option<MigrateType> { y.block_type(pfn) }
    call_zone_of(y, pfn: Pfn = Pfn(7)) -> Option<ZoneId> { y.zone_of(pfn) }
    call_write_zoneinfo(y, out: &mut Paper = &mut Paper) -> fmt::Result { y.write_zoneinfo(out, &()) }
    call_write_buddyinfo(y, out: &mut Paper = &mut Paper) -> fmt::Result { y.write_buddyinfo(out) }
    call_write_pagetypeinfo(y, out: &mut Paper = &mut Paper)
        -> fmt::Result { y.write_pagetypeinfo(out) }
    call_write_vmstat(y, out: &mut Paper = &mut Paper) -> fmt::Result { y.write_vmstat(out, &()) }
    call_write_show_mem(y, out: &mut Paper = &mut Paper) -> fmt::Result { y.write_show_mem(out, &()) }
    call_count_event(y, event: VmEvent = VmEvent::OomKill) -> () { y.count_event(event, 1) }
    call_vm_events(y) -> Option<u64> { y.vm_events().by_name("pgfree") }
    call_is_up(y, cpu: CpuId = CpuId(0)) -> bool { y.is_up(cpu) }
    call_cpus_up(y) -> u32 { y.cpus_up() }
    call_cpu_up(y, cpu: CpuId = CpuId(0)) -> bool { y.cpu_up(cpu) }
    call_cpu_dead(y, cpu: CpuId = CpuId(1)) -> bool { y.cpu_dead(cpu) }
    call_init_section(y, node: NodeId = NodeId(0)) -> bool { y.init_section(node) }
    call_finish_deferred(y) -> bool { y.finish_deferred() }
    call_online(y, r: Range<Pfn> = RANGE) -> Result<(), HotplugError> { y.online(r) }
    call_offline(y, r: Range<Pfn> = RANGE) -> Result<(), HotplugError> { y.offline(r) }
    call_isolate(y, r: Range<Pfn> = RANGE)
        -> Result<(), IsolateError> { y.isolate(r, MigrateType::Movable) }
    call_unisolate(y, r: Range<Pfn> = RANGE)
        -> Result<(), IsolateError> { y.unisolate(r, MigrateType::Movable) }
    call_alloc_contig(y, r: Range<Pfn> = RANGE, gfp: Gfp = Gfp::KERNEL)
        -> Result<(), ContigError> { y.alloc_contig(r, MigrateType::Movable, gfp) }
    call_free_contig(y, r: Range<Pfn> = RANGE)
        -> Result<(), BatchError> { y.free_contig(r) }
    call_alloc_contig_pages(y, n: u64 = 700, align: u64 = 64, r: Range<Pfn> = RANGE)
        -> Result<Pfn, ContigError> {
            y.alloc_contig_pages(n, align, r, MigrateType::Movable, Gfp::KERNEL)
        }
    call_alloc_at(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<(), PlaceError> { y.alloc_at(pfn, order, gfp) }
    call_alloc_with(y, order: Order = Order::ZERO, place: Place = Place { align: 64, below: None })
        -> Result<Pfn, PlaceError> { y.alloc_with(order, Gfp::KERNEL, place) }
    call_make_cma(y, r: Range<Pfn> = RANGE) -> Result<(), CmaError> { y.make_cma(r) }
    call_cma_area(y, bits: &[AtomicU64] = &[const { AtomicU64::new(0) }; 16], n: u64 = 70)
        -> Result<u64, CmaError> {
            {
                let area: CmaArea<'_, Lock> = CmaArea::new(y, RANGE, Order::ZERO, bits)?;
                let pfn = area.alloc(y, n, 64, Gfp::KERNEL)?;
                area.free(y, pfn, n)?;
                Ok(area.stats().alloc_success + area.range().end.0)
            }
        }
    call_compact_for(y, order: Order = Order::HUGE, gfp: Gfp = Gfp::KERNEL)
        -> Result<Compacted, AllocError> { y.compact_for(order, gfp, Priority::Async) }
    call_compact_zone(y, order: Option<Order> = Some(Order::HUGE))
        -> Option<CompactResult> { y.compact_zone(KIND, order, Priority::SyncFull) }
    call_compact_node(y) -> () { y.compact_node(NodeId(0)) }
    call_compact_all(y) -> () { y.compact_all() }
    call_could_compact(y, order: Order = Order::HUGE, pages: u64 = 7)
        -> bool { y.could_compact(order, KIND, |_| pages) }
    call_request_compaction(y, order: Order = Order::HUGE)
        -> () { y.request_compaction(NodeId(0), order, KIND) }
    call_compact_background(y) -> Background { y.compact_background(NodeId(0)) }
    call_trigger_proactive(y) -> () { y.trigger_proactive_compaction() }
    call_fragmentation_score(y) -> u64 { y.fragmentation_score(NodeId(0)) }
    call_forget_skip_hints(y) -> () { y.forget_skip_hints(NodeId(0)) }
    call_compact_stats(y) -> CompactStats { y.compact_stats() }
    call_deferral(y) -> Option<Deferral> { y.deferral(KIND) }
    call_report_free_blocks(y) -> Option<u64> { y.report_free_blocks() }
    call_poison_frame(y, pfn: Pfn = Pfn(7))
        -> Result<Poisoned, PoisonError> { y.poison_frame(pfn) }
    call_unpoison_frame(y, pfn: Pfn = Pfn(7))
        -> Result<(), PoisonError> { y.unpoison_frame(pfn) }
    call_is_poisoned(y, pfn: Pfn = Pfn(7)) -> Option<bool> { y.is_poisoned(pfn) }
    call_out_of_use(y) -> bool { y.out_of_use(KIND).is_some() }
    call_mixed_blocks(y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]))
        -> bool { owner.mixed_blocks(y, KIND).is_some() }
    call_owner_note(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7))
        -> () { owner.note(&Event::Free { pfn, order: Order::MAX }, 0, &Task::default(), 0) }
    call_owner_split(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7))
        -> () { owner.split(pfn, Order::ZERO) }
    call_owner_moved(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7))
        -> () { owner.moved(pfn, Pfn(9), 1) }
    call_owners(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]))
        -> usize { owner.owners().count() }
    call_faults(_y, faults: &Faults = &Faults::new(FaultPlan::NONE), order: Order = Order::MAX)
        -> bool { faults.hit(order, Gfp::ATOMIC) }
    call_inspect(_y, bytes: &[u8] = &[poison::POISON_BYTE; 99])
        -> Option<poison::Corruption> { poison::inspect(bytes) }
}

#[inline(never)]
fn call_new<'a, P: Policy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    Yard::new(layout, storage, Machine)
}

#[inline(never)]
fn call_deferred<'a, P: Policy>(
    layout: &Layout<'a>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    Yard::deferred(layout, storage, Machine)
}

fn with_yard<P: Policy>(deferred: bool) -> Result<(), InitError> {
    let span = Pfn(0)..Pfn(1 << 14);
    let layout = Layout {
        zones: &[ZoneSpec { kind: KIND, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &[NodeId(0)],
        distances: &[],
        knobs: Knobs::default(),
    };
    let needs = layout.needs::<Lock>()?;
    let frames: Vec<Frame> = (0..needs.frames).map(|_| Frame::new()).collect();
    let blocks: Vec<Pageblock> = (0..needs.blocks).map(|_| Pageblock::new()).collect();
    let mut slots: Vec<CpuSlot<Lock>> = (0..needs.slots).map(|_| CpuSlot::new()).collect();
    let mut zones: Vec<Zone<'_, Lock>> = (0..needs.zones).map(|_| Zone::new()).collect();
    let mut nodes: Vec<Node<'_, Lock>> = (0..needs.nodes).map(|_| Node::new()).collect();
    let mut homes: Vec<Home<'_, Lock>> = (0..needs.homes).map(|_| Home::new()).collect();
    let storage = Storage {
        frames: &frames,
        blocks: &blocks,
        zones: &mut zones,
        slots: &mut slots,
        nodes: &mut nodes,
        homes: &mut homes,
    };
    if deferred {
        all(&call_deferred::<P>(&layout, storage)?);
    } else {
        all(&call_new::<P>(&layout, storage)?);
    }
    Ok(())
}

fn main() -> Result<(), InitError> {
    with_yard::<Linux612>(false)?;
    with_yard::<Linux612>(true)?;
    with_yard::<Guarded<4, Filled<InitOnFree>>>(false)?;
    with_yard::<TwoPassBulkFree<Vanilla>>(false)
}
