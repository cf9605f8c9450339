//! What requests on the packed engine find: a free counter that says what is free, marks that end with
//! the shortage, and blocks that CPUs and depots keep.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::any::On;
use crate::common::by_thread::{ByThread, by_thread};
use crate::common::interpose::{Interposed, at_each_point};
use crate::common::random::Random;
use crate::common::view::normal;
use crate::common::{Chosen, Machine, Reused, Y, all_records, frames, o};
use pageyard::MigrateType::{Cma, Movable};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    Context, CpuId, Cpuset, Defences, Gfp, Hooked, NodeId, NodeMask, Observer, Order, Pfn,
    Platform, Reclaim, Record, Yard, ZoneId, ZoneInfo, ZoneKind,
};

const PACKED: Chosen = &<Packed>::RULES;
const ZONE: ZoneKind = ZoneKind::Normal;
const KERNEL: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);

fn info(y: &Y<'_>) -> ZoneInfo {
    y.zone_info(ZONE).unwrap()
}

/// Allocates until a request fails.
fn take_all(y: &Y<'_>, order: u8, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| y.alloc(o(order), gfp).ok()).collect()
}

fn give_all(y: &Y<'_>, order: u8, blocks: Vec<Pfn>) {
    blocks.into_iter().for_each(|p| y.free(p, o(order)).unwrap());
}

/// Allocates all memory, then frees every page whose number is a multiple of `stride`, so that no two
/// neighbours are free.
fn leave_pieces(y: &Y<'_>, stride: u64) {
    let pages = take_all(y, 0, KERNEL | Gfp::MEMALLOC);
    give_all(y, 0, pages.into_iter().filter(|p| p.0 % stride == 0).collect());
    y.drain_all(None);
}

/// Once its frames are taken, an isolated range is neither free nor withheld.
#[test]
fn s4_12_a_range_is_subtracted_from_the_free_counter_once() {
    type Y = Yard<'static, Hooked<Interposed, ByThread, Chosen>>;
    let all = Reused::under(PACKED, Machine::normal(4096));
    let least = Rc::new(Cell::new(u64::MAX));
    let seen = least.clone();
    let points = at_each_point(
        || -> Y { all.next(by_thread()) },
        |y| {
            let range = || frames(1000..2000);
            y.alloc_contig(range(), Movable, Gfp::KERNEL).unwrap();
            y.free_contig(range()).unwrap();
        },
        move |y| seen.set(seen.get().min(y.supply(ZONE).unwrap().free)),
        |y| {
            y.drain_all(None);
            y.validate().unwrap();
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, 4096);
        },
    );
    assert!(points > 20, "{points}");
    // Whole pageblocks are isolated: 512 to 2048.
    assert_eq!(least.get(), 4096 - 3 * 512);
}

#[test]
fn s5_10_a_zone_is_no_longer_below_high_once_memory_is_free_again() {
    Machine::normal(16384).run_under(PACKED, |y: &Y<'_>| {
        let pages = take_all(y, 0, KERNEL);
        assert!(info(y).below_high);
        give_all(y, 0, pages);
        y.drain_all(None);
        assert!(!info(y).below_high);
    });
}

/// Of what is free in the zone no run is as large as the block, but the CPU's magazines and depots have
/// such blocks.
#[test]
fn requests_get_what_magazines_and_depots_keep() {
    // CPU 0 frees the blocks; this CPU requests them.
    for (order, blocks, cpu) in [(1, 300, 1), (3, 64, 0), (3, 192, 0), (9, 4, 0), (9, 8, 1)] {
        for gfp in [Gfp::ATOMIC | Gfp::NOWARN, KERNEL] {
            Machine::normal(16384).cpus(&[0, 0]).run_under(PACKED, |y: &Y<'_>| {
                y.set_min_free_kbytes(0).unwrap();
                let large: Vec<_> =
                    (0..blocks).map(|_| y.alloc(o(order), Gfp::KERNEL).unwrap()).collect();
                leave_pieces(y, 2);
                assert_eq!(take_all(y, order, gfp | Gfp::MEMALLOC), []);
                y.drain_all(None);
                give_all(y, order, large);
                y.hooks().on(cpu);
                assert_eq!(take_all(y, order, gfp).len(), blocks, "order {order}, {gfp:?}");
                y.validate().unwrap();
            });
        }
    }
}

/// Requests read these sums, so they are counters.
#[test]
fn s3_7_free_pages_of_an_area_are_counted() {
    fn counted(y: &Y<'_>) {
        let records = all_records(y);
        let cma = |p: Pfn| {
            let of = |r: &Record| matches!(*r, Record::Block { pfn, migrate_type: Cma } if pfn.0 == p.0 & !511);
            records[0].1.iter().any(of)
        };
        let free = normal(y)
            .all_free()
            .map(|(p, order, _)| if cma(Pfn(p)) { 1 << order } else { 0 })
            .sum();
        assert_eq!(y.supply(ZONE).unwrap().cma, free);
    }
    Machine::normal(16384).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(4096..8192)).unwrap();
        counted(y);
        let mut held = Vec::new();
        let mut random = Random(1);
        for _ in 0..3000 {
            let pick = random.next();
            let order = [0, 0, 1, 3, 5, 6, 7, 8][pick >> 2 & 7];
            let place = random.below(4096) as u64;
            let within = Pfn(4096 + place - place % (1 << order));
            match pick & 3 {
                0 if held.len() < 400 => {
                    held.extend(y.alloc(o(order), MOVABLE).map(|p| (p, order)))
                }
                1 if y.alloc_at(within, o(order), MOVABLE).is_ok() => held.push((within, order)),
                2 if y.poison_frame(within).is_ok() => {
                    y.unpoison_frame(within).map(|_| ()).unwrap()
                }
                3 if !held.is_empty() => {
                    let (p, order) = held.swap_remove(pick % held.len());
                    y.free(p, o(order)).unwrap();
                }
                _ => {}
            }
        }
        // The pending word of the CPU is neither free nor kept by a magazine.
        y.drain_all(None);
        counted(y);
        held.into_iter().for_each(|(p, order)| y.free(p, o(order)).unwrap());
        y.drain_all(None);
        counted(y);
        y.alloc_contig(frames(5000..6000), Cma, Gfp::KERNEL).unwrap();
        counted(y);
        y.free_contig(frames(5000..6000)).unwrap();
        y.drain_all(None);
        assert_eq!(y.supply(ZONE).unwrap().cma, 4096);
    });
}

/// §9.2: a caller that goes on until no tick has work to do comes to an end.
#[test]
fn s9_2_ticks_end() {
    Machine::normal(16384).cpus(&[0, 0]).run_under(PACKED, |y: &Y<'_>| {
        let pages: Vec<_> = (0..4000).map(|_| y.alloc(o(0), KERNEL).unwrap()).collect();
        give_all(y, 0, pages);
        assert!((0..100).any(|_| !y.tick(CpuId(0)) && !y.tick(CpuId(1))));
    });
}

#[test]
fn s11_3_pages_that_go_out_of_use_are_not_kept() {
    Machine::normal(16384).run_under(PACKED, |y: &Y<'_>| {
        for order in [0, 0, 1, 3, 0, 9] {
            let block = y.alloc(o(order), KERNEL).unwrap();
            y.poison_frame(block).unwrap();
            y.free(block, o(order)).unwrap();
        }
        y.drain_all(None);
        y.validate().unwrap();
        let kept = y.cpu_stats(ZONE, CpuId(0)).unwrap().cached_pages();
        assert_eq!((kept, y.out_of_use(ZONE).unwrap().pages()), (0, 6));
    });
}

#[test]
fn s8_5_the_depot_of_offline_cpus_is_emptied() {
    // Eight CPUs share a depot.
    let cpus = [0; 16];
    Machine::normal(1 << 18).cpus(&cpus).run_under(PACKED, |y: &Y<'_>| {
        y.hooks().on(8);
        for order in [0, 1, 3, 9] {
            let blocks = (0..2048 >> order).map(|_| y.alloc(o(order), KERNEL).unwrap()).collect();
            give_all(y, order, blocks);
        }
        y.hooks().on(0);
        let depots = || y.depot_pages(ZONE).unwrap();
        let before = depots();
        (8..15).for_each(|cpu| assert!(y.cpu_dead(CpuId(cpu))));
        assert_eq!(depots(), before, "CPU 15 may still take from it");
        assert!(y.cpu_dead(CpuId(15)));
        for _ in 0..2000 {
            (0..8).for_each(|cpu| _ = y.tick(CpuId(cpu)));
        }
        assert_eq!((before > 0, depots(), info(y).free_exact), (true, 0, 1 << 18));
        y.validate().unwrap();
    });
}

/// A snapshot may have a page of an area in what a CPU collects for the zone.
#[test]
fn s4_12_no_page_of_an_area_is_in_a_magazine_after_a_restore() {
    let machine = Machine::normal(16384);
    let records = machine.run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(0..28 * 512)).unwrap();
        let of_area = |p: &Pfn| p.0 < 28 * 512;
        let page = std::iter::from_fn(|| y.alloc(o(0), MOVABLE).ok()).find(of_area).unwrap();
        y.free(page, o(0)).unwrap();
        let records = all_records(y);
        let kept = |r: &Record| matches!(*r, Record::Cached { pfn, .. } if pfn == page);
        assert!(records[0].1.iter().any(kept));
        records
    });
    machine.restored(PACKED, &records, |y: &Y<'_>| {
        y.validate().unwrap();
        // The area serves movable requests first, one by one, from the zone.
        let before = y.cpu_stats(ZONE, CpuId(0)).unwrap();
        y.alloc(o(0), MOVABLE).unwrap();
        let since = y.cpu_stats(ZONE, CpuId(0)).unwrap().since(&before);
        assert_eq!((since.direct_allocs, since.allocs.blocks()), (1, 1));
    });
}

/// A huge request finds no block; the zone has more pages than HIGH.
#[test]
fn s5_10_a_tick_ends_below_high_where_memory_is_plentiful() {
    Machine::normal(16384).run_under(PACKED, |y: &Y<'_>| {
        leave_pieces(y, 2);
        assert!(y.alloc(Order::HUGE, KERNEL | Gfp::NORETRY).is_err());
        assert!(info(y).below_high && info(y).free > info(y).watermarks[2]);
        y.tick(CpuId(0));
        assert!(!info(y).below_high);
    });
}

/// Pages of an area that another CPU collected are no block for an unmovable request, so that CPU keeps its
/// magazines.
#[test]
fn pages_of_areas_are_no_kept_block() {
    Machine::normal(16384).cpus(&[0, 0]).run_under(PACKED, |y: &Y<'_>| {
        y.make_cma(frames(0..8192)).unwrap();
        leave_pieces(y, 3);
        y.hooks().on(1);
        let page = y.alloc(o(0), KERNEL).unwrap();
        y.free(page, o(0)).unwrap();
        let area: Vec<_> = (0..64).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
        assert!(area.iter().all(|p| p.0 < 8192));
        give_all(y, 0, area);
        let kept = y.pageset(ZONE, CpuId(1)).unwrap().count;
        y.hooks().on(0);
        assert!(y.alloc(o(3), Gfp::ATOMIC | Gfp::NOWARN).is_err());
        assert_eq!((kept > 64, y.pageset(ZONE, CpuId(1)).unwrap().count), (true, kept));
    });
}

/// Hooks of CPU 0, whose task may use node 0 only if `bound`, and of CPU 1.
#[derive(Default)]
struct Bound {
    cpu: Cell<u32>,
    bound: Cell<bool>,
}

impl Platform for Bound {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }
}

impl Reclaim for Bound {
    fn is_plain(&self, _: Gfp) -> bool {
        !self.bound.get()
    }

    fn context(&self) -> Context {
        let near = NodeMask::only(NodeId(0));
        let cpuset = Cpuset { allowed: near, hardwall: near };
        Context { cpuset: self.bound.get().then_some(cpuset), ..Context::default() }
    }
}

impl Observer for Bound {}
impl Defences for Bound {}

#[test]
fn s2_8_kept_blocks_of_forbidden_nodes_stay() {
    const S: u64 = 16384;
    let machine = Machine::new().zone_on(0, ZONE, 0..S).zone_on(1, ZONE, S..2 * S).cpus(&[0, 1]);
    machine.run_with(Bound::default(), PACKED, |y: &On<'_, Bound>| {
        let far = ZoneId { node: NodeId(1), kind: ZONE };
        y.hooks().cpu.set(1);
        let huge = y.alloc_on(NodeId(1), Order::HUGE, MOVABLE | Gfp::THISNODE).unwrap();
        for node in [0, 1].map(NodeId) {
            let all = KERNEL | Gfp::MEMALLOC | Gfp::THISNODE;
            let pages: Vec<_> = std::iter::from_fn(|| y.alloc_on(node, o(0), all).ok()).collect();
            for page in pages.into_iter().filter(|p| p.0 % 2 == 0) {
                y.free(page, o(0)).unwrap();
            }
        }
        y.drain_all(None);
        y.free(huge, Order::HUGE).unwrap();
        let kept = y.pageset(far, CpuId(1)).unwrap().count;
        y.hooks().cpu.set(0);
        y.hooks().bound.set(true);
        assert!(y.alloc(Order::HUGE, MOVABLE.difference(Gfp::DIRECT_RECLAIM)).is_err());
        assert_eq!((kept, y.pageset(far, CpuId(1)).unwrap().count), (512, 512));
        // Without the cpuset it is drained for the request.
        y.hooks().bound.set(false);
        assert!(y.alloc(Order::HUGE, MOVABLE.difference(Gfp::DIRECT_RECLAIM)).is_ok());
    });
}
