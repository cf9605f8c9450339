//! Forwarded hooks reach the wrapped hooks, even if those have other methods of the same name.

use std::cell::RefCell;

use pageyard::poison::Corruption;
use pageyard::{
    Context, CpuId, Defences, DrainReason, Event, Gfp, NodeCaches, NodeId, NodeReclaim,
    NodeReclaimJob, Observer, Oom, Order, PageState, Parts, Pfn, Platform, Reclaim, ReclaimJob,
    Relocation, Report, Throttle, ZoneId, ZoneKind,
};

/// Records which hooks were called.
#[derive(Default)]
struct Calls(RefCell<Vec<&'static str>>);

impl Calls {
    fn note<T>(&self, name: &'static str, answer: T) -> T {
        self.0.borrow_mut().push(name);
        answer
    }
}

impl Platform for Calls {
    fn cpu(&self) -> CpuId {
        self.note("cpu", CpuId(7))
    }
    fn now(&self) -> u64 {
        self.note("now", 7)
    }
    fn pause(&self) {
        self.note("pause", ());
    }
    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        self.note("prepare", ());
    }
    fn drain_on_failure(&self) -> bool {
        self.note("drain_on_failure", true)
    }
}

impl Reclaim for Calls {
    fn is_plain(&self, _: Gfp) -> bool {
        self.note("is_plain", false)
    }
    fn context(&self) -> Context {
        self.note("context", Context::default())
    }
    fn task(&self) -> Option<u64> {
        self.note("task", Some(7))
    }
    fn dirty_ok(&self, _: NodeId) -> bool {
        self.note("dirty_ok", false)
    }
    fn reclaim(&self, _: &ReclaimJob) -> u64 {
        self.note("reclaim", 7)
    }
    fn reclaimable(&self, _: ZoneId) -> u64 {
        self.note("reclaimable", 7)
    }
    fn node_reclaim(&self, _: &NodeReclaimJob) -> NodeReclaim {
        self.note("node_reclaim", NodeReclaim::Full)
    }
    fn node_caches(&self, _: &NodeReclaimJob) -> Option<NodeCaches> {
        self.note("node_caches", Some(NodeCaches { unmapped: 7, slab: 0 }))
    }
    fn throttle(&self, _: NodeId, _: Option<u64>, _: &dyn Fn() -> bool) -> Throttle {
        self.note("throttle", Throttle::Done)
    }
    fn out_of_memory(&self, _: &ReclaimJob) -> Oom {
        self.note("out_of_memory", Oom::Nothing)
    }
    fn keep_trying(&self, _: Order, _: u32) -> bool {
        self.note("keep_trying", true)
    }
    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.note("wake_reclaim", ());
    }
    fn wake_compaction(&self, _: NodeId) {
        self.note("wake_compaction", ());
    }
    fn relocate(&self, _: Pfn, _: Pfn, _: Order) -> Relocation {
        self.note("relocate", Relocation::Busy)
    }
    fn is_unevictable(&self, _: Pfn, _: Order) -> bool {
        self.note("is_unevictable", true)
    }
    fn report_order(&self) -> Option<Order> {
        self.note("report_order", Some(Order::HUGE))
    }
    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        self.note("report_free", true)
    }
}

impl Observer for Calls {
    fn sees_every_block(&self) -> bool {
        self.note("sees_every_block", true)
    }
    fn event(&self, _: CpuId, _: Event) {
        self.note("event", ());
    }
    fn touch(&self, _: Pfn) {
        self.note("touch", ());
    }
    fn report(&self, _: Report) {
        self.note("report", ());
    }
    fn warn(&self, _: Order, _: Gfp) {
        self.note("warn", ());
    }
}

impl Defences for Calls {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        self.note("fail", true)
    }
    fn page_state(&self, _: Pfn) -> PageState {
        self.note("page_state", PageState::UNUSED)
    }
    fn zero(&self, _: Pfn, _: Order) -> bool {
        self.note("zero", true)
    }
    fn poison(&self, _: Pfn, _: Order) {
        self.note("poison", ());
    }
    fn check_poison(&self, _: Pfn, _: Order) -> Option<Corruption> {
        self.note("check_poison", None)
    }
    fn unmap(&self, _: Pfn, _: Order) {
        self.note("unmap", ());
    }
    fn map(&self, _: Pfn, _: Order) {
        self.note("map", ());
    }
}

/// A wrapper that overrides nothing, around [`Parts`], whose own methods `reclaim`, `observer` and
/// `defences` replace a part.
struct Wrapper<'c> {
    inner: Parts<&'c Calls, &'c Calls, &'c Calls, &'c Calls>,
}

impl Platform for Wrapper<'_> {
    pageyard::forward_hooks!(inner: cpu now pause prepare drain_on_failure);
}

impl Reclaim for Wrapper<'_> {
    pageyard::forward_hooks!(inner: is_plain context task dirty_ok reclaim reclaimable node_reclaim
        node_caches throttle out_of_memory keep_trying wake_reclaim wake_compaction relocate
        is_unevictable report_order report_free);
}

impl Observer for Wrapper<'_> {
    pageyard::forward_hooks!(inner: sees_every_block event touch report warn);
}

impl Defences for Wrapper<'_> {
    pageyard::forward_hooks!(inner: fail page_state zero poison check_poison unmap map);
}

#[test]
fn every_hook_is_forwarded_once() {
    let calls = Calls::default();
    let inner = Parts::new(&calls).reclaim(&calls).observer(&calls).defences(&calls);
    let w = Wrapper { inner };
    let (pfn, o, node) = (Pfn(1), Order::ZERO, NodeId(0));
    let zone = ZoneId { node, kind: ZoneKind::Normal };
    let highest = ZoneKind::Normal;
    let job = ReclaimJob {
        node,
        allowed: pageyard::NodeMask::ALL,
        highest,
        order: o,
        gfp: Gfp::KERNEL,
        pages: 1,
        priority: ReclaimJob::FIRST_PRIORITY,
        may_write: true,
        may_swap: true,
    };
    let near = NodeReclaimJob {
        node,
        order: o,
        gfp: Gfp::KERNEL,
        pages: 1,
        may_write: false,
        may_unmap: false,
        min_unmapped: 0,
        min_slab: 0,
    };
    let event = Event::BulkFree { zone: highest, reason: DrainReason::Drain, pages: 1 };
    assert_eq!((w.cpu(), w.now()), (CpuId(7), 7));
    w.pause();
    w.prepare(pfn, o, Gfp::ZERO);
    assert!(!w.is_plain(Gfp::KERNEL) && !w.dirty_ok(node) && w.keep_trying(o, 1));
    let _ = w.context();
    assert_eq!((w.task(), w.reclaim(&job), w.reclaimable(zone)), (Some(7), 7, 7));
    assert_eq!(w.node_reclaim(&near), NodeReclaim::Full);
    assert!(w.node_caches(&near).is_some());
    assert_eq!(w.throttle(node, None, &|| true), Throttle::Done);
    assert_eq!(w.out_of_memory(&job), Oom::Nothing);
    w.wake_reclaim(node, o, highest);
    w.wake_compaction(node);
    assert_eq!(w.relocate(pfn, pfn, o), Relocation::Busy);
    assert!(w.is_unevictable(pfn, o) && w.report_free(&[]));
    assert!(w.report_order() == Some(Order::HUGE) && w.sees_every_block());
    w.event(CpuId(0), event);
    w.touch(pfn);
    w.warn(o, Gfp::KERNEL);
    assert!(w.fail(o, Gfp::KERNEL) && w.zero(pfn, o));
    assert_eq!(w.page_state(pfn), PageState::UNUSED);
    w.poison(pfn, o);
    assert!(w.check_poison(pfn, o).is_none());
    w.unmap(pfn, o);
    w.map(pfn, o);
    let mut seen = calls.0.take();
    seen.sort_unstable();
    let called = seen.len();
    seen.dedup();
    // All but `report`: only the allocator can make its argument.
    assert_eq!((called, seen.len()), (32, 32), "{seen:?}");
}
