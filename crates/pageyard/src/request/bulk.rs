//! Bulk allocation of single pages (spec §6.1).

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::NIL;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::node_mask::NodeChoice;
use crate::base::units::{CpuId, MigrateType, Order, Pfn};
use crate::base::watermark::LOW;
use crate::embedder::config::Config;
use crate::embedder::hooks::{Defences, Observer};
use crate::request::alloc::{AllocError, Request};
use crate::zone::state::Zone;

impl<'a, C: Config> Yard<'a, C> {
    /// Fills the empty slots with single pages (spec §6.1, array form). Tests the watermark once
    /// for all of them, and locks the per-CPU list once for up to 64 of them. Filled slots are left
    /// alone.
    ///
    /// Returns the index reached, including slots that were already filled. It may be less than the
    /// number of slots; every slot before it is filled. If the per-CPU lists yield no page, or
    /// pages are charged ([`Gfp::ACCOUNT`]), tries a single page like [`alloc`](Yard::alloc).
    ///
    /// # Errors
    /// [`AllocError`] for invalid flags, CPU or node. A shortage is not an error: it returns fewer
    /// pages.
    pub fn alloc_bulk(&self, gfp: Gfp, slots: &mut [Option<Pfn>]) -> Result<usize, AllocError> {
        self.alloc_bulk_on(NodeChoice::LOCAL, gfp, slots)
    }

    /// Like [`alloc_bulk`](Yard::alloc_bulk), with a choice of nodes. Bulk pages come only from
    /// zones of the node of the first eligible zone.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    pub fn alloc_bulk_on(
        &self,
        nodes: impl Into<NodeChoice>,
        gfp: Gfp,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, AllocError> {
        let nodes = nodes.into();
        let wanted = slots.len();
        let mut done = slots.iter().take_while(|s| s.is_some()).count();
        match self.bulk_source(nodes, gfp, wanted, wanted - done)? {
            Start::Nothing => return Ok(done),
            Start::One => {}
            Start::From(source) => {
                let empty = slots.iter().filter(|s| s.is_none()).count();
                let mut rest = slots.iter_mut().filter(|s| s.is_none());
                let mut fill = |pfn| rest.next().into_iter().for_each(|slot| *slot = Some(pfn));
                if self.bulk_from(&source, gfp, empty, &mut fill) > 0 {
                    return Ok(slots.iter().take_while(|s| s.is_some()).count());
                }
            }
        }
        if let Some(slot) = slots.get_mut(done)
            && let Ok(pfn) = self.alloc_on(nodes, Order::ZERO, gfp)
        {
            *slot = Some(pfn);
            done += 1;
        }
        Ok(done)
    }

    /// Allocates up to `n` single pages and passes each to `each` (spec §6.1, list form). Returns
    /// the number of pages.
    ///
    /// # Errors
    /// As [`alloc_bulk`](Yard::alloc_bulk).
    pub fn alloc_bulk_each(
        &self,
        n: usize,
        gfp: Gfp,
        each: impl FnMut(Pfn),
    ) -> Result<usize, AllocError> {
        self.alloc_bulk_each_on(NodeChoice::LOCAL, n, gfp, each)
    }

    /// Like [`alloc_bulk_each`](Yard::alloc_bulk_each), with a choice of nodes.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    pub fn alloc_bulk_each_on(
        &self,
        nodes: impl Into<NodeChoice>,
        n: usize,
        gfp: Gfp,
        mut each: impl FnMut(Pfn),
    ) -> Result<usize, AllocError> {
        let nodes = nodes.into();
        let Some(got) = self.alloc_bulk_ready(nodes, n, gfp, &mut each)? else {
            return Ok(match self.alloc_rest(nodes, Order::ZERO, gfp) {
                Ok(pfn) => {
                    each(pfn);
                    1
                }
                Err(_) => 0,
            });
        };
        Ok(got)
    }

    /// Allocates what the per-CPU lists yield of `n` pages. Returns `None` if that is nothing and
    /// the caller should try a single page with [`alloc_rest`](Yard::alloc_rest). Separate so that
    /// a C caller does not keep this frame during that attempt.
    ///
    /// # Errors
    /// As [`alloc_on`](Yard::alloc_on).
    #[doc(hidden)]
    #[inline(never)]
    pub fn alloc_bulk_ready(
        &self,
        nodes: NodeChoice,
        n: usize,
        gfp: Gfp,
        each: &mut impl FnMut(Pfn),
    ) -> Result<Option<usize>, AllocError> {
        let got = match self.bulk_source(nodes, gfp, n, n)? {
            Start::Nothing => return Ok(Some(0)),
            Start::One => 0,
            Start::From(source) => self.bulk_from(&source, gfp, n, each),
        };
        let tries_one = got == 0 && !self.hooks.fail(Order::ZERO, gfp);
        Ok((!tries_one).then_some(got))
    }

    /// Allocates up to `n` pages and passes each to `each` once it is prepared. Returns the number
    /// of pages.
    #[inline(always)]
    fn bulk_from(
        &self,
        source: &Source<'a, C::Lock>,
        gfp: Gfp,
        n: usize,
        each: &mut impl FnMut(Pfn),
    ) -> usize {
        let mut got = 0;
        while got < n {
            let wanted = (n - got).min(CHUNK);
            let mut chunk = Chunk { yard: self, zone: source.zone, pages: [NIL; CHUNK] };
            let places = chunk.pages.iter_mut().take(wanted);
            let taken = self.take_chunk(source, places);
            for place in chunk.pages.iter_mut().take(taken) {
                let pfn = source.zone.pfn(*place);
                self.prepare_memory(pfn, Order::ZERO, gfp);
                // The page belongs to the caller from here on.
                *place = NIL;
                each(pfn);
            }
            got += taken;
            if taken < wanted {
                break;
            }
        }
        got
    }

    /// Chooses the source of `missing` of `wanted` pages. Outlined to keep the request off the
    /// stack while pages are taken.
    #[inline(never)]
    fn bulk_source(
        &self,
        nodes: NodeChoice,
        gfp: Gfp,
        wanted: usize,
        missing: usize,
    ) -> Result<Start<'a, C::Lock>, AllocError> {
        let req = self.request(Order::ZERO, gfp, nodes)?;
        if missing == 0 {
            return Ok(Start::Nothing);
        }
        if self.comes_singly(gfp) || missing == 1 {
            return Ok(Start::One);
        }
        if self.hooks.fail(Order::ZERO, gfp) {
            return Ok(Start::Nothing);
        }
        let Request { cpu, migrate_type, .. } = req;
        let flags = bulk_flags(&req);
        Ok(match self.bulk_zone(&req, wanted as u64) {
            Some(zone) => Start::From(Source { zone, cpu, migrate_type, flags }),
            None => Start::One,
        })
    }

    /// Whether a bulk request must allocate page by page: because every block is observed, or
    /// because each page is charged (§6.1).
    fn comes_singly(&self, gfp: Gfp) -> bool {
        self.hooks.sees_every_block() || gfp.contains(Gfp::ACCOUNT)
    }

    /// Returns the first zone that would stay above its low watermark without the wanted pages,
    /// growing zones if needed (§8.2). Tests no other watermark, so a bulk request never sets
    /// BELOW_HIGH.
    fn bulk_zone(&self, req: &Request, wanted: u64) -> Option<&'a Zone<'a, C::Lock>> {
        let flags = bulk_flags(req);
        let zones = self.zones_for(req);
        let near = zones.clone().next()?.node;
        let allowed = |z: &&Zone<'_, _>| req.may_use(z.node, AllocFlags::CPUSET);
        zones.take_while(|z| z.node == near).filter(allowed).find(|z| {
            let passes = || {
                let mark = z.watermarks.effective(LOW).saturating_add(wanted);
                z.watermark_fast(0, mark, req.highest, flags)
            };
            passes() || self.growths(z, req.gfp).any(|_| passes())
        })
    }

    /// Fills `places` with frame indices under one lock of this CPU's list. Stops at the first
    /// failure and returns the number filled.
    fn take_chunk<'p>(
        &self,
        source: &Source<'a, C::Lock>,
        places: impl Iterator<Item = &'p mut u32>,
    ) -> usize {
        let Some(at) = self.at(source.zone, source.cpu) else { return 0 };
        if self.is_packed() {
            return at.take_packed_bulk(source.migrate_type, source.flags, places);
        }
        let Some(mut pageset) = at.slot.pageset.try_lock() else { return 0 };
        let mut got = 0;
        for place in places {
            let idx = pageset.take(&at, 0, source.migrate_type, source.flags);
            let Some(idx) = idx else { break };
            *place = idx;
            got += 1;
        }
        got
    }
}

/// The source of a bulk request's pages.
enum Start<'a, R: RawMutex> {
    /// No page: fault injection fails the request, or no page is missing.
    Nothing,
    /// At most one page, allocated like [`Yard::alloc`].
    One,
    From(Source<'a, R>),
}

/// The lists that serve a bulk request, with the request's parameters.
struct Source<'a, R: RawMutex> {
    zone: &'a Zone<'a, R>,
    cpu: CpuId,
    migrate_type: MigrateType,
    flags: AllocFlags,
}

/// Pages taken but not yet passed to the caller. If the caller or a hook panics, they are freed.
struct Chunk<'y, 'a, C: Config> {
    yard: &'y Yard<'a, C>,
    zone: &'a Zone<'a, C::Lock>,
    /// Frame indices; [`NIL`] if unused.
    pages: [u32; CHUNK],
}

impl<C: Config> Drop for Chunk<'_, '_, C> {
    fn drop(&mut self) {
        for &idx in self.pages.iter().filter(|&&idx| idx != NIL) {
            self.yard.return_unprepared(self.zone.pfn(idx), Order::ZERO);
        }
    }
}

/// Maximum number of pages taken under one lock of a per-CPU list. Hooks run between two chunks.
const CHUNK: usize = 64;

/// Without KSWAPD and NOFRAGMENT: a bulk request may boost watermarks but wakes no reclaim.
fn bulk_flags(req: &Request) -> AllocFlags {
    let mut flags = AllocFlags::WMARK_LOW | AllocFlags::of(req.gfp, req.migrate_type);
    flags.remove(AllocFlags::KSWAPD);
    flags
}
