//! Preparing allocated blocks for the caller (spec §11), and counting pages out of use.

use crate::allocator::yard::Yard;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, Order, Pfn, ZoneId};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::{Defences, Observer};
use crate::embedder::platform::Platform;
use crate::embedder::report::Report;
use crate::packed::Region;

/// Maximum number of reports of damaged patterns, and the period in ns it applies to, per zone
/// (§11.4).
const POISON_REPORTS: (u64, u64) = (10, 5_000_000_000);

/// Managed pages of a zone that are neither free, nor allocated, nor on per-CPU lists.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO).unwrap();
/// yard.poison_frame(page).unwrap();
/// let out: OutOfUse = yard.out_of_use(ZoneKind::Normal).unwrap();
/// assert_eq!((out.poisoned, out.pages()), (1, 1));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutOfUse {
    /// Pages of blocks with a bad page (§11.2).
    pub bad: u64,
    /// Pages with faulty memory (§11.3).
    pub poisoned: u64,
    /// Guard pages (§11.6). They become free again together with their neighbors.
    pub guards: u64,
}

impl OutOfUse {
    /// Returns the total.
    pub fn pages(&self) -> u64 {
        self.bad.saturating_add(self.poisoned).saturating_add(self.guards)
    }
}

impl<C: Config> Yard<'_, C> {
    /// Returns a zone's pages that are out of use; `None` if the zone does not exist.
    pub fn out_of_use(&self, zone: impl Into<ZoneId>) -> Option<OutOfUse> {
        let z = self.zone(zone)?;
        let s = &z.safety;
        let poisoned = z.region().map_or(s.poisoned.load(Relaxed), Region::out_of_use);
        Some(OutOfUse { bad: s.bad.load(Relaxed), poisoned, guards: s.guards.load(Relaxed) })
    }

    /// Completes an allocation of a block that passed `At::passes_alloc_check`: reports it to the
    /// observer and prepares its memory. If a hook panics, the block is freed.
    #[inline(always)]
    pub(crate) fn prepare_alloc(
        &self,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
        gfp: Gfp,
    ) {
        let undelivered = Rollback::new(|| self.return_unprepared(pfn, order));
        self.report_and_prepare(cpu, pfn, order, migrate_type, gfp);
        undelivered.disarm();
    }

    /// Like [`prepare_alloc`](Self::prepare_alloc), but the caller must free the block if a hook
    /// panics.
    #[inline(always)]
    pub(crate) fn report_and_prepare(
        &self,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
        gfp: Gfp,
    ) {
        self.hooks.event(cpu, Event::Alloc { pfn: Some(pfn), order, migrate_type, gfp });
        self.prepare_memory(pfn, order, gfp);
    }

    /// Returns an allocated block to the zone after a hook panicked before the caller received it.
    /// Calls no other hook.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_unprepared(&self, pfn: Pfn, order: Order) {
        self.return_unprepared_for(pfn, order, AllocFlags::WAITS);
    }

    /// Like [`return_unprepared`](Self::return_unprepared), for a request with these flags: it may be one
    /// that must not wait.
    #[inline(never)]
    pub(crate) fn return_unprepared_for(&self, pfn: Pfn, order: Order, flags: AllocFlags) {
        let Some((zone, idx)) = self.locate(pfn) else { return };
        let Some(at) = self.at(zone, CpuId(0)) else { return };
        if zone.is_packed() {
            at.give_up_packed(idx, order.get());
        } else if zone.map.frame(idx).begin_free_as(order.get()) {
            at.give_up_for(idx, order.get(), flags);
        }
    }

    /// Maps, verifies and prepares an allocated block's memory, as the policy requires.
    #[inline(always)]
    pub(crate) fn prepare_memory(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let safety = &self.rules().safety;
        if safety.unmap {
            self.hooks.map(pfn, order);
        }
        if safety.poison {
            self.verify(pfn, order);
        }
        self.hooks.prepare(pfn, order, safety.prepared_as(gfp));
    }

    /// Checks a block's poison pattern and reports damage, subject to the rate limit.
    fn verify(&self, pfn: Pfn, order: Order) {
        let Some(corruption) = self.hooks.check_poison(pfn, order) else { return };
        let Some((zone, _)) = self.locate(pfn) else { return };
        let (most, period) = POISON_REPORTS;
        let Some(n) = zone.safety.poison_reports.admit(self.hooks.now(), most, period) else {
            return;
        };
        if n > 0 {
            self.hooks.report(Report::PoisonSuppressed(n));
        }
        self.hooks.report(Report::Poison { block: pfn, order, corruption });
    }
}
