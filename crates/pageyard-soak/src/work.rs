//! The work of a phase's threads, by role.

use std::sync::atomic::Ordering::Relaxed;

use pageyard::Gfp;

use crate::Plant;
use crate::actor::{Actor, DROP, FREE_BULK, LAST};
use crate::found::{Found, Report};
use crate::held::{Held, Item};
use crate::operations::{Operation, TABLE, draw, row};
use crate::phase::Work;
use crate::tracked::{TrackedYard, lock};
use crate::world::Role;

/// Operations of a worker in a phase, about one second's worth.
const MIXED: u64 = 10_000;
/// Like `MIXED`: single pages with patterns, and without.
const MARKED_BURSTS: u64 = 500_000;
const BURSTS: u64 = 2_000_000;
/// Flags of requests that do not wait, one per type.
const TYPES: [Gfp; 3] =
    [Gfp::NOWAIT, Gfp::NOWAIT.union(Gfp::MOVABLE), Gfp::NOWAIT.union(Gfp::RECLAIMABLE)];
/// The most items in one shared collection.
const MOST: usize = 1000;

impl Actor {
    /// Does the seat's work, then frees everything.
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
        let part = |whole: u64| (whole / 100).saturating_mul(world.phase.length);
        let operations = match role {
            Role::Worker(Work::Mixed) => part(MIXED),
            Role::Worker(Work::Burst(_)) if world.phase.patterns => part(MARKED_BURSTS),
            Role::Worker(Work::Burst(_)) => part(BURSTS),
            Role::Swing | Role::Repeat(_) | Role::Others => u64::MAX,
        };
        while self.operations < operations && !world.is_done() {
            n += 1;
            let tracked = self.tracked();
            match role {
                Role::Worker(Work::Mixed) => self.mix(n)?,
                Role::Worker(Work::Burst(most)) => {
                    let gfp = TYPES[self.rng.usize(..TYPES.len())];
                    let pages = self.rng.usize(1..=most);
                    self.burst(tracked, pages, gfp)?;
                }
                Role::Swing => self.swing(tracked)?,
                Role::Repeat(row) => {
                    self.other(row, tracked)?;
                    self.nap();
                }
                Role::Others => {
                    let row = draw(&mut self.rng, |way| matches!(way, Operation::Other(_)));
                    self.other(row, tracked)?;
                }
            }
        }
        Ok(())
    }

    fn other(&mut self, row: usize, tracked: &'static TrackedYard) -> Result<(), Found> {
        self.begin(row);
        match TABLE[row].way {
            Operation::Other(f) => f(self, tracked),
            Operation::In(_) | Operation::Out(_) => Ok(()),
        }
    }

    /// Allocates an item. Returns `None` if the request fails.
    fn alloc(&mut self, tracked: &'static TrackedYard) -> Result<Option<Held>, Found> {
        let row = draw(&mut self.rng, |way| matches!(way, Operation::In(_)));
        let Operation::In(f) = TABLE[row].way else { return Ok(None) };
        let gfp = self.gfp() | if self.rng.u8(..) < 80 { Gfp::ZERO } else { Gfp::empty() };
        self.begin(row);
        let item = f(&mut self.rng, tracked, gfp);
        self.enter(row, tracked, item, gfp.contains(Gfp::ZERO), self.world.phase.patterns)
    }

    /// Frees an item by a random method.
    fn free(&mut self, mut held: Held) -> Result<(), Found> {
        let tracked = held.tracked;
        self.tally.checked += 1;
        if self.world.plant_now(Plant::WrongOwner) {
            held.terms.owner = self.owner(DROP);
        }
        match held.end()? {
            item if self.world.plant_now(Plant::Lose) => {
                std::mem::forget(item);
            }
            Item::Block(block) => {
                let out = draw(&mut self.rng, |way| matches!(way, Operation::Out(_)));
                self.begin(out);
                if let Operation::Out(f) = TABLE[out].way {
                    f(tracked, block)?;
                }
            }
            Item::Bulk(all) if self.rng.bool() => {
                self.begin(FREE_BULK);
                tracked.yard.free_bulk(all);
            }
            item => {
                self.begin(DROP);
                drop(item);
            }
        }
        Ok(())
    }

    /// Runs operations of every kind.
    fn mix(&mut self, turn: u64) -> Result<(), Found> {
        if turn % 64 == 1 {
            // In most phases, from nothing to half more than the memory.
            let all: u64 = self.world.yards.iter().map(TrackedYard::pages).sum();
            let part = all * self.rng.u64(0..=self.world.phase.most_held_percent) / 100;
            self.most_held = part / self.world.phase.workers.len() as u64;
        }
        for _ in 0..32 {
            let take = match self.most_held {
                0 => 0,
                most if self.pages < most => 60,
                _ => 25,
            };
            if self.rng.u8(0..100) < take {
                let tracked = self.tracked();
                if let Some(held) = self.alloc(tracked)? {
                    self.hold(held);
                }
            } else {
                self.release_some()?;
            }
        }
        if let Some(at) = self.any() {
            // Checks for other threads' writes while the item is held, not only at the end.
            self.held[at].check()?;
            self.held[at].mark()?;
        }
        let tracked = self.tracked();
        let row = if self.rng.bool() { row("resize") } else { row("register_relocator") };
        self.other(row, tracked)?;
        for _ in 0..16 {
            let Some(held) = lock(&self.world.exchange).pop() else { break };
            self.tally.exchanged += 1;
            self.free(held)?;
        }
        Ok(())
    }

    /// Frees an item, or leaves it to another thread.
    fn release_some(&mut self) -> Result<(), Found> {
        let Some(at) = self.any() else { return Ok(()) };
        let held = self.remove(at);
        let place = match self.rng.u8(0..100) {
            0..10 => &self.world.exchange,
            10..20 => &self.world.callbacks(held.tracked).cache,
            _ => return self.free(held),
        };
        let mut place = lock(place);
        if place.len() < MOST {
            place.push(held);
            return Ok(());
        }
        drop(place);
        self.free(held)
    }

    /// Frees everything, and ends with a full cache.
    fn release_all(&mut self) -> Result<(), Found> {
        while let Some(held) = self.held.pop() {
            self.free(held)?;
        }
        let tracked = self.tracked();
        self.burst(tracked, LAST, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN)
    }
}
