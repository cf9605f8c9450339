//! The allocator over real memory by owned blocks.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use pageyard::policy::{Linux612, Policy, StaticPolicy};
use pageyard::{
    AllocError, CpuId, CpuStats, Gfp, Hooked, Knobs, NodeId, Order, Pfn, Yard, ZoneId, ZoneInfo,
    ZoneStats,
};

use crate::backend::Backend;
use crate::error::{BuildError, of};
use crate::fork::Birthplace;
use crate::give_back::GiveBack;
use crate::held::allocating;
use crate::lock::HostLock;
use crate::magazine::{self, Kind, Ready};
use crate::page::Page;
use crate::platform::HostPlatform;
use crate::raw_yard::RawYard;
use crate::service::ServiceOptions;
use crate::signals::SystemFiles;
use crate::thread_cache::{ThreadCache, ThreadCacheStats, ThreadCacheUse, ThreadCaches};
use crate::worker::{Keeper, Plan};

/// An allocator of real memory in blocks of 4 KiB to 4 MiB, which any number of threads may use at
/// once. Made by a [`Builder`](crate::Builder).
pub struct HostYard<P: Policy = Linux612> {
    front: Arc<ThreadCaches>,
    raw: Arc<RawYard<P, HostLock>>,
    plan: Arc<Plan>,
    keeper: Option<Keeper>,
    born: Birthplace,
}

impl<P: Policy> fmt::Debug for HostYard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { front, raw, keeper, .. } = self;
        let mut text = f.debug_struct("HostYard");
        text.field("raw", raw).field("front", front).field("keeper", keeper).finish()
    }
}

/// The answer to a request in two registers: where the block is, or what was wrong. The plain
/// `Result` is handed over in memory, and the common case would have to go through that too.
struct Answer(*mut u8, u64);

impl From<Option<NonNull<u8>>> for Answer {
    #[inline(always)]
    fn from(start: Option<NonNull<u8>>) -> Answer {
        Answer(start.map_or(ptr::null_mut(), NonNull::as_ptr), 0)
    }
}

impl From<AllocError> for Answer {
    fn from(error: AllocError) -> Answer {
        let code = match error {
            AllocError::NoMemory => 0,
            AllocError::BadZone => 1,
            AllocError::BadType => 2,
            AllocError::UnknownCpu(cpu) => 3 | u64::from(cpu.0) << 8,
            AllocError::UnknownNode(node) => 4 | u64::from(node.0) << 8,
        };
        Answer(ptr::null_mut(), code)
    }
}

impl Answer {
    #[inline(always)]
    fn start(self) -> Result<NonNull<u8>, AllocError> {
        NonNull::new(self.0).ok_or_else(|| self.error())
    }

    #[cold]
    fn error(&self) -> AllocError {
        match self.1 & 0xff {
            0 => AllocError::NoMemory,
            1 => AllocError::BadZone,
            2 => AllocError::BadType,
            3 => AllocError::UnknownCpu(CpuId((self.1 >> 8) as u32)),
            _ => AllocError::UnknownNode(NodeId((self.1 >> 8) as u16)),
        }
    }
}

impl<P: Policy> HostYard<P> {
    /// A request ([`alloc`](HostYard::alloc)): where the block is, and as what the front cache keeps it.
    // Always inlined, with what `alloc_bare` inlines: what order and flags decide is decided by the
    // compiler then, where they are constants, as nearly everywhere.
    #[inline(always)]
    pub(crate) fn take_block(
        &self,
        order: Order,
        gfp: Gfp,
    ) -> Result<(NonNull<u8>, Option<Kind>), AllocError> {
        let _ends = allocating();
        let kind = Kind::of(order, gfp);
        let own = kind.and_then(|kind| Some(self.hand_out(self.front.pop(kind)?, kind, gfp)));
        let start = match own {
            Some(start) => start,
            None if self.front.is_on() => self.alloc_behind(order, gfp, kind).start()?,
            None => self.alloc_bare(order, gfp).start()?,
        };
        Ok((start, kind))
    }

    /// Past the cache.
    #[inline(always)]
    fn alloc_bare(&self, order: Order, gfp: Gfp) -> Answer {
        if !self.born.is_here() {
            return AllocError::NoMemory.into();
        }
        match self.raw.alloc(order, gfp) {
            Ok(pfn) => self.start_of(pfn, order).into(),
            Err(error) => self.alloc_again(error, order, gfp),
        }
    }

    /// Where the thread has no such block of its own.
    #[inline(never)]
    fn alloc_behind(&self, order: Order, gfp: Gfp, kind: Option<Kind>) -> Answer {
        match kind.and_then(|kind| Some(self.hand_out(self.front.refill(kind, gfp)?, kind, gfp))) {
            None => self.alloc_bare(order, gfp),
            fetched => fetched.into(),
        }
    }

    /// A request failed: tries once more, if that was for want of memory that threads keep.
    #[cold]
    #[inline(never)]
    fn alloc_again(&self, error: AllocError, order: Order, gfp: Gfp) -> Answer {
        let again = error == AllocError::NoMemory && self.front.drain() > 0;
        match if again { self.raw.alloc(order, gfp) } else { Err(error) } {
            Ok(pfn) => self.start_of(pfn, order).into(),
            Err(error) => {
                self.note_failure(error, order, gfp);
                error.into()
            }
        }
    }

    /// A request is answered with an error.
    pub(crate) fn note_failure(&self, error: AllocError, order: Order, gfp: Gfp) {
        if error == AllocError::NoMemory {
            self.raw.service().failed(order, gfp);
        }
    }

    /// Where a block of the front cache's is, prepared for its owner.
    #[inline(always)]
    fn hand_out(&self, ready: Ready, kind: Kind, gfp: Gfp) -> NonNull<u8> {
        let start = ready.start();
        if gfp.contains(Gfp::ZERO) && !ready.is_zero() {
            // SAFETY: the block is mapped, and of this size; it is the cache's, so in no other use
            // (`the_same_page_comes_back_without_the_allocator`, `threads_are_drained_while_they_work`).
            unsafe { start.write_bytes(0, magazine::bytes(kind)) };
        }
        start
    }

    /// Where a block is.
    #[inline(always)]
    pub(crate) fn start_of(&self, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
        self.raw.region().address(pfn, order.pages().into())
    }

    pub(crate) fn raw(&self) -> &RawYard<P, HostLock> {
        &self.raw
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether this is the process that made it, not a child after a fork: there it gives nothing, takes
    /// nothing, and says nothing of what it has.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.born.is_here()
    }

    /// Takes away what threads keep; how many pages.
    pub(crate) fn drain_threads(&self) -> u64 {
        self.front.drain()
    }

    /// Whether an address is of the yard's memory.
    #[inline]
    pub fn holds(&self, address: *const u8) -> bool {
        self.raw.region().frame(address).is_some()
    }

    /// A block by its address.
    #[inline(always)]
    pub(crate) fn take(&self, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        self.take_block(order, gfp).ok().map(|(start, _)| start)
    }

    /// Takes back what [`take`](HostYard::take) gave for such flags.
    ///
    /// # Safety
    /// It did, for this order, and nobody uses it any more.
    #[inline(always)]
    pub(crate) unsafe fn give(&self, start: NonNull<u8>, order: Order, gfp: Gfp) {
        self.take_back(start, order, Kind::of(order, gfp));
    }

    /// A block's owner gives it up. Little of it is inlined: else no drop of a block would be.
    #[inline(always)]
    pub(crate) fn take_back(&self, start: NonNull<u8>, order: Order, kind: Option<Kind>) {
        let _ends = allocating();
        if let Some(kind) = kind
            && self.front.push(kind, start)
        {
            return;
        }
        self.take_back_behind(start, order, kind);
    }

    #[inline(never)]
    fn take_back_behind(&self, start: NonNull<u8>, order: Order, kind: Option<Kind>) {
        if !self.front.is_on() || kind.is_none_or(|kind| !self.front.make_room(kind, start)) {
            self.free_bare(start, order);
        }
    }

    #[inline(always)]
    fn free_bare(&self, start: NonNull<u8>, order: Order) {
        if self.born.is_here() {
            // It fails only where a page of it was taken out of use meanwhile; then it stays out.
            let _ = self.raw.free_owned(self.pfn_at(start), order);
        }
    }

    /// The frame that a block begins with.
    #[inline]
    pub(crate) fn pfn_at(&self, start: NonNull<u8>) -> Pfn {
        // Blocks lie inside; frame 0 does not.
        self.raw.region().frame(start.as_ptr()).unwrap_or(Pfn(0))
    }

    /// The allocator itself.
    ///
    /// # Safety
    /// Nothing is given back through it, split or moved that a [`Block`](crate::Block) owns, and its platform's
    /// methods, which write to memory, are left to it.
    pub unsafe fn core(&self) -> &Yard<'_, Hooked<HostLock, HostPlatform, P>> {
        self.raw.core()
    }

    /// How many pages of its memory the system backs at the moment.
    ///
    /// # Errors
    /// The system's.
    pub fn resident(&self) -> io::Result<u64> {
        self.raw.region().resident()
    }

    /// The system's CPUs that it keeps lists for.
    pub fn cpus(&self) -> &[u32] {
        self.raw.cpus()
    }

    /// Its zones: one for each node.
    pub fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.raw.core().zone_ids()
    }

    /// What a zone has and is; `None` where there is no such zone, and in a child after a fork.
    pub fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo> {
        if self.born.is_here() { self.raw.core().zone_info(zone) } else { None }
    }

    /// Counters of a zone; `None` where there is no such zone.
    pub fn zone_stats(&self, zone: ZoneId) -> Option<ZoneStats> {
        self.raw.core().zone_stats(zone)
    }

    /// Counters of a CPU in a zone; `None` where there is none of either.
    pub fn cpu_stats(&self, zone: ZoneId, cpu: CpuId) -> Option<CpuStats> {
        self.raw.core().cpu_stats(zone, cpu)
    }

    /// The settings in force; in a child after a fork, the defaults.
    pub fn knobs(&self) -> Knobs {
        if self.born.is_here() { self.raw.core().knobs() } else { Knobs::default() }
    }

    /// Gives everything that threads keep and that is on per-CPU lists back to the zones, where it
    /// merges.
    pub fn drain(&self) {
        if self.born.is_here() {
            self.front.drain();
            self.raw.core().drain_all(None);
        }
    }

    /// What the front cache did and has.
    pub fn front_stats(&self) -> ThreadCacheStats {
        self.front.stats()
    }

    /// The same by thread.
    pub fn front_threads(&self) -> Vec<ThreadCacheUse> {
        self.front.threads()
    }

    /// One tick for every CPU ([`RawYard::tick`]): for a yard without a thread of its own. Binds the
    /// calling thread.
    pub fn tick(&self) {
        if self.born.is_here() {
            self.front.tick();
            self.raw.tick();
        }
    }
}

impl<P: Policy> Drop for HostYard<P> {
    fn drop(&mut self) {
        if !self.born.is_here() {
            // Its thread is not here; it would be waited for in vain.
            std::mem::forget(self.keeper.take());
        }
    }
}

impl<P: StaticPolicy + Send + Sync + 'static> HostYard<P> {
    pub(crate) fn new(
        raw: RawYard<P, HostLock>,
        tick: Option<Duration>,
        front: ThreadCache,
        gives: Result<GiveBack, &'static str>,
        options: &ServiceOptions,
    ) -> Result<Self, BuildError> {
        let born = Birthplace::here();
        let raw = Arc::new(raw);
        let fills = P::RULES.safety.checks_pages();
        let behind = Arc::new(Backend::new(raw.clone()));
        let front = Arc::new(ThreadCaches::new(front, raw.region().pages(), fills, behind));
        let (ticked, drained) = ((front.clone(), raw.clone()), (front.clone(), raw.clone()));
        let seen = front.clone();
        let zones = raw.core().zones();
        let room = (16 << 10) + zones * ((4 << 10) + raw.cpus().len() * 512);
        let page = options.publish.then(|| Page::new(room)).transpose();
        let plan = Arc::new(Plan {
            every: tick.unwrap_or(Duration::from_secs(1)),
            tick: Box::new(move || {
                ticked.0.tick();
                ticked.1.tick();
            }),
            drain: Box::new(move || {
                drained.0.drain();
                drained.1.core().drain_all(None);
            }),
            front: Box::new(move || seen.stats()),
            give_back: gives.ok(),
            keeps: gives.err().map(str::to_owned),
            page: of("publish", page)?,
            system: options.system.clone().unwrap_or_else(SystemFiles::detect),
        });
        raw.service().balloon.set(options.limits);
        raw.adjust_balloon();
        let region = raw.region();
        raw.service().tell.made(region.pages(), zones, raw.cpus().len(), region.backing());
        let keeper = tick.map(|_| Keeper::start(raw.clone(), plan.clone())).transpose();
        let keeper = of("tick", keeper)?;
        Ok(HostYard { keeper, plan, front, raw, born })
    }
}
