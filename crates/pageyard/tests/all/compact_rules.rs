//! The arithmetic of compaction: deferral, retries, scores (spec §7.6, §7.8).

use pageyard::compact::{
    Deferral, MOST_RETRIES, Retries, node_score, should_retry, start_above, stop_at, zone_score,
};
use pageyard::{CompactResult, Order, Priority};

fn o(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// How many attempts are deferred before one is let through.
fn passed_over(d: &mut Deferral, order: Order) -> u32 {
    (0..).take_while(|_| d.is_deferred(order)).count() as u32
}

#[test]
fn s7_6_each_failure_doubles_the_wait_up_to_64() {
    let mut d = Deferral::default();
    assert_eq!(passed_over(&mut d, o(9)), 0, "nothing has failed yet");
    for wait in [2, 4, 8, 16, 32, 64, 64, 64] {
        d.failed(o(9));
        assert_eq!(passed_over(&mut d, o(9)), wait - 1);
        assert!(!d.is_deferred(o(9)), "let through until it fails again");
    }
}

#[test]
fn s7_6_smaller_orders_than_the_one_that_failed_are_not_deferred() {
    let mut d = Deferral::default();
    d.succeeded(o(5), false);
    assert_eq!(d.order_failed, 6);
    d.failed(o(9));
    assert_eq!(d.order_failed, 6, "the smallest failed order counts");
    assert!(!d.is_deferred(o(5)) && d.is_deferred(o(6)));
    d.failed(o(3));
    assert_eq!(d.order_failed, 3);
}

#[test]
fn s7_6_success_raises_the_order_and_an_allocation_ends_deferral() {
    let mut d = Deferral::default();
    d.failed(o(4));
    d.failed(o(4));
    d.succeeded(o(4), false);
    assert_eq!((d.shift, d.order_failed), (2, 5), "a block was made but not allocated");
    assert!(!d.is_deferred(o(4)) && d.is_deferred(o(5)));
    d.succeeded(o(3), true);
    assert_eq!(d, Deferral { considered: 0, shift: 0, order_failed: 5 });
}

#[test]
fn s7_4_hints_are_reset_after_the_longest_deferral() {
    let mut d = Deferral::default();
    for _ in 0..6 {
        d.failed(o(9));
    }
    assert!(!d.is_restarting(o(9)));
    assert_eq!(passed_over(&mut d, o(9)), 63);
    assert!(d.is_restarting(o(9)));
    d.succeeded(o(9), false);
    assert!(!d.is_restarting(o(9)), "an order that has not failed");
}

#[test]
fn s7_6_retries() {
    use CompactResult::*;
    use Priority::*;
    let retry = |order, result, lost, priority, suitable| {
        let mut r = Retries { lost, priority };
        let again = should_retry(o(order), result, &mut r, || suitable);
        (again, r.lost, r.priority)
    };
    // Columns: order, result, lost, priority, whether a zone is suitable; then the answer, lost,
    // priority.
    let table = [
        ((0, Success, 0, SyncLight, true), (false, 0, SyncLight)),
        ((9, Skipped, 0, SyncLight, true), (true, 0, SyncLight)),
        ((9, Skipped, 0, SyncLight, false), (false, 0, SyncLight)),
        ((3, Success, 0, SyncLight, false), (true, 1, SyncLight)),
        ((3, Success, 15, SyncLight, false), (true, 16, SyncLight)),
        ((3, Success, 16, SyncLight, false), (true, 0, SyncFull)),
        ((3, Success, 16, SyncFull, false), (false, 17, SyncFull)),
        ((4, Success, 3, Async, false), (true, 4, Async)),
        ((4, Success, 4, Async, false), (true, 0, SyncLight)),
        ((4, Success, 4, SyncLight, false), (false, 5, SyncLight)),
        ((1, Complete, 5, Async, false), (true, 0, SyncLight)),
        ((1, PartialSkipped, 5, SyncLight, false), (true, 0, SyncFull)),
        ((1, Contended, 5, SyncFull, false), (false, 5, SyncFull)),
        ((9, Deferred, 0, Async, false), (true, 0, SyncLight)),
        ((9, Complete, 0, SyncLight, false), (false, 0, SyncLight)),
    ];
    for ((order, result, lost, priority, suits), want) in table {
        let got = retry(order, result, lost, priority, suits);
        assert_eq!(got, want, "{order} {result} {lost} {priority:?} {suits}");
    }
}

#[test]
fn s7_6_retries_end() {
    for order in [1, 9] {
        let mut r = Retries::default();
        let mut n = 0;
        while should_retry(o(order), CompactResult::Success, &mut r, || false) {
            n += 1;
        }
        let most = if order == 1 { 2 * MOST_RETRIES + 1 } else { MOST_RETRIES / 4 };
        assert_eq!(n, most);
    }
}

#[test]
fn s7_8_scores() {
    let mut blocks = [0; 11];
    assert_eq!(zone_score(&blocks), 0, "nothing free");
    blocks[10] = 3;
    assert_eq!(zone_score(&blocks), 0);
    blocks[0] = 1024;
    assert_eq!(zone_score(&blocks), 25);
    blocks[9] = 2;
    assert_eq!(zone_score(&blocks), 20);
    blocks = [u64::MAX / 2048; 11];
    assert_eq!(zone_score(&blocks), 24, "511 of 2047");
    // present 1000 at 40 and 3000 at 80: 40·1000/4001 + 80·3000/4001, each rounded down.
    assert_eq!(node_score([(1000, 40), (3000, 80)].into_iter()), 9 + 59);
    assert_eq!(node_score([(4096, 100)].into_iter()), 99);
    assert_eq!(node_score([].into_iter()), 0);
}

#[test]
fn s7_8_thresholds_follow_from_the_proactiveness() {
    for (knob, low, high) in [(0, 100, 100), (20, 80, 90), (95, 5, 15), (100, 5, 15), (5, 95, 100)]
    {
        assert_eq!((stop_at(knob), start_above(knob)), (low, high), "{knob}");
    }
}
