//! Many single pages at once (spec §6.1).

use lock_api::RawMutex;

use crate::alloc::{AllocError, Request};
use crate::gfp::{AllocFlags, Gfp};
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
    /// and every slot before it is filled. Where not even one page could be had at once, one is
    /// tried as by [`alloc`](Yard::alloc).
    ///
    /// # Errors
    /// [`AllocError`] for flags that mean nothing; a lack of memory is no error.
    pub fn alloc_bulk(&self, gfp: Gfp, slots: &mut [Option<Pfn>]) -> Result<usize, AllocError> {
        let req = self.request(Order::ZERO, gfp)?;
        let wanted = slots.len();
        let mut done = slots.iter().take_while(|s| s.is_some()).count();
        if done == wanted {
            return Ok(done);
        }
        if wanted - done > 1
            && let Some(zone) = self.bulk_zone(&req, wanted as u64)
        {
            let got = self.bulk_from(zone, &req, slots, &mut done);
            if got > 0 {
                return Ok(done);
            }
        }
        if let Some(slot) = slots.get_mut(done)
            && let Ok(pfn) = self.alloc(Order::ZERO, gfp)
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
        mut each: impl FnMut(Pfn),
    ) -> Result<usize, AllocError> {
        let req = self.request(Order::ZERO, gfp)?;
        let mut got = 0;
        if n > 1
            && let Some(zone) = self.bulk_zone(&req, n as u64)
            && let Some(at) = zone.at::<E, P>(&self.platform, req.cpu)
            && let Some(mut pageset) = at.slot.pageset.try_lock()
        {
            let flags = bulk_flags(gfp);
            while got < n
                && let Some(idx) = pageset.take(at, 0, req.migrate_type, flags)
            {
                self.platform.prepare(zone.pfn(idx), Order::ZERO, gfp);
                each(zone.pfn(idx));
                got += 1;
            }
        }
        if got == 0
            && n > 0
            && let Ok(pfn) = self.alloc(Order::ZERO, gfp)
        {
            each(pfn);
            got = 1;
        }
        Ok(got)
    }

    /// The first zone that has all the pages above its low mark. No other mark is tested, so a
    /// bulk request never sets BELOW_HIGH.
    fn bulk_zone(&self, req: &Request, wanted: u64) -> Option<&'a Zone<'a, R>> {
        let flags = bulk_flags(req.gfp);
        self.zonelist(req.highest).iter().find(|z| {
            let mark = z.watermarks.effective(LOW).saturating_add(wanted);
            z.watermark_fast(0, mark, req.highest, flags)
        })
    }

    fn bulk_from(
        &self,
        zone: &'a Zone<'a, R>,
        req: &Request,
        slots: &mut [Option<Pfn>],
        done: &mut usize,
    ) -> usize {
        let Some(at) = zone.at::<E, P>(&self.platform, req.cpu) else { return 0 };
        let Some(mut pageset) = at.slot.pageset.try_lock() else { return 0 };
        let flags = bulk_flags(req.gfp);
        let mut got = 0;
        for slot in slots.iter_mut().skip(*done) {
            if slot.is_none() {
                let Some(idx) = pageset.take(at, 0, req.migrate_type, flags) else { break };
                self.platform.prepare(zone.pfn(idx), Order::ZERO, req.gfp);
                *slot = Some(zone.pfn(idx));
                got += 1;
            }
            *done += 1;
        }
        got
    }
}

/// No KSWAPD and no NOFRAGMENT: a bulk request boosts, but wakes nobody.
fn bulk_flags(gfp: Gfp) -> AllocFlags {
    let mut flags = AllocFlags::WMARK_LOW | AllocFlags::of(gfp);
    flags.remove(AllocFlags::KSWAPD);
    flags
}
