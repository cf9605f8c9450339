//! Waits for the zone lock and its hold times are measured if the platform asks for that.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{Defences, Gfp, Observer, Order, Platform, Reclaim, ZoneKind};

use common::any::Timed;
use common::{LINUX612, Machine};

/// A clock that advances by 100 ns at every read.
#[derive(Default)]
struct Clock(AtomicU64);

impl Platform for Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(100, Relaxed)
    }
}

impl Reclaim for Clock {}

impl Observer for Clock {
    const MEASURE_LOCKS: bool = true;
}

impl Defences for Clock {}

#[test]
fn every_hold_is_timed_once() {
    Machine::normal(8192).run_with(Clock::default(), LINUX612, |y: &Timed<'_, Clock>| {
        let before = y.zone_stats(ZoneKind::Normal).unwrap();
        let order = Order::new(5).unwrap();
        let pfn = y.alloc(order, Gfp::KERNEL).unwrap();
        y.free(pfn, order).unwrap();
        let after = y.zone_stats(ZoneKind::Normal).unwrap();
        let holds = after.lock_holds - before.lock_holds;
        assert_eq!(holds, 2, "orders without a per-CPU list use the zone");
        // Read before the lock, after it, and before it is released: 100 ns each time.
        assert_eq!(after.wait_ns - before.wait_ns, 100 * holds);
        assert_eq!(after.hold_ns - before.hold_ns, 100 * holds);
        // 100 ns falls into the bucket from 64 to 128.
        assert_eq!(after.holds[7] - before.holds[7], holds);
        assert_eq!(after.waits[7] - before.waits[7], holds);
    });
}
