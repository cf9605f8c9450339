//! Compaction on behalf of a request (spec §2.10, §7.6), or because somebody asks for it (§10).

use lock_api::RawMutex;

use super::pass::{Outcome, Pass};
use super::sort::Sorting;
use super::{CompactEvent, CompactResult, Count, Job, Mode, Priority, Wanted};
use crate::alloc::AllocError;
use crate::events::Event;
use crate::gfp::{AllocFlags, Gfp};
use crate::node::NodeChoice;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::sync::Ordering::Relaxed;
use crate::units::{CpuId, NodeId, Order, Pfn, ZoneId};
use crate::yard::Yard;
use crate::zone::{At, Zone};

/// What a direct compaction came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The best that a zone reported.
    pub result: CompactResult,
    /// A block of the order, allocated to the caller (§7.7).
    pub captured: Option<Pfn>,
}

impl<'a, R: RawMutex, E: Platform, P: Policy> Yard<'a, R, E, P> {
    /// Compacts for a request, as its slow path does (§2.10): the zones that may serve it, best
    /// first, until one has a block for it. A block that [was captured](Compacted::captured) is
    /// the caller's, as if allocated. Without one, the stall counts as a success where the result is
    /// [`Success`](CompactResult::Success) (§9.1).
    ///
    /// # Errors
    /// [`AllocError`] for flags that mean nothing; a lack of memory is no error.
    pub fn compact_for(
        &self,
        order: Order,
        gfp: Gfp,
        priority: Priority,
    ) -> Result<Compacted, AllocError> {
        let req = self.request(order, gfp, NodeChoice::LOCAL)?;
        let wanted = Wanted {
            order,
            gfp,
            migrate_type: req.migrate_type,
            highest: req.highest,
            flags: AllocFlags::slow(gfp, order.get()),
            cpu: req.cpu,
        };
        let done = self.compact_direct(&wanted, self.zones_for(&req), priority);
        if let Some(pfn) = done.captured {
            self.note_compacted(self.locate(pfn).map(|(zone, _)| zone), order, req.cpu);
            self.deliver(req.cpu, pfn, order, req.migrate_type, gfp);
        } else if done.result > CompactResult::Deferred {
            // Nobody tries to allocate here: that a block can be had is as good as having it.
            let success = done.result == CompactResult::Success;
            self.count_outcome(if success { Count::Success } else { Count::Fail });
        }
        Ok(done)
    }

    /// Compacts these zones, in their order, for a request (§7.6), and counts the stall. What the
    /// request gets then is to be told to [`note_compacted`](Self::note_compacted), unless the
    /// result is `Skipped` or `Deferred`.
    pub(crate) fn compact_direct<'z>(
        &self,
        wanted: &Wanted,
        zones: impl IntoIterator<Item = &'z Zone<'a, R>>,
        priority: Priority,
    ) -> Compacted
    where
        'a: 'z,
        R: 'z,
    {
        let order = wanted.order;
        let mut done = Compacted { result: CompactResult::Skipped, captured: None };
        if order == Order::ZERO {
            return done;
        }
        let full = priority == Priority::SyncFull;
        let job = Job {
            order: Some(order),
            migrate_type: wanted.migrate_type,
            highest: wanted.highest,
            flags: wanted.flags,
            mode: if priority == Priority::Async { Mode::Async } else { Mode::SyncLight },
            direct: true,
            whole: full,
            ignore_skips: full,
            any_target: full,
            ..Job::ALL
        };
        let event = CompactEvent::TryToCompact { order, gfp: wanted.gfp, priority };
        self.platform.event(wanted.cpu, Event::Compact(event));
        let mut first = None;
        for zone in zones {
            if !zone.is_populated() || zone.kind > wanted.highest {
                continue;
            }
            let Some(at) = self.at(zone, wanted.cpu) else { continue };
            first = first.or(Some(zone));
            if !full && at.is_deferred(order) {
                done.result = done.result.max(CompactResult::Deferred);
                continue;
            }
            let outcome = self.compact(at, &job);
            done.result = done.result.max(outcome.result);
            if outcome.result == CompactResult::Success {
                at.undefer(order, false);
                let good = |&idx: &u32| at.may_be_handed_out(idx, order.get());
                done.captured = outcome.captured.filter(good).map(|idx| zone.pfn(idx));
                break;
            }
            if priority != Priority::Async && is_failure(outcome.result) {
                at.defer(order);
            }
        }
        if done.result > CompactResult::Deferred
            && let Some(zone) = first
        {
            zone.compaction.count(Count::Stall, 1);
        }
        done
    }

    /// What became of a request after its compaction: the zone that served it, if one did.
    pub(crate) fn note_compacted(&self, served: Option<&Zone<'a, R>>, order: Order, cpu: CpuId) {
        let Some(zone) = served else { return self.count_outcome(Count::Fail) };
        zone.compaction.count(Count::Success, 1);
        zone.compaction.flush.store(false, Relaxed);
        if let Some(at) = self.at(zone, cpu) {
            at.undefer(order, true);
        }
    }

    /// What became of a request after its compaction, where no zone served it.
    fn count_outcome(&self, outcome: Count) {
        if let Some(zone) = self.zones.first() {
            zone.compaction.count(outcome, 1);
        }
    }

    /// Compacts one zone, for a block of an order that movable pages may use, or, with `None`, as
    /// far as it goes. Deferral is neither asked nor changed. `None` where there is no such zone.
    pub fn compact_zone(
        &self,
        zone: impl Into<ZoneId>,
        order: Option<Order>,
        priority: Priority,
    ) -> Option<CompactResult> {
        let full = priority == Priority::SyncFull;
        let job = match order {
            None => Job::ALL,
            Some(_) => Job {
                order,
                mode: if priority == Priority::Async { Mode::Async } else { Mode::SyncLight },
                whole: full,
                ignore_skips: full,
                any_target: full,
                ..Job::ALL
            },
        };
        let at = self.at(self.zone(zone)?, self.platform.cpu())?;
        Some(self.compact(at, &job).result)
    }

    /// Compacts all zones of a node as far as it goes, after draining the per-CPU lists.
    pub fn compact_node(&self, node: NodeId) {
        self.drain_all(None);
        self.compact_zones(self.zones_of(node), &Job::ALL);
    }

    /// Compacts all zones as far as it goes (`compact_memory`, §10), after draining the per-CPU
    /// lists: a page on one would keep its block from merging.
    pub fn compact_all(&self) {
        self.drain_all(None);
        self.compact_zones(self.zones.iter(), &Job::ALL);
    }

    pub(super) fn compact_zones(&self, zones: impl Iterator<Item = &'a Zone<'a, R>>, job: &Job) {
        let cpu = self.platform.cpu();
        for zone in zones.filter(|z| z.is_populated()) {
            if let Some(at) = self.at(zone, cpu) {
                self.compact(at, job);
            }
        }
    }

    /// One zone, if it is worth it.
    pub(super) fn compact(&self, at: At<'_, 'a, R, E, P>, job: &Job) -> Outcome {
        let zone = at.zone;
        let result = self.begins(at, job);
        if result != CompactResult::Continue {
            return Outcome::none(result);
        }
        let unevictable = self.knobs.lock().compact_unevictable_allowed;
        let stop_at = if job.proactive { super::stop_at(self.proactiveness()) } else { 0 };
        let mut sorting = Sorting::new(job);
        let mut first = None;
        loop {
            // Called in one place, so that a pass lies on the stack once, and in this frame.
            let mut pass = Pass::new(at, job, unevictable, stop_at, sorting.only());
            let outcome = self.as_reclaimer(|| pass.run());
            let more = sorting.goes_on(zone, &outcome);
            let first = first.get_or_insert(outcome);
            if !more {
                return *first;
            }
        }
    }

    /// Whether a run is worth it: `Continue`.
    #[inline(never)]
    fn begins(&self, at: At<'_, 'a, R, E, P>, job: &Job) -> CompactResult {
        let Some(order) = job.order else { return CompactResult::Continue };
        let result = at.suits(order, job, self.extfrag_threshold());
        if result == CompactResult::Continue
            && at.zone.compaction.deferral.get().is_restarting(order)
        {
            at.zone.forget_skips();
        }
        result
    }
}

/// A run that went as far as it could, without success (§7.6).
pub(super) fn is_failure(result: CompactResult) -> bool {
    matches!(result, CompactResult::Complete | CompactResult::PartialSkipped)
}
