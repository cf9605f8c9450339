//! State shared by a node's background reclaim and the requests that wake it (§7.1).

use crate::base::sync::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use crate::base::units::{Order, ZoneKind};

/// After this many runs without a freed page, background reclaim is not woken until another reclaim
/// succeeds.
const MAX_FAILURES: u32 = 16;
/// No request is pending.
const NOTHING: u32 = 0;
/// Factor for the zone's kind plus one; the order is the remainder.
const ZONE: u32 = 256;

/// The pending request, and whether background reclaim is running.
#[derive(Debug)]
pub(crate) struct Wakeups {
    /// The largest order and the highest zone requested since the last run started. Both are in one
    /// word, so that no run takes an order before its zone is stored and loses the zone.
    asked: AtomicU32,
    /// Set while reclaim runs and notices new requests by itself. While clear (asleep or napping),
    /// it must be woken.
    pub(crate) at_work: AtomicBool,
    pub(crate) failures: AtomicU32,
}

impl Wakeups {
    pub(crate) const fn new() -> Self {
        Wakeups {
            asked: AtomicU32::new(NOTHING),
            at_work: AtomicBool::new(false),
            failures: AtomicU32::new(0),
        }
    }

    pub(crate) fn merge(&self, order: Order, highest: ZoneKind) {
        let (order, zone) = (u32::from(order.get()), highest as u32 + 1);
        let with = |old: u32| {
            let new = (old % ZONE).max(order) + (old / ZONE).max(zone) * ZONE;
            (new != old).then_some(new)
        };
        // An error means that an equal or larger request was already pending.
        let _ = self.asked.fetch_update(Relaxed, Relaxed, with);
    }

    /// Takes the pending request and leaves none.
    pub(crate) fn take(&self) -> Option<(Order, ZoneKind)> {
        let asked = self.asked.swap(NOTHING, Relaxed);
        let highest = ZoneKind::ALL.into_iter().find(|&k| k as u32 + 1 == asked / ZONE)?;
        Some((Order::new((asked % ZONE) as u8).unwrap_or_default(), highest))
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Relaxed) != NOTHING
    }

    pub(crate) fn is_hopeless(&self) -> bool {
        self.failures.load(Relaxed) >= MAX_FAILURES
    }

    /// Announces that the reclaimer is about to sleep. Returns `false` if a request came in
    /// meanwhile: a requester that still saw it at work did not wake it. The fences here and in
    /// `is_at_work` order each side's write before its read.
    pub(crate) fn lie_down(&self) -> bool {
        self.at_work.store(false, Relaxed);
        fence(SeqCst);
        !self.is_asked()
    }

    /// Returns whether the reclaimer is at work. Call it after [`merge`](Self::merge).
    pub(crate) fn is_at_work(&self) -> bool {
        fence(SeqCst);
        self.at_work.load(Relaxed)
    }
}
