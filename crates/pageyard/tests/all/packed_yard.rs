//! The packed engine under the yard. Where the exact engine's tests look at its lists, these use
//! counters and `validate`.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use crate::common::any::{AnyHooks, On};
use pageyard::policy::Packed;
use pageyard::*;

type Lock = spin::mutex::SpinMutex<()>;
type Y = Yard<'static, Bare<Lock, (), Packed>>;

const MIB: u64 = 1 << 20;

fn yard(mib: u64) -> Y {
    Y::from_memory_map(&[1 << 32..(1 << 32) + mib * MIB], &[], 2, ()).unwrap()
}

type Hosted<H> = On<'static, H, AnyHooks<'static>, Lock, Packed>;

fn on<H: Hooks + 'static>(mib: u64, cpus: u32, hooks: H) -> Hosted<H> {
    let usable = [1 << 32..(1 << 32) + mib * MIB];
    On::new(hooks, |hooks| Yard::from_memory_map(&usable, &[], cpus, hooks).unwrap())
}

fn info<C: Config>(yard: &Yard<'_, C>) -> ZoneInfo {
    yard.zone_info(ZoneKind::Normal).unwrap()
}

/// Found by a review: blocks of orders 4 to 8 came from pageblocks of another type that kept that type, so that
/// unmovable blocks spread over all of them.
#[test]
fn s4_4_blocks_of_every_order_change_the_type_of_a_sparse_pageblock() {
    const KERNEL: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
    for order in [3, 4, 6, 8] {
        let yard = yard(256);
        let order = Order::new(order).unwrap();
        let movable = Gfp::HIGHUSER_MOVABLE | Gfp::MEMALLOC | Gfp::NOWARN;
        let all: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, movable).ok()).collect();
        assert_eq!(all.len(), 256 << 8);
        let (kept, freed): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| p.0 % 512 == 511);
        freed.into_iter().for_each(|p| yard.free(p, Order::ZERO).unwrap());
        yard.drain_all(None);
        let blocks: Vec<_> =
            (0..2048 >> order.get()).map(|_| yard.alloc(order, KERNEL).unwrap()).collect();
        let in_blocks: std::collections::BTreeSet<_> = blocks.iter().map(|p| p.0 / 512).collect();
        let stats = yard.zone_stats(ZoneKind::Normal).unwrap();
        let unmovable = yard.pageblocks(ZoneKind::Normal).unwrap()[0];
        // 2,048 pages need four pageblocks, or five with the last page of each in use.
        let most = if order.get() == 8 { 8 } else { 5 };
        assert!(in_blocks.len() <= most, "{order:?}: {in_blocks:?}");
        assert_eq!(unmovable, in_blocks.len() as u64, "{order:?}");
        assert_eq!((stats.claims_part, stats.steals), (unmovable, 0), "{order:?}");
        assert_ne!(stats.boosts, 0, "{order:?}");
        blocks.into_iter().for_each(|p| yard.free(p, order).unwrap());
        kept.into_iter().for_each(|p| yard.free(p, Order::ZERO).unwrap());
        yard.drain_all(None);
        yard.validate().unwrap();
        assert_eq!(info(&yard).free_exact, 256 << 8);
    }
}

#[test]
fn all_memory_is_free_again() {
    let yard = yard(64);
    let before = info(&yard);
    assert_eq!((before.managed, before.free_exact), (64 << 8, 64 << 8));
    let mut held = Vec::new();
    for n in 0..3000u32 {
        let order = Order::new([0, 0, 0, 1, 2, 3, 4, 6, 9, 10][n as usize % 10]).unwrap();
        let gfp =
            [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE][n as usize % 3];
        if let Ok(pfn) = yard.alloc(order, gfp | Gfp::NOWARN) {
            assert_eq!(pfn.0 % u64::from(order.pages()), 0);
            held.push((pfn, order));
        }
        yard.validate().unwrap();
        if n % 3 == 0 {
            let (pfn, order) = held.swap_remove(n as usize * 7 % held.len());
            yard.free(pfn, order).unwrap();
            assert_eq!(yard.free(pfn, order), Err(FreeError::DoubleFree));
        }
    }
    let pages: u64 = held.iter().map(|(_, order)| u64::from(order.pages())).sum();
    yard.drain_all(None);
    assert_eq!(info(&yard).free_exact, before.managed - pages);
    yard.free_batch(&held).unwrap();
    yard.drain_all(None);
    yard.validate().unwrap();
    let after = info(&yard);
    assert_eq!((after.free_exact, after.cached), (before.managed, 0));
    assert_eq!(yard.free_blocks(ZoneKind::Normal).unwrap()[10], 16);
    let totals = yard.zone_totals(ZoneKind::Normal).unwrap();
    assert_eq!(totals.alloc_pages, totals.free_pages);
}

/// A batch of any form, of pages alone or of several orders, is freed whole or not at all.
#[test]
fn s6_2_a_batch_with_a_fault_changes_nothing() {
    let yard = yard(64);
    let managed = info(&yard).managed;
    type Free = fn(&Y, &[(Pfn, Order)]) -> Result<(), BatchError>;
    let forms: [Free; 2] =
        [|y, blocks| y.free_batch(blocks), |y, blocks| y.free_batch_owned(blocks)];
    for orders in [&[0][..], &[0, 1, 3, 0, 5, 9]] {
        let take = |n: usize| {
            let order = Order::new(orders[n % orders.len()]).unwrap();
            (yard.alloc(order, Gfp::KERNEL).unwrap(), order)
        };
        for free in forms {
            let blocks: Vec<_> = (0..70).map(take).collect();
            let free_page = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
            yard.free(free_page, Order::ZERO).unwrap();
            for at in [0, 30, 31, 69, 70] {
                let faults = [
                    ((free_page, Order::ZERO), FreeError::DoubleFree),
                    ((Pfn(0), Order::ZERO), FreeError::Foreign),
                ];
                for (fault, error) in faults {
                    let mut batch = blocks.clone();
                    batch.insert(at, fault);
                    assert_eq!(free(&yard, &batch), Err(BatchError { index: at, error }));
                }
            }
            let twice: Vec<_> = blocks.iter().chain(&blocks[40..41]).copied().collect();
            assert_eq!(free(&yard, &twice).unwrap_err().index, 70);
            let pages: u64 = blocks.iter().map(|(_, order)| u64::from(order.pages())).sum();
            yard.drain_all(None);
            yard.validate().unwrap();
            assert_eq!(info(&yard).free_exact, managed - pages, "each is its owner's still");
            free(&yard, &blocks).unwrap();
            assert_eq!(free(&yard, &blocks).unwrap_err().index, 0);
            yard.drain_all(None);
            yard.validate().unwrap();
            assert_eq!(info(&yard).free_exact, managed);
        }
    }
}

/// What a batch frees into an isolated pageblock is free at once, not only after a drain.
#[test]
fn s4_11_a_batch_frees_to_isolated_pageblocks_at_once() {
    let yard = yard(64);
    let pages: Vec<_> =
        (0..40).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    let first = Pfn(pages[0].0 & !511);
    let isolated = first..Pfn(first.0 + 512);
    assert!(pages.iter().all(|page| isolated.contains(page)));
    yard.isolate(isolated.clone(), MigrateType::Movable).unwrap();
    yard.drain_all(None);
    let free = || -> u64 {
        let blocks = yard.free_blocks_by_type(ZoneKind::Normal).unwrap().0;
        (0..=10).map(|o| blocks[o][MigrateType::Isolate as usize] << o).sum()
    };
    assert_eq!(free(), 512 - 40);
    yard.free_batch(&pages.iter().map(|&page| (page, Order::ZERO)).collect::<Vec<_>>()).unwrap();
    assert_eq!(free(), 512);
    yard.unisolate(isolated, MigrateType::Movable).unwrap();
    yard.validate().unwrap();
}

// Regressions found by a review of the code.

/// Hooks whose answers the test sets.
struct Answers {
    relocate: Box<dyn Fn(Pfn, Pfn) -> Relocation>,
    panics: std::cell::Cell<bool>,
    cpu: Box<dyn Fn() -> u32>,
}

impl Default for Answers {
    fn default() -> Self {
        Answers {
            relocate: Box::new(|_, _| Relocation::Moved),
            panics: std::cell::Cell::new(false),
            cpu: Box::new(|| 0),
        }
    }
}

impl Platform for Answers {
    fn cpu(&self) -> CpuId {
        CpuId((self.cpu)())
    }
}
impl Defences for Answers {}
impl Reclaim for Answers {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        (self.relocate)(from, to)
    }
}
impl Observer for Answers {
    fn event(&self, _: CpuId, event: Event) {
        let free = matches!(event, Event::Free { .. });
        assert!(!(free && self.panics.get()), "the observer of a free");
    }
}

type Asked = Hosted<Answers>;

fn asked(hooks: Answers) -> Asked {
    on(64, 2, hooks)
}

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

/// Allocates `n` single pages. Returns them and the pageblock of the first.
fn pages(yard: &Asked, n: usize) -> (Vec<Pfn>, std::ops::Range<Pfn>) {
    let all: Vec<Pfn> = (0..n).map(|_| yard.alloc(Order::ZERO, MOVABLE).unwrap()).collect();
    let start = all[0].0 & !511;
    (all, Pfn(start)..Pfn(start + 512))
}

#[test]
fn a_range_is_taken_once_its_last_page_has_moved() {
    let yard = asked(Answers::default());
    let (_, block) = pages(&yard, 300);
    yard.alloc_contig(block, MigrateType::Movable, Gfp::KERNEL).unwrap();
    yard.validate().unwrap();
}

#[test]
fn a_panic_while_a_moved_block_is_freed_loses_nothing() {
    for answer in [Relocation::Moved, Relocation::Refused] {
        let yard = asked(Answers { relocate: Box::new(move |_, _| answer), ..Answers::default() });
        let (page, block) = pages(&yard, 1);
        yard.hooks().panics.set(true);
        let taken = std::panic::AssertUnwindSafe(|| {
            yard.alloc_contig(block, MigrateType::Movable, Gfp::KERNEL)
        });
        assert!(std::panic::catch_unwind(taken).is_err());
        yard.hooks().panics.set(false);
        if answer == Relocation::Refused {
            yard.free(page[0], Order::ZERO).unwrap();
        }
        yard.drain_all(None);
        yard.validate().unwrap();
        let used = yard.zone_info(ZoneKind::Normal).unwrap();
        // A block that moved has a new owner, which keeps it.
        let kept = u64::from(answer == Relocation::Moved);
        assert_eq!(used.free_exact + kept, used.managed, "{answer:?}");
    }
}

#[test]
fn a_snapshots_reader_may_ask() {
    let yard = asked(Answers::default());
    pages(&yard, 100);
    let mut records = 0;
    yard.snapshot(ZoneKind::Normal, |_| {
        records += 1;
        assert!(yard.zone_info(ZoneKind::Normal).is_some());
    });
    assert!(records > 100);
}

#[test]
fn one_cpu_frees_all_of_a_shared_block() {
    let calls = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = calls.clone();
    let cpu = move || {
        seen.set(seen.get() + 1);
        if seen.get() > 1 { 77 } else { 0 }
    };
    let yard = asked(Answers { cpu: Box::new(cpu), ..Answers::default() });
    calls.set(0);
    let block = yard.alloc(Order::new(4).unwrap(), MOVABLE).unwrap();
    calls.set(0);
    yard.free_shared(block, Order::new(4).unwrap()).unwrap();
    calls.set(0);
    yard.free(block, Order::ZERO).unwrap();
}

#[test]
fn a_refused_batch_keeps_the_mark_of_the_reserves() {
    let yard = asked(Answers::default());
    // Only pages allocated below all marks come from the reserves.
    let mut last = None;
    while let Ok(pfn) = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::MEMALLOC | Gfp::NOWARN) {
        last = Some(pfn);
    }
    let page = last.expect("memory");
    assert!(yard.is_pfmemalloc(page));
    assert!(yard.free_batch(&[(page, Order::ZERO), (Pfn(0), Order::ZERO)]).is_err());
    assert!(yard.is_pfmemalloc(page));
    yard.free(page, Order::ZERO).unwrap();
}

#[test]
fn no_isolated_page_passes_from_one_cpu_to_a_drained_one() {
    use std::cell::Cell;
    use std::rc::Rc;
    let cpu = Rc::new(Cell::new(1));
    let here = cpu.clone();
    let yard = asked(Answers { cpu: Box::new(move || here.get()), ..Answers::default() });
    // All pages of one pageblock, then some of the next, from which the CPU then refills.
    let (all, block) = pages(&yard, 700);
    let (inside, outside): (Vec<Pfn>, Vec<Pfn>) = all.iter().partition(|p| block.contains(p));
    assert_eq!(inside.len(), 512);
    // Two full magazines of the first pageblock's pages.
    inside[..128].iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.isolate(block.clone(), MigrateType::Movable).unwrap();
    yard.drain_cpu(CpuId(0), None);
    outside[..2].iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    cpu.set(0);
    for _ in 0..200 {
        let page = yard.alloc(Order::ZERO, MOVABLE).unwrap();
        assert!(!block.contains(&page), "{page} is isolated, but reached a drained CPU");
    }
    yard.drain_all(None);
    yard.unisolate(block, MigrateType::Movable).unwrap();
    yard.validate().unwrap();
}

/// Depots still keep pages after a section went offline and came back.
#[test]
fn depots_keep_pages_after_a_section_came_back() {
    const S: u64 = SECTION_PAGES;
    let usable = [0..(2 * S) << 12];
    let yard = Y::from_memory_map(&usable, &[], 1, ()).unwrap();
    let kept = |yard: &Y| {
        let kernel = |_| yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::DMA32).unwrap();
        let pages: Vec<Pfn> = (0..500).map(kernel).collect();
        pages.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
        yard.zone_info(ZoneKind::Dma32).unwrap().cached
    };
    let before = kept(&yard);
    assert!(before >= 400, "{before}");
    yard.drain_all(None);
    yard.offline(Pfn(S)..Pfn(2 * S)).unwrap();
    yard.online(Pfn(S)..Pfn(2 * S)).unwrap();
    assert_eq!(kept(&yard), before);
    yard.validate().unwrap();
}

// The free counter and ticks.

thread_local! {
    static CPU: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn many(mib: u64, cpus: u32) -> Asked {
    let hooks = Answers { cpu: Box::new(|| CPU.get()), ..Answers::default() };
    on(mib, cpus, hooks)
}

/// How far all CPUs' parts of the free counter together may drift (§9.3).
fn drift(cpus: u32, managed: u64) -> u64 {
    let bits = |x: u64| u64::from(u64::BITS - x.leading_zeros());
    u64::from(cpus) * (2 * bits(cpus.into()) * (1 + bits(managed >> 15))).min(125)
}

#[test]
fn s9_3_the_free_counter_drifts_no_further_than_by_parts_of_cpus() {
    const CPUS: u32 = 20;
    let yard = many(512, CPUS);
    let bound = drift(CPUS, info(&yard).managed);
    let mut most = 0;
    let mut check = || {
        let info = info(&yard);
        let off = info.free.abs_diff(info.free_exact);
        assert!(off <= bound, "the counter is off by {off} pages, more than {bound}");
        most = most.max(off);
    };
    let mut held = Vec::new();
    for round in 0..200u32 {
        for cpu in 0..CPUS {
            CPU.set(cpu);
            for _ in 0..(round * 7 + cpu * 5) % 32 {
                held.push(yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap());
            }
            check();
        }
    }
    yard.validate().unwrap();
    for (n, pfn) in held.drain(..).enumerate() {
        CPU.set(n as u32 * 7 % CPUS);
        yard.free(pfn, Order::ZERO).unwrap();
        if n % 16 == 0 {
            check();
        }
    }
    // The domains must use their allowance, or this test checks nothing.
    assert!(most > bound / 2, "at most {most} of {bound} pages");
    for cpu in (0..CPUS).map(CpuId) {
        yard.tick(cpu);
    }
    let after = info(&yard);
    assert_eq!(after.free, after.free_exact, "ticks fold all parts");
    // A domain without CPUs keeps no part.
    for cpu in 8..16 {
        assert!(yard.cpu_dead(CpuId(cpu)));
    }
    yard.validate().unwrap();
    let after = info(&yard);
    assert_eq!(after.free, after.free_exact);
}

#[test]
fn requests_for_pages_of_magazines_stop_at_the_mark() {
    let yard = many(64, 16);
    let gfp = Gfp::NOWAIT.difference(Gfp::KSWAPD_RECLAIM) | Gfp::NOWARN;
    let mark = |info: &ZoneInfo| info.watermarks[1] + info.boost;
    let mut held = Vec::new();
    for n in 0..1u32 << 15 {
        CPU.set(n / 7 % 16);
        let before = info(&yard);
        let page = yard.alloc(Order::ZERO, gfp);
        if n % 8 == 0 || page.is_err() {
            yard.validate().unwrap();
        }
        if let Ok(pfn) = page {
            // What magazines keep becomes free for a request that lacks it.
            assert!(before.free + before.cached > before.watermarks[0], "{before:?}");
            held.push(pfn);
        } else {
            assert!(before.free <= mark(&before), "{before:?}");
            break;
        }
        // Frees of cached pages, at each distance from the mark.
        if n % 3 == 0 {
            let pfn = held.swap_remove(n as usize * 13 % held.len());
            yard.free(pfn, Order::ZERO).unwrap();
        }
    }
    assert!(info(&yard).cached > 0, "pages are cached in magazines");
    for pfn in held {
        yard.free(pfn, Order::ZERO).unwrap();
    }
    yard.drain_all(None);
    (0..16).map(CpuId).for_each(|cpu| _ = yard.tick(cpu));
    yard.validate().unwrap();
    assert_eq!(info(&yard).free, 64 << 8);
}

/// What a CPU keeps is what its counters say, also after its lists were drained for good.
#[test]
fn disabled_and_offline_cpus_keep_nothing_by_their_counters() {
    let yard = many(64, 2);
    let fill = || {
        CPU.set(1);
        let pages: Vec<Pfn> =
            (0..100).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
        pages.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        CPU.set(0);
    };
    let counted = || {
        let of = |cpu| yard.cpu_stats(ZoneKind::Normal, CpuId(cpu)).unwrap().cached_pages();
        (0..2).map(of).sum::<i64>()
    };
    fill();
    assert!(counted() > 0);
    drop(yard.disable_pcp(ZoneKind::Normal).unwrap());
    yard.drain_all(None);
    assert_eq!((counted(), info(&yard).cached), (0, 0));
    fill();
    assert!(yard.cpu_dead(CpuId(1)));
    yard.drain_all(None);
    assert_eq!((counted(), info(&yard).cached), (0, 0));
}

/// Pages pass between CPUs through depots, which ticks trim. All counters together say what is kept, and
/// a pageset's count what its CPU keeps.
#[test]
fn counters_follow_pages_through_depots() {
    let yard = many(64, 2);
    let zone = ZoneKind::Normal;
    let counted = || {
        let of = |cpu| yard.cpu_stats(zone, CpuId(cpu)).unwrap().cached_pages();
        (0..2).map(of).sum::<i64>()
    };
    let kept = || {
        let of = |cpu| yard.pageset(zone, CpuId(cpu)).unwrap().count;
        (0..2).map(of).sum::<i32>() as u64 + yard.depot_pages(zone).unwrap()
    };
    for round in 0..20 {
        CPU.set(0);
        let next = |_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let pages: Vec<Pfn> = (0..2000).map(next).collect();
        CPU.set(1);
        pages.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        assert!(yard.depot_pages(zone).unwrap() > 0, "{round}");
        for _ in 0..round {
            assert_eq!((counted(), kept()), (info(&yard).cached as i64, info(&yard).cached));
            (0..2).for_each(|cpu| _ = yard.tick(CpuId(cpu)));
        }
    }
    let through = |cpu| yard.magazine_counts(zone, CpuId(cpu)).unwrap();
    assert!(through(1).depot_in >= through(0).depot_out && through(0).depot_out > 0);
    yard.drain_all(None);
    assert_eq!((counted(), kept(), info(&yard).cached), (0, 0, 0));
    let exact = Yard::<Bare<spin::Mutex<()>, ()>>::from_memory_map(
        &[1 << 32..(1 << 32) + 64 * MIB],
        &[],
        1,
        (),
    );
    let exact = exact.unwrap();
    assert_eq!((exact.depot_pages(zone), exact.magazine_counts(zone, CpuId(0))), (None, None));
}

/// In a small zone, the magazines and depots of one CPU may keep nearly all memory. Requests on others get
/// it, those that must not wait too, before anything is reclaimed.
#[test]
fn requests_get_what_other_cpus_keep() {
    let yard = many(64, 2);
    let order = |n| Order::new(n).unwrap();
    let gfps = [Gfp::KERNEL, Gfp::NOWAIT, Gfp::ATOMIC, Gfp::KERNEL | Gfp::MEMALLOC];
    for gfp in gfps {
        CPU.set(0);
        for t in [Gfp::empty(), Gfp::MOVABLE] {
            // What two magazines and a depot of two hold.
            for (n, count) in [(9, 12), (3, 128)] {
                let next = || yard.alloc(order(n), Gfp::KERNEL | t).unwrap();
                let blocks: Vec<Pfn> = (0..count).map(|_| next()).collect();
                blocks.iter().for_each(|&block| yard.free(block, order(n)).unwrap());
            }
        }
        let before = info(&yard);
        assert!(before.cached > before.managed / 2, "CPU 0 keeps most: {before:?}");
        CPU.set(1);
        let pages: Vec<Pfn> =
            std::iter::from_fn(|| yard.alloc(Order::ZERO, gfp | Gfp::NOWARN).ok()).collect();
        let withheld = before.watermarks[0] + before.boost + 64;
        let got = pages.len() as u64;
        assert!(got + withheld >= before.managed, "{gfp:?}: {got} of {}", before.managed);
        pages.iter().for_each(|&page| yard.free(page, Order::ZERO).unwrap());
        yard.drain_all(None);
        yard.validate().unwrap();
        assert_eq!(info(&yard).free_exact, before.managed);
    }
}

/// Background reclaim drains magazines first, and has nothing to reclaim then.
#[test]
fn s7_1_background_reclaim_drains_magazines_first() {
    let yard = many(64, 2);
    CPU.set(0);
    let mut held = Vec::new();
    while let Ok(block) = yard.alloc(Order::HUGE, Gfp::KERNEL | Gfp::NOWARN) {
        held.push(block);
    }
    let mut pages = Vec::new();
    while let Ok(page) = yard.alloc(Order::ZERO, Gfp::NOWAIT | Gfp::NOWARN) {
        pages.push(page);
    }
    // Some blocks come back, to magazines: the zone is still below its marks.
    held.drain(..4).for_each(|block| yard.free(block, Order::HUGE).unwrap());
    let before = info(&yard);
    assert!(before.free_exact < before.watermarks[2] && before.cached >= 4 * 512, "{before:?}");
    let mut kswapd = yard.kswapd(NodeId(0)).unwrap();
    assert!(!matches!(kswapd.next(0), ReclaimTask::Reclaim(_)));
    assert!(info(&yard).free_exact >= before.watermarks[2]);
}

#[test]
fn each_domain_trims_its_own_depot_and_no_tick_returns_many_magazines() {
    const MAGAZINE: u64 = 64;
    // The node's depot may hold a hundred magazines, of which four are due for return at a time.
    let yard = many(2048, 16);
    CPU.set(9);
    let take = || yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let held: Vec<Pfn> = (0..20_000).map(|_| take()).collect();
    held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    let cached = || info(&yard).cached;
    // Magazines of the CPU, of its domain and of the node.
    assert!(cached() > 100 * MAGAZINE, "{}", cached());
    let tick = |cpu: u32| {
        let before = cached();
        let again = yard.tick(CpuId(cpu));
        let returned = before - cached();
        assert!(returned <= 2 * MAGAZINE, "one tick returned {returned} pages");
        (returned, again)
    };
    // CPUs of the other domain return only the node's magazines.
    (0..2_000).for_each(|n| _ = tick(n % 4));
    yard.validate().unwrap();
    let left = cached();
    assert!((8 * MAGAZINE..=11 * MAGAZINE).contains(&left), "{left} pages left");
    assert_eq!(tick(0), (0, false));
    // The first CPU of the domain is idle, so another one trims.
    let trims = (0..200).filter(|_| tick(10).0 > 0).count();
    assert_eq!(trims, 8, "one magazine per interval");
    assert_eq!(cached(), left - 8 * MAGAZINE, "the CPU's own magazines stay");
    assert_eq!(tick(10), (0, false));
    assert!(!tick(9).1, "no tick empties CPU 9's magazines");
    yard.validate().unwrap();
}

/// Maps in statics are sized at compile time, zone by zone; a layout says the same at run time.
#[test]
fn s8_1_needs_at_compile_time_are_those_of_the_layout() {
    const fn of(first: u64, frames: u32) -> packed::Needs {
        match packed::Needs::of_zone(Pfn(first), frames, 12) {
            Ok(needs) => needs,
            Err(_) => panic!("out of range"),
        }
    }
    const NEEDS: packed::Needs = of(300, 20_000).and(of(1 << 20, 70_000));
    let machine = crate::common::Machine::new()
        .span(ZoneKind::Dma32, 300..20_300)
        .span(ZoneKind::Normal, 1 << 20..(1 << 20) + 70_000)
        .usable(300..20_300)
        .usable(1 << 20..(1 << 20) + 70_000)
        .cpus(&[0; 12]);
    let needs = machine.layout().needs_on::<Lock>(policy::Engine::Packed).unwrap();
    assert_eq!(needs.packed.get(), NEEDS);
}
