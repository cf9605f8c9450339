//! The way of a request (spec §2.7–2.10): flags to zone and type, the fast path, the ladder as far
//! as it goes without reclaim.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use lock_api::RawMutex;

use crate::events::Event;
use crate::frame::{Kind, State};
use crate::gfp::{AllocFlags, Gfp, route};
use crate::mobility::Source;
use crate::pcp::is_cached_order;
use crate::platform::Platform;
use crate::policy::{BelowHigh, Policy};
use crate::units::{CpuId, MigrateType, Order, Pfn, ZoneKind};
use crate::watermark::HIGH;
use crate::yard::Yard;
use crate::zone::{At, BELOW_HIGH, BOOSTED_WATERMARK, Zone, first_mark};

/// Why a request was not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No zone that the request may use has a block it may take.
    NoMemory,
    /// The zone bits of the flags mean nothing together (§2.3).
    BadZone,
    /// The flags say both MOVABLE and RECLAIMABLE (§2.4).
    BadType,
    /// The platform named a CPU that the yard was not told of.
    UnknownCpu(CpuId),
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::NoMemory => {
                f.write_str("no zone has a free block that the request may use")
            }
            AllocError::BadZone => f.write_str("the request's zone flags contradict each other"),
            AllocError::BadType => f.write_str("a request is movable or reclaimable, not both"),
            AllocError::UnknownCpu(c) => {
                write!(f, "the platform runs on CPU {}, for which the layout has no node", c.0)
            }
        }
    }
}

impl core::error::Error for AllocError {}

/// A request, looked up once.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) order: Order,
    pub(crate) gfp: Gfp,
    pub(crate) migrate_type: MigrateType,
    pub(crate) highest: ZoneKind,
    pub(crate) cpu: CpuId,
}

impl<'a, R: RawMutex, E: Platform, P: Policy> Yard<'a, R, E, P> {
    /// Allocates a block of 2^`order` pages (spec §2.7).
    ///
    /// The block is aligned to its size. It is the caller's until it is given to
    /// [`free`](Yard::free) with the same order. Its contents are what they were, unless the
    /// platform [prepares](Platform::prepare) them.
    ///
    /// A request with [`Gfp::DIRECT_RECLAIM`] is not yet followed by reclaim: it fails where the
    /// kernel would begin to reclaim.
    ///
    /// # Errors
    /// [`AllocError`]; then nothing was taken, though the attempt has left its traces in the
    /// tuning, as the kernel's does (§2.8).
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        // Written twice: where the compiler does not know the order, single pages, the most common
        // ones, still get code of their own.
        let quick = if order == Order::ZERO {
            self.alloc_quick(Order::ZERO, gfp)
        } else {
            self.alloc_quick(order, gfp)
        };
        match quick {
            Some(pfn) => Ok(pfn),
            None => self.alloc_full(order, gfp),
        }
    }

    /// The common case in one piece: the preferred zone is above its high mark and nothing is
    /// pending there, this CPU's list is not busy and not empty. Anything else is left to
    /// [`alloc_full`](Self::alloc_full), and nothing has changed by then.
    #[inline(always)]
    fn alloc_quick(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let o = order.get();
        if !is_cached_order::<P>(o) {
            return None;
        }
        let (highest, t) = route(gfp)?;
        let zone = self.zonelist(highest).first()?;
        let at = zone.at::<E, P>(&self.platform, self.platform.cpu())?;
        if zone.has_flag(BELOW_HIGH | BOOSTED_WATERMARK) {
            return None;
        }
        let passes = if o == 0 {
            zone.watermarks.is_ample(zone.nr_free.load(Relaxed), highest)
        } else if zone.ungrouped.load(Relaxed) {
            false
        } else {
            let mark = first_mark::<P>();
            let flags = AllocFlags::from_bits_retain(mark as u32);
            zone.watermark_fast(o, zone.watermarks.effective(mark), highest, flags)
        };
        if !passes {
            return None;
        }
        let mut pageset = at.slot.pageset.try_lock()?;
        let idx = pageset.pop(at, o, t)?;
        pageset.note_alloc::<P>();
        drop(pageset);
        let pfn = zone.pfn(idx);
        self.platform.event(at.cpu, Event::Alloc { pfn: Some(pfn), order, migrate_type: t, gfp });
        self.platform.prepare(pfn, order, gfp);
        Some(pfn)
    }

    /// The whole way of a request.
    #[cold]
    #[inline(never)]
    fn alloc_full(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let req = self.request(order, gfp)?;
        let answer = match self.fast_path(&req) {
            Some(pfn) => Some(pfn),
            None => self.slow_path(&req),
        };
        self.platform.event(
            req.cpu,
            Event::Alloc { pfn: answer, order, migrate_type: req.migrate_type, gfp },
        );
        let pfn = answer.ok_or(AllocError::NoMemory)?;
        self.platform.prepare(pfn, order, gfp);
        Ok(pfn)
    }

    #[inline]
    pub(crate) fn request(&self, order: Order, gfp: Gfp) -> Result<Request, AllocError> {
        let highest = gfp.highest_zone().ok_or(AllocError::BadZone)?;
        let mut migrate_type = gfp.migrate_type().ok_or(AllocError::BadType)?;
        if self.zonelist(highest).iter().any(|z| z.ungrouped.load(Relaxed)) {
            migrate_type = MigrateType::Unmovable;
        }
        let cpu = self.platform.cpu();
        if cpu.0 >= self.cpus {
            return Err(AllocError::UnknownCpu(cpu));
        }
        Ok(Request { order, gfp, migrate_type, highest, cpu })
    }

    /// The zones that may serve a request, best first. Those without memory are to be passed over.
    #[inline]
    pub(crate) fn zonelist(&self, highest: ZoneKind) -> &'a [Zone<'a, R>] {
        self.zonelists[highest as usize & 7]
    }

    /// The first attempt, at the low watermark (§2.7).
    #[inline]
    fn fast_path(&self, req: &Request) -> Option<Pfn> {
        let mut flags = AllocFlags::WMARK_LOW | AllocFlags::of(req.gfp);
        let zones = self.zonelist(req.highest);
        if preferred(zones)?.nofragment.load(Relaxed) {
            flags |= AllocFlags::NOFRAGMENT;
        }
        self.attempt(req, flags, zones)
    }

    /// The ladder (§2.10) up to where reclaim would begin: *restart*, then *retry*.
    #[cold]
    #[inline(never)]
    fn slow_path(&self, req: &Request) -> Option<Pfn> {
        let zones = self.zonelist(req.highest);
        let preferred = preferred(zones)?;
        let mut flags = AllocFlags::slow(req.gfp, req.order.get());
        let wake = || {
            if req.gfp.contains(Gfp::KSWAPD_RECLAIM) {
                self.platform.wake_reclaim(preferred.node, req.order, req.highest);
            }
        };
        wake();
        if let Some(pfn) = self.attempt(req, flags, zones) {
            return Some(pfn);
        }
        wake();
        if req.gfp.contains(Gfp::MEMALLOC) && !req.gfp.contains(Gfp::NOMEMALLOC) {
            // What replaces the flags keeps neither NON_BLOCK nor HIGHATOMIC.
            flags = AllocFlags::NO_WATERMARKS | AllocFlags::of(req.gfp);
        }
        let answer = self.attempt(req, flags, zones);
        if answer.is_none() {
            preferred.failures.fetch_add(1, Relaxed);
        }
        answer
    }

    /// One walk over the zones (§2.8).
    #[inline]
    fn attempt(&self, req: &Request, flags: AllocFlags, zones: &'a [Zone<'a, R>]) -> Option<Pfn> {
        let mut flags = flags;
        loop {
            for zone in zones.iter().filter(|z| z.is_populated()) {
                let at = zone.at::<E, P>(&self.platform, req.cpu)?;
                if let Some(idx) = at.serve(req, flags) {
                    return Some(zone.pfn(idx));
                }
            }
            if !flags.contains(AllocFlags::NOFRAGMENT) {
                return None;
            }
            // Better mixed blocks than none.
            flags.remove(AllocFlags::NOFRAGMENT);
        }
    }
}

/// The first zone with memory.
fn preferred<'z, 'a, R: RawMutex>(zones: &'z [Zone<'a, R>]) -> Option<&'z Zone<'a, R>> {
    zones.iter().find(|z| z.is_populated())
}

impl<R: RawMutex, E: Platform, P: Policy> At<'_, '_, R, E, P> {
    /// What one zone answers in one attempt (§2.8 steps 5 to 7).
    #[inline]
    fn serve(self, req: &Request, flags: AllocFlags) -> Option<u32> {
        let zone = self.zone;
        if !self.watermark_holds(req, flags) && !flags.contains(AllocFlags::NO_WATERMARKS) {
            return None;
        }
        let answer = match self.take_cached(req, flags) {
            Some(idx) => Some(idx),
            None => self.take_direct(req, flags),
        };
        if flags.contains(AllocFlags::KSWAPD)
            && zone.has_flag(BOOSTED_WATERMARK)
            && zone.clear_flag(BOOSTED_WATERMARK)
        {
            self.env.wake_reclaim(zone.node, Order::ZERO, zone.kind);
        }
        if flags.contains(AllocFlags::HIGHATOMIC)
            && let Some(idx) = answer
        {
            self.reserve_highatomic(idx, req.order.get());
        }
        answer
    }

    /// Steps 5 and 6: the high watermark, while it was last seen to hold; then the one asked for.
    #[inline]
    fn watermark_holds(self, req: &Request, flags: AllocFlags) -> bool {
        let zone = self.zone;
        let order = req.order.get();
        let holds =
            |mark| zone.watermark_fast(order, zone.watermarks.effective(mark), req.highest, flags);
        let below = zone.has_flag(BELOW_HIGH);
        let test_high = match P::RULES.pcp.below_high {
            BelowHigh::Ignored => false,
            BelowHigh::TestedAlways => true,
            BelowHigh::TestedWhileClear => !below,
        };
        if test_high {
            if holds(HIGH) {
                return true;
            }
            if !below {
                zone.set_flag(BELOW_HIGH);
            }
        }
        holds(flags.mark())
    }

    /// From this CPU's lists (§5.7), where the order is kept there and nobody else is at them.
    #[inline]
    fn take_cached(self, req: &Request, flags: AllocFlags) -> Option<u32> {
        let order = req.order.get();
        if !is_cached_order::<P>(order) {
            return None;
        }
        let Some(mut pageset) = self.slot.pageset.try_lock() else {
            self.zone.bypasses.fetch_add(1, Relaxed);
            return None;
        };
        pageset.note_alloc::<P>();
        pageset.take(self, order, req.migrate_type, flags)
    }

    /// From the zone's free lists (§2.8 step 7, §3.8).
    #[inline(never)]
    fn take_direct(self, req: &Request, flags: AllocFlags) -> Option<u32> {
        let order = req.order.get();
        let t = req.migrate_type;
        let zone = self.lock();
        let mut idx = None;
        if flags.contains(AllocFlags::HIGHATOMIC) {
            idx = zone.smallest(order, MigrateType::HighAtomic);
        }
        idx = idx.or_else(|| zone.take_one(order, t, &mut Source::Own, flags));
        if idx.is_none() && flags.intersects(AllocFlags::OOM | AllocFlags::NON_BLOCK) {
            idx = zone.smallest(order, MigrateType::HighAtomic);
        }
        let idx = idx?;
        zone.zone.map.frame(idx).set_state(State::new(Kind::Allocated, order, t));
        zone.slot.counters.direct_allocs.add(order, t);
        Some(idx)
    }
}
