//! Reports of free blocks in pageblocks that are partly in use, on both engines.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use pageyard::policy::{Engine, Linux612, Packed, Policy, Rules, StaticPolicy};
use pageyard::{
    CpuId, Defences, Gfp, MigrateType, NodeId, Observer, Order, PAGEBLOCK_PAGES, Pfn, Platform,
    Reclaim, ZoneKind,
};

use crate::common::any::Shared;
use crate::common::by_thread::{CPU, churn};
use crate::common::{Machine, frames, o};

const N: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 65_536;
const ENGINES: [&Rules; 2] = [&Linux612::RULES, &Packed::RULES];

type Blocks = Vec<(Pfn, Order)>;

/// A balloon that records the reports it gets, and lets a test act while it has them.
#[derive(Default)]
struct Balloon {
    refuses: AtomicBool,
    panics: AtomicBool,
    calls: Mutex<Vec<Blocks>>,
    /// Where the blocks are sent to, and an answer is waited for.
    meeting: Mutex<Option<(Sender<Blocks>, Receiver<()>)>>,
}

impl Platform for Balloon {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Reclaim for Balloon {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.calls.lock().unwrap().push(blocks.to_vec());
        if let Some((there, back)) = self.meeting.lock().unwrap().take() {
            there.send(blocks.to_vec()).unwrap();
            back.recv().unwrap();
        }
        assert!(!self.panics.load(Relaxed), "as planned");
        !self.refuses.load(Relaxed)
    }
}

impl Observer for Balloon {}
impl Defences for Balloon {}

type Y<'a> = Shared<'a, Balloon>;

fn told(y: &Y<'_>) -> Blocks {
    std::mem::take(&mut *y.hooks().calls.lock().unwrap()).concat()
}

fn all() -> std::ops::Range<Pfn> {
    Pfn(0)..Pfn(u64::MAX)
}

fn free(y: &Y<'_>) -> u64 {
    y.zone_info(N).unwrap().free_exact
}

fn is_whole(y: &Y<'_>, pfn: Pfn, held: &BTreeSet<Pfn>) -> bool {
    let first = pfn.0 / u64::from(PAGEBLOCK_PAGES) * u64::from(PAGEBLOCK_PAGES);
    let end = Pfn(first + u64::from(PAGEBLOCK_PAGES));
    assert!(y.zone_of(pfn).is_some());
    held.range(Pfn(first)..end).next().is_none()
}

/// Calls `f` on both engines with a yard in which single pages are in use, each 37th of 8,192.
fn sparse(f: impl Fn(&Y<'_>, &BTreeSet<Pfn>)) {
    for rules in ENGINES {
        // A boost would refuse requests beside free memory.
        let m = Machine::normal(PAGES).cpus(&[0; 4]).knobs(|k| k.watermark_boost_factor = 0);
        m.run_with(Balloon::default(), rules, |y: &Y<'_>| {
            let taken: Vec<Pfn> =
                (0..8192).map(|_| y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
            let mut held = BTreeSet::new();
            for (n, pfn) in taken.into_iter().enumerate() {
                if n % 37 == 0 {
                    y.set_movable(pfn, Order::ZERO, true).unwrap();
                    held.insert(pfn);
                } else {
                    y.free(pfn, Order::ZERO).unwrap();
                }
            }
            y.drain_all(None);
            f(y, &held);
            y.validate().unwrap();
            held.iter().for_each(|&pfn| y.free(pfn, Order::ZERO).unwrap());
            y.drain_all(None);
            y.validate().unwrap();
            assert_eq!(free(y), PAGES, "{:?}", rules.engine);
        });
    }
}

/// The free frames in pageblocks with a page in use.
fn pieces(y: &Y<'_>, held: &BTreeSet<Pfn>) -> BTreeSet<Pfn> {
    let partly = |pfn: &Pfn| !is_whole(y, *pfn, held) && !held.contains(pfn);
    (0..PAGES).map(Pfn).filter(partly).collect()
}

#[test]
fn every_free_piece_is_reported_once_and_stays_free() {
    sparse(|y, held| {
        let before = (free(y), y.free_blocks(N).unwrap());
        let done = y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true);
        let mut reported = BTreeSet::new();
        for (first, order) in told(y) {
            assert!(order < Order::HUGE && first.0.is_multiple_of(order.pages().into()));
            for n in 0..u64::from(order.pages()) {
                assert!(reported.insert(Pfn(first.0 + n)), "{first} twice");
            }
        }
        assert_eq!(reported, pieces(y, held));
        assert_eq!(done, reported.len() as u64);
        assert_eq!((free(y), y.free_blocks(N).unwrap()), before);
        let report = y.reported(N).unwrap();
        assert_eq!((report.reported, report.retaken), (0, 0), "pieces are not noted");
    });
}

#[test]
fn only_what_is_wanted_and_large_enough_is_reported() {
    sparse(|y, held| {
        let all_of = |least| {
            y.report_free_pieces(all(), o(least), u64::MAX, |_, _| true);
            let mut blocks = told(y);
            blocks.sort_unstable();
            blocks
        };
        let (single, four) = (all_of(0), all_of(2));
        assert!(four.iter().all(|&(_, order)| order >= o(2)) && !four.is_empty());
        let large: Vec<_> = single.iter().copied().filter(|&(_, order)| order >= o(2)).collect();
        assert_eq!(four, large);
        // The pageblocks that a range touches, and no other.
        let first = *held.first().unwrap();
        let block = first.0 / 512 * 512;
        y.report_free_pieces(first..Pfn(first.0 + 1), Order::ZERO, u64::MAX, |_, _| true);
        let inside = |&(pfn, _): &(Pfn, Order)| pfn.0 / 512 * 512 == block;
        let mut seen = told(y);
        seen.sort_unstable();
        assert_eq!(seen, single.iter().copied().filter(inside).collect::<Vec<_>>());
        // Every second block.
        let wanted: Vec<_> = single.iter().copied().step_by(2).collect();
        let is_wanted = |pfn, order| wanted.binary_search(&(pfn, order)).is_ok();
        y.report_free_pieces(all(), Order::ZERO, u64::MAX, is_wanted);
        let mut seen = told(y);
        seen.sort_unstable();
        assert_eq!(seen, wanted);
        for none in [Pfn(5)..Pfn(5), Pfn(9)..Pfn(3), Pfn(u64::MAX)..Pfn(u64::MAX)] {
            assert_eq!(y.report_free_pieces(none, Order::ZERO, u64::MAX, |_, _| true), 0);
        }
        assert_eq!(y.report_free_pieces(all(), Order::HUGE, u64::MAX, |_, _| true), 0);
        assert_eq!(y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| false), 0);
        assert_eq!(told(y), []);
        // Never more than asked for.
        for most in [0, 1, 7, 64, 1000] {
            let done = y.report_free_pieces(all(), Order::ZERO, most, |_, _| true);
            assert!(done <= most && done + 64 > most, "{done} of {most}");
            told(y);
        }
    });
}

#[test]
fn a_report_that_is_refused_or_panics_changes_nothing_and_is_the_last_one() {
    sparse(|y, _| {
        let before = (free(y), y.free_blocks(N).unwrap());
        y.hooks().refuses.store(true, Relaxed);
        assert_eq!(y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true), 0);
        assert_eq!(y.hooks().calls.lock().unwrap().len(), 1);
        y.hooks().refuses.store(false, Relaxed);
        y.hooks().panics.store(true, Relaxed);
        let report = || y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true);
        let panic = catch_unwind(AssertUnwindSafe(report)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"as planned"));
        y.hooks().panics.store(false, Relaxed);
        assert_eq!(y.hooks().calls.lock().unwrap().len(), 2);
        assert_eq!((free(y), y.free_blocks(N).unwrap()), before);
    });
}

/// Calls `meanwhile` while the hook has the blocks of the first report.
fn during(y: &Y<'_>, meanwhile: impl FnOnce(&[(Pfn, Order)])) {
    let ((there, blocks), (answer, back)) = (channel(), channel());
    *y.hooks().meeting.lock().unwrap() = Some((there, back));
    thread::scope(|s| {
        // Dropped if `meanwhile` panics, which ends the report.
        let answer = answer;
        let report = s.spawn(|| y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true));
        let blocks = blocks.recv().unwrap();
        meanwhile(&blocks);
        answer.send(()).unwrap();
        report.join().unwrap();
    });
}

#[test]
fn no_request_gets_a_piece_while_it_is_reported() {
    sparse(|y, _| {
        CPU.set(1);
        during(y, |blocks| {
            let quick = Gfp::NOWAIT | Gfp::NOWARN | Gfp::MEMALLOC;
            let mut got = Vec::new();
            while let Ok(pfn) = y.alloc(Order::ZERO, quick) {
                got.push(pfn);
            }
            let held = |pfn: Pfn| {
                let is_in = |&(first, order): &(Pfn, Order)| {
                    (first.0..first.0 + u64::from(order.pages())).contains(&pfn.0)
                };
                blocks.iter().any(is_in)
            };
            assert!(got.len() > 50_000 && !got.iter().any(|&pfn| held(pfn)));
            got.into_iter().for_each(|pfn| y.free(pfn, Order::ZERO).unwrap());
        });
        CPU.set(0);
    });
}

#[test]
fn at_most_a_quarter_of_what_can_be_spared_is_out_at_once() {
    sparse(|y, _| {
        // Little is left above the LOW mark.
        let low = y.zone_info(N).unwrap().watermarks[1];
        let mut got = Vec::new();
        while free(y) > low + 200 {
            got.push(y.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
        }
        y.drain_all(None);
        y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true);
        let calls = std::mem::take(&mut *y.hooks().calls.lock().unwrap());
        let pages = |call: &Blocks| call.iter().map(|(_, o)| u64::from(o.pages())).sum::<u64>();
        let most = (free(y) - low) / 4;
        assert!(!calls.is_empty() && calls.iter().all(|call| pages(call) <= most), "{calls:?}");
        while free(y) > low {
            got.push(y.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
            y.drain_all(None);
        }
        assert_eq!(y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true), 0);
        got.into_iter().for_each(|pfn| y.free(pfn, Order::ZERO).unwrap());
    });
}

/// Each of these finds some of the free memory gone.
#[test]
fn ranges_change_while_pieces_are_reported() {
    let section = || frames(0..32_768);
    let block_of = |blocks: &[(Pfn, Order)]| {
        let first = blocks[0].0.0 / 512 * 512;
        frames(first..first + 512)
    };
    let movable = MigrateType::Movable;
    sparse(|y, _| {
        CPU.set(1);
        let mut isolated = None;
        during(y, |blocks| {
            let range = block_of(blocks);
            // The exact engine refuses: a frame that no list has cannot be moved.
            if y.isolate(range.clone(), movable).is_ok() {
                y.unisolate(range.clone(), movable).unwrap();
                y.isolate(range.clone(), movable).unwrap();
                isolated = Some(range);
            }
        });
        assert_eq!(isolated.is_some(), y.policy().rules().engine == Engine::Packed);
        let range = isolated.unwrap_or_else(|| {
            y.isolate(frames(0..512), movable).unwrap();
            frames(0..512)
        });
        told(y);
        y.report_free_pieces(range.clone(), Order::ZERO, u64::MAX, |_, _| true);
        assert_eq!(told(y), [], "nothing of an isolated pageblock");
        y.unisolate(range, movable).unwrap();
        let mut poisoned = Vec::new();
        during(y, |blocks| {
            for &(first, _) in blocks.iter().step_by(3) {
                _ = y.poison_frame(first).unwrap();
                poisoned.push(first);
            }
            y.drain_all(None);
        });
        assert_eq!(y.out_of_use(N).unwrap().poisoned, poisoned.len() as u64);
        for &pfn in &poisoned {
            assert_eq!(y.is_poisoned(pfn), Some(true));
        }
        y.validate().unwrap();
        told(y);
        y.report_free_pieces(all(), Order::ZERO, u64::MAX, |_, _| true);
        let reported = told(y);
        let has = |pfn: &Pfn| {
            reported.iter().any(|&(p, o)| (p.0..p.0 + u64::from(o.pages())).contains(&pfn.0))
        };
        assert!(!poisoned.iter().any(has));
        poisoned.into_iter().for_each(|pfn| y.unpoison_frame(pfn).unwrap());
        during(y, |_| {
            y.compact_node(NodeId(0));
            assert!(y.offline(section()).is_err(), "pages are in use");
            assert!(y.alloc_contig(section(), movable, Gfp::KERNEL).is_err());
        });
        CPU.set(0);
    });
}

/// The first pageblock begins before the zone.
#[test]
fn pieces_of_a_zone_with_odd_ends_are_found() {
    for rules in ENGINES {
        let m = Machine::new().zone(N, 1027..4099 - 64).cpus(&[0]);
        m.run_with(Balloon::default(), rules, |y: &Y<'_>| {
            let last = Pfn(4099 - 65);
            for pfn in [Pfn(1040), last] {
                y.alloc_at(pfn, Order::ZERO, Gfp::KERNEL).unwrap();
            }
            y.report_free_pieces(all(), o(2), u64::MAX, |_, _| true);
            let blocks = told(y);
            let of = |from: u64, to: u64| {
                let inside = blocks.iter().filter(|(pfn, _)| (from..to).contains(&pfn.0));
                inside.map(|(_, order)| u64::from(order.pages())).sum::<u64>()
            };
            // 1028 to 1040 and 1044 to 1536; all up to the last group of four.
            assert_eq!(of(1024, 1536), 12 + 492, "{blocks:?}");
            assert_eq!(of(3584, 4096), last.0 / 4 * 4 - 3584, "{blocks:?}");
            assert!(blocks.iter().all(|(pfn, order)| pfn.0 >= 1027 && *order >= o(2)));
            y.validate().unwrap();
        });
    }
}

/// Two threads report pieces beside two that allocate and free.
#[test]
fn pieces_are_reported_while_others_work() {
    for rules in ENGINES {
        let m = Machine::normal(PAGES).cpus(&[0; 4]);
        m.run_with(Balloon::default(), rules, |y: &Y<'_>| {
            let stop = AtomicBool::new(false);
            thread::scope(|s| {
                for cpu in 0..2 {
                    let (y, stop) = (&**y, &stop);
                    s.spawn(move || {
                        churn(y, cpu, stop, |pick| {
                            if pick >> 8 & 1023 == 0 {
                                y.drain_all(None);
                            }
                        });
                    });
                }
                for cpu in 2..4 {
                    let (y, stop) = (&y, &stop);
                    s.spawn(move || {
                        CPU.set(cpu);
                        let rounds = if cfg!(miri) { 3 } else { 300 };
                        for _ in 0..rounds {
                            y.report_free_pieces(all(), o(cpu as u8 - 2), u64::MAX, |_, _| true);
                            y.report_free_pages(N, Order::HUGE, 4096);
                        }
                        stop.store(true, Relaxed);
                    });
                }
            });
            assert!(!told(y).is_empty());
            y.drain_all(None);
            y.validate().unwrap();
            assert_eq!(free(y), PAGES, "{:?}", rules.engine);
        });
    }
}
