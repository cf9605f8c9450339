//! Blocks lent to a hypervisor stay out of the allocator until the hypervisor returns them.

use crate::common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use common::any::On;
use common::{Machine, Reused, Y, o};
use pageyard::policy::{Poisoned, StaticPolicy};
use pageyard::{
    Balloon, BalloonError, Defences, FreeError, Gfp, Lent, Observer, Order, Pfn, Platform, Reclaim,
    ZoneKind,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

fn drain(y: &Y<'_>) -> Vec<Pfn> {
    let all = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::MOVABLE | Gfp::NOWARN;
    std::iter::from_fn(|| y.alloc(Order::ZERO, all).ok()).collect()
}

#[test]
fn blocks_that_are_not_acknowledged_stay_out() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let mut room = [Lent::NONE; 8];
        let mut balloon = Balloon::new(&mut room, Order::HUGE);
        let lent: BTreeSet<Pfn> = std::iter::from_fn(|| balloon.lend(y, GFP)).collect();
        assert_eq!((lent.len(), balloon.pages()), (8, 8 * 512));
        let (asked, other) = (balloon.ask().unwrap(), balloon.ask().unwrap());
        assert_ne!(asked, other, "a block is asked for once");

        // The allocator can hand out everything else.
        let pages = drain(y);
        assert_eq!(pages.len(), 16384 - 8 * 512);
        let of = |p: &Pfn| Pfn(p.0 & !511);
        assert!(pages.iter().all(|p| !lent.contains(&of(p))), "a lent block was allocated");

        // Acknowledged: one block is free again.
        balloon.acknowledge(y, asked).unwrap();
        let back = drain(y);
        assert!(back.len() == 512 && back.iter().all(|p| of(p) == asked));
        assert_eq!(balloon.pages(), 7 * 512);
        pages.into_iter().chain(back).for_each(|p| y.free(p, Order::ZERO).unwrap());

        // Refuses a repeated acknowledgement, an early one, and one of a block that was not lent.
        assert_eq!(balloon.acknowledge(y, asked), Err(BalloonError::Unknown(asked)));
        let early = *lent.iter().find(|p| ![asked, other].contains(p)).unwrap();
        assert_eq!(balloon.acknowledge(y, early), Err(BalloonError::NotAsked(early)));
        assert_eq!(balloon.acknowledge(y, Pfn(7)), Err(BalloonError::Unknown(Pfn(7))));

        // Another caller freed the block.
        y.free(other, Order::HUGE).unwrap();
        let gone = Err(BalloonError::Free(FreeError::DoubleFree));
        assert_eq!(balloon.acknowledge(y, other), gone);
        assert_eq!(balloon.pages(), 6 * 512);
        drop(balloon);
        y.drain_all(None);
        assert_eq!(y.zone_info(NORMAL).unwrap().free_exact, 16384 - 6 * 512, "dropped, not freed");
        y.validate().unwrap();
    });
}

#[test]
fn a_balloon_is_resumed_with_the_blocks_in_it() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let mut room = [Lent::NONE; 3];
        let mut balloon = Balloon::resume(&mut room, Order::HUGE);
        let lent = [balloon.lend(y, GFP).unwrap(), balloon.lend(y, GFP).unwrap()];
        let asked = balloon.ask().unwrap();
        let mut balloon = Balloon::resume(&mut room, Order::HUGE);
        assert_eq!(balloon.pages(), 2 * 512);
        assert_eq!(balloon.acknowledge(y, asked), Ok(()));
        let other = balloon.ask().unwrap();
        assert!(other != asked && lent.contains(&other), "what was asked for is not asked again");
        assert_eq!((balloon.acknowledge(y, other), balloon.pages()), (Ok(()), 0));
        y.drain_all(None);
        assert_eq!(y.zone_info(NORMAL).unwrap().free_exact, 16384);
    });
}

#[test]
fn lending_stops_at_the_low_watermark() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let mut room = [Lent::NONE; 64];
        let mut balloon = Balloon::new(&mut room, o(8));
        while balloon.lend(y, GFP | Gfp::MEMALLOC | Gfp::ZERO).is_some() {}
        let above = y.above_low(NORMAL).unwrap();
        assert!((0..256).contains(&above), "{above} pages above LOW");
        assert!(balloon.pages() < 16384 && balloon.pages() > 8192);
        // All blocks return.
        while let Some(block) = balloon.ask() {
            balloon.acknowledge(y, block).unwrap();
        }
        assert_eq!(balloon.pages(), 0);
        y.drain_all(None);
        assert_eq!(y.zone_info(NORMAL).unwrap().free_exact, 16384);
    });
}

/// An acknowledgement on an unknown CPU fails and leaves the block in the balloon.
#[test]
fn an_acknowledgement_on_an_unknown_cpu_can_be_repeated() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let mut room = [Lent::NONE; 1];
        let mut balloon = Balloon::new(&mut room, Order::HUGE);
        let block = balloon.lend(y, GFP).unwrap();
        assert_eq!(balloon.lend(y, GFP), None, "full");
        assert_eq!(balloon.ask(), Some(block));
        y.hooks().on(99);
        assert!(matches!(balloon.acknowledge(y, block), Err(BalloonError::Free(_))));
        y.hooks().on(0);
        balloon.acknowledge(y, block).unwrap();
    });
}

/// Whether the hook that fills a freed block panics.
struct Panics(Cell<bool>);

impl Platform for Panics {}
impl Reclaim for Panics {}
impl Observer for Panics {}
impl Defences for Panics {
    fn poison(&self, _: Pfn, _: Order) {
        if self.0.get() {
            resume_unwind(Box::new(()));
        }
    }
}

#[test]
fn a_panic_of_a_hook_loses_no_block() {
    let all = Reused::under(&<Poisoned>::RULES, Machine::normal(16384).cpus(&[0]));
    let y: On<'_, Panics> = On::new(Panics(Cell::new(false)), |hooks| all.next(hooks));
    let mut room = [Lent::NONE; 1024];
    let mut balloon = Balloon::new(&mut room, o(5));
    while balloon.lend(&y, GFP).is_some() {}
    let in_use = || y.zone_info(NORMAL).unwrap().in_use();
    assert_eq!(balloon.pages(), in_use());
    // At the mark: the block that was taken is freed again.
    y.hooks().0.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| balloon.lend(&y, GFP))).is_err());
    assert_eq!(balloon.pages(), in_use());
    let asked = balloon.ask().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| balloon.acknowledge(&y, asked))).is_err());
    assert_eq!(balloon.pages(), in_use());
    y.hooks().0.set(false);
    balloon.acknowledge(&y, asked).unwrap();
    while let Some(block) = balloon.ask() {
        balloon.acknowledge(&y, block).unwrap();
    }
    y.drain_all(None);
    assert_eq!((balloon.pages(), in_use()), (0, 0));
    y.validate().unwrap();
}
