//! The configuration of an allocator, by types.

use core::marker::PhantomData;

use lock_api::RawMutex;

use crate::embedder::hooks::Hooks;
use crate::embedder::parts::Parts;
use crate::embedder::platform::Platform;
use crate::embedder::policy::{Linux612, Policy};

/// The configuration of an allocator: its lock type, its hooks and its policy.
///
/// [`Bare`] and [`Hooked`] are configurations with defaults. An embedder may also define its own:
///
/// ```
/// use pageyard::{AllocError, Config, Gfp, Order, Parts, Pfn, Platform, Yard};
///
/// struct Machine;
/// impl Platform for Machine {}
///
/// struct Kernel;
/// impl Config for Kernel {
///     type Lock = spin::mutex::SpinMutex<()>;
///     type Hooks = Parts<Machine>;
///     type Policy = pageyard::policy::Linux612;
/// }
/// fn largest(yard: &Yard<'_, Kernel>) -> Result<Pfn, AllocError> {
///     yard.alloc(Order::MAX, Gfp::KERNEL)
/// }
/// ```
pub trait Config {
    /// The lock of zones and per-CPU lists: any lock with an `impl lock_api::RawMutex`.
    type Lock: RawMutex;
    /// The hooks, including the platform.
    type Hooks: Hooks;
    /// The allocator's policy.
    type Policy: Policy;
}

/// A platform `E` with locks `L` and policy `P`, without further hooks.
///
/// ```
/// use pageyard::{Bare, CpuId, Platform, Yard};
///
/// struct Machine;
/// impl Platform for Machine {
///     fn cpu(&self) -> CpuId { CpuId(0) }
/// }
/// type Allocator<'a> = Yard<'a, Bare<spin::mutex::SpinMutex<()>, Machine>>;
/// ```
pub struct Bare<L, E, P = Linux612>(PhantomData<(L, E, P)>);

impl<L: RawMutex, E: Platform, P: Policy> Config for Bare<L, E, P> {
    type Lock = L;
    type Hooks = Parts<E>;
    type Policy = P;
}

/// Hooks `H`, which include the platform, with locks `L` and policy `P`.
///
/// ```
/// use pageyard::policy::PageChecked;
/// use pageyard::{Defences, Hooked, PageState, Parts, Pfn, Yard};
///
/// struct Pages;
/// impl Defences for Pages {
///     fn page_state(&self, pfn: Pfn) -> PageState { PageState::UNUSED }
/// }
/// type Checked<'a> =
///     Yard<'a, Hooked<spin::mutex::SpinMutex<()>, Parts<(), (), (), Pages>, PageChecked>>;
/// ```
pub struct Hooked<L, H, P = Linux612>(PhantomData<(L, H, P)>);

impl<L: RawMutex, H: Hooks, P: Policy> Config for Hooked<L, H, P> {
    type Lock = L;
    type Hooks = H;
    type Policy = P;
}
