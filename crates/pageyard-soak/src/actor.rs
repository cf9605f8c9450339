//! A thread of a phase: the items it holds, and its operations.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::Plant;
use crate::found::Found;
use crate::held::{Held, Item};
use crate::owner::Owner;
use crate::raw;
use crate::tally::Tally;
use crate::tracked::{TrackedYard, lock};
use crate::world::World;
use crate::yards::Block;
use fastrand::Rng;
use pageyard::{Gfp, Order};

/// Flags of requests: ordinary ones, and those that do not wait.
const FLAGS: [Gfp; 7] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::NOWAIT,
    Gfp::ATOMIC,
];
/// Flags of requests that allocate nearly all memory.
const SWINGS: Gfp = Gfp::NOWAIT.union(Gfp::MOVABLE).union(Gfp::NOWARN);
/// Numbers of rows in the table: `alloc`, dropping a block, `free_bulk`.
pub(crate) const ALLOC: usize = 0;
pub(crate) const DROP: usize = 10;
pub(crate) const FREE_BULK: usize = 11;
/// Pages that a thread allocates and frees before it ends.
pub(crate) const LAST: usize = 200;

/// A thread of a phase.
pub(crate) struct Actor {
    pub(crate) world: &'static World,
    pub(crate) rng: Rng,
    /// Index in the world's seats.
    pub(crate) seat: usize,
    /// The thread's number in the phase, from 1.
    number: u64,
    serial: u64,
    pub(crate) held: Vec<Held>,
    pub(crate) pages: u64,
    /// Number of pages that it tries to hold.
    pub(crate) most_held: u64,
    pub(crate) operations: u64,
    pub(crate) tally: Tally,
}

impl Drop for Actor {
    fn drop(&mut self) {
        self.tally.add_to(&mut lock(&self.world.counts), self.world.names);
    }
}

impl Actor {
    pub(crate) fn new(world: &'static World, seat: usize, rng: Rng) -> Actor {
        Actor {
            world,
            rng,
            seat,
            number: 1 + world.threads.fetch_add(1, Relaxed),
            serial: 0,
            held: Vec::new(),
            pages: 0,
            most_held: 0,
            operations: 0,
            tally: Tally::new(world.names),
        }
    }

    pub(crate) fn tracked(&mut self) -> &'static TrackedYard {
        &self.world.yards[self.rng.usize(..self.world.yards.len())]
    }

    pub(crate) fn gfp(&mut self) -> Gfp {
        FLAGS[self.rng.usize(..FLAGS.len())] | Gfp::NOWARN
    }

    pub(crate) fn nap(&mut self) {
        thread::sleep(Duration::from_micros(self.rng.u64(..500)));
    }

    /// Records that an operation begins.
    pub(crate) fn begin(&mut self, row: usize) {
        self.operations += 1;
        self.tally.rows[row] += 1;
        let progress = self.operations << 8 | row as u64;
        self.world.seats[self.seat].progress.store(progress, Relaxed);
    }

    pub(crate) fn owner(&mut self, row: usize) -> Owner {
        self.serial += 1;
        Owner::new(self.number, row, self.serial, self.world.names)
    }

    /// Requests a block with `alloc`. Returns `None` if the request fails.
    fn take_block(
        &mut self,
        tracked: &'static TrackedYard,
        order: Order,
        gfp: Gfp,
        patterns: bool,
    ) -> Result<Option<Held>, Found> {
        self.begin(ALLOC);
        let item = tracked.yard.alloc(order, gfp).ok().map(Item::Block);
        self.enter(ALLOC, tracked, item, false, patterns)
    }

    /// Enters this thread as the owner of an item it has allocated.
    pub(crate) fn enter(
        &mut self,
        row: usize,
        tracked: &'static TrackedYard,
        item: Option<Item>,
        zero: bool,
        patterns: bool,
    ) -> Result<Option<Held>, Found> {
        let Some(mut item) = item else {
            self.tally.refused += 1;
            return Ok(None);
        };
        if let Item::Block(block) = &mut item {
            if zero && self.world.plant_now(Plant::Dirt) {
                block[0] = 1;
            } else if self.world.plant_now(Plant::Twice) {
                let duplicate = Item::Block(raw::duplicate(&tracked.yard, block));
                // Both leak: one of them does not belong to the caller.
                Held::new(tracked, duplicate, self.owner(row), zero, patterns)?;
            }
        }
        let mut held = Held::new(tracked, item, self.owner(row), zero, patterns)?;
        if patterns && self.world.plant_now(Plant::Scribble) {
            held.each(&mut |_, bytes| {
                bytes.iter_mut().take(1).for_each(|b| *b = !*b);
                Ok(())
            })?;
        }
        self.tally.pages += held.pages();
        self.tally.zeros += if zero { held.pages() } else { 0 };
        Ok(Some(held))
    }

    pub(crate) fn hold(&mut self, held: Held) {
        self.pages += held.pages();
        self.held.push(held);
    }

    pub(crate) fn any(&mut self) -> Option<usize> {
        (!self.held.is_empty()).then(|| self.rng.usize(..self.held.len()))
    }

    pub(crate) fn remove(&mut self, at: usize) -> Held {
        let held = self.held.swap_remove(at);
        self.pages -= held.pages();
        held
    }

    /// Allocates single pages and frees them.
    pub(crate) fn burst(
        &mut self,
        tracked: &'static TrackedYard,
        pages: usize,
        gfp: Gfp,
    ) -> Result<(), Found> {
        let mut all = Vec::with_capacity(pages);
        while all.len() < pages
            && let Some(held) =
                self.take_block(tracked, Order::ZERO, gfp, self.world.phase.patterns)?
        {
            all.push(held);
        }
        self.tally.checked += all.len() as u64;
        if self.rng.bool() {
            // Bypasses the thread's cache, so that the next burst refills it.
            self.begin(FREE_BULK);
            let items = all.into_iter().map(Held::end).collect::<Result<Vec<_>, _>>()?;
            tracked.yard.free_bulk(items.into_iter().filter_map(Item::block));
            return Ok(());
        }
        for held in all {
            self.begin(DROP);
            held.release()?;
        }
        Ok(())
    }

    /// Allocates most or all of a yard, the largest blocks first, and frees it.
    pub(crate) fn swing(&mut self, tracked: &'static TrackedYard) -> Result<(), Found> {
        let mut all = Vec::new();
        let mut left = tracked.pages() * self.rng.u64(80..=110) / 100;
        for order in [10, 5, 0].into_iter().filter_map(Order::new) {
            let pages = u64::from(order.pages());
            while left >= pages
                && !self.world.is_done()
                && let Some(held) = self.take_block(tracked, order, SWINGS, false)?
            {
                left -= pages;
                all.push(held);
            }
        }
        self.nap();
        all.into_iter().try_for_each(Held::release)?;
        self.nap();
        Ok(())
    }

    /// Grows or shrinks an item.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Found> {
        let sized = |held: &&mut Held| matches!(held.item(), Item::Rows(_) | Item::Heap(_));
        self.held.iter_mut().find(sized).map_or(Ok(()), |held| held.resize(bytes))
    }

    /// Lends a block to the yard's relocator, or takes one back.
    pub(crate) fn exchange_with_pool(
        &mut self,
        tracked: &'static TrackedYard,
    ) -> Result<(), Found> {
        if self.rng.bool() {
            let lent = self.world.callbacks(tracked).pool.take(tracked);
            lent.into_iter().for_each(|held| self.hold(held));
            return Ok(());
        }
        let own = |held: &Held| {
            std::ptr::eq(held.tracked, tracked) && matches!(held.item(), Item::Block(_))
        };
        if let Some(at) = self.held.iter().position(own) {
            let held = self.remove(at);
            self.world.callbacks(tracked).pool.put(held);
        }
        Ok(())
    }

    /// Runs a thread that ends with a full cache.
    pub(crate) fn thread(&mut self, tracked: &'static TrackedYard) -> Result<(), Found> {
        let gfp = self.gfp();
        let mut actor = Actor::new(self.world, self.seat, self.rng.fork());
        let burst = move || actor.burst(tracked, LAST, gfp);
        match thread::Builder::new().spawn(burst).map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Found::Wrong("a thread panicked".into())),
            // The system has no room for another thread.
            Err(_) => Ok(()),
        }
    }

    /// Forks a child, which must not be able to allocate and must see its parent's contents.
    pub(crate) fn fork(&mut self, tracked: &'static TrackedYard) -> Result<(), Found> {
        let gfp = self.gfp();
        let mut copies = Vec::new();
        for order in [0, 3].into_iter().filter_map(Order::new) {
            copies.extend(self.take_block(tracked, order, gfp, true)?);
        }
        let yard = &tracked.yard;
        raw::in_child(&mut [
            ("was allocated a block", &mut || {
                let mut orders = (0..=10).filter_map(Order::new);
                orders.all(|order| yard.alloc(order, gfp).is_err()) && !yard.is_here()
            }),
            ("was allocated pages in bulk", &mut || {
                let mut all = Vec::new();
                let _ = yard.alloc_bulk(10, gfp, &mut all);
                all.is_empty()
            }),
            ("has different contents than its parent", &mut || {
                copies.drain(..).all(|held| held.release().is_ok())
            }),
            ("cannot drain", &mut || {
                yard.drain();
                yard.tick();
                true
            }),
        ])?;
        copies.into_iter().try_for_each(Held::release)
    }

    /// Checks that a condition holds for a block.
    pub(crate) fn with_block(
        &mut self,
        tracked: &'static TrackedYard,
        holds: impl FnOnce(&Block<'static>) -> bool,
    ) -> Result<(), Found> {
        let gfp = self.gfp();
        let Some(held) = self.take_block(tracked, Order::ZERO, gfp, false)? else { return Ok(()) };
        match held.item() {
            Item::Block(block) if !holds(block) => {
                Err(Found::Wrong(format!("the information about {block:?} is wrong")))
            }
            _ => held.release(),
        }
    }
}
