//! A compaction that failed is not repeated at once, and one that succeeded in vain is (spec §7.6).

use super::{CompactEvent, CompactResult, Priority};
use crate::config::Config;
use crate::events::Event;
use crate::hooks::Observer;
use crate::sync::{AtomicU32, Ordering::Relaxed};
use crate::units::{COSTLY_ORDER, Order};
use crate::zone::At;

/// The most that failures double the wait: 64 attempts.
const MOST_SHIFT: u8 = 6;

/// What a zone remembers of failed compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Deferral {
    /// Attempts since the last failure.
    pub considered: u8,
    /// Up to 2^shift attempts are passed over.
    pub shift: u8,
    /// The smallest order that failed; smaller ones are not deferred.
    pub order_failed: u8,
}

impl Deferral {
    fn limit(self) -> u8 {
        1 << self.shift.min(MOST_SHIFT)
    }

    /// An attempt for this order: is it to be passed over?
    pub fn is_deferred(&mut self, order: Order) -> bool {
        if order.get() < self.order_failed {
            return false;
        }
        self.considered = self.considered.saturating_add(1).min(self.limit());
        self.considered < self.limit()
    }

    /// Compaction for this order failed.
    pub fn failed(&mut self, order: Order) {
        self.considered = 0;
        self.shift = self.shift.saturating_add(1).min(MOST_SHIFT);
        self.order_failed = self.order_failed.min(order.get());
    }

    /// Compaction for this order succeeded; `served`: a request got its block, too.
    pub fn succeeded(&mut self, order: Order, served: bool) {
        if served {
            self.considered = 0;
            self.shift = 0;
        }
        self.order_failed = self.order_failed.max(order.get() + 1);
    }

    /// The longest wait is over: the next run is to look everywhere again (§7.4).
    pub fn is_restarting(&self, order: Order) -> bool {
        order.get() >= self.order_failed
            && self.shift == MOST_SHIFT
            && self.considered >= self.limit()
    }

    const fn to_bits(self) -> u32 {
        u32::from_le_bytes([self.considered, self.shift, self.order_failed, 0])
    }

    const fn from_bits(bits: u32) -> Self {
        let [considered, shift, order_failed, _] = bits.to_le_bytes();
        Deferral { considered, shift, order_failed }
    }
}

/// A zone's, changed by any CPU.
#[derive(Debug)]
pub(crate) struct SharedDeferral(AtomicU32);

impl SharedDeferral {
    pub(super) const fn new() -> Self {
        SharedDeferral(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> Deferral {
        Deferral::from_bits(self.0.load(Relaxed))
    }

    /// Changes it as a whole; what the change said, and the new value.
    fn change<T>(&self, change: impl Fn(&mut Deferral) -> T) -> (T, Deferral) {
        let mut old = self.0.load(Relaxed);
        loop {
            let mut new = Deferral::from_bits(old);
            let said = change(&mut new);
            match self.0.compare_exchange_weak(old, new.to_bits(), Relaxed, Relaxed) {
                Ok(_) => return (said, new),
                Err(now) => old = now,
            }
        }
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Whether the zone is passed over this time.
    #[inline(never)]
    pub(super) fn is_deferred(&self, order: Order) -> bool {
        let (deferred, deferral) = self.zone.compaction.deferral.change(|d| d.is_deferred(order));
        if deferred {
            self.tell(CompactEvent::Deferred { zone: self.zone.id(), order, deferral });
        }
        deferred
    }

    #[inline(never)]
    pub(super) fn defer(&self, order: Order) {
        let ((), deferral) = self.zone.compaction.deferral.change(|d| d.failed(order));
        self.tell(CompactEvent::DeferCompaction { zone: self.zone.id(), order, deferral });
    }

    #[inline(never)]
    pub(super) fn undefer(&self, order: Order, served: bool) {
        let ((), deferral) = self.zone.compaction.deferral.change(|d| d.succeeded(order, served));
        self.tell(CompactEvent::DeferReset { zone: self.zone.id(), order, deferral });
    }

    pub(super) fn tell(&self, event: CompactEvent) {
        self.hooks.event(self.cpu, Event::Compact(event));
    }
}

/// How often a request whose compaction succeeded, but whose block was lost to somebody else, may
/// try again.
pub const MOST_RETRIES: u32 = 16;

/// What a request remembers between its compactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retries {
    /// Successes in vain at this priority.
    pub lost: u32,
    /// How hard the next one tries.
    pub priority: Priority,
}

impl Default for Retries {
    /// As a request begins after its first reclaim (§2.10).
    fn default() -> Self {
        Retries { lost: 0, priority: Priority::SyncLight }
    }
}

/// Whether a request that was not served after a compaction is to compact once more (§7.6), and how
/// hard: `retries` changes accordingly.
///
/// `any_suitable` says whether a zone could be compacted if what is reclaimable were free: it is
/// asked only where the compaction was skipped for want of memory.
pub fn should_retry(
    order: Order,
    result: CompactResult,
    retries: &mut Retries,
    any_suitable: impl FnOnce() -> bool,
) -> bool {
    if order == Order::ZERO {
        return false;
    }
    if result == CompactResult::Skipped {
        return any_suitable();
    }
    let costly = order.get() > COSTLY_ORDER;
    if result == CompactResult::Success {
        let most = if costly { MOST_RETRIES / 4 } else { MOST_RETRIES };
        retries.lost = retries.lost.saturating_add(1);
        if retries.lost <= most {
            return true;
        }
    }
    let harder = match retries.priority {
        Priority::Async => Priority::SyncLight,
        Priority::SyncLight if !costly => Priority::SyncFull,
        _ => return false,
    };
    *retries = Retries { lost: 0, priority: harder };
    true
}
