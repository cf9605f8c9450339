//! Hooks made of up to four values.

use crate::base::units::Order;
use crate::embedder::hooks::{Defences, Observer, Reclaim};
use crate::embedder::platform::Platform;

/// The hooks of an allocator, one value for each group. An omitted group is `()`.
///
/// To override one group of existing hooks, name those hooks for the other groups.
///
/// ```
/// use pageyard::{CpuId, Event, Observer, Parts, Platform};
///
/// struct Machine;
/// impl Platform for Machine {}
/// struct Log;
/// impl Observer for Log {
///     fn event(&self, cpu: CpuId, event: Event) { /* … */ }
/// }
/// let hooks: Parts<Machine, (), Log> = Parts::new(Machine).observer(Log);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<E, R = (), O = (), D = ()> {
    /// The machine.
    pub platform: E,
    /// Hooks that free and move memory.
    pub reclaim: R,
    /// Hooks that observe the allocator.
    pub observer: O,
    /// Hooks that find mistakes and faults.
    pub defences: D,
}

impl<E: Platform> Parts<E> {
    /// Returns a platform without further hooks.
    pub const fn new(platform: E) -> Self {
        Parts { platform, reclaim: (), observer: (), defences: () }
    }
}

/// A platform without further hooks.
impl<E: Platform> From<E> for Parts<E> {
    fn from(platform: E) -> Self {
        Parts::new(platform)
    }
}

impl<E, R, O, D> Parts<E, R, O, D> {
    /// Replaces the hooks that free and move memory.
    pub fn reclaim<T: Reclaim>(self, reclaim: T) -> Parts<E, T, O, D> {
        let Parts { platform, observer, defences, .. } = self;
        Parts { platform, reclaim, observer, defences }
    }

    /// Replaces the hooks that observe the allocator.
    pub fn observer<T: Observer>(self, observer: T) -> Parts<E, R, T, D> {
        let Parts { platform, reclaim, defences, .. } = self;
        Parts { platform, reclaim, observer, defences }
    }

    /// Replaces the hooks that find mistakes and faults.
    pub fn defences<T: Defences>(self, defences: T) -> Parts<E, R, O, T> {
        let Parts { platform, reclaim, observer, .. } = self;
        Parts { platform, reclaim, observer, defences }
    }
}

impl<E: Platform, R, O, D> Platform for Parts<E, R, O, D> {
    const DEFERS: bool = E::DEFERS;
    crate::forward_hooks!(platform: cpu now pause prepare drain_on_failure);
}

impl<E, R: Reclaim, O, D> Reclaim for Parts<E, R, O, D> {
    const REPORT_ORDER: Option<Order> = R::REPORT_ORDER;
    const RELOCATES: bool = R::RELOCATES;
    crate::forward_hooks!(reclaim: is_plain context task dirty_ok reclaim reclaimable node_reclaim node_caches throttle
        out_of_memory keep_trying wake_reclaim wake_compaction relocate is_unevictable report_order report_free);
}

impl<E, R, O: Observer, D> Observer for Parts<E, R, O, D> {
    const MEASURE_LOCKS: bool = O::MEASURE_LOCKS;
    const SEES_TUNING: bool = O::SEES_TUNING;
    const SEES_EVERY_BLOCK: bool = O::SEES_EVERY_BLOCK;
    const SEES_TOUCHES: bool = O::SEES_TOUCHES;
    crate::forward_hooks!(observer: sees_every_block event touch report warn);
}

impl<E, R, O, D: Defences> Defences for Parts<E, R, O, D> {
    crate::forward_hooks!(defences: fail page_state zero poison check_poison unmap map);
}
