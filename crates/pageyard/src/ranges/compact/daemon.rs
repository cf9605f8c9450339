//! Background compaction of a node, in steps run by the embedder's thread (spec §7.8).

use super::Job;
use super::direct::is_failure;
use crate::allocator::yard::Yard;
use crate::base::sync::{AtomicU8, Ordering::Relaxed};
use crate::base::units::{MigrateType, NodeId, Order, ZoneKind};
use crate::embedder::compact_events::{CompactEvent, CompactResult, Mode};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::{Observer, Reclaim};
use crate::embedder::platform::Platform;
use crate::embedder::policy::Proposals;
use crate::zone::at::At;
use crate::zone::compaction_state::Count;
use crate::zone::state::Zone;

/// Interval between checks of a node's score, in nanoseconds.
const CHECK: u64 = 500_000_000;
/// The interval after a compaction that did not improve the score.
const CHECK_LATER: u64 = CHECK << 6;

/// The result of one step of background compaction.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let step = yard.compact_background(NodeId(0));
/// // Sleep this long, or until `wake_compaction` is called.
/// assert_eq!((step.worked, step.sleep), (false, Some(500_000_000)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Background {
    /// Whether there was work.
    pub worked: bool,
    /// Sleep at most this many nanoseconds, or until [woken](Reclaim::wake_compaction). `None`:
    /// until woken.
    pub sleep: Option<u64>,
}

fn kind(n: u8) -> ZoneKind {
    ZoneKind::ALL.get(usize::from(n)).copied().unwrap_or(ZoneKind::Device)
}

impl<'a, C: Config> Yard<'a, C> {
    /// Returns the zone that holds the node's state.
    fn daemon(&self, node: NodeId) -> Option<&'a Zone<'a, C::Lock>> {
        self.node(node)?.zones.first()
    }

    /// Asks background compaction of a node for a block of an order, on behalf of requests that may
    /// use its zones up to `highest` (§7.1). Pending requests are combined: the largest order and
    /// the lowest zone win. Wakes the embedder's thread if compaction is worthwhile. Order 0 does
    /// nothing.
    #[inline(never)]
    pub fn request_compaction(&self, node: NodeId, order: Order, highest: ZoneKind) {
        let Some(holder) = self.daemon(node).filter(|_| order != Order::ZERO) else { return };
        let daemon = &holder.daemon;
        let wanted = daemon.order.fetch_max(order.get(), Relaxed).max(order.get());
        daemon.highest.fetch_min(highest as u8, Relaxed);
        let cpu = self.hooks.cpu();
        let wanted = Order::new(wanted).unwrap_or(order);
        let worth =
            self.zones_of(node).filter(|z| z.is_populated() && z.kind <= highest).any(|z| {
                let at = self.at(z, cpu);
                at.is_some_and(|at| self.suits_background(&at, wanted, highest))
            });
        if worth {
            let event = CompactEvent::WakeupKcompactd { node, order: wanted, highest };
            self.hooks.event(cpu, Event::Compact(event));
            self.hooks.wake_compaction(node);
        }
    }

    /// Makes background compaction act on the score of every node now. Writing a value other than 0
    /// to `compaction_proactiveness` does the same (§10).
    pub fn trigger_proactive_compaction(&self) {
        for zone in self.zones {
            let first = self.daemon(zone.node).is_some_and(|holder| core::ptr::eq(holder, zone));
            if first {
                zone.daemon.triggered.store(true, Relaxed);
                self.hooks.wake_compaction(zone.node);
            }
        }
    }

    /// Runs one step of background compaction of a node (§7.8). It does what was [asked
    /// for](Yard::request_compaction), or, every 500 ms by [`Platform::now`], what the node's score
    /// requires. One thread of the embedder per node calls it repeatedly and sleeps in between as
    /// the result says.
    pub fn compact_background(&self, node: NodeId) -> Background {
        let Some(holder) = self.daemon(node) else {
            return Background { worked: false, sleep: None };
        };
        if self.policy.steers() {
            self.evacuate_regions(node);
        }
        let daemon = &holder.daemon;
        let now = self.hooks.now();
        let triggered = daemon.triggered.swap(false, Relaxed);
        if let Some(order) = Order::new(daemon.order.load(Relaxed)).filter(|&o| o != Order::ZERO)
            && !triggered
        {
            self.work(holder, order);
            return self.rest(holder, true, CHECK);
        }
        // The first step only sets the clock.
        let due = match daemon.check_at.load(Relaxed) {
            u64::MAX => false,
            at => now >= at,
        };
        if !triggered && !due {
            let left = match daemon.check_at.load(Relaxed) {
                u64::MAX => CHECK,
                at => at.saturating_sub(now),
            };
            return self.rest(holder, false, left);
        }
        if !self.wants_proactive(node) {
            return self.rest(holder, false, CHECK);
        }
        let before = self.fragmentation_score(node);
        let job = Job { mode: Mode::SyncLight, proactive: true, background: true, ..Job::ALL };
        self.compact_zones(self.zones_of(node), &job);
        let improved = self.fragmentation_score(node) < before;
        self.rest(holder, true, if improved { CHECK } else { CHECK_LATER })
    }

    /// Sets the time of the next check of the score and returns the sleep until then.
    #[inline(never)]
    fn rest(&self, holder: &Zone<'a, C::Lock>, worked: bool, sleep: u64) -> Background {
        let node = holder.node;
        holder.daemon.check_at.store(self.hooks.now().saturating_add(sleep), Relaxed);
        if holder.daemon.order.load(Relaxed) == 0 {
            let event = Event::Compact(CompactEvent::KcompactdSleep { node });
            self.hooks.event(self.hooks.cpu(), event);
        }
        let sleep = (self.proactiveness() != 0).then_some(sleep);
        Background { worked, sleep }
    }

    /// Compacts for the pending requests.
    fn work(&self, holder: &Zone<'a, C::Lock>, order: Order) {
        let (node, daemon) = (holder.node, &holder.daemon);
        let asked = daemon.highest.load(Relaxed);
        let (highest, cpu) = (kind(asked), self.hooks.cpu());
        let event = CompactEvent::KcompactdWake { node, order, highest };
        self.hooks.event(cpu, Event::Compact(event));
        holder.compaction.count(Count::DaemonWake, 1);
        // In ascending order of zones.
        for kind in ZoneKind::ALL.into_iter().filter(|&k| k <= highest) {
            let Some(zone) = self.zones_of(node).find(|z| z.kind == kind) else { continue };
            let Some(at) = self.at(zone, cpu) else { continue };
            if !zone.is_populated() || at.is_deferred(order) {
                continue;
            }
            let job = Job {
                order: Some(order),
                migrate_type: MigrateType::Unmovable,
                highest: kind,
                mode: Mode::SyncLight,
                whole: false,
                ignore_skips: false,
                background: true,
                ..Job::ALL
            };
            if at.suits(order, &job, self.extfrag_threshold()) != CompactResult::Continue {
                continue;
            }
            let result = self.compact_one(&at, &job);
            if result == CompactResult::Success {
                at.undefer(order, false);
            } else if is_failure(result) {
                // Pages on per-CPU lists may be all that is missing.
                self.drain_zone(&at);
                at.defer(order);
            }
        }
        // Keep a larger request that arrived meanwhile.
        let taken = |a: &AtomicU8, old: u8, new: u8| {
            let _ = a.compare_exchange(old, new, Relaxed, Relaxed);
        };
        taken(&daemon.order, order.get(), 0);
        taken(&daemon.highest, asked, ZoneKind::Device as u8);
    }

    fn suits_background(&self, at: &At<'_, 'a, C>, order: Order, highest: ZoneKind) -> bool {
        let job = Job { highest, ..Job::ALL };
        at.suits(order, &job, self.extfrag_threshold()) == CompactResult::Continue
    }
}
