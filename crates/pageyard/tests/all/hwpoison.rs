//! Frames with faulty memory (spec §11.3), poisoned in every state and while other threads work.

use crate::common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use common::by_thread::{CPU, by_thread, churn};
use common::check::{Owned, check, free_in_pageblocks};
use common::random::Random;
use common::view::view;
use common::{Lock, Machine, Y, o};
use pageyard::policy::*;
use pageyard::{
    FreeError, Gfp, Hooked, MigrateType, Order, OutOfUse, Pfn, PoisonError, Poisoned, Yard,
    ZoneKind,
};

const N: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 8192;

fn run(f: impl for<'y> FnOnce(&Y<'y>)) {
    Machine::normal(PAGES).cpus(&[0, 0]).run_under(&<TypeChecked>::RULES, f);
}

/// Asserts the invariants, and that `poisoned` frames are out of use.
fn check_poisoned(y: &Y<'_>, owned: &Owned, poisoned: u64) {
    check(y, &Machine::normal(PAGES), owned);
    let out = y.out_of_use(N).unwrap();
    assert_eq!(OutOfUse { poisoned, guards: out.guards, bad: 0 }, out);
    assert_eq!(y.zone_stats(N).unwrap().type_check_failures, 0);
    assert_eq!(y.zone_info(N).unwrap().managed, PAGES, "managed stays");
}

/// Allocates everything; no allocated frame may be poisoned.
fn nobody_gets(y: &Y<'_>, poisoned: &[u64]) {
    let mut got = 0;
    while let Ok(p) = y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MEMALLOC) {
        assert!(!poisoned.contains(&p.0), "{p} is poisoned");
        got += 1;
    }
    let left = y.zone_info(N).unwrap().cached + y.zone_info(N).unwrap().free_highatomic;
    assert_eq!(got + left, PAGES - poisoned.len() as u64);
}

#[test]
fn s11_3_a_free_frame_is_split_out_of_its_block() {
    run(|y| {
        assert_eq!(y.poison_frame(Pfn(5)), Ok(Poisoned::Removed));
        assert_eq!(y.is_poisoned(Pfn(5)), Some(true));
        let v = view(y, N);
        let around: Vec<(u64, u8)> =
            v.all_free().map(|(p, o, _)| (p, o)).filter(|b| b.0 < 1024).collect();
        let mut around = around;
        around.sort_unstable();
        // 5 = 0b101: the halves that do not contain it.
        let want = [
            (0, 2),
            (4, 0),
            (6, 1),
            (8, 3),
            (16, 4),
            (32, 5),
            (64, 6),
            (128, 7),
            (256, 8),
            (512, 9),
        ];
        assert_eq!(around, want);
        assert_eq!(y.zone_info(N).unwrap().free_exact, PAGES - 1);
        check_poisoned(y, &Owned::new(), 1);
        assert_eq!(y.free(Pfn(5), Order::ZERO), Err(FreeError::OutOfUse));
        assert_eq!(y.poison_frame(Pfn(5)), Err(PoisonError::Already));
        nobody_gets(y, &[5]);
    });
}

#[test]
fn s11_3_a_cached_frame_is_drained_and_removed() {
    run(|y| {
        // Cached by another CPU than the poisoning one.
        y.hooks().on(1);
        let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        y.free(p, Order::ZERO).unwrap();
        let big = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.free(big, o(3)).unwrap();
        assert!(view(y, N).all_cached().any(|c| c.0 == p.0));
        y.hooks().on(0);
        assert_eq!(y.poison_frame(p), Ok(Poisoned::Removed));
        assert_eq!(y.poison_frame(Pfn(big.0 + 3)), Ok(Poisoned::Removed));
        check_poisoned(y, &Owned::new(), 2);
        nobody_gets(y, &[p.0, big.0 + 3]);
    });
}

/// Only the frame itself stays off the lists, and for one in use no list is drained.
#[test]
fn s11_3_neighbors_of_a_poisoned_frame_in_use_are_cached() {
    run(|y| {
        let pages: Vec<Pfn> = (0..8).map(|_| y.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
        assert!(pages.iter().all(|p| p.0 / 512 == pages[0].0 / 512), "{pages:?}");
        let cached = || y.zone_info(N).unwrap().cached;
        let before = cached();
        assert!(before > 0);
        assert_eq!(y.poison_frame(pages[0]), Ok(Poisoned::WhenFreed));
        assert_eq!(cached(), before);
        y.free(pages[1], Order::ZERO).unwrap();
        y.free_batch(&[(pages[2], Order::ZERO)]).unwrap();
        y.free_nowait(pages[3], Order::ZERO).unwrap();
        assert_eq!(cached(), before + 3);
        y.free(pages[0], Order::ZERO).unwrap();
        assert_eq!((cached(), y.out_of_use(N).unwrap().poisoned), (before + 3, 1));
        assert_eq!(y.alloc(Order::ZERO, Gfp::KERNEL), Ok(pages[3]), "the last one cached");
    });
}

/// For every way to free, every kind of order, and every position in the block.
#[test]
fn s11_3_an_allocated_frame_is_removed_when_freed() {
    type Way = fn(&Y<'_>, Pfn, Order);
    let ways: [Way; 3] = [
        |y, p, o| y.free(p, o).unwrap(),
        |y, p, o| y.free_direct(p, o).unwrap(),
        |y, p, o| y.free_batch(&[(p, o)]).unwrap(),
    ];
    for way in ways {
        for order in [0, 1, 3, 4, 9, 10].map(o) {
            for at in [0, u64::from(order.pages()) / 2, u64::from(order.pages()) - 1] {
                run(|y| {
                    let block = y.alloc(order, Gfp::KERNEL).unwrap();
                    let bad = Pfn(block.0 + at);
                    assert_eq!(y.poison_frame(bad), Ok(Poisoned::WhenFreed));
                    check_poisoned(y, &Owned::from([(block, order)]), 0);
                    way(y, block, order);
                    check_poisoned(y, &Owned::new(), 1);
                    assert_eq!(y.free(bad, Order::ZERO), Err(FreeError::OutOfUse));
                    y.drain_all(None);
                    assert_eq!(y.zone_info(N).unwrap().free_exact, PAGES - 1);
                    // The block's other frames are free, in the largest possible blocks.
                    check_poisoned(y, &Owned::new(), 1);
                    nobody_gets(y, &[bad.0]);
                });
            }
        }
    }
}

#[test]
fn s11_3_only_the_poisoned_frames_of_a_block_are_kept() {
    run(|y| {
        let block = y.alloc(o(10), Gfp::KERNEL).unwrap();
        let bad = [0, 1, 511, 512, 700].map(|i| Pfn(block.0 + i));
        for b in bad {
            assert_eq!(y.poison_frame(b), Ok(Poisoned::WhenFreed));
        }
        y.free(block, o(10)).unwrap();
        check_poisoned(y, &Owned::new(), 5);
        nobody_gets(y, &bad.map(|b| b.0));
    });
}

#[test]
fn s11_3_split_and_shared_blocks_keep_their_poisoned_frames() {
    run(|y| {
        let block = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.poison_frame(Pfn(block.0 + 5)).unwrap();
        y.split(block, o(3), Order::ZERO).unwrap();
        for i in 0..8 {
            y.free(Pfn(block.0 + i), Order::ZERO).unwrap();
        }
        check_poisoned(y, &Owned::new(), 1);

        let block = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.poison_frame(Pfn(block.0)).unwrap();
        y.poison_frame(Pfn(block.0 + 1)).unwrap();
        y.free_shared(block, o(3)).unwrap();
        check_poisoned(y, &Owned::from([(block, Order::ZERO)]), 2);
        y.free(block, Order::ZERO).unwrap();
        check_poisoned(y, &Owned::new(), 3);
    });
}

#[test]
fn s11_3_a_frame_can_be_unpoisoned() {
    run(|y| {
        let before = free_in_pageblocks(&view(y, N));
        let used = y.alloc(o(2), Gfp::KERNEL).unwrap();
        y.drain_all(None);
        y.poison_frame(Pfn(4097)).unwrap();
        y.poison_frame(Pfn(used.0 + 1)).unwrap();
        y.poison_frame(Pfn(used.0 + 2)).unwrap();
        assert_eq!(y.unpoison_frame(Pfn(used.0 + 1)), Ok(()), "still in use");
        y.free(used, o(2)).unwrap();
        check_poisoned(y, &Owned::new(), 2);
        assert_eq!(y.unpoison_frame(Pfn(used.0 + 2)), Ok(()));
        assert_eq!(y.unpoison_frame(Pfn(4097)), Ok(()));
        assert_eq!(y.unpoison_frame(Pfn(4097)), Err(PoisonError::NotPoisoned));
        y.drain_all(None);
        check_poisoned(y, &Owned::new(), 0);
        assert_eq!(free_in_pageblocks(&view(y, N)), before);
    });
}

#[test]
fn s11_3_foreign_and_reserved_frames_cannot_be_poisoned() {
    let m = Machine::normal(PAGES).reserved(0..4);
    m.run(|y: &Y<'_>| {
        assert_eq!(y.poison_frame(Pfn(PAGES)), Err(PoisonError::Foreign));
        assert_eq!(y.poison_frame(Pfn(3)), Err(PoisonError::Reserved));
        assert_eq!(y.unpoison_frame(Pfn(PAGES)), Err(PoisonError::Foreign));
        assert_eq!(y.unpoison_frame(Pfn(9)), Err(PoisonError::NotPoisoned));
        assert_eq!(y.is_poisoned(Pfn(PAGES)), None);
        assert_eq!(y.is_poisoned(Pfn(9)), Some(false));
        check(y, &m, &Owned::new());
    });
}

/// Poisons guards, and free blocks on lists that are not counted or counted separately.
#[test]
fn s11_3_separately_counted_lists_stay_correct() {
    let mut state = common::state::State::new(2048)
        .label(0, MigrateType::HighAtomic)
        .label(1, MigrateType::Isolate);
    state.zone.reserved_highatomic = 512;
    state.free(0, 9).free(512, 9).free(1024, 10).run_under(&<TypeChecked>::RULES, |y| {
        y.poison_frame(Pfn(3)).unwrap();
        y.poison_frame(Pfn(513)).unwrap();
        check(y, &Machine::normal(2048), &Owned::new());
        assert_eq!(y.zone_info(N).unwrap().free_highatomic, 511);
        assert_eq!(y.zone_info(N).unwrap().free_exact, 511 + 1024);
        y.unpoison_frame(Pfn(513)).unwrap();
        y.unpoison_frame(Pfn(3)).unwrap();
        check(y, &Machine::normal(2048), &Owned::new());
        assert_eq!(y.zone_info(N).unwrap().free_exact, 512 + 1024);
    });
    Machine::normal(PAGES).run_under(&<Guarded<4>>::RULES, |y| {
        let used = y.alloc(o(4), Gfp::KERNEL).unwrap();
        let one = y.alloc(Order::ZERO, Gfp::KERNEL | Gfp::RECLAIMABLE).unwrap();
        y.drain_all(None);
        assert!(y.out_of_use(N).unwrap().guards > 0);
        let guard = *view(y, N).guards.iter().find(|g| *g.1 == 3).unwrap().0;
        assert_eq!(y.poison_frame(Pfn(guard + 2)), Ok(Poisoned::Removed));
        check_poisoned(y, &Owned::from([(used, o(4)), (one, Order::ZERO)]), 1);
        y.unpoison_frame(Pfn(guard + 2)).unwrap();
        y.free(one, Order::ZERO).unwrap();
        y.free(used, o(4)).unwrap();
        y.drain_all(None);
        check_poisoned(y, &Owned::new(), 0);
        assert_eq!(y.out_of_use(N).unwrap().guards, 0);
        assert_eq!(y.free_blocks(N).unwrap()[10], PAGES / 1024);
    });
}

/// Three threads allocate and free; a fourth poisons frames in any state. After everything is
/// freed, every poisoned frame is out of use, and no free has put one back.
#[test]
fn s11_3_frames_are_poisoned_while_others_work() {
    let m = Machine::normal(PAGES).cpus(&[0, 0, 0, 0]);
    m.run_on_under(by_thread(), &<TypeChecked>::RULES, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        let stop = AtomicBool::new(false);
        let poisoned = Mutex::new(Vec::new());
        thread::scope(|s| {
            for cpu in 0..3 {
                let stop = &stop;
                s.spawn(move || churn(y, cpu, stop, |_| {}));
            }
            CPU.set(3);
            let mut random = Random(99);
            for _ in 0..400 {
                let pfn = Pfn(random.below(PAGES as usize) as u64);
                match y.poison_frame(pfn) {
                    Ok(_) => poisoned.lock().unwrap().push(pfn.0),
                    Err(e) => assert_eq!(e, PoisonError::Already),
                }
                thread::yield_now();
            }
            stop.store(true, Relaxed);
        });
        let poisoned = poisoned.into_inner().unwrap();
        y.drain_all(None);
        check(y, &m, &Owned::new());
        assert_eq!(y.out_of_use(N).unwrap().poisoned, poisoned.len() as u64);
        assert_eq!(y.zone_stats(N).unwrap().type_check_failures, 0);
        for &p in &poisoned {
            assert_eq!(y.free(Pfn(p), Order::ZERO), Err(FreeError::OutOfUse));
            y.unpoison_frame(Pfn(p)).unwrap();
        }
        check(y, &m, &Owned::new());
        assert_eq!(y.zone_info(N).unwrap().free_exact, PAGES);
    });
}
