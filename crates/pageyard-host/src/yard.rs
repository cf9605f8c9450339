//! The allocator over real memory, used by owned blocks.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use pageyard::policy::{Packed, Policy};
use pageyard::{
    AllocError, CpuId, CpuStats, Gfp, Hooked, Knobs, Order, Pfn, Yard, ZoneId, ZoneInfo, ZoneStats,
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

/// An allocator of real memory in blocks of 4 KiB to 4 MiB, usable from any number of threads.
/// Built by a [`Builder`](crate::Builder).
///
/// ```
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, HostYard};
///
/// let yard: HostYard = Builder::new(64 << 20).build()?;
/// let block = yard.alloc(Order::for_bytes(10_000).unwrap(), Gfp::KERNEL | Gfp::ZERO)?;
/// assert!(yard.holds(block.as_ptr().as_ptr()) && block.iter().all(|&b| b == 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct HostYard<P: Policy = Packed> {
    thread_caches: Arc<ThreadCaches>,
    raw: Arc<RawYard<P, HostLock>>,
    plan: Arc<Plan>,
    keeper: Option<Keeper>,
    born: Birthplace,
}

impl<P: Policy> fmt::Debug for HostYard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thread_caches, raw, keeper, .. } = self;
        let mut text = f.debug_struct("HostYard");
        text.field("raw", raw)
            .field("thread_caches", thread_caches)
            .field("keeper", keeper)
            .finish()
    }
}

/// A result in two registers: the block's address, or an error code. A plain `Result` is returned
/// in memory, which would slow down the common case.
struct Answer(*mut u8, u64);

impl From<Option<NonNull<u8>>> for Answer {
    #[inline(always)]
    fn from(start: Option<NonNull<u8>>) -> Answer {
        Answer(start.map_or(ptr::null_mut(), NonNull::as_ptr), 0)
    }
}

impl From<AllocError> for Answer {
    fn from(error: AllocError) -> Answer {
        Answer(ptr::null_mut(), error.to_bits())
    }
}

impl Answer {
    #[inline(always)]
    fn start(self) -> Result<NonNull<u8>, AllocError> {
        NonNull::new(self.0).ok_or_else(|| self.error())
    }

    #[cold]
    fn error(&self) -> AllocError {
        AllocError::from_bits(self.1)
    }
}

impl<P: Policy> HostYard<P> {
    /// Serves a request ([`alloc`](HostYard::alloc)). Returns the block's address and its thread
    /// cache kind.
    // Always inlined, with what `alloc_uncached` inlines: for constant orders and flags, as at
    // nearly all callers, the compiler then resolves the branches on them.
    #[inline(always)]
    pub(crate) fn alloc_block(
        &self,
        order: Order,
        gfp: Gfp,
    ) -> Result<(NonNull<u8>, Option<Kind>), AllocError> {
        let _ends = allocating();
        let kind = Kind::of(order, gfp);
        let own =
            kind.and_then(|kind| Some(self.prepare(self.thread_caches.pop(kind)?, kind, gfp)));
        let start = match own {
            Some(start) => start,
            None if self.thread_caches.is_on() => self.alloc_slow(order, gfp, kind).start()?,
            None => self.alloc_uncached(order, gfp, 0).start()?,
        };
        Ok((start, kind))
    }

    /// Allocates past the thread cache, which has given back blocks `given_back` times.
    #[inline(always)]
    fn alloc_uncached(&self, order: Order, gfp: Gfp, given_back: u64) -> Answer {
        if !self.born.is_here() {
            return AllocError::NoMemory.into();
        }
        match self.raw.alloc(order, gfp) {
            Ok(pfn) if self.born.is_here() => self.start_of(pfn, order).into(),
            // A callback forked.
            Ok(_) => AllocError::NoMemory.into(),
            Err(error) => self.retry_alloc(error, order, gfp, given_back),
        }
    }

    /// Allocates when the thread's magazine has no such block.
    #[inline(never)]
    fn alloc_slow(&self, order: Order, gfp: Gfp, kind: Option<Kind>) -> Answer {
        match kind
            .and_then(|kind| Some(self.prepare(self.thread_caches.refill(kind, gfp)?, kind, gfp)))
        {
            None => self.alloc_uncached(order, gfp, self.thread_caches.given_back()),
            fetched => fetched.into(),
        }
    }

    #[cold]
    #[inline(never)]
    fn retry_alloc(&self, error: AllocError, order: Order, gfp: Gfp, given_back: u64) -> Answer {
        let again = || self.raw.alloc(order, gfp);
        match self.retry(Err(error), given_back, order, gfp, again) {
            Ok(pfn) => self.start_of(pfn, order).into(),
            Err(error) => error.into(),
        }
    }

    /// Makes a request past the thread cache, twice if memory is short ([`retry`](Self::retry)).
    pub(crate) fn request<T, E: PartialEq + From<AllocError>>(
        &self,
        order: Order,
        gfp: Gfp,
        take: impl Fn() -> Result<T, E>,
    ) -> Result<T, E> {
        if !self.is_here() {
            return Err(E::from(AllocError::NoMemory));
        }
        let given_back = self.thread_caches.given_back();
        self.retry(take(), given_back, order, gfp, take)
    }

    /// If memory was short, drains the threads' magazines, and repeats the request if they gave
    /// back any blocks since they had done so `given_back` times, which the caller read before the
    /// first attempt: another thread may have drained them meanwhile. Records a failed request.
    ///
    /// In a child that a callback of the request forked, it fails: what it got may be its parent's.
    fn retry<T, E: PartialEq + From<AllocError>>(
        &self,
        first: Result<T, E>,
        given_back: u64,
        order: Order,
        gfp: Gfp,
        again: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let short = E::from(AllocError::NoMemory);
        let is_short = |answer: &Result<T, E>| answer.as_ref().is_err_and(|error| *error == short);
        let mut answer = first;
        if is_short(&answer) && self.born.is_here() {
            self.drain_threads();
            if self.thread_caches.given_back() != given_back {
                answer = again();
            }
        }
        if !self.born.is_here() {
            return Err(short);
        }
        if is_short(&answer) {
            self.raw.service().failed(order, gfp);
        }
        answer
    }

    /// Returns the address of a block from the thread cache, zeroed if the request asks for it.
    #[inline(always)]
    fn prepare(&self, ready: Ready, kind: Kind, gfp: Gfp) -> NonNull<u8> {
        let start = ready.start();
        if gfp.contains(Gfp::ZERO) && !ready.is_zero() {
            // SAFETY: the block is mapped and of this size. It is in the cache, so nothing else
            // uses it (`a_freed_page_is_reused_from_the_thread_cache`,
            // `threads_are_drained_while_they_work`).
            unsafe { start.write_bytes(0, magazine::bytes(kind)) };
        }
        start
    }

    /// Returns the address of a block.
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

    /// Returns whether this is the process that built the yard, not a child after a fork. In a
    /// child, the yard allocates nothing, frees nothing and reports no statistics.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        self.born.is_here()
    }

    /// Drains the threads' magazines.
    pub(crate) fn drain_threads(&self) {
        self.thread_caches.drain();
    }

    /// Returns the address and the length in bytes of all memory, to register it with a device
    /// ([`Builder::pinned`](crate::Builder::pinned)). The bytes belong to the owners of blocks; only
    /// the addresses may be used without owning them. [`fd`](HostYard::fd) is the file behind it,
    /// if there is one.
    pub fn memory(&self) -> NonNull<[u8]> {
        self.raw.region().memory()
    }

    /// Returns whether the system's pages stay where they are
    /// ([`Builder::pinned`](crate::Builder::pinned)).
    pub fn is_pinned(&self) -> bool {
        self.raw.region().is_pinned()
    }

    /// Returns whether an address lies in the yard's memory.
    #[inline]
    pub fn holds(&self, address: *const u8) -> bool {
        self.raw.region().frame(address).is_some()
    }

    /// Allocates a block by address.
    #[inline(always)]
    pub(crate) fn alloc_ptr(&self, order: Order, gfp: Gfp) -> Option<NonNull<u8>> {
        self.alloc_block(order, gfp).ok().map(|(start, _)| start)
    }

    /// Frees a block that [`alloc_ptr`](HostYard::alloc_ptr) returned for these flags.
    ///
    /// # Safety
    /// [`alloc_ptr`](HostYard::alloc_ptr) returned it at this order, and nothing uses it any more.
    #[inline(always)]
    pub(crate) unsafe fn free_ptr(&self, start: NonNull<u8>, order: Order, gfp: Gfp) {
        self.free_block(start, order, Kind::of(order, gfp));
    }

    /// Frees a block for its owner. Only a little of it is inlined; otherwise no drop of a block
    /// would be.
    #[inline(always)]
    pub(crate) fn free_block(&self, start: NonNull<u8>, order: Order, kind: Option<Kind>) {
        let _ends = allocating();
        if let Some(kind) = kind
            && self.thread_caches.push(kind, start)
        {
            return;
        }
        self.free_slow(start, order, kind);
    }

    #[inline(never)]
    fn free_slow(&self, start: NonNull<u8>, order: Order, kind: Option<Kind>) {
        if !self.thread_caches.is_on()
            || kind.is_none_or(|kind| !self.thread_caches.make_room(kind, start))
        {
            self.free_uncached(start, order);
        }
    }

    #[inline(always)]
    fn free_uncached(&self, start: NonNull<u8>, order: Order) {
        if self.born.is_here() {
            // Fails only if a page of the block was taken out of use in the meantime; then the
            // block stays out.
            let _ = self.raw.free_owned(self.pfn_at(start), order);
        }
    }

    /// Returns the first frame of a block.
    #[inline]
    pub(crate) fn pfn_at(&self, start: NonNull<u8>) -> Pfn {
        // Blocks lie inside the region, which does not contain frame 0.
        self.raw.region().frame(start.as_ptr()).unwrap_or(Pfn(0))
    }

    /// Returns the core allocator.
    ///
    /// # Safety
    /// The caller frees, splits or moves no block through it that a [`Block`](crate::Block) owns.
    /// It does not call the methods of the yard's hooks, which write to memory.
    pub unsafe fn core(&self) -> &Yard<'_, Hooked<HostLock, HostPlatform, P>> {
        self.raw.core()
    }

    /// Returns the number of pages that the system backs at the moment.
    ///
    /// # Errors
    /// The system's error.
    pub fn resident(&self) -> io::Result<u64> {
        self.raw.region().resident()
    }

    /// Returns the system's CPUs that have per-CPU lists.
    pub fn cpus(&self) -> &[u32] {
        self.raw.cpus()
    }

    /// Returns the zones: one for each node.
    pub fn zones(&self) -> impl Iterator<Item = ZoneId> + '_ {
        self.raw.core().zone_ids()
    }

    /// Returns the state of a zone; `None` if there is no such zone, and in a child after a fork.
    pub fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo> {
        if self.born.is_here() { self.raw.core().zone_info(zone) } else { None }
    }

    /// Returns the counters of a zone; `None` if there is no such zone.
    pub fn zone_stats(&self, zone: ZoneId) -> Option<ZoneStats> {
        self.raw.core().zone_stats(zone)
    }

    /// Returns the counters of a CPU in a zone; `None` if the zone or the CPU does not exist.
    pub fn cpu_stats(&self, zone: ZoneId, cpu: CpuId) -> Option<CpuStats> {
        self.raw.core().cpu_stats(zone, cpu)
    }

    /// Returns the knobs in force; in a child after a fork, the kernel's defaults.
    pub fn knobs(&self) -> Knobs {
        if self.born.is_here() { self.raw.core().knobs() } else { Knobs::DEFAULT }
    }

    /// Drains the threads' magazines and the per-CPU lists to the zones, where free blocks merge.
    pub fn drain(&self) {
        if self.born.is_here() {
            self.thread_caches.drain();
            // For one zone, a drain by another thread is waited for.
            self.zones().for_each(|zone| self.raw.core().drain_all(Some(zone)));
        }
    }

    /// Returns the statistics of the thread cache.
    pub fn thread_cache_stats(&self) -> ThreadCacheStats {
        self.thread_caches.stats()
    }

    /// Returns the statistics of the thread cache by thread.
    pub fn thread_cache_threads(&self) -> Vec<ThreadCacheUse> {
        self.thread_caches.threads()
    }

    /// Runs one tick for every CPU ([`RawYard::tick`]), for a yard without a worker thread. Binds
    /// the calling thread. Without ticks, threads keep blocks that they do not use, and after memory
    /// was short once they keep none; and a hard limit takes nothing that is freed after it was set.
    pub fn tick(&self) {
        if self.born.is_here() {
            self.thread_caches.tick();
            self.raw.tick();
            self.raw.adjust_balloon();
        }
    }
}

impl<P: Policy> HostYard<P> {
    /// Drops the yard without waiting for its thread, which holds references to what it still uses.
    pub(crate) fn drop_without_waiting(mut self) {
        if let Some(keeper) = self.keeper.as_mut().filter(|_| self.born.is_here()) {
            keeper.detach();
        }
    }
}

impl<P: Policy> Drop for HostYard<P> {
    fn drop(&mut self) {
        if !self.born.is_here() {
            // The worker thread does not exist in the child; joining it would never return.
            std::mem::forget(self.keeper.take());
        }
    }
}

impl<P: Policy + Send + Sync + 'static> HostYard<P> {
    pub(crate) fn new(
        raw: RawYard<P, HostLock>,
        tick: Option<Duration>,
        thread_caches: ThreadCache,
        give_back: Result<GiveBack, &'static str>,
        options: &ServiceOptions,
    ) -> Result<Self, BuildError> {
        let born = Birthplace::here();
        let raw = Arc::new(raw);
        let fills = raw.core().policy().rules().safety.checks_pages();
        let backend = Arc::new(Backend::new(raw.clone()));
        let thread_caches =
            Arc::new(ThreadCaches::new(thread_caches, raw.region().pages(), fills, backend));
        let (ticked, drained) =
            ((thread_caches.clone(), raw.clone()), (thread_caches.clone(), raw.clone()));
        let seen = thread_caches.clone();
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
            thread_caches: Box::new(move || seen.stats()),
            give_back: give_back.ok(),
            keeps: give_back.err().map(str::to_owned),
            page: of("publish", page)?,
            system: options.system.clone().unwrap_or_else(SystemFiles::detect),
        });
        let pieces = plan.give_back.is_some_and(|how| how.returns_pieces());
        raw.service().set_returns_pieces(pieces);
        raw.service().balloon.set(options.limits);
        raw.adjust_balloon();
        let region = raw.region();
        raw.service().events.made(region.pages(), zones, raw.cpus().len(), region.backing());
        let keeper = tick.map(|_| Keeper::start(raw.clone(), plan.clone())).transpose();
        let keeper = of("tick", keeper)?;
        Ok(HostYard { keeper, plan, thread_caches, raw, born })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::builder::Builder;

    /// Between a request's attempt and its drain, another thread may drain what a third one keeps.
    #[test]
    fn a_request_looks_again_after_a_drain_of_another_thread() {
        let yard = Builder::new(64 << 20).tick(None).build().unwrap();
        let drained_elsewhere = |keeps: bool| {
            if keeps {
                drop(yard.alloc(Order::ZERO, Gfp::KERNEL));
            }
            let tries = Cell::new(0);
            let first = || {
                std::thread::scope(|s| s.spawn(|| yard.drain_threads()).join().unwrap());
                Err(AllocError::NoMemory)
            };
            let take = || if tries.replace(tries.get() + 1) == 0 { first() } else { Ok(()) };
            yard.request(Order::ZERO, Gfp::NOWAIT | Gfp::NOWARN, take)
        };
        assert_eq!(drained_elsewhere(true), Ok(()));
        assert_eq!(drained_elsewhere(false), Err(AllocError::NoMemory));
    }
}
