//! Events for operators, through `tracing` (feature `tracing`): what the worker did, what changed,
//! what failed. Without the feature, none of it is compiled.
//!
//! Requests emit no events on their own thread: a subscriber may allocate and hold locks while it
//! does, and its memory may come from the yard. Failed requests are counted, and the worker reports
//! them. Other events come from the thread that builds a yard or sets its limits.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables))]

use std::fmt;

use pageyard::{Gfp, NodeId, Order};

use crate::backing::Backing;
#[cfg(feature = "tracing")]
use crate::callback::guarded;
use crate::limits::Limits;
use crate::pressure::{Level, PressureEvent};
use crate::signals::Watching;
use crate::thread_cache::ThreadCacheStats;

/// Emits an event, if the feature is enabled. A subscriber that panics ends neither the worker nor the
/// call that is reported.
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        #[cfg(feature = "tracing")]
        guarded(|| tracing::event!(target: "pageyard", tracing::Level::$level, $($what)+));
    };
}

/// Emits a yard's events.
#[derive(Debug)]
pub(crate) struct TraceEvents {
    #[cfg(feature = "tracing")]
    yard: u64,
    #[cfg(feature = "tracing")]
    failures: failures::Failures,
}

/// State of what the worker has reported so far.
#[derive(Debug, Default)]
pub(crate) struct Reported {
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

    /// Failed requests not reported yet: the flags of the last one, above them its order, and above
    /// that the count. One word, because another request may fail while the worker takes it.
    #[derive(Debug, Default)]
    pub(super) struct Failures(AtomicU64);

    /// Shifts of the order and of the count.
    const ORDER: u32 = 32;
    const COUNT: u32 = 40;

    impl Failures {
        /// Adds a failed request. Returns whether it is the first unreported one.
        pub(super) fn add(&self, order: Order, gfp: Gfp) -> bool {
            let last = u64::from(gfp.bits()) | u64::from(order.get()) << ORDER;
            // The count saturates.
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

/// Minimum interval between two events of failed requests, in nanoseconds.
#[cfg(feature = "tracing")]
const FAILURES: u64 = 1_000_000_000;

impl TraceEvents {
    /// Creates the events of a new yard.
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

    /// The yard was built.
    pub(crate) fn made(&self, pages: u64, nodes: usize, cpus: usize, backing: Backing) {
        event!(INFO, yard = self.yard, pages, nodes, cpus, ?backing, "yard made");
    }

    /// A worker has started.
    pub(crate) fn began(&self, stalls: &Watching, group: &Watching, keeps: Option<&str>) {
        event!(INFO, yard = self.yard, ?stalls, ?group, keeps, "worker began");
    }

    /// A request failed. Returns whether the worker must be woken.
    pub(crate) fn failed(&self, order: Order, gfp: Gfp) -> bool {
        #[cfg(feature = "tracing")]
        return !gfp.contains(Gfp::NOWARN) && self.failures.add(order, gfp);
        #[cfg(not(feature = "tracing"))]
        false
    }

    /// The pressure level changed.
    pub(crate) fn pressure(&self, event: &PressureEvent) {
        let PressureEvent { level, before, causes, used, soft, hard } = event;
        let (level, before) = (*level, *before);
        if level == Level::Critical {
            event!(WARN, yard = self.yard, %level, %before, ?causes, used, soft, hard, "pressure");
        } else {
            event!(INFO, yard = self.yard, %level, %before, ?causes, used, soft, hard, "pressure");
        }
    }

    /// Limits were set; `done`: they are met already.
    pub(crate) fn limits(&self, limits: Limits, done: bool) {
        let Limits { hard, soft } = limits;
        event!(INFO, yard = self.yard, hard, soft, done, "limits set");
    }

    /// The worker returned idle memory to the system.
    pub(crate) fn gave_back(&self, pages: u64, resident: u64, target: u64) {
        event!(DEBUG, yard = self.yard, pages, resident, target, "idle memory went back");
    }

    /// The worker called the shrinkers: for a node that was woken, or for pages above a limit.
    pub(crate) fn reclaimed(&self, node: Option<NodeId>, order: Order, wanted: u64, freed: u64) {
        let (node, order) = (node.map(|n| n.0), order.get());
        event!(DEBUG, yard = self.yard, node, order, wanted, freed, "reclaim");
    }

    /// The worker compacted a node.
    pub(crate) fn compacted(&self, node: NodeId, moved: u64) {
        event!(DEBUG, yard = self.yard, node = node.0, moved, "compaction");
    }

    /// Magazines and per-CPU lists were drained, because the system or the control group is short
    /// of memory.
    pub(crate) fn drained(&self, level: Level) {
        event!(DEBUG, yard = self.yard, %level, "threads and CPUs drained");
    }

    /// Reports what requests did since the last call. Called by the worker.
    pub(crate) fn requests(
        &self,
        reported: &mut Reported,
        now: u64,
        shrunk_directly: u64,
        thread_caches: impl FnOnce() -> ThreadCacheStats,
    ) {
        #[cfg(feature = "tracing")]
        {
            let yard = self.yard;
            if now >= reported.failures_at
                && let Some((requests, order, flags)) = self.failures.take()
            {
                reported.failures_at = now + FAILURES;
                event!(WARN, yard, requests, order, ?flags, "requests failed");
            }
            let freed = shrunk_directly.saturating_sub(reported.shrunk_directly);
            if freed > 0 {
                reported.shrunk_directly = shrunk_directly;
                event!(DEBUG, yard, freed, "requests reclaimed");
            }
            let wanted = || tracing::enabled!(target: "pageyard", tracing::Level::INFO);
            if guarded(wanted) != Some(true) {
                return;
            }
            let ThreadCacheStats { threads, pages, presses, pressed, drained_pages, .. } =
                thread_caches();
            if presses != reported.presses || pressed != reported.pressed {
                (reported.presses, reported.pressed) = (presses, pressed);
                event!(INFO, yard, pressed, presses, threads, pages, drained_pages, "thread cache");
            }
        }
    }
}

/// An option was not available, and its fallback is used.
pub(crate) fn fell_back(option: &str, wanted: &dyn fmt::Debug, why: &dyn fmt::Display) {
    event!(WARN, option, ?wanted, %why, "fallback");
}
