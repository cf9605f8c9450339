//! Hooks behind a pointer. The core is compiled for each type of hooks, which takes seconds; tests
//! whose hooks need no other constants than these share one copy.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use lock_api::RawMutex;
use pageyard::poison::Corruption;
use pageyard::policy::Policy;
use pageyard::{
    Context, CpuId, Defences, Event, Gfp, Hooked, Hooks, NodeCaches, NodeId, NodeReclaim,
    NodeReclaimJob, Observer, Oom, Order, PageState, Pfn, Platform, Reclaim, ReclaimJob,
    Relocation, Report, Throttle, Yard, ZoneId, ZoneKind,
};

use super::{Chosen, Lock, Machine};

/// Hooks of any type. If `TIMED`, locks are timed and touches are reported.
pub(crate) struct Erased<T: ?Sized, const TIMED: bool = false>(Arc<T>);

/// Any hooks, for tests that use their yard on one thread.
pub(crate) type AnyHooks<'h> = Erased<dyn Methods + 'h>;

/// Any hooks, for tests with threads.
pub(crate) type SharedHooks<'h> = Erased<dyn Methods + Send + Sync + 'h>;

/// Any hooks, with locks that are timed and touches that are reported.
pub(crate) type TimedHooks<'h> = Erased<dyn Methods + Send + Sync + 'h, true>;

/// These hooks as [`AnyHooks`].
pub(crate) fn any_hooks<'h, H: Hooks + 'h>(hooks: H) -> AnyHooks<'h> {
    Erased(Arc::new(hooks))
}

/// These hooks as [`SharedHooks`].
pub(crate) fn shared_hooks<'h, H: Hooks + Send + Sync + 'h>(hooks: H) -> SharedHooks<'h> {
    Erased(Arc::new(hooks))
}

/// Hooks of type `H` as hooks of another type.
pub(crate) trait Erase<H>: Hooks {
    fn erase(hooks: Arc<H>) -> Self;
}

impl<'h, H: Hooks + 'h> Erase<H> for AnyHooks<'h> {
    fn erase(hooks: Arc<H>) -> Self {
        Erased(hooks)
    }
}

impl<'h, H: Hooks + Send + Sync + 'h, const TIMED: bool> Erase<H>
    for Erased<dyn Methods + Send + Sync + 'h, TIMED>
{
    fn erase(hooks: Arc<H>) -> Self {
        Erased(hooks)
    }
}

/// A yard and its hooks, whose type `H` the yard's code does not depend on.
pub(crate) struct On<'y, H, E: Erase<H> = AnyHooks<'static>, R: RawMutex = Lock, P: Policy = Chosen>
{
    yard: Yard<'y, Hooked<R, E, P>>,
    hooks: Arc<H>,
}

/// [`On`] hooks that threads share.
pub(crate) type Shared<'y, H, R = Lock, P = Chosen> = On<'y, H, SharedHooks<'static>, R, P>;

/// [`On`] hooks that see when locks are held and which frames are touched.
pub(crate) type Timed<'y, H, R = Lock, P = Chosen> = On<'y, H, TimedHooks<'static>, R, P>;

impl<'y, H, E: Erase<H>, R: RawMutex, P: Policy> On<'y, H, E, R, P> {
    /// The yard that `make` builds with these hooks.
    pub(crate) fn new(hooks: H, make: impl FnOnce(E) -> Yard<'y, Hooked<R, E, P>>) -> Self {
        let hooks = Arc::new(hooks);
        On { yard: make(E::erase(hooks.clone())), hooks }
    }

    /// The hooks, in place of the yard's method.
    pub(crate) fn hooks(&self) -> &H {
        &self.hooks
    }

    /// Keeps the yard as long as the test program runs.
    pub(crate) fn leak(self) -> &'static Self
    where
        Self: 'static,
    {
        Box::leak(Box::new(self))
    }
}

impl<'y, H, E: Erase<H>, R: RawMutex, P: Policy> Deref for On<'y, H, E, R, P> {
    type Target = Yard<'y, Hooked<R, E, P>>;

    fn deref(&self) -> &Self::Target {
        &self.yard
    }
}

impl<H, E: Erase<H>, R: RawMutex, P: Policy> DerefMut for On<'_, H, E, R, P> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.yard
    }
}

impl Machine {
    /// Calls `f` with a yard on these hooks, with all memory free.
    pub(crate) fn run_with<H, E: Erase<H>, R: RawMutex, P: Policy, T>(
        &self,
        hooks: H,
        policy: P,
        f: impl for<'y> FnOnce(&On<'y, H, E, R, P>) -> T,
    ) -> T {
        let mut maps = self.maps(policy.rules());
        f(&On::new(hooks, |hooks| self.yard(hooks, policy, &mut maps)))
    }
}

/// Declares the methods once: as a trait without constants, so that a pointer to it exists, and
/// forwarded from and to the core's traits.
macro_rules! methods {
    ($($trait:ident $(($constant:ident: $kind:ty = $value:expr))* {
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

        $(impl<T: Methods + ?Sized, const TIMED: bool> $trait for Erased<T, TIMED> {
            $(const $constant: $kind = $value;)*
            $(fn $method(&self $(, $arg: $type)*) $(-> $answer)? {
                T::$method(&self.0 $(, $arg)*)
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
    // Whether there are reports is chosen at run time.
    Reclaim (REPORT_ORDER: Option<Order> = Some(Order::HUGE)) {
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
    Observer (MEASURE_LOCKS: bool = TIMED) (SEES_TOUCHES: bool = TIMED) {
        sees_every_block() -> bool;
        touch(pfn: Pfn);
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
