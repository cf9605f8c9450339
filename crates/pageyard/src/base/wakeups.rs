//! What those who want background reclaim and the reclaimer of a node tell each other (§7.1).

use crate::base::sync::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use crate::base::units::{Order, ZoneKind};

/// After so many runs without a page, background reclaim is left alone until somebody else
/// succeeds.
const MAX_FAILURES: u32 = 16;
/// Nobody asks for anything.
const NOTHING: u32 = 0;
/// Times one more than the zone's kind; the order is the rest.
const ZONE: u32 = 256;

/// What is asked for, and whether somebody listens.
#[derive(Debug)]
pub(crate) struct Wakeups {
    /// The largest order and the highest zone asked for since the last run began. One word, or one
    /// who takes an order before its zone is there would forget it.
    asked: AtomicU32,
    /// At work: it sees what is asked for by itself. Asleep, or in a nap, it has to be woken.
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
        // No, where as much was asked for before.
        let _ = self.asked.fetch_update(Relaxed, Relaxed, with);
    }

    /// What was asked for, and nothing from now on.
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

    /// The reclaimer is about to lie down. No, where somebody has asked meanwhile: who asked before
    /// it was seen lying did not wake it. (The fences here and in `is_at_work` order what each side
    /// writes before what it reads.)
    pub(crate) fn lie_down(&self) -> bool {
        self.at_work.store(false, Relaxed);
        fence(SeqCst);
        !self.is_asked()
    }

    /// For who has just asked.
    pub(crate) fn is_at_work(&self) -> bool {
        fence(SeqCst);
        self.at_work.load(Relaxed)
    }
}
