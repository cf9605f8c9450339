//! Events for operators, by `tracing` (feature `tracing`): what the worker did, what changed, what
//! failed. Without the feature nothing of it is compiled.
//!
//! Nothing is told on the way of a request: a subscriber may allocate, and hold locks while it does,
//! and its memory may come from the yard. Requests that fail are counted, and the worker tells of
//! them; else events come from whoever builds a yard or sets its limits.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::fmt;

use pageyard::{Gfp, NodeId, Order};

use crate::backing::Backing;
use crate::limits::Limits;
use crate::pressure::{Level, PressureEvent};
use crate::signals::Watching;
use crate::thread_cache::ThreadCacheStats;

/// An event of ours, where there are any.
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "pageyard", tracing::Level::$level, $($what)+);
    };
}

/// A yard's events.
#[derive(Debug)]
pub(crate) struct TraceEvents {
    #[cfg(feature = "tracing")]
    yard: u64,
    #[cfg(feature = "tracing")]
    failures: failures::Failures,
}

/// What the worker has told of so far.
#[derive(Debug, Default)]
pub(crate) struct Told {
    #[cfg(feature = "tracing")]
    failures_at: u64,
    #[cfg(feature = "tracing")]
    presses: u64,
    #[cfg(feature = "tracing")]
    pressed: bool,
    #[cfg(feature = "tracing")]
    shrunk_directly: u64,
}

#[cfg(feature = "tracing")]
mod failures {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use pageyard::{Gfp, Order};

    /// Requests that failed and were not told of yet: the last one's flags, above them its order, and
    /// above that how many they are. One word, as another request may fail while it is taken.
    #[derive(Debug, Default)]
    pub(super) struct Failures(AtomicU64);

    /// Where the order begins, and where the count does.
    const ORDER: u32 = 32;
    const COUNT: u32 = 40;

    impl Failures {
        /// Whether it is the first one.
        pub(super) fn add(&self, order: Order, gfp: Gfp) -> bool {
            let last = u64::from(gfp.bits()) | u64::from(order.get()) << ORDER;
            // The count ends at its most.
            let one_more =
                |was: u64| Some((was >> COUNT).saturating_add(1).min(MOST) << COUNT | last);
            self.0.fetch_update(Relaxed, Relaxed, one_more).is_ok_and(|was| was == 0)
        }

        pub(super) fn take(&self) -> Option<(u64, u8, Gfp)> {
            let all = self.0.swap(0, Relaxed);
            let (count, order) = (all >> COUNT, (all >> ORDER) as u8);
            (count > 0).then(|| (count, order, Gfp::from_bits_retain(all as u32)))
        }
    }

    const MOST: u64 = u64::MAX >> COUNT;

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn failures_are_counted_with_the_last_ones_order_and_flags() {
            let failures = Failures::default();
            let order = |n| Order::new(n).unwrap();
            assert_eq!(failures.take(), None);
            assert!(failures.add(order(10), Gfp::KERNEL));
            assert!(!failures.add(order(3), Gfp::from_bits_retain(u32::MAX)));
            assert_eq!(failures.take(), Some((2, 3, Gfp::from_bits_retain(u32::MAX))));
            assert!(failures.add(order(0), Gfp::NOWAIT), "the first one again");
            failures.0.store(u64::MAX, Relaxed);
            assert!(!failures.add(order(1), Gfp::NOWAIT));
            assert_eq!(failures.take(), Some((MOST, 1, Gfp::NOWAIT)), "no more are counted");
        }
    }
}

/// Between two events of requests that failed.
#[cfg(feature = "tracing")]
const FAILURES: u64 = 1_000_000_000;

impl TraceEvents {
    /// Of the next yard.
    pub(crate) fn new() -> TraceEvents {
        #[cfg(feature = "tracing")]
        {
            use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
            static NEXT: AtomicU64 = AtomicU64::new(1);
            TraceEvents {
                yard: NEXT.fetch_add(1, Relaxed),
                failures: failures::Failures::default(),
            }
        }
        #[cfg(not(feature = "tracing"))]
        TraceEvents {}
    }

    /// It was made.
    pub(crate) fn made(&self, pages: u64, nodes: usize, cpus: usize, backing: Backing) {
        event!(INFO, yard = self.yard, pages, nodes, cpus, ?backing, "yard made");
    }

    /// A worker has begun.
    pub(crate) fn began(&self, stalls: &Watching, group: &Watching, keeps: Option<&str>) {
        event!(INFO, yard = self.yard, ?stalls, ?group, keeps, "worker began");
    }

    /// A request failed. Whether the worker has to be told.
    pub(crate) fn failed(&self, order: Order, gfp: Gfp) -> bool {
        #[cfg(feature = "tracing")]
        return !gfp.contains(Gfp::NOWARN) && self.failures.add(order, gfp);
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// The level of pressure changed.
    pub(crate) fn pressure(&self, event: &PressureEvent) {
        let PressureEvent { level, before, causes, used, soft, hard } = event;
        let (level, before) = (*level, *before);
        if level == Level::Critical {
            event!(WARN, yard = self.yard, %level, %before, ?causes, used, soft, hard, "pressure");
        } else {
            event!(INFO, yard = self.yard, %level, %before, ?causes, used, soft, hard, "pressure");
        }
    }

    /// Limits were set; `done`: they hold already.
    pub(crate) fn limits(&self, limits: Limits, done: bool) {
        let Limits { hard, soft } = limits;
        event!(INFO, yard = self.yard, hard, soft, done, "limits set");
    }

    /// The worker gave idle memory back.
    pub(crate) fn gave_back(&self, pages: u64, resident: u64, target: u64) {
        event!(DEBUG, yard = self.yard, pages, resident, target, "idle memory went back");
    }

    /// The worker asked the shrinkers: for a node that was woken, or for what is too much.
    pub(crate) fn reclaimed(&self, node: Option<NodeId>, order: Order, wanted: u64, freed: u64) {
        let (node, order) = (node.map(|n| n.0), order.get());
        event!(DEBUG, yard = self.yard, node, order, wanted, freed, "reclaim");
    }

    /// The worker compacted a node.
    pub(crate) fn compacted(&self, node: NodeId, moved: u64) {
        event!(DEBUG, yard = self.yard, node = node.0, moved, "compaction");
    }

    /// What threads and CPUs kept was taken away, as the system or the group is short.
    pub(crate) fn drained(&self, level: Level) {
        event!(DEBUG, yard = self.yard, %level, "threads and CPUs drained");
    }

    /// What requests did since the last time, by the worker.
    pub(crate) fn requests(
        &self,
        told: &mut Told,
        now: u64,
        shrunk_directly: u64,
        front: impl FnOnce() -> ThreadCacheStats,
    ) {
        #[cfg(feature = "tracing")]
        {
            let yard = self.yard;
            if now >= told.failures_at
                && let Some((requests, order, flags)) = self.failures.take()
            {
                told.failures_at = now + FAILURES;
                event!(WARN, yard, requests, order, ?flags, "requests failed");
            }
            let freed = shrunk_directly.saturating_sub(told.shrunk_directly);
            if freed > 0 {
                told.shrunk_directly = shrunk_directly;
                event!(DEBUG, yard, freed, "requests reclaimed");
            }
            if !tracing::enabled!(target: "pageyard", tracing::Level::INFO) {
                return;
            }
            let ThreadCacheStats { threads, pages, presses, pressed, drained_pages, .. } = front();
            if presses != told.presses || pressed != told.pressed {
                (told.presses, told.pressed) = (presses, pressed);
                event!(INFO, yard, pressed, presses, threads, pages, drained_pages, "front cache");
            }
        }
    }
}

/// What was asked for is not to be had, and something else was taken.
pub(crate) fn fell_back(option: &str, wanted: &dyn fmt::Debug, why: &dyn fmt::Display) {
    event!(WARN, option, ?wanted, %why, "fallback");
}
