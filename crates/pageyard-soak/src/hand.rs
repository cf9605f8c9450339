//! A thread of a phase: what it holds, and what it does.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use pageyard::{Gfp, Order};
use pageyard_host::Block;

use crate::Plant;
use crate::counts::Tally;
use crate::found::Found;
use crate::held::{Held, Item};
use crate::house::{House, lock};
use crate::owners::Owner;
use crate::phase::Work;
use crate::raw;
use crate::ways::{ALLOC, DROP, TABLE, Way, bytes, draw, row};
use crate::world::{Role, World};

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
/// Operations of a worker in a phase: about a second's.
const MIXED: u64 = 10_000;
/// See `MIXED`: single pages that bear patterns, and those that do not.
const MARKED_BURSTS: u64 = 500_000;
const BURSTS: u64 = 2_000_000;
/// Requests that do not wait, of each type.
const TYPES: [Gfp; 3] =
    [Gfp::NOWAIT, Gfp::NOWAIT.union(Gfp::MOVABLE), Gfp::NOWAIT.union(Gfp::RECLAIMABLE)];
/// Requests that take nearly all there is.
const SWINGS: Gfp = Gfp::NOWAIT.union(Gfp::MOVABLE).union(Gfp::NOWARN);
/// Items at one place that any thread takes from.
const MOST: usize = 1000;
/// Pages that a thread takes and returns before it ends.
const LAST: usize = 200;

/// A thread of a phase.
pub(crate) struct Hand {
    pub(crate) world: &'static World,
    pub(crate) rng: Rng,
    /// Which of the world's seats.
    seat: usize,
    /// Its number among all threads of the phase, from 1.
    number: u64,
    serial: u64,
    held: Vec<Held>,
    pages: u64,
    /// Pages that it would like to hold.
    appetite: u64,
    operations: u64,
    tally: Tally,
}

impl Drop for Hand {
    fn drop(&mut self) {
        self.tally.add_to(&mut lock(&self.world.counts));
    }
}

impl Hand {
    pub(crate) fn new(world: &'static World, seat: usize, rng: Rng) -> Hand {
        Hand {
            world,
            rng,
            seat,
            number: 1 + world.threads.fetch_add(1, Relaxed),
            serial: 0,
            held: Vec::new(),
            pages: 0,
            appetite: 0,
            operations: 0,
            tally: Tally::new(),
        }
    }

    /// Does the seat's work, and returns everything.
    pub(crate) fn run(mut self) {
        let role = self.world.seats[self.seat].role;
        let done = self.work(role);
        let done = done.and_then(|()| self.release_all());
        self.world.report(done);
        if matches!(role, Role::Worker(_)) {
            self.world.working.fetch_sub(1, Relaxed);
        }
    }

    fn work(&mut self, role: Role) -> Result<(), Found> {
        let world = self.world;
        let mut n = 0;
        let operations = match role {
            Role::Worker(Work::Mixed) => MIXED,
            Role::Worker(Work::Burst(_)) if world.phase.patterns => MARKED_BURSTS,
            Role::Worker(Work::Burst(_)) => BURSTS,
            Role::Swing | Role::Repeat(_) | Role::Others => u64::MAX,
        };
        while self.operations < operations && !world.is_done() {
            n += 1;
            let house = self.house();
            match role {
                Role::Worker(Work::Mixed) => self.mix(n)?,
                Role::Worker(Work::Burst(most)) => {
                    let gfp = TYPES[self.rng.usize(..TYPES.len())];
                    let pages = self.rng.usize(1..=most);
                    self.burst(house, pages, gfp)?;
                }
                Role::Swing => self.swing(house)?,
                Role::Repeat(row) => {
                    self.other(row, house)?;
                    self.nap();
                }
                Role::Others => {
                    let row = draw(&mut self.rng, |way| matches!(way, Way::Other(_)));
                    self.other(row, house)?;
                }
            }
        }
        Ok(())
    }

    fn house(&mut self) -> &'static House {
        &self.world.houses[self.rng.usize(..self.world.houses.len())]
    }

    fn gfp(&mut self) -> Gfp {
        FLAGS[self.rng.usize(..FLAGS.len())] | Gfp::NOWARN
    }

    fn nap(&mut self) {
        thread::sleep(Duration::from_micros(self.rng.u64(..500)));
    }

    /// Notes that an operation begins.
    fn begin(&mut self, row: usize) {
        self.operations += 1;
        self.tally.rows[row] += 1;
        let progress = self.operations << 8 | row as u64;
        self.world.seats[self.seat].progress.store(progress, Relaxed);
    }

    fn other(&mut self, row: usize, house: &'static House) -> Result<(), Found> {
        self.begin(row);
        match TABLE[row].way {
            Way::Other(f) => f(self, house),
            Way::In(_) | Way::Out(_) => Ok(()),
        }
    }

    fn owner(&mut self, row: usize) -> Owner {
        self.serial += 1;
        Owner::new(self.number, row, self.serial)
    }

    /// Requests something; `None` if that is refused.
    fn take(&mut self, house: &'static House) -> Result<Option<Held>, Found> {
        let row = draw(&mut self.rng, |way| matches!(way, Way::In(_)));
        let Way::In(f) = TABLE[row].way else { return Ok(None) };
        let gfp = self.gfp() | if self.rng.u8(..) < 80 { Gfp::ZERO } else { Gfp::empty() };
        self.begin(row);
        let item = f(&mut self.rng, house, gfp);
        self.enter(row, house, item, gfp.contains(Gfp::ZERO), self.world.phase.patterns)
    }

    /// Requests a block by `alloc`; `None` if that is refused.
    fn take_block(
        &mut self,
        house: &'static House,
        order: Order,
        gfp: Gfp,
        patterns: bool,
    ) -> Result<Option<Held>, Found> {
        self.begin(ALLOC);
        let item = house.yard.alloc(order, gfp).ok().map(Item::Block);
        self.enter(ALLOC, house, item, false, patterns)
    }

    /// Enters this thread as the owner of what it was given.
    fn enter(
        &mut self,
        row: usize,
        house: &'static House,
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
                let twin = raw::twin(house, block);
                // Both stay where they are: one of them is not the caller's.
                std::mem::forget(Held::new(house, twin, self.owner(row), zero, patterns)?);
            }
        }
        let mut held = Held::new(house, item, self.owner(row), zero, patterns)?;
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

    /// Returns an item in one of the ways there are.
    fn give(&mut self, mut held: Held) -> Result<(), Found> {
        let house = held.house;
        self.tally.checked += 1;
        if self.world.plant_now(Plant::WrongOwner) {
            held.terms.owner = self.owner(DROP);
        }
        match held.end()? {
            item if self.world.plant_now(Plant::Lose) => {
                std::mem::forget(item);
            }
            Item::Block(block) => {
                let out = draw(&mut self.rng, |way| matches!(way, Way::Out(_)));
                self.begin(out);
                if let Way::Out(f) = TABLE[out].way {
                    f(house, block)?;
                }
            }
            Item::Bulk(all) if self.rng.bool() => {
                self.begin(row("free_bulk"));
                house.yard.free_bulk(all);
            }
            item => {
                self.begin(DROP);
                drop(item);
            }
        }
        Ok(())
    }

    /// Operations of every kind.
    fn mix(&mut self, turn: u64) -> Result<(), Found> {
        if turn % 64 == 1 {
            // In most phases from nothing to half more than there is.
            let all: u64 = self.world.houses.iter().map(House::pages).sum();
            let part = all * self.rng.u64(0..=self.world.phase.appetite) / 100;
            self.appetite = part / self.world.phase.workers.len() as u64;
        }
        for _ in 0..32 {
            let take = match self.appetite {
                0 => 0,
                most if self.pages < most => 60,
                _ => 25,
            };
            if self.rng.u8(0..100) < take {
                let house = self.house();
                if let Some(held) = self.take(house)? {
                    self.hold(held);
                }
            } else {
                self.let_go()?;
            }
        }
        if let Some(at) = self.any() {
            // Other threads' writes are seen while it is held, not only at the end.
            self.held[at].check()?;
            self.held[at].mark()?;
        }
        let house = self.house();
        let row = if self.rng.bool() { row("resize") } else { row("register_relocator") };
        self.other(row, house)?;
        for _ in 0..16 {
            let Some(held) = lock(&self.world.exchange).pop() else { break };
            self.tally.exchanged += 1;
            self.give(held)?;
        }
        Ok(())
    }

    fn hold(&mut self, held: Held) {
        self.pages += held.pages();
        self.held.push(held);
    }

    fn any(&mut self) -> Option<usize> {
        (!self.held.is_empty()).then(|| self.rng.usize(..self.held.len()))
    }

    fn remove(&mut self, at: usize) -> Held {
        let held = self.held.swap_remove(at);
        self.pages -= held.pages();
        held
    }

    /// Returns an item, or leaves it to another thread.
    fn let_go(&mut self) -> Result<(), Found> {
        let Some(at) = self.any() else { return Ok(()) };
        let held = self.remove(at);
        let place = match self.rng.u8(0..100) {
            0..10 => &self.world.exchange,
            10..20 => &held.house.cache,
            _ => return self.give(held),
        };
        let mut place = lock(place);
        if place.len() < MOST {
            place.push(held);
            return Ok(());
        }
        drop(place);
        self.give(held)
    }

    /// Returns everything, and ends with a full cache.
    fn release_all(&mut self) -> Result<(), Found> {
        while let Some(held) = self.held.pop() {
            self.give(held)?;
        }
        let house = self.house();
        self.burst(house, LAST, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN)
    }

    /// Takes single pages and returns them.
    fn burst(&mut self, house: &'static House, pages: usize, gfp: Gfp) -> Result<(), Found> {
        let mut all = Vec::with_capacity(pages);
        while all.len() < pages
            && let Some(held) =
                self.take_block(house, Order::ZERO, gfp, self.world.phase.patterns)?
        {
            all.push(held);
        }
        self.tally.checked += all.len() as u64;
        if self.rng.bool() {
            // Past the thread's cache, so that the next burst refills it.
            self.begin(row("free_bulk"));
            let items = all.into_iter().map(Held::end).collect::<Result<Vec<_>, _>>()?;
            house.yard.free_bulk(items.into_iter().filter_map(Item::block));
            return Ok(());
        }
        for held in all {
            self.begin(DROP);
            held.release()?;
        }
        Ok(())
    }

    /// Takes most of a yard or all of it, the largest blocks first, and returns it.
    fn swing(&mut self, house: &'static House) -> Result<(), Found> {
        let mut all = Vec::new();
        let mut left = house.pages() * self.rng.u64(80..=110) / 100;
        for order in [10, 5, 0].into_iter().filter_map(Order::new) {
            let pages = u64::from(order.pages());
            while left >= pages
                && !self.world.is_done()
                && let Some(held) = self.take_block(house, order, SWINGS, false)?
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

    /// Lets an item become larger or smaller.
    pub(crate) fn resize(&mut self) -> Result<(), Found> {
        let bytes = bytes(&mut self.rng);
        let sized = |held: &&mut Held| matches!(held.item, Item::Rows(_) | Item::Heap(_));
        self.held.iter_mut().find(sized).map_or(Ok(()), |held| held.resize(bytes))
    }

    /// Lends a block to the yard's relocator, or takes one back.
    pub(crate) fn lend_or_borrow(&mut self, house: &'static House) -> Result<(), Found> {
        if self.rng.bool() {
            let lent = house.pool.take(house);
            lent.into_iter().for_each(|held| self.hold(held));
            return Ok(());
        }
        let own =
            |held: &Held| std::ptr::eq(held.house, house) && matches!(held.item, Item::Block(_));
        if let Some(at) = self.held.iter().position(own) {
            let held = self.remove(at);
            house.pool.put(held);
        }
        Ok(())
    }

    /// A thread that ends with a full cache.
    pub(crate) fn thread(&mut self, house: &'static House) -> Result<(), Found> {
        let gfp = self.gfp();
        let mut hand = Hand::new(self.world, self.seat, self.rng.fork());
        let burst = move || hand.burst(house, LAST, gfp);
        match thread::Builder::new().spawn(burst).map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(Found::Wrong("a thread panicked".into())),
            // The system has no room for one more.
            Err(_) => Ok(()),
        }
    }

    /// A child after a fork, which must get nothing and see what its parent had.
    pub(crate) fn fork(&mut self, house: &'static House) -> Result<(), Found> {
        let gfp = self.gfp();
        let mut copies = Vec::new();
        for order in [0, 3].into_iter().filter_map(Order::new) {
            copies.extend(self.take_block(house, order, gfp, true)?);
        }
        let yard = &house.yard;
        raw::in_child(&mut [
            ("is handed out a block", &mut || {
                let mut orders = (0..=10).filter_map(Order::new);
                orders.all(|order| yard.alloc(order, gfp).is_err()) && !yard.is_here()
            }),
            ("is handed out pages in bulk", &mut || {
                let mut all = Vec::new();
                let _ = yard.alloc_bulk(10, gfp, &mut all);
                all.is_empty()
            }),
            ("has other contents than its parent", &mut || {
                let same = copies.iter_mut().all(|held| held.check().is_ok());
                copies.clear();
                same
            }),
            ("cannot drain", &mut || {
                yard.drain();
                yard.tick();
                true
            }),
        ])?;
        copies.into_iter().try_for_each(Held::release)
    }

    /// Whether something holds for a block.
    pub(crate) fn with_block(
        &mut self,
        house: &'static House,
        holds: impl FnOnce(&Block<'static>) -> bool,
    ) -> Result<(), Found> {
        let gfp = self.gfp();
        let Some(held) = self.take_block(house, Order::ZERO, gfp, false)? else { return Ok(()) };
        match &held.item {
            Item::Block(block) if !holds(block) => {
                Err(Found::Wrong(format!("what is said of {block:?} is wrong")))
            }
            _ => held.release(),
        }
    }
}
