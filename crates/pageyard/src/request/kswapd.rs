//! Background reclaim (spec §7.1, §7.2): when it is woken and what it does, as a state machine. The
//! embedder provides the thread and the memory to reclaim.

use core::fmt;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeMask;
use crate::base::stats::{MOST_THRESHOLD, stat_threshold};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{NodeId, Order, ZONE_KINDS, ZoneKind};
use crate::base::watermark::{HIGH, LOW, MIN};
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::policy::Proposals;
use crate::embedder::reclaim_job::{Mark, ReclaimJob, SWAP_CLUSTER_MAX};
use crate::request::alloc::Request;
use crate::zone::node::Node;
use crate::zone::state::{RECLAIM_ACTIVE, Zone};

const NAP_NS: u64 = 100_000_000;

impl<'a, C: Config> Yard<'a, C> {
    /// Wakes background reclaim once on every node that may serve the request (§2.10).
    #[inline(never)]
    pub(crate) fn wake_eligible(&self, req: &Request) {
        if !req.gfp.contains(Gfp::KSWAPD_RECLAIM) {
            return;
        }
        // With `defrag_mode`, reclaim restores whole pageblocks before types have to mix (B.1).
        let order = if self.policy.defragments() { req.order.max(Order::HUGE) } else { req.order };
        let mut last = None;
        for zone in self.zones_for(req).filter(|z| z.is_managed()) {
            if last != Some(zone.node) {
                last = Some(zone.node);
                self.wake_node(zone.node, order, req.gfp, req.highest);
            }
        }
    }

    /// Returns whether background reclaim has given up on a node (§7.1); `false` if the node does
    /// not exist.
    pub fn is_hopeless(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.wakeups.is_hopeless())
    }

    /// Wakes background reclaim of a node if there is work for it (§7.1).
    pub(crate) fn wake_node(&self, id: NodeId, order: Order, gfp: Gfp, highest: ZoneKind) {
        let Some(node) = self.node(id) else { return };
        let w = &node.wakeups;
        w.merge(order, highest);
        if w.is_at_work() {
            return;
        }
        if w.is_hopeless() || self.is_balanced(node, order, highest) && !is_boosted(node, highest) {
            // Memory may be sufficient but fragmented.
            if !gfp.contains(Gfp::DIRECT_RECLAIM) {
                self.request_compaction(id, order, highest);
            }
            return;
        }
        self.hooks.wake_reclaim(id, order, highest);
    }

    /// Resets the failure count after memory of the node was reclaimed, so that background reclaim
    /// tries again.
    pub(crate) fn note_reclaim(&self, node: NodeId) {
        if let Some(node) = self.node(node) {
            node.wakeups.failures.store(0, Relaxed);
        }
    }

    /// Whether any zone of the node up to `highest` passes the mark for this order (§7.1). A node
    /// without managed zones is balanced.
    fn is_balanced(&self, node: &Node<'a, C::Lock>, order: Order, highest: ZoneKind) -> bool {
        let mark = if self.knobs().memory_tiering { Mark::Promo } else { Mark::High };
        let mut managed = node.zones_up_to(highest).iter().rev().filter(|z| z.is_managed());
        let mut any = false;
        managed.any(|z| {
            any = true;
            if self.policy.defragments() && order > Order::ZERO {
                z.passes_in_pageblocks(mark, order, highest)
            } else {
                z.passes_safely(mark, order, highest)
            }
        }) || !any
    }

    /// Whether direct reclaimers of a node need not wait (§7.3): free memory exceeds half of the
    /// MIN watermarks, or waiting would not help.
    pub(crate) fn reserve_holds(&self, node: NodeId) -> bool {
        let Some(node) = self.node(node) else { return true };
        if node.wakeups.is_hopeless() {
            return true;
        }
        let low = || node.zones_up_to(ZoneKind::Normal).iter().filter(|z| z.is_managed());
        let reserve: u64 = low().map(|z| z.watermarks.effective(MIN)).sum();
        let free: u64 = low().map(|z| z.supply().free).sum();
        reserve == 0 || free > reserve / 2
    }

    /// Returns the background reclaimer of a node; `None` if the node does not exist. Use one at a
    /// time, in a thread that sleeps until [`wake_reclaim`](Reclaim::wake_reclaim).
    ///
    /// ```no_run
    /// # use pageyard::{Config, NodeId, ReclaimTask, Yard};
    /// # fn run<C: Config>(yard: &Yard<'_, C>,
    /// #     reclaim: impl Fn(&pageyard::ReclaimJob) -> u64,
    /// #     sleep: impl Fn(Option<u64>)) -> Option<()> {
    /// let mut kswapd = yard.kswapd(NodeId(0))?;
    /// let mut freed = 0;
    /// loop {
    ///     match kswapd.next(freed) {
    ///         ReclaimTask::Reclaim(job) => freed = reclaim(&job),
    ///         ReclaimTask::Nap(ns) => sleep(Some(ns)),
    ///         ReclaimTask::Sleep => sleep(None), // until it is woken
    ///     }
    /// }
    /// # }
    /// ```
    pub fn kswapd(&self, node: NodeId) -> Option<Kswapd<'_, 'a, C>> {
        let node = self.node(node)?;
        Some(Kswapd {
            yard: self,
            node,
            state: State::Asleep,
            order: Order::ZERO,
            asked: Order::ZERO,
            highest: ZoneKind::Normal,
            pressed: None,
        })
    }
}

fn is_boosted<R: RawMutex>(node: &Node<'_, R>, highest: ZoneKind) -> bool {
    node.zones_up_to(highest).iter().any(|z| z.watermarks.boost() > 0)
}

/// The next action of a background reclaimer.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::ReclaimTask;
///
/// // Nothing was asked for, so there is nothing to do.
/// let mut kswapd = yard.kswapd(NodeId(0)).unwrap();
/// assert!(!matches!(kswapd.next(0), ReclaimTask::Reclaim(_)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReclaimTask {
    /// Reclaim memory, then pass the number of freed pages to [`Kswapd::next`].
    Reclaim(ReclaimJob),
    /// Sleep for this many nanoseconds, or until woken.
    Nap(u64),
    /// Sleep until woken.
    Sleep,
}

/// The background reclaimer of one node, as a state machine ([`Yard::kswapd`]).
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let mut kswapd = yard.kswapd(NodeId(0)).unwrap();
/// let mut freed = 0;
/// loop {
///     match kswapd.next(freed) {
///         // Free up to `job.pages` pages.
///         ReclaimTask::Reclaim(job) => freed = 0,
///         ReclaimTask::Nap(_) | ReclaimTask::Sleep => break,
///     }
/// }
/// ```
pub struct Kswapd<'y, 'a, C: Config> {
    yard: &'y Yard<'a, C>,
    node: &'a Node<'a, C::Lock>,
    state: State,
    /// The order of the current run.
    order: Order,
    /// The requested order, for compaction. Stays the same when reclaim falls back to single pages.
    asked: Order,
    highest: ZoneKind,
    /// Whether this reclaimer has set the counter thresholds, and for memory pressure. A predecessor may have left
    /// either.
    pressed: Option<bool>,
}

impl<C: Config> fmt::Debug for Kswapd<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kswapd").finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum State {
    Asleep,
    /// Balanced; sleeps after the nap unless it is woken.
    Napping,
    Balancing(Run),
}

/// One run of reclaim.
#[derive(Debug)]
struct Run {
    priority: u8,
    /// The boost of each zone kind when the run began.
    boosts: [u64; ZONE_KINDS],
    /// Pages of boost still to reclaim; 0 once memory is short even without the boost.
    for_boost: u64,
    boost_only: bool,
    order: Order,
    tried: bool,
    freed: u64,
}

impl<'a, C: Config> Kswapd<'_, 'a, C> {
    /// Returns the next action. `freed` is the number of pages that the last
    /// [`ReclaimTask::Reclaim`] freed.
    pub fn next(&mut self, freed: u64) -> ReclaimTask {
        // Here and not where the marks are tested: requests do that too, far down their stack.
        self.yard.flush_queues();
        match &mut self.state {
            State::Balancing(run) => {
                run.account(freed);
                let stuck = run.boost_only && freed == 0;
                if stuck || run.priority == 0 {
                    return self.finish();
                }
                self.go_on()
            }
            State::Asleep | State::Napping => self.begin(),
        }
    }

    fn zones(&self) -> &'a [Zone<'a, C::Lock>] {
        self.node.zones_up_to(self.highest)
    }

    /// Starts a run, if woken or if the node is unbalanced after a nap.
    fn begin(&mut self) -> ReclaimTask {
        let napped = matches!(self.state, State::Napping);
        match self.node.wakeups.take() {
            Some((order, highest)) => {
                (self.order, self.asked, self.highest) = (order, order, highest);
            }
            // Not woken during the nap: sleep if the node is still balanced.
            None if napped => {
                if self.yard.is_balanced(self.node, self.order, self.highest) {
                    return self.sleep();
                }
            }
            None => return self.sleep(),
        }
        self.wake();
        let mut boosts = [0; ZONE_KINDS];
        for z in self.zones() {
            z.set_flag(RECLAIM_ACTIVE);
            if let Some(b) = boosts.get_mut(z.kind as usize) {
                *b = z.watermarks.boost();
            }
        }
        let for_boost = boosts.iter().sum();
        self.state = State::Balancing(Run {
            priority: ReclaimJob::FIRST_PRIORITY,
            boosts,
            for_boost,
            boost_only: for_boost > 0,
            order: self.order,
            tried: false,
            freed: 0,
        });
        self.go_on()
    }

    fn go_on(&mut self) -> ReclaimTask {
        self.yard.free_kept_of(self.zones());
        let State::Balancing(run) = &mut self.state else { return ReclaimTask::Sleep };
        let balanced = self.yard.is_balanced(self.node, run.order, self.highest);
        if !balanced && run.boost_only {
            // Memory is short even without the boost: reclaim without restrictions from here on.
            run.boost_only = false;
            run.for_boost = 0;
            run.priority = ReclaimJob::FIRST_PRIORITY;
        }
        if balanced && run.for_boost == 0 {
            return self.finish();
        }
        let managed = self.node.zones_up_to(self.highest).iter().filter(|z| z.is_managed());
        let goal: u64 = managed.map(|z| z.watermarks.effective(HIGH).max(SWAP_CLUSTER_MAX)).sum();
        let job = ReclaimJob {
            node: self.node.id,
            allowed: NodeMask::only(self.node.id),
            highest: self.highest,
            order: run.order,
            gfp: Gfp::KERNEL,
            pages: if run.boost_only {
                goal.min(run.for_boost.max(SWAP_CLUSTER_MAX))
            } else {
                goal
            },
            priority: run.priority,
            may_write: !run.boost_only,
            may_swap: !run.boost_only,
        };
        run.priority = run.priority.saturating_sub(1);
        run.tried = true;
        ReclaimTask::Reclaim(job)
    }

    /// Ends the run: lowers the boosts recorded at its start (§3.4), and naps if the node is
    /// balanced.
    fn finish(&mut self) -> ReclaimTask {
        let State::Balancing(run) = core::mem::replace(&mut self.state, State::Napping) else {
            return ReclaimTask::Sleep;
        };
        let failures = &self.node.wakeups.failures;
        if run.freed > 0 {
            failures.store(0, Relaxed);
        } else if run.tried {
            failures.fetch_add(1, Relaxed);
        }
        let mut boosted = false;
        for z in self.zones() {
            z.clear_flag(RECLAIM_ACTIVE);
            let seen = run.boosts.get(z.kind as usize).copied().unwrap_or(0);
            if seen > 0 {
                boosted = true;
                self.yard.lower_boost(z.id(), seen);
            }
        }
        if boosted {
            // A boost means that pageblocks were mixed: compact before it spreads.
            self.yard.request_compaction(self.node.id, Order::HUGE, self.highest);
        }
        if self.node.wakeups.is_hopeless() {
            self.before_sleep();
            return self.sleep();
        }
        // If reclaim gave up on the order, only single pages count.
        self.order = run.order;
        if !self.yard.is_balanced(self.node, self.order, self.highest) {
            self.node.wakeups.merge(self.order, self.highest);
        }
        if self.node.wakeups.is_asked() {
            return ReclaimTask::Nap(0);
        }
        self.before_sleep();
        ReclaimTask::Nap(if self.node.wakeups.lie_down() { NAP_NS } else { 0 })
    }

    fn wake(&mut self) {
        self.node.wakeups.at_work.store(true, Relaxed);
        self.press(true);
    }

    fn before_sleep(&self) {
        self.yard.forget_skip_hints(self.node.id);
        self.yard.request_compaction(self.node.id, self.asked, self.highest);
    }

    fn sleep(&mut self) -> ReclaimTask {
        self.state = State::Asleep;
        self.press(false);
        let w = &self.node.wakeups;
        if w.lie_down() || w.is_hopeless() { ReclaimTask::Sleep } else { ReclaimTask::Nap(0) }
    }

    /// Lowers the counter thresholds while awake, so that counters are accurate near the watermarks
    /// (§9.3).
    fn press(&mut self, pressure: bool) {
        if self.pressed.replace(pressure) != Some(pressure) {
            self.set_thresholds(pressure);
        }
    }

    fn set_thresholds(&self, pressure: bool) {
        let cpus = self.yard.cpus_up();
        for z in self.node.zones.iter().filter(|z| z.drift_mark.load(Relaxed) != 0) {
            let (w, normal) = (&z.watermarks, stat_threshold(cpus, z.managed.load(Relaxed)));
            let near = pressure_threshold(cpus, w.base(LOW).saturating_sub(w.base(MIN)));
            z.set_thresholds(match pressure {
                // The kernel's may be larger than the normal one, and requests then go past MIN. Ours is not.
                true if z.is_packed() => near.min(normal),
                true => near,
                false => normal,
            });
        }
    }
}

/// Ends the run, and wakes a successor if work is pending. Thresholds stay as they are (§9.3).
impl<C: Config> Drop for Kswapd<'_, '_, C> {
    fn drop(&mut self) {
        if matches!(self.state, State::Balancing(_)) {
            for z in self.zones() {
                z.clear_flag(RECLAIM_ACTIVE);
            }
        }
        if !self.node.wakeups.lie_down() && !self.node.wakeups.is_hopeless() {
            self.yard.hooks.wake_reclaim(self.node.id, self.order, self.highest);
        }
    }
}

impl Run {
    fn account(&mut self, freed: u64) {
        self.freed = self.freed.saturating_add(freed);
        self.for_boost = self.for_boost.saturating_sub(freed);
        // Enough pages for the order were freed; what is missing is contiguity, not memory.
        if self.order > Order::ZERO && self.freed >= 2 * u64::from(self.order.pages()) {
            self.order = Order::ZERO;
        }
        if freed > 0 {
            // A step that freed something is worth repeating before scanning harder.
            self.priority = (self.priority + 1).min(ReclaimJob::FIRST_PRIORITY);
        }
    }
}

/// Returns how far a CPU's part of a counter may drift before it is folded, while background
/// reclaim is awake (§9.3). `gap` is the distance from MIN to LOW, in pages.
pub(crate) fn pressure_threshold(cpus: u32, gap: u64) -> u32 {
    (gap / u64::from(cpus.max(1))).clamp(1, MOST_THRESHOLD.into()) as u32
}
