//! A block on its way from the zone to its caller (spec §11), and pages out of use.

use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, Order, Pfn, ZoneId};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::{Defences, Observer};
use crate::embedder::platform::Platform;
use crate::embedder::report::Report;

/// Reports of damaged patterns in five seconds (§11.4), per zone.
const POISON_REPORTS: (u64, u64) = (10, 5_000_000_000);

/// Pages of a zone that are managed, but neither free nor with a caller nor on per-CPU lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutOfUse {
    /// Because of a bad page in their block (§11.2).
    pub bad: u64,
    /// Because their memory is faulty (§11.3).
    pub poisoned: u64,
    /// As guards (§11.6). These come back when their neighbours do.
    pub guards: u64,
}

impl OutOfUse {
    /// All of them.
    pub fn pages(&self) -> u64 {
        self.bad + self.poisoned + self.guards
    }
}

impl<C: Config> Yard<'_, C> {
    /// A zone's pages that are out of use; `None` where there is no such zone.
    pub fn out_of_use(&self, zone: impl Into<ZoneId>) -> Option<OutOfUse> {
        let s = &self.zone(zone)?.safety;
        Some(OutOfUse {
            bad: s.bad.load(Relaxed),
            poisoned: s.poisoned.load(Relaxed),
            guards: s.guards.load(Relaxed),
        })
    }

    /// A block that [may be handed out](At::passes_alloc_check) becomes its caller's, whichever way
    /// it was found: observers are told, and it is made ready. It is free again where a hook panics.
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

    /// [`prepare_alloc`](Self::prepare_alloc) of a block that its taker takes back where a hook panics.
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

    /// A block is allocated, but a hook panicked before its caller heard of it: it goes back to the
    /// zone, without another hook.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_unprepared(&self, pfn: Pfn, order: Order) {
        let Some((zone, idx)) = self.locate(pfn) else { return };
        if let Some(at) = self.at(zone, CpuId(0))
            && zone.map.frame(idx).begin_free_as(order.get())
        {
            at.give_up(idx, order.get());
        }
    }

    /// The last step before a caller has a block: it is mapped, verified and prepared, as the
    /// policy has it.
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

    /// Whether the pattern is whole; reports where it is not.
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
