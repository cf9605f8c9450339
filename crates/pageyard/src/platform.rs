//! What an embedder supplies. Every method has a default, so that a bare embedder works with
//! three lines (architecture §2).

use crate::checks::PageState;
use crate::context::Context;
use crate::events::Event;
use crate::gfp::Gfp;
use crate::poison::Corruption;
use crate::reclaim::{NodeCaches, NodeReclaim, NodeReclaimJob, Oom, ReclaimJob, Throttle};
use crate::report::Report;
use crate::units::{CpuId, NodeId, Order, Pfn, ZoneId, ZoneKind};

/// The machine under the allocator.
///
/// Methods are called from inside requests. [`cpu`](Platform::cpu), [`now`](Platform::now),
/// [`event`](Platform::event), [`touch`](Platform::touch), [`page_state`](Platform::page_state) and
/// [`report`](Platform::report) may be called with locks
/// held and must not call back into the allocator; the others are called without any lock.
/// [`relocate`](Platform::relocate) must not bring memory or take it away
/// ([`online`](crate::Yard::online), [`offline`](crate::Yard::offline)): one does that at a time.
///
/// Hooks that free, count or move memory may allocate: [`reclaim`](Platform::reclaim),
/// [`reclaimable`](Platform::reclaimable), [`node_reclaim`](Platform::node_reclaim),
/// [`node_caches`](Platform::node_caches), [`out_of_memory`](Platform::out_of_memory),
/// [`relocate`](Platform::relocate) and [`is_unevictable`](Platform::is_unevictable). Their requests
/// may use all reserves and call none of these hooks again. [`report_free`](Platform::report_free)
/// may allocate too. The other hooks must not: a request that they make may call them again without
/// end.
///
/// Hooks that may be called with locks held must not panic. Where another one does, the panic goes
/// through to the allocator's caller and the yard stays consistent: a request has taken nothing, a
/// block whose free did not end is still its owner's, what was isolated is so no longer, and what was
/// to move is where it was. With a policy that fills free memory, a block that was on its way from or
/// to a caller may be [out of use](crate::OutOfUse).
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

    /// Whether [`event`](Platform::event) is told of every change of `high`
    /// ([`Event::High`]), as a [`History`](crate::History) needs it. Off, nothing is done for it.
    const SEES_TUNING: bool = false;
    /// Free blocks of this order and above are reported to
    /// [`report_free`](Platform::report_free) (§9.9). Off, nothing is done for it.
    const REPORT_ORDER: Option<Order> = None;
    /// Whether [`event`](Platform::event) must tell of every block that is handed out, as a record
    /// of owners needs it (§9.7). Bulk requests tell of no single page; with this on, they serve
    /// one page by the ordinary way (§6.1).
    const SEES_EVERY_BLOCK: bool = false;

    /// Whether [`touch`](Platform::touch) is told of the descriptors that list operations use. Off,
    /// nothing is done for it.
    const SEES_TOUCHES: bool = false;

    /// Whether yards on this platform may be [initialised later](crate::Yard::deferred) (§8.2). Off,
    /// no request spends code or stack on it.
    const DEFERS: bool = true;

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

    /// The caller reads or writes the descriptor of this frame, beyond those that events name: a
    /// block that is unlinked or put on a free list, its neighbours there, and blocks that are
    /// gathered before a bulk free (§5.12a). For platforms that price memory; locks may be held.
    #[inline(always)]
    fn touch(&self, pfn: Pfn) {
        let _ = pfn;
    }

    /// A block is about to be handed to its caller: zero it where `gfp` says
    /// [`ZERO`](Gfp::ZERO).
    ///
    /// `gfp` is the request's, but for `ZERO`, which says what the policy decided (§11.5): always
    /// there with `init_on_alloc`, never with `init_on_free`, since the memory is zero already.
    #[inline(always)]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let _ = (pfn, order, gfp);
    }

    /// Whether this request is to fail, to see how its caller takes it (§11.7). Asked at the entry
    /// of every request; contiguous ranges (§4.12) are none. See [`Faults`](crate::Faults) for a way to decide; the default compiles to
    /// nothing.
    #[inline(always)]
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        let _ = (order, gfp);
        false
    }

    /// What a page is to its users, for policies that check pages (§11.1): asked for every page of
    /// a block when it is freed and when it is handed out. By default all are in order.
    #[inline(always)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        let _ = pfn;
        PageState::UNUSED
    }

    /// A check found something; for the log. Bad pages are told at most 60 times a minute (§11.2),
    /// damaged patterns 10 times in 5 seconds (§11.4), in each zone, by the clock of
    /// [`now`](Platform::now).
    fn report(&self, report: Report) {
        let _ = report;
    }

    /// Zeroes a block that becomes free, for policies with `init_on_free` (§11.5). By default done
    /// as [`prepare`](Platform::prepare) does it for `ZERO`.
    fn zero(&self, pfn: Pfn, order: Order) {
        self.prepare(pfn, order, Gfp::ZERO);
    }

    /// Fills a block that becomes free with [`POISON_BYTE`](crate::poison::POISON_BYTE), for
    /// policies that poison (§11.4).
    fn poison(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }

    /// Looks whether a block that is about to be handed out still holds what
    /// [`poison`](Platform::poison) filled it with; [`poison::inspect`](crate::poison::inspect)
    /// does that for bytes.
    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        let _ = (pfn, order);
        None
    }

    /// Unmaps a block that becomes free, for policies with `unmap` (§11.6): whoever touches it is
    /// caught at once.
    fn unmap(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }

    /// Maps a block that is about to be handed out. Blocks need not be those that were unmapped.
    fn map(&self, pfn: Pfn, order: Order) {
        let _ = (pfn, order);
    }

    /// Moves an allocated block of 2^`order` pages from `from` to `to` on behalf of compaction and
    /// contiguous ranges (§4.12, §7.4): copies its contents, and makes whoever owns `from` the
    /// owner of `to`. Asked only for blocks that were [said to be
    /// movable](crate::Yard::set_movable).
    ///
    /// The allocator's view of who owns what may be a moment old. So the embedder looks the block
    /// up among its own, under its own lock, and refuses what it no longer has, or has at another
    /// order. After [`Moved`](Relocation::Moved), nobody but the allocator touches or frees `from`,
    /// and `to` is freed like any other block. Otherwise, also where this panics, `to` stays the
    /// allocator's: the change of owner must be the last step.
    ///
    /// Called without any of the allocator's locks, and may sleep. (A [`CmaArea`](crate::CmaArea)'s
    /// own lock may be held.) Requests that it makes never lead to compaction or reclaim. The
    /// default refuses.
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let _ = (from, to, order);
        Relocation::Refused
    }

    /// Whether reclaim must leave a movable block alone: its owner has locked it in memory, say.
    /// Asked by compaction, without any lock, where `compact_unevictable_allowed` is 0 (§10): it
    /// moves no block of which this says yes. Contiguous ranges and memory that is to go do not
    /// ask. The default says no.
    fn is_unevictable(&self, pfn: Pfn, order: Order) -> bool {
        let _ = (pfn, order);
        false
    }

    /// Whether nothing about the caller restricts a request with these flags or entitles it to
    /// more: no set of nodes, no scope that takes flags from it, no limit on dirty pages. Asked
    /// first, on every request; only where it says no are [`context`](Platform::context) and
    /// [`dirty_ok`](Platform::dirty_ok) asked before the first attempt. The default says yes and
    /// compiles to nothing.
    #[inline(always)]
    fn is_plain(&self, gfp: Gfp) -> bool {
        let _ = gfp;
        true
    }

    /// Who makes the present request (§2.7, §2.9). Asked by requests that are not
    /// [plain](Platform::is_plain) or not served at once.
    fn context(&self) -> Context {
        Context::default()
    }

    /// Names the task that executes the caller, so that a reclaim that asks for memory itself is
    /// known by it. Any number of tasks may reclaim at once; with more than 64, another task may by
    /// chance be taken for one of them meanwhile. The default takes a CPU for a task; where tasks change while one of them
    /// reclaims, say which it is.
    fn task(&self) -> u64 {
        self.cpu().0.into()
    }

    /// Whether a node may take more pages that will be written to (§2.8 step 2; [`Gfp::WRITE`]).
    fn dirty_ok(&self, node: NodeId) -> bool {
        let _ = node;
        true
    }

    /// Frees memory for a request that could not be served (§7.3): about
    /// [`job.pages`](ReclaimJob::pages) pages, from the zones it names. How many pages it freed.
    ///
    /// Called without any lock, and may sleep. Requests it makes itself may use all reserves, and
    /// never lead to reclaim.
    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        let _ = job;
        0
    }

    /// How many pages of a zone reclaim could still free (§2.10): whether another round is worth
    /// it.
    fn reclaimable(&self, zone: ZoneId) -> u64 {
        let _ = zone;
        0
    }

    /// Frees pages of a near node before a farther one is used (§2.8 step 6), as far as the job
    /// allows: clean and unmapped ones, where it says nothing else. Asked only where
    /// `zone_reclaim_mode` is set, and the node has more to free than it is to keep.
    fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
        let _ = job;
        NodeReclaim::NoScan
    }

    /// What [`node_reclaim`](Platform::node_reclaim) could free for this job, what the node is to
    /// keep included. The default does not know: it is left to that hook then to keep it.
    fn node_caches(&self, job: &NodeReclaimJob) -> Option<NodeCaches> {
        let _ = job;
        None
    }

    /// A user's task is to wait until background reclaim has freed something (§7.3): while
    /// `enough()` says no, at most `most_ns` nanoseconds where that is given.
    fn throttle(&self, node: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        let _ = (node, most_ns, enough);
        Throttle::Done
    }

    /// Nothing could be reclaimed (§2.10): make somebody give up memory. One call at a time.
    fn out_of_memory(&self, job: &ReclaimJob) -> Oom {
        let _ = job;
        Oom::Nothing
    }

    /// A pause of about a tick: another task is dealing with the shortage.
    fn pause(&self) {
        core::hint::spin_loop();
    }

    /// A request that must not fail ([`Gfp::NOFAIL`]) has failed `tries` times. Waits for memory,
    /// and says whether to try again. The default does not wait: with nobody else to free memory,
    /// the request fails like any other.
    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let _ = (order, tries);
        false
    }

    /// A request failed that did not ask for silence; at most one call in ten seconds of
    /// [`now`](Platform::now).
    fn warn(&self, order: Order, gfp: Gfp) {
        let _ = (order, gfp);
    }

    /// Background reclaim of the node has work (spec §7.1): free memory fell below a watermark
    /// for requests of `order` that may use zones up to `highest_zone`. Called again and again
    /// while that lasts, unless a [`Kswapd`](crate::Kswapd) is at work.
    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        let _ = (node, order, highest_zone);
    }

    /// Background compaction of the node has work (spec §7.8): its thread is to call
    /// [`Yard::compact_background`](crate::Yard::compact_background).
    fn wake_compaction(&self, node: NodeId) {
        let _ = node;
    }

    /// These blocks are free and nobody has touched them for a while: a balloon gives their memory
    /// back to the host, a host crate tells the operating system (§9.9). Until this returns, the
    /// allocator hands none of them out. Whether they were taken note of; if not, they are
    /// offered again later.
    ///
    /// Called by [`Yard::report_free_blocks`](crate::Yard::report_free_blocks), without any lock.
    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        let _ = blocks;
        false
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
    const SEES_TUNING: bool = T::SEES_TUNING;
    const REPORT_ORDER: Option<Order> = T::REPORT_ORDER;
    const SEES_EVERY_BLOCK: bool = T::SEES_EVERY_BLOCK;
    const SEES_TOUCHES: bool = T::SEES_TOUCHES;
    const DEFERS: bool = T::DEFERS;

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
    fn touch(&self, pfn: Pfn) {
        (**self).touch(pfn);
    }

    #[inline(always)]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        (**self).prepare(pfn, order, gfp);
    }

    #[inline(always)]
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        (**self).fail(order, gfp)
    }

    #[inline(always)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        (**self).page_state(pfn)
    }

    fn report(&self, report: Report) {
        (**self).report(report);
    }

    fn zero(&self, pfn: Pfn, order: Order) {
        (**self).zero(pfn, order);
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        (**self).poison(pfn, order);
    }

    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        (**self).check_poison(pfn, order)
    }

    fn unmap(&self, pfn: Pfn, order: Order) {
        (**self).unmap(pfn, order);
    }

    fn map(&self, pfn: Pfn, order: Order) {
        (**self).map(pfn, order);
    }

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        (**self).relocate(from, to, order)
    }

    fn is_unevictable(&self, pfn: Pfn, order: Order) -> bool {
        (**self).is_unevictable(pfn, order)
    }

    #[inline(always)]
    fn is_plain(&self, gfp: Gfp) -> bool {
        (**self).is_plain(gfp)
    }

    fn context(&self) -> Context {
        (**self).context()
    }

    fn task(&self) -> u64 {
        (**self).task()
    }

    fn dirty_ok(&self, node: NodeId) -> bool {
        (**self).dirty_ok(node)
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        (**self).reclaim(job)
    }

    fn reclaimable(&self, zone: ZoneId) -> u64 {
        (**self).reclaimable(zone)
    }

    fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
        (**self).node_reclaim(job)
    }

    fn node_caches(&self, job: &NodeReclaimJob) -> Option<NodeCaches> {
        (**self).node_caches(job)
    }

    fn throttle(&self, node: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        (**self).throttle(node, most_ns, enough)
    }

    fn out_of_memory(&self, job: &ReclaimJob) -> Oom {
        (**self).out_of_memory(job)
    }

    fn pause(&self) {
        (**self).pause();
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        (**self).keep_trying(order, tries)
    }

    fn warn(&self, order: Order, gfp: Gfp) {
        (**self).warn(order, gfp);
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        (**self).wake_reclaim(node, order, highest_zone);
    }

    fn wake_compaction(&self, node: NodeId) {
        (**self).wake_compaction(node);
    }

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        (**self).report_free(blocks)
    }
}
