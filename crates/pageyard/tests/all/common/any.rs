//! Hooks behind a pointer. The core is compiled for each type of hooks, which takes seconds; tests
//! whose hooks need no other constants than these share one copy.

use pageyard::poison::Corruption;
use pageyard::{
    Context, CpuId, Defences, Event, Gfp, Hooks, NodeCaches, NodeId, NodeReclaim, NodeReclaimJob,
    Observer, Oom, Order, PageState, Pfn, Platform, Reclaim, ReclaimJob, Relocation, Report,
    Throttle, ZoneId, ZoneKind,
};

/// Any hooks, for tests that use their yard on one thread. The test keeps the hooks themselves.
#[derive(Clone, Copy)]
pub(crate) struct AnyHooks<'h, T: ?Sized = dyn Methods + 'h>(&'h T);

/// Any hooks, for tests with threads.
pub(crate) type SharedHooks<'h> = AnyHooks<'h, dyn Methods + Sync + 'h>;

/// These hooks as [`AnyHooks`].
pub(crate) fn any_hooks<H: Hooks>(hooks: &H) -> AnyHooks<'_> {
    AnyHooks(hooks)
}

/// These hooks as [`SharedHooks`].
pub(crate) fn shared_hooks<H: Hooks + Sync>(hooks: &H) -> SharedHooks<'_> {
    AnyHooks(hooks)
}

/// Declares the methods once: as a trait without constants, so that a pointer to it exists, and
/// forwarded from and to the core's traits.
macro_rules! methods {
    ($($trait:ident $(($constant:ident: $kind:ty = $value:expr))? {
        $($method:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?;)*
    })*) => {
        pub(crate) trait Methods {
            $($(fn $method(&self $(, $arg: $type)*) $(-> $answer)?;)*)*
        }

        impl<H: Hooks> Methods for H {
            $($(fn $method(&self $(, $arg: $type)*) $(-> $answer)? {
                <H as $trait>::$method(self $(, $arg)*)
            })*)*
        }

        $(impl<T: Methods + ?Sized> $trait for AnyHooks<'_, T> {
            $(const $constant: $kind = $value;)?
            $(fn $method(&self $(, $arg: $type)*) $(-> $answer)? {
                T::$method(self.0 $(, $arg)*)
            })*
        })*
    };
}

methods! {
    Platform {
        cpu() -> CpuId;
        now() -> u64;
        pause();
        prepare(pfn: Pfn, order: Order, gfp: Gfp);
        drain_on_failure() -> bool;
    }
    // The order is chosen at run time.
    Reclaim (REPORT_ORDER: Option<Order> = Some(Order::ZERO)) {
        report_order() -> Option<Order>;
        is_plain(gfp: Gfp) -> bool;
        context() -> Context;
        task() -> Option<u64>;
        dirty_ok(node: NodeId) -> bool;
        reclaim(job: &ReclaimJob) -> u64;
        reclaimable(zone: ZoneId) -> u64;
        node_reclaim(job: &NodeReclaimJob) -> NodeReclaim;
        node_caches(job: &NodeReclaimJob) -> Option<NodeCaches>;
        throttle(node: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle;
        out_of_memory(job: &ReclaimJob) -> Oom;
        keep_trying(order: Order, tries: u32) -> bool;
        wake_reclaim(node: NodeId, order: Order, highest: ZoneKind);
        wake_compaction(node: NodeId);
        relocate(from: Pfn, to: Pfn, order: Order) -> Relocation;
        is_unevictable(pfn: Pfn, order: Order) -> bool;
        report_free(blocks: &[(Pfn, Order)]) -> bool;
    }
    Observer {
        sees_every_block() -> bool;
        event(cpu: CpuId, event: Event);
        report(report: Report);
        warn(order: Order, gfp: Gfp);
    }
    Defences {
        fail(order: Order, gfp: Gfp) -> bool;
        page_state(pfn: Pfn) -> PageState;
        zero(pfn: Pfn, order: Order) -> bool;
        poison(pfn: Pfn, order: Order);
        check_poison(pfn: Pfn, order: Order) -> Option<Corruption>;
        unmap(pfn: Pfn, order: Order);
        map(pfn: Pfn, order: Order);
    }
}
