//! What an embedder supplies. Every method has a default, so that a bare embedder works with
//! three lines (architecture §2).

use crate::events::Event;
use crate::gfp::Gfp;
use crate::units::{CpuId, NodeId, Order, Pfn, ZoneKind};

/// The machine under the allocator.
///
/// Methods are called from inside requests. [`event`](Platform::event) may be called with locks
/// held and must not call back into the allocator; the others are called without any lock.
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
    /// Whether waiting for the zone lock and holding it are timed with [`now`](Platform::now).
    /// Off, no clock is read.
    const MEASURE_LOCKS: bool = false;

    /// The CPU that executes the caller. It need not stay there: a thread that migrates meanwhile
    /// uses the other CPU's list, which is locked, and is only slower.
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// The time in nanoseconds, from any start.
    fn now(&self) -> u64 {
        0
    }

    /// Observes an event (spec §9.5). The default does nothing and compiles to nothing.
    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        let _ = (cpu, event);
    }

    /// A block is about to be handed to its caller: zero it where `gfp` says
    /// [`ZERO`](Gfp::ZERO), check or poison it where that is wanted.
    #[inline(always)]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let _ = (pfn, order, gfp);
    }

    /// Moves an allocated block of 2^`order` pages from `from` to `to` on behalf of compaction and
    /// contiguous ranges (§4.12, §7.4): copies its contents, and makes whoever owns `from` the
    /// owner of `to`. Asked only for blocks that were [said to be
    /// movable](crate::Yard::set_movable).
    ///
    /// The allocator's view of who owns what may be a moment old. So the embedder looks the block
    /// up among its own, under its own lock, and refuses what it no longer has, or has at another
    /// order. After [`Moved`](Relocation::Moved), nobody but the allocator touches or frees `from`,
    /// and `to` is freed like any other block. Otherwise `to` stays the allocator's.
    ///
    /// Called without any lock, and may sleep. The default refuses.
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let _ = (from, to, order);
        Relocation::Refused
    }

    /// Background reclaim of the node has work (spec §7.1): free memory fell below a watermark
    /// for requests of `order` that may use zones up to `highest_zone`. Called again and again
    /// while that lasts.
    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        let _ = (node, order, highest_zone);
    }
}

/// What became of a block that was to move ([`Platform::relocate`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// Its contents and its owner are at the new place; the old one is the allocator's.
    Moved,
    /// Not now: somebody is using it. Another try may succeed.
    Busy,
    /// It cannot move, or it has no owner any more.
    Refused,
}

/// One CPU, nobody watching.
impl Platform for () {}

/// A platform by reference is the same platform.
impl<T: Platform> Platform for &T {
    const MEASURE_LOCKS: bool = T::MEASURE_LOCKS;

    #[inline]
    fn cpu(&self) -> CpuId {
        (**self).cpu()
    }

    fn now(&self) -> u64 {
        (**self).now()
    }

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        (**self).event(cpu, event);
    }

    #[inline(always)]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        (**self).prepare(pfn, order, gfp);
    }

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        (**self).relocate(from, to, order)
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        (**self).wake_reclaim(node, order, highest_zone);
    }
}
