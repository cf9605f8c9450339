//! The allocator over real memory by owned blocks.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use pageyard::policy::{Linux612, Policy};
use pageyard::{
    AllocError, CpuId, CpuStats, FreeError, Gfp, Knobs, NodeId, Order, Pfn, Yard, ZoneId, ZoneInfo,
    ZoneStats,
};

use crate::block::Block;
use crate::lock::HostLock;
use crate::platform::HostPlatform;
use crate::raw_yard::RawYard;
use crate::tick::Ticker;

/// An allocator of real memory in blocks of 4 KiB to 4 MiB, which any number of threads may use at
/// once. Made by a [`Builder`](crate::Builder).
pub struct HostYard<P: Policy = Linux612> {
    raw: Arc<RawYard<P, HostLock>>,
    ticker: Option<Ticker>,
}

impl<P: Policy> fmt::Debug for HostYard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostYard").field("raw", &self.raw).field("ticker", &self.ticker).finish()
    }
}

impl<P: Policy> HostYard<P> {
    /// A block of 2^`order` pages; zeros where `gfp` says [`ZERO`](Gfp::ZERO).
    ///
    /// # Errors
    /// As [`Yard::alloc`]; above all, there is none.
    #[inline]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Block<'_, P>, AllocError> {
        let pfn = self.raw.alloc(order, gfp)?;
        // SAFETY: it was just allocated.
        unsafe { self.from_raw(pfn, order) }.ok_or(AllocError::NoMemory)
    }

    /// The same, preferably of a node.
    ///
    /// # Errors
    /// As [`Yard::alloc_on`].
    pub fn alloc_on(
        &self,
        node: NodeId,
        order: Order,
        gfp: Gfp,
    ) -> Result<Block<'_, P>, AllocError> {
        let pfn = self.raw.alloc_on(node, order, gfp)?;
        // SAFETY: it was just allocated.
        unsafe { self.from_raw(pfn, order) }.ok_or(AllocError::NoMemory)
    }

    /// What [`Block::into_raw`] took apart, together again; `None` where the frames are not of this
    /// yard.
    ///
    /// # Safety
    /// The numbers are those of a block of this yard whose ownership was given up, and that was not
    /// made a block again since.
    #[inline]
    pub unsafe fn from_raw(&self, pfn: Pfn, order: Order) -> Option<Block<'_, P>> {
        // SAFETY: as the caller says.
        unsafe { Block::new(&self.raw, pfn, order) }
    }

    /// Gives back a block whose ownership was given up.
    ///
    /// # Safety
    /// As [`from_raw`](HostYard::from_raw), and nobody uses its memory any more.
    ///
    /// # Errors
    /// As [`Yard::free`].
    pub unsafe fn free_raw(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.raw.free(pfn, order)
    }

    /// The allocator itself.
    ///
    /// # Safety
    /// Nothing is given back through it, split or moved that a [`Block`] owns, and its platform's
    /// methods, which write to memory, are left to it.
    pub unsafe fn core(&self) -> &Yard<'_, HostLock, HostPlatform, P> {
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

    /// What a zone has and is; `None` where there is no such zone.
    pub fn zone_info(&self, zone: ZoneId) -> Option<ZoneInfo> {
        self.raw.core().zone_info(zone)
    }

    /// Counters of a zone; `None` where there is no such zone.
    pub fn zone_stats(&self, zone: ZoneId) -> Option<ZoneStats> {
        self.raw.core().zone_stats(zone)
    }

    /// Counters of a CPU in a zone; `None` where there is none of either.
    pub fn cpu_stats(&self, zone: ZoneId, cpu: CpuId) -> Option<CpuStats> {
        self.raw.core().cpu_stats(zone, cpu)
    }

    /// The settings in force.
    pub fn knobs(&self) -> Knobs {
        self.raw.core().knobs()
    }

    /// Gives everything on per-CPU lists back to the zones, where it merges.
    pub fn drain(&self) {
        self.raw.core().drain_all(None);
    }

    /// One tick for every CPU ([`RawYard::tick`]): for a yard without a thread of its own. Binds the
    /// calling thread.
    pub fn tick(&self) {
        self.raw.tick();
    }
}

impl<P: Policy + Send + Sync + 'static> HostYard<P> {
    pub(crate) fn new(raw: RawYard<P, HostLock>, tick: Option<Duration>) -> io::Result<Self> {
        let raw = Arc::new(raw);
        let start = |every| {
            let raw = raw.clone();
            Ticker::start(every, move || raw.tick())
        };
        Ok(HostYard { ticker: tick.map(start).transpose()?, raw })
    }
}
