//! A platform that models the cost of memory is told which descriptors list operations touch.

use crate::common;

use std::sync::Mutex;

use pageyard::policy::{Base, StaticPolicy, TwoPassBulkFree};
use pageyard::{Defences, Gfp, Observer, Pfn, Platform, Reclaim};

use common::any::Timed;
use common::{LINUX612, Machine, o};

#[derive(Default)]
struct Told(Mutex<Vec<u64>>);

impl Platform for Told {}
impl Reclaim for Told {}

impl Observer for Told {
    const SEES_TOUCHES: bool = true;

    fn touch(&self, pfn: Pfn) {
        self.0.lock().unwrap().push(pfn.0);
    }
}

impl Defences for Told {}

impl Told {
    fn since(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[test]
fn s1_7_s1_9_splits_and_merges_touch_every_block_and_neighbour() {
    // Eight blocks of order 10 on one list, ascending.
    Machine::normal(8192).run_with(Told::default(), LINUX612, |y: &Timed<'_, Told>| {
        y.hooks().since();
        let pfn = y.alloc(o(5), Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(pfn, Pfn(0));
        // The list's head and the next block; then the remainders of the split, on empty lists.
        assert_eq!(y.hooks().since(), [0, 1024, 512, 256, 128, 64, 32]);
        y.free(pfn, o(5)).unwrap();
        // Each buddy on the way up; then the merged block goes before the list's head.
        assert_eq!(y.hooks().since(), [32, 64, 128, 256, 512, 0, 1024]);
    });
}

#[test]
fn s5_12a_gathered_pages_are_touched_before_they_are_freed() {
    let rules = &<TwoPassBulkFree<Base>>::RULES;
    Machine::normal(8192).run_with(Told::default(), rules, |y: &Timed<'_, Told>| {
        let pages: Vec<_> = (0..5).map(|_| y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
        y.drain_all(None);
        for &pfn in &pages {
            y.free(pfn, o(0)).unwrap();
        }
        y.hooks().since();
        y.drain_all(None);
        // Draining starts at the tail: in the order in which the pages were freed.
        let told = y.hooks().since();
        assert!(told.iter().take(5).eq(pages.iter().map(|p| &p.0)), "{told:?}");
    });
}
