//! Four concurrent threads: requests, frees by other threads than the allocating one, ticks, drains
//! and settings, for a fixed number of operations. At the end all invariants hold.

use crate::common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use common::by_thread::{ByThread, CPU, by_thread};
use common::check::{Owned, check, free_in_pageblocks};
use common::random::Random;
use common::view::view;
use common::{Chosen, Lock, Machine, o};
use pageyard::policy::*;
use pageyard::{CpuId, Gfp, Hooked, Order, Pfn, Yard, ZoneKind};

const THREADS: usize = 4;
const STEPS: usize = 6_000;

/// The frames that callers own, recorded outside the yard, so that a frame allocated twice is found
/// at once.
struct Claims(Vec<AtomicU8>);

impl Claims {
    fn mark(&self, pfn: Pfn, order: Order, from: u8, to: u8) {
        for p in pfn.0..pfn.0 + u64::from(order.pages()) {
            let was = self.0[p as usize].swap(to, SeqCst);
            assert_eq!(was, from, "frame {p:#x} of a block of order {order}");
        }
    }
}

type Block = (Pfn, Order);

struct Worker<'s, 'y> {
    y: &'s Yard<'y, Hooked<Lock, ByThread, Chosen>>,
    claims: &'s Claims,
    /// Each thread's operations are fixed, their interleaving is not.
    random: Random,
    held: Vec<Block>,
    inbox: Receiver<Vec<Block>>,
    others: Vec<Sender<Vec<Block>>>,
}

impl Worker<'_, '_> {
    fn own(&mut self, pfn: Pfn, order: Order) {
        self.claims.mark(pfn, order, 0, 1);
        self.held.push((pfn, order));
    }

    fn gfp(&mut self) -> Gfp {
        [
            Gfp::KERNEL,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::ATOMIC,
            Gfp::KERNEL | Gfp::RECLAIMABLE,
            Gfp::ATOMIC | Gfp::MEMALLOC,
        ][self.random.below(5)]
    }

    fn take(&mut self, n: usize) -> Vec<Block> {
        let mut taken = Vec::new();
        for _ in 0..n.min(self.held.len()) {
            let at = self.random.below(self.held.len());
            taken.push(self.held.swap_remove(at));
        }
        taken
    }

    fn free(&mut self, blocks: Vec<Block>) {
        for (pfn, order) in blocks {
            self.claims.mark(pfn, order, 1, 0);
            self.y.free(pfn, order).unwrap();
        }
    }

    fn step(&mut self) {
        let y = self.y;
        let me = CpuId(CPU.get());
        match self.random.below(100) {
            0..45 => {
                let order = o([0, 0, 0, 0, 1, 2, 3, 4, 9, 10][self.random.below(10)]);
                let gfp = self.gfp();
                if let Ok(pfn) = y.alloc(order, gfp) {
                    self.own(pfn, order);
                }
            }
            45..50 => {
                let mut slots = vec![None; self.random.below(40)];
                y.alloc_bulk(self.gfp(), &mut slots).unwrap();
                slots.into_iter().flatten().for_each(|p| self.own(p, Order::ZERO));
            }
            50..75 => {
                let n = self.random.below(8);
                let blocks = self.take(n);
                self.free(blocks);
            }
            75..82 => {
                // Another thread frees these.
                let n = self.random.below(30);
                let blocks = self.take(n);
                let to = self.random.below(self.others.len());
                self.others[to].send(blocks).unwrap();
            }
            82..88 => {
                while let Ok(blocks) = self.inbox.try_recv() {
                    self.free(blocks);
                }
            }
            88..91 => {
                let n = self.random.below(60);
                let blocks = self.take(n);
                blocks.iter().for_each(|&(p, o)| self.claims.mark(p, o, 1, 0));
                y.free_batch(&blocks).unwrap();
            }
            91 => {
                if let Some(&(p, order)) = self.held.first() {
                    y.set_movable(p, order, true).unwrap();
                }
            }
            92..96 => {
                y.tick(me);
            }
            96 => y.drain_cpu(CpuId((me.0 + 1) % THREADS as u32), None),
            97 => y.drain_all([None, Some(ZoneKind::Normal.into())][self.random.below(2)]),
            98 => {
                y.unreserve_highatomic(pageyard::MigrateType::Movable, true);
            }
            _ => match self.random.below(3) {
                0 => drop(y.disable_pcp(ZoneKind::Normal)),
                1 => y.set_min_free_kbytes(self.random.below(4000) as u64).unwrap(),
                _ => {
                    let scale = 1 + self.random.below(300) as u64;
                    y.set_watermark_scale_factor(scale).unwrap();
                }
            },
        }
    }
}

fn run(rules: Chosen) {
    let m = Machine::new()
        .zone(ZoneKind::Dma32, 0..4096)
        .zone(ZoneKind::Normal, 4096..24_576)
        .reserved(5000..5100)
        .cpus(&[0, 0, 0, 1]);
    m.run_on_under(by_thread(), rules, |y: &Yard<'_, Hooked<Lock, _, _>>| {
        let before: Vec<_> = y.zone_ids().map(|k| free_in_pageblocks(&view(y, k))).collect();
        let claims = Claims((0..24_576).map(|_| AtomicU8::new(0)).collect());
        let (senders, inboxes): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
        // No thread stops receiving before all threads have stopped sending.
        let done = Barrier::new(THREADS);
        thread::scope(|s| {
            for (cpu, inbox) in inboxes.into_iter().enumerate() {
                let mut w = Worker {
                    y,
                    claims: &claims,
                    random: Random(cpu as u64),
                    held: Vec::new(),
                    inbox,
                    others: senders.clone(),
                };
                let done = &done;
                s.spawn(move || {
                    CPU.set(cpu as u32);
                    (0..STEPS).for_each(|_| w.step());
                    done.wait();
                    while let Ok(blocks) = w.inbox.try_recv() {
                        w.free(blocks);
                    }
                    let rest = std::mem::take(&mut w.held);
                    w.free(rest);
                });
            }
        });
        y.drain_all(None);
        check(y, &m, &Owned::new());
        let after: Vec<_> = y.zone_ids().map(|k| free_in_pageblocks(&view(y, k))).collect();
        assert_eq!(after, before, "all memory is free and merged");
        if !rules.carried_types {
            let failures: u64 =
                y.zone_ids().map(|k| y.zone_stats(k).unwrap().type_check_failures).sum();
            assert_eq!(failures, 0);
        }
    });
}

#[test]
fn four_threads_under_linux612() {
    run(&<TypeChecked<Linux612>>::RULES);
}

#[test]
fn four_threads_under_two_passes_and_step_9() {
    run(&<TypeChecked<TwoPassBulkFree<Step9>>>::RULES);
}

#[test]
fn four_threads_under_owned_blocks() {
    run(&<TypeChecked<OwnedBlocks>>::RULES);
}

#[test]
fn four_threads_under_owned_blocks_in_chunks() {
    run(&<TypeChecked<OwnedBlocks<ChunkedDrain<TwoPassBulkFree>>>>::RULES);
}

#[test]
fn four_threads_under_vanilla() {
    run(&<Vanilla>::RULES);
}

#[test]
fn four_threads_on_the_packed_engine() {
    run(&Packed::RULES);
}
