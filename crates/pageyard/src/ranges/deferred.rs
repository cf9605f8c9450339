//! Deferred initialisation (spec §8.2): most of a large machine's descriptors are written after it
//! has begun to allocate, by as many threads as the embedder likes.

use crate::allocator::layout::{InitError, Layout, Storage, section_end};
use crate::allocator::start::{Deferred, Start};
use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::sync::Ordering::{AcqRel, Relaxed};
use crate::base::units::{CpuId, NodeId, Pfn};
use crate::base::unwind::Finally;
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::embedder::policy::StaticPolicy;
use crate::zone::state::Zone;

/// How often a request pauses while another thread has the section it waits for. That thread may
/// be the very one that the request has interrupted, so there must be an end.
const MOST_PAUSES: u32 = 1 << 16;

/// See [`Yard::growths`].
pub(crate) struct Growths<'g, 'a, C: Config> {
    yard: &'g Yard<'a, C>,
    zone: &'g Zone<'a, C::Lock>,
    gfp: Gfp,
    ended: bool,
}

impl<C: Config> Iterator for Growths<'_, '_, C> {
    type Item = bool;

    #[inline]
    fn next(&mut self) -> Option<bool> {
        if !<C::Hooks as Platform>::DEFERS || self.ended {
            return None;
        }
        let (grown, last) = self.yard.growth(self.zone, self.gfp)?;
        self.ended = last;
        Some(grown)
    }
}

impl<'a, C: Config<Policy: StaticPolicy>> Yard<'a, C> {
    /// An allocator that begins with one section of the last zone of each node (spec §8.2). The
    /// rest of those zones is initialised by [`init_section`](Yard::init_section), which any number
    /// of threads may call at once, while others allocate; requests that would fail for want of it
    /// initialise sections themselves. [`finish_deferred`](Yard::finish_deferred) ends it.
    ///
    /// Descriptors are not touched before their section's turn: **the frames of the storage must be
    /// as [`Frame::new`](crate::Frame::new) makes them, which is all zero bytes**, as fresh memory
    /// from an operating system is; of frames that are not, frees of what was never allocated may
    /// be believed. Pages of sections to come are present, but not yet managed.
    ///
    /// # Errors
    /// As [`new`](Yard::new).
    pub fn deferred(
        layout: &Layout<'a>,
        storage: Storage<'a, C::Lock>,
        hooks: impl Into<C::Hooks>,
    ) -> Result<Self, InitError> {
        let mut yard = Self::without_memory(hooks.into());
        yard.init_deferred(layout, storage)?;
        Ok(yard)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// [`deferred`](Yard::deferred) in place, as [`init`](Yard::init) is for [`new`](Yard::new).
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage then, and the yard is as it was.
    pub fn init_deferred(
        &mut self,
        layout: &Layout<'a>,
        storage: Storage<'a, C::Lock>,
    ) -> Result<(), InitError> {
        const { assert!(<C::Hooks as Platform>::DEFERS, "Platform::DEFERS is off") };
        self.build(layout, storage, Start::Deferred(layout))?;
        self.recalculate();
        self.regroup();
        Ok(())
    }

    /// Initialises the next section of a node's memory that is not (§8.2). `false`: nobody has to
    /// begin with another one; some may still be at work.
    ///
    /// What depends on the zone's size, watermarks and limits first, stays as it is until
    /// [`finish_deferred`](Yard::finish_deferred).
    pub fn init_section(&self, node: NodeId) -> bool {
        let zones = self.node(node).map_or(&[][..], |n| n.zones);
        zones.iter().any(|z| self.grow(z))
    }

    /// Ends deferred initialisation: does what is left of it, then computes watermarks, limits of
    /// the per-CPU lists and what else depends on the zones' sizes (§8.3). `false`: another thread
    /// is still busy with a section; call again. Nothing to be finished is finished.
    pub fn finish_deferred(&self) -> bool {
        let Some(deferred) = &self.deferred else { return true };
        for zone in self.zones {
            while self.grow(zone) {}
        }
        if !self.zones.iter().all(|z| z.deferred_part.left() == 0) {
            return false;
        }
        if deferred.finished.swap(true, AcqRel) {
            return true;
        }
        if deferred.layout.knobs.shuffle_seed.is_some() {
            for zone in self.zones.iter().filter(|z| z.deferred_part.is_deferred()) {
                if let Some(at) = self.at(zone, CpuId(0)) {
                    at.shuffle();
                }
            }
        }
        self.recalculate();
        self.regroup();
        true
    }

    /// Lets a zone grow, step by step, in which a request has not found what it wants (§8.2): after
    /// each step it is to look again. A step says whether it is this call that made the zone grow;
    /// otherwise other threads have done so.
    pub(crate) fn growths<'g>(
        &'g self,
        zone: &'g Zone<'a, C::Lock>,
        gfp: Gfp,
    ) -> Growths<'g, 'a, C> {
        let grows = |d: &Deferred<'_>| {
            <C::Hooks as Platform>::DEFERS && !d.is_finished() && zone.deferred_part.is_deferred()
        };
        Growths { yard: self, zone, gfp, ended: !self.deferred.as_ref().is_some_and(grows) }
    }

    /// One step; whether it is the last.
    #[cold]
    #[inline(never)]
    fn growth(&self, zone: &Zone<'a, C::Lock>, gfp: Gfp) -> Option<(bool, bool)> {
        let grown = self.grow(zone);
        let left = zone.deferred_part.left();
        // The last sections may be with others, as their memory is before they are done.
        if !grown && left > 0 && !self.wait_for_section(zone, left, gfp) {
            return None;
        }
        // With none left the last of them may have come since the request looked.
        Some((grown, !grown && left == 0))
    }

    /// Waits for another thread to be done with a section, asleep if the request may sleep.
    /// `false`: it takes too long.
    fn wait_for_section(&self, zone: &Zone<'a, C::Lock>, left: u64, gfp: Gfp) -> bool {
        (0..MOST_PAUSES).any(|_| {
            self.pause_if_allowed(gfp);
            zone.deferred_part.left() != left
        })
    }

    /// Initialises the zone's next section that has memory. `false`: there is none.
    #[cold]
    #[inline(never)]
    fn grow(&self, zone: &Zone<'a, C::Lock>) -> bool {
        let Some(deferred) = &self.deferred else { return false };
        let late = &zone.deferred_part;
        let end = zone.end();
        let cpu = self.hooks.cpu();
        // A thread that is none of the yard's CPUs works in the first one's name.
        let at = self.at(zone, cpu);
        let Some(at) = at.or_else(|| self.at(zone, CpuId(0))) else { return false };
        if !late.is_deferred() {
            return false;
        }
        loop {
            let claim = |next| (next < end.0).then(|| section_end(Pfn(next)).0.min(end.0));
            let Ok(from) = late.next.fetch_update(Relaxed, Relaxed, claim) else { return false };
            let section = Pfn(from)..section_end(Pfn(from)).min(end);
            // Done also where a hook panics: then its pages are not managed.
            let done = Finally(|| _ = late.left.fetch_sub(1, AcqRel));
            let pages = at.init_frames(&deferred.layout, section);
            drop(done);
            if pages > 0 {
                return true;
            }
        }
    }
}
