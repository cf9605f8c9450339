//! The allocator over real memory, used by frame number.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::RawMutex;
use pageyard::policy::{Packed, Policy};
use pageyard::{
    AllocError, BatchError, CpuId, FreeError, Gfp, Hooked, Hooks, NodeId, Order, Pfn, Yard,
};

use crate::error::{BuildError, of};
use crate::lock::HostLock;
use crate::maps::{LayoutParts, Maps};
use crate::memory::Region;
use crate::platform::{CpuTable, HostPlatform};
use crate::service::Service;
use crate::topology::Topology;
use crate::watched::{self, Watch, Watched};

/// The memory of a block as atomic words.
///
/// Any holder of a frame number can get these words, whether it owns the block or not. So the words
/// are atomic, and nothing else is ever borrowed from the memory.
///
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use pageyard::policy::Packed;
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, HostLock, RawYard, Words};
///
/// let yard: RawYard = Builder::new(16 << 20).build_raw::<Packed, HostLock, ()>(())?;
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// let words: Words<'_> = yard.words(page, Order::ZERO).unwrap();
/// words.all()[0].store(7, Relaxed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Words<'y>(&'y [AtomicU64]);

/// Words per cache line.
const LINE: usize = 8;

impl<'y> Words<'y> {
    /// Returns all words.
    pub fn all(self) -> &'y [AtomicU64] {
        self.0
    }

    /// Reads and writes one word in every cache line of the first `bytes` bytes, at least one word.
    pub fn touch(self, bytes: u64) {
        let words = bytes.div_ceil(8).clamp(1, self.0.len() as u64) as usize;
        for word in self.0[..words].iter().step_by(LINE) {
            word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// The allocator over a [`Region`], used by frame number. Its memory is accessible only as atomic
/// [`Words`]: using a frame number without owning the block is a mistake, but never undefined
/// behaviour.
///
/// Built by [`Builder::build_raw`](crate::Builder::build_raw). `R` is the type of its locks, `E`
/// the embedder's hooks ([`HostPlatform`]).
///
/// ```
/// use pageyard::policy::Packed;
/// use pageyard::{Gfp, Order};
/// use pageyard_host::{Builder, HostLock, RawYard};
///
/// let yard: RawYard = Builder::new(16 << 20).build_raw::<Packed, HostLock, ()>(())?;
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawYard<P: Policy = Packed, R: RawMutex + 'static = HostLock, E: Hooks = ()> {
    // Dropped first, because it borrows from `maps`.
    yard: Yard<'static, Hooked<R, HostPlatform<E>, P>>,
    maps: Maps<R>,
    cpus: Vec<u32>,
}

impl<P: Policy, R: RawMutex, E: Hooks> fmt::Debug for RawYard<P, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = self.yard.hooks().region();
        f.debug_struct("RawYard").field("region", region).field("cpus", &self.cpus).finish()
    }
}

impl<P: Policy, R: RawMutex, E: Hooks> RawYard<P, R, E> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        policy: P,
        parts: LayoutParts,
        deferred: bool,
        region: Region,
        cpus: Vec<u32>,
        topology: &Topology,
        exclusive: bool,
        embedder: E,
    ) -> Result<Self, BuildError> {
        let maps = of("size", Maps::new(policy.rules().engine, parts)?)?;
        let service = of("worker", Service::new(region.pages()))?;
        let table = CpuTable::new(&cpus);
        let platform = HostPlatform::new(Arc::new(region), table, exclusive, service, embedder);
        // SAFETY: called once. `yard` is dropped before `maps`, and references into it do not
        // outlive the borrow of `self` (`core`; `a_raw_yard_works_by_frame_number`, which drops a
        // yard and builds another on its region, and the sanitizers).
        let (layout, storage) = unsafe { maps.storage()? };
        let mut yard = Yard::with_policy(platform, policy);
        if deferred {
            yard.init_deferred(&layout, storage)?;
        } else {
            yard.init(&layout, storage)?;
        }
        for cpu in (0..yard.cpus()).filter(|cpu| !cpus.contains(cpu)) {
            yard.cpu_dead(CpuId(cpu));
        }
        for cpu in topology.cpus.iter().filter(|cpu| cpus.contains(&cpu.number)) {
            yard.set_cache_slice(CpuId(cpu.number), cpu.slice);
        }
        Ok(RawYard { yard, maps, cpus })
    }

    /// Returns the core allocator, with all its requests, statistics, knobs and text output.
    pub fn core(&self) -> &Yard<'_, Hooked<R, HostPlatform<E>, P>> {
        &self.yard
    }

    pub(crate) fn service(&self) -> &Service {
        self.yard.hooks().service()
    }

    /// Returns the memory.
    pub fn region(&self) -> &Region {
        self.yard.hooks().region()
    }

    /// Returns the system's CPUs that have per-CPU lists; threads on other CPUs share one of these.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Returns the size of the descriptors and tables in bytes, whether or not they take memory
    /// yet.
    pub fn map_bytes(&self) -> usize {
        self.maps.bytes()
    }

    /// Allocates a block of 2^`order` pages.
    ///
    /// # Errors
    /// As [`Yard::alloc`].
    #[inline]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.yard.alloc(order, gfp)
    }

    /// Like [`alloc`](RawYard::alloc), preferably on this node.
    ///
    /// # Errors
    /// As [`Yard::alloc_on`].
    pub fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.yard.alloc_on(node, order, gfp)
    }

    /// Frees a block.
    ///
    /// # Errors
    /// As [`Yard::free`]: the block is not allocated, or not at this order.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.yard.free(pfn, order)
    }

    /// Like [`free`](RawYard::free), but the caller guarantees that no other thread frees the block
    /// concurrently ([`Yard::free_owned`]).
    ///
    /// # Errors
    /// As [`free`](RawYard::free).
    #[inline]
    pub fn free_owned(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.yard.free_owned(pfn, order)
    }

    /// Frees several blocks.
    ///
    /// # Errors
    /// As [`Yard::free_batch`].
    pub fn free_batch(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.yard.free_batch(blocks)
    }

    /// Like [`free_batch`](RawYard::free_batch), but the caller guarantees that no other thread
    /// frees the blocks concurrently ([`Yard::free_batch_owned`]).
    ///
    /// # Errors
    /// As [`free_batch`](RawYard::free_batch).
    pub fn free_batch_owned(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.yard.free_batch_owned(blocks)
    }

    /// Returns the memory of 2^`order` pages from a frame on; `None` unless all of them are the
    /// yard's.
    #[inline]
    pub fn words(&self, pfn: Pfn, order: Order) -> Option<Words<'_>> {
        self.yard.hooks().words(pfn, order).map(Words)
    }

    /// Runs one tick of the statistics worker for every CPU (§5.14, §5.15, §9.2). Call it about
    /// once a second, from a thread of its own: it binds the calling thread to each of the CPUs in
    /// turn.
    pub fn tick(&self) {
        for &cpu in &self.cpus {
            // If the thread may not run on that CPU, the work is done from here, under the same
            // locks.
            let _ = crate::cpu::bind(&[cpu]);
            self.yard.tick(CpuId(cpu));
        }
    }

    /// Drops the yard and returns its memory, for another yard.
    pub fn into_region(self) -> Region {
        let region = self.yard.hooks().region().clone();
        drop(self);
        Arc::into_inner(region).expect("the yard had the only other one")
    }
}

impl<P: Policy> RawYard<P, HostLock> {
    /// Keeps the pages that the hard limit requires
    /// ([`Balloon::adjust`](crate::balloon::Balloon::adjust)). Returns whether it keeps all of
    /// them.
    pub(crate) fn adjust_balloon(&self) -> bool {
        self.service().balloon.adjust(&self.yard, self.region().frames(), |pfn, order| {
            let _ = self.yard.hooks().discard(pfn, order, false);
        })
    }
}

impl<P: Policy, W: Watch, E: Hooks> RawYard<P, Watched<W>, E> {
    /// Reports waits for and holds of the zone locks to `W` from now on.
    pub fn watch_zone_locks(&self) {
        for zone in self.yard.zone_ids() {
            // The only lock that this waits for is the zone lock.
            watched::mark(|| {
                let _ = self.yard.free_blocks_by_type(zone);
            });
        }
    }
}
