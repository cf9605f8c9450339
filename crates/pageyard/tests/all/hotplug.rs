//! Sections that go online and offline (spec §8.4).

#![allow(clippy::single_range_in_vec_init)] // lists of ranges, some of one

use crate::common;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, OnceLock};
use std::thread::JoinHandle;

use common::any::{On, Shared, SharedHooks};
use common::by_thread::CPU;
use common::check::{Owned, check};
use common::state::State;
use common::view::view;
use common::{LINUX612, Machine, Reused, frames, o};
use pageyard::MigrateType::HighAtomic;
use pageyard::policy::{Guarded, Packed, StaticPolicy};
use pageyard::tuning::{Limits, Tuning};
use pageyard::{
    AllocError, ContigError, CpuId, Defences, Gfp, HotplugError, IsolateError, MigrateType, NodeId,
    Observer, Order, Pfn, PlaceError, Platform, PoisonError, Poisoned, Reclaim, ReclaimJob, Record,
    Relocation, SECTION_PAGES, ZoneId, ZoneKind,
};
use proptest::prelude::*;

const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;
const USER: Gfp = Gfp::HIGHUSER_MOVABLE;

thread_local! {
    /// Runs in the next reclaim of this thread.
    static MEMORY_COMES: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// An embedder with movable blocks: it records them, and counts the moves.
#[derive(Debug, Default)]
struct Mover {
    blocks: Mutex<BTreeMap<Pfn, Order>>,
    moves: Mutex<u64>,
    /// How many more times its blocks answer busy.
    busy: AtomicU32,
    pauses: AtomicU32,
    /// The requests that the fail hook was asked about.
    requests: Mutex<Vec<(Order, Gfp)>>,
}

impl Platform for Mover {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn pause(&self) {
        self.pauses.fetch_add(1, Relaxed);
        std::hint::spin_loop();
    }
}

impl Reclaim for Mover {
    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        MEMORY_COMES.take().into_iter().for_each(|come| come());
        0
    }

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let one_less = |n: u32| n.checked_sub(1);
        if self.busy.fetch_update(Relaxed, Relaxed, one_less).is_ok() {
            return Relocation::Busy;
        }
        // The calling thread may hold the table: its own request may compact.
        let Ok(mut blocks) = self.blocks.try_lock() else { return Relocation::Busy };
        if blocks.get(&from) != Some(&order) {
            return Relocation::Refused;
        }
        blocks.remove(&from);
        blocks.insert(to, order);
        *self.moves.lock().unwrap() += 1;
        Relocation::Moved
    }
}

impl Observer for Mover {}
impl Defences for Mover {
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        self.requests.lock().unwrap().push((order, gfp));
        false
    }
}

type Y<'y, 'm> = On<'y, &'m Mover, SharedHooks<'m>>;

/// Allocates a block that can move.
fn take(y: &Y<'_, '_>, order: u8) -> Option<Pfn> {
    // Hold the table, so that the block is recorded before the allocator can move it.
    let mut blocks = y.hooks().blocks.lock().unwrap();
    let pfn = y.alloc(o(order), USER | Gfp::NOWARN).ok()?;
    blocks.insert(pfn, o(order));
    y.set_movable(pfn, o(order), true).unwrap();
    Some(pfn)
}

/// Frees the n-th block, wherever it is now.
fn give_back(y: &Y<'_, '_>, n: usize) {
    let mut blocks = y.hooks().blocks.lock().unwrap();
    if blocks.is_empty() {
        return;
    }
    let (&pfn, &order) = blocks.iter().nth(n % blocks.len()).unwrap();
    blocks.remove(&pfn);
    y.free(pfn, order).unwrap();
}

fn owned(y: &Y<'_, '_>) -> Owned {
    y.hooks().blocks.lock().unwrap().clone()
}

/// The machine that `check` expects when only `usable` is online.
fn with_memory(machine: &Machine, usable: &[Range<u64>]) -> Machine {
    let usable = usable.iter().cloned().map(frames).collect();
    Machine { usable, ..machine.clone() }
}

fn managed(y: &Y<'_, '_>, zone: impl Into<ZoneId>) -> u64 {
    y.zone_info(zone).unwrap().managed
}

/// §8.4, §8.3: onlined sections are movable and free; marks and limits follow.
#[test]
fn s8_4_online() {
    let machine = Machine::new().span(NORMAL, 0..8 * S).usable(0..S);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        let before = y.zone_info(NORMAL).unwrap();
        assert_eq!(y.pageset(NORMAL, CpuId(0)).unwrap().limits.batch, 7);
        y.online(frames(2 * S..8 * S)).unwrap();
        let after = y.zone_info(NORMAL).unwrap();
        assert_eq!((after.present, after.managed, after.free_exact), (7 * S, 7 * S, 7 * S));
        assert!(after.watermarks[1] > before.watermarks[1], "§8.3");
        assert_eq!(y.pageset(NORMAL, CpuId(0)).unwrap().limits.batch, 63, "§8.3");
        let v = view(y, NORMAL);
        assert_eq!(v.zone.isolated_blocks, 0);
        assert_eq!(v.label(2 * S), MigrateType::Movable);
        assert_eq!(v.free(10, MigrateType::Movable).len() as u64, 7 * S / 1024);
        assert_eq!(v.free(10, MigrateType::Movable)[0], 0, "§8.4: behind the old blocks");
        let all = with_memory(&machine, &[0..S, 2 * S..8 * S]);
        check(y, &all, &Owned::new());
    });
}

/// §8.4: offlining moves blocks out of a section. Its frames are not allocated until the section is
/// onlined again.
#[test]
fn s8_4_offline_migrates_used_blocks() {
    let machine = Machine::normal(4 * S);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        while managed(y, NORMAL) - y.zone_info(NORMAL).unwrap().free_exact < 2 * S {
            for order in [0, 0, 1, 2, 3, 5, 9] {
                take(y, order).unwrap();
            }
        }
        let pages = |y: &Y<'_, '_>| owned(y).values().map(|o| u64::from(o.pages())).sum::<u64>();
        let held = pages(y);
        y.offline(frames(0..S)).unwrap();
        assert!(*y.hooks().moves.lock().unwrap() > 0);
        assert_eq!(pages(y), held, "nothing is lost");
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!((info.present, info.managed), (3 * S, 3 * S));
        let v = view(y, NORMAL);
        assert_eq!(v.zone.isolated_blocks, 0);
        check(y, &with_memory(&machine, &[S..4 * S]), &owned(y));
        assert!(v.cpus[0].tuning.limits.high_max > 0, "the lists are enabled again");

        while take(y, 0).is_some() {}
        assert!(owned(y).keys().all(|p| p.0 >= S));
        assert_eq!(y.offline(frames(0..S)), Err(HotplugError::Hole(Pfn(0))));
        y.online(frames(0..S)).unwrap();
        assert!(take(y, 10).is_some());
        check(y, &machine, &owned(y));
    });
}

/// §8.4: blocks of every order leave the movable zone for another, if all of it goes.
#[test]
fn s8_4_offline_moves_blocks_to_other_zones() {
    let machine = Machine::new().zone(NORMAL, 0..S).zone(ZoneKind::Movable, S..2 * S);
    for rules in [LINUX612, &<Packed as StaticPolicy>::RULES] {
        machine.run_with(&Mover::default(), rules, |y: &Y<'_, '_>| {
            for order in [9, 0, 10, 5] {
                let pfn = take(y, order).unwrap();
                assert_eq!(y.zone_of(pfn), Some(ZoneKind::Movable.into()));
            }
            let _ = std::mem::take(&mut *y.hooks().requests.lock().unwrap());
            assert_eq!(y.offline(frames(S..2 * S)), Ok(()), "{:?}", rules.engine);
            assert!(owned(y).len() == 4 && owned(y).keys().all(|p| p.0 < S));
            // The requests for places are those of a movable user page, whatever the order.
            let requests = std::mem::take(&mut *y.hooks().requests.lock().unwrap());
            let is_user = |&(_, gfp): &(Order, Gfp)| gfp.contains(USER | Gfp::NOWARN);
            assert!(requests.len() >= 4 && requests.iter().all(is_user), "{requests:?}");
            y.validate().unwrap();
        });
    }
}

/// §8.4: what the lists of a zone had learned goes with its last memory.
#[test]
fn s8_4_the_lists_of_an_emptied_zone_are_reset() {
    let machine = Machine::new().zone(NORMAL, 0..S).zone(ZoneKind::Movable, S..2 * S);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        let tuning = || y.pageset(ZoneKind::Movable, CpuId(0)).unwrap();
        let movable = S..2 * S;
        let pages: Vec<_> = (0..4000).map(|_| y.alloc(Order::ZERO, USER).unwrap()).collect();
        assert!(pages.iter().all(|p| movable.contains(&p.0)));
        let pair = y.alloc(o(1), USER).unwrap();
        pages.iter().for_each(|&p| y.free(p, Order::ZERO).unwrap());
        y.free(pair, o(1)).unwrap();
        y.fold(CpuId(0));
        let learned = tuning();
        assert!(learned.high > 0 && learned.flags > 0 && learned.free_count > 0, "{learned:?}");
        y.offline(frames(movable.clone())).unwrap();
        let limits = Limits { batch: 1, high_min: 0, high_max: 0 };
        assert_eq!(tuning(), Tuning { limits, ..Tuning::default() });
        y.online(frames(movable)).unwrap();
        let fresh = tuning();
        assert_eq!(Tuning { limits, ..fresh }, Tuning { limits, ..Tuning::default() });
        y.alloc(Order::ZERO, USER).unwrap();
        assert_eq!(tuning().high, fresh.limits.high_min + tuning().limits.batch, "§5.8");
        assert_eq!(view(y, ZoneKind::Movable).cpus[0].expire, 0);
    });
}

/// §4.11, §8.4: guards and what cannot move keep a section of the movable zone online, all of it.
#[test]
fn a_guard_keeps_a_movable_section_online() {
    let machine = Machine::new().zone(NORMAL, 0..S).zone(ZoneKind::Movable, S..2 * S);
    machine.run_with(&Mover::default(), &<Guarded<5>>::RULES, |y: &Y<'_, '_>| {
        let guards = || y.out_of_use(ZoneKind::Movable).unwrap().guards;
        // Its owner is not the one that can move blocks.
        let page = y.alloc(Order::ZERO, USER).unwrap();
        assert!(page.0 >= S && guards() > 0);
        assert_eq!(
            y.offline(frames(S..2 * S)),
            Err(HotplugError::Refused(ContigError::Busy(page)))
        );
        assert_eq!(guards(), 31, "of the lists' other pages none is left");
        y.validate().unwrap();
        y.free(page, Order::ZERO).unwrap();
        y.drain_all(None);
        assert_eq!((guards(), y.offline(frames(S..2 * S))), (0, Ok(())));
        y.validate().unwrap();
    });
}

/// §3.3: blocks that leave a zone take no more of another one than requests for theirs may.
#[test]
fn s3_3_a_zone_keeps_its_reserve_from_blocks_that_leave_another() {
    let machine = Machine::new()
        .zone(ZoneKind::Dma32, 0..S)
        .zone(NORMAL, S..3 * S)
        .knobs(|knobs| knobs.lowmem_reserve_ratio = [256, 4, 32, 0, 0]);
    for rules in [LINUX612, &<Packed as StaticPolicy>::RULES] {
        machine.run_with(&Mover::default(), rules, |y: &Y<'_, '_>| {
            while take(y, 9).is_some() {}
            let zone = || y.zone_info(ZoneKind::Dma32).unwrap();
            let before = zone();
            assert!(before.free_exact >= before.lowmem_reserve[NORMAL as usize]);
            // They could move, but there is no room.
            let refused = y.offline(frames(2 * S..3 * S));
            assert_eq!(refused, Err(HotplugError::Refused(ContigError::NoMemory)));
            assert_eq!(zone().free_exact, before.free_exact, "{:?}", rules.engine);
            y.validate().unwrap();
        });
    }
}

#[test]
fn frames_of_an_offline_section_are_reserved() {
    let machine = Machine::normal(2 * S);
    for rules in [LINUX612, &<Packed as StaticPolicy>::RULES] {
        machine.run_with(&Mover::default(), rules, |y: &Y<'_, '_>| {
            y.offline(frames(S..2 * S)).unwrap();
            let there = y.alloc_at(Pfn(S), Order::ZERO, Gfp::KERNEL);
            assert_eq!(there, Err(PlaceError::Reserved(Pfn(S))), "{:?}", rules.engine);
        });
    }
}

/// A range's frames are movable once their owner says so, though their pageblocks are.
#[test]
fn s4_12_a_range_does_not_move_by_itself() {
    let machine = Machine::normal(4 * 512);
    for rules in [LINUX612, &<Packed as StaticPolicy>::RULES] {
        machine.run_with(&Mover::default(), rules, |y: &Y<'_, '_>| {
            let range = y.alloc_contig(frames(0..100), MigrateType::Movable, Gfp::KERNEL);
            range.unwrap();
            let again = y.alloc_contig(frames(0..100), MigrateType::Movable, Gfp::KERNEL);
            let unmovable = IsolateError::Unmovable(Pfn(0));
            assert_eq!(again, Err(ContigError::Isolate(unmovable)), "{:?}", rules.engine);
            for pfn in (0..100).map(Pfn) {
                y.set_movable(pfn, Order::ZERO, true).unwrap();
                y.hooks().blocks.lock().unwrap().insert(pfn, Order::ZERO);
            }
            y.alloc_contig(frames(0..100), MigrateType::Movable, Gfp::KERNEL).unwrap();
            assert_eq!(*y.hooks().moves.lock().unwrap(), 100);
            y.validate().unwrap();
        });
    }
}

/// §8.4: a section with an immovable block stays online, unchanged.
#[test]
fn s8_4_offline_fails_on_unmovable_blocks() {
    let machine = Machine::new()
        .zone(ZoneKind::Dma32, 0..2 * S)
        .span(NORMAL, 2 * S..8 * S + 512)
        .usable(2 * S..5 * S)
        .usable(6 * S..6 * S + 1000)
        .reserved(3 * S + 5..3 * S + 6);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        let offline = |r: Range<u64>| y.offline(frames(r));
        let online = |r: Range<u64>| y.online(frames(r));
        let range = |e| Err(HotplugError::Refused(ContigError::Isolate(e)));
        let outside = |p| range(IsolateError::OutsideZone(Pfn(p)));
        assert_eq!(offline(S + 512..2 * S), Err(HotplugError::Misaligned(Pfn(S + 512))));
        assert_eq!(online(S..2 * S - 1), Err(HotplugError::Misaligned(Pfn(2 * S - 1))));
        assert_eq!(offline(S..S), range(IsolateError::EmptyRange));
        assert_eq!(offline(S..3 * S), outside(2 * S));
        assert_eq!(offline(20 * S..21 * S), outside(20 * S));
        assert_eq!(online(8 * S..9 * S), outside(8 * S + 512));
        assert_eq!(offline(5 * S..6 * S), Err(HotplugError::Hole(Pfn(5 * S))));
        assert_eq!(offline(6 * S..7 * S), Err(HotplugError::Hole(Pfn(6 * S + 1024))));
        assert_eq!(online(4 * S..6 * S), Err(HotplugError::Present(Pfn(4 * S))));
        assert_eq!(online(6 * S..7 * S), Err(HotplugError::Present(Pfn(6 * S))));
        assert_eq!(offline(3 * S..4 * S), range(IsolateError::Unmovable(Pfn(3 * S + 5))));

        // Marked as movable, but its owner refuses to move it.
        y.alloc_at(Pfn(2 * S + 3), o(0), Gfp::KERNEL).unwrap();
        assert_eq!(offline(2 * S..3 * S), range(IsolateError::Unmovable(Pfn(2 * S + 3))));
        y.set_movable(Pfn(2 * S + 3), o(0), true).unwrap();
        let busy = Err(HotplugError::Refused(ContigError::Busy(Pfn(2 * S + 3))));
        assert_eq!(offline(2 * S..3 * S), busy);

        let v = view(y, NORMAL);
        assert_eq!((v.zone.managed, v.zone.isolated_blocks), (3 * S - 1 + 1000, 0));
        assert!(v.blocks.values().all(|&t| t == MigrateType::Movable));
        assert!(v.cpus[0].tuning.limits.high_max > 0, "the lists are enabled again");
        check(y, &machine, &[(Pfn(2 * S + 3), o(0))].into());
    });
}

/// §8.4, §2.5: CPUs use a node from its first onlined section until its last one is offlined.
#[test]
fn s8_4_a_nodes_first_and_last_section() {
    let node1 = ZoneId { node: NodeId(1), kind: NORMAL };
    let mut machine =
        Machine::new().zone_on(0, NORMAL, 0..4 * S).zone_on(1, NORMAL, 4 * S..6 * S).cpus(&[0, 1]);
    machine.usable.pop();
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        CPU.set(1);
        let list = |y: &Y<'_, '_>| y.zonelist(NodeId(1), NORMAL).collect::<Vec<_>>();
        let home = |p: Pfn| y.zone_of(p).unwrap().node.0;
        // Some pages of the other node's zone stay on this CPU's list.
        let early: Vec<Pfn> = (0..4).map(|_| take(y, 0).unwrap()).collect();
        assert!(early.iter().all(|&p| home(p) == 0));
        assert_eq!(list(y), [ZoneId::from(NORMAL)]);

        y.online(frames(5 * S..6 * S)).unwrap();
        assert_eq!(list(y), [node1, NORMAL.into()]);
        for order in [0, 0, 3, 9, 10] {
            assert_eq!(home(take(y, order).unwrap()), 1, "order {order}: the local node first");
        }
        assert!(y.pageset(node1, CpuId(1)).unwrap().limits.high_max > 0);
        CPU.set(0);
        assert_eq!(home(take(y, 0).unwrap()), 0);
        assert_eq!(y.zonelist(NodeId(0), NORMAL).count(), 2);

        y.offline(frames(5 * S..6 * S)).unwrap();
        let info = y.zone_info(node1).unwrap();
        assert_eq!((info.present, info.managed, info.free_exact, info.cached), (0, 0, 0, 0));
        assert_eq!(info.free, 0, "no CPU has a part of the counter left");
        assert_eq!(y.pageset(node1, CpuId(1)).unwrap().limits.high_max, 0);
        assert_eq!(list(y), [ZoneId::from(NORMAL)]);
        CPU.set(1);
        assert_eq!(home(take(y, 0).unwrap()), 0);
        CPU.set(0);
        check(y, &machine, &owned(y));
        // Online the node once more.
        y.online(frames(4 * S..6 * S)).unwrap();
        CPU.set(1);
        assert_eq!(home(take(y, 0).unwrap()), 1);
        CPU.set(0);
        check(y, &with_memory(&machine, &[0..6 * S]), &owned(y));
    });
}

/// §3.8, §8.4: pageblocks that are removed leave the highatomic reserve. An isolation for another use keeps
/// its size.
#[test]
fn s8_4_a_removed_highatomic_pageblock_leaves_the_reserve() {
    let s = [0, 1, 64].into_iter().fold(State::new(2 * S), |s, b| s.label(b, HighAtomic));
    let s = (0..2 * S).step_by(512).fold(s, |s, block| s.free(block, 9));
    s.set(|z| z.reserved_highatomic = 3 * 512).run(|y| {
        let reserved = || y.zone_info(NORMAL).unwrap().reserved_highatomic;
        y.isolate(frames(S..S + 512), MigrateType::Movable).unwrap();
        assert_eq!(reserved(), 3 * 512);
        y.offline(frames(0..S)).unwrap();
        assert_eq!(reserved(), 512);
    });
}

/// §8.4, §1.11: a zone with shuffled lists is shuffled again when memory is onlined.
#[test]
fn s8_4_onlined_memory_is_shuffled() {
    let machine =
        Machine::new().span(NORMAL, 0..8 * S).usable(0..S).knobs(|k| k.shuffle_seed = Some(7));
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        y.online(frames(S..8 * S)).unwrap();
        let v = view(y, NORMAL);
        let list = v.free(10, MigrateType::Movable);
        assert_eq!(list.len() as u64, 8 * S / 1024);
        let old = list.iter().take(32).filter(|&&p| p < S).count();
        assert!(old < 20, "{old} of the first 32 blocks are the old ones");
        check(y, &with_memory(&machine, &[0..8 * S]), &Owned::new());
    });
}

/// §8.2, §8.4: memory is not onlined or offlined before deferred initialisation has finished.
#[test]
fn s8_4_not_before_deferred_initialisation_is_finished() {
    let platform: &'static Mover = Box::leak(Box::default());
    let all = Reused::new(Machine::normal(4 * S));
    let y: Y<'_, '_> = On::new(platform, |hooks| all.next_deferred(hooks));
    assert_eq!(y.offline(frames(0..S)), Err(HotplugError::Deferred));
    assert_eq!(y.online(frames(2 * S..3 * S)), Err(HotplugError::Deferred));
    assert!(y.finish_deferred());
    assert_eq!(y.offline(frames(0..S)), Ok(()));
}

/// §8.4 under load: sections go offline and online while other threads allocate and free movable
/// blocks; no page is lost.
#[test]
fn s8_4_under_load() {
    let machine = Machine::normal(4 * S).cpus(&[0; 3]);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        std::thread::scope(|s| {
            for cpu in 1..3usize {
                s.spawn(move || {
                    CPU.set(cpu as u32);
                    for i in 0..6000 {
                        let _ = take(y, [0, 0, 1, 3, 0, 9][i % 6]);
                        if i % 4 > 0 || i > 3000 {
                            give_back(y, i * 7 * cpu);
                        }
                    }
                });
            }
            let (mut gone, mut round) = (0, 0);
            // Repeat at least until one section was offlined.
            while round < 12 || gone == 0 {
                let section = frames(round % 4 * S..(round % 4 + 1) * S);
                round += 1;
                if y.offline(section.clone()).is_ok() {
                    gone += 1;
                    assert_eq!(managed(y, NORMAL), 3 * S);
                    y.online(section).unwrap();
                } else {
                    // Make room: offlining may have had no place to move blocks to.
                    (0..500).for_each(|n| give_back(y, n));
                }
            }
        });
        assert_eq!(managed(y, NORMAL), 4 * S);
        check(y, &machine, &owned(y));
    });
}

/// §8.4: when two threads online the same memory, exactly one succeeds.
#[test]
fn the_same_memory_is_onlined_once() {
    let machine = Machine::new().span(NORMAL, 0..2 * S).usable(0..S).cpus(&[0; 2]);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        for _ in 0..50 {
            let both = Barrier::new(2);
            let come = |cpu| {
                CPU.set(cpu);
                both.wait();
                u32::from(y.online(frames(S..2 * S)).is_ok())
            };
            let came = std::thread::scope(|s| {
                let other = s.spawn(|| come(1));
                come(0) + other.join().unwrap()
            });
            assert_eq!(came, 1);
            y.validate().unwrap();
            y.offline(frames(S..2 * S)).unwrap();
        }
    });
}

/// §8.4: offlining tries to empty a section eight times, and asks each block five times per try,
/// before it fails.
#[test]
fn offline_tries_a_busy_block_forty_times() {
    for (busy, goes) in [(39, true), (40, false)] {
        Machine::normal(2 * S).run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
            let pfn = take(y, 0).unwrap();
            let section = pfn.0 / S * S..(pfn.0 / S + 1) * S;
            y.hooks().busy.store(busy, Relaxed);
            assert_eq!(y.offline(frames(section)).is_ok(), goes, "busy {busy} times");
            assert_eq!(y.hooks().busy.load(Relaxed), 0);
            assert_eq!(managed(y, NORMAL), if goes { S } else { 2 * S });
        });
    }
}

/// §8.4, §2.7: whether requests start with NOFRAGMENT depends on which zones have memory.
#[test]
fn a_hotplugged_lower_zone_decides_nofragment() {
    let machine = Machine::new()
        .span(ZoneKind::Dma32, 0..S)
        .zone(NORMAL, S..2 * S)
        .zone_on(1, NORMAL, 2 * S..3 * S)
        .cpus(&[0, 1]);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        CPU.set(0);
        let nofragment = || {
            let mut found = None;
            y.snapshot(NORMAL, |r| {
                if let Record::Zone(z) = r {
                    found = Some(z.nofragment);
                }
            });
            found.unwrap()
        };
        assert!(!nofragment());
        y.online(frames(0..S)).unwrap();
        assert!(nofragment());
        y.offline(frames(0..S)).unwrap();
        assert!(!nofragment());
    });
}

/// §2.10, §8.4: a request that is about to fail restarts if a zone has got memory since the request
/// began. A later request fails without waiting.
#[test]
fn a_request_restarts_after_memory_is_onlined() {
    let mut machine =
        Machine::new().zone_on(0, NORMAL, 0..S).zone_on(1, NORMAL, S..2 * S).cpus(&[0]);
    machine.usable.pop();
    let platform: &'static Mover = Box::leak(Box::default());
    let all = Reused::new(machine);
    let y: &Y<'_, '_> = On::new(platform, |hooks| all.next(hooks)).leak();
    CPU.set(0);
    while y.alloc(o(0), Gfp::KERNEL | Gfp::MEMALLOC).is_ok() {}
    let hasty = Gfp::KERNEL | Gfp::NORETRY | Gfp::NOWARN;
    assert_eq!(y.alloc(o(0), hasty), Err(AllocError::NoMemory));
    MEMORY_COMES.set(Some(Box::new(|| y.online(frames(S..2 * S)).unwrap())));
    assert!(y.alloc(o(0), hasty).is_ok_and(|pfn| pfn.0 >= S));
    while y.alloc(o(0), Gfp::KERNEL | Gfp::MEMALLOC).is_ok() {}
    platform.pauses.store(0, Relaxed);
    assert_eq!(y.alloc(o(0), hasty), Err(AllocError::NoMemory));
    assert_eq!(platform.pauses.load(Relaxed), 0, "a failing request does not wait");
}

#[derive(Clone, Debug)]
enum Op {
    Take { cpu: u32, order: u8, times: u8 },
    Give { cpu: u32, pick: usize, times: u8 },
    Online(u64),
    Offline(u64),
    Cpu(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u32..3, 0u8..=10, 1u8..60).prop_map(|(cpu, order, times)| Op::Take { cpu, order, times }),
        3 => (0u32..3, 0usize..1000, 1u8..60).prop_map(|(cpu, pick, times)| Op::Give { cpu, pick, times }),
        2 => (0u64..8).prop_map(Op::Online),
        2 => (0u64..8).prop_map(Op::Offline),
        1 => (1u32..3).prop_map(Op::Cpu),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// §8.4, §8.5: sections and CPUs go online and offline in any order between requests, on two
    /// nodes. At every step each page is in one place, and only where there is memory.
    #[test]
    fn s8_4_any_order(ops in proptest::collection::vec(op(), 1..40)) {
        let machine = Machine::new()
            .zone_on(0, NORMAL, 0..4 * S)
            .zone_on(1, NORMAL, 4 * S..8 * S)
            .cpus(&[0, 1, 0]);
        let start = with_memory(&machine, &[0..S]);
        let mut there = [false; 8];
        there[0] = true;
        start.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
            for op in ops {
                CPU.set(0);
                match op {
                    Op::Take { cpu, order, times } => {
                        CPU.set(if y.is_up(CpuId(cpu)) { cpu } else { 0 });
                        (0..times).for_each(|_| _ = take(y, order));
                    }
                    Op::Give { cpu, pick, times } => {
                        CPU.set(if y.is_up(CpuId(cpu)) { cpu } else { 0 });
                        (0..times).for_each(|i| give_back(y, pick * usize::from(i)));
                    }
                    Op::Online(n) => {
                        let came = y.online(frames(n * S..(n + 1) * S));
                        assert_eq!(came.is_ok(), !there[n as usize], "{came:?}");
                        there[n as usize] = true;
                    }
                    Op::Offline(n) => {
                        let went = y.offline(frames(n * S..(n + 1) * S));
                        // There may be no room for the blocks in use.
                        if went.is_ok() {
                            assert!(there[n as usize]);
                            there[n as usize] = false;
                        }
                    }
                    Op::Cpu(n) => assert!(y.cpu_dead(CpuId(n)) || y.cpu_up(CpuId(n))),
                }
                let usable: Vec<_> =
                    (0..8).filter(|&n| there[n as usize]).map(|n| n * S..(n + 1) * S).collect();
                CPU.set(0);
                // A lowered threshold (§9.3) applies to a part from its next change on.
                (0..3).for_each(|cpu| _ = y.tick(CpuId(cpu)));
                check(y, &with_memory(&machine, &usable), &owned(y));
            }
        });
    }
}

/// §4.11, §8.4, §11.3: faulty frames go offline with their section, and are still out of use when
/// it is onlined again.
#[test]
fn s8_4_poisoned_frames_do_not_block_offlining() {
    let machine = Machine::normal(4 * S);
    machine.run_with(&Mover::default(), LINUX612, |y: &Y<'_, '_>| {
        let check = |machine: &Machine| {
            // Thresholds shrink with the zone; CPU parts exceed them until the next fold (§9.2).
            y.tick(CpuId(0));
            check(y, machine, &owned(y));
        };
        let used = take(y, 3).unwrap();
        let first = used.0 / S * S;
        let section = || frames(first..first + S);
        let faulty = [used.0 + 2, first + S / 2, first + S / 2 + 7, first + S - 1].map(Pfn);
        assert_eq!(y.poison_frame(faulty[0]), Ok(Poisoned::WhenFreed));
        for pfn in &faulty[1..] {
            assert_eq!(y.poison_frame(*pfn), Ok(Poisoned::Removed));
        }
        // Only offlining accepts faulty frames. The last pageblock is tested before the inner ones.
        let refused = IsolateError::Unmovable(faulty[3]);
        assert_eq!(y.isolate(section(), MigrateType::Movable), Err(refused));

        y.offline(section()).unwrap();
        assert_eq!(
            *y.hooks().moves.lock().unwrap(),
            1,
            "the block with the faulty frame has moved"
        );
        let info = y.zone_info(NORMAL).unwrap();
        assert_eq!((info.present, info.managed), (3 * S, 3 * S));
        assert_eq!(y.out_of_use(NORMAL).unwrap().pages(), 0);
        let rest: Vec<_> =
            (0..4).map(|i| i * S..(i + 1) * S).filter(|r| r.start != first).collect();
        check(&with_memory(&machine, &rest));
        assert!(
            faulty.iter().all(|&p| y.is_poisoned(p) == Some(true)),
            "frames stay poisoned while offline"
        );
        assert_eq!(y.poison_frame(Pfn(first + 1)), Err(PoisonError::Reserved));

        // One frame is repaired while the section is offline.
        y.unpoison_frame(faulty[3]).unwrap();
        y.online(section()).unwrap();
        assert_eq!(managed(y, NORMAL), 4 * S);
        assert_eq!(y.out_of_use(NORMAL).unwrap().poisoned, 3);
        check(&machine);
        y.offline(section()).unwrap();
        y.online(section()).unwrap();
        assert_eq!(y.out_of_use(NORMAL).unwrap().poisoned, 3);
        y.unpoison_frame(faulty[1]).unwrap();
        assert_eq!(y.out_of_use(NORMAL).unwrap().poisoned, 2);
        check(&machine);
        for (pfn, good) in faulty.into_iter().zip([false, true, false, true]) {
            assert_eq!(y.alloc_at(pfn, o(0), USER).is_ok(), good, "{pfn}");
            assert_eq!(y.free(pfn, o(0)).is_ok(), good, "{pfn}");
        }
        while take(y, 0).is_some() {}
        let got = owned(y);
        assert!(
            !got.contains_key(&faulty[0]) && !got.contains_key(&faulty[2]),
            "a poisoned frame was allocated"
        );
        check(&machine);
    });
}

/// Two tasks, each a thread. While task 0 moves a block, task 1 adds memory.
#[derive(Default)]
struct Tasks {
    yard: OnceLock<&'static Shared<'static, Tasks>>,
    waits: AtomicBool,
    other: Mutex<Option<JoinHandle<Result<(), HotplugError>>>>,
}

thread_local! {
    static TASK: Cell<u64> = const { Cell::new(0) };
}

impl Platform for Tasks {
    fn pause(&self) {
        self.waits.fetch_or(TASK.get() == 1, Relaxed);
        std::thread::yield_now();
    }
}

impl Reclaim for Tasks {
    fn task(&self) -> Option<u64> {
        Some(TASK.get())
    }

    fn relocate(&self, _: Pfn, _: Pfn, _: Order) -> Relocation {
        let yard = *self.yard.get().unwrap();
        let mut other = self.other.lock().unwrap();
        let other = other.get_or_insert_with(|| {
            std::thread::spawn(move || {
                TASK.set(1);
                yard.online(frames(S..2 * S))
            })
        });
        while !self.waits.load(Relaxed) && !other.is_finished() {
            std::thread::yield_now();
        }
        Relocation::Refused
    }
}

impl Observer for Tasks {}
impl Defences for Tasks {}

#[test]
fn s8_4_another_task_waits_until_memory_is_removed() {
    let machine = Machine::new().span(NORMAL, 0..3 * S).usable(0..S).usable(2 * S..3 * S);
    let all = Reused::new(machine);
    let y: &'static Shared<'static, Tasks> =
        On::new(Tasks::default(), |hooks| all.next(hooks)).leak();
    assert!(y.hooks().yard.set(y).is_ok());
    y.alloc_at(Pfn(5), o(0), USER).unwrap();
    y.set_movable(Pfn(5), o(0), true).unwrap();
    let busy = HotplugError::Refused(ContigError::Busy(Pfn(5)));
    assert_eq!(y.offline(frames(0..S)), Err(busy));
    let other = y.hooks().other.lock().unwrap().take().unwrap();
    assert_eq!(other.join().unwrap(), Ok(()));
    assert_eq!(y.zone_info(NORMAL).unwrap().managed, 3 * S);
}
