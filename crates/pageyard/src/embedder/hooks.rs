//! What an embedder may supply beyond the [`Platform`]: reclaim, observation, defences.

use crate::base::gfp::Gfp;
use crate::base::units::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};
use crate::embedder::checks::PageState;
use crate::embedder::context::Context;
use crate::embedder::events::Event;
use crate::embedder::platform::Platform;
use crate::embedder::poison::Corruption;
use crate::embedder::reclaim_job::{
    NodeCaches, NodeReclaim, NodeReclaimJob, Oom, ReclaimJob, Throttle,
};
use crate::embedder::report::Report;

/// All hooks that an allocator calls: [`Platform`] and the three groups of hooks.
///
/// Implemented for every type that implements these four traits. [`Parts`](crate::Parts) combines
/// up to four values.
///
/// Hooks that may be called with locks held (those of [`Observer`] but [`warn`](Observer::warn), [`Platform::cpu`],
/// [`Platform::now`] and [`Defences::page_state`]) must not call back into the allocator and must
/// not panic. If another hook panics, the panic reaches the allocator's caller and the yard stays
/// consistent. A failed request holds no block, and a block whose free did not finish still belongs
/// to its owner. Isolation is undone, and a block that was to be migrated stays in place. With a
/// policy that fills free memory, a block that is being allocated or freed may be
/// [out of use](crate::OutOfUse).
///
/// ```
/// use pageyard::{Gfp, Hooks, Order};
///
/// /// Whether a request would be made to fail.
/// fn fails(hooks: &impl Hooks) -> bool {
///     hooks.fail(Order::ZERO, Gfp::KERNEL)
/// }
/// assert!(!fails(&()));
/// ```
pub trait Hooks: Platform + Reclaim + Observer + Defences {}

impl<T: Platform + Reclaim + Observer + Defences> Hooks for T {}

/// Hooks that free and move memory under a shortage, and that decide which task may use how much.
///
/// All are called without any lock of the allocator. While a [`CmaArea`](crate::CmaArea) migrates pages,
/// [`relocate`](Reclaim::relocate), and all hooks that a request may call, are called with the area's own
/// lock held.
///
/// [`reclaim`](Reclaim::reclaim),
/// [`reclaimable`](Reclaim::reclaimable), [`node_reclaim`](Reclaim::node_reclaim),
/// [`node_caches`](Reclaim::node_caches), [`out_of_memory`](Reclaim::out_of_memory),
/// [`relocate`](Reclaim::relocate) and [`is_unevictable`](Reclaim::is_unevictable) may allocate.
/// Their requests may use all reserves and call none of these hooks again.
/// [`report_free`](Reclaim::report_free) may allocate too. The others must not: their requests
/// could recurse into them without end.
///
/// ```
/// use pageyard::{Gfp, Order, Reclaim, ReclaimJob};
///
/// struct Cache;
/// impl Reclaim for Cache {
///     fn reclaim(&self, job: &ReclaimJob) -> u64 {
///         // Free up to `job.pages` pages of the cache here.
///         0
///     }
/// }
/// ```
pub trait Reclaim {
    /// Free blocks of this order and above are reported to [`report_free`](Reclaim::report_free)
    /// (§9.9); smaller ones by [`report_free_pieces`](crate::Yard::report_free_pieces) alone. `None`
    /// compiles reporting out.
    const REPORT_ORDER: Option<Order> = None;

    /// Whether [`relocate`](Reclaim::relocate) can move blocks. If not, no request compacts, as in a
    /// kernel without compaction, nor spends code on it.
    const RELOCATES: bool = true;

    /// Returns the order from which on free blocks are reported: the same at every call, and not
    /// below [`REPORT_ORDER`](Reclaim::REPORT_ORDER). `None` reports nothing. For hooks that choose
    /// at run time; the default is the constant.
    #[inline(always)]
    fn report_order(&self) -> Option<Order> {
        Self::REPORT_ORDER
    }

    /// Returns whether the caller's context neither restricts a request with these flags nor
    /// entitles it to more. Such a caller has no set of nodes, no scope that removes flags and no
    /// limit on dirty pages. Called first, on every request. Only if it returns false,
    /// [`context`](Reclaim::context) and [`dirty_ok`](Reclaim::dirty_ok) are called before the
    /// first attempt. The default compiles to nothing.
    #[inline(always)]
    fn is_plain(&self, gfp: Gfp) -> bool {
        let _ = gfp;
        true
    }

    /// Returns the context of the current request (§2.7, §2.9). Called by requests that are not
    /// [plain](Reclaim::is_plain) or not served at once.
    fn context(&self) -> Context {
        Context::default()
    }

    /// Returns the identity of the task that executes the caller, so that requests made by a
    /// reclaimer are recognised. Any number of tasks may reclaim at once; with more than 64,
    /// another task may be mistaken for one of them. `u64::MAX` and the number before it may count as
    /// one task. The default, `None`, uses the CPU as the task.
    /// Override it if tasks can switch while one of them reclaims.
    fn task(&self) -> Option<u64> {
        None
    }

    /// Returns whether a node may take more pages that will be written to (§2.8 step 2;
    /// [`Gfp::WRITE`]).
    fn dirty_ok(&self, node: NodeId) -> bool {
        let _ = node;
        true
    }

    /// Frees memory for a request that could not be served (§7.3): about
    /// [`job.pages`](ReclaimJob::pages) pages, from the zones it names. Returns the number of pages
    /// freed. May sleep.
    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        let _ = job;
        0
    }

    /// Returns how many pages of a zone reclaim could still free (§2.10). Decides whether another
    /// round is worth it.
    fn reclaimable(&self, zone: ZoneId) -> u64 {
        let _ = zone;
        0
    }

    /// Frees pages of a near node before a farther one is used (§2.8 step 6): only clean and
    /// unmapped pages, unless the job allows more. Called only if `zone_reclaim_mode` is set and
    /// the node has more freeable pages than it must keep.
    fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
        let _ = job;
        NodeReclaim::NoScan
    }

    /// Returns what [`node_reclaim`](Reclaim::node_reclaim) could free for this job, including what
    /// the node must keep. With the default, `None`, that hook must enforce the limits itself.
    fn node_caches(&self, job: &NodeReclaimJob) -> Option<NodeCaches> {
        let _ = job;
        None
    }

    /// Makes a user's task wait until background reclaim has freed memory (§7.3): until `enough()`
    /// returns true, and at most `most_ns` nanoseconds if given.
    fn throttle(&self, node: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        let _ = (node, most_ns, enough);
        Throttle::Done
    }

    /// Makes a task give up its memory because nothing could be reclaimed (§2.10). Never called
    /// concurrently.
    fn out_of_memory(&self, job: &ReclaimJob) -> Oom {
        let _ = job;
        Oom::Nothing
    }

    /// A request that must not fail ([`Gfp::NOFAIL`]) has failed `tries` times. Waits for memory
    /// and returns whether to try again. By default the request fails like any other.
    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let _ = (order, tries);
        false
    }

    /// Reports that background reclaim of the node has work (spec §7.1). Free memory fell below a
    /// watermark for requests of `order` that may use zones up to `highest_zone`. Called repeatedly
    /// while that lasts, unless a [`Kswapd`](crate::Kswapd) is running.
    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        let _ = (node, order, highest_zone);
    }

    /// Reports that background compaction of the node has work (spec §7.8). Its thread must call
    /// [`Yard::compact_background`](crate::Yard::compact_background).
    fn wake_compaction(&self, node: NodeId) {
        let _ = node;
    }

    /// Moves an allocated block of 2^`order` pages from `from` to `to` for compaction and
    /// contiguous ranges (§4.12, §7.4). Copies its contents and makes the owner of `from` the owner
    /// of `to`. Called only for blocks that were [declared movable](crate::Yard::set_movable).
    ///
    /// The allocator's view of ownership may be out of date. The embedder must look the block up
    /// under its own lock, and refuse a block that it no longer holds or holds at another order.
    /// After [`Moved`](Relocation::Moved), only the allocator touches or frees `from`, and `to` is
    /// freed like any other block. Otherwise, also if this panics, `to` stays with the allocator:
    /// the change of owner must be the last step.
    ///
    /// May sleep. Must not bring memory [online](crate::Yard::online) or
    /// [offline](crate::Yard::offline): only one task does that at a time. The default refuses.
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let _ = (from, to, order);
        Relocation::Refused
    }

    /// Returns whether reclaim must leave a movable block alone, for example because its owner has
    /// locked it in memory. Asked by compaction if `compact_unevictable_allowed` is 0 (§10), which
    /// then does not move such blocks. Contiguous ranges and offlining do not ask.
    fn is_unevictable(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        false
    }

    /// Reports free blocks that have been idle for a while (§9.9): a balloon returns their memory
    /// to the host, a host runtime to the operating system. None of them is allocated until this
    /// returns. Returns whether the report was accepted; if not, the blocks are reported again
    /// later.
    ///
    /// Called by [`Yard::report_free_blocks`](crate::Yard::report_free_blocks),
    /// [`report_free_pages`](crate::Yard::report_free_pages), and, with smaller blocks,
    /// [`report_free_pieces`](crate::Yard::report_free_pieces).
    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        let _ = blocks;
        false
    }
}

/// Observes the allocator. All methods except [`warn`](Observer::warn) may be called with locks
/// held: they must not call back into the allocator and must not panic. [`warn`](Observer::warn) is
/// called without any lock.
///
/// ```
/// use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use pageyard::{CpuId, Event, Observer};
///
/// struct Requests(AtomicU64);
/// impl Observer for Requests {
///     fn event(&self, _: CpuId, event: Event) {
///         if let Event::Alloc { .. } = event {
///             self.0.fetch_add(1, Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer {
    /// Whether waiting for the zone lock and holding it are timed with [`now`](Platform::now).
    /// If not, no clock is read.
    const MEASURE_LOCKS: bool = false;

    /// Whether [`event`](Observer::event) receives every change of `high` ([`Event::High`]), which
    /// `History` of `pageyard-report` needs. If not, such events cost nothing.
    const SEES_TUNING: bool = false;

    /// Whether [`event`](Observer::event) must receive every allocated block, which a record of
    /// owners needs (§9.7). Bulk requests send no event for single pages; with this on, they serve
    /// one page like an ordinary request (§6.1).
    const SEES_EVERY_BLOCK: bool = false;

    /// Returns whether [`event`](Observer::event) must receive every allocated block. For hooks
    /// that choose at run time; the default is [`SEES_EVERY_BLOCK`](Observer::SEES_EVERY_BLOCK).
    #[inline(always)]
    fn sees_every_block(&self) -> bool {
        Self::SEES_EVERY_BLOCK
    }

    /// Whether [`touch`](Observer::touch) receives the descriptors that list operations access. If
    /// not, it compiles to nothing.
    const SEES_TOUCHES: bool = false;

    /// Observes an event (spec §9.5). The default does nothing and compiles to nothing.
    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        let _ = (cpu, event);
    }

    /// Observes an access to the descriptor of a frame that no event names. Such a frame heads a
    /// block that is unlinked or put on a free list, a neighbour of it there, or a block that is
    /// gathered before a bulk free (§5.12a). For simulators that price memory accesses.
    #[inline(always)]
    fn touch(&self, pfn: Pfn) {
        let _ = pfn;
    }

    /// Observes what a check found, for a log. In each zone, bad pages are reported at most 60
    /// times a minute (§11.2) and damaged patterns 10 times in 5 seconds (§11.4), by
    /// [`now`](Platform::now).
    fn report(&self, report: Report) {
        let _ = report;
    }

    /// Observes that a request without [`NOWARN`](Gfp::NOWARN) failed. At most one call in ten
    /// seconds by [`now`](Platform::now).
    fn warn(&self, order: Order, gfp: Gfp) {
        let _ = (order, gfp);
    }
}

/// Finds mistakes and faults, for policies that enable the checks (§11).
///
/// All methods except [`page_state`](Defences::page_state) are called without any lock.
///
/// ```
/// use pageyard::{Defences, PageState, Pfn};
///
/// struct Pages;
/// impl Defences for Pages {
///     fn page_state(&self, pfn: Pfn) -> PageState {
///         // Look the page up in the embedder's own descriptors here.
///         PageState::UNUSED
///     }
/// }
/// ```
pub trait Defences {
    /// Returns whether this request must fail, to test its caller (§11.7). Called at the entry of
    /// every request, but not for contiguous ranges (§4.12). [`Faults`](crate::Faults) decides by a
    /// plan. The default compiles to nothing.
    #[inline(always)]
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        let _ = (order, gfp);
        false
    }

    /// Returns the state of a page in the embedder's own descriptors, for policies that check pages
    /// (§11.1). Called for every page of a block when it is freed and when it is allocated. May be
    /// called with locks held, so it must not call back into the allocator and must not panic.
    #[inline(always)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        let _ = pfn;
        PageState::UNUSED
    }

    /// Zeroes a block that becomes free, for policies with `init_on_free` (§11.5). Returns whether
    /// it did. If not, as by default, [`prepare`](Platform::prepare) is called with `ZERO`.
    fn zero(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        false
    }

    /// Fills a block that becomes free with [`POISON_BYTE`](crate::poison::POISON_BYTE), for
    /// policies that poison (§11.4).
    fn poison(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }

    /// Checks that a block about to be allocated still holds the pattern that
    /// [`poison`](Defences::poison) wrote; [`poison::inspect`](crate::poison::inspect) does so for
    /// bytes.
    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        let _ = (pfn, order);
        None
    }

    /// Unmaps a block that becomes free, for policies with `unmap` (§11.6), so that an access to it
    /// faults.
    fn unmap(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }

    /// Maps a block that is about to be allocated. It need not be a block that was unmapped as a
    /// whole.
    fn map(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }
}

/// The result of moving a block ([`Reclaim::relocate`]).
///
/// ```
/// use pageyard::{Order, Pfn, Reclaim, Relocation};
///
/// struct Owners;
/// impl Reclaim for Owners {
///     fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
///         // Look the owner of `from` up, copy the block, and make `to` the owner's.
///         Relocation::Refused
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relocation {
    /// Contents and owner are at the new place. The old block belongs to the allocator.
    Moved,
    /// The block is in use at the moment. Another attempt may succeed.
    Busy,
    /// The block cannot move, or no longer has an owner.
    Refused,
}

/// No hook frees or moves anything.
impl Reclaim for () {}
/// Observes nothing.
impl Observer for () {}
/// Checks nothing.
impl Defences for () {}

impl<T: Reclaim> Reclaim for &T {
    const REPORT_ORDER: Option<Order> = T::REPORT_ORDER;
    const RELOCATES: bool = T::RELOCATES;
    crate::forward_hooks!(@deref: is_plain context task dirty_ok reclaim reclaimable node_reclaim node_caches throttle
        out_of_memory keep_trying wake_reclaim wake_compaction relocate is_unevictable report_order report_free);
}

impl<T: Observer> Observer for &T {
    const MEASURE_LOCKS: bool = T::MEASURE_LOCKS;
    const SEES_TUNING: bool = T::SEES_TUNING;
    const SEES_EVERY_BLOCK: bool = T::SEES_EVERY_BLOCK;
    const SEES_TOUCHES: bool = T::SEES_TOUCHES;
    crate::forward_hooks!(@deref: sees_every_block event touch report warn);
}

impl<T: Defences> Defences for &T {
    crate::forward_hooks!(@deref: fail page_state zero poison check_poison unmap map);
}
