//! Memory that comes and goes, section by section (spec §8.4). The layout's zones span all there may
//! ever be; what is not usable at the start may come later.

use core::fmt;
use core::ops::Range;

use lock_api::RawMutex;

use crate::contig::ContigError;
use crate::frame::{Kind, State};
use crate::gfp::Gfp;
use crate::isolate::Purpose;
use crate::node::rebuild_orders;
use crate::platform::Platform;
use crate::policy::Policy;
use crate::safety::change;
use crate::sync::Ordering::Relaxed;
use crate::tuning::Limits;
use crate::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, PAGEBLOCK_PAGES, Pfn, SECTION_PAGES, ZoneKind,
};
use crate::yard::Yard;
use crate::zone::{At, OVERTAKEN, Zone};

/// How often sections are emptied before what is still in use there makes them stay. The kernel
/// goes on until somebody stops it.
const TRIES: usize = 8;

/// Why memory did not come, or did not go. It is what it was, though blocks may have moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotplugError {
    /// This end of the range is not a section's: not a multiple of [`SECTION_PAGES`].
    Misaligned(Pfn),
    /// There is memory at this frame already.
    Present(Pfn),
    /// There is no memory at this frame.
    Hole(Pfn),
    /// [Deferred initialisation](Yard::deferred) is not finished.
    Deferred,
    /// The range means nothing, does not lie in one zone, or cannot be emptied.
    Refused(ContigError),
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HotplugError::Misaligned(p) => {
                write!(f, "frame {p} is not a multiple of a section's {SECTION_PAGES} pages")
            }
            HotplugError::Present(p) => write!(f, "there is memory at frame {p} already"),
            HotplugError::Hole(p) => write!(f, "there is no memory at frame {p}"),
            HotplugError::Deferred => f.write_str("deferred initialisation is not finished"),
            HotplugError::Refused(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for HotplugError {}

impl From<ContigError> for HotplugError {
    fn from(e: ContigError) -> Self {
        HotplugError::Refused(e)
    }
}

impl<'a, R: RawMutex, E: Platform, P: Policy> Yard<'a, R, E, P> {
    /// Memory has come: whole sections of one zone's span, none of which was there (spec §8.4).
    /// All of it becomes free and movable; watermarks, limits and reserves follow, and where the
    /// zone was empty, the order in which nodes are tried. Requests may go on meanwhile.
    ///
    /// Memory that was reserved is no part of this: descriptors need no room of their own here.
    ///
    /// # Errors
    /// [`HotplugError`]; nothing has changed.
    pub fn online(&self, range: Range<Pfn>) -> Result<(), HotplugError> {
        let _turn = self.hotplug.take(&self.platform);
        let (at, frames) = self.sections(range)?;
        let zone = at.zone;
        if let Some(block) = blocks(&frames).find(|&b| !zone.map.block_is_absent(b)) {
            return Err(HotplugError::Present(zone.pfn(block)));
        }
        let was_empty = !zone.is_populated();
        at.arrive(frames.clone());
        if was_empty {
            self.rebuild_zonelists();
        }
        at.unisolate(frames, MigrateType::Movable);
        if self.knobs.lock().shuffle_seed.is_some() {
            at.shuffle();
        }
        self.recalculate();
        Ok(())
    }

    /// Memory is to go: whole sections of one zone, all of them memory (spec §8.4). What is in use
    /// there is [moved](Platform::relocate) elsewhere; once the sections are empty, the allocator
    /// forgets them. Requests may go on meanwhile, though the zone's per-CPU lists are disabled.
    ///
    /// Nothing reserved and nothing unmovable may lie there. It may be all that the zone has. Frames
    /// that [are poisoned](Yard::poison_frame) go with their section; if it comes back, they stay out
    /// of use, unless they were [made good](Yard::unpoison_frame) meanwhile.
    ///
    /// # Errors
    /// [`HotplugError`]; all of the memory is still there, its pageblocks movable.
    pub fn offline(&self, range: Range<Pfn>) -> Result<(), HotplugError> {
        let _turn = self.hotplug.take(&self.platform);
        let (at, frames) = self.sections(range)?;
        let zone = at.zone;
        if let Some(block) = blocks(&frames).find(|&b| zone.map.block_is_absent(b)) {
            return Err(HotplugError::Hole(zone.pfn(block)));
        }
        let disabled = self.disable_pcp(zone.id());
        let reserved = || {
            let type_of = |b| zone.map.block_type(b);
            blocks(&frames).filter(|&b| type_of(b) == MigrateType::HighAtomic).count() as u64
        };
        let before = reserved();
        let isolated = at.isolate(frames.clone(), MigrateType::Movable, Purpose::Leave);
        // Isolated, or movable again: no longer the reserve's either way.
        let reserved = before.saturating_sub(reserved());
        if reserved > 0 {
            let _lock = zone.lock.lock();
            let pages = zone.reserved_highatomic.load(Relaxed);
            let left = pages.saturating_sub(reserved * u64::from(PAGEBLOCK_PAGES));
            zone.reserved_highatomic.store(left, Relaxed);
        }
        isolated.map_err(ContigError::from)?;
        if let Err(e) = self.empty(at, &frames) {
            at.unisolate(frames, MigrateType::Movable);
            return Err(e.into());
        }
        at.leave(frames);
        drop(disabled);
        self.recalculate();
        if !zone.is_populated() {
            self.forget_pagesets(zone);
            self.rebuild_zonelists();
        }
        Ok(())
    }

    /// This CPU at the zone of a range of whole sections, and the range's indices there.
    #[allow(clippy::type_complexity)] // As `frames_of`.
    fn sections(
        &self,
        range: Range<Pfn>,
    ) -> Result<(At<'_, 'a, R, E, P>, Range<u32>), HotplugError> {
        if self.deferred.as_ref().is_some_and(|d| !d.is_finished()) {
            return Err(HotplugError::Deferred);
        }
        for end in [range.start, range.end] {
            if end.0 & (SECTION_PAGES - 1) != 0 {
                return Err(HotplugError::Misaligned(end));
            }
        }
        Ok(self.frames_of(range, MigrateType::Movable).map_err(ContigError::from)?)
    }

    /// Takes everything in isolated sections off the lists, once nothing is in use there.
    fn empty(&self, at: At<'_, 'a, R, E, P>, frames: &Range<u32>) -> Result<(), ContigError> {
        let gfp = Gfp::USER | Gfp::NOWARN;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.empty_and_take(at, frames, None, Purpose::Leave, gfp) {
                Err(e) if e.is_busy() && tries < TRIES => self.platform.pause(),
                answer => return answer,
            }
        }
    }

    /// A zone without memory keeps nothing on per-CPU lists, and its counter is exact.
    #[inline(never)]
    fn forget_pagesets(&self, zone: &Zone<'a, R>) {
        let _held = zone.limits_lock.lock();
        zone.limits.set(Limits::DISABLED);
        zone.limit_pagesets::<P>();
        for cpu in (0..self.cpus).map(CpuId) {
            if let Some(at) = zone.at::<E, P>(&self.platform, cpu) {
                let locked = at.lock();
                locked.fold(at.slot.diff());
            }
        }
    }

    /// A zone has got its first memory, or lost its last (§2.5).
    fn rebuild_zonelists(&self) {
        rebuild_orders(self.nodes, |id| {
            self.node(id).is_some_and(|n| n.zones.iter().any(Zone::is_populated))
        });
        for zone in self.zones {
            for kind in ZoneKind::ALL {
                zone.clear_flag(OVERTAKEN << kind as u32);
            }
            zone.nofragment.store(self.starts_nofragment(zone), Relaxed);
        }
        for home in self.homes {
            for kind in ZoneKind::ALL {
                let Some((quick, _)) = home.quick[kind as usize & 7] else { continue };
                let first = self.first_zone(home.node, kind);
                if !first.is_some_and(|zone| core::ptr::eq(zone, quick)) {
                    quick.set_flag(OVERTAKEN << kind as u32);
                }
            }
        }
        self.zonelist_changes.fetch_add(1, Relaxed);
        self.regroup();
    }

    pub(crate) fn first_zone(&self, node: NodeId, highest: ZoneKind) -> Option<&'a Zone<'a, R>> {
        let mut near = self.node(node)?.order().filter_map(|n| self.node(n));
        near.find_map(|n| n.zones_up_to(highest).iter().find(|z| z.is_populated()))
    }

    /// As at the start (§2.7): of a NORMAL zone, where there is another zone of the node to turn to,
    /// or no other node.
    fn starts_nofragment(&self, zone: &Zone<'a, R>) -> bool {
        let beside = |z: &Zone<'a, R>| z.kind == ZoneKind::Dma32 && z.is_populated();
        zone.kind == ZoneKind::Normal
            && (self.nodes.len() == 1
                || self.node(zone.node).is_some_and(|n| n.zones.iter().any(beside)))
    }
}

/// The pageblocks of whole sections.
fn blocks(frames: &Range<u32>) -> impl Iterator<Item = u32> + use<> {
    frames.clone().step_by(PAGEBLOCK_PAGES as usize)
}

fn pages(frames: &Range<u32>) -> u32 {
    frames.end.wrapping_sub(frames.start)
}

impl<R: RawMutex, E: Platform, P: Policy> At<'_, '_, R, E, P> {
    /// New sections: free, in isolated pageblocks, from which nothing is handed out yet.
    fn arrive(self, frames: Range<u32>) {
        let zone = self.zone;
        zone.map.set_states(frames.start, pages(&frames), State::TAIL);
        zone.present.fetch_add(pages(&frames).into(), Relaxed);
        zone.managed.fetch_add(pages(&frames).into(), Relaxed);
        {
            let _locked = self.lock();
            for block in blocks(&frames) {
                zone.map.set_block_type(block, MigrateType::Isolate);
                zone.isolated_blocks.fetch_add(1, Relaxed);
                zone.map.refresh_taint(block);
            }
        }
        let largest = || frames.clone().step_by(1 << MAX_ORDER);
        largest().for_each(|block| self.fill(block, MAX_ORDER));
        let locked = self.lock();
        for block in largest() {
            if zone.map.is_tainted(block, MAX_ORDER) {
                locked.free_around(block, MAX_ORDER);
            } else {
                locked.free_block(block, MAX_ORDER);
            }
        }
    }

    /// Empty sections, on no list any more, are no memory. What is faulty keeps its mark.
    #[inline(never)]
    fn leave(self, frames: Range<u32>) {
        let zone = self.zone;
        let _locked = self.lock();
        let run = zone.map.run(frames.start, pages(&frames)).iter();
        let poisoned = run.filter(|f| f.state().kind() == Kind::Poisoned).count();
        change(&zone.safety.poisoned, -(poisoned as i64));
        zone.map.clear_range(frames.start, pages(&frames));
        zone.isolated_blocks.fetch_sub(blocks(&frames).count() as u64, Relaxed);
        zone.managed.fetch_sub(pages(&frames).into(), Relaxed);
        zone.present.fetch_sub(pages(&frames).into(), Relaxed);
    }
}
