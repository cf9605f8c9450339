//! The machine as the allocator's platform: every hook that the core calls costs virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use pageyard::poison::Corruption;
use pageyard::{
    CompactEvent, CpuId, Defences, Event, Gfp, Hooked, Hooks, NodeId, Observer, Order, Pfn,
    Platform, Reclaim, ReclaimJob, Relocation, Throttle, Yard, ZoneKind,
};

use crate::alarm::Thread;
use crate::cpu::Spent;
use crate::fiber;
use crate::lock::SimLock;
use crate::state::{Phase, State};
use crate::traffic::Touch;

/// How long a pause is, and how often a throttled task checks: the kernel's tick at 250 Hz.
const TICK_PS: u64 = 4_000_000_000;

/// The allocator's view of the machine. `E` provides the embedder's hooks: reclaim, ownership,
/// failures. Its clock, CPU and pauses are not used.
///
/// Priced operations:
/// - a request and a free, by [`Event::Alloc`] and [`Event::Free`], with the descriptor;
/// - a block that leaves or enters a zone's free lists, by [`Event::ZoneLocked`] and
///   [`Event::Drain`], with its descriptor and, when it enters, its buddy's;
/// - the descriptors whose links free lists use, by [`Observer::touch`];
/// - a zone lock, with two lines of the data it protects if it comes from another CPU;
/// - a hold of a zone lock without any of these events, priced as one block that enters;
/// - zeroing, filling and copying; scanning for a claim and by compaction.
///
/// On the packed engine a request and a free have costs of their own, and each access to memory that
/// CPUs share is priced by itself ([`LineName`](crate::LineName)).
#[derive(Debug)]
pub struct SimPlatform<E = ()> {
    state: Rc<RefCell<State>>,
    embedder: E,
    /// The yard is on the packed engine, which has no descriptors.
    pub(crate) is_packed: bool,
}

/// An allocator on the machine; `E` provides the embedder's hooks ([`SimPlatform`]).
pub type SimYard<'a, P, E = ()> = Yard<'a, Hooked<SimLock, SimPlatform<E>, P>>;

impl<E> SimPlatform<E> {
    pub(crate) fn new(state: Rc<RefCell<State>>, embedder: E) -> Self {
        SimPlatform { state, embedder, is_packed: false }
    }

    /// Returns the embedder's hooks.
    pub fn embedder(&self) -> &E {
        &self.embedder
    }

    /// Calls `f` if the machine is running.
    #[inline]
    fn running<T>(&self, f: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.state.borrow_mut();
        (state.phase == Phase::Running).then(|| f(&mut state))
    }

    /// A point at which a schedule may let other tasks go first.
    #[inline]
    fn point(&self) {
        if self.running(State::point) == Some(true) {
            fiber::suspend();
            self.running(State::point);
        }
    }

    /// Puts the task to sleep for a tick.
    fn sleep_a_tick(&self) {
        let slept = self.running(|s| {
            let until = s.clock() + TICK_PS;
            s.sleep_until(until);
        });
        if slept.is_some() {
            fiber::suspend();
        }
    }
}

impl State {
    #[inline]
    fn price(&mut self, event: Event, is_packed: bool) {
        let costs = &self.costs;
        match event {
            Event::Alloc { pfn, .. } => {
                let path = if is_packed { costs.packed_alloc_path } else { costs.alloc_path };
                // Included, but priced by `prepare`, which bulk requests call too.
                let page = if pfn.is_some() { costs.bulk_page } else { 0 };
                self.charge_own(Spent::Alloc, path.saturating_sub(page));
            }
            // The lines that this touches are priced one by one.
            Event::Free { .. } if is_packed => {
                self.charge_own(Spent::Alloc, costs.packed_free_path);
            }
            Event::Free { pfn, .. } => {
                self.charge_own(Spent::Alloc, costs.free_path);
                self.access(pfn.0);
            }
            Event::ZoneLocked { pfn, .. } => {
                self.charge_own(Spent::Alloc, costs.zone_take);
                self.cpus[self.cpu as usize].event_seen = true;
                self.access(pfn.0);
            }
            Event::Drain { pfn, order, .. } => {
                self.charge_own(Spent::Alloc, costs.zone_free);
                self.cpus[self.cpu as usize].event_seen = true;
                self.cpus[self.cpu as usize].freed = true;
                self.access(pfn.0);
                self.access(pfn.0 ^ u64::from(order.pages()));
            }
            Event::Fallback { .. } => {
                self.charge(Spent::Alloc, costs.scan_frame * u64::from(pageyard::PAGEBLOCK_PAGES));
            }
            Event::Compact(
                CompactEvent::IsolateMigratepages { scanned, .. }
                | CompactEvent::IsolateFreepages { scanned, .. },
            ) => self.charge(Spent::Alloc, costs.scan_frame * u64::from(scanned)),
            Event::FreeBatched { .. }
            | Event::Refill { .. }
            | Event::BulkFree { .. }
            | Event::High { .. }
            | Event::Compact(_) => {}
        }
    }
}

impl<E: Hooks> Platform for SimPlatform<E> {
    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(self.state.borrow().cpu)
    }

    fn now(&self) -> u64 {
        self.state.borrow().clock() / 1000
    }

    #[inline]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        self.running(|s| {
            s.charge_own(Spent::Alloc, s.costs.bulk_page);
            if !self.is_packed {
                s.access(pfn.0);
            }
            if gfp.contains(Gfp::ZERO) {
                s.touch_pages(pfn, order, Touch::Clear);
            }
        });
        self.embedder.prepare(pfn, order, gfp);
    }

    fn pause(&self) {
        self.sleep_a_tick();
    }
}

impl<E: Hooks> Reclaim for SimPlatform<E> {
    const REPORT_ORDER: Option<Order> = E::REPORT_ORDER;
    const RELOCATES: bool = E::RELOCATES;

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.point();
        let done = self.embedder.relocate(from, to, order);
        if done == Relocation::Moved {
            self.running(|s| {
                s.touch_pages(from, order, Touch::Use);
                s.touch_pages(to, order, Touch::Use);
            });
        }
        done
    }

    fn task(&self) -> Option<u64> {
        Some(self.state.borrow().task.into())
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        self.point();
        self.embedder.reclaim(job)
    }

    /// Checks once per tick of virtual time.
    fn throttle(&self, _: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        let until = most_ns.map(|ns| self.now().saturating_add(ns));
        while !enough() && until.is_none_or(|t| self.now() < t) {
            if self.running(|_| ()).is_none() {
                break;
            }
            self.sleep_a_tick();
        }
        Throttle::Done
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let again = self.embedder.keep_trying(order, tries);
        if again {
            self.sleep_a_tick();
        }
        again
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        self.running(|s| s.ring(node, Thread::Reclaim));
        self.embedder.wake_reclaim(node, order, highest_zone);
    }

    fn wake_compaction(&self, node: NodeId) {
        self.running(|s| s.ring(node, Thread::Compaction));
        self.embedder.wake_compaction(node);
    }

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.embedder.report_free(blocks)
    }

    pageyard::forward_hooks!(embedder: report_order is_plain context dirty_ok reclaimable node_reclaim node_caches is_unevictable out_of_memory);
}

impl<E: Hooks> Observer for SimPlatform<E> {
    /// Makes the core's own histograms of zone locks use virtual time.
    const MEASURE_LOCKS: bool = true;

    const SEES_TUNING: bool = E::SEES_TUNING;

    const SEES_EVERY_BLOCK: bool = E::SEES_EVERY_BLOCK;

    const SEES_TOUCHES: bool = true;

    #[inline]
    fn event(&self, cpu: CpuId, event: Event) {
        self.point();
        self.running(|s| s.price(event, self.is_packed));
        self.embedder.event(cpu, event);
    }

    #[inline]
    fn touch(&self, pfn: Pfn) {
        self.running(|s| {
            s.charge_own(Spent::Alloc, s.costs.link);
            s.access(pfn.0);
        });
        if E::SEES_TOUCHES {
            self.embedder.touch(pfn);
        }
    }

    pageyard::forward_hooks!(embedder: sees_every_block report warn);
}

impl<E: Hooks> Defences for SimPlatform<E> {
    fn zero(&self, pfn: Pfn, order: Order) -> bool {
        self.running(|s| s.touch_pages(pfn, order, Touch::Clear));
        if !self.embedder.zero(pfn, order) {
            self.embedder.prepare(pfn, order, Gfp::ZERO);
        }
        true
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        self.running(|s| s.touch_pages(pfn, order, Touch::Clear));
        self.embedder.poison(pfn, order);
    }

    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        self.running(|s| s.touch_pages(pfn, order, Touch::Use));
        self.embedder.check_poison(pfn, order)
    }

    pageyard::forward_hooks!(embedder: fail page_state unmap map);
}
