//! Spec §11.8: threads that free one block concurrently. Exactly one free succeeds; the others
//! report a double free.

use crate::common;

use std::hint;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::thread;

use common::by_thread::{ByThread, CPU, by_thread};
use common::check::{Owned, check};
use common::{Chosen, LINUX612, Lock, Machine, o};
use pageyard::policy::*;
use pageyard::{FreeError, Gfp, Hooked, Order, Pfn, Yard, ZoneKind};

const ROUNDS: usize = 40;
const BLOCKS: usize = 256;
/// Blocks that the threads free between two gates.
const RUN: usize = 32;

type Y<'y> = Yard<'y, Hooked<Lock, ByThread, Chosen>>;

/// A way to free a block.
type Way = fn(&Y<'_>, Pfn, Order) -> Result<(), FreeError>;

fn ways() -> [Way; 7] {
    [
        |y, pfn, order| y.free(pfn, order),
        |y, pfn, order| y.free_direct(pfn, order),
        |y, pfn, order| y.free_rest(pfn, order),
        // As C frees: the rest is the whole free once more.
        |y, pfn, order| y.free_ready(pfn, order).map_or_else(|| y.free(pfn, order), Ok),
        |y, pfn, order| y.free_batch(&[(pfn, order)]).map_err(|e| e.error),
        |y, pfn, order| {
            // The thread that split the block owns all of its pages.
            y.split(pfn, order, Order::ZERO)?;
            let mut pages = pfn.0..pfn.0 + u64::from(order.pages());
            pages
                .try_for_each(|page| y.free(Pfn(page), Order::ZERO).map_err(|_| FreeError::Foreign))
        },
        |y, pfn, order| {
            y.free_shared(pfn, order)?;
            y.free(pfn, Order::ZERO)
        },
    ]
}

/// A barrier: holds each thread until all have arrived.
#[derive(Default)]
struct Gate(AtomicUsize);

impl Gate {
    fn pass(&self, threads: usize) {
        self.0.fetch_add(1, SeqCst);
        while self.0.load(SeqCst) < threads {
            (0..512).for_each(|_| hint::spin_loop());
            thread::yield_now();
        }
    }
}

struct Target {
    pfn: Pfn,
    order: Order,
    freed: AtomicU32,
}

fn race(rules: Chosen, threads: usize) {
    let m = Machine::new()
        .zone(ZoneKind::Dma32, 0..16_384)
        .zone(ZoneKind::Normal, 16_384..32_768)
        .cpus(&[0, 0, 0]);
    m.run_on_under(by_thread(), rules, |y: &Y<'_>| {
        for round in 0..ROUNDS {
            let one = |n: usize| {
                let order = o([0, 0, 1, 0, 3, 0, 5, 0][n % 8]);
                let zone = if n.is_multiple_of(3) { Gfp::DMA32 } else { Gfp::MOVABLE };
                let pfn = y.alloc(order, Gfp::KERNEL | zone).unwrap();
                Target { pfn, order, freed: AtomicU32::new(0) }
            };
            let targets: Vec<Target> = (0..BLOCKS).map(one).collect();
            let gates: [Gate; BLOCKS / RUN] = Default::default();
            thread::scope(|s| {
                for cpu in 0..threads {
                    let (targets, gates) = (&targets, &gates);
                    s.spawn(move || {
                        CPU.set(cpu as u32);
                        for (n, t) in targets.iter().enumerate() {
                            // Vary the way, so that every pair of ways races.
                            let way = if cpu == 0 { round } else { round / 6 + n * cpu };
                            // A single page cannot be split, and `free_shared` would keep all of
                            // it.
                            let ways_there = if t.order == Order::ZERO { 4 } else { 6 };
                            if n.is_multiple_of(RUN) {
                                gates[n / RUN].pass(threads);
                            }
                            // A panic here would leave the other threads waiting at the gates.
                            match ways()[way % ways_there](y, t.pfn, t.order) {
                                Ok(()) => _ = t.freed.fetch_add(1, SeqCst),
                                Err(FreeError::DoubleFree | FreeError::WrongOrder { .. }) => {}
                                Err(_) => _ = t.freed.fetch_add(1 << 16, SeqCst),
                            }
                        }
                    });
                }
            });
            for t in &targets {
                let freed = t.freed.load(SeqCst);
                assert_eq!(freed, 1, "{} of order {}", t.pfn, t.order.get());
            }
            y.drain_all(None);
            check(y, &m, &Owned::new());
        }
    });
}

#[test]
fn s11_8_one_of_two_frees_reports_a_double_free() {
    race(LINUX612, 2);
}

#[test]
fn s11_8_one_of_three_frees_succeeds_with_checks() {
    race(&<PageChecked<Linux612>>::RULES, 3);
}

#[test]
fn s11_8_one_of_two_frees_succeeds_with_two_passes() {
    race(&<TwoPassBulkFree<Step9>>::RULES, 2);
}

#[test]
fn s11_8_one_of_three_frees_succeeds_on_the_packed_engine() {
    race(&Packed::RULES, 3);
}
