//! Spec B.4: a free that overflows a CPU's lists drains them a batch at a time, without a lock in
//! between.

use crate::common;

use std::cell::{Cell, RefCell};

use common::any::On;
use common::by_thread::{ByThread, CPU, by_thread};
use common::interpose::{Interposed, at_each_point};
use common::{Chosen, LINUX612, Machine, Reused, Y, o};
use pageyard::policy::{ChunkedDrain, StaticPolicy};
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, Observer, Pfn, Platform, Reclaim, Yard, ZoneKind,
};

const ZONE: ZoneKind = ZoneKind::Normal;
const PAGES: u64 = 1 << 16;
/// The batch of a zone of this size.
const BATCH: u32 = 63;
const CHUNKED: Chosen = &<ChunkedDrain>::RULES;

/// Allocates `n` pages, then frees them. Returns the pages of each hold of the zone lock that a free
/// took.
fn drains(y: &Y<'_>, n: usize, batches: bool) -> Vec<u32> {
    let pages: Vec<Pfn> = (0..n).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
    y.hooks().watch();
    if batches {
        y.free_batch(&pages.iter().map(|&p| (p, o(0))).collect::<Vec<_>>()).unwrap();
    } else {
        pages.iter().for_each(|&p| y.free(p, o(0)).unwrap());
    }
    let pages = |e| match e {
        Event::BulkFree { pages, .. } => Some(pages),
        _ => None,
    };
    y.hooks().events().into_iter().filter_map(pages).collect()
}

#[test]
fn b4_a_drain_takes_a_batch_per_hold_and_moves_the_same_pages() {
    for batches in [false, true] {
        let m = Machine::normal(PAGES).cpus(&[0, 0]);
        let of = |rules| {
            m.run_under(rules, |y| {
                let drains = drains(y, 8000, batches);
                y.validate().unwrap_or_else(|e| panic!("{e}"));
                (drains, y.pageset(ZONE, CpuId(0)).unwrap(), y.zone_info(ZONE).unwrap())
            })
        };
        let (whole, pageset, info) = of(LINUX612);
        let (chunks, chunked_pageset, chunked_info) = of(CHUNKED);
        assert!(whole.iter().any(|&n| n > 4 * BATCH), "{whole:?}");
        assert!(chunks.iter().all(|&n| n <= BATCH), "{chunks:?}");
        assert_eq!(whole.iter().sum::<u32>(), chunks.iter().sum::<u32>());
        assert_eq!((pageset, info), (chunked_pageset, chunked_info));
    }
}

/// A caller that another CPU goes on to run, or never stops.
#[derive(Default)]
struct Migrated {
    /// Whether the caller moves to another CPU in its next drain.
    moves: Cell<bool>,
    holds: RefCell<Vec<u32>>,
}

impl Platform for Migrated {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}
impl Reclaim for Migrated {}
impl Defences for Migrated {}
impl Observer for Migrated {
    fn event(&self, _: CpuId, event: Event) {
        if let Event::BulkFree { pages, .. } = event {
            self.holds.borrow_mut().push(pages);
            if self.moves.take() {
                CPU.set(1);
            }
        }
    }
}

#[test]
fn b4_a_drain_ends_when_the_caller_runs_on_another_cpu() {
    let m = Machine::normal(PAGES).cpus(&[0, 0]);
    let first_drain = |moves| {
        CPU.set(0);
        m.run_with(Migrated::default(), CHUNKED, |y: &On<'_, Migrated>| {
            let pages: Vec<_> = (0..4000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect();
            y.hooks().moves.set(moves);
            let mut holds = Vec::new();
            for &p in &pages {
                y.free(p, o(0)).unwrap();
                let now = std::mem::take(&mut *y.hooks().holds.borrow_mut());
                // The first free that drains more than a batch, or the one that was stopped.
                if holds.is_empty() && (now.len() > 1 || moves && !now.is_empty()) {
                    holds = now;
                }
                CPU.set(0);
            }
            y.drain_all(None);
            y.validate().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES);
            holds
        })
    };
    assert!(first_drain(false).len() > 1);
    assert_eq!(first_drain(true).len(), 1);
    CPU.set(0);
}

type Yielding = Yard<'static, Hooked<Interposed, ByThread, Chosen>>;

/// Allocates 4,000 pages. Returns them.
fn filled(y: &Yielding) -> Vec<Pfn> {
    (0..4000).map(|_| y.alloc(o(0), Gfp::KERNEL).unwrap()).collect()
}

fn holds(y: &Yielding) -> u64 {
    y.cpu_stats(ZONE, CpuId(0)).unwrap().drains.iter().sum()
}

/// Other operations run where the drain holds no lock.
#[test]
fn b4_others_run_between_the_chunks() {
    let m = Reused::under(CHUNKED, Machine::normal(PAGES).cpus(&[0, 0]));
    // The free whose drain has the most chunks, of those that free all pages.
    let y: Yielding = m.next(by_thread());
    let chunks = filled(&y).into_iter().map(|p| {
        let before = holds(&y);
        y.free(p, o(0)).unwrap();
        holds(&y) - before
    });
    let (stopped, chunks) = chunks.enumerate().max_by_key(|c| c.1).unwrap();
    assert!(chunks > 4, "{chunks}");

    let others: [fn(&Yielding); 3] = [
        |y| y.drain_all(None),
        |y| {
            CPU.set(1);
            let p = y.alloc(o(0), Gfp::KERNEL).unwrap();
            y.free(p, o(0)).unwrap();
            CPU.set(0);
        },
        // On the caller's own CPU, as an interrupt handler.
        |y| {
            let p = y.alloc(o(0), Gfp::ATOMIC).unwrap();
            y.free(p, o(0)).unwrap();
        },
    ];
    for other in others {
        let points = at_each_point(
            || {
                let y: Yielding = m.next(by_thread());
                let pages = filled(&y);
                pages[..stopped].iter().for_each(|&p| y.free(p, o(0)).unwrap());
                (y, pages)
            },
            |(y, pages)| y.free(pages[stopped], o(0)).unwrap(),
            move |(y, _)| other(y),
            |(y, pages)| {
                pages[stopped + 1..].iter().for_each(|&p| y.free(p, o(0)).unwrap());
                y.drain_all(None);
                y.validate().unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(y.zone_info(ZONE).unwrap().free_exact, PAGES);
            },
        );
        assert!(u64::from(points) >= chunks, "a point before each chunk: {points} of {chunks}");
    }
}
