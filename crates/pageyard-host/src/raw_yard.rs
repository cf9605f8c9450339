//! The allocator over real memory by frame number.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::RawMutex;
use pageyard::policy::{Linux612, Policy, StaticPolicy};
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

/// The memory of a block, a word at a time.
///
/// Whoever has a frame number can have this, owner or not: so the words are atomic, and nothing
/// else is ever borrowed from the memory.
#[derive(Clone, Copy, Debug)]
pub struct Words<'y>(&'y [AtomicU64]);

/// Words of a cache line.
const LINE: usize = 8;

impl<'y> Words<'y> {
    /// The words themselves.
    pub fn all(self) -> &'y [AtomicU64] {
        self.0
    }

    /// Reads and writes one word in every line of the first so many bytes, at least of one.
    pub fn touch(self, bytes: u64) {
        let words = bytes.div_ceil(8).clamp(1, self.0.len() as u64) as usize;
        for word in self.0[..words].iter().step_by(LINE) {
            word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// The allocator over a [`Region`], by frame number. Its memory is only seen as atomic
/// [`Words`], so that a frame number that is used by one who does not own it is a mistake, but never
/// undefined behaviour.
///
/// Made by [`Builder::build_raw`](crate::Builder::build_raw). `R` is its lock, `E` what an embedder
/// adds ([`HostPlatform`]).
pub struct RawYard<P: Policy = Linux612, R: RawMutex + 'static = HostLock, E: Hooks = ()> {
    // Dropped first: it borrows from `maps`.
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

impl<P: StaticPolicy, R: RawMutex, E: Hooks> RawYard<P, R, E> {
    pub(crate) fn new(
        parts: LayoutParts,
        deferred: bool,
        region: Region,
        cpus: Vec<u32>,
        topology: &Topology,
        exclusive: bool,
        embedder: E,
    ) -> Result<Self, BuildError> {
        let maps = of("size", Maps::new(parts)?)?;
        let service = of("worker", Service::new())?;
        let table = CpuTable::new(&cpus);
        let platform = HostPlatform::new(Arc::new(region), table, exclusive, service, embedder);
        // SAFETY: called once; `yard` is dropped before `maps`, and nothing of it is handed out for
        // longer than `self` is borrowed (`core`; `a_raw_yard_by_frame_number`, which is dropped and
        // whose region has another one, and the sanitizers).
        let (layout, storage) = unsafe { maps.storage() };
        let yard = if deferred {
            Yard::deferred(&layout, storage, platform)?
        } else {
            Yard::new(&layout, storage, platform)?
        };
        for cpu in (0..yard.cpus()).filter(|cpu| !cpus.contains(cpu)) {
            yard.cpu_dead(CpuId(cpu));
        }
        for cpu in topology.cpus.iter().filter(|cpu| cpus.contains(&cpu.number)) {
            yard.set_cache_slice(CpuId(cpu.number), cpu.slice);
        }
        Ok(RawYard { yard, maps, cpus })
    }
}

impl<P: Policy, R: RawMutex, E: Hooks> RawYard<P, R, E> {
    /// The allocator itself: all its requests, statistics, settings and texts.
    pub fn core(&self) -> &Yard<'_, Hooked<R, HostPlatform<E>, P>> {
        &self.yard
    }

    pub(crate) fn service(&self) -> &Service {
        self.yard.hooks().service()
    }

    /// The memory.
    pub fn region(&self) -> &Region {
        self.yard.hooks().region()
    }

    /// The system's CPUs that it keeps lists for; others use one of theirs.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Bytes of its descriptors and tables, whether they take memory yet or not.
    pub fn map_bytes(&self) -> usize {
        self.maps.bytes()
    }

    /// A block of 2^`order` pages.
    ///
    /// # Errors
    /// As [`Yard::alloc`].
    #[inline]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.yard.alloc(order, gfp)
    }

    /// The same, preferably of this node.
    ///
    /// # Errors
    /// As [`Yard::alloc_on`].
    pub fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.yard.alloc_on(node, order, gfp)
    }

    /// Gives a block back.
    ///
    /// # Errors
    /// As [`Yard::free`]: it is not allocated, or not at this order.
    #[inline]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.yard.free(pfn, order)
    }

    /// The same for a block that only its caller can give back ([`Yard::free_owned`]).
    ///
    /// # Errors
    /// As [`free`](RawYard::free).
    #[inline]
    pub fn free_owned(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.yard.free_owned(pfn, order)
    }

    /// Gives blocks back as a list.
    ///
    /// # Errors
    /// As [`Yard::free_batch`].
    pub fn free_batch(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.yard.free_batch(blocks)
    }

    /// The same for blocks that only their caller can give back ([`Yard::free_batch_owned`]).
    ///
    /// # Errors
    /// As [`free_batch`](RawYard::free_batch).
    pub fn free_batch_owned(&self, blocks: &[(Pfn, Order)]) -> Result<(), BatchError> {
        self.yard.free_batch_owned(blocks)
    }

    /// The memory of 2^`order` pages from a frame on; `None` where they are not all the yard's.
    #[inline]
    pub fn words(&self, pfn: Pfn, order: Order) -> Option<Words<'_>> {
        self.yard.hooks().words(pfn, order).map(Words)
    }

    /// One tick of the statistics worker for every CPU (§5.14, §5.15, §9.2), to be called about
    /// once a second. Binds the calling thread to each of the CPUs in turn, so it needs a thread of
    /// its own.
    pub fn tick(&self) {
        for &cpu in &self.cpus {
            // Where the thread may not go there, its work is done from here: under the same locks,
            // only farther from the lists.
            let _ = crate::cpu::bind(&[cpu]);
            self.yard.tick(CpuId(cpu));
        }
    }

    /// The memory, when nobody needs the yard any more; for another one.
    pub fn into_region(self) -> Region {
        let region = self.yard.hooks().region().clone();
        drop(self);
        Arc::into_inner(region).expect("the yard had the only other one")
    }
}

impl<P: Policy> RawYard<P, HostLock> {
    /// Keeps what the hard limit wants ([`Balloon::adjust`](crate::balloon::Balloon::adjust)). Whether that is all.
    pub(crate) fn adjust_balloon(&self) -> bool {
        self.service().balloon.adjust(&self.yard, |pfn, order| {
            let _ = self.yard.hooks().discard(pfn, order, false);
        })
    }
}

impl<P: Policy, W: Watch, E: Hooks> RawYard<P, Watched<W>, E> {
    /// From now on, `W` is told of waits for and holds of the zones' locks.
    pub fn watch_zone_locks(&self) {
        for zone in self.yard.zone_ids() {
            // The one lock that this waits for is the zone's.
            watched::mark(|| {
                let _ = self.yard.free_blocks_by_type(zone);
            });
        }
    }
}
