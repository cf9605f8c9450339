//! Deferred initialisation (spec §8.2): most of a large machine's descriptors are initialised after
//! allocation has started, by as many threads as the embedder likes.

use crate::allocator::init_error::InitError;
use crate::allocator::layout::{Layout, Storage, section_end};
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

/// Pauses of a request that waits for another thread to initialise a section. Bounded, because the
/// request may have interrupted that very thread.
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
    /// Creates an allocator that starts with one section of the last zone of each node (spec §8.2).
    /// Any number of threads may initialise the rest with [`init_section`](Yard::init_section),
    /// concurrently with requests. A request that would otherwise fail initialises sections itself.
    /// Call [`finish_deferred`](Yard::finish_deferred) at the end.
    ///
    /// Descriptors are not touched before their section is initialised. **The frames of the storage
    /// must be as [`Frame::new`](crate::Frame::new) makes them, which is all zero bytes**, as fresh
    /// memory from an operating system is. Otherwise frees of blocks that were never allocated may
    /// be accepted. Pages of uninitialised sections are present but not managed.
    ///
    /// # Errors
    /// Those of [`new`](Yard::new).
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
    /// Initialises a yard as [`deferred`](Yard::deferred) does, in place, as [`init`](Yard::init)
    /// does for [`new`](Yard::new).
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage, and the yard is unchanged.
    pub fn init_deferred(
        &mut self,
        layout: &Layout<'a>,
        storage: Storage<'a, C::Lock>,
    ) -> Result<(), InitError> {
        const { assert!(<C::Hooks as Platform>::DEFERS, "Platform::DEFERS is off") };
        self.build(layout, storage, Start::Deferred(layout))?;
        self.recalculate();
        self.update_grouping();
        Ok(())
    }

    /// Initialises the next uninitialised section of a node's memory (§8.2). Returns `false` if no
    /// section is left to start with; other threads may still be working on theirs.
    ///
    /// Values that depend on the zone's size, such as watermarks and limits, do not change until
    /// [`finish_deferred`](Yard::finish_deferred).
    pub fn init_section(&self, node: NodeId) -> bool {
        let zones = self.node(node).map_or(&[][..], |n| n.zones);
        zones.iter().any(|z| self.grow(z))
    }

    /// Finishes deferred initialisation: initialises the remaining sections, then computes
    /// watermarks, limits of the per-CPU lists and everything else that depends on the zones' sizes
    /// (§8.3). Returns `false` if another thread is still working on a section; call it again.
    /// Returns `true` if initialisation is not deferred.
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
        self.update_grouping();
        true
    }

    /// Returns an iterator that grows a zone step by step, for a request that found no block in it
    /// (§8.2). The request looks again after each step. An item is `true` if this call grew the
    /// zone, and `false` if other threads did.
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

    /// Takes one step. Returns whether it grew the zone and whether it is the last step, or `None`
    /// if waiting took too long.
    #[cold]
    #[inline(never)]
    fn growth(&self, zone: &Zone<'a, C::Lock>, gfp: Gfp) -> Option<(bool, bool)> {
        let grown = self.grow(zone);
        let left = zone.deferred_part.left();
        // Other threads may hold the last sections, whose memory becomes free before they are done.
        if !grown && left > 0 && !self.wait_for_section(zone, left, gfp) {
            return None;
        }
        // With none left, the last section may have become free since the request looked.
        Some((grown, !grown && left == 0))
    }

    /// Waits until another thread has finished a section, and sleeps if the request may sleep.
    /// Returns `false` if that takes too long.
    fn wait_for_section(&self, zone: &Zone<'a, C::Lock>, left: u64, gfp: Gfp) -> bool {
        (0..MOST_PAUSES).any(|_| {
            self.pause_if_allowed(gfp);
            zone.deferred_part.left() != left
        })
    }

    /// Initialises the zone's next section that has memory. Returns `false` if there is none.
    #[cold]
    #[inline(never)]
    fn grow(&self, zone: &Zone<'a, C::Lock>) -> bool {
        let Some(deferred) = &self.deferred else { return false };
        let part = &zone.deferred_part;
        let end = zone.end();
        let Some(at) = self.at_any(zone) else { return false };
        if !part.is_deferred() {
            return false;
        }
        loop {
            let claim = |next| (next < end.0).then(|| section_end(Pfn(next)).0.min(end.0));
            let Ok(from) = part.next.fetch_update(Relaxed, Relaxed, claim) else { return false };
            let section = Pfn(from)..section_end(Pfn(from)).min(end);
            // Counted as done also if a hook panics; its pages are then not managed.
            let done = Finally(|| _ = part.left.fetch_sub(1, AcqRel));
            let pages = at.init_frames(&deferred.layout, section);
            drop(done);
            if pages > 0 {
                return true;
            }
        }
    }
}
