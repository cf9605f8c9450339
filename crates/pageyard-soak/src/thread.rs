//! One thread's work.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pageyard::{Gfp, Order};
use pageyard_host::Block;

use crate::Plant;
use crate::counts::add;
use crate::held::{Found, Held, Item};
use crate::shared::Shared;

/// Requests of every kind: in the middle of the reserves, at the edge, and without waiting.
const FLAGS: [Gfp; 7] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::NOWAIT,
    Gfp::ATOMIC,
];

/// Where a thread sends what another one is to give back, and finds what others sent.
pub(crate) struct Mail {
    pub(crate) to: Sender<Held>,
    pub(crate) from: Receiver<Held>,
}

/// A thread's hands and its luck.
struct Worker<'s> {
    shared: &'s Shared,
    rng: Rng,
    held: Vec<Held>,
    pages: u64,
}

impl Worker<'_> {
    fn order(&mut self) -> Order {
        let order = match self.rng.u8(0..100) {
            0..60 => 0,
            60..85 => self.rng.u8(1..=3),
            85..97 => self.rng.u8(4..=8),
            _ => self.rng.u8(9..=10),
        };
        Order::new(order).unwrap_or_default()
    }

    /// Asks for something; `None` where there is not so much.
    fn ask(&mut self) -> Option<(Item, bool)> {
        let Shared { yard, tally, .. } = self.shared;
        let mut gfp = FLAGS[self.rng.usize(..FLAGS.len())] | Gfp::NOWARN;
        let zero = self.rng.u8(..) < 80;
        if zero {
            gfp |= Gfp::ZERO;
        }
        let item = match self.rng.u8(0..100) {
            0..15 => {
                let mut all: Vec<Block<'static>> = Vec::new();
                let n = self.rng.usize(1..300);
                yard.alloc_bulk(n, gfp, &mut all).ok().filter(|&got| got > 0)?;
                add(&tally.bulk_pages, all.len() as u64);
                Item::Bulk(yard, all)
            }
            15..30 => {
                let order = self.order();
                let item = Item::Movable(yard.alloc_movable(order, gfp).ok()?);
                add(&tally.movables, 1);
                item
            }
            30 => {
                let pages = self.rng.u64(1..1500);
                let gfp = Gfp::KERNEL | Gfp::NOWARN | (gfp & Gfp::ZERO);
                let item = Item::Range(yard.alloc_range(pages, 1, gfp).ok()?);
                add(&tally.ranges, 1);
                item
            }
            31..34 => {
                let align = 4096u64 << self.rng.u8(0..=10);
                let item = Item::Block(yard.alloc_aligned(self.order(), align, gfp).ok()?);
                add(&tally.blocks, 1);
                item
            }
            _ => {
                let item = Item::Block(yard.alloc(self.order(), gfp).ok()?);
                add(&tally.blocks, 1);
                item
            }
        };
        Some((item, zero))
    }

    fn take(&mut self) -> Result<(), Found> {
        let Shared { tally, hands, .. } = self.shared;
        let Some((mut item, zero)) = self.ask() else {
            add(&tally.refused, 1);
            return Ok(());
        };
        if zero && self.shared.plant_now(Plant::Dirt) {
            item.each_mut(&mut |bytes| bytes[0] = 1);
        }
        let token = self.rng.u64(..);
        let mut held = Held::new(item, token, zero, hands)?;
        add(&tally.pages, held.pages);
        add(&tally.zeros, if zero { held.pages } else { 0 });
        if self.shared.plant_now(Plant::Scribble) {
            held.scribble();
        } else if self.shared.plant_now(Plant::Lose) {
            held.lose();
            return Ok(());
        }
        self.pages += held.pages;
        self.held.push(held);
        Ok(())
    }

    /// Looks at something, and lets go of it in one of the ways there are.
    fn let_go(&mut self, mail: &Mail) -> Result<(), Found> {
        if self.held.is_empty() {
            return Ok(());
        }
        let held = self.held.swap_remove(self.rng.usize(..self.held.len()));
        self.pages -= held.pages;
        held.check()?;
        add(&self.shared.tally.checked, 1);
        match self.rng.u8(0..100) {
            0..10 => drop(mail.to.send(held)),
            10..20 => self.shared.cache(held),
            _ => drop(held),
        }
        Ok(())
    }

    fn turn(&mut self, mail: &Mail) -> Result<(), Found> {
        let most = self.shared.appetite();
        for _ in 0..32 {
            let take = match most {
                0 => 0,
                _ if self.pages < most => 60,
                _ => 25,
            };
            if self.rng.u8(0..100) < take {
                self.take()?;
            } else {
                self.let_go(mail)?;
            }
        }
        if !self.held.is_empty() {
            // Others' writes are seen while it is held, not only in the end.
            let at = self.rng.usize(..self.held.len());
            let held = &mut self.held[at];
            held.check()?;
            add(&self.shared.tally.checked, 1);
            held.mark(self.rng.u64(..));
        }
        for held in mail.from.try_iter().take(16) {
            held.check()?;
            add(&self.shared.tally.passed_on, 1);
        }
        Ok(())
    }
}

/// Works until it is enough; what it holds in the end goes to another thread. Then it says that it
/// ends.
pub(crate) fn work(shared: &Shared, seed: u64, mail: &Mail, life: Duration, ends: &AtomicBool) {
    let end = Instant::now() + life;
    let mut worker = Worker { shared, rng: Rng::with_seed(seed), held: Vec::new(), pages: 0 };
    while !shared.is_over() && Instant::now() < end {
        let _in = shared.enter();
        if let Err(found) = worker.turn(mail) {
            shared.report(found);
        }
    }
    let _in = shared.enter();
    for held in worker.held {
        if let Err(found) = held.check() {
            shared.report(found);
        }
        drop(mail.to.send(held));
    }
    add(&shared.tally.threads_ended, 1);
    ends.store(true, SeqCst);
}
