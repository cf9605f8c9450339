//! The machine under the allocator.

use crate::base::gfp::Gfp;
use crate::base::units::{CpuId, Order, Pfn};

/// The machine under the allocator. Every embedder must implement it.
///
/// Every method has a default, which suits one CPU without a clock. Further hooks (reclaim, events,
/// defences) are in [`Reclaim`](crate::Reclaim), [`Observer`](crate::Observer) and
/// [`Defences`](crate::Defences).
///
/// [`cpu`](Platform::cpu) and [`now`](Platform::now) may be called with locks held. They must not
/// call back into the allocator and must not panic. The others are called without any lock of the
/// allocator. (While a [`CmaArea`](crate::CmaArea) migrates pages, the area's own lock is held.) If one
/// of those panics, the panic reaches the allocator's caller and the yard stays consistent.
///
/// ```
/// use pageyard::{CpuId, Platform};
///
/// struct Machine;
/// impl Platform for Machine {
///     fn cpu(&self) -> CpuId { CpuId(0) }
/// }
/// ```
pub trait Platform {
    /// Whether yards on this platform may be [initialised later](crate::Yard::deferred) (§8.2). If
    /// not, no request spends code or stack on it.
    const DEFERS: bool = true;

    /// Returns the CPU that executes the caller. The caller need not stay there: a thread that
    /// migrates meanwhile uses the other CPU's list, which is locked, and is only slower.
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// Returns the time in nanoseconds since an arbitrary start.
    fn now(&self) -> u64 {
        0
    }

    /// Waits about a tick while another task deals with the shortage.
    fn pause(&self) {
        core::hint::spin_loop();
    }

    /// Prepares a block for its caller: zeroes it if `gfp` contains [`ZERO`](Gfp::ZERO).
    ///
    /// `gfp` is the request's, except that the policy decides `ZERO` (§11.5): always set with
    /// `init_on_alloc`, never with `init_on_free`, because the memory is zero already. With
    /// `init_on_free`, this is called with `ZERO` alone when a block becomes free, unless
    /// [`Defences::zero`](crate::Defences::zero) has zeroed it.
    #[inline(always)]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let _ = (pfn, order, gfp);
    }

    /// Returns whether a request that is about to fail drains the per-CPU lists of all CPUs and tries
    /// once more. Linux does so only after reclaim has freed pages (§2.10), so the default is
    /// `false`. For an embedder without reclaim, pages on the lists of other CPUs are out of a
    /// request's reach unless this returns `true`. Requests that succeed before that never call it.
    ///
    /// The drain takes the lock of each CPU's lists in turn, also for a request that must not sleep:
    /// if interrupt handlers make requests, the locks must disable interrupts, as they must anyway.
    /// If another CPU is draining already, the request waits for its turn.
    #[inline(always)]
    fn drain_on_failure(&self) -> bool {
        false
    }
}

/// One CPU without a clock.
impl Platform for () {}

impl<T: Platform> Platform for &T {
    const DEFERS: bool = T::DEFERS;
    crate::forward_hooks!(@deref: cpu now pause prepare drain_on_failure);
}
