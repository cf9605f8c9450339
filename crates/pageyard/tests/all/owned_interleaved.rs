//! Policy `OwnedBlocks` with several CPUs: random runs, and frees to another CPU's lists while that
//! CPU drains them, a pageblock is isolated, or the CPU goes offline.

use crate::common;

use std::cell::Cell;

use common::any::{AnyHooks, On};
use common::by_thread::{ByThread, CPU, by_thread};
use common::check::{Owned, check, free_in_pageblocks};
use common::interpose::{Interposed, at_each_point};
use common::random::Random;
use common::view::{normal, view};
use common::{Chosen, Machine, Reused, frames, o};
use pageyard::policy::{
    BulkFree, ChunkedDrain, Guarded, NoHighOrder, OwnedBlocks, PageChecked, Rules, StaticPolicy,
    TwoPassBulkFree,
};
use pageyard::tuning::Limits;
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, MigrateType, Observer, Order, Pfn, Platform, Reclaim, Yard,
};

use crate::owned_blocks::{MOVABLE, OWNED, PAGES, ZONE, cached, machine, nothing_lost, valid};

const CPUS: u32 = 4;

/// Random operations of four CPUs, with the blocks that callers own recorded outside the yard.
fn random_run(rules: Chosen, seed: u64, steps: usize) {
    let m = Machine::normal(16 * 1024).reserved(700..705).cpus(&[0; CPUS as usize]);
    m.run_under(rules, |y| {
        let before = free_in_pageblocks(&view(y, ZONE));
        let mut r = Random(seed);
        let mut owned = Owned::new();
        let mut down = None;
        let mut isolated = None;
        for step in 0..steps {
            let cpu = r.below(CPUS as usize) as u32;
            if down == Some(cpu) {
                continue;
            }
            y.hooks().on(cpu);
            match r.below(40) {
                0..12 => {
                    let order = [0, 0, 0, 0, 0, 1, 2, 3, 4, 9][r.below(10)];
                    let gfp = [Gfp::KERNEL, MOVABLE, MOVABLE | Gfp::RECLAIMABLE, Gfp::ATOMIC];
                    let gfp = gfp[r.below(4)];
                    for _ in 0..1 + (r.below(300) >> order) {
                        let Ok(p) = y.alloc(o(order), gfp) else { break };
                        let movable = gfp.contains(Gfp::MOVABLE);
                        y.set_movable(p, o(order), movable).unwrap();
                        assert!(owned.insert(p, o(order)).is_none(), "{p} has two owners");
                    }
                }
                12..28 => {
                    let start = Pfn(r.below(16 * 1024) as u64);
                    let some: Vec<(Pfn, Order)> =
                        owned.range(start..).take(r.below(300)).map(|(&p, &o)| (p, o)).collect();
                    for (p, _) in &some {
                        owned.remove(p);
                    }
                    if r.below(3) == 0 {
                        y.free_batch(&some).unwrap();
                    } else {
                        some.iter().for_each(|&(p, o)| y.free(p, o).unwrap());
                    }
                }
                28..30 => {
                    y.tick(CpuId(cpu));
                }
                30 => y.drain_cpu(CpuId(r.below(CPUS as usize) as u32), None),
                31 => y.drain_all(None),
                32 => {
                    y.set_reclaim_active(ZONE, r.below(2) == 0);
                }
                33 => {
                    let other = (cpu + 1) % CPUS;
                    if down.take().is_some_and(|c| y.cpu_up(CpuId(c))) {
                        continue;
                    }
                    assert!(y.cpu_dead(CpuId(other)));
                    assert_eq!(cached(y, other), 0);
                    down = Some(other);
                }
                34..36 => {
                    if let Some(range) = isolated.take() {
                        y.unisolate(range, MigrateType::Movable).unwrap();
                        continue;
                    }
                    let block = (2 + r.below(28) as u64) << 9;
                    let range = frames(block..block + 1024);
                    if y.isolate(range.clone(), MigrateType::Movable).is_ok() {
                        y.drain_all(None);
                        let v = normal(y);
                        let inside = |p: u64| (block..block + 1024).contains(&p);
                        assert!(v.all_cached().all(|(p, _, _)| !inside(p)), "drained");
                        isolated = Some(range);
                    }
                }
                36 => {
                    let guard = y.disable_pcp(ZONE).unwrap();
                    let some: Vec<_> = owned.iter().take(50).map(|(&p, &o)| (p, o)).collect();
                    for (p, o) in some {
                        owned.remove(&p);
                        y.free(p, o).unwrap();
                    }
                    assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
                    drop(guard);
                }
                37 => {
                    let high = [64, 600, 3000][r.below(3)];
                    let limits = Limits { batch: 31, high_min: 64, high_max: high };
                    assert!(y.set_pcp_limits(ZONE, limits));
                }
                38 => {
                    let all = frames(0..16 * 1024);
                    if let Ok(p) = y.alloc_contig_pages(700, 1, all, MigrateType::Movable, MOVABLE)
                    {
                        y.free_contig(frames(p.0..p.0 + 700)).unwrap();
                    }
                }
                _ => {
                    y.unreserve_highatomic(MigrateType::Movable, true);
                }
            }
            if step % 16 == 0 {
                valid(y);
                let in_use: Owned =
                    normal(y).allocated.iter().map(|(&p, &(n, _))| (Pfn(p), o(n))).collect();
                assert_eq!(in_use, owned);
            }
        }
        if let Some(range) = isolated {
            y.unisolate(range, MigrateType::Movable).unwrap();
        }
        down.into_iter().for_each(|c| assert!(y.cpu_up(CpuId(c))));
        for (i, (p, o)) in owned.into_iter().enumerate() {
            y.hooks().on(i as u32 / 7 % CPUS);
            y.free(p, o).unwrap();
        }
        y.drain_all(None);
        check(y, &m, &Owned::new());
        assert_eq!(free_in_pageblocks(&view(y, ZONE)), before, "all memory is free and merged");
        assert_eq!(y.zone_stats(ZONE).unwrap().type_check_failures, 0);
    });
}

#[test]
fn no_page_is_lost_under_random_operations() {
    for seed in 0..12 {
        random_run(OWNED, seed, 500);
    }
}

#[test]
fn no_page_is_lost_under_compositions() {
    let all: [Chosen; 6] = [
        &<OwnedBlocks<TwoPassBulkFree>>::RULES,
        &<OwnedBlocks<NoHighOrder>>::RULES,
        &<OwnedBlocks<ChunkedDrain>>::RULES,
        &<OwnedBlocks<PageChecked>>::RULES,
        &<OwnedBlocks<Guarded<2>>>::RULES,
        const { &Rules { bulk_free: BulkFree::BlockByBlock, ..*OWNED } },
    ];
    for (seed, rules) in (20..).zip(all) {
        random_run(rules, seed, 500);
        random_run(rules, seed + 100, 500);
    }
}

/// Hooks that free a page on CPU 1 where CPU 0's lists are locked.
#[derive(Default)]
struct Nested {
    page: Cell<Option<Pfn>>,
    yard: Cell<Option<&'static NestedYard>>,
    went: Cell<u32>,
}

type NestedYard = On<'static, Nested, AnyHooks<'static>, Interposed>;

impl Platform for Nested {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}
impl Reclaim for Nested {}
impl Defences for Nested {}
impl Observer for Nested {
    fn event(&self, _: CpuId, event: Event) {
        if let (Event::BulkFree { .. }, Some(y)) = (event, self.yard.get())
            && let Some(page) = self.page.take()
        {
            CPU.set(1);
            y.free(page, o(0)).unwrap();
            CPU.set(0);
            self.went.set(self.went.get() + 1);
        }
    }
}

#[test]
fn free_that_finds_the_owners_lists_locked_goes_to_the_zone() {
    CPU.set(0);
    // This lock panics where it would wait.
    let m = Reused::under(OWNED, machine());
    let y = NestedYard::new(Nested::default(), |hooks| m.next(hooks)).leak();
    let all: Vec<Pfn> = (0..100).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
    y.hooks().page.set(Some(all[0]));
    y.hooks().yard.set(Some(y));
    y.drain_cpu(CpuId(0), None);
    assert_eq!(y.hooks().went.get(), 1);
    assert_eq!(y.zone_stats(ZONE).unwrap().bypasses, 1);
    assert_eq!(y.zone_info(ZONE).unwrap().cached, 0);
    assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES - 99);
    all[1..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
    nothing_lost(y);
}

type Yielding = Yard<'static, Hooked<Interposed, ByThread, Chosen>>;

/// Runs `first` and `other` on CPU 0's memory, in all interleavings with one switch. Each gets 40
/// pages of its own.
fn interleaved(first: fn(&Yielding, &[Pfn]), other: fn(&Yielding, &[Pfn]), check: fn(&Yielding)) {
    let m = Reused::under(OWNED, machine());
    let points = at_each_point(
        || {
            CPU.set(0);
            let y: Yielding = m.next(by_thread());
            let pages: Vec<Pfn> = (0..120).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
            pages.iter().for_each(|&p| y.set_movable(p, o(0), true).unwrap());
            (y, pages)
        },
        move |(y, pages)| first(y, &pages[..40]),
        move |(y, pages)| {
            let cpu = CPU.get();
            other(y, &pages[40..80]);
            CPU.set(cpu);
        },
        move |(y, pages)| {
            check(y);
            valid(y);
            CPU.set(1);
            y.unisolate(block_range(pages[0]), MigrateType::Movable).unwrap();
            pages[80..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
            y.drain_all(None);
            valid(y);
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES);
            CPU.set(0);
        },
    );
    assert!(points > 1, "{points}");
}

fn block_range(p: Pfn) -> std::ops::Range<Pfn> {
    frames(p.0 & !511..(p.0 | 511) + 1)
}

fn free_on_1(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    pages[..10].iter().for_each(|&p| y.free(p, o(0)).unwrap());
    pages[10..20].iter().for_each(|&p| y.free_rest(p, o(0)).unwrap());
    y.free_batch_of(o(0), &pages[20..]).unwrap();
}

fn drain_owner(y: &Yielding, pages: &[Pfn]) {
    CPU.set(0);
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
    y.drain_cpu(CpuId(0), None);
}

fn isolate(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    y.isolate(block_range(pages[0]), MigrateType::Movable).unwrap();
    y.drain_all(None);
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
}

fn cpu_down(y: &Yielding, pages: &[Pfn]) {
    CPU.set(1);
    assert!(y.cpu_dead(CpuId(0)));
    pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
}

/// No page of the isolated block is on a per-CPU list.
fn none_cached(y: &Yielding) {
    let v = normal(y);
    let isolated = |p: u64| v.label(p) == MigrateType::Isolate;
    assert!(v.all_cached().all(|(p, _, _)| !isolated(p)));
}

#[test]
fn free_that_overflows_the_owners_lists_drains_them() {
    // This lock panics where a thread takes it twice.
    let y: Yielding = Reused::under(OWNED, machine()).next(by_thread());
    CPU.set(0);
    let all: Vec<Pfn> = (0..512).map(|_| y.alloc(o(0), MOVABLE).unwrap()).collect();
    assert!(y.set_pcp_limits(ZONE, Limits { batch: 16, high_min: 100, high_max: 100 }));
    CPU.set(1);
    all.iter().for_each(|&p| y.free(p, o(0)).unwrap());
    assert!(y.pageset(ZONE, CpuId(0)).unwrap().count < 120);
    assert_eq!(y.pageset(ZONE, CpuId(1)).unwrap().count, 0);
    nothing_lost(&y);
    CPU.set(0);
}

#[test]
fn remote_free_may_run_between_any_steps_of_the_owners_drain() {
    interleaved(drain_owner, free_on_1, |_| {});
    interleaved(free_on_1, drain_owner, |_| {});
}

#[test]
fn remote_free_may_run_between_any_steps_of_an_isolation() {
    interleaved(isolate, free_on_1, none_cached);
    interleaved(free_on_1, isolate, none_cached);
    interleaved(drain_owner, isolate, none_cached);
}

#[test]
fn remote_free_may_run_between_any_steps_of_the_owner_going_offline() {
    let empty = |y: &Yielding| {
        assert_eq!(y.pageset(ZONE, CpuId(0)).unwrap().count, 0);
        assert_eq!(normal(y).cpus[0].diff, 0, "no free is accounted to a CPU that is offline");
    };
    interleaved(cpu_down, free_on_1, empty);
    interleaved(free_on_1, cpu_down, empty);
}
