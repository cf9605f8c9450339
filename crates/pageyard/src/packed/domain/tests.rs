//! Depots: what they take, give and return.

extern crate std;
use core::ops::Range;
use std::vec::Vec;

use super::*;

#[test]
fn one_member_of_any_number_begins_each_interval() {
    for members in [2, 8, 31, 32, 33, 64, 100, 128] {
        let upkeep = Upkeep::new();
        // At last the one that began stops ticking, and another one begins.
        for first in [0, 0, 0, 1, 1] {
            let ticks = (first..members).filter(|&m| upkeep.begins_interval(m, members));
            assert_eq!(ticks.count(), 1, "{members} members from {first}");
        }
    }
}

#[test]
fn each_contended_visit_doubles_how_many_are_left_out() {
    let mut backoff = Backoff::NONE;
    let left_out = |b: &mut Backoff| (0..).take_while(|_| !b.goes()).count();
    assert_eq!(left_out(&mut backoff), 0);
    for want in [8, 16, 32] {
        assert_eq!(backoff.note::<u8>(Err(Contended)), None);
        assert_eq!(left_out(&mut backoff), want);
    }
    // One that is not contended halves it.
    assert_eq!(backoff.note(Ok(7)), Some(7));
    for want in [32, 64, 128, 256, 512, 1024, 1024] {
        assert_eq!(backoff.note::<u8>(Err(Contended)), None);
        assert_eq!(left_out(&mut backoff), want);
    }
}

/// The memory of depots.
struct Memory {
    domains: Vec<Domain>,
    links: Vec<Link>,
}

impl Memory {
    /// Memory for some cache domains, and the node.
    fn new(domains: usize) -> Self {
        Memory {
            domains: (0..=domains).map(|_| Domain::new()).collect(),
            links: (0..10_000).map(|_| Link::new()).collect(),
        }
    }

    fn depots(&self, cpus_per_domain: u32, budget: u32) -> Depots<'_> {
        let cpus_per_domain = NonZeroU32::new(cpus_per_domain).unwrap();
        Depots::new(&self.domains, &self.links, cpus_per_domain, budget)
    }
}

const PLENTY: u32 = 1 << 30;

/// Exchanges full magazines of a CPU of the first domain for empty ones.
fn put(depots: &Depots<'_>, class: usize, full: Range<u32>) {
    for full in full {
        depots.add_spare(5000 + full);
        let empty = depots.empty_for_full(0, class, full, &mut Backoff::default());
        assert_eq!(empty, Some(5000 + full));
    }
}

fn held(depots: &Depots<'_>) -> i32 {
    depots.held.load(Relaxed)
}

#[test]
fn a_domain_keeps_512_pages_of_a_class_and_at_least_two_magazines() {
    let limits: Vec<u32> = (0..CLASSES).map(near_limit).collect();
    assert_eq!(limits, [8, 8, 8, 4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn the_node_takes_what_the_domain_cannot_and_counts_it() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    put(&depots, 0, 0..8);
    assert_eq!((held(&depots), depots.pages()), (0, 8 * 64));
    put(&depots, 0, 8..11);
    assert_eq!((held(&depots), depots.pages()), (3 * 64, 11 * 64));
    // The domain serves first.
    let mut backoff = Backoff::default();
    for full in [7, 6, 5, 4, 3, 2, 1, 0, 10, 9] {
        assert_eq!(depots.full_for_empty(0, 0, 6000 + full, &mut backoff), Some(full));
    }
    assert_eq!((held(&depots), depots.pages()), (64, 64));
}

#[test]
fn a_magazine_that_the_node_refuses_stays_and_is_not_counted() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    put(&depots, 0, 0..8 + MOST);
    let pages = (8 + MOST) * 64;
    assert_eq!(depots.pages(), pages.into());
    depots.add_spare(9000);
    // A stack counts no more magazines, whatever the budget is.
    assert_eq!(depots.empty_for_full(0, 0, 4999, &mut Backoff::default()), None);
    assert_eq!((held(&depots) as u32, depots.pages()), (MOST * 64, pages.into()));
    let near = &memory.domains[0];
    assert_eq!(near.empty.pop(&memory.links), Some(9000), "the empty one is kept nearby");
}

#[test]
fn a_cpu_that_backs_off_leaves_the_node_alone() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    let mut backoff = Backoff { left: 2, last: 8 };
    // The domain has room, but only the node has empty magazines.
    depots.add_spare(50);
    for want in [None, None, Some(50)] {
        assert_eq!(depots.empty_for_full(0, 0, 1, &mut backoff), want);
    }
    // The domain has an empty magazine, but only the node has room.
    put(&depots, 0, 2..9);
    depots.add_empty(&memory.domains[0], 60);
    backoff.left = 2;
    for want in [None, None, Some(60)] {
        assert_eq!(depots.empty_for_full(0, 0, 9, &mut backoff), want);
    }
}

#[test]
fn trim_returns_a_part_of_the_surplus_or_all() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    put(&depots, 0, 0..8 + 40);
    let trim = |surplus| {
        let mut spilled = [0; CLASSES];
        depots.trim(surplus, |_, class| spilled[class] += 1);
        (spilled[0], spilled.iter().sum::<u32>())
    };
    assert_eq!(trim(true), (0, 0), "the first interval begins");
    // One in 32 of each depot, rounded up.
    assert_eq!(trim(true), (1 + 2, 3));
    assert_eq!((held(&depots), depots.returned()), (38 * 64, 3 * 64));
    assert_eq!(trim(false), (7 + 38, 45));
    assert_eq!((held(&depots), depots.pages(), depots.returned()), (0, 0, 48 * 64));
}

#[test]
fn a_tick_returns_a_few_magazines_of_its_domain_before_those_of_the_node() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    put(&depots, 0, 0..8 + 40);
    put(&depots, 1, 100..108);
    put(&depots, 2, 200..208);
    let tick = |mut most: u32| {
        let mut spilled = Vec::new();
        let ticked = depots.tick(0, &mut most, |_, class| spilled.push(class));
        assert!(ticked.leads && ticked.keeps);
        (spilled, most, held(&depots) / 64)
    };
    let due = || depots.node().unwrap().upkeep.due.load(Relaxed);
    assert_eq!(tick(2), ([].into(), 2, 40));
    assert_eq!(tick(2), ([0, 1].into(), 0, 40));
    assert_eq!(due(), 0b1, "only the first class has any at the node");
    assert_eq!(tick(4), ([0, 1, 2, 0].into(), 0, 39));
    assert_eq!(tick(9), ([0, 1, 2, 0, 0].into(), 4, 37));
    assert_eq!(due(), 0);
}

#[test]
fn one_cpu_of_each_domain_trims_its_depot_in_an_interval() {
    for cpus_per_domain in [1, 3, 8, 40] {
        let memory = Memory::new(12);
        let depots = memory.depots(cpus_per_domain, PLENTY);
        put(&depots, 0, 0..9);
        assert_eq!(held(&depots), 64);
        for interval in 0..3 {
            let mut keeps = [0; 12];
            let mut leads = 0;
            for cpu in (0..12 * cpus_per_domain).rev() {
                let ticked = depots.tick(cpu, &mut 0, |_, _| unreachable!("none may go"));
                keeps[(cpu / cpus_per_domain) as usize] += u32::from(ticked.keeps);
                leads += u32::from(ticked.leads);
            }
            assert_eq!((keeps, leads), ([1; 12], 1), "{cpus_per_domain} CPUs, {interval}");
        }
    }
}

#[test]
fn a_tick_keeps_on_while_a_depot_has_pages() {
    let memory = Memory::new(1);
    let depots = memory.depots(1, PLENTY);
    let keeps = || depots.tick(0, &mut 0, |_, _| ()).keeps;
    assert!(!keeps());
    put(&depots, 0, 0..8);
    assert!(keeps(), "its domain's");
    put(&depots, 0, 8..9);
    (0..8).for_each(|_| assert!(memory.domains[0].full[0].pop(&memory.links).is_some()));
    assert!(keeps(), "the node's");
}

#[test]
fn a_domain_counts_free_pages_up_to_a_limit() {
    let memory = Memory::new(2);
    let depots = memory.depots(1, 0);
    let added = [(5, 0), (5, 0), (1, 11), (-10, 0), (-1, -11), (7, 0)];
    for (pages, taken_over) in added {
        assert_eq!(depots.add_part(0, pages, 10), taken_over, "{pages}");
    }
    assert_eq!(depots.add_part(1, 3, 10), 0);
    assert_eq!((depots.parts(), depots.take_part(0), depots.parts()), (10, 7, 3));
    depots.forget_parts();
    assert_eq!((depots.parts(), depots.take_part(1)), (0, 0));
}
