//! Allocation (spec §2.7, §2.8): zone and type from the flags, the first attempt, the walk over the
//! zones. If the attempt fails, the [slow path](crate::request::slow_path) takes over.

use core::fmt;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::near_mark::NEAR_MARK;
use crate::base::node_mask::{NodeChoice, NodeMask};
use crate::base::shared::loads;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, NodeId, Order, Pfn, ZoneKind};
use crate::base::unwind::Rollback;
use crate::base::watermark::HIGH;
use crate::embedder::config::Config;
use crate::embedder::context::{Context, TaskFlags};
use crate::embedder::events::Event;
use crate::embedder::hooks::{Defences, Observer, Reclaim};
use crate::embedder::platform::Platform;
use crate::embedder::policy::{BelowHigh, Proposals};
use crate::embedder::reclaim_job::NodeReclaim;
use crate::pcp::pageset::is_cached_order;
use crate::zone::at::At;
use crate::zone::mobility::Source;
use crate::zone::state::{BELOW_HIGH, BOOSTED_WATERMARK, ZONELIST_STALE, Zone, first_mark};
use crate::zone::zonelist::Zonelist;

/// Why a request failed.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// use pageyard::AllocError;
///
/// let contradiction = Gfp::KERNEL | Gfp::MOVABLE | Gfp::RECLAIMABLE;
/// assert_eq!(yard.alloc(Order::ZERO, contradiction), Err(AllocError::BadType));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No zone that the request may use has a block that it may take.
    NoMemory,
    /// The zone bits of the flags contradict each other (§2.3).
    BadZone,
    /// The flags contain both MOVABLE and RECLAIMABLE (§2.4).
    BadType,
    /// The hooks report a CPU that the layout does not name or that is offline.
    UnknownCpu(CpuId),
    /// The request prefers a node that does not exist.
    UnknownNode(NodeId),
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::NoMemory => {
                f.write_str("no zone has a free block that the request may use")
            }
            AllocError::BadZone => f.write_str("the request's zone flags contradict each other"),
            AllocError::BadType => f.write_str(
                "the request is both movable and reclaimable; use \
                 one of these flags",
            ),
            AllocError::UnknownCpu(c) => {
                write!(f, "the platform runs on CPU {}, which is offline or not in the layout", c.0)
            }
            AllocError::UnknownNode(n) => write!(f, "no node {} in the layout", n.0),
        }
    }
}

impl core::error::Error for AllocError {}

impl AllocError {
    /// Returns the error as a number other than 0, for a result in registers.
    #[doc(hidden)]
    pub const fn to_bits(self) -> u64 {
        match self {
            AllocError::NoMemory => 1,
            AllocError::BadZone => 2,
            AllocError::BadType => 3,
            AllocError::UnknownCpu(cpu) => 4 | (cpu.0 as u64) << 8,
            AllocError::UnknownNode(node) => 5 | (node.0 as u64) << 8,
        }
    }

    /// Returns the error with this [number](Self::to_bits).
    #[doc(hidden)]
    pub const fn from_bits(bits: u64) -> Self {
        match bits & 0xff {
            2 => AllocError::BadZone,
            3 => AllocError::BadType,
            4 => AllocError::UnknownCpu(CpuId((bits >> 8) as u32)),
            5 => AllocError::UnknownNode(NodeId((bits >> 8) as u16)),
            _ => AllocError::NoMemory,
        }
    }
}

/// The result of a request in two registers: the bits of the error, or 0, and the frame. A plain
/// `Result` is returned in memory, which would cost the common case three instructions per request.
struct Answer(u64, u64);

impl From<Result<Pfn, AllocError>> for Answer {
    fn from(answer: Result<Pfn, AllocError>) -> Self {
        match answer {
            Ok(pfn) => Answer(0, pfn.0),
            Err(error) => Answer(error.to_bits(), 0),
        }
    }
}

impl From<Answer> for Result<Pfn, AllocError> {
    #[inline(always)]
    fn from(Answer(error, pfn): Answer) -> Self {
        if error == 0 { Ok(Pfn(pfn)) } else { Err(AllocError::from_bits(error)) }
    }
}

/// A request with its flags resolved.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) order: Order,
    pub(crate) gfp: Gfp,
    pub(crate) migrate_type: MigrateType,
    pub(crate) highest: ZoneKind,
    pub(crate) cpu: CpuId,
    /// The node whose zonelist is used.
    pub(crate) node: NodeId,
    /// The nodes that the caller allows.
    pub(crate) asked: NodeMask,
    /// The nodes that may serve this attempt.
    pub(crate) nodes: NodeMask,
    /// Skip nodes with too many dirty pages (§2.8 step 2).
    pub(crate) spread_dirty: bool,
    pub(crate) context: Context,
}

impl Request {
    /// Returns all nodes, or only the preferred node for THISNODE requests.
    pub(crate) fn reachable(&self) -> NodeMask {
        if self.gfp.contains(Gfp::THISNODE) { NodeMask::only(self.node) } else { NodeMask::ALL }
    }

    /// Returns whether the task's cpuset lets an attempt with these flags use a node's memory.
    pub(crate) fn may_use(&self, node: NodeId, flags: AllocFlags) -> bool {
        let hardwall = self.gfp.contains(Gfp::HARDWALL);
        !flags.contains(AllocFlags::CPUSET) || self.context.allows(node, hardwall)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Allocates a block of 2^`order` pages (spec §2.7).
    ///
    /// The block is aligned to its size. It belongs to the caller until it is passed to
    /// [`free`](Yard::free) with the same order. Its contents are unspecified unless the hooks
    /// [prepare](Platform::prepare) them.
    ///
    /// If no zone can serve the request at once, it takes the slow path of §2.10 as far as its
    /// flags allow: it wakes background reclaim, uses reserves, and reclaims and compacts through
    /// the hooks. Every request terminates, whatever the hooks do, unless
    /// [`keep_trying`](crate::Reclaim::keep_trying) returns true forever for a request with
    /// [`NOFAIL`](Gfp::NOFAIL).
    ///
    /// # Errors
    /// [`AllocError`]. Nothing was allocated, but the attempt may have changed the tuning of the
    /// per-CPU lists, as in the kernel (§2.8).
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.alloc_from(NodeChoice::LOCAL, order, gfp)
    }

    // Not in debug builds: tests call it at a thousand places, and compile it at each.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn alloc_from(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        if self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory);
        }
        match self.alloc_ready(nodes, order, gfp) {
            Some(pfn) => Ok(pfn),
            None => self.alloc_rest(nodes, order, gfp),
        }
    }

    /// The common case of a request. Returns `None`, with nothing changed, if the request needs
    /// [`alloc_rest`](Yard::alloc_rest). The two are separate so that a C caller does not keep the
    /// common case's frame during the rest. Does not call [`Defences::fail`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_ready(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Option<Pfn> {
        // Both arms exist so that single pages, the most common order, get their own code even
        // where the compiler does not know the order.
        if order == Order::ZERO {
            self.alloc_quick(nodes, Order::ZERO, gfp)
        } else {
            self.alloc_quick(nodes, order, gfp)
        }
    }

    /// Serves a request outside the common case. Also handles the common case, with more
    /// instructions.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    #[doc(hidden)]
    #[inline(always)]
    pub fn alloc_rest(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.alloc_full(nodes.preferred, nodes.allowed, order, gfp).into()
    }

    /// Allocates a block like [`alloc`](Yard::alloc), with a preferred node, a set of allowed
    /// nodes, or both. With [`Gfp::THISNODE`], only the preferred node serves the request.
    ///
    /// # Errors
    /// As [`alloc`](Yard::alloc); also [`AllocError::UnknownNode`].
    #[inline]
    pub fn alloc_on(
        &self,
        nodes: impl Into<NodeChoice>,
        order: Order,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        self.alloc_from(nodes.into(), order, gfp)
    }

    /// The common case in one piece: the preferred zone passes the first watermark that a request
    /// tests, with nothing pending, and this CPU's list is neither locked nor empty. Returns
    /// `None`, with nothing changed, in any other case; [`alloc_full`](Self::alloc_full) handles
    /// it.
    #[inline(always)]
    fn alloc_quick(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Option<Pfn> {
        let o = order.get();
        if !is_cached_order(self.rules(), o) {
            return None;
        }
        let (highest, t) = gfp.route()?;
        let cpu = self.hooks.cpu();
        let local = self.cpu_zones.get(cpu.0 as usize)?;
        let (zone, slot) = local.quick[highest as usize & 7]?;
        let remote = zone.node != local.node;
        if gfp.contains(Gfp::THISNODE) && remote || !self.hooks.is_plain(gfp) {
            return None;
        }
        if nodes != NodeChoice::LOCAL && (remote || !nodes.begins_at(local.node)) {
            return None;
        }
        let at: At<'_, '_, C> = At::new(zone, &self.hooks, cpu, slot, self.policy);
        let seen = zone.flags.load(Relaxed);
        if seen & (BELOW_HIGH | BOOSTED_WATERMARK | ZONELIST_STALE << highest as u32) != 0 {
            return None;
        }
        let is_packed = self.is_packed();
        // A magazine's block is there whatever its order.
        let passes = if is_packed && seen & NEAR_MARK << highest as u32 == 0 {
            true
        } else if o == 0 || is_packed {
            let free = if is_packed { loads(&zone.nr_free) } else { &zone.nr_free };
            zone.watermarks.is_above_cached_mark(free.load(Relaxed), highest)
        } else if zone.grouping_disabled.load(Relaxed) {
            false
        } else {
            let mark = first_mark(self.rules());
            let flags = AllocFlags::from_bits_retain(mark as u32);
            let has_block = || zone.areas.has_block(o, flags);
            let (watermarks, supply) = (&zone.watermarks, zone.supply());
            watermarks.ok_fast(o, watermarks.effective(mark), highest, flags, supply, has_block)
        };
        if !passes {
            return None;
        }
        let idx = if is_packed {
            at.pop_packed(local.packed[highest as usize & 7]?, o, t)?
        } else {
            let mut pageset = at.slot.pageset.try_lock()?;
            let idx = pageset.pop(&at, o, t)?;
            pageset.note_alloc(self.rules());
            idx
        };
        let pfn = zone.pfn(idx);
        self.prepare_alloc(at.cpu, pfn, order, t, gfp);
        Some(pfn)
    }

    /// The full allocation path. Takes the node choice in two parts so that it is passed in
    /// registers.
    #[cold]
    #[inline(never)]
    fn alloc_full(
        &self,
        preferred: Option<NodeId>,
        allowed: NodeMask,
        order: Order,
        gfp: Gfp,
    ) -> Answer {
        self.whole_way(NodeChoice { preferred, allowed }, order, gfp).into()
    }

    fn whole_way(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let mut req = self.request(order, gfp, nodes)?;
        let answer = match self.fast_path(&req) {
            Some(pfn) => Some(pfn),
            None => {
                // Keeps the task's restrictions, drops flags set for the first attempt only.
                req.gfp = gfp.difference(req.context.without);
                self.slow_path(&mut req)
            }
        };
        let migrate_type = req.migrate_type;
        let Some(pfn) = answer else {
            self.hooks.event(req.cpu, Event::Alloc { pfn: None, order, migrate_type, gfp });
            return Err(AllocError::NoMemory);
        };
        self.prepare_alloc(req.cpu, pfn, order, migrate_type, gfp);
        Ok(pfn)
    }

    /// Builds a request: resolves its flags and queries its context (§2.7).
    #[inline]
    pub(crate) fn request(
        &self,
        order: Order,
        gfp: Gfp,
        choice: NodeChoice,
    ) -> Result<Request, AllocError> {
        let plain = self.hooks.is_plain(gfp);
        let context = if plain { Context::default() } else { self.hooks.context() };
        let mut gfp = gfp.difference(context.without);
        let highest = gfp.highest_zone().ok_or(AllocError::BadZone)?;
        let mut migrate_type = gfp.migrate_type().ok_or(AllocError::BadType)?;
        if self.zones.iter().any(|z| z.grouping_disabled.load(Relaxed)) {
            migrate_type = MigrateType::Unmovable;
        }
        let cpu = self.hooks.cpu();
        let local = self.cpu_zones(cpu).ok_or(AllocError::UnknownCpu(cpu))?;
        let node = choice.preferred.unwrap_or(local.node);
        self.node(node).ok_or(AllocError::UnknownNode(node))?;
        let spread_dirty = !plain && gfp.contains(Gfp::WRITE);
        let mut asked = choice.allowed;
        if gfp.contains(Gfp::THISNODE) {
            asked = asked.and(NodeMask::only(node));
        }
        let mut nodes = asked;
        if let Some(set) = context.cpuset {
            gfp |= Gfp::HARDWALL;
            if choice.allowed == NodeMask::ALL && !context.is(TaskFlags::INTERRUPT) {
                nodes = nodes.and(set.allowed);
            }
        }
        Ok(Request {
            order,
            gfp,
            migrate_type,
            highest,
            cpu,
            node,
            asked,
            nodes,
            spread_dirty,
            context,
        })
    }

    /// Iterates over the zones that may serve a request, best first.
    #[inline]
    pub(crate) fn zones_for(&self, req: &Request) -> Zonelist<'a, C::Lock> {
        self.zones_in(req, req.nodes)
    }

    /// Like [`zones_for`](Self::zones_for), with other nodes.
    #[inline]
    pub(crate) fn zones_in(&self, req: &Request, nodes: NodeMask) -> Zonelist<'a, C::Lock> {
        Zonelist::new(self.nodes, req.node, req.highest, nodes)
    }

    /// Returns the zone that a request tries first.
    #[inline(never)]
    pub(crate) fn preferred(&self, req: &Request) -> Option<&'a Zone<'a, C::Lock>> {
        self.zones_for(req).next()
    }

    /// Makes the first attempt, at the low watermark (§2.7).
    #[inline]
    fn fast_path(&self, req: &Request) -> Option<Pfn> {
        let mut flags = AllocFlags::WMARK_LOW | AllocFlags::of(req.gfp, req.migrate_type);
        if req.context.cpuset.is_some() {
            flags |= AllocFlags::CPUSET;
        }
        let preferred = self.preferred(req)?;
        if self.policy.defragments() || preferred.nofragment.load(Relaxed) {
            flags |= AllocFlags::NOFRAGMENT;
        }
        self.attempt(req, flags)
    }

    /// Walks the zones once (§2.8).
    #[inline]
    pub(crate) fn attempt(&self, req: &Request, flags: AllocFlags) -> Option<Pfn> {
        let mut flags = flags;
        let mut zones = self.zones_for(req);
        let preferred = zones.next()?;
        let mut dirty = NodeMask::NONE;
        // With `defrag_mode` the slow path decides when types may mix.
        let drops_nofragment = |flags: AllocFlags| {
            flags.contains(AllocFlags::NOFRAGMENT) && !self.policy.defragments()
        };
        'scan: loop {
            zones.rewind();
            for zone in zones.by_ref() {
                if !req.may_use(zone.node, flags) {
                    continue;
                }
                if req.spread_dirty {
                    if !dirty.contains(zone.node) && !self.hooks.dirty_ok(zone.node) {
                        dirty = dirty.with(zone.node);
                    }
                    if dirty.contains(zone.node) {
                        continue;
                    }
                }
                if drops_nofragment(flags) && zone.node != preferred.node {
                    // Fragmentation in the preferred node is better than remote memory.
                    flags.remove(AllocFlags::NOFRAGMENT);
                    continue 'scan;
                }
                let at = self.at(zone, req.cpu)?;
                if let Some(idx) = self.attempt_at(&at, preferred, req, flags) {
                    return Some(zone.pfn(idx));
                }
            }
            if !drops_nofragment(flags) {
                return None;
            }
            // Fragmentation is better than failure.
            flags.remove(AllocFlags::NOFRAGMENT);
        }
    }

    /// Tries one zone of the walk. Outlined: inlined, most of the request would stay in the walk's
    /// frame, below everything that follows.
    #[inline(never)]
    fn attempt_at(
        &self,
        at: &At<'_, 'a, C>,
        preferred: &Zone<'a, C::Lock>,
        req: &Request,
        flags: AllocFlags,
    ) -> Option<u32> {
        let zone = at.zone;
        if !at.watermark_holds(req, flags)
            && (flags.contains(AllocFlags::NO_WAIT) || !self.make_room(at, preferred, req, flags))
        {
            return None;
        }
        let mut answer = self.serve(at, req, flags);
        if answer.is_none() && !flags.contains(AllocFlags::NO_WAIT) {
            let mut growths = self.growths(zone, req.gfp);
            answer = growths.find_map(|_| self.serve(at, req, flags));
        }
        if answer.is_some() && zone.node != preferred.node {
            zone.note_numa(|z| &z.numa_miss);
            preferred.note_numa(|z| &z.numa_foreign);
        }
        answer
    }

    /// Whether a zone that failed its watermark may serve after all: because it has grown (§8.2),
    /// because the request may ignore watermarks, or because node reclaim on a near node lifted the
    /// zone above the watermark (§2.8 step 6).
    #[cold]
    fn make_room(
        &self,
        at: &At<'_, 'a, C>,
        preferred: &Zone<'a, C::Lock>,
        req: &Request,
        flags: AllocFlags,
    ) -> bool {
        let zone = at.zone;
        if self.growths(zone, req.gfp).any(|grown| grown || at.mark_holds(req, flags)) {
            return true;
        }
        if flags.contains(AllocFlags::NO_WATERMARKS) {
            return true;
        }
        let near = self.node(preferred.node).is_some_and(|n| n.distance(zone.node) <= NEAR);
        if !near {
            return false;
        }
        match self.reclaim_node(zone.node, req.order, req.gfp) {
            NodeReclaim::NoScan | NodeReclaim::Full => false,
            NodeReclaim::Some | NodeReclaim::Success => at.mark_holds(req, flags),
        }
    }

    /// Step 7: takes the block from this CPU's lists or the zone's free lists (§4.3, §5.7).
    #[inline(always)]
    fn serve(&self, at: &At<'_, 'a, C>, req: &Request, flags: AllocFlags) -> Option<u32> {
        let zone = at.zone;
        let answer = if self.is_packed() {
            at.take_packed(req.order.get(), req.migrate_type, flags)
        } else {
            match at.take_cached(req, flags) {
                Some(idx) => Some(idx),
                None => at.take_direct(req, flags),
            }
        };
        if flags.contains(AllocFlags::KSWAPD)
            && zone.has_flag(BOOSTED_WATERMARK)
            && zone.clear_flag(BOOSTED_WATERMARK)
        {
            let undelivered = Rollback::new(|| {
                answer.into_iter().for_each(|i| self.return_unprepared(zone.pfn(i), req.order));
            });
            self.wake_node(zone.node, Order::ZERO, Gfp::empty(), zone.kind);
            undelivered.disarm();
        }
        if flags.contains(AllocFlags::HIGHATOMIC)
            && let Some(idx) = answer
        {
            at.reserve_highatomic(idx, req.order.get());
        }
        answer
    }
}

/// Maximum distance at which a node is reclaimed before it is skipped (§2.8).
const NEAR: u8 = 30;

impl<C: Config> At<'_, '_, C> {
    /// Steps 5 and 6: tests the high watermark if the policy and BELOW_HIGH call for it, then the
    /// requested watermark.
    #[inline(never)]
    fn watermark_holds(&self, req: &Request, flags: AllocFlags) -> bool {
        let zone = self.zone;
        if req.order == Order::ZERO && zone.is_far_above_mark(req.highest) {
            return true;
        }
        let below = zone.has_flag(BELOW_HIGH);
        let test_high = match self.rules().pcp.below_high {
            BelowHigh::Ignored => false,
            BelowHigh::TestedAlways => true,
            BelowHigh::TestedWhileClear => !below,
        };
        if test_high {
            if self.holds(HIGH, req, flags) {
                return true;
            }
            if !below {
                zone.set_flag(BELOW_HIGH);
            }
        }
        self.mark_holds(req, flags) || self.mark_holds_with_queued(req, flags)
    }

    /// The same once queued blocks are free (B.2). A request that fails its mark takes no lock, and would
    /// leave the memory that it lacks where it is.
    #[cold]
    #[inline(never)]
    fn mark_holds_with_queued(&self, req: &Request, flags: AllocFlags) -> bool {
        let flushed = !self.zone.queue.is_empty() && self.lock_for(flags).is_some();
        flushed && self.mark_holds(req, flags)
    }

    /// Step 6: tests the watermark that the attempt's flags select.
    fn mark_holds(&self, req: &Request, flags: AllocFlags) -> bool {
        self.holds(flags.mark(), req, flags)
    }

    #[inline]
    fn holds(&self, mark: usize, req: &Request, flags: AllocFlags) -> bool {
        let (zone, order) = (self.zone, req.order.get());
        let mark = zone.watermarks.effective(mark);
        // What the CPU keeps first: a zone without the block is searched as a whole.
        let has_block =
            || self.keeps_block(order, req.migrate_type) || zone.has_block(order, flags);
        zone.watermarks.ok_fast(order, mark, req.highest, flags, zone.supply(), has_block)
    }

    /// Takes a block from this CPU's lists (§5.7), if they cache the order and are not locked.
    #[inline]
    fn take_cached(&self, req: &Request, flags: AllocFlags) -> Option<u32> {
        let order = req.order.get();
        if !is_cached_order(self.rules(), order) {
            return None;
        }
        let Some(mut pageset) = self.slot.pageset.try_lock() else {
            self.zone.bypasses.fetch_add(1, Relaxed);
            return None;
        };
        pageset.note_alloc(self.rules());
        pageset.take(self, order, req.migrate_type, flags)
    }

    /// Takes a block from the zone's free lists (§2.8 step 7, §3.8).
    #[inline(never)]
    fn take_direct(&self, req: &Request, flags: AllocFlags) -> Option<u32> {
        loop {
            let idx = self.take_from_zone(req, flags)?;
            // A bad block stays out of use; try the next one (§5.7).
            if self.passes_alloc_check(idx, req.order.get()) {
                return Some(idx);
            }
        }
    }

    #[inline]
    fn take_from_zone(&self, req: &Request, flags: AllocFlags) -> Option<u32> {
        let order = req.order.get();
        let t = req.migrate_type;
        let zone = self.lock_for(flags)?;
        let mut idx = None;
        if flags.contains(AllocFlags::HIGHATOMIC) {
            idx = zone.rmqueue_smallest(order, MigrateType::HighAtomic);
        }
        idx = idx.or_else(|| zone.rmqueue(order, t, &mut Source::Own, flags));
        if idx.is_none() && flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            idx = zone.rmqueue_smallest(order, MigrateType::HighAtomic);
        }
        let idx = idx?;
        zone.zone.map.frame(idx).set_allocated(State::new(Kind::Allocated, order, t));
        zone.slot.counters.direct_allocs.add(order, t);
        Some(idx)
    }
}
