// Calls each public method of the core in a function of its own that cannot itself panic. Files
// that include this one declare the macro `calls` and the types `Lock` and `Y`.
// `main.rs` compiles the functions for `scripts/no-panic.sh`; the core's `tests/all/hostile.rs` calls
// them with its own arguments instead of these.

use pageyard::compact::{self, Background, Deferral, Retries};
use pageyard::policy::{self, Policy, Safety};
use pageyard::tuning::{self, CacheSlice, Limits, Pressure, Room, Tuning};
use pageyard::{AllocError, BadPage, Balloon, BalloonError, BatchError, BlockCounts, CmaArea, CmaError, CompactResult, CompactStats, Compacted, ContigCursor, ContigError, CpuId, CpuStats, Epoch, Epochs, EpochsRef, Excerpt, FaultPlan, Faults, FreeError, Gfp, HighReason, HotplugError, InitError, Interleave, Invalid, IsolateError, Knob, KnobError, Knobs, Kswapd, Layout, Lent, Mark, MigrateType, Needs, NodeChoice, NodeId, NodeMask, Order, OutOfUse, PageState, Pfn, Place, PlaceError, PoisonError, Poisoned, Priority, ReclaimTask, Record, ReleaseError, ScatterError, ShootdownBatch, ShootdownError, Supply, Tally, VmEvent, VmEvents, ZoneId, ZoneInfo, ZoneKind, ZoneSpec, poison, watermark};
use std::fmt::{self, Write};
use std::ops::Range;
use std::sync::atomic::AtomicU64;

/// A writer that accepts any text.
struct Paper;

impl fmt::Write for Paper {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        std::hint::black_box(s);
        Ok(())
    }
}

const KIND: ZoneKind = ZoneKind::Normal;
const ZONE: ZoneId = ZoneId { node: NodeId(0), kind: KIND };
const RANGE: Range<Pfn> = Pfn(1024)..Pfn(2048);

fn layout() -> Layout<'static> {
    const SPAN: Range<Pfn> = Pfn(0)..Pfn(1 << 14);
    Layout {
        zones: &[ZoneSpec { kind: KIND, node: NodeId(0), span: SPAN }],
        usable: &[SPAN],
        reserved: &[],
        cpus: &[NodeId(0)],
        distances: &[],
        knobs: Knobs::default(),
    }
}

const NEEDS: Needs =
    Needs { frames: 7, blocks: 7, zones: 7, slots: 7, nodes: 7, cpu_zones: 7, ..Needs::NONE };
const BLOCKS: [u64; 11] = [7; 11];
const PAGE: PageState = PageState::UNUSED;
const RETRIES: Retries = Retries { lost: 1, priority: Priority::SyncLight };

calls! {
    call_alloc(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.alloc(order, gfp) }
    call_alloc_on(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL, node: NodeId = NodeId(0))
        -> Result<Pfn, AllocError> { y.alloc_on(node, order, gfp) }
    call_try_alloc(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.try_alloc(order, gfp) }
    call_try_alloc_on(y, order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL, node: NodeId = NodeId(0))
        -> Result<Pfn, AllocError> { y.try_alloc_on(node, order, gfp) }
    call_alloc_bulk_on(y, slots: &mut [Option<Pfn>] = &mut [None; 100], gfp: Gfp = Gfp::KERNEL,
            mask: NodeMask = NodeMask(1))
        -> Result<usize, AllocError> { y.alloc_bulk_on(mask, gfp, slots) }
    call_is_pfmemalloc(y, pfn: Pfn = Pfn(7)) -> bool { y.is_pfmemalloc(pfn) }
    call_kswapd(y, freed: u64 = 7, node: NodeId = NodeId(0))
        -> Option<ReclaimTask> { y.kswapd(node).map(|mut k| Kswapd::next(&mut k, freed)) }
    call_policy(y) -> bool { y.policy().rules().high_order_lists }
    call_distance(y, node: NodeId = NodeId(0), to: NodeId = NodeId(0)) -> Option<u8> { y.distance(node, to) }
    call_node_of(y, cpu: CpuId = CpuId(0)) -> Option<NodeId> { y.node_of(cpu) }
    call_zonelist(y, node: NodeId = NodeId(0), kind: ZoneKind = KIND)
        -> Option<ZoneId> { y.zonelist(node, kind).next() }
    call_free(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free(pfn, order) }
    call_free_ready(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Option<()> { y.free_ready(pfn, order) }
    call_free_rest(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_rest(pfn, order) }
    call_free_owned(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_owned(pfn, order) }
    call_free_direct(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_direct(pfn, order) }
    call_free_nowait(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_nowait(pfn, order) }
    call_free_shared(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { y.free_shared(pfn, order) }
    call_split(y, pfn: Pfn = Pfn(7), order: Order = Order::MAX, into: Order = Order::ZERO)
        -> Result<(), FreeError> { y.split(pfn, order, into) }
    call_set_movable(y, pfn: Pfn = Pfn(7), order: Order = Order::MAX)
        -> Result<(), FreeError> { y.set_movable(pfn, order, true) }
    call_free_batch(y, blocks: &[(Pfn, Order)] = &[(Pfn(7), Order::ZERO)])
        -> Result<(), BatchError> { y.free_batch(blocks) }
    call_free_batch_owned(y, blocks: &[(Pfn, Order)] = &[(Pfn(7), Order::ZERO)])
        -> Result<(), BatchError> { y.free_batch_owned(blocks) }
    call_alloc_bulk(y, slots: &mut [Option<Pfn>] = &mut [None; 100], gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, AllocError> { y.alloc_bulk(gfp, slots) }
    call_alloc_bulk_each(y, n: usize = 100, gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, AllocError> { y.alloc_bulk_each(n, gfp, |pfn| _ = std::hint::black_box(pfn)) }
    call_alloc_bulk_each_on(y, n: usize = 100, gfp: Gfp = Gfp::KERNEL, mask: NodeMask = NodeMask(1))
        -> Result<usize, AllocError> {
        y.alloc_bulk_each_on(mask, n, gfp, |pfn| _ = std::hint::black_box(pfn))
    }
    call_alloc_bulk_ready(y, n: usize = 100, gfp: Gfp = Gfp::KERNEL)
        -> Result<Option<usize>, AllocError> {
        y.alloc_bulk_ready(NodeChoice::LOCAL, n, gfp, &mut |pfn| _ = std::hint::black_box(pfn))
    }
    call_alloc_interleaved(y, turns: &Interleave = &Interleave::new(NodeMask(1)),
            order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.alloc_interleaved(turns, order, gfp) }
    call_alloc_preferring(y, nodes: NodeMask = NodeMask(2), order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.alloc_preferring(nodes, order, gfp) }
    call_fold(y, cpu: CpuId = CpuId(0)) -> () { y.fold(cpu) }
    call_tick(y, cpu: CpuId = CpuId(0)) -> bool { y.tick(cpu) }
    call_drain_cpu(y, cpu: CpuId = CpuId(0)) -> () { y.drain_cpu(cpu, None) }
    call_drain_all(y, zone: ZoneId = ZONE) -> () { y.drain_all(Some(zone)) }
    call_disable_pcp(y, zone: ZoneId = ZONE) -> () { drop(y.disable_pcp(zone)) }
    call_set_cache_slice(y, slice: CacheSlice = CacheSlice::default(), cpu: CpuId = CpuId(0))
        -> bool { y.set_cache_slice(cpu, slice) }
    call_set_free_high_batch(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0))
        -> bool { y.set_free_high_batch(zone, cpu, true) }
    call_unreserve_highatomic(y, t: MigrateType = MigrateType::Movable)
        -> bool { y.unreserve_highatomic(t, true) }
    call_passes(y, order: Order = Order::HUGE, kind: ZoneKind = KIND, zone: ZoneId = ZONE)
        -> Option<bool> { y.passes(zone, Mark::High, order, kind) }
    call_lower_boost(y, pages: u64 = 9, zone: ZoneId = ZONE) -> bool { y.lower_boost(zone, pages) }
    call_total_reserve(y) -> u64 { y.total_reserve() }
    call_validate(y) -> Result<(), Invalid> { y.validate() }
    call_invalid_text(y) -> fmt::Result {
        y.validate().or_else(|e| {
            Invalid::write_to(&e, &mut Paper)?;
            pageyard::Broken::write_to(&e.broken, &mut Paper)?;
            if let pageyard::Broken::Count { of, .. } = e.broken { Tally::write_to(&of, &mut Paper) } else { Ok(()) }
        })
    }
    call_in_use(y, zone: ZoneId = ZONE) -> Option<u64> { y.zone_info(zone).map(|z| ZoneInfo::in_use(&z)) }
    call_set_reclaim_active(y, zone: ZoneId = ZONE) -> bool { y.set_reclaim_active(zone, true) }
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
    call_set_pcp_limits(y, batch: i32 = 63, high_min: i32 = 126, high_max: i32 = 126, zone: ZoneId = ZONE)
        -> bool {
        y.set_pcp_limits(zone, pageyard::tuning::Limits { batch, high_min, high_max })
    }
    call_snapshot(y, zone: ZoneId = ZONE) -> bool { y.snapshot(zone, |r| _ = std::hint::black_box(r)) }
    call_zone_info(y, zone: ZoneId = ZONE) -> bool { y.zone_info(zone).is_some() }
    call_zone_stats(y, zone: ZoneId = ZONE) -> bool { y.zone_stats(zone).is_some() }
    call_cpu_stats(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0)) -> bool { y.cpu_stats(zone, cpu).is_some() }
    call_pageset(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0)) -> bool { y.pageset(zone, cpu).is_some() }
    call_depot_pages(y, zone: ZoneId = ZONE) -> bool { y.depot_pages(zone).is_some() }
    call_magazine_counts(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0)) -> bool { y.magazine_counts(zone, cpu).is_some() }
    call_is_populated(y, zone: ZoneId = ZONE) -> bool { y.is_populated(zone) }
    call_supply(y, zone: ZoneId = ZONE) -> Option<Supply> { y.supply(zone) }
    call_numa_stats(y, zone: ZoneId = ZONE) -> bool { y.numa_stats(zone).is_some() }
    call_count_free_list(y, order: Order = Order::ZERO, t: MigrateType = MigrateType::Movable,
            limit: usize = 7, zone: ZoneId = ZONE)
        -> Option<u64> { y.count_free_list(zone, order, t, limit) }
    call_block_supply(y, zone: ZoneId = ZONE) -> bool { y.block_supply(zone).is_some() }
    call_cpu_threshold(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0))
        -> Option<u32> { y.stat_threshold(zone, cpu) }
    call_is_hopeless(y, node: NodeId = NodeId(0)) -> bool { y.is_hopeless(node) }
    call_free_blocks(y, zone: ZoneId = ZONE) -> bool { y.free_blocks(zone).is_some() }
    call_free_blocks_by_type(y, zone: ZoneId = ZONE) -> bool { y.free_blocks_by_type(zone).is_some() }
    call_pageblocks(y, zone: ZoneId = ZONE) -> bool { y.pageblocks(zone).is_some() }
    call_unusable_index(y, order: Order = Order::HUGE, zone: ZoneId = ZONE)
        -> Option<u32> { y.unusable_index(zone, order) }
    call_block_type(y, pfn: Pfn = Pfn(7)) -> Option<MigrateType> { y.block_type(pfn) }
    call_zone_of(y, pfn: Pfn = Pfn(7)) -> Option<ZoneId> { y.zone_of(pfn) }
    call_free_batch_of(y, blocks: &[Pfn] = &[Pfn(7)], order: Order = Order::ZERO)
        -> Result<(), BatchError> { y.free_batch_of(order, blocks) }
    call_alloc_ready(y, order: Order = Order::MAX, gfp: Gfp = Gfp::KERNEL)
        -> Option<Pfn> { y.alloc_ready(NodeChoice::LOCAL, order, gfp) }
    call_alloc_rest(y, order: Order = Order::MAX, gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, AllocError> { y.alloc_rest(NodeChoice::LOCAL, order, gfp) }
    call_zone_totals(y, zone: ZoneId = ZONE) -> bool { y.zone_totals(zone).is_some() }
    call_knob_error_to(y, name: &str = "lowmem_reserve_ratio")
        -> fmt::Result { y.knob(name, &mut Paper).or_else(|e| KnobError::write_to(&e, &mut Paper)) }
    call_init_error_to(_y, error: InitError = InitError::NoZones)
        -> fmt::Result { InitError::write_to(&error, &mut Paper) }
    call_vm_event(y, event: VmEvent = VmEvent::OomKill) -> u64 { y.vm_event(event) }
    call_event_named(_y, name: &str = "pgfree") -> bool { VmEvent::named(name).is_some() }
    call_count_event(y, event: VmEvent = VmEvent::OomKill) -> () { y.count_event(event, 1) }
    call_vm_events(y) -> Option<u64> { VmEvents::by_name(&y.vm_events(), "pgfree") }
    call_hooks(y) -> bool { std::ptr::eq(y.hooks(), y.hooks()) }
    call_cpus(y) -> u32 { y.cpus() }
    call_zones(y) -> usize { y.zones() }
    call_zone_ids(y) -> usize { y.zone_ids().count() }
    call_nodes(y) -> usize { y.nodes() }
    call_above_low(y, zone: ZoneId = ZONE) -> Option<i64> { y.above_low(zone) }
    call_is_up(y, cpu: CpuId = CpuId(0)) -> bool { y.is_up(cpu) }
    call_cpus_up(y) -> u32 { y.cpus_up() }
    call_cpu_up(y, cpu: CpuId = CpuId(0)) -> bool { y.cpu_up(cpu) }
    call_cpu_dead(y, cpu: CpuId = CpuId(1)) -> bool { y.cpu_dead(cpu) }
    call_init_section(y, node: NodeId = NodeId(0)) -> bool { y.init_section(node) }
    call_finish_deferred(y) -> bool { y.finish_deferred() }
    call_online(y, r: Range<Pfn> = RANGE) -> Result<(), HotplugError> { y.online(r) }
    call_offline(y, r: Range<Pfn> = RANGE) -> Result<(), HotplugError> { y.offline(r) }
    call_release(y, r: Range<Pfn> = RANGE) -> Result<(), ReleaseError> { y.release(r) }
    call_release_error(y, r: Range<Pfn> = RANGE)
        -> fmt::Result { y.release(r).or_else(|e| ReleaseError::write_to(&e, &mut Paper)) }
    call_isolate(y, t: MigrateType = MigrateType::Movable, r: Range<Pfn> = RANGE)
        -> Result<(), IsolateError> { y.isolate(r, t) }
    call_unisolate(y, t: MigrateType = MigrateType::Movable, r: Range<Pfn> = RANGE)
        -> Result<(), IsolateError> { y.unisolate(r, t) }
    call_alloc_contig(y, gfp: Gfp = Gfp::KERNEL, t: MigrateType = MigrateType::Movable, r: Range<Pfn> = RANGE)
        -> Result<(), ContigError> { y.alloc_contig(r, t, gfp) }
    call_free_contig(y, r: Range<Pfn> = RANGE)
        -> Result<(), BatchError> { y.free_contig(r) }
    call_alloc_contig_pages(y, n: u64 = 700, align: u64 = 64,
            t: MigrateType = MigrateType::Movable, gfp: Gfp = Gfp::KERNEL, r: Range<Pfn> = RANGE)
        -> Result<Pfn, ContigError> {
            y.alloc_contig_pages(n, align, r, t, gfp)
        }
    call_alloc_contig_pages_from(y, n: u64 = 700, align: u64 = 64,
            t: MigrateType = MigrateType::Movable, gfp: Gfp = Gfp::KERNEL, r: Range<Pfn> = RANGE)
        -> Result<u64, ContigError> {
            {
                let cursor = ContigCursor::new();
                y.alloc_contig_pages_from(&cursor, n, align, r, t, gfp)?;
                Ok(ContigCursor::pageblocks_looked_at(&cursor))
            }
        }
    call_epochs(_y, cpu: CpuId = CpuId(0)) -> bool {
        {
            let epochs: Epochs<3> = Epochs::new();
            let epoch = Epochs::begin(&epochs);
            let all = [Epochs::acknowledge(&epochs, cpu, || ()), Epochs::offline(&epochs, cpu),
                Epochs::online(&epochs, cpu, || ()), Epochs::has_passed(&epochs, epoch)];
            all.iter().all(|is| *is) && Epochs::lagging(&epochs, epoch).next().is_none()
        }
    }
    call_epochs_ref(_y, bits: &[AtomicU64] = &[const { AtomicU64::new(0) }; 16], cpu: CpuId = CpuId(0), n: u64 = 1)
        -> bool {
            {
                let now = AtomicU64::new(n);
                let epochs = EpochsRef::new(&now, bits);
                let epoch = Epoch::from_number(Epoch::number(EpochsRef::begin(epochs)) ^ n);
                let all = [EpochsRef::acknowledge(epochs, cpu, || ()), EpochsRef::offline(epochs, cpu),
                    EpochsRef::online(epochs, cpu, || ()), EpochsRef::has_passed(epochs, epoch)];
                all.iter().all(|is| *is) && EpochsRef::lagging(epochs, epoch).next().is_none()
            }
        }
    call_shootdown(y, room: &mut [(Pfn, Order)] = &mut [(Pfn(0), Order::ZERO); 9], pfn: Pfn = Pfn(7),
            order: Order = Order::ZERO)
        -> Result<usize, ShootdownError> {
            {
                let epochs: Epochs<0> = Epochs::new();
                let mut batch = ShootdownBatch::new(room);
                if let Ok(own) = y.alloc(order, Gfp::KERNEL) { ShootdownBatch::add(&mut batch, y, own, order)? }
                _ = ShootdownBatch::add(&mut batch, y, pfn, order);
                _ = ShootdownBatch::begin(&mut batch, &epochs);
                _ = ShootdownBatch::free(&mut batch, y, &epochs);
                ShootdownBatch::free(&mut batch, y, &epochs)?;
                Ok(ShootdownBatch::len(&batch) + usize::from(ShootdownBatch::is_empty(&batch)))
            }
        }
    call_resumed_shootdown(y, room: &mut [(Pfn, Order)] = &mut [(Pfn(0), Order::ZERO); 9], n: u64 = 7)
        -> Result<usize, ShootdownError> {
            {
                let epochs: Epochs<0> = Epochs::new();
                let mut batch = ShootdownBatch::resume(room, n as usize, Some(Epoch::from_number(n)));
                _ = ShootdownBatch::epoch(&batch);
                ShootdownBatch::free(&mut batch, y, &epochs)
            }
        }
    call_balloon(y, room: &mut [Lent] = &mut [Lent::NONE; 9], pfn: Pfn = Pfn(7), order: Order = Order::HUGE,
            gfp: Gfp = Gfp::KERNEL)
        -> Result<u64, BalloonError> {
            {
                let mut balloon = Balloon::new(room, order);
                _ = Balloon::lend(&mut balloon, y, gfp);
                _ = Balloon::lend(&mut balloon, y, gfp);
                if let Some(own) = Balloon::ask(&mut balloon) { Balloon::acknowledge(&mut balloon, y, own)? }
                Balloon::acknowledge(&mut balloon, y, pfn)?;
                let balloon = Balloon::resume(room, order);
                Ok(Balloon::pages(&balloon))
            }
        }
    call_alloc_range_or_scatter(y, ranges: &mut [Range<Pfn>] = &mut [const { Pfn(0)..Pfn(0) }; 9], n: u64 = 700,
            gfp: Gfp = Gfp::KERNEL)
        -> Result<usize, ScatterError> { y.alloc_range_or_scatter(n, gfp, ranges) }
    call_alloc_at(y, pfn: Pfn = Pfn(7), order: Order = Order::ZERO, gfp: Gfp = Gfp::KERNEL)
        -> Result<(), PlaceError> { y.alloc_at(pfn, order, gfp) }
    call_alloc_with(y, order: Order = Order::ZERO, place: Place = Place { align: 64, below: None },
            gfp: Gfp = Gfp::KERNEL)
        -> Result<Pfn, PlaceError> { y.alloc_with(order, gfp, place) }
    call_make_cma(y, r: Range<Pfn> = RANGE) -> Result<(), CmaError> { y.make_cma(r) }
    call_cma_area(y, bits: &[AtomicU64] = &[const { AtomicU64::new(0) }; 16], n: u64 = 70,
            align: u64 = 64, gfp: Gfp = Gfp::KERNEL, order: Order = Order::ZERO, r: Range<Pfn> = RANGE)
        -> Result<u64, CmaError> {
            {
                let area: CmaArea<'_, Lock> = CmaArea::new(y, r, order, bits)?;
                let pfn = CmaArea::alloc(&area, y, n, align, gfp)?;
                CmaArea::free(&area, y, pfn, n)?;
                Ok(CmaArea::stats(&area).alloc_success + CmaArea::range(&area).end.0)
            }
        }
    call_compact_for(y, order: Order = Order::HUGE, gfp: Gfp = Gfp::KERNEL,
            priority: Priority = Priority::SyncFull)
        -> Result<Compacted, AllocError> { y.compact_for(order, gfp, priority) }
    call_compact_zone(y, order: Option<Order> = Some(Order::HUGE), zone: ZoneId = ZONE,
            priority: Priority = Priority::SyncFull)
        -> Option<CompactResult> { y.compact_zone(zone, order, priority) }
    call_compact_node(y, node: NodeId = NodeId(0)) -> () { y.compact_node(node) }
    call_compact_all(y) -> () { y.compact_all() }
    call_could_compact(y, order: Order = Order::HUGE, pages: u64 = 7, kind: ZoneKind = KIND)
        -> bool { y.could_compact(order, kind, |_| pages) }
    call_request_compaction(y, order: Order = Order::HUGE, kind: ZoneKind = KIND, node: NodeId = NodeId(0))
        -> () { y.request_compaction(node, order, kind) }
    call_compact_background(y, node: NodeId = NodeId(0)) -> Background { y.compact_background(node) }
    call_trigger_proactive(y) -> () { y.trigger_proactive_compaction() }
    call_fragmentation_score(y, node: NodeId = NodeId(0)) -> u64 { y.fragmentation_score(node) }
    call_forget_skip_hints(y, node: NodeId = NodeId(0)) -> () { y.forget_skip_hints(node) }
    call_compact_stats(y) -> CompactStats { y.compact_stats() }
    call_deferral(y, zone: ZoneId = ZONE) -> Option<Deferral> { y.deferral(zone) }
    call_report_free_blocks(y) -> Option<u64> { y.report_free_blocks() }
    call_report_free_pages(y, least: Order = Order::ZERO, most: u64 = 7, zone: ZoneId = ZONE)
        -> u64 { y.report_free_pages(zone, least, most) }
    call_report_free_pieces(y, least: Order = Order::ZERO, most: u64 = 7) -> u64 {
        y.report_free_pieces(Pfn(0)..Pfn(u64::MAX), least, most, |_, _| true)
    }
    call_reported(y, zone: ZoneId = ZONE) -> bool { y.reported(zone).is_some() }
    call_take_lowest_free(y, zone: ZoneId = ZONE) -> Option<u64> { y.take_lowest_free(zone) }
    call_poison_frame(y, pfn: Pfn = Pfn(7))
        -> Result<Poisoned, PoisonError> { y.poison_frame(pfn) }
    call_unpoison_frame(y, pfn: Pfn = Pfn(7))
        -> Result<(), PoisonError> { y.unpoison_frame(pfn) }
    call_is_poisoned(y, pfn: Pfn = Pfn(7)) -> Option<bool> { y.is_poisoned(pfn) }
    call_out_of_use(y, zone: ZoneId = ZONE)
        -> bool { y.out_of_use(zone).is_some_and(|o| OutOfUse::pages(&o) > 0) }
    call_faults(_y, faults: &Faults = &Faults::new(FaultPlan::NONE), order: Order = Order::MAX,
            gfp: Gfp = Gfp::KERNEL)
        -> bool { Faults::hit(faults, order, gfp) }
    call_inspect(_y, bytes: &[u8] = &[poison::POISON_BYTE; 99])
        -> Option<poison::Corruption> { poison::inspect(bytes) }
    call_fill(_y, bytes: &mut [u8] = &mut [0; 99]) -> () { poison::fill(bytes) }

    // Functions that need no allocator.
    call_small(_y) -> Knobs { Knobs::small() }
    call_injected(_y, faults: &Faults = &Faults::new(FaultPlan::NONE)) -> u64 { Faults::injected(faults) }
    call_wrong_at_free(_y, page: PageState = PAGE) -> Option<BadPage> { PageState::wrong_at_free(&page) }
    call_wrong_at_alloc(_y, page: PageState = PAGE) -> Option<BadPage> { PageState::wrong_at_alloc(&page) }
    call_wrong_in_compound(_y, page: PageState = PAGE, head: Pfn = Pfn(7))
        -> Option<BadPage> { PageState::wrong_in_compound(&page, head) }
    call_words(_y, pages: u64 = 7, bit: Order = Order::ZERO) -> usize { CmaArea::<Lock>::words(pages, bit) }
    call_is_deferred(_y, d: &mut Deferral = &mut Deferral::default(), order: Order = Order::HUGE)
        -> bool { Deferral::is_deferred(d, order) }
    call_failed(_y, d: &mut Deferral = &mut Deferral::default(), order: Order = Order::HUGE)
        -> () { Deferral::failed(d, order) }
    call_succeeded(_y, d: &mut Deferral = &mut Deferral::default(), order: Order = Order::HUGE)
        -> () { Deferral::succeeded(d, order, true) }
    call_is_restarting(_y, d: &Deferral = &Deferral::default(), order: Order = Order::HUGE)
        -> bool { Deferral::is_restarting(d, order) }
    call_should_retry(_y, order: Order = Order::HUGE, result: CompactResult = CompactResult::Complete)
        -> bool {
            compact::should_retry(order, result, &mut RETRIES.clone(), || std::hint::black_box(true))
        }
    call_zone_score(_y, blocks: &[u64; 11] = &BLOCKS) -> u64 { compact::zone_score(blocks) }
    call_node_score(_y, zones: &[(u64, u64)] = &[(1, 2)])
        -> u64 { compact::node_score(zones.iter().copied()) }
    call_stop_at(_y, proactiveness: u64 = 20) -> u64 { compact::stop_at(proactiveness) }
    call_start_above(_y, proactiveness: u64 = 20) -> u64 { compact::start_above(proactiveness) }
    call_contig_errno(_y, e: ContigError = ContigError::Busy(Pfn(7))) -> i32 { ContigError::errno(e) }
    call_isolate_errno(_y, e: IsolateError = IsolateError::EmptyRange) -> i32 { IsolateError::errno(e) }
    call_highest_zone(_y, gfp: Gfp = Gfp::KERNEL) -> Option<ZoneKind> { Gfp::highest_zone(gfp) }
    call_migrate_type(_y, gfp: Gfp = Gfp::KERNEL) -> Option<MigrateType> { Gfp::migrate_type(gfp) }
    call_reason_name(_y, reason: HighReason = HighReason::Free) -> &'static str { HighReason::name(reason) }
    call_as_str(y, name: &str = "what") -> usize {
        match y.knob(name, &mut Paper) {
            Err(KnobError::Unknown { name }) => Excerpt::as_str(&name).len(),
            _ => 0,
        }
    }
    call_knob_error(y, name: &str = "what") -> fmt::Result {
        y.knob(name, &mut Paper).or_else(|e| write!(Paper, "{e}"))
    }
    call_named(_y, name: &str = "lowmem_reserve_ratio") -> bool { Knob::named(name).is_some() }
    call_knobs_set(_y, name: &str = "lowmem_reserve_ratio", value: &str = " 256 1\n")
        -> Result<(), KnobError> { Knobs::set(&mut Knobs::default(), name, value) }
    call_check(_y, knobs: Knobs = Knobs::default()) -> Result<(), KnobError> { Knobs::check(&knobs) }
    call_stat_threshold(_y, cpus: u32 = 7, managed: u64 = 7)
        -> u32 { pageyard::stat_threshold(cpus, managed) }
    call_needs(_y, layout: &Layout<'_> = &layout())
        -> Result<Needs, InitError> { Layout::needs::<Lock>(layout) }
    call_needs_on(_y, layout: &Layout<'_> = &layout(), engine: policy::Engine = policy::Engine::Packed)
        -> Result<Needs, InitError> { Layout::needs_on::<Lock>(layout, engine) }
    call_yard_needs(_y, needs: &Needs = &NEEDS)
        -> usize { pageyard::packed::YardNeeds::get(&needs.packed).blocks }
    call_add_packed(_y, needs: &Needs = &NEEDS, start: Pfn = Pfn(0), end: Pfn = Pfn(7), cpus: usize = 7)
        -> bool { Needs::add_packed(&mut { *needs }, &(start..end), cpus).is_ok() }
    call_needs_metadata(_y, needs: &Needs = &NEEDS)
        -> bool { Needs::metadata::<Lock>(needs).is_ok() }
    call_metadata(_y, layout: &Layout<'_> = &layout())
        -> bool { Layout::metadata::<Lock>(layout).is_ok() }
    call_only(_y, node: NodeId = NodeId(7)) -> NodeMask { NodeMask::only(node) }
    call_contains(_y, mask: NodeMask = NodeMask(7), node: NodeId = NodeId(7))
        -> bool { NodeMask::contains(mask, node) }
    call_with(_y, mask: NodeMask = NodeMask(7), node: NodeId = NodeId(7))
        -> NodeMask { NodeMask::with(mask, node) }
    call_and(_y, mask: NodeMask = NodeMask(7), other: NodeMask = NodeMask(9))
        -> NodeMask { NodeMask::and(mask, other) }
    call_is_empty(_y, mask: NodeMask = NodeMask(7)) -> bool { NodeMask::is_empty(mask) }
    call_mask_iter(_y, mask: NodeMask = NodeMask(7)) -> usize { NodeMask::iter(mask).count() }
    call_next(_y, turns: &Interleave = &Interleave::new(NodeMask(7)))
        -> Option<NodeId> { Interleave::next(turns) }
    call_checks_pages(y) -> bool { Safety::checks_pages(&y.policy().rules().safety) }
    call_blocks(_y, counts: &BlockCounts = &BlockCounts::default()) -> u64 { BlockCounts::blocks(counts) }
    call_pages(_y, counts: &BlockCounts = &BlockCounts::default()) -> u64 { BlockCounts::pages(counts) }
    call_all_drains(_y, stats: &CpuStats = &CpuStats::default()) -> u64 { CpuStats::all_drains(stats) }
    call_all_drained_pages(_y, stats: &CpuStats = &CpuStats::default())
        -> u64 { CpuStats::all_drained_pages(stats) }
    call_cached_pages(_y, stats: &CpuStats = &CpuStats::default()) -> i64 { CpuStats::cached_pages(stats) }
    call_hits(_y, stats: &CpuStats = &CpuStats::default()) -> u64 { CpuStats::hits(stats) }
    call_since(_y, stats: &CpuStats = &CpuStats::default()) -> CpuStats { CpuStats::since(stats, stats) }
    call_add(_y, stats: &mut CpuStats = &mut CpuStats::default(), more: &CpuStats = &CpuStats::default())
        -> () { CpuStats::add(stats, more) }
    call_clamp(_y, v: i32 = 7, lo: i32 = 1, hi: i32 = 9) -> i32 { tuning::clamp(v, lo, hi) }
    call_of_zone(y, managed: u64 = 7, low: u64 = 7, cpus: u32 = 7, fraction: u32 = 7)
        -> Limits { Limits::of_zone(&y.policy().rules().pcp, managed, low, cpus, fraction) }
    call_fixed(_y, limits: Limits = Limits::default()) -> Limits { Limits::fixed(limits) }
    call_batch(_y, managed: u64 = 7) -> i32 { tuning::batch(managed) }
    call_high_size(_y, managed: u64 = 7, low: u64 = 7, cpus: u32 = 7, fraction: u32 = 7, batch: i32 = 7)
        -> i32 { tuning::high_size(managed, low, cpus, fraction, batch) }
    call_keeps_batch(y, slice: CacheSlice = CacheSlice::default(), batch: i32 = 7)
        -> bool { tuning::keeps_batch(&y.policy().rules().pcp, slice, batch) }
    call_note_alloc(y, t: &mut Tuning = &mut Tuning::default())
        -> () { Tuning::note_alloc(t, &y.policy().rules().pcp) }
    call_note_taken(y, t: &mut Tuning = &mut Tuning::default(), order: Order = Order::HUGE)
        -> () { Tuning::note_taken(t, &y.policy().rules().pcp, order.get()) }
    call_nr_alloc(y, t: &mut Tuning = &mut Tuning::default(), order: Order = Order::HUGE,
            zone: Pressure = Pressure::default())
        -> i32 { Tuning::nr_alloc(t, &y.policy().rules().pcp, order.get(), zone) }
    call_note_free(y, t: &mut Tuning = &mut Tuning::default(), order: Order = Order::HUGE)
        -> bool { Tuning::note_free(t, &y.policy().rules().pcp, order.get()) }
    call_room(y, t: &Tuning = &Tuning::default()) -> Room { Tuning::room(t, &y.policy().rules().pcp) }
    call_free_quietly(y, t: &mut Tuning = &mut Tuning::default(), order: Order = Order::HUGE, room: Room = Room::default())
        -> bool { Tuning::free_quietly(t, &y.policy().rules().pcp, order.get(), room) }
    call_nr_high(y, t: &mut Tuning = &mut Tuning::default(), free_high: bool = true,
            zone: Pressure = Pressure::default())
        -> i32 { Tuning::nr_high(t, &y.policy().rules().pcp, free_high, zone) }
    call_nr_free(y, t: &mut Tuning = &mut Tuning::default(), high: i32 = 7, free_high: bool = true)
        -> i32 { Tuning::nr_free(t, &y.policy().rules().pcp, high, free_high) }
    call_decay(y, t: &mut Tuning = &mut Tuning::default()) -> i32 { Tuning::decay(t, &y.policy().rules().pcp) }
    call_address(_y, pfn: Pfn = Pfn(7)) -> u64 { Pfn::address(pfn) }
    call_containing(_y, address: u64 = 7) -> Pfn { Pfn::containing(address) }
    call_from_address(_y, address: u64 = 7) -> Option<Pfn> { Pfn::from_address(address) }
    call_for_bytes(_y, bytes: u64 = 7) -> Option<Order> { Order::for_bytes(bytes) }
    call_order_new(_y, order: u8 = 7) -> Option<Order> { Order::new(order) }
    call_holding(_y, pages: u64 = 7) -> Option<Order> { Order::holding(pages) }
    call_order_get(_y, order: Order = Order::HUGE) -> u8 { Order::get(order) }
    call_order_pages(_y, order: Order = Order::HUGE) -> u32 { Order::pages(order) }
    call_is_mergeable(_y, t: MigrateType = MigrateType::Movable) -> bool { MigrateType::is_mergeable(t) }
    call_alloc_error_bits(_y, bits: u64 = 4) -> u64 { AllocError::to_bits(AllocError::from_bits(bits)) }
    call_from_number(_y, n: u8 = 7) -> Option<MigrateType> { MigrateType::from_number(n) }
    call_type_name(_y, t: MigrateType = MigrateType::Movable) -> &'static str { MigrateType::name(t) }
    call_kind_name(_y, kind: ZoneKind = KIND) -> &'static str { ZoneKind::name(kind) }
    call_pgalloc(_y, zone: ZoneKind = KIND) -> VmEvent { VmEvent::pgalloc(zone) }
    call_allocstall(_y, highest: ZoneKind = KIND) -> VmEvent { VmEvent::allocstall(highest) }
    call_pgskip(_y, zone: ZoneKind = KIND) -> VmEvent { VmEvent::pgskip(zone) }
    call_event_name(_y, event: VmEvent = VmEvent::OomKill) -> &'static str { VmEvent::name(event) }
    call_event_get(y, event: VmEvent = VmEvent::OomKill) -> u64 { VmEvents::get(&y.vm_events(), event) }
    call_event_iter(y) -> u64 { VmEvents::iter(&y.vm_events()).map(|(_, n)| n).fold(0, u64::wrapping_add) }
    call_min_free_kbytes(_y, lowmem_kb: u64 = 7) -> u64 { watermark::min_free_kbytes(lowmem_kb) }
    call_huge_page_floor(_y, zones: u64 = 7, pages: u64 = 7)
        -> u64 { watermark::huge_page_floor(zones, pages) }
    call_zone_marks(_y, kind: ZoneKind = KIND, managed: u64 = 7, lowmem: u64 = 7, kbytes: u64 = 7,
            scale: u64 = 7)
        -> [u64; 4] { watermark::zone_marks(kind, managed, lowmem, kbytes, scale) }
    call_boost_cap(_y, managed: u64 = 7, high: u64 = 7, factor: u64 = 7)
        -> Option<u64> { watermark::boost_cap(managed, high, factor) }
    call_lowmem_reserve(_y, i: usize = 7, managed: &[u64; 5] = &[7; 5], ratio: &[u64; 5] = &[7; 5])
        -> [u64; 5] { watermark::lowmem_reserve(i, managed, ratio) }
    call_highatomic_cap(_y, managed: u64 = 7) -> u64 { watermark::highatomic_cap(managed) }
    call_unusable(_y, blocks: &[u64; 11] = &BLOCKS, order: Order = Order::HUGE)
        -> u32 { pageyard::unusable_index(blocks, order) }
    call_fragmentation(_y, blocks: &[u64; 11] = &BLOCKS, order: Order = Order::HUGE)
        -> i32 { pageyard::fragmentation_index(blocks, order) }
}
