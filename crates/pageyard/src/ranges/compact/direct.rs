//! Compaction on behalf of a request (spec §2.10, §7.6), or on the embedder's call (§10).

use super::Job;
use super::pass::{Outcome, Pass};
use super::sort::Sorting;
use crate::allocator::yard::Yard;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::node_mask::NodeChoice;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, NodeId, Order, Pfn, ZoneId};
use crate::embedder::compact_events::{CompactEvent, CompactResult, Priority};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::embedder::platform::Platform;
use crate::request::alloc::{AllocError, Request};
use crate::zone::at::At;
use crate::zone::compaction_state::Count;
use crate::zone::state::Zone;

/// The result of a direct compaction.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let order = Order::HUGE;
/// let done: Compacted = yard.compact_for(order, Gfp::KERNEL, Priority::Async)?;
/// if let Some(block) = done.captured {
///     yard.free(block, order).unwrap();
/// }
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// The best result of any zone.
    pub result: CompactResult,
    /// A block of the order, allocated to the caller (§7.7).
    pub captured: Option<Pfn>,
}

impl<'a, C: Config> Yard<'a, C> {
    /// Compacts for a request, as its slow path does (§2.10): the zones that may serve it, best
    /// first, until one has a block for it. A [captured](Compacted::captured) block is allocated to
    /// the caller. Without one, the stall counts as a success if the result is
    /// [`Success`](CompactResult::Success) (§9.1).
    ///
    /// # Errors
    /// [`AllocError`] for invalid flags. A shortage of memory is not an error.
    pub fn compact_for(
        &self,
        order: Order,
        gfp: Gfp,
        priority: Priority,
    ) -> Result<Compacted, AllocError> {
        let req = self.request(order, gfp, NodeChoice::LOCAL)?;
        let flags = AllocFlags::slow(gfp, order.get(), req.migrate_type);
        let done = self.compact_direct(&req, flags, priority);
        if let Some(pfn) = done.captured {
            self.note_compacted(self.locate(pfn).map(|(zone, _)| zone), order, req.cpu);
            self.prepare_alloc(req.cpu, pfn, order, req.migrate_type, gfp);
        } else if done.result > CompactResult::Deferred {
            // No allocation follows here, so an available block counts as success.
            let success = done.result == CompactResult::Success;
            self.count_outcome(if success { Count::Success } else { Count::Fail });
        }
        Ok(done)
    }

    /// Compacts the zones that may serve a request (§7.6), and counts the stall. The caller must
    /// pass the request's outcome to [`note_compacted`](Self::note_compacted), unless the result is
    /// `Skipped` or `Deferred`.
    #[inline(always)]
    pub(crate) fn compact_direct(
        &self,
        req: &Request,
        flags: AllocFlags,
        priority: Priority,
    ) -> Compacted {
        let order = req.order;
        let mut done = Compacted { result: CompactResult::Skipped, captured: None };
        if order == Order::ZERO {
            return done;
        }
        let job = Job {
            migrate_type: req.migrate_type,
            highest: req.highest,
            flags,
            direct: true,
            ..Job::of(order, priority)
        };
        let event = CompactEvent::TryToCompact { order, gfp: req.gfp, priority };
        self.hooks.event(req.cpu, Event::Compact(event));
        let mut tried = 0;
        while let Some(at) = self.nth_to_compact(req, flags, tried) {
            tried += 1;
            if priority != Priority::SyncFull && at.is_deferred(order) {
                done.result = done.result.max(CompactResult::Deferred);
                continue;
            }
            let mut outcome = Outcome::none(self.begins(&at, &job));
            if outcome.result == CompactResult::Continue {
                // A wanted order does not use sorting: one pass.
                outcome = self.run_pass(&at, &job, None);
            }
            done.result = done.result.max(outcome.result);
            if outcome.result == CompactResult::Success {
                at.undefer(order, false);
                let good = |&idx: &u32| at.passes_alloc_check(idx, order.get());
                done.captured = outcome.captured.filter(good).map(|idx| at.zone.pfn(idx));
                break;
            }
            if priority != Priority::Async && is_failure(outcome.result) {
                at.defer(order);
            }
        }
        if done.result > CompactResult::Deferred
            && let Some(at) = self.nth_to_compact(req, flags, 0)
        {
            at.zone.compaction.count(Count::Stall, 1);
        }
        done
    }

    /// Returns the `n`th zone to compact for a request. Found by number, because a list would take
    /// stack below the compaction.
    #[inline(never)]
    fn nth_to_compact<'y>(
        &'y self,
        req: &Request,
        flags: AllocFlags,
        n: usize,
    ) -> Option<At<'y, 'a, C>> {
        let zone = self.zones_for(req).filter(|z| req.may_use(z.node, flags)).nth(n)?;
        self.at(zone, req.cpu)
    }

    /// Records the outcome of a request after its compaction: the zone that served it, if any.
    pub(crate) fn note_compacted(
        &self,
        served: Option<&Zone<'a, C::Lock>>,
        order: Order,
        cpu: CpuId,
    ) {
        let Some(zone) = served else { return self.count_outcome(Count::Fail) };
        zone.compaction.count(Count::Success, 1);
        zone.compaction.flush.store(false, Relaxed);
        if let Some(at) = self.at(zone, cpu) {
            at.undefer(order, true);
        }
    }

    /// Counts the outcome of a compacting request that no zone served.
    fn count_outcome(&self, outcome: Count) {
        if let Some(zone) = self.zones.first() {
            zone.compaction.count(outcome, 1);
        }
    }

    /// Compacts one zone for a block of an order that movable pages may use, or with `None` as far
    /// as possible. Neither checks nor changes deferral. Returns `None` if there is no such zone.
    pub fn compact_zone(
        &self,
        zone: impl Into<ZoneId>,
        order: Option<Order>,
        priority: Priority,
    ) -> Option<CompactResult> {
        let job = order.map_or(Job::ALL, |order| Job::of(order, priority));
        let at = self.at(self.zone(zone)?, self.hooks.cpu())?;
        Some(self.compact_one(&at, &job))
    }

    /// Compacts all zones of a node as far as possible, after draining the per-CPU lists.
    pub fn compact_node(&self, node: NodeId) {
        self.drain_all(None);
        self.compact_zones(self.zones_of(node), &Job::ALL);
    }

    /// Compacts all zones as far as possible (`compact_memory`, §10). Drains the per-CPU lists
    /// first: a page on one would keep its block from merging.
    pub fn compact_all(&self) {
        self.drain_all(None);
        self.compact_zones(self.zones.iter(), &Job::ALL);
    }

    pub(super) fn compact_zones(
        &self,
        zones: impl Iterator<Item = &'a Zone<'a, C::Lock>>,
        job: &Job,
    ) {
        let cpu = self.hooks.cpu();
        for zone in zones.filter(|z| z.is_populated()) {
            if let Some(at) = self.at(zone, cpu) {
                self.compact_one(&at, job);
            }
        }
    }

    /// Compacts one zone, if it is worthwhile.
    #[inline(never)]
    pub(super) fn compact_one(&self, at: &At<'_, 'a, C>, job: &Job) -> CompactResult {
        let result = self.begins(at, job);
        if result != CompactResult::Continue {
            return result;
        }
        if let Some(region) = at.zone.region() {
            return self.compact_packed(at, region, job).result;
        }
        let mut sorting = Sorting::new(job);
        let mut first = None;
        loop {
            let outcome = self.run_pass(at, job, sorting.only());
            let result = *first.get_or_insert(outcome.result);
            if !sorting.goes_on(at.zone, &outcome) {
                return result;
            }
        }
    }

    /// Inlined, so that only one frame lies on the stack of a request.
    #[inline(always)]
    fn run_pass(&self, at: &At<'_, 'a, C>, job: &Job, only: Option<u8>) -> Outcome {
        if let Some(region) = at.zone.region() {
            return self.compact_packed(at, region, job);
        }
        let mut pass = self.pass(at, job, only);
        let _inside = self.enter_reclaim();
        pass.run()
    }

    /// Creates a pass with the current settings.
    #[inline(never)]
    fn pass<'z>(&self, at: &'z At<'z, 'a, C>, job: &'z Job, only: Option<u8>) -> Pass<'z, 'a, C> {
        let unevictable = self.setting(|knobs| knobs.compact_unevictable_allowed);
        let stop_at = if job.proactive { super::stop_at(self.proactiveness()) } else { 0 } as u32;
        Pass::new(at, job, unevictable, stop_at, only)
    }

    /// Returns `Continue` if a run is worthwhile, else the result to report.
    #[inline(never)]
    fn begins(&self, at: &At<'_, 'a, C>, job: &Job) -> CompactResult {
        if self.must_not_move() {
            return CompactResult::Skipped;
        }
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

/// Returns whether a run went as far as it could without success (§7.6).
pub(super) fn is_failure(result: CompactResult) -> bool {
    matches!(result, CompactResult::Complete | CompactResult::PartialSkipped)
}
