//! Page checks, poisoning of free memory, zeroing, unmapping (spec §11.1, §11.2, §11.4–11.6).

use crate::common;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::any::On;
use common::check::{Owned, check};
use common::{Chosen, LINUX612, Lock, Machine, all_records, frames, o};
use pageyard::poison::{self, Corruption, POISON_BYTE};
use pageyard::policy::*;
use pageyard::{
    AllocError, BadPage, CmaArea, ContigError, Defences, Event, FreeError, Gfp, Link, MigrateType,
    Observer, Order, PAGE_SIZE, PageFlags, PageState, Pfn, Place, PlaceError, Platform, Reclaim,
    Report, ZoneKind,
};

const PAGES: u64 = 4096;
const PAGE: usize = PAGE_SIZE as usize;

/// An embedder with memory and the state of every page.
struct Host {
    memory: Mutex<Vec<u8>>,
    states: Mutex<BTreeMap<u64, PageState>>,
    /// Unmapped frames; touching one is a bug of the allocator.
    unmapped: Mutex<Vec<bool>>,
    reports: Mutex<Vec<Report>>,
    frees: Mutex<Vec<Pfn>>,
    clock: AtomicU64,
    /// What the hooks were called with.
    zeroed: AtomicU64,
    prepared: Mutex<Vec<Gfp>>,
}

impl Host {
    fn new() -> Self {
        Host {
            // Old contents of all memory.
            memory: Mutex::new(vec![0x5b; PAGES as usize * PAGE]),
            states: Mutex::default(),
            unmapped: Mutex::new(vec![false; PAGES as usize]),
            reports: Mutex::default(),
            frees: Mutex::default(),
            clock: AtomicU64::new(1),
            zeroed: AtomicU64::new(0),
            prepared: Mutex::default(),
        }
    }

    fn bytes<T>(&self, pfn: Pfn, order: Order, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let pages = pfn.0 as usize..pfn.0 as usize + order.pages() as usize;
        assert!(!self.unmapped.lock().unwrap()[pages.clone()].contains(&true), "{pfn} is unmapped");
        f(&mut self.memory.lock().unwrap()[pages.start * PAGE..pages.end * PAGE])
    }

    fn set(&self, pfn: Pfn, change: impl FnOnce(&mut PageState)) {
        change(self.states.lock().unwrap().entry(pfn.0).or_insert(PageState::UNUSED));
    }

    fn forget(&self, pfn: Pfn) {
        self.states.lock().unwrap().remove(&pfn.0);
    }

    fn reports(&self) -> Vec<Report> {
        std::mem::take(&mut self.reports.lock().unwrap())
    }

    fn all_are(&self, pfn: Pfn, order: Order, byte: u8) -> bool {
        self.bytes(pfn, order, |b| b.iter().all(|&x| x == byte))
    }
}

impl Platform for Host {
    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }

    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        self.prepared.lock().unwrap().push(gfp);
        if gfp.contains(Gfp::ZERO) {
            self.zeroed.fetch_add(order.pages().into(), Relaxed);
            self.bytes(pfn, order, |b| b.fill(0));
        }
    }
}

impl Reclaim for Host {}

impl Observer for Host {
    fn event(&self, _: pageyard::CpuId, event: Event) {
        if let Event::Free { pfn, .. } = event {
            self.frees.lock().unwrap().push(pfn);
        }
    }

    fn report(&self, report: Report) {
        self.reports.lock().unwrap().push(report);
    }
}

impl Defences for Host {
    fn page_state(&self, pfn: Pfn) -> PageState {
        self.states.lock().unwrap().get(&pfn.0).copied().unwrap_or(PageState::UNUSED)
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        self.bytes(pfn, order, poison::fill);
    }

    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        self.bytes(pfn, order, |b| poison::inspect(b))
    }

    fn unmap(&self, pfn: Pfn, order: Order) {
        for p in pfn.0..pfn.0 + u64::from(order.pages()) {
            let was = std::mem::replace(&mut self.unmapped.lock().unwrap()[p as usize], true);
            assert!(!was, "{p:#x} is unmapped already");
        }
    }

    fn map(&self, pfn: Pfn, order: Order) {
        for p in pfn.0..pfn.0 + u64::from(order.pages()) {
            let was = std::mem::replace(&mut self.unmapped.lock().unwrap()[p as usize], false);
            assert!(was, "{p:#x} was mapped");
        }
    }
}

type Y<'y> = On<'y, Host>;

fn run(rules: Chosen, f: impl for<'y> FnOnce(&Y<'y>)) {
    Machine::normal(PAGES).run_with(Host::new(), rules, f);
}

const N: ZoneKind = ZoneKind::Normal;

/// Every kind of bad page, and whether it is found when freed or when allocated.
#[test]
fn s11_1_each_kind_of_bad_page_is_found() {
    let with = |change: fn(&mut PageState)| {
        let mut s = PageState::UNUSED;
        change(&mut s);
        (s.wrong_at_free(), s.wrong_at_alloc())
    };
    let both = |why| (Some(why), Some(why));
    assert_eq!(with(|_| {}), (None, None));
    assert_eq!(with(|s| s.mapcount = 0), both(BadPage::MapCount(0)));
    assert_eq!(with(|s| s.mapcount = -2), both(BadPage::MapCount(-2)));
    assert_eq!(with(|s| s.mapping = true), both(BadPage::Mapping));
    assert_eq!(with(|s| s.refcount = 1), both(BadPage::RefCount(1)));
    assert_eq!(with(|s| s.charged = true), both(BadPage::Charged));
    for bit in 0..32 {
        let mut s = PageState::UNUSED;
        s.flags = PageFlags::from_bits_retain(1 << bit);
        // lru, locked, private, private_2, writeback, reserved, active, unevictable, mlocked.
        let at_free = (bit < 9).then_some(BadPage::Flags(s.flags));
        assert_eq!(s.wrong_at_free(), at_free, "bit {bit}");
        let at_alloc = if s.flags == PageFlags::HWPOISON {
            BadPage::HwPoison
        } else {
            BadPage::Flags(s.flags)
        };
        assert_eq!(s.wrong_at_alloc(), Some(at_alloc), "bit {bit}");
    }
    assert_eq!(with(|s| s.link = Link::Head), (None, Some(BadPage::TailLink)));

    let tail = PageState { link: Link::Tail(Pfn(8)), ..PageState::UNUSED };
    assert_eq!(tail.wrong_in_compound(Pfn(8)), None);
    assert_eq!(tail.wrong_in_compound(Pfn(16)), Some(BadPage::TailLink));
    let unmarked = PageState { mapping: true, ..tail };
    assert_eq!(unmarked.wrong_in_compound(Pfn(8)), Some(BadPage::TailMapping));
    let held = PageState { refcount: 3, ..tail };
    assert_eq!(held.wrong_in_compound(Pfn(8)), Some(BadPage::RefCount(3)));
}

#[test]
fn s11_1_pages_are_checked_only_if_the_policy_enables_it() {
    fn frees_a_locked_page(rules: Chosen) -> bool {
        let mut taken = false;
        run(rules, |y| {
            let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
            y.hooks().set(p, |s| s.flags = PageFlags::LOCKED);
            y.free(p, Order::ZERO).unwrap();
            taken = y.out_of_use(N).unwrap().bad == 0;
        });
        taken
    }
    assert!(frees_a_locked_page(LINUX612), "off by default");
    assert!(frees_a_locked_page(&<Guarded<2>>::RULES));
    assert!(!frees_a_locked_page(&<PageChecked>::RULES));
    assert!(!frees_a_locked_page(&<Poisoned>::RULES), "poisoning turns the checks on");
    assert!(!frees_a_locked_page(&<InitOnAlloc>::RULES));
    assert!(!frees_a_locked_page(&<InitOnFree>::RULES));
    assert!(!frees_a_locked_page(&<Unmapped>::RULES));
}

/// For every way to free a block.
#[test]
fn s11_2_a_page_that_is_bad_when_freed_is_leaked() {
    type Way = fn(&Y<'_>, Pfn, Order);
    let ways: [Way; 3] = [
        |y, p, o| y.free(p, o).unwrap(),
        |y, p, o| y.free_direct(p, o).unwrap(),
        |y, p, o| y.free_batch(&[(p, o)]).unwrap(),
    ];
    for way in ways {
        for order in [0, 2, 3, 5, 9, 10].map(o) {
            run(&<PageChecked>::RULES, |y| {
                let gfp = Gfp::KERNEL;
                let free = y.zone_info(N).unwrap().managed;
                let block = y.alloc(order, gfp).unwrap();
                let last = Pfn(block.0 + u64::from(order.pages()) - 1);
                y.hooks().set(last, |s| s.refcount = 1);
                way(y, block, order);
                let why = BadPage::RefCount(1);
                let report = Report::BadPage { pfn: last, block, order, why, at_alloc: false };
                assert_eq!(y.hooks().reports(), [report]);
                assert_eq!(*y.hooks().frees.lock().unwrap(), [block], "the free was reported");
                let pages = u64::from(order.pages());
                assert_eq!(y.out_of_use(N).unwrap().bad, pages);
                assert_eq!(y.zone_info(N).unwrap().managed, free, "managed is unchanged");
                // It stays out of use, even after the page is good again.
                y.hooks().forget(last);
                assert_eq!(y.free(block, order), Err(FreeError::OutOfUse));
                if order > Order::ZERO {
                    assert_eq!(y.free(last, Order::ZERO), Err(FreeError::OutOfUse));
                }
                y.drain_all(None);
                check(y, &Machine::normal(PAGES), &Owned::new());
                let mut got = 0;
                while let Ok(p) = y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MEMALLOC) {
                    assert!(p < block || p > last, "{p} is out of use");
                    got += 1;
                }
                assert_eq!(got, PAGES - pages);
            });
        }
    }
}

#[test]
fn s11_1_tails_of_a_compound_block_are_checked_for_their_link() {
    run(&<PageChecked>::RULES, |y| {
        let order = o(2);
        let compound = |damage: Option<fn(&mut PageState)>| {
            let head = y.alloc(order, Gfp::KERNEL | Gfp::COMP).unwrap();
            y.hooks().set(head, |s| s.link = Link::Head);
            for i in 1..4 {
                y.hooks().set(Pfn(head.0 + i), |s| s.link = Link::Tail(head));
            }
            if let Some(damage) = damage {
                y.hooks().set(Pfn(head.0 + 2), damage);
            }
            y.free(head, order).unwrap();
            y.hooks().states.lock().unwrap().clear();
            y.hooks().reports().into_iter().find_map(|r| match r {
                Report::BadPage { why, .. } => Some(why),
                _ => None,
            })
        };
        assert_eq!(compound(None), None);
        assert_eq!(compound(Some(|s| s.link = Link::Single)), Some(BadPage::TailLink));
        assert_eq!(compound(Some(|s| s.mapping = true)), Some(BadPage::TailMapping));
    });
}

#[test]
fn s5_7_s11_2_allocation_skips_a_bad_page() {
    for order in [0, 3, 4, 9].map(o) {
        run(&<PageChecked>::RULES, |y| {
            // The next two blocks are known from a first allocation.
            let next: Vec<Pfn> = (0..3).map(|_| y.alloc(order, Gfp::KERNEL).unwrap()).collect();
            next.iter().rev().for_each(|&p| y.free(p, order).unwrap());
            y.hooks().set(next[0], |s| s.mapping = true);
            // A faulty page is no caller's mistake, so it is not reported.
            y.hooks().set(next[1], |s| s.flags = PageFlags::HWPOISON);
            let got = y.alloc(order, Gfp::KERNEL).unwrap();
            assert!(!next[..2].contains(&got), "a good block");
            let why = BadPage::Mapping;
            let report =
                Report::BadPage { pfn: next[0], block: next[0], order, why, at_alloc: true };
            assert_eq!(y.hooks().reports(), [report]);
            assert_eq!(y.out_of_use(N).unwrap().bad, 2 * u64::from(order.pages()));
            check(y, &Machine::normal(PAGES), &Owned::from([(got, order)]));
        });
    }
}

#[test]
fn s11_2_a_request_fails_if_every_page_is_bad() {
    run(&<PageChecked>::RULES, |y| {
        for p in 0..PAGES {
            y.hooks().set(Pfn(p), |s| s.refcount = 7);
        }
        assert_eq!(y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MEMALLOC), Err(AllocError::NoMemory));
        assert_eq!(y.out_of_use(N).unwrap().bad, PAGES);
        assert_eq!(y.zone_info(N).unwrap().free_exact, 0);
        assert_eq!(y.hooks().reports().len(), 60, "sixty reports a minute");
    });
}

#[test]
fn s11_2_bad_pages_are_reported_sixty_times_a_minute() {
    run(&<PageChecked>::RULES, |y| {
        let bad = |n: usize| {
            for _ in 0..n {
                let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                y.hooks().set(p, |s| s.charged = true);
                y.free(p, Order::ZERO).unwrap();
            }
            y.hooks().reports()
        };
        assert_eq!(bad(60).len(), 60);
        assert_eq!(bad(25).len(), 0);
        y.hooks().clock.fetch_add(59_999_999_999, Relaxed);
        assert_eq!(bad(1).len(), 0, "the minute is not over");
        y.hooks().clock.fetch_add(1, Relaxed);
        let next = bad(61);
        assert_eq!(next[0], Report::BadPagesSuppressed(26));
        assert_eq!(next.len(), 61, "the suppressed count, and sixty more");
        assert_eq!(y.out_of_use(N).unwrap().bad, 60 + 25 + 1 + 61);
    });
}

/// Flips each bit of a page, one at a time.
#[test]
fn s11_4_single_bit_errors_are_distinguished() {
    let mut page = vec![0; PAGE];
    poison::fill(&mut page);
    assert_eq!(poison::inspect(&page), None);
    for byte in 0..PAGE {
        for bit in 0..8 {
            page[byte] ^= 1 << bit;
            let single = Corruption { first: byte, last: byte, single_bit: true };
            assert_eq!(poison::inspect(&page), Some(single), "byte {byte}, bit {bit}");
            page[byte] = POISON_BYTE;
        }
    }
    // Two bits of one byte, one bit of each of two bytes.
    page[7] ^= 0b11;
    assert_eq!(poison::inspect(&page), Some(Corruption { first: 7, last: 7, single_bit: false }));
    page[7] = POISON_BYTE ^ 1;
    page[4095] ^= 1;
    let far = Corruption { first: 7, last: 4095, single_bit: false };
    assert_eq!(poison::inspect(&page), Some(far));
    assert_eq!(poison::inspect(&[]), None);
}

#[test]
fn s11_4_free_memory_holds_the_pattern() {
    run(&<Poisoned>::RULES, |y| {
        assert!(y.hooks().all_are(Pfn(0), o(10), POISON_BYTE), "from the start");
        for order in [0, 3, 4, 10].map(o) {
            let p = y.alloc(order, Gfp::KERNEL).unwrap();
            assert!(y.hooks().all_are(p, order, POISON_BYTE));
            y.hooks().bytes(p, order, |b| b.fill(9));
            y.free(p, order).unwrap();
            assert!(y.hooks().all_are(p, order, POISON_BYTE));
        }
        assert_eq!(y.hooks().reports(), []);
        let p = y.alloc(o(1), Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert!(y.hooks().all_are(p, o(1), 0), "checked, then zeroed");
    });
}

#[test]
fn s11_4_pattern_damage_is_reported_and_the_block_allocated() {
    run(&<Poisoned>::RULES, |y| {
        let p = y.alloc(o(1), Gfp::KERNEL).unwrap();
        y.free(p, o(1)).unwrap();
        y.hooks().bytes(p, o(1), |b| b[5000] ^= 0x10);
        assert_eq!(y.alloc(o(1), Gfp::KERNEL), Ok(p));
        let corruption = Corruption { first: 5000, last: 5000, single_bit: true };
        let report = Report::Poison { block: p, order: o(1), corruption };
        assert_eq!(y.hooks().reports(), [report]);
        assert_eq!(y.out_of_use(N).unwrap().pages(), 0);

        // At most ten in five seconds.
        let damage = |n: usize| {
            for _ in 0..n {
                let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                y.free(p, Order::ZERO).unwrap();
                y.hooks().bytes(p, Order::ZERO, |b| b[0] = 0);
            }
            y.hooks().reports()
        };
        assert_eq!(damage(30).len(), 9);
        y.hooks().clock.fetch_add(5_000_000_000, Relaxed);
        assert_eq!(damage(1)[0], Report::PoisonSuppressed(20));
    });
}

#[test]
fn s11_5_init_on_alloc_zeroes_always() {
    run(&<InitOnAlloc>::RULES, |y| {
        for gfp in [Gfp::KERNEL, Gfp::KERNEL | Gfp::ZERO] {
            let p = y.alloc(o(2), gfp).unwrap();
            assert!(y.hooks().all_are(p, o(2), 0));
            y.hooks().bytes(p, o(2), |b| b.fill(9));
            y.free(p, o(2)).unwrap();
            assert!(y.hooks().all_are(p, o(2), 9), "not zeroed when freed");
        }
        let mut slots = [None; 4];
        y.alloc_bulk(Gfp::KERNEL, &mut slots).unwrap();
        assert!(slots.iter().all(|s| y.hooks().all_are(s.unwrap(), Order::ZERO, 0)));
    });
}

#[test]
fn s11_5_init_on_free_zeroes_at_free_and_never_again() {
    run(&<InitOnFree>::RULES, |y| {
        assert!(y.hooks().all_are(Pfn(0), o(10), 0), "initial memory is zeroed too");
        let start = y.hooks().zeroed.load(Relaxed);
        assert_eq!(start, PAGES);
        y.hooks().prepared.lock().unwrap().clear();
        let p = y.alloc(o(2), Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert!(y.hooks().all_are(p, o(2), 0));
        assert_eq!(
            *y.hooks().prepared.lock().unwrap(),
            [Gfp::KERNEL],
            "the memory is zero already, so ZERO is cleared"
        );
        assert_eq!(y.hooks().zeroed.load(Relaxed), start);
        y.hooks().bytes(p, o(2), |b| b.fill(9));
        y.free(p, o(2)).unwrap();
        assert!(y.hooks().all_are(p, o(2), 0));
        assert_eq!(y.hooks().zeroed.load(Relaxed), start + 4);
    });
}

#[test]
fn s11_4_s11_5_poisoning_overrides_init_on_alloc_and_free() {
    run(&<Poisoned<InitOnAlloc<InitOnFree>>>::RULES, |y| {
        assert!(y.hooks().all_are(Pfn(0), o(10), POISON_BYTE));
        let p = y.alloc(o(2), Gfp::KERNEL).unwrap();
        assert!(y.hooks().all_are(p, o(2), POISON_BYTE), "not zeroed");
        let q = y.alloc(o(2), Gfp::KERNEL | Gfp::ZERO).unwrap();
        assert!(y.hooks().all_are(q, o(2), 0), "zeroed because it was asked for");
        y.free(q, o(2)).unwrap();
        assert!(y.hooks().all_are(q, o(2), POISON_BYTE));
        assert_eq!(y.hooks().reports(), []);
    });
}

/// The host panics if it touches unmapped memory, or unmaps or maps it twice, so every step tests
/// the order of the hooks. Poison is written before unmapping and checked after mapping.
#[test]
fn s11_6_free_memory_is_unmapped() {
    run(&<Unmapped<Poisoned>>::RULES, |y| {
        let unmapped = || y.hooks().unmapped.lock().unwrap().iter().filter(|&&u| u).count();
        assert_eq!(unmapped() as u64, PAGES);
        let blocks: Vec<_> =
            [0, 1, 4, 9].map(|order| (y.alloc(o(order), Gfp::KERNEL).unwrap(), o(order))).into();
        assert_eq!(unmapped() as u64, PAGES - (1 + 2 + 16 + 512));
        y.free_batch(&blocks).unwrap();
        let shared = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.free_shared(shared, o(3)).unwrap();
        assert_eq!(unmapped() as u64, PAGES - 1);
        assert_eq!(y.alloc_bulk_each(100, Gfp::KERNEL, |_| {}).unwrap(), 100);
        assert_eq!(unmapped() as u64, PAGES - 101);
        assert_eq!(y.hooks().reports(), []);
    });
}

#[test]
fn s11_1_s11_2_placed_requests_skip_bad_pages() {
    run(&<PageChecked>::RULES, |y| {
        let bad = || y.out_of_use(N).unwrap().bad;
        let spoil = |p| y.hooks().set(p, |s| s.refcount = 7);
        spoil(Pfn(301));
        let at = || y.alloc_at(Pfn(300), o(1), Gfp::KERNEL);
        assert_eq!(at(), Err(PlaceError::InUse(Pfn(300))));
        assert_eq!((at(), bad()), (Err(PlaceError::InUse(Pfn(300))), 2), "permanently out of use");

        // The next suitable place is used instead.
        let place = Place { align: 1024, below: None };
        let first = y.alloc_with(o(1), Gfp::KERNEL, place).unwrap();
        y.free(first, o(1)).unwrap();
        y.drain_all(None);
        spoil(first);
        let next = y.alloc_with(o(1), Gfp::KERNEL, place).unwrap();
        assert_ne!(next, first);
        assert_eq!(bad(), 4);
        check(y, &Machine::normal(PAGES), &Owned::from([(next, o(1))]));
    });
}

#[test]
fn s11_1_s11_2_a_bad_page_fails_a_range() {
    run(&<PageChecked>::RULES, |y| {
        let bad = || y.out_of_use(N).unwrap().bad;
        for p in [2000, 2005, 2050, 3072] {
            y.hooks().set(Pfn(p), |s| s.refcount = 7);
        }
        let take = |r, gfp| y.alloc_contig(frames(r), MigrateType::Movable, gfp);
        assert_eq!(take(1990..2010, Gfp::KERNEL), Err(ContigError::Busy(Pfn(2000))));
        assert_eq!(bad(), 2, "only the bad pages");
        check(y, &Machine::normal(PAGES), &Owned::new());
        let whole = take(2048..2560, Gfp::KERNEL | Gfp::COMP);
        assert_eq!(whole, Err(ContigError::Busy(Pfn(2048))), "one block, out of use as a whole");
        assert_eq!(bad(), 2 + 512);
        check(y, &Machine::normal(PAGES), &Owned::new());

        let bitmap: [AtomicU64; 16] = Default::default();
        let area: CmaArea<'_, Lock> = CmaArea::new(y, frames(3072..4096), o(0), &bitmap).unwrap();
        assert_eq!(area.alloc(y, 4, 1, Gfp::KERNEL), Ok(Pfn(3073)), "it skips the bad page");
        assert_eq!(bad(), 2 + 512 + 1);
    });
}

/// Frames out of use are part of a snapshot: one that was free, one whose block is in use, and one
/// in a bad block.
#[test]
fn s11_2_s11_3_frames_out_of_use_survive_a_snapshot() {
    let m = Machine::normal(PAGES);
    run(&<PageChecked>::RULES, |y| {
        assert_eq!(y.poison_frame(Pfn(5)), Ok(pageyard::Poisoned::Removed));
        let held = y.alloc(o(3), Gfp::KERNEL).unwrap();
        let bad = y.alloc(o(2), Gfp::KERNEL).unwrap();
        assert_eq!(y.poison_frame(Pfn(held.0 + 2)), Ok(pageyard::Poisoned::WhenFreed));
        assert_eq!(y.poison_frame(Pfn(bad.0 + 1)), Ok(pageyard::Poisoned::WhenFreed));
        y.hooks().set(bad, |s| s.refcount = 1);
        y.free(bad, o(2)).unwrap();
        let out = y.out_of_use(N).unwrap();
        assert_eq!((out.bad, out.poisoned), (4, 1));
        let state = all_records(y);
        m.restored(LINUX612, &state, |again| {
            assert_eq!(all_records(again), state);
            again.validate().unwrap();
            assert_eq!(again.out_of_use(N), Some(out));
            for (pfn, poisoned) in [(5, true), (6, false), (held.0 + 2, true), (bad.0 + 1, true)] {
                assert_eq!(again.is_poisoned(Pfn(pfn)), Some(poisoned), "{pfn}");
            }
            again.free(held, o(3)).unwrap();
            assert_eq!(
                again.out_of_use(N).unwrap().poisoned,
                2,
                "removed when its block was freed"
            );
            again.unpoison_frame(Pfn(5)).unwrap();
            assert_eq!(again.free(bad, o(2)), Err(FreeError::OutOfUse));
            again.validate().unwrap();
        });
        // A refused snapshot leaves no frame faulty.
        m.blank(|again| {
            let repeated = state[0].1.iter().chain([state[0].1.last().unwrap()]);
            assert!(again.restore(N, repeated.copied().chain([state[0].1[0]])).is_err());
            assert!((0..PAGES).all(|p| again.is_poisoned(Pfn(p)) == Some(false)));
            again.restore(N, state[0].1.iter().copied()).unwrap();
            again.validate().unwrap();
        });
    });
}
