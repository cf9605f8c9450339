//! Many single pages at once (spec §6.1).

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
    /// Fills the empty slots with single pages (spec §6.1, array form): the per-CPU list is locked
    /// once, and the watermark tested once, for all of them. Slots already filled stay.
    ///
    /// Returns the index reached, filled slots included: it may be less than the number of slots,
    /// and every slot before it is filled. Where not even one page could be had at once, or pages
    /// are charged ([`Gfp::ACCOUNT`]), one is tried as by [`alloc`](Yard::alloc).
    ///
    /// # Errors
    /// [`AllocError`] for flags that mean nothing; a lack of memory is no error.
    pub fn alloc_bulk(&self, gfp: Gfp, slots: &mut [Option<Pfn>]) -> Result<usize, AllocError> {
        self.alloc_bulk_on(NodeChoice::LOCAL, gfp, slots)
    }

    /// As [`alloc_bulk`](Yard::alloc_bulk), from certain nodes. Only the preferred node's own zones
    /// serve many pages at once.
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

    /// Up to `n` single pages, each given to `each` (spec §6.1, list form). Returns how many.
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

    /// As [`alloc_bulk_each`](Yard::alloc_bulk_each), from certain nodes.
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

    /// What of so many pages can be had at once; `None`: nothing, and one is to be tried by
    /// [`alloc_rest`](Yard::alloc_rest). What C calls leaves no frame of this below that.
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

    /// Up to `n` pages, each given to `each` once it is prepared. Returns how many.
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
                // From here on it is the caller's.
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

    /// Where `missing` of `wanted` pages come from. A frame of its own: the request lies below no
    /// page that is taken.
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
        if Self::comes_singly(gfp) || missing == 1 {
            return Ok(Start::One);
        }
        if self.hooks.fail(Order::ZERO, gfp) {
            return Ok(Start::Nothing);
        }
        let Request { cpu, migrate_type, .. } = req;
        let flags = bulk_flags(req.gfp);
        Ok(match self.bulk_zone(&req, wanted as u64) {
            Some(zone) => Start::From(Source { zone, cpu, migrate_type, flags }),
            None => Start::One,
        })
    }

    /// Whether a bulk request takes the way of a single page: while owners are recorded, or where
    /// each page is charged to somebody (§6.1).
    fn comes_singly(gfp: Gfp) -> bool {
        <C::Hooks as Observer>::SEES_EVERY_BLOCK || gfp.contains(Gfp::ACCOUNT)
    }

    /// The first zone that has all the pages above its low mark, once it has grown so far if need
    /// be (§8.2). No other mark is tested, so a bulk request never sets BELOW_HIGH.
    fn bulk_zone(&self, req: &Request, wanted: u64) -> Option<&'a Zone<'a, C::Lock>> {
        let flags = bulk_flags(req.gfp);
        let zones = self.zones_for(req);
        let near = zones.clone().next()?.node;
        let allowed = |node| req.context.allows(node, req.gfp.contains(Gfp::HARDWALL));
        zones.take_while(|z| z.node == near).filter(|z| allowed(z.node)).find(|z| {
            let passes = || {
                let mark = z.watermarks.effective(LOW).saturating_add(wanted);
                z.watermark_fast(0, mark, req.highest, flags)
            };
            passes() || self.growths(z, req.gfp).any(|_| passes())
        })
    }

    /// Fills the places with frames' indices, under one hold of this CPU's list; how many, stopping at
    /// the first failure.
    fn take_chunk<'p>(
        &self,
        source: &Source<'a, C::Lock>,
        places: impl Iterator<Item = &'p mut u32>,
    ) -> usize {
        let Some(at) = self.at(source.zone, source.cpu) else { return 0 };
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

/// Where the pages of a bulk request come from.
enum Start<'a, R: RawMutex> {
    /// Nowhere: the platform makes the request fail, or nothing is missing.
    Nothing,
    /// One at most, as by [`Yard::alloc`].
    One,
    From(Source<'a, R>),
}

/// The lists that serve a bulk request, and what it needs to know of itself.
struct Source<'a, R: RawMutex> {
    zone: &'a Zone<'a, R>,
    cpu: CpuId,
    migrate_type: MigrateType,
    flags: AllocFlags,
}

/// Pages on their way to the caller. Where the caller or a hook panics, they are free again.
struct Chunk<'y, 'a, C: Config> {
    yard: &'y Yard<'a, C>,
    zone: &'a Zone<'a, C::Lock>,
    /// Indices; [`NIL`] where there is none.
    pages: [u32; CHUNK],
}

impl<C: Config> Drop for Chunk<'_, '_, C> {
    fn drop(&mut self) {
        for &idx in self.pages.iter().filter(|&&idx| idx != NIL) {
            self.yard.return_unprepared(self.zone.pfn(idx), Order::ZERO);
        }
    }
}

/// Pages taken under one hold of a per-CPU list's lock; hooks run between two holds.
const CHUNK: usize = 64;

/// No KSWAPD and no NOFRAGMENT: a bulk request boosts, but wakes nobody.
fn bulk_flags(gfp: Gfp) -> AllocFlags {
    let mut flags = AllocFlags::WMARK_LOW | AllocFlags::of(gfp);
    flags.remove(AllocFlags::KSWAPD);
    flags
}
