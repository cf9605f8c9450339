//! Many single pages at once (spec §6.1).

use lock_api::RawMutex;

use crate::alloc::{AllocError, Request};
use crate::frame::NIL;
use crate::gfp::{AllocFlags, Gfp};
use crate::node::NodeChoice;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::units::{Order, Pfn};
use crate::watermark::LOW;
use crate::yard::Yard;
use crate::zone::Zone;

impl<'a, R: RawMutex, E: Platform, P: Policy> Yard<'a, R, E, P> {
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
        let req = self.request(Order::ZERO, gfp, nodes)?;
        let wanted = slots.len();
        let mut done = slots.iter().take_while(|s| s.is_some()).count();
        if done == wanted {
            return Ok(done);
        }
        if Self::comes_singly(gfp) {
            // One page at most.
        } else if wanted - done > 1 && self.platform.fail(Order::ZERO, gfp) {
            return Ok(done);
        } else if wanted - done > 1
            && let Some(zone) = self.bulk_zone(&req, wanted as u64)
        {
            let got = self.bulk_from(zone, &req, slots, &mut done);
            if got > 0 {
                return Ok(done);
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
        let Some(got) = self.bulk_each(nodes, n, gfp, &mut each)? else { return Ok(0) };
        if got == 0
            && n > 0
            && !self.platform.fail(Order::ZERO, gfp)
            && let Ok(pfn) = self.alloc_rest(nodes, Order::ZERO, gfp)
        {
            each(pfn);
            return Ok(1);
        }
        Ok(got)
    }

    /// What of so many pages can be had at once; `None`: the platform makes the request fail. Not in
    /// one frame with what follows where that is nothing.
    #[inline(never)]
    fn bulk_each(
        &self,
        nodes: NodeChoice,
        n: usize,
        gfp: Gfp,
        each: &mut impl FnMut(Pfn),
    ) -> Result<Option<usize>, AllocError> {
        let req = self.request(Order::ZERO, gfp, nodes)?;
        if Self::comes_singly(gfp) || n <= 1 {
            return Ok(Some(0));
        }
        if self.platform.fail(Order::ZERO, gfp) {
            return Ok(None);
        }
        let Some(zone) = self.bulk_zone(&req, n as u64) else { return Ok(Some(0)) };
        let mut got = 0;
        while got < n {
            let wanted = (n - got).min(CHUNK);
            let mut chunk = Chunk { yard: self, zone, pages: [NIL; CHUNK] };
            let places = chunk.pages.iter_mut().take(wanted);
            let taken = self.take_chunk(zone, &req, places, |place, idx| *place = idx);
            for place in chunk.pages.iter_mut().take(taken) {
                let pfn = zone.pfn(*place);
                self.hand_over(pfn, Order::ZERO, gfp);
                // From here on it is the caller's.
                *place = NIL;
                each(pfn);
            }
            got += taken;
            if taken < wanted {
                break;
            }
        }
        Ok(Some(got))
    }

    /// Whether a bulk request takes the way of a single page: while owners are recorded, or where
    /// each page is charged to somebody (§6.1).
    fn comes_singly(gfp: Gfp) -> bool {
        E::SEES_EVERY_BLOCK || gfp.contains(Gfp::ACCOUNT)
    }

    /// The first zone that has all the pages above its low mark, once it has grown so far if need
    /// be (§8.2). No other mark is tested, so a bulk request never sets BELOW_HIGH.
    fn bulk_zone(&self, req: &Request, wanted: u64) -> Option<&'a Zone<'a, R>> {
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

    /// Fills empty slots from `done` on; how many, `done` being the index reached.
    fn bulk_from(
        &self,
        zone: &'a Zone<'a, R>,
        req: &Request,
        slots: &mut [Option<Pfn>],
        done: &mut usize,
    ) -> usize {
        let mut got = 0;
        let (_, rest) = slots.split_at_mut((*done).min(slots.len()));
        for chunk in rest.chunks_mut(CHUNK) {
            // Which of them are new: prepared after the list's lock is released.
            let empty = chunk.iter().rev().fold(0u64, |m, s| m << 1 | u64::from(s.is_none()));
            let wanted = empty.count_ones() as usize;
            let slots = chunk.iter_mut().filter(|s| s.is_none());
            let taken = self.take_chunk(zone, req, slots, |slot, idx| *slot = Some(zone.pfn(idx)));
            for (i, slot) in chunk.iter().enumerate() {
                if empty >> i & 1 != 0
                    && let Some(pfn) = *slot
                {
                    self.hand_over(pfn, Order::ZERO, req.gfp);
                }
            }
            got += taken;
            if taken < wanted {
                *done += chunk.iter().take_while(|s| s.is_some()).count();
                break;
            }
            *done += chunk.len();
        }
        got
    }

    /// Fills the slots, by `fill`, under one hold of this CPU's list; how many, stopping at the first
    /// failure.
    fn take_chunk<'s, S: 's>(
        &self,
        zone: &'a Zone<'a, R>,
        req: &Request,
        slots: impl Iterator<Item = &'s mut S>,
        fill: impl Fn(&mut S, u32),
    ) -> usize {
        let Some(at) = self.at(zone, req.cpu) else { return 0 };
        let Some(mut pageset) = at.slot.pageset.try_lock() else { return 0 };
        let flags = bulk_flags(req.gfp);
        let mut got = 0;
        for slot in slots {
            let Some(idx) = pageset.take(at, 0, req.migrate_type, flags) else { break };
            fill(slot, idx);
            got += 1;
        }
        got
    }
}

/// Pages on their way to the caller. Where the caller or a hook panics, they are free again.
struct Chunk<'y, 'a, R: RawMutex, E: Platform, P: Policy> {
    yard: &'y Yard<'a, R, E, P>,
    zone: &'a Zone<'a, R>,
    /// Indices; [`NIL`] where there is none.
    pages: [u32; CHUNK],
}

impl<R: RawMutex, E: Platform, P: Policy> Drop for Chunk<'_, '_, R, E, P> {
    fn drop(&mut self) {
        for &idx in self.pages.iter().filter(|&&idx| idx != NIL) {
            self.yard.take_back_undelivered(self.zone.pfn(idx), Order::ZERO);
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
