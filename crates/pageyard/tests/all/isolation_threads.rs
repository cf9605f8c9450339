//! Isolation and contiguous ranges while other threads allocate and free. No request gets a block
//! that is isolated and drained, a contiguous range has one owner, and no page is lost (spec §4.11,
//! §4.12).

use crate::common;

use std::ops::Range;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use common::owners::*;
use common::{Chosen, Machine, frames, o};
use pageyard::policy::{Linux612, Linux618, Packed, StaticPolicy, TypeChecked, Vanilla};
use pageyard::{CpuId, Gfp, MigrateType, Pfn, Relocation, ZoneKind};

const PAGES: u64 = 24_576;
/// Pageblocks below it are isolated, contiguous ranges above it are allocated: allocating a range
/// ends another caller's isolation there (§4.12).
const MIDDLE: u64 = PAGES / 2;
/// How often each of the two must succeed, and in how many attempts.
const ROUNDS: u32 = 20;
const ATTEMPTS: u32 = 1_000_000;

/// Frames that no request may get.
struct Withheld {
    frames: Vec<AtomicBool>,
    /// Held for reading by a thread inside the allocator. Holding it for writing keeps all other
    /// threads out, so that the isolated blocks can be drained completely.
    inside: RwLock<()>,
}

impl Withheld {
    fn set(&self, range: Range<u64>, to: bool) {
        for f in range {
            assert_ne!(self.frames[f as usize].swap(to, SeqCst), to, "frame {f:#x}");
        }
    }

    fn allows(&self, pfn: Pfn, pages: u64) {
        let taken = (pfn.0..pfn.0 + pages).find(|&f| self.frames[f as usize].load(SeqCst));
        assert_eq!(taken, None, "allocated with the block at {pfn}");
    }
}

/// Ends the test when its thread panics, because the others wait for it.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// Allocates and frees until the others are done, and checks each block that it gets.
fn work(y: &Y<'_>, cpu: u32, withheld: &Withheld, done: &AtomicBool) {
    CPU.set(cpu);
    let _guard = EndsAll(done);
    let mut random = Random(cpu.into());
    for step in 0.. {
        if done.load(SeqCst) {
            break;
        }
        let _inside = withheld.inside.read().unwrap();
        if random.below(10) < 6 {
            let order = [0, 0, 0, 0, 1, 2, 3, 4, 9][random.below(9)];
            let (gfp, movable) = match random.below(16) {
                0 => (Gfp::KERNEL, false),
                1 => (Gfp::KERNEL | Gfp::RECLAIMABLE, false),
                _ => (Gfp::HIGHUSER_MOVABLE, true),
            };
            if let Some(pfn) = take(y, order, gfp | Gfp::NOWARN, movable) {
                withheld.allows(pfn, 1 << order);
            }
        } else {
            put_near(y, Pfn(random.below(PAGES as usize) as u64));
        }
        if step % 1000u32 == 0 {
            y.drain_cpu(CpuId(cpu), None);
        }
    }
}

/// Blocks with an owner in a range of whole pageblocks.
fn owned_in(y: &Y<'_>, range: &Range<u64>) -> Vec<Pfn> {
    let owned = y.hooks().owned();
    owned.range(Pfn(range.start)..Pfn(range.end)).map(|(&p, _)| p).collect()
}

/// Isolates pageblocks, keeps them isolated for a while, and un-isolates them. Returns how often
/// that succeeded.
fn isolate(y: &Y<'_>, withheld: &Withheld, done: &AtomicBool) -> u32 {
    CPU.set(2);
    let _guard = EndsAll(done);
    let (mut random, mut granted) = (Random(2), 0);
    for _ in 0..ATTEMPTS {
        if granted == ROUNDS || done.load(SeqCst) {
            break;
        }
        let blocks = 1 + random.below(3) as u64;
        let first = random.below((MIDDLE / 512 - blocks) as usize) as u64;
        let range = first * 512..(first + blocks) * 512;
        if y.isolate(frames(range.clone()), MigrateType::Movable).is_err() {
            thread::yield_now();
            continue;
        }
        granted += 1;
        let alone = withheld.inside.write().unwrap();
        // No allocate or free that began before the isolation is still running.
        y.drain_all(None);
        withheld.set(range.clone(), true);
        let before = owned_in(y, &range);
        drop(alone);
        for _ in 0..random.below(50) {
            thread::yield_now();
        }
        let alone = withheld.inside.write().unwrap();
        let new = owned_in(y, &range).into_iter().find(|b| !before.contains(b));
        assert_eq!(new, None, "a block moved into {range:x?}");
        withheld.set(range.clone(), false);
        drop(alone);
        y.unisolate(frames(range), MigrateType::Movable).unwrap();
    }
    granted
}

/// Allocates contiguous ranges and frees them. Returns how many.
fn take_ranges(y: &Y<'_>, withheld: &Withheld, done: &AtomicBool) -> u32 {
    CPU.set(3);
    let _guard = EndsAll(done);
    let (mut random, mut taken) = (Random(3), 0);
    for _ in 0..ATTEMPTS {
        if taken == ROUNDS || done.load(SeqCst) {
            break;
        }
        let order = random.below(11) as u8;
        let whole = random.below(2) == 0;
        let (start, pages) = if whole {
            let blocks = (PAGES - MIDDLE) >> order;
            (MIDDLE + ((random.below(blocks as usize) as u64) << order), 1 << order)
        } else {
            let pages = 1 + random.below(1200) as u64;
            (MIDDLE + random.below((PAGES - MIDDLE - pages) as usize) as u64, pages)
        };
        let range = start..start + pages;
        let comp = if whole { Gfp::COMP } else { Gfp::empty() };
        // Hold the lock for reading: migration allocates too.
        let inside = withheld.inside.read().unwrap();
        let got = y.alloc_contig(frames(range.clone()), MigrateType::Movable, Gfp::KERNEL | comp);
        drop(inside);
        if got.is_err() {
            thread::yield_now();
            continue;
        }
        taken += 1;
        let alone = withheld.inside.write().unwrap();
        withheld.set(range.clone(), true);
        let owned = y.hooks().owned();
        let other = owned.range(..Pfn(range.end)).next_back();
        assert!(
            other.is_none_or(|(p, o)| p.0 + u64::from(o.pages()) <= range.start),
            "{range:x?} was allocated, but {other:x?} has an owner"
        );
        drop(alone);
        for _ in 0..random.below(20) {
            thread::yield_now();
        }
        withheld.set(range.clone(), false);
        if whole {
            y.free(Pfn(start), o(order)).unwrap();
        } else {
            y.free_contig(frames(range)).unwrap();
        }
    }
    taken
}

fn run(rules: Chosen) {
    let m = Machine::normal(PAGES).cpus(&[0; 4]);
    let answer: Answer = |pfn, _| match pfn.0 % 997 {
        0 => Relocation::Refused,
        1..10 => Relocation::Busy,
        _ => Relocation::Moved,
    };
    m.run_with(Owners::answering(answer), rules, |y: &Y<'_>| {
        let withheld = Withheld {
            frames: (0..PAGES).map(|_| AtomicBool::new(false)).collect(),
            inside: RwLock::new(()),
        };
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            let (withheld, done) = (&withheld, &done);
            for cpu in 0..2 {
                s.spawn(move || work(y, cpu, withheld, done));
            }
            let ends = [
                s.spawn(|| isolate(y, withheld, done)),
                s.spawn(|| take_ranges(y, withheld, done)),
            ];
            let ends = ends.map(|end| end.join());
            done.store(true, SeqCst);
            assert_eq!(ends.map(|end| end.unwrap()), [ROUNDS; 2], "isolations, ranges");
        });
        assert!(y.hooks().moved.load(SeqCst) > 0);
        y.drain_all(None);
        all_is_well(y, &m);
        assert_eq!(y.pageblocks(ZoneKind::Normal).unwrap()[MigrateType::Isolate as usize], 0);
        while put_near(y, Pfn(0)) {}
        y.drain_all(None);
        all_is_well(y, &m);
        assert_eq!((free_pages(y), huge_free(y)), (PAGES, PAGES / 512));
        assert_eq!(y.zone_info(ZoneKind::Normal).unwrap().free_exact, PAGES);
        assert_eq!(y.zone_stats(ZoneKind::Normal).unwrap().type_check_failures, 0);
    });
}

#[test]
fn isolated_blocks_and_ranges_are_withheld_under_linux612() {
    run(&<TypeChecked<Linux612>>::RULES);
}

#[test]
fn isolated_blocks_and_ranges_are_withheld_under_linux618() {
    run(&<TypeChecked<Linux618>>::RULES);
}

#[test]
fn isolated_blocks_and_ranges_are_withheld_under_vanilla() {
    run(&<Vanilla>::RULES);
}

#[test]
fn isolated_blocks_and_ranges_are_withheld_on_the_packed_engine() {
    run(&Packed::RULES);
}
