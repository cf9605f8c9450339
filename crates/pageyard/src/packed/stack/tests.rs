//! Stacks of magazines, by one CPU.

extern crate std;
use std::vec::Vec;

use super::*;

fn links() -> Vec<Link> {
    (0..100).map(|_| Link::new()).collect()
}

#[test]
fn each_head_has_a_new_tag() {
    let mut head = Head::EMPTY;
    for (n, (index, count)) in [(0, 1), (5, 2), (NIL, MOST), (7, 0)].into_iter().enumerate() {
        let tag = head.0 >> 36;
        assert_eq!(tag, n as u64);
        head = head.successor(index, count);
        assert_eq!((head.index(), head.count()), (index, count));
    }
    let last = Head(!0 << 36).successor(1, 1);
    assert_eq!((last.0 >> 36, last.index(), last.count()), (0, 1, 1), "tags begin again");
}

#[test]
fn the_last_magazine_pushed_is_popped_first() {
    let (stack, links) = (Stack::new(), links());
    assert!((0..3).all(|n| stack.push(&links, n, 3)) && !stack.push(&links, 3, 3));
    assert!(matches!(stack.push_once(&links, 3, 3), Ok(false)));
    assert!(matches!(stack.push_once(&links, 3, 4), Ok(true)));
    let mut all = Vec::new();
    stack.for_each(&links, |n| all.push(n));
    assert_eq!((all, stack.len()), ([3, 2, 1, 0].into(), 4));
    assert_eq!((stack.pop(&links), stack.pop(&links), stack.len()), (Some(3), Some(2), 2));
    assert!(matches!(stack.pop_once(&links), Ok(Some(1))));
    assert!(matches!(stack.pop_once(&links), Ok(Some(0))));
    assert!(matches!(stack.pop_once(&links), Ok(None)));
    assert_eq!((stack.pop(&links), stack.len()), (None, 0));
}

#[test]
fn the_surplus_is_a_part_of_what_an_interval_did_not_need() {
    let (stack, links) = (Stack::new(), links());
    let push = |numbers: core::ops::Range<u32>| {
        numbers.for_each(|n| assert!(stack.push(&links, n, MOST)));
    };
    push(0..33);
    assert_eq!(stack.surplus(MOST), 0, "they came in this interval");
    assert_eq!(stack.surplus(1), 1, "two, but for the limit");
    // It went, and others came: 32 were there all the time.
    assert!(stack.pop(&links).is_some());
    push(50..60);
    assert_eq!(stack.surplus(MOST), 1);
    // Three are left for a moment.
    (0..39).for_each(|_| assert!(stack.pop(&links).is_some()));
    stack.note_least();
    push(60..90);
    assert_eq!((stack.len(), stack.surplus(MOST)), (33, 1));
    assert_eq!(stack.surplus(MOST), 1);
}

#[test]
fn each_magazine_that_is_due_is_taken_once() {
    let stack = Stack::new();
    assert!(!stack.take_due());
    stack.set_due(2);
    assert!(stack.take_due() && stack.take_due() && !stack.take_due());
}
