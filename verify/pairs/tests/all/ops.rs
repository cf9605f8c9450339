//! The operations: each public function of the yard, as used by a caller that owns pages.

use std::sync::atomic::Ordering::Relaxed;

use pageyard::compact::Priority;
use pageyard::policy::StaticPolicy;
use pageyard::tuning::{CacheSlice, Limits};
use pageyard::{
    ContigCursor, CpuId, Gfp, Interleave, KNOBS, Mark, MigrateType, NodeId, NodeMask, Order, Pfn,
    Place, Poisoned, ReclaimTask, SECTION_PAGES, VmEvent, ZoneKind,
};

use crate::common::o;
use crate::states::{OTHER, RESERVED};
use crate::world::{Block, Hand};

type Setup<P> = fn(&Hand<'_, '_, P>) -> bool;
type Run<P> = fn(&Hand<'_, '_, P>);

/// A named operation.
pub(crate) struct Op<P: StaticPolicy> {
    pub(crate) name: &'static str,
    /// What the actor does before any actor begins. Returns `false` if the operation does not
    /// apply.
    pub(crate) setup: Setup<P>,
    pub(crate) run: Run<P>,
}

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const AS_MOVABLE: MigrateType = MigrateType::Movable;

/// The frame used by operations on single frames.
const FRAME: u64 = 1300;

fn op<P: StaticPolicy>(name: &'static str, run: Run<P>) -> Op<P> {
    Op { name, setup: |_| true, run }
}

fn after<P: StaticPolicy>(name: &'static str, setup: Setup<P>, run: Run<P>) -> Op<P> {
    Op { name, setup, run }
}

/// Returns all operations.
pub(crate) fn ops<P: StaticPolicy>() -> Vec<Op<P>> {
    let groups = [requests(), frees(), lists(), settings(), ranges(), upkeep(), readers()];
    groups.into_iter().flatten().collect()
}

fn requests<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("alloc-0", |h| _ = h.alloc(0, Gfp::KERNEL)),
        op("alloc-0-movable", |h| _ = h.alloc(0, MOVABLE)),
        op("alloc-0-reserves", |h| _ = h.alloc(0, Gfp::ATOMIC | Gfp::MEMALLOC)),
        op("alloc-0-nofail", |h| _ = h.alloc(0, Gfp::KERNEL | Gfp::NOFAIL)),
        op("alloc-3-atomic", |h| _ = h.alloc(3, Gfp::ATOMIC)),
        op("alloc-4", |h| _ = h.alloc(4, Gfp::KERNEL | Gfp::RECLAIMABLE)),
        op("alloc-9-movable", |h| _ = h.alloc(9, MOVABLE)),
        op("alloc-10", |h| _ = h.alloc(10, Gfp::KERNEL)),
        op("alloc-many", |h| (0..70).for_each(|_| _ = h.alloc(0, Gfp::KERNEL))),
        op("alloc-on", |h| {
            let last = NodeId(h.y.nodes() as u16 - 1);
            h.take(0, MOVABLE | Gfp::THISNODE, |order, gfp| h.y.alloc_on(last, order, gfp));
        }),
        op("alloc-interleaved", |h| {
            let turns = Interleave::new(NodeMask::ALL);
            (0..2).for_each(|_| {
                h.take(0, MOVABLE, |order, gfp| h.y.alloc_interleaved(&turns, order, gfp));
            });
        }),
        op("alloc-preferring", |h| {
            let last = NodeMask::only(NodeId(h.y.nodes() as u16 - 1));
            h.take(3, Gfp::KERNEL, |order, gfp| h.y.alloc_preferring(last, order, gfp));
        }),
        op("try-alloc", |h| _ = h.take(0, MOVABLE, |order, gfp| h.y.try_alloc(order, gfp))),
        op("try-alloc-on", |h| {
            let last = NodeId(h.y.nodes() as u16 - 1);
            h.take(3, Gfp::KERNEL, |order, gfp| h.y.try_alloc_on(last, order, gfp));
        }),
        op("alloc-bulk", |h| {
            let since = h.world().poisonings();
            let mut slots = [None; 9];
            _ = h.y.alloc_bulk(Gfp::KERNEL, &mut slots);
            slots.into_iter().for_each(|pfn| _ = h.own(pfn, 0, Gfp::KERNEL, since));
        }),
        op("alloc-bulk-on", |h| {
            let since = h.world().poisonings();
            let mut slots = [None; 3];
            _ = h.y.alloc_bulk_on(NodeId(0), MOVABLE, &mut slots);
            slots.into_iter().for_each(|pfn| _ = h.own(pfn, 0, MOVABLE, since));
        }),
        op("alloc-bulk-each", |h| {
            let since = h.world().poisonings();
            _ = h.y.alloc_bulk_each(70, MOVABLE, |pfn| _ = h.own(Some(pfn), 0, MOVABLE, since));
        }),
        op("alloc-bulk-each-on", |h| {
            let (since, gfp) = (h.world().poisonings(), Gfp::KERNEL);
            let each = |pfn| _ = h.own(Some(pfn), 0, gfp, since);
            _ = h.y.alloc_bulk_each_on(NodeId(0), 3, gfp, each);
        }),
        op("alloc-at", |h| {
            let pfn = h.frames(FRAME..FRAME + 4).start;
            h.take(2, MOVABLE, |order, gfp| h.y.alloc_at(pfn, order, gfp).map(|()| pfn));
        }),
        op("alloc-at-10", |h| {
            let pfn = h.blocks(2..4).start;
            h.take(10, Gfp::KERNEL, |order, gfp| h.y.alloc_at(pfn, order, gfp).map(|()| pfn));
        }),
        op("alloc-scatter", |h| {
            let since = h.world().poisonings();
            let mut ranges = [const { Pfn(0)..Pfn(0) }; 40];
            let n = h.y.alloc_range_or_scatter(300, MOVABLE, &mut ranges).unwrap_or(0);
            ranges.into_iter().take(n).for_each(|range| h.own_range(range, since));
        }),
        op("alloc-with", |h| {
            let place = Place { align: 1024, below: Some(h.blocks(0..6).end) };
            h.take(1, Gfp::KERNEL, |order, gfp| h.y.alloc_with(order, gfp, place));
        }),
    ]
}

/// Allocates two single pages and a block of order 4, to be freed.
fn three<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> bool {
    h.alloc(0, Gfp::KERNEL) && h.alloc(0, MOVABLE) && h.alloc(4, Gfp::KERNEL)
}

fn batch<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> Vec<(Pfn, Order)> {
    std::iter::from_fn(|| h.lift_any()).collect()
}

fn frees<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        after("free-0", |h| h.alloc(0, Gfp::KERNEL), |h| h.free(0)),
        after("free-4", |h| h.alloc(4, MOVABLE), |h| h.free(4)),
        after("free-9", |h| h.alloc(9, MOVABLE), |h| h.free(9)),
        after(
            "free-many",
            |h| (0..90).filter(|_| h.alloc(0, MOVABLE)).count() > 20,
            |h| while h.with(0, "free", |p, order| h.y.free(p, order)).is_some() {},
        ),
        after(
            "free-owned",
            |h| h.alloc(0, MOVABLE),
            |h| {
                h.with(0, "free_owned", |p, order| h.y.free_owned(p, order));
            },
        ),
        after(
            "free-direct",
            |h| h.alloc(0, MOVABLE),
            |h| {
                h.with(0, "free_direct", |p, order| h.y.free_direct(p, order));
            },
        ),
        after(
            "free-nowait",
            |h| h.alloc(0, Gfp::KERNEL) && h.alloc(9, MOVABLE),
            |h| {
                for order in [0, 9] {
                    h.with(order, "free_nowait", |p, order| h.y.free_nowait(p, order));
                }
            },
        ),
        after("free-batch", three, |h| {
            if let Err(e) = h.y.free_batch(&batch(h)) {
                h.complain(format!("free_batch was refused: {e}"));
            }
        }),
        after(
            "free-batch-of",
            |h| h.alloc(0, MOVABLE) && h.alloc(0, Gfp::KERNEL),
            |h| {
                let all: Vec<Pfn> = batch(h).into_iter().map(|(pfn, _)| pfn).collect();
                if let Err(e) = h.y.free_batch_of(Order::ZERO, &all) {
                    h.complain(format!("free_batch_of was refused: {e}"));
                }
            },
        ),
        after("free-batch-owned", three, |h| {
            if let Err(e) = h.y.free_batch_owned(&batch(h)) {
                h.complain(format!("free_batch_owned was refused: {e}"));
            }
        }),
        after(
            "free-shared",
            |h| h.alloc(3, MOVABLE),
            |h| {
                if let Some(pfn) = h.with(3, "free_shared", |p, order| h.y.free_shared(p, order)) {
                    let first = Block { order: Order::ZERO, owner: h.me, movable: true };
                    h.world().own(pfn, first, 0);
                }
            },
        ),
        // All actors with one of these operations free the same block: exactly one must succeed.
        after("free-same", same, |h| free_same(h, |p, order| h.y.free(p, order).is_ok())),
        after("free-same-nowait", same, |h| {
            free_same(h, |p, order| h.y.free_nowait(p, order).is_ok());
        }),
        after("free-same-direct", same, |h| {
            free_same(h, |p, order| h.y.free_direct(p, order).is_ok());
        }),
        after("free-same-batch", same, |h| {
            free_same(h, |p, order| h.y.free_batch(&[(p, order)]).is_ok());
        }),
        after(
            "split",
            |h| h.alloc(3, MOVABLE),
            |h| {
                let pfn = h.with(3, "split", |p, order| h.y.split(p, order, Order::ZERO));
                let part = Block { order: Order::ZERO, owner: h.me, movable: true };
                for pfn in pfn.iter().flat_map(|p| p.0..p.0 + 8).map(Pfn) {
                    h.world().own(pfn, part, 0);
                }
            },
        ),
        after(
            "set-movable",
            |h| h.alloc(3, Gfp::KERNEL),
            |h| {
                let set = |p, order| h.y.set_movable(p, order, true);
                if let Some(pfn) = h.with(3, "set_movable", set) {
                    let block = Block { order: o(3), owner: h.me, movable: true };
                    h.world().own(pfn, block, 0);
                }
            },
        ),
        after(
            "pfmemalloc",
            |h| h.alloc(0, Gfp::KERNEL | Gfp::MEMALLOC),
            |h| {
                if let Some((pfn, order)) = h.lift(0) {
                    _ = h.y.is_pfmemalloc(pfn);
                    h.world().own(pfn, Block { order, owner: h.me, movable: false }, 0);
                }
            },
        ),
    ]
}

/// Allocates the block that several actors free.
fn same<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> bool {
    if h.world().table().same.is_none() {
        let got = h.y.alloc(Order::ZERO, Gfp::KERNEL).ok();
        h.world().table().same = got.map(|pfn| (pfn, Order::ZERO));
    }
    h.world().table().same.is_some()
}

fn free_same<P: StaticPolicy>(h: &Hand<'_, '_, P>, way: impl FnOnce(Pfn, Order) -> bool) {
    let same = h.world().table().same;
    if same.is_some_and(|(pfn, order)| way(pfn, order)) {
        h.world().table().same_freed += 1;
    }
}

fn lists<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("tick", |h| _ = h.y.tick(CpuId(h.me as u32))),
        op("fold", |h| h.y.fold(CpuId(h.me as u32))),
        op("drain-own", |h| h.y.drain_cpu(CpuId(h.me as u32), None)),
        op("drain-other", |h| h.y.drain_cpu(OTHER, None)),
        op("drain-all", |h| h.y.drain_all(None)),
        op("drain-zone", |h| h.y.drain_all(Some(h.zone()))),
        op("disable-pcp", |h| {
            let guard = h.y.disable_pcp(h.zone());
            if h.alloc(0, MOVABLE) {
                h.free(0);
            }
            drop(guard);
        }),
        op("cache-slice", |h| {
            let slice = CacheSlice { last_level: 1 << 22, all_levels: 1 << 22 };
            h.y.set_cache_slice(OTHER, slice);
        }),
        op("free-high-batch", |h| _ = h.y.set_free_high_batch(h.zone(), OTHER, true)),
        op("cpu-dead", |h| _ = h.y.cpu_dead(OTHER)),
        after("cpu-up", |h| h.y.cpu_dead(OTHER), |h| _ = h.y.cpu_up(OTHER)),
    ]
}

fn settings<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("pcp-limits", |h| {
            h.y.set_pcp_limits(h.zone(), Limits { batch: 7, high_min: 14, high_max: 90 });
        }),
        op("pcp-autotune", |h| h.y.set_pcp_autotune(false)),
        op("high-fraction", |h| _ = h.y.set_percpu_pagelist_high_fraction(8)),
        op("min-free", |h| _ = h.y.set_min_free_kbytes(400)),
        op("min-free-none", |h| _ = h.y.set_min_free_kbytes(0)),
        op("scale-factor", |h| _ = h.y.set_watermark_scale_factor(200)),
        op("boost-factor", |h| _ = h.y.set_watermark_boost_factor(30_000)),
        op("lowmem-ratio", |h| h.y.set_lowmem_reserve_ratio([9; 5])),
        op("knob-numa", |h| _ = h.y.set_knob("numa_stat", "0")),
        op("knob-compact", |h| _ = h.y.set_knob("compact_memory", "1")),
    ]
}

fn ranges<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("isolate", |h| isolate(h, 2..4)),
        after("unisolate", isolated, |h| {
            let mine = h.blocks(1..3);
            h.world().table().isolated.retain(|r| *r != mine);
            if let Err(e) = h.y.unisolate(mine, AS_MOVABLE) {
                h.complain(format!("unisolate was refused: {e}"));
            }
        }),
        op("contig", |h| _ = contig(h, 600, 1400, Gfp::KERNEL)),
        op("contig-block", |h| {
            let pfn = h.blocks(2..3).start;
            let whole = |order: Order, gfp| {
                let range = pfn..Pfn(pfn.0 + u64::from(order.pages()));
                let ask = || h.y.alloc_contig(range, MigrateType::Unmovable, gfp);
                h.world().range(ask).map(|()| pfn)
            };
            h.take(9, Gfp::KERNEL | Gfp::COMP, whole);
        }),
        op("contig-pages", |h| {
            let (since, within) = (h.world().poisonings(), h.blocks(0..8));
            let ask = || h.y.alloc_contig_pages(700, 128, within, AS_MOVABLE, Gfp::KERNEL);
            let got = h.world().range(ask);
            if let Ok(pfn) = got {
                h.own_range(pfn..Pfn(pfn.0 + 700), since);
            }
        }),
        op("contig-pages-from", |h| {
            let (since, within) = (h.world().poisonings(), h.blocks(0..8));
            let cursor = ContigCursor::new();
            for _ in 0..2 {
                let ask = || {
                    let all = within.clone();
                    h.y.alloc_contig_pages_from(&cursor, 700, 128, all, AS_MOVABLE, Gfp::KERNEL)
                };
                if let Ok(pfn) = h.world().range(ask) {
                    h.own_range(pfn..Pfn(pfn.0 + 700), since);
                }
            }
        }),
        after(
            "free-contig",
            |h| contig(h, 1600, 1800, Gfp::KERNEL),
            |h| {
                let mine = h.frames(1600..1800);
                (mine.start.0..mine.end.0).for_each(|p| _ = h.world().disown(Pfn(p)));
                if let Err(e) = h.y.free_contig(mine) {
                    h.complain(format!("free_contig was refused: {e}"));
                }
            },
        ),
        op("make-cma", |h| {
            let range = h.blocks(1..3);
            if h.world().range(|| h.y.make_cma(range.clone())).is_ok() {
                let types = h.types(range);
                if types.iter().any(|&t| t != Some(MigrateType::Cma)) {
                    h.complain(format!("make_cma answers Ok, and the pageblocks are {types:?}"));
                }
            }
        }),
        after("cma-alloc", |h| h.area.is_some(), |h| _ = cma(h)),
        after("cma-free", cma, |h| {
            let Some(area) = h.area else { return };
            let Some(pfn) = h.mine() else { return };
            (pfn..pfn + 600).for_each(|p| _ = h.world().disown(Pfn(p)));
            if let Err(e) = area.free(h.y, Pfn(pfn), 600) {
                h.complain(format!("CmaArea::free was refused: {e}"));
            }
            _ = (area.stats(), area.range());
        }),
        op("release", |h| {
            // Of frames that are not reserved, or not any more, nothing changes.
            _ = h.y.release(Pfn(RESERVED.start)..Pfn(RESERVED.start + 600));
        }),
        after(
            "online",
            |h| h.base >= SECTION_PAGES,
            |h| {
                _ = h.y.online(Pfn(SECTION_PAGES)..Pfn(2 * SECTION_PAGES));
            },
        ),
        after(
            "offline",
            |h| h.base >= SECTION_PAGES,
            |h| {
                let section = Pfn(SECTION_PAGES)..Pfn(2 * SECTION_PAGES);
                if h.y.offline(section.clone()).is_ok() {
                    let t = h.world().table();
                    let used =
                        t.blocks.range(section.start.0..section.end.0).next().map(|(&p, _)| p);
                    drop(t);
                    if let Some(p) = used.filter(|&p| !h.is_memory(p)) {
                        h.complain(format!("{p:#x} is in use, and its section has gone"));
                    }
                }
            },
        ),
        op("poison", |h| poison(h, h.base + FRAME)),
        after(
            "poison-used",
            |h| h.alloc(0, MOVABLE),
            |h| {
                h.mine().into_iter().for_each(|p| poison(h, p));
            },
        ),
        // A page that was just freed is on this CPU's list.
        after(
            "poison-cached",
            |h| h.alloc(0, MOVABLE),
            |h| {
                if let Some(pfn) = h.with(0, "free", |p, order| h.y.free(p, order)) {
                    poison(h, pfn.0);
                }
            },
        ),
        after("free-poisoned", alloc_poisoned, |h| h.free(0)),
        after("free-poisoned-alloc", alloc_poisoned, |h| {
            h.free(0);
            h.alloc(0, MOVABLE);
        }),
        // The block that the other actor frees, or has freed.
        after("poison-same", same, |h| {
            let same = h.world().table().same;
            same.into_iter().for_each(|(pfn, _)| poison(h, pfn.0));
        }),
        // A frame of a block that the other actor has poisoned, and is about to free.
        op("unpoison-used", |h| {
            let last = h.world().table().poisoned.pop_last();
            if let Some((frame, _)) = last
                && let Err(e) = h.y.unpoison_frame(Pfn(frame))
            {
                h.complain(format!("unpoison_frame was refused: {e}"));
            }
        }),
        after(
            "unpoison",
            |h| {
                poison(h, h.base + FRAME + 1);
                h.world().table().poisoned.contains_key(&(h.base + FRAME + 1))
            },
            |h| {
                let frame = h.base + FRAME + 1;
                if h.world().table().poisoned.remove(&frame).is_some()
                    && let Err(e) = h.y.unpoison_frame(Pfn(frame))
                {
                    h.complain(format!("unpoison_frame was refused: {e}"));
                }
            },
        ),
    ]
}

fn isolate<P: StaticPolicy>(h: &Hand<'_, '_, P>, blocks: std::ops::Range<u64>) {
    let (since, range) = (h.world().ranges(), h.blocks(blocks));
    if h.y.isolate(range.clone(), AS_MOVABLE).is_ok() {
        let types = h.types(range.clone());
        if since == h.world().ranges() && types.iter().any(|&t| t != Some(MigrateType::Isolate)) {
            h.complain(format!("isolate answers Ok, and the pageblocks are {types:?}"));
        }
        h.world().table().isolated.push(range);
    }
}

fn isolated<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> bool {
    isolate(h, 1..3);
    h.world().table().isolated.contains(&h.blocks(1..3))
}

fn contig<P: StaticPolicy>(h: &Hand<'_, '_, P>, from: u64, to: u64, gfp: Gfp) -> bool {
    let (since, range) = (h.world().poisonings(), h.frames(from..to));
    let taken = h.world().range(|| h.y.alloc_contig(range.clone(), AS_MOVABLE, gfp)).is_ok();
    if taken {
        h.own_range(range, since);
    }
    taken
}

fn cma<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> bool {
    let Some(area) = h.area else { return false };
    let since = h.world().poisonings();
    let got = h.world().range(|| area.alloc(h.y, 600, 1, Gfp::KERNEL));
    if let Ok(pfn) = &got {
        h.own_range(*pfn..Pfn(pfn.0 + 600), since);
    }
    got.is_ok()
}

fn poison<P: StaticPolicy>(h: &Hand<'_, '_, P>, frame: u64) {
    if let Ok(Poisoned::Removed | Poisoned::WhenFreed) = h.y.poison_frame(Pfn(frame)) {
        h.world().poisoned(Pfn(frame));
    }
}

/// Allocates a page whose frame is then marked as faulty.
fn alloc_poisoned<P: StaticPolicy>(h: &Hand<'_, '_, P>) -> bool {
    let taken = h.alloc(0, MOVABLE);
    h.mine().into_iter().for_each(|p| poison(h, p));
    taken
}

fn upkeep<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("compact-for", |h| {
            let since = h.world().poisonings();
            if let Ok(done) = h.y.compact_for(o(9), MOVABLE, Priority::SyncFull) {
                h.own(done.captured, 9, MOVABLE, since);
            }
        }),
        op("compact-zone", |h| _ = h.y.compact_zone(h.zone(), None, Priority::SyncLight)),
        op("compact-node", |h| h.y.compact_node(NodeId(0))),
        op("compact-all", |h| h.y.compact_all()),
        op("compact-background", |h| {
            h.y.request_compaction(NodeId(0), o(9), ZoneKind::Movable);
            _ = h.y.compact_background(NodeId(0));
        }),
        op("compact-proactive", |h| {
            h.y.trigger_proactive_compaction();
            _ = h.y.compact_background(NodeId(0));
            h.y.forget_skip_hints(NodeId(0));
        }),
        op("kswapd", |h| {
            let Some(mut kswapd) = h.y.kswapd(NodeId(0)) else { return };
            let mut freed = 0;
            for _ in 0..20 {
                match kswapd.next(freed) {
                    ReclaimTask::Reclaim(_) => freed = h.world().reclaim_one(),
                    ReclaimTask::Nap(_) => freed = 0,
                    ReclaimTask::Sleep => return,
                }
            }
        }),
        op("reclaim-active", |h| {
            h.y.set_reclaim_active(h.zone(), true);
            _ = h.alloc(0, Gfp::KERNEL);
            h.y.set_reclaim_active(h.zone(), false);
        }),
        op("lower-boost", |h| _ = h.y.lower_boost(h.zone(), 512)),
        op("unreserve", |h| _ = h.y.unreserve_highatomic(AS_MOVABLE, true)),
        op("report-blocks", |h| (0..3).for_each(|_| _ = h.y.report_free_blocks())),
        op("report-poisoned", |h| {
            h.world().poisons_reported.store(true, Relaxed);
            _ = h.y.report_free_blocks();
            h.world().poisons_reported.store(false, Relaxed);
        }),
        op("report-pages", |h| _ = h.y.report_free_pages(h.zone(), o(5), 3000)),
        op("report-pieces", |h| {
            _ = h.y.report_free_pieces(Pfn(0)..Pfn(u64::MAX), o(1), u64::MAX, |_, _| true);
        }),
        op("lowest-free", |h| _ = h.y.take_lowest_free(h.zone())),
        op("init-section", |h| _ = h.y.init_section(NodeId(0))),
        op("finish-deferred", |h| _ = h.y.finish_deferred()),
    ]
}

/// These operations may read an intermediate state, but must change nothing.
fn readers<P: StaticPolicy>() -> Vec<Op<P>> {
    vec![
        op("validate", |h| _ = h.y.validate()),
        op("snapshot", |h| _ = h.y.snapshot(h.zone(), |_| {})),
        op("texts", |h| {
            // The queries from which `pageyard-report` writes the kernel's texts.
            let (y, zone) = (h.y, h.zone());
            _ = (y.is_populated(zone), y.supply(zone), y.numa_stats(zone));
            _ = (y.block_supply(zone), y.stat_threshold(zone, OTHER), y.is_hopeless(NodeId(0)));
            for t in MigrateType::ALL {
                _ = y.count_free_list(zone, o(0), t, 7);
            }
            let mut text = String::new();
            KNOBS.iter().for_each(|knob| _ = y.knob(knob.name, &mut text));
        }),
        op("figures", |h| {
            let (y, zone) = (h.y, h.zone());
            y.count_event(VmEvent::PgFree, 0);
            _ = (y.vm_event(VmEvent::PgFree), y.zone_totals(zone));
            _ = (y.vm_events(), y.compact_stats(), y.deferral(zone), y.total_reserve());
            _ = (y.zone_info(zone), y.zone_stats(zone), y.reported(zone), y.out_of_use(zone));
            _ = (y.free_blocks(zone), y.free_blocks_by_type(zone), y.pageblocks(zone));
            _ = (y.unusable_index(zone, o(4)), y.fragmentation_score(NodeId(0)));
            _ = (y.pageset(zone, OTHER), y.cpu_stats(zone, OTHER), y.above_low(zone));
            _ = (y.depot_pages(zone), y.magazine_counts(zone, OTHER));
            _ = (
                y.node_of(OTHER),
                y.is_up(OTHER),
                (y.cpus(), y.cpus_up()),
                y.knobs(),
                y.passes(zone, Mark::Low, o(3), ZoneKind::Normal),
            );
            _ = (y.is_poisoned(Pfn(h.base)), y.block_type(Pfn(h.base)), y.zone_of(Pfn(h.base)));
            _ = y.could_compact(o(9), ZoneKind::Normal, |_| 0);
            _ = y.zonelist(NodeId(0), ZoneKind::Normal).count();
        }),
    ]
}
