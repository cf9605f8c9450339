//! The slow path (spec §2.9, §2.10): the steps of a request after its first attempt failed, until
//! it is served or fails.
//!
//! The kernel's slow path may loop forever while its parts claim progress. Here every loop is
//! bounded. A request gives up once its reclaims claim to have freed as many pages as its zones
//! manage, or once they claimed progress for more than [`MAX_IN_VAIN`] rounds without more free
//! pages.

use crate::allocator::vm_events::VmEvent;
use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::reclaimers::Inside;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{COSTLY_ORDER, MigrateType, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::base::watermark::{HIGH, MIN};
use crate::embedder::compact_events::{CompactResult, Priority};
use crate::embedder::config::Config;
use crate::embedder::context::TaskFlags;
use crate::embedder::hooks::{Observer, Reclaim};
use crate::embedder::platform::Platform;
use crate::embedder::policy::Proposals;
use crate::embedder::reclaim_job::{Oom, ReclaimJob, Throttle};
use crate::request::alloc::Request;
use crate::request::compact_retry::{Retries, should_retry};

/// Limit on consecutive reclaims without progress (§2.10).
const MAX_RECLAIM_RETRIES: u32 = 16;
/// Limit on calls to the out-of-memory hook, including waits while another task calls it. Each
/// follows [`MAX_RECLAIM_RETRIES`] rounds without progress.
const MAX_OOM_ROUNDS: u16 = 1000;
/// Limit on consecutive reclaims that claim progress without raising the number of free pages.
/// Other requests may take the freed pages, but not repeatedly exactly as many.
const MAX_IN_VAIN: u16 = 64;
/// Failures are reported at most once per interval.
const WARN_INTERVAL_NS: u64 = 10_000_000_000;

/// The outcome of a step.
enum Step {
    /// The request is served.
    Served(Pfn),
    /// Continue with the next step.
    On,
    /// Start again from *retry*.
    Retry,
    /// Start again from *restart*.
    Restart,
    /// Go to *nopage*.
    NoPage,
    /// The request failed.
    Failed,
}

/// What to try next.
enum Left {
    Nothing,
    /// An attempt with what magazines kept.
    Kept,
    /// Serve this captured block.
    Captured(Pfn),
    Attempt,
}

/// State of one request on the slow path.
pub(crate) struct SlowPath<'r> {
    /// Borrowed: a copy would take stack space below every step.
    req: &'r mut Request,
    flags: AllocFlags,
    /// Zonelist generation when the request last started. `req.context` holds the cpuset cookie of
    /// the same moment.
    zonelists: u64,
    /// Whether the last direct reclaim freed pages.
    progress: bool,
    /// Pages that all direct reclaims claimed to have freed.
    claimed: u32,
    /// Free pages after the last direct reclaim.
    free: u32,
    /// Consecutive direct reclaims that claimed progress without raising `free`.
    in_vain: u16,
    /// Consecutive reclaims without progress.
    no_progress_loops: u32,
    compacted: CompactResult,
    /// What to try after the last direct compaction, or drain of magazines.
    left: Left,
    /// Whether the request compacted before it reclaimed.
    compacted_first: bool,
    retries: Retries,
    /// Rounds of the loop since the start, or since the embedder last chose to keep trying.
    rounds: u32,
    oom_rounds: u16,
    /// Whether the request has drained the per-CPU lists as its last step.
    drained: bool,
    tries: u32,
}

/// Runs steps in order until one returns something other than `Step::On`. Steps are called by name
/// because the stack use of calls through pointers cannot be read from the machine code.
macro_rules! run_steps {
    ($yard:ident, $c:ident: $($call:ident),+) => {{
        let mut step = Step::On;
        $(if let Step::On = step {
            step = $yard.$call(&mut $c);
        })+
        step
    }};
}

impl<'a, C: Config> Yard<'a, C> {
    /// Runs the slow path (§2.10). Inlined, so that a request has a single frame below all steps.
    #[inline(always)]
    pub(crate) fn slow_path(&self, req: &mut Request) -> Option<Pfn> {
        let mut c = SlowPath {
            req,
            flags: AllocFlags::empty(),
            zonelists: 0,
            progress: false,
            claimed: 0,
            free: 0,
            in_vain: 0,
            no_progress_loops: 0,
            compacted: CompactResult::Skipped,
            left: Left::Nothing,
            compacted_first: false,
            retries: Retries::default(),
            rounds: 0,
            oom_rounds: 0,
            drained: false,
            tries: 0,
        };
        let mut step = Step::Restart;
        loop {
            step = match step {
                Step::Served(pfn) => return Some(pfn),
                Step::Failed => return None,
                Step::Restart => run_steps!(
                    self, c: restart, wake_reclaim, attempt_now, free_kept, attempt_with_kept,
                    compact_first, try_compacted, unless_hopeless
                ),
                Step::On | Step::Retry => run_steps!(
                    self, c: unless_changed, wake_reclaim, use_reserves, attempt_now, free_kept,
                    attempt_with_kept, may_reclaim, reclaim_directly, compact_directly,
                    try_compacted, may_retry, worth_reclaiming_again, worth_compacting_again,
                    mix_types, unless_changed, out_of_memory
                ),
                Step::NoPage => {
                    run_steps!(self, c: unless_changed, drain_and_retry, no_page)
                }
            };
            c.rounds = c.rounds.saturating_add(1);
        }
    }

    /// *restart*: resets counters, records cookies, computes the flags of §2.9.
    #[inline(never)]
    fn restart(&self, c: &mut SlowPath<'_>) -> Step {
        c.progress = false;
        c.no_progress_loops = 0;
        c.compacted = CompactResult::Skipped;
        c.compacted_first = false;
        c.retries = Retries::default();
        c.req.context = self.hooks.context();
        c.zonelists = self.zonelists(c.req.gfp);
        c.req.spread_dirty = false;
        c.req.nodes = c.req.asked;
        let slow = AllocFlags::slow(c.req.gfp, c.req.order.get(), c.req.migrate_type);
        c.flags = slow | AllocFlags::CPUSET;
        if self.policy.defragments() {
            c.flags |= AllocFlags::NOFRAGMENT;
        }
        let context = &c.req.context;
        if c.req.gfp.contains(Gfp::DIRECT_RECLAIM) {
            if context.is(TaskFlags::REALTIME) && !context.is(TaskFlags::INTERRUPT) {
                c.flags |= AllocFlags::MIN_RESERVE;
            }
        } else if c.req.gfp.contains(Gfp::HIGH) {
            c.flags.remove(AllocFlags::CPUSET);
        }
        let sane = context.cpuset.is_none_or(|set| {
            let within = c.req.nodes.and(set.allowed);
            !c.req.gfp.contains(Gfp::HARDWALL) || self.zones_in(c.req, within).next().is_some()
        });
        if sane && self.preferred(c.req).is_some() { Step::On } else { Step::NoPage }
    }

    /// Wakes background reclaim.
    #[inline(never)]
    fn wake_reclaim(&self, c: &mut SlowPath<'_>) -> Step {
        self.wake_eligible(c.req);
        Step::On
    }

    /// The attempt of *restart*, at the MIN watermark, and that of *retry*.
    #[inline(always)]
    fn attempt_now(&self, c: &mut SlowPath<'_>) -> Step {
        self.try_for(c.req, c.flags)
    }

    /// On the packed engine, drains the magazines and depots of zones that lack nothing else: before
    /// memory is reclaimed, and for requests that must not wait too.
    #[inline(never)]
    fn free_kept(&self, c: &mut SlowPath<'_>) -> Step {
        if self.is_packed() {
            let order = c.req.order.get();
            for zone in self.zones_for(c.req) {
                let mark = zone.watermarks.effective(c.flags.mark());
                if c.req.may_use(zone.node, c.flags)
                    && zone.lacks_kept(order, mark, c.req.highest, c.flags)
                    && let Some(at) = self.at(zone, c.req.cpu)
                {
                    at.free_kept();
                    c.left = Left::Kept;
                }
            }
        }
        Step::On
    }

    /// The attempt after [`free_kept`](Self::free_kept).
    #[inline(never)]
    fn attempt_with_kept(&self, c: &mut SlowPath<'_>) -> Step {
        if !matches!(c.left, Left::Kept) {
            return Step::On;
        }
        c.left = Left::Nothing;
        self.try_for(c.req, c.flags)
    }

    /// Outlined: inlined, the frames of some steps grow, below which all of an attempt lies.
    #[inline(never)]
    fn try_for(&self, req: &Request, flags: AllocFlags) -> Step {
        match self.attempt(req, flags) {
            Some(pfn) => {
                if flags.contains(AllocFlags::NO_WATERMARKS) {
                    self.mark_pfmemalloc(pfn, req.order);
                }
                Step::Served(pfn)
            }
            None => Step::On,
        }
    }

    /// Whether a request may compact: its order is above 0, it allows I/O, which moving pages may need, and
    /// there is a hook that moves them.
    fn can_compact(req: &Request) -> bool {
        <C::Hooks as Reclaim>::RELOCATES && req.gfp.contains(Gfp::IO) && req.order > Order::ZERO
    }

    /// Compacts first if the order is costly, or above 0 with a type other than MOVABLE. Such
    /// requests are more likely to need compaction than reclaim.
    #[inline(always)]
    fn compact_first(&self, c: &mut SlowPath<'_>) -> Step {
        let costly = c.req.order.get() > COSTLY_ORDER;
        let stays = c.req.migrate_type != MigrateType::Movable;
        let wanted = costly || c.req.order > Order::ZERO && stays;
        let entitled = self.reserve_flags(c.req).is_some();
        let may_sleep = c.req.gfp.contains(Gfp::DIRECT_RECLAIM);
        if !wanted || !may_sleep || !Self::can_compact(c.req) || entitled {
            return Step::On;
        }
        c.compacted_first = true;
        c.retries.priority = Priority::Async;
        self.compact_directly(c)
    }

    /// Goes to *nopage* for a costly NORETRY request if its first compaction shows that reclaim is
    /// unlikely to help. Resets the compaction retries of other requests.
    fn unless_hopeless(&self, c: &mut SlowPath<'_>) -> Step {
        if !c.compacted_first {
            return Step::On;
        }
        if c.req.order.get() > COSTLY_ORDER && c.req.gfp.contains(Gfp::NORETRY) {
            let hopeless = matches!(c.compacted, CompactResult::Skipped | CompactResult::Deferred);
            // A single node cannot provide more without much effort.
            if hopeless || c.req.gfp.contains(Gfp::THISNODE) {
                return Step::NoPage;
            }
        } else {
            c.retries = Retries::default();
        }
        Step::On
    }

    /// Runs one direct compaction at the current priority (§7.3–7.7). A captured block is only
    /// recorded, so that the attempt that follows does not run on this frame.
    #[inline(never)]
    fn compact_directly(&self, c: &mut SlowPath<'_>) -> Step {
        c.compacted = CompactResult::Skipped;
        if Self::can_compact(c.req) {
            let done = self.compact_direct(c.req, c.flags, c.retries.priority);
            c.compacted = done.result;
            c.left = match done.captured {
                Some(pfn) => Left::Captured(pfn),
                None if done.result > CompactResult::Deferred => Left::Attempt,
                None => Left::Nothing,
            };
        }
        Step::On
    }

    /// Serves the captured block, or makes an attempt if a compaction did anything.
    #[inline(never)]
    fn try_compacted(&self, c: &mut SlowPath<'_>) -> Step {
        let step = match core::mem::replace(&mut c.left, Left::Nothing) {
            // `Kept` was used up by the step after the one that set it.
            Left::Nothing | Left::Kept => return Step::On,
            Left::Captured(pfn) => Step::Served(pfn),
            Left::Attempt => self.try_for(c.req, c.flags),
        };
        let served = match step {
            Step::Served(pfn) => self.locate(pfn).map(|(zone, _)| zone),
            _ => None,
        };
        self.note_compacted(served, c.req.order, c.req.cpu);
        step
    }

    /// *Cookies*: restarts if the zones that the request may use have changed. Also refreshes the
    /// task flags: the caller may have become a victim of the OOM killer.
    #[inline(never)]
    fn unless_changed(&self, c: &mut SlowPath<'_>) -> Step {
        let context = self.hooks.context();
        c.req.context.flags = context.flags;
        let changed =
            context.cookie != c.req.context.cookie || self.zonelists(c.req.gfp) != c.zonelists;
        if changed && u64::from(c.rounds) <= self.managed(c.req) {
            return Step::Restart;
        }
        Step::On
    }

    /// *retry*: switches a request that is entitled to reserves to those reserves.
    #[inline(never)]
    fn use_reserves(&self, c: &mut SlowPath<'_>) -> Step {
        let reserves = self.reserve_flags(c.req);
        if let Some(flags) = reserves {
            // These replace the other flags: neither NON_BLOCK nor HIGHATOMIC is kept.
            c.flags = flags | AllocFlags::of(c.req.gfp, c.req.migrate_type);
        }
        if reserves.is_some() || !c.flags.contains(AllocFlags::CPUSET) {
            c.req.nodes = c.req.reachable();
        }
        Step::On
    }

    fn reserve_flags(&self, req: &Request) -> Option<AllocFlags> {
        if req.gfp.contains(Gfp::NOMEMALLOC) {
            return None;
        }
        if req.gfp.contains(Gfp::MEMALLOC) || self.frees_memory(req) {
            return Some(AllocFlags::NO_WATERMARKS);
        }
        let context = &req.context;
        let victim = context.is(TaskFlags::OOM_VICTIM) && !context.is(TaskFlags::INTERRUPT);
        victim.then_some(AllocFlags::OOM)
    }

    /// Whether the caller is reclaiming and allocates memory to do so. In an interrupt, a reclaim
    /// of the interrupted task does not count.
    fn frees_memory(&self, req: &Request) -> bool {
        let context = &req.context;
        context.is(TaskFlags::MEMALLOC)
            || !context.is(TaskFlags::INTERRUPT) && self.reclaimers.has(self.task())
    }

    /// Whether a request must not reclaim: it may not sleep, or comes from inside a reclaim hook.
    pub(crate) fn must_not_reclaim(&self, gfp: Gfp) -> bool {
        !gfp.contains(Gfp::DIRECT_RECLAIM) || self.reclaimers.has(self.task())
    }

    /// Goes to *nopage* if the request may not sleep or comes from a caller that is reclaiming.
    /// With `defrag_mode`, such a request mixes types first.
    #[inline(never)]
    fn may_reclaim(&self, c: &mut SlowPath<'_>) -> Step {
        if c.req.gfp.contains(Gfp::DIRECT_RECLAIM) && !self.frees_memory(c.req) {
            return Step::On;
        }
        match self.mix_types(c) {
            Step::On => Step::NoPage,
            retry => retry,
        }
    }

    /// Retries with leave to mix types in a pageblock, once per restart, if the policy has put that
    /// off until now (B.1).
    #[inline(always)]
    fn mix_types(&self, c: &mut SlowPath<'_>) -> Step {
        if !self.policy.defragments() || !c.flags.contains(AllocFlags::NOFRAGMENT) {
            return Step::On;
        }
        c.flags.remove(AllocFlags::NOFRAGMENT);
        Step::Retry
    }

    /// Runs direct reclaim (§7.3). If it freed pages, makes an attempt, then unreserves highatomic
    /// blocks, drains the per-CPU lists and makes another attempt.
    #[inline(never)]
    fn reclaim_directly(&self, c: &mut SlowPath<'_>) -> Step {
        let freed = self.reclaim(c.req);
        c.progress = freed > 0;
        c.claimed = c.claimed.saturating_add(u32::try_from(freed).unwrap_or(u32::MAX));
        if freed == 0 {
            return Step::On;
        }
        if let served @ Step::Served(_) = self.try_for(c.req, c.flags) {
            return served;
        }
        self.unreserve_for(c.req, false);
        self.drain_all(None);
        self.note_free(c);
        self.try_for(c.req, c.flags)
    }

    /// Records whether claimed progress shows in the free counters. Outlined to keep its locals off
    /// the stack below the attempts.
    #[inline(never)]
    fn note_free(&self, c: &mut SlowPath<'_>) {
        let free: u64 = self.zones_for(c.req).map(|z| z.supply_exact().free).sum();
        let free = u32::try_from(free).unwrap_or(u32::MAX);
        c.in_vain = if free > c.free { 0 } else { c.in_vain.saturating_add(1) };
        c.free = free;
    }

    /// Whether claims of progress are still credible.
    fn is_credible(&self, c: &SlowPath<'_>) -> bool {
        c.in_vain <= MAX_IN_VAIN
            && c.claimed < u32::MAX
            && u64::from(c.claimed) <= self.managed(c.req)
    }

    /// Outlined to keep its locals off the stack below the attempts that follow.
    #[inline(never)]
    fn reclaim(&self, req: &Request) -> u64 {
        let Some(preferred) = self.preferred(req) else { return 0 };
        if self.throttle(req, preferred.node) == Throttle::Killed {
            // Counts as progress, so that a dying task does not trigger another OOM kill.
            return 1;
        }
        self.count_event(VmEvent::allocstall(req.highest), 1);
        let job = ReclaimJob::direct(req, preferred.node);
        let freed = self.as_reclaimer(|| self.hooks.reclaim(&job));
        if freed > 0 {
            self.note_reclaim(preferred.node);
        }
        freed
    }

    /// Calls a hook that frees, counts or moves memory. Requests from inside the hook are
    /// recognized by their task and never call another such hook.
    #[inline(always)]
    pub(crate) fn as_reclaimer<T>(&self, hook: impl FnOnce() -> T) -> T {
        let _inside = self.enter_reclaim();
        hook()
    }

    /// Like [`as_reclaimer`](Self::as_reclaimer), until the guard is dropped.
    #[inline(always)]
    pub(crate) fn enter_reclaim(&self) -> Inside<'_> {
        Inside::new(&self.reclaimers, self.task())
    }

    /// Returns how many pages of a zone the embedder could free.
    fn reclaimable(&self, zone: ZoneId) -> u64 {
        self.as_reclaimer(|| self.hooks.reclaimable(zone))
    }

    /// Throttles a user task while at most half of the MIN watermarks is free (§7.3).
    fn throttle(&self, req: &Request, node: NodeId) -> Throttle {
        if !req.context.is(TaskFlags::USER) || self.reserve_holds(node) {
            return Throttle::Done;
        }
        self.wake_node(node, req.order, req.gfp, ZoneKind::Normal);
        let second = (!req.gfp.contains(Gfp::FS)).then_some(1_000_000_000);
        self.hooks.throttle(node, second, &|| self.reserve_holds(node))
    }

    /// Goes to *nopage* for NORETRY requests, and for costly requests unless they are RETRY_MAYFAIL
    /// and may compact.
    fn may_retry(&self, c: &mut SlowPath<'_>) -> Step {
        let costly = c.req.order.get() > COSTLY_ORDER;
        let tries_hard = c.req.gfp.contains(Gfp::RETRY_MAYFAIL) && Self::can_compact(c.req);
        if c.req.gfp.contains(Gfp::NORETRY) || costly && !tries_hard {
            return Step::NoPage;
        }
        Step::On
    }

    /// *Reclaim retry*: retries if the reclaimable pages could satisfy the request.
    #[inline(never)]
    fn worth_reclaiming_again(&self, c: &mut SlowPath<'_>) -> Step {
        if c.progress && c.req.order.get() <= COSTLY_ORDER {
            c.no_progress_loops = 0;
        } else {
            c.no_progress_loops = c.no_progress_loops.saturating_add(1);
        }
        if self.is_credible(c) {
            let hopeful = c.no_progress_loops <= MAX_RECLAIM_RETRIES
                && self.zones_for(c.req).any(|zone| {
                    let more = self.reclaimable(zone.id());
                    let mut supply = zone.supply_exact();
                    supply.free = supply.free.saturating_add(more);
                    let (order, mark) = (c.req.order.get(), zone.watermarks.effective(MIN));
                    let has_block = || zone.has_block(order, c.flags);
                    zone.watermarks.ok(order, mark, c.req.highest, c.flags, supply, has_block)
                });
            if hopeful {
                self.hooks.pause();
                return Step::Retry;
            }
            if self.unreserve_for(c.req, true) {
                return Step::Retry;
            }
        }
        Step::On
    }

    /// Returns the managed pages of the request's zones.
    fn managed(&self, req: &Request) -> u64 {
        self.zones_for(req).map(|z| z.managed.load(Relaxed)).sum()
    }

    /// *Compact retry* (§7.6).
    #[inline(never)]
    fn worth_compacting_again(&self, c: &mut SlowPath<'_>) -> Step {
        let Request { order, highest, .. } = *c.req;
        let more = |zone| self.reclaimable(zone);
        let suitable = || self.zones_for(c.req).any(|z| z.could_be_compacted(order, highest, more));
        if c.progress
            && Self::can_compact(c.req)
            && self.is_credible(c)
            && should_retry(order, c.compacted, &mut c.retries, suitable)
        {
            return Step::Retry;
        }
        Step::On
    }

    /// *OOM*: calls the out-of-memory hook, one task at a time.
    #[inline(never)]
    fn out_of_memory(&self, c: &mut SlowPath<'_>) -> Step {
        c.oom_rounds = c.oom_rounds.saturating_add(1);
        if c.oom_rounds > MAX_OOM_ROUNDS {
            return Step::NoPage;
        }
        let Some(_busy) = self.oom.try_take() else {
            self.hooks.pause();
            return Self::after_progress(c);
        };
        // Another task may have freed memory in the meantime, so try once more at the high
        // watermark.
        let gfp = c.req.gfp;
        c.req.gfp = gfp.difference(Gfp::DIRECT_RECLAIM) | Gfp::HARDWALL;
        let high = AllocFlags::from_bits_retain(HIGH as u32) | AllocFlags::CPUSET;
        let last = self.try_for(c.req, high);
        c.req.gfp = gfp;
        if let served @ Step::Served(_) = last {
            return served;
        }
        if c.req.context.is(TaskFlags::DUMPING)
            || c.req.order.get() > COSTLY_ORDER
            || c.req.gfp.intersects(Gfp::RETRY_MAYFAIL | Gfp::THISNODE)
            || c.req.highest < ZoneKind::Normal
        {
            return Step::NoPage;
        }
        // Without FS, this request cannot reclaim what the victim would free; other tasks can.
        let killed = !c.req.gfp.contains(Gfp::FS) || self.ask_to_kill(c.req) == Oom::Progress;
        if !killed && !c.req.gfp.contains(Gfp::NOFAIL) {
            return Step::NoPage;
        }
        if c.req.gfp.contains(Gfp::NOFAIL) {
            for cpuset in [AllocFlags::CPUSET, AllocFlags::empty()] {
                let all = AllocFlags::NO_WATERMARKS | cpuset;
                if let served @ Step::Served(_) = self.try_for(c.req, all) {
                    return served;
                }
            }
        }
        let victim = c.req.context.is(TaskFlags::OOM_VICTIM);
        if victim && (c.flags.contains(AllocFlags::OOM) || c.req.gfp.contains(Gfp::NOMEMALLOC)) {
            return Step::NoPage;
        }
        if !killed {
            return Step::NoPage;
        }
        // The victim's memory is reclaimable: reset the progress checks.
        (c.claimed, c.in_vain) = (0, 0);
        Self::after_progress(c)
    }

    /// Outlined to keep its locals off the stack below the attempts around it.
    #[inline(never)]
    fn ask_to_kill(&self, req: &Request) -> Oom {
        let node = self.preferred(req).map_or(req.node, |z| z.node);
        let job = ReclaimJob::direct(req, node);
        self.as_reclaimer(|| self.hooks.out_of_memory(&job))
    }

    fn after_progress(c: &mut SlowPath<'_>) -> Step {
        c.no_progress_loops = 0;
        Step::Retry
    }

    /// The last step on a platform that [asks for it](Platform::drain_on_failure): drains the per-CPU
    /// lists and makes one more attempt.
    #[inline(never)]
    fn drain_and_retry(&self, c: &mut SlowPath<'_>) -> Step {
        if c.drained || !self.hooks.drain_on_failure() {
            return Step::On;
        }
        c.drained = true;
        // Zone by zone, each of which waits for a drain by another CPU: that may have passed the CPU
        // that has the pages.
        for zone in self.zones {
            self.drain_all(Some(zone.id()));
        }
        self.try_for(c.req, c.flags)
    }

    /// *nopage*: a NOFAIL request continues as long as the embedder chooses to; other requests fail
    /// with a warning.
    #[inline(never)]
    fn no_page(&self, c: &mut SlowPath<'_>) -> Step {
        if c.req.gfp.contains(Gfp::NOFAIL | Gfp::DIRECT_RECLAIM) {
            // Does not go further into the reserves: tasks that free memory need the rest.
            for cpuset in [AllocFlags::CPUSET, AllocFlags::empty()] {
                let flags = AllocFlags::MIN_RESERVE | cpuset;
                if let served @ Step::Served(_) = self.try_for(c.req, flags) {
                    return served;
                }
            }
            c.tries = c.tries.saturating_add(1);
            if self.hooks.keep_trying(c.req.order, c.tries) {
                c.rounds = 0;
                (c.claimed, c.in_vain) = (0, 0);
                c.oom_rounds = 0;
                return Step::Retry;
            }
        }
        if let Some(preferred) = self.preferred(c.req) {
            preferred.failures.fetch_add(1, Relaxed);
        }
        if !c.req.gfp.contains(Gfp::NOWARN) {
            self.warn(c.req);
        }
        Step::Failed
    }

    fn warn(&self, req: &Request) {
        let now = self.hooks.now();
        let last = self.warned.load(Relaxed);
        let due = last == 0 || now.saturating_sub(last) >= WARN_INTERVAL_NS;
        if due && self.warned.compare_exchange(last, now.max(1), Relaxed, Relaxed).is_ok() {
            self.hooks.warn(req.order, req.gfp);
        }
    }

    fn mark_pfmemalloc(&self, pfn: Pfn, order: Order) {
        if let Some((zone, idx)) = self.locate(pfn) {
            if let Some(region) = zone.region() {
                return region.set_pfmemalloc(idx, order.get());
            }
            zone.map.frame(idx).change_allocated(order.get(), State::with_pfmemalloc);
        }
    }

    /// Returns whether an allocated block was taken from the last reserves (§2.11). Such a block
    /// should only be used to free memory.
    pub fn is_pfmemalloc(&self, pfn: Pfn) -> bool {
        self.locate(pfn).is_some_and(|(zone, idx)| {
            if let Some(region) = zone.region() {
                return region.is_pfmemalloc(idx);
            }
            let state = zone.map.frame(idx).state();
            state.kind() == Kind::Allocated && state.is_pfmemalloc()
        })
    }
}

#[cfg(test)]
mod tests;
