//! Spec §4.12: contiguous ranges, and the migration of blocks in them.

use crate::common;

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use common::any::{AnyHooks, any_hooks};
use common::check::{Owned, check};
use common::state::State;
use common::view::normal;
use common::{Chosen, LINUX612, Lock, Machine, Y, frames, o};
use pageyard::MigrateType::{Isolate, Movable, Reclaimable, Unmovable};
use pageyard::{
    BatchError, ContigError, Defences, FreeError, Gfp, Hooked, IsolateError, Observer, Order, Pfn,
    Place, Platform, Reclaim, Relocation, Yard, ZoneKind,
};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const GFP: Gfp = Gfp::KERNEL;

#[test]
fn s4_12_exactly_the_requested_frames_are_allocated() {
    State::new(2048).free(0, 10).free(1024, 10).run(|y: &Y<'_>| {
        y.alloc_contig(frames(300..1300), Movable, GFP).unwrap();
        let v = normal(y);
        assert!(v.allocated.keys().copied().eq(300..1300));
        assert!(v.allocated.values().all(|&b| b == (0, false)));
        let mut left: Vec<_> = v.all_free().collect();
        left.sort_unstable();
        let expect = [(0, 8), (256, 5), (288, 3), (296, 2), (1300, 2), (1304, 3)];
        assert!(left.starts_with(&expect.map(|(p, o)| (p, o, Movable))), "{left:?}");
        assert_eq!((v.zone.isolated_blocks, v.zone.nr_free), (0, 1048));
        // The second half of the second block was never touched.
        assert!(left.contains(&(1536, 9, Movable)));

        y.free_contig(frames(300..1300)).unwrap();
        y.drain_all(None);
        assert_eq!(normal(y).zone.nr_free, 2048);
    });
}

#[test]
fn s4_12_a_used_page_next_to_the_range_fails_it() {
    State::new(512).used(0..1, false).free(256, 8).used(1..256, true).run(|y: &Y<'_>| {
        let refused = ContigError::Isolate(IsolateError::Unmovable(Pfn(0)));
        assert_eq!(y.alloc_contig(frames(256..300), Movable, GFP), Err(refused));
        assert_eq!(refused.errno(), -16);
    });
}

#[test]
fn s4_12_tails_pass_isolation_but_fail_the_final_check() {
    State::new(1024).block(0, 10, false).run(|y: &Y<'_>| {
        let busy = ContigError::Busy(Pfn(600));
        assert_eq!(y.alloc_contig(frames(600..700), Reclaimable, GFP), Err(busy));
        assert_eq!(normal(y).label(600), Reclaimable, "un-isolated to the caller's type");
    });
}

#[test]
fn s4_12_an_existing_isolation_is_lost() {
    State::new(1024).free(0, 10).run(|y: &Y<'_>| {
        y.isolate(frames(512..1024), Movable).unwrap();
        let refused = ContigError::Isolate(IsolateError::Isolated(Pfn(512)));
        assert_eq!(y.alloc_contig(frames(500..600), Unmovable, GFP), Err(refused));
        let v = normal(y);
        assert_eq!((v.label(0), v.label(512), v.zone.isolated_blocks), (Unmovable, Unmovable, 0));
    });
}

#[test]
fn s4_12_cached_pages_are_drained() {
    let s = State::new(512).free(256, 8).free(0, 7).cached(0, 0, &[128]).used(129..256, true);
    s.limits(31, 100, 100).run(|y: &Y<'_>| {
        y.alloc_contig(frames(128..129), Movable, GFP).unwrap();
        assert_eq!(normal(y).allocated[&128], (0, false));
    });
}

#[test]
fn s4_12_one_block_or_an_error() {
    State::new(4096).free(0, 10).free(1024, 10).free(2048, 10).free(3072, 10).run(|y: &Y<'_>| {
        let comp = GFP | Gfp::COMP;
        y.alloc_contig(frames(512..1024), Movable, comp).unwrap();
        assert_eq!(normal(y).allocated[&512], (9, false));
        y.free(Pfn(512), o(9)).unwrap();
        for r in [0..500, 256..768, 0..2048, 0..256] {
            let refused = y.alloc_contig(frames(r.clone()), Movable, comp);
            assert_eq!(refused, Err(ContigError::NotABlock), "{r:?}");
        }
        assert_eq!(ContigError::NotABlock.errno(), -22);
        let v = normal(y);
        assert!(v.allocated.is_empty());
        assert_eq!(v.zone.isolated_blocks, 0);
    });
}

#[test]
fn s4_12_freed_ranges_are_checked_first() {
    State::new(512).free(0, 9).run(|y: &Y<'_>| {
        y.alloc_contig(frames(0..8), Movable, GFP).unwrap();
        y.free(Pfn(5), o(0)).unwrap();
        let error = BatchError { index: 5, error: FreeError::DoubleFree };
        assert_eq!(y.free_contig(frames(0..8)), Err(error));
        assert_eq!(normal(y).allocated.len(), 7, "nothing was freed");
        y.free_contig(frames(0..5)).unwrap();
        y.free_contig(frames(6..8)).unwrap();
    });
}

#[test]
fn s4_12_invalid_ranges_are_rejected() {
    let m = Machine::new().zone(ZoneKind::Dma, 0..1024).zone(ZoneKind::Normal, 1024..4096);
    m.run(|y: &Y<'_>| {
        let refused = |r| y.alloc_contig(frames(r), Movable, GFP).unwrap_err();
        assert_eq!(refused(5..5), ContigError::Isolate(IsolateError::EmptyRange));
        let outside = ContigError::Isolate(IsolateError::OutsideZone(Pfn(1024)));
        assert_eq!(refused(1000..1100), outside);
        assert_eq!(outside.errno(), -22);
    });
}

/// An owner whose blocks have contents: one word a frame.
#[derive(Default)]
struct Owner {
    blocks: Mutex<HashMap<Pfn, (Order, u64)>>,
    memory: Mutex<Vec<u64>>,
    /// How many more times it answers that a block is busy.
    busy: AtomicU32,
    refuses: bool,
    asked: AtomicU32,
}

impl Owner {
    fn with(pages: usize) -> Owner {
        Owner { memory: Mutex::new(vec![0; pages]), ..Owner::default() }
    }

    fn take(
        &self,
        y: &Yard<'_, Hooked<Lock, AnyHooks<'_>, Chosen>>,
        order: u8,
        seed: u64,
    ) -> Option<Pfn> {
        let pfn = y.alloc(o(order), MOVABLE).ok()?;
        y.set_movable(pfn, o(order), true).unwrap();
        self.own(pfn, o(order), seed);
        Some(pfn)
    }

    fn own(&self, pfn: Pfn, order: Order, seed: u64) {
        let mut memory = self.memory.lock().unwrap();
        for i in 0..u64::from(order.pages()) {
            memory[(pfn.0 + i) as usize] = seed + i;
        }
        self.blocks.lock().unwrap().insert(pfn, (order, seed));
    }

    /// Asserts that every block has its contents, wherever it is now.
    fn check(&self) {
        let memory = self.memory.lock().unwrap();
        for (pfn, &(order, seed)) in self.blocks.lock().unwrap().iter() {
            for i in 0..u64::from(order.pages()) {
                assert_eq!(memory[(pfn.0 + i) as usize], seed + i, "frame {i} of {pfn}");
            }
        }
    }

    fn owned(&self) -> Owned {
        self.blocks.lock().unwrap().iter().map(|(&p, &(o, _))| (p, o)).collect()
    }
}

impl Platform for Owner {}

impl Reclaim for Owner {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.asked.fetch_add(1, Relaxed);
        if self.refuses {
            return Relocation::Refused;
        }
        if self.busy.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok() {
            return Relocation::Busy;
        }
        let mut blocks = self.blocks.lock().unwrap();
        match blocks.get(&from) {
            Some(&(o, seed)) if o == order => {
                let mut memory = self.memory.lock().unwrap();
                for i in 0..u64::from(order.pages()) {
                    memory[(to.0 + i) as usize] = memory[(from.0 + i) as usize];
                    memory[(from.0 + i) as usize] = u64::MAX;
                }
                blocks.remove(&from);
                blocks.insert(to, (order, seed));
                Relocation::Moved
            }
            _ => Relocation::Refused,
        }
    }
}

impl Observer for Owner {}
impl Defences for Owner {}

fn with_owner<'o>(
    owner: &'o Owner,
    machine: &Machine,
    f: impl FnOnce(&Yard<'_, Hooked<Lock, AnyHooks<'o>, Chosen>>),
) {
    machine.run_on_under(any_hooks(owner), LINUX612, |y| f(y));
}

#[test]
fn s4_12_used_blocks_are_migrated_with_their_contents() {
    let (machine, owner) = (Machine::normal(8192), Owner::with(8192));
    with_owner(&owner, &machine, |y| {
        let orders = [0, 3, 1, 9, 0, 10, 2, 4];
        let mut taken = 0;
        for i in 0.. {
            let order = orders[i % orders.len()];
            if taken + (1 << order) > 4000 {
                break;
            }
            taken += 1u64 << order;
            owner.take(y, order, i as u64 * 10_000).unwrap();
        }
        // Both ends of the range lie inside blocks in use.
        let largest: Vec<u64> =
            owner.owned().iter().filter(|b| b.1.get() == 10).map(|b| b.0.0).collect();
        let range = largest[0] + 700..largest[0] + 1500;
        y.alloc_contig(frames(range.clone()), Movable, GFP).unwrap();
        owner.check();
        assert!(owner.asked.load(Relaxed) > 0);
        let mut owned = owner.owned();
        assert!(
            owned
                .iter()
                .all(|(p, o)| { p.0 >= range.end || p.0 + u64::from(o.pages()) <= range.start })
        );
        let v = normal(y);
        for (&p, &order) in &owned {
            assert_eq!(v.allocated[&p.0], (order.get(), true), "still movable where it is now");
        }
        owned.extend(range.clone().map(|p| (Pfn(p), Order::ZERO)));
        check(y, &machine, &owned);
        y.free_contig(frames(range)).unwrap();
        check(y, &machine, &owner.owned());
    });
}

/// Requests the first `pages` frames of a pageblock in which `owner` holds single pages.
fn request(owner: &Owner, owned: usize, pages: u64) -> Result<(), ContigError> {
    let machine = Machine::normal(4096);
    let mut answer = Ok(());
    with_owner(owner, &machine, |y| {
        y.set_min_free_kbytes(0).unwrap();
        let taken = (0..owned).map_while(|i| owner.take(y, 0, i as u64 * 10));
        let first = taken.min().unwrap();
        let range = (first.0 & !511)..(first.0 & !511) + pages;
        answer = y.alloc_contig(frames(range.clone()), Movable, GFP);
        owner.check();
        let mut owned = owner.owned();
        if answer.is_ok() {
            owned.extend(range.map(|p| (Pfn(p), Order::ZERO)));
        }
        check(y, &machine, &owned);
        assert_eq!(normal(y).zone.isolated_blocks, 0);
    });
    answer
}

#[test]
fn s4_12_a_busy_block_is_tried_five_times() {
    // The first 32 pages are one batch; after five busy rounds the request fails.
    let owner = Owner { busy: AtomicU32::new(4 * 32), ..Owner::with(4096) };
    assert_eq!(request(&owner, 100, 64), Ok(()));
    let owner = Owner { busy: AtomicU32::new(5 * 32), ..Owner::with(4096) };
    assert!(matches!(request(&owner, 100, 64), Err(ContigError::Busy(_))));
    assert_eq!(owner.asked.load(Relaxed), 5 * 32, "no further block was tried");
}

#[test]
fn s4_12_an_owner_may_refuse() {
    let owner = Owner { refuses: true, ..Owner::with(4096) };
    assert!(matches!(request(&owner, 100, 64), Err(ContigError::Busy(_))));
    assert_eq!(owner.asked.load(Relaxed), 1);
}

#[test]
fn s4_12_migration_without_targets_fails() {
    let owner = Owner::with(4096);
    assert_eq!(request(&owner, 4096, 512), Err(ContigError::NoMemory));
    assert_eq!(ContigError::NoMemory.errno(), -12);
}

#[test]
fn contig_pages_finds_a_range_that_can_be_vacated() {
    let (machine, owner) = (Machine::normal(8192), Owner::with(8192));
    with_owner(&owner, &machine, |y| {
        // An unmovable page in the first pageblock, movable ones spread over the others.
        y.alloc_at(Pfn(511), Order::ZERO, GFP).unwrap();
        for p in (1000..6000).step_by(100) {
            y.alloc_at(Pfn(p), Order::ZERO, MOVABLE).unwrap();
            y.set_movable(Pfn(p), Order::ZERO, true).unwrap();
            owner.own(Pfn(p), Order::ZERO, p * 10);
        }
        let all = || Pfn(0)..Pfn(8192);
        assert_eq!(y.alloc_contig_pages(1000, 1, all(), Movable, GFP), Ok(Pfn(512)));
        owner.check();
        let aligned = y.alloc_contig_pages(700, 2048, all(), Movable, GFP);
        assert_eq!(aligned, Ok(Pfn(2048)));
        let within = Pfn(3000)..Pfn(3600);
        let beside = y.alloc_contig_pages(3, 1, within.clone(), Movable, GFP);
        assert_eq!(beside, Ok(Pfn(3072)), "skips the pageblock with immovable frames");
        let wide = y.alloc_contig_pages(601, 1, within, Movable, GFP);
        assert_eq!(wide, Err(ContigError::NoPlace));
        // One block begins at a multiple of its size.
        let block = y.alloc_contig_pages(1024, 1, frames(512..8192), Movable, GFP | Gfp::COMP);
        assert_eq!(block, Ok(Pfn(4096)));
        let odd = y.alloc_contig_pages(3, 1, all(), Movable, GFP | Gfp::COMP);
        assert_eq!(odd, Err(ContigError::NotABlock));
        let bad = y.alloc_contig_pages(1, 3, all(), Movable, GFP);
        assert_eq!(bad, Err(ContigError::BadAlign(3)));
        let none = y.alloc_contig_pages(0, 1, all(), Movable, GFP);
        assert_eq!(none, Err(ContigError::Isolate(IsolateError::EmptyRange)));
        let bad = y.alloc_contig_pages(1, 1, all(), Isolate, GFP);
        assert_eq!(bad, Err(ContigError::Isolate(IsolateError::BadType(Isolate))));
        assert_eq!(y.alloc_with(o(0), GFP, Place::default()).map(|_| ()), Ok(()));
        owner.check();
    });
}

/// A block that its owner does not move ends the attempt at one place, not the search.
#[test]
fn contig_pages_goes_on_after_a_place_that_stays_busy() {
    Machine::normal(2048).run(|y: &Y<'_>| {
        y.alloc_at(Pfn(5), Order::ZERO, MOVABLE).unwrap();
        y.set_movable(Pfn(5), Order::ZERO, true).unwrap();
        assert!(matches!(y.alloc_contig(frames(0..512), Movable, GFP), Err(ContigError::Busy(_))));
        assert_eq!(y.alloc_contig_pages(512, 1, frames(0..2048), Movable, GFP), Ok(Pfn(512)));
    });
}

#[test]
fn s9_5_every_block_of_a_range_is_reported() {
    use pageyard::Event;
    Machine::normal(4096).run(|y: &Y<'_>| {
        let told = |range, gfp| {
            y.hooks().watch();
            y.alloc_contig(frames(range), Reclaimable, gfp).unwrap();
            let events = y.hooks().events();
            let allocs = events.into_iter().filter(|e| matches!(e, Event::Alloc { .. }));
            (allocs.collect::<Vec<_>>(), y.hooks().prepared())
        };
        let event = |pfn, order, gfp| Event::Alloc {
            pfn: Some(pfn),
            order: o(order),
            migrate_type: Reclaimable,
            gfp,
        };
        let pages = [700, 701, 702].map(Pfn);
        let single = pages.map(|p| event(p, 0, GFP)).to_vec();
        assert_eq!(told(700..703, GFP), (single, pages.to_vec()));
        let comp = GFP | Gfp::COMP;
        let one = vec![event(Pfn(2048), 9, comp)];
        assert_eq!(told(2048..2560, comp), (one, vec![Pfn(2048)]));
    });
}
