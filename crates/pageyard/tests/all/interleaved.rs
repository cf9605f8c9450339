//! Runs one operation inside another, at every point where a lock is taken or a hook is called:
//! pairs that once lost a page, a count or a label.

use crate::common;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use common::any::{AnyHooks, On};
use common::by_thread::{ByThread, CPU, by_thread};
use common::interpose::{Interposed, at_each_point, crossed, point, wait};
use common::state::State;
use common::{Chosen, Machine, Reused, frames, o};
use pageyard::policy::{InitOnFree, Linux612, Packed, PageChecked, StaticPolicy};
use pageyard::{
    ContigError, CpuId, Defences, Gfp, Hooked, MigrateType, NodeId, Observer, Order, PageState,
    Pfn, Place, PlaceError, Platform, Priority, Reclaim, Record, Relocation, SECTION_PAGES, Yard,
    ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const S: u64 = SECTION_PAGES;
const USER: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
const MOVABLE: MigrateType = MigrateType::Movable;

/// An embedder that records its movable blocks.
#[derive(Default)]
struct Mover {
    blocks: RefCell<BTreeMap<Pfn, Order>>,
    /// Frames that were poisoned while no caller owned them.
    faulty: RefCell<Vec<Pfn>>,
    /// Whether another CPU may run while memory is filled.
    interrupted: Cell<bool>,
    pauses: Cell<u32>,
}

impl Platform for Mover {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn pause(&self) {
        self.pauses.set(self.pauses.get() + 1);
        // Allow a few pauses: a defective operation might continue after the first one.
        if self.pauses.get() > 3 {
            wait();
        }
    }
}

impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let mut blocks = self.blocks.borrow_mut();
        if blocks.get(&from) != Some(&order) {
            return Relocation::Refused;
        }
        let target = to.0..to.0 + u64::from(order.pages());
        let faulty = self.faulty.borrow();
        let hit = faulty.iter().find(|p| target.contains(&p.0));
        assert_eq!(hit, None, "data was moved into a faulty frame");
        blocks.remove(&from);
        blocks.insert(to, order);
        Relocation::Moved
    }
}

impl Observer for Mover {}

impl Defences for Mover {
    fn zero(&self, _: Pfn, _: Order) -> bool {
        if self.interrupted.get() {
            point();
        }
        true
    }

    fn page_state(&self, _: Pfn) -> PageState {
        if self.interrupted.get() {
            point();
        }
        PageState::UNUSED
    }
}

type Y = On<'static, Mover, AnyHooks<'static>, Interposed>;

/// Runs `f` on another CPU.
fn elsewhere<T>(f: impl FnOnce() -> T) -> T {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            CPU.set(0);
        }
    }
    CPU.set(1);
    let _back = Back;
    f()
}

fn take(y: &Y, order: u8) -> Pfn {
    let pfn = y.alloc(o(order), USER).unwrap();
    y.hooks().blocks.borrow_mut().insert(pfn, o(order));
    y.set_movable(pfn, o(order), true).unwrap();
    pfn
}

fn valid(y: &Y) {
    y.validate().unwrap_or_else(|e| panic!("{e}"));
}

fn types(y: &Y, range: Range<u64>) -> Vec<MigrateType> {
    range.step_by(512).map(|p| y.block_type(Pfn(p)).unwrap()).collect()
}

/// Poisons a frame, and records it if no caller owned it at that moment.
fn poison(y: &Y, pfn: Pfn) {
    let owned = y.set_movable(pfn, o(0), true).is_ok();
    if y.poison_frame(pfn).is_ok() && !owned {
        y.hooks().faulty.borrow_mut().push(pfn);
    }
}

/// Asserts that faulty frames are out of use.
fn faulty_frames_are_out_of_use(y: &Y) {
    for &pfn in y.hooks().faulty.borrow().iter() {
        let taken = y.alloc_at(pfn, o(0), Gfp::KERNEL);
        assert_eq!(taken, Err(PlaceError::InUse(pfn)), "{pfn} is faulty, but was allocated");
    }
}

/// §8.4: memory that two CPUs online at the same time is added once.
#[test]
fn online_excludes_online() {
    let mut machine = Machine::normal(4 * S).cpus(&[0, 0]);
    machine.usable = vec![frames(0..S)];
    let all = Reused::new(machine);
    let came = Rc::new(Cell::new(0));
    let twice = came.clone();
    let points = at_each_point(
        || {
            twice.set(0);
            Y::new(Mover::default(), |hooks| all.next(hooks))
        },
        |y: &Y| came.set(came.get() + u32::from(y.online(frames(S..2 * S)).is_ok())),
        {
            let came = came.clone();
            move |y: &Y| {
                let ok = elsewhere(|| y.online(frames(S..2 * S)).is_ok());
                came.set(came.get() + u32::from(ok));
            }
        },
        |y| {
            assert_eq!(came.get(), 1, "the same memory was onlined {} times", came.get());
            valid(y);
        },
    );
    assert!(points > 64, "{points} points");
}

/// §8.4, §4.12: a contiguous range in sections that are being onlined waits until they are online,
/// and leaves no count of isolated pageblocks behind.
#[test]
fn counts_are_correct_when_sections_come_online_during_a_range() {
    type Y = Yard<'static, Hooked<Interposed, ByThread, Chosen>>;
    let mut machine = Machine::normal(2 * S).cpus(&[0, 0]);
    machine.usable = vec![frames(0..S)];
    let all = Reused::new(machine);
    let come = |y: &Y| y.online(frames(S..2 * S)).unwrap();
    let take = |y: &Y| {
        CPU.set(1);
        _ = y.alloc_contig(frames(S + 700..S + 1200), MOVABLE, Gfp::KERNEL);
    };
    let mut stopped = 0;
    for n in 0..6 {
        for m in 0..12 {
            let y: Arc<Y> = Arc::new(all.next(by_thread()));
            stopped += u32::from(crossed([n, m], &y, come, take));
            y.validate().unwrap_or_else(|e| panic!("{e}"));
        }
    }
    assert!(stopped > 10, "{stopped}");
}

/// §8.4, §3.8: a highatomic block that is released while its section goes offline is subtracted
/// from the reserve once.
#[test]
fn offlining_removes_a_highatomic_block_from_the_reserve_once() {
    let kept = (2 * S - 512) / 512;
    let mut state = State::new(2 * S).cpus(&[0, 0]);
    for block in [3, 4, kept] {
        state = state.label(block as usize, MigrateType::HighAtomic);
    }
    state = (0..2 * S / 512).fold(state, |s, block| s.free(block * 512, 9));
    state = state.set(|z| z.reserved_highatomic = 3 * 512);
    let (all, records) = (Reused::new(state.machine.clone()), state.records());
    at_each_point(
        || {
            let mut y = Y::new(Mover::default(), |hooks| all.next_blank(hooks));
            y.restore(NORMAL, records.iter().copied()).unwrap();
            y
        },
        |y| y.offline(frames(0..S)).unwrap(),
        |y| _ = elsewhere(|| y.unreserve_highatomic(MOVABLE, true)),
        |y| {
            valid(y);
            let blocks = y.pageblocks(NORMAL).unwrap()[MigrateType::HighAtomic as usize];
            assert_eq!(y.zone_info(NORMAL).unwrap().reserved_highatomic, blocks * 512);
        },
    );
}

/// §3.8, §4.11: a pageblock that is isolated before its block is reserved stays isolated.
#[test]
fn a_reserve_skips_isolated_pageblocks() {
    let all = Reused::new(
        Machine::normal(4 * S).cpus(&[0, 0]).knobs(|k| k.user_min_free_kbytes = Some(8192)),
    );
    let isolated = frames(512..4 * S);
    at_each_point(
        || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            while y.alloc(o(10), Gfp::NOWAIT).is_ok() {}
            y
        },
        |y| _ = y.alloc(o(10), Gfp::ATOMIC | Gfp::NOWARN),
        move |y| {
            elsewhere(|| {
                for block in (isolated.start.0..isolated.end.0).step_by(512) {
                    _ = y.isolate(frames(block..block + 512), MOVABLE);
                }
            });
        },
        valid,
    );
}

/// §4.12: if `make_cma` succeeds, the pageblocks are CMA, whatever ends their isolation meanwhile.
#[test]
fn make_cma_makes_cma_blocks_or_fails() {
    let all = Reused::new(Machine::normal(16384).cpus(&[0, 0]));
    let made = Rc::new(Cell::new(false));
    let set = made.clone();
    let points = at_each_point(
        || Y::new(Mover::default(), |hooks| all.next(hooks)),
        move |y: &Y| set.set(y.make_cma(frames(4096..6144)).is_ok()),
        |y| {
            let range = frames(4096 + 600..4096 + 1500);
            _ = elsewhere(|| y.alloc_contig(range, MOVABLE, Gfp::KERNEL));
        },
        |y| {
            valid(y);
            let cma = types(y, 4096..6144).iter().all(|&t| t == MigrateType::Cma);
            assert!(cma || !made.get(), "make_cma succeeded, but the blocks are not CMA");
        },
    );
    assert!(points > 4, "{points} points");
}

/// §4.12: a contiguous range of another type that is refused because CMA blocks are isolated does
/// not relabel them.
#[test]
fn a_failed_range_keeps_cma_blocks_cma() {
    let all = Reused::new(Machine::normal(16384).cpus(&[0, 0]));
    at_each_point(
        || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            y.make_cma(frames(4096..6144)).unwrap();
            y
        },
        |y| _ = y.alloc_contig(frames(4096..5000), MigrateType::Cma, Gfp::KERNEL),
        |y| {
            let refused = elsewhere(|| y.alloc_contig(frames(4000..5000), MOVABLE, Gfp::KERNEL));
            assert!(matches!(refused, Err(ContigError::Isolate(_))));
        },
        |y| {
            valid(y);
            assert!(types(y, 4096..6144).iter().all(|&t| t == MigrateType::Cma));
        },
    );
}

/// §11.3, §8.2: a frame poisoned while its section is initialised is never allocated.
#[test]
fn a_frame_poisoned_during_initialisation_stays_out_of_use() {
    let all = Reused::under(&<InitOnFree>::RULES, Machine::normal(3 * S).cpus(&[0, 0]));
    let mut later = Vec::new();
    for frame in [S + 5, 2 * S + 1023, 2 * S + 9000] {
        later.push(at_each_point(
            || {
                let y = Y::new(Mover::default(), |hooks| all.next_deferred(hooks));
                y.hooks().interrupted.set(true);
                y
            },
            |y| while y.init_section(NodeId(0)) {},
            move |y| elsewhere(|| poison(y, Pfn(frame))),
            |y| {
                assert!(y.finish_deferred());
                valid(y);
                faulty_frames_are_out_of_use(y);
            },
        ));
    }
    assert!(later.iter().all(|&points| points > 4), "{later:?}");
}

/// §11.3, §7.4: no data moves into a frame that was poisoned while compaction had isolated it.
#[test]
fn a_frame_poisoned_during_compaction_stays_out_of_use() {
    let all = Reused::new(Machine::normal(8192).cpus(&[0, 0]));
    // Free pages beside one in use: the first migration targets of compaction.
    for frame in [7680, 7681, 7700] {
        let points = at_each_point(
            || {
                let y = Y::new(Mover::default(), |hooks| all.next(hooks));
                let blocks: Vec<Pfn> = (0..100).map(|_| take(&y, 0)).collect();
                for pfn in blocks.into_iter().skip(1).step_by(2) {
                    y.hooks().blocks.borrow_mut().remove(&pfn);
                    y.free(pfn, o(0)).unwrap();
                }
                y.drain_all(None);
                y.alloc_at(Pfn(7680 + 256), o(0), Gfp::KERNEL).unwrap();
                y
            },
            |y| _ = y.compact_zone(NORMAL, None, Priority::SyncFull),
            move |y| elsewhere(|| poison(y, Pfn(frame))),
            |y| {
                valid(y);
                assert!(!y.hooks().blocks.borrow().is_empty());
                faulty_frames_are_out_of_use(y);
            },
        );
        assert!(points > 50, "{points} points");
    }
}

/// §11.3, §4.12: a frame poisoned while a contiguous range is emptied is not part of the range.
#[test]
fn a_frame_poisoned_during_a_range_allocation_is_excluded() {
    let all = Reused::under(&<PageChecked>::RULES, Machine::normal(8192).cpus(&[0, 0]));
    let taken = Rc::new(Cell::new(false));
    let set = taken.clone();
    at_each_point(
        || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            y.hooks().interrupted.set(true);
            y
        },
        move |y| {
            set.set(y.alloc_contig(frames(4000..4100), MOVABLE, Gfp::KERNEL).is_ok());
        },
        |y| elsewhere(|| poison(y, Pfn(4050))),
        |y| {
            valid(y);
            let faulty = y.hooks().faulty.borrow().contains(&Pfn(4050));
            assert!(!(faulty && taken.get()), "a faulty frame is in the range");
            faulty_frames_are_out_of_use(y);
        },
    );
}

/// §8.4: while sections come online, the zone lock is free between two pageblocks, and requests get what
/// is there.
#[test]
fn requests_run_while_memory_comes_online() {
    for rules in [&<Linux612>::RULES, &Packed::RULES] {
        let whole = Machine::normal(2 * S).cpus(&[0, 0]);
        let all = Reused::under(rules, Machine { usable: vec![Pfn(0)..Pfn(S)], ..whole });
        let points = at_each_point(
            || Y::new(Mover::default(), |hooks| all.next(hooks)),
            |y| y.online(frames(S..2 * S)).unwrap(),
            |y| {
                elsewhere(|| {
                    let page = y.alloc(o(3), USER).unwrap();
                    y.free(page, o(3)).unwrap();
                    y.drain_all(None);
                });
            },
            |y| {
                valid(y);
                y.drain_all(None);
                assert_eq!(y.zone_info(NORMAL).unwrap().free_exact, 2 * S);
            },
        );
        assert!(points > S as u32 / 512, "{points} points");
    }
}

/// §4.12: a pageblock that an unmovable block extends over does not become CMA while that block is
/// being freed: the free may be undone.
#[test]
fn a_pageblock_under_a_block_that_is_being_freed_is_not_cma() {
    let all = Reused::under(&<PageChecked>::RULES, Machine::normal(8192).cpus(&[0, 0]));
    let block = Rc::new(Cell::new(Pfn(0)));
    let (set, get, freed) = (block.clone(), block.clone(), block.clone());
    let points = at_each_point(
        move || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            y.hooks().interrupted.set(true);
            set.set(y.alloc(Order::MAX, Gfp::KERNEL).unwrap());
            y
        },
        move |y| y.free(freed.get(), Order::MAX).unwrap(),
        move |y| {
            let half = get.get().0 + 512;
            let made = elsewhere(|| y.make_cma(frames(half..half + 512)));
            let free = y.zone_info(NORMAL).unwrap().free_exact;
            assert!(made.is_err() || free == 8192, "{made:?} with {free} pages free");
        },
        valid,
    );
    assert!(points > 10, "{points} points");
}

/// §4.12: nor does one whose frames a contiguous range of unmovable pages has taken and not yet handed
/// out, after another range ended its isolation.
#[test]
fn a_pageblock_that_a_range_is_taking_is_not_cma() {
    let all = Reused::under(&<PageChecked>::RULES, Machine::normal(8192).cpus(&[0, 0]));
    let (taken, made) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(false)));
    let (set_taken, set_made) = (taken.clone(), made.clone());
    let range = || frames(4096..4608);
    let points = at_each_point(
        || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            y.hooks().interrupted.set(true);
            y
        },
        move |y| {
            let taken = y.alloc_contig(range(), MigrateType::Unmovable, Gfp::KERNEL);
            set_taken.set(taken.is_ok());
        },
        move |y| {
            let made = elsewhere(|| {
                if y.alloc_contig(range(), MOVABLE, Gfp::KERNEL).is_ok() {
                    y.free_contig(range()).unwrap();
                }
                y.make_cma(range())
            });
            set_made.set(made.is_ok());
        },
        |y| {
            valid(y);
            assert!(!(taken.get() && made.get()), "unmovable pages in a CMA pageblock");
        },
    );
    assert!(points > 10, "{points} points");
}

/// §4.11, §5.6: a free that began before its pageblock was isolated and drained puts nothing on a
/// per-CPU list.
#[test]
fn a_deferred_free_does_not_cache_isolated_blocks() {
    let all = Reused::new(Machine::normal(8192).cpus(&[0, 0]));
    let cached_in = |y: &Y, block: u64| {
        let mut any = false;
        y.snapshot(NORMAL, |r| {
            any |= matches!(r, Record::Cached { pfn, .. } if pfn.0 / 512 == block);
        });
        any
    };
    for batch in [false, true] {
        let (done, was) = (Rc::new(Cell::new(None)), Rc::new(Cell::new(Pfn(0))));
        let (isolated, at) = (done.clone(), was.clone());
        let mine = was.clone();
        at_each_point(
            || {
                let y = Y::new(Mover::default(), |hooks| all.next(hooks));
                done.set(None);
                let pfn = take(&y, 0);
                // While reclaim is active, frees do not take the fast path.
                y.set_reclaim_active(NORMAL, true);
                was.set(pfn);
                y
            },
            move |y: &Y| {
                if batch {
                    y.free_batch(&[(mine.get(), o(0))]).unwrap();
                } else {
                    y.free(mine.get(), o(0)).unwrap();
                }
            },
            move |y| {
                elsewhere(|| {
                    let block = at.get().0 / 512;
                    y.isolate(frames(block * 512..(block + 1) * 512), MOVABLE).unwrap();
                    y.drain_all(None);
                    isolated.set(Some(block));
                });
            },
            |y| {
                valid(y);
                let block = done.get().expect("the pageblock was isolated");
                assert!(!cached_in(y, block), "a page of the isolated block is on a list");
            },
        );
    }
}

/// A block requested below a frame lies below it, even if memory above is onlined during the
/// search.
#[test]
fn a_block_below_a_frame_stays_below_it_during_online() {
    let machine =
        Machine::new().zone_on(0, NORMAL, 0..S).zone_on(1, NORMAL, S..2 * S).cpus(&[0, 0]);
    let machine = Machine { usable: vec![frames(0..S)], ..machine };
    let all = Reused::new(machine);
    at_each_point(
        || {
            let y = Y::new(Mover::default(), |hooks| all.next(hooks));
            while y.alloc(o(0), USER | Gfp::MEMALLOC).is_ok() {}
            y
        },
        |y| {
            let place = Place { below: Some(Pfn(S)), ..Place::default() };
            if let Ok(pfn) = y.alloc_with(o(0), USER, place) {
                assert!(pfn < Pfn(S), "{pfn} is not below {S:#x}");
            }
        },
        |y| elsewhere(|| y.online(frames(S..2 * S)).unwrap()),
        |_| (),
    );
}
