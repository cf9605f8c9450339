//! Memory hotplug, section by section (spec §8.4). The layout's zones span all memory there may
//! ever be; what is not usable at the start may be added later.

use core::fmt;
use core::ops::Range;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::busy::BusyGuard;
use crate::base::frame::{Kind, State};
use crate::base::gfp::Gfp;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, PAGEBLOCK_PAGES, Pfn, SECTION_PAGES, each_block,
};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::platform::Platform;
use crate::pcp::tuning::{Limits, Tuning};
use crate::ranges::contig::{ContigError, no_room};
use crate::ranges::isolate::{IsolateError, Purpose};
use crate::zone::at::{At, Locked};
use crate::zone::defences_state::change;
use crate::zone::state::Zone;

/// Attempts to isolate and empty sections before `offline` fails because a page is still in use.
/// The kernel retries until it is interrupted.
const TRIES: usize = 8;

/// Why memory was not added or removed. The zone is unchanged, though blocks may have moved.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let start = yard.zone_info(ZoneKind::Normal).unwrap().start;
/// // Not a whole section.
/// assert!(yard.offline(start..Pfn(start.0 + 512)).is_err());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HotplugError {
    /// This end of the range is not a section boundary: not a multiple of [`SECTION_PAGES`].
    Misaligned(Pfn),
    /// There already is memory at this frame.
    Present(Pfn),
    /// There is no memory at this frame.
    Hole(Pfn),
    /// [Deferred initialisation](Yard::deferred) is not finished.
    Deferred,
    /// A hook called from `online` or `offline` called one of them, which would wait for itself.
    /// Detected by [`Reclaim::task`](crate::Reclaim::task).
    Nested,
    /// The range is invalid, does not lie in one zone, or cannot be emptied.
    Refused(ContigError),
}

impl fmt::Display for HotplugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HotplugError::Misaligned(p) => {
                write!(f, "frame {p} is not a multiple of a section's {SECTION_PAGES} pages")
            }
            HotplugError::Present(p) => write!(f, "memory at frame {p} is already online"),
            HotplugError::Hole(p) => write!(f, "no memory at frame {p}"),
            HotplugError::Deferred => f.write_str("deferred initialisation is not finished"),
            HotplugError::Nested => f.write_str(
                "a hotplug operation is active further up on this task's stack; return \
                 from it first",
            ),
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

impl<'a, C: Config> Yard<'a, C> {
    /// Adds memory: whole sections of one zone's span, none of which had memory (spec §8.4). All of
    /// it becomes free and movable. Watermarks, limits and reserves are recomputed, and the
    /// zonelists too if the zone was empty. Requests may run concurrently.
    ///
    /// None of the new memory is reserved: descriptors need no room in it.
    ///
    /// # Errors
    /// [`HotplugError`]; nothing has changed.
    pub fn online(&self, range: Range<Pfn>) -> Result<(), HotplugError> {
        let _busy = self.begin_hotplug().ok_or(HotplugError::Nested)?;
        let (at, frames) = self.sections(range)?;
        let zone = at.zone;
        if let Some(block) = each_block(frames.clone()).find(|&b| !zone.block_is_absent(b)) {
            return Err(HotplugError::Present(zone.pfn(block)));
        }
        let was_empty = !zone.is_populated();
        match zone.region() {
            None => at.arrive(frames.clone()),
            Some(region) => at.arrive_packed(region, &frames),
        }
        if was_empty {
            self.rebuild_zonelists();
        }
        if !zone.is_packed() {
            at.unisolate(frames, MigrateType::Movable);
            if self.setting(|knobs| knobs.shuffle_seed.is_some()) {
                at.shuffle();
            }
        }
        self.recalculate();
        Ok(())
    }

    /// Removes memory: whole sections of one zone, all of them present (spec §8.4). Blocks in use
    /// there are [migrated](crate::Reclaim::relocate) elsewhere; once the sections are empty, the
    /// allocator forgets them. Requests may run concurrently, though the zone's per-CPU lists are
    /// disabled.
    ///
    /// The range must contain nothing reserved and nothing unmovable. It may be all of the zone's
    /// memory. [Poisoned](Yard::poison_frame) frames are removed with their section. If the section
    /// is added again, they stay out of use, unless they were [unpoisoned](Yard::unpoison_frame)
    /// meanwhile.
    ///
    /// # Errors
    /// [`HotplugError`]; all of the memory is still present, and its pageblocks are movable.
    pub fn offline(&self, range: Range<Pfn>) -> Result<(), HotplugError> {
        let _busy = self.begin_hotplug().ok_or(HotplugError::Nested)?;
        let (at, frames) = self.sections(range)?;
        let zone = at.zone;
        if let Some(block) = each_block(frames.clone()).find(|&b| zone.block_is_absent(b)) {
            return Err(HotplugError::Hole(zone.pfn(block)));
        }
        let disabled = self.disable_pcp(zone.id());
        let is_room = self.move_whole_blocks(&at, &frames);
        self.isolate_to_leave(&at, &frames).map_err(|e| no_room(is_room, e))?;
        let refused = Rollback::new(|| at.unisolate(frames.clone(), MigrateType::Movable));
        self.empty(&at, &frames)?;
        refused.disarm();
        drop(disabled);
        self.recalculate();
        if !zone.is_populated() {
            self.forget_pagesets(zone);
            self.rebuild_zonelists();
        }
        Ok(())
    }

    /// Waits until no other task adds or removes memory. Returns `None` if this task already does,
    /// further up its stack.
    pub(crate) fn begin_hotplug(&self) -> Option<HotplugGuard<'_>> {
        // 0 means none, so the two highest numbers count as one task.
        let task = (!self.task()).max(1);
        loop {
            if let Some(busy_guard) = self.hotplug.try_take() {
                self.hotplug_task.store(task, Relaxed);
                return Some(HotplugGuard { _busy: busy_guard, task: &self.hotplug_task });
            }
            // Only this task stores its own number.
            if self.hotplug_task.load(Relaxed) == task {
                return None;
            }
            self.hooks.pause();
        }
    }

    /// Resolves a range of whole sections to this CPU's access to its zone and the range's indices
    /// there.
    #[allow(clippy::type_complexity)] // As in `frames_of`.
    fn sections(&self, range: Range<Pfn>) -> Result<(At<'_, 'a, C>, Range<u32>), HotplugError> {
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

    /// Isolates sections for removal. Blocks held by compaction or reporting are soon free or in
    /// use, so it retries.
    fn isolate_to_leave(
        &self,
        at: &At<'_, 'a, C>,
        frames: &Range<u32>,
    ) -> Result<(), IsolateError> {
        let isolate = || at.isolate(frames.clone(), MigrateType::Movable, Purpose::Leave);
        for _ in 1..TRIES {
            match isolate() {
                Err(IsolateError::Unmovable(p)) if !at.zone.stays(p) => self.hooks.pause(),
                answer => return answer,
            }
        }
        isolate()
    }

    /// Takes everything in isolated sections off the lists, once nothing is in use there, and
    /// forgets the sections.
    fn empty(&self, at: &At<'_, 'a, C>, frames: &Range<u32>) -> Result<(), ContigError> {
        let gfp = Gfp::USER | Gfp::NOWARN;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.empty_and_take(at, frames, None, Purpose::Leave, gfp) {
                Err(e) if e.is_busy() && tries < TRIES => self.hooks.pause(),
                answer => return answer,
            }
        }
    }

    /// Resets the per-CPU lists of a zone without memory (§8.4, §5.5) and makes its free counter exact.
    #[inline(never)]
    fn forget_pagesets(&self, zone: &Zone<'a, C::Lock>) {
        let _held = zone.limits_lock.lock();
        zone.limits.set(Limits::DISABLED);
        zone.limit_pagesets(self.rules());
        for cpu in (0..self.cpus).map(CpuId) {
            if zone.is_packed() {
                zone.enable_packed(cpu, false);
            } else if let Some(at) = self.at(zone, cpu) {
                at.lock().fold_all();
                at.slot.expire.store(0, Relaxed);
                at.slot.pageset.lock().tune(&self.rules().pcp, |t| {
                    *t = Tuning { count: t.count, limits: Limits::DISABLED, ..Tuning::new() };
                });
            }
        }
    }
}

/// The exclusive right to add or remove memory, held until dropped.
pub(crate) struct HotplugGuard<'y> {
    // Released after `drop` below has run.
    _busy: BusyGuard<'y>,
    task: &'y AtomicU64,
}

impl Drop for HotplugGuard<'_> {
    fn drop(&mut self) {
        self.task.store(0, Relaxed);
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns whether a frame that refused isolation is reserved or out of use, so that a retry is
    /// pointless.
    fn stays(&self, pfn: Pfn) -> bool {
        let Some(idx) = self.index_of(pfn) else { return true };
        let kind = self.block_over(idx).map_or(self.state(idx).kind(), |b| b.1.kind());
        !matches!(kind, Kind::Held | Kind::BeingFreed | Kind::Free | Kind::Cached | Kind::Tail)
    }
}

fn pages(frames: &Range<u32>) -> u32 {
    frames.end.wrapping_sub(frames.start)
}

impl<C: Config> At<'_, '_, C> {
    /// Adds new sections: free, in isolated pageblocks that serve no request yet.
    fn arrive(&self, frames: Range<u32>) {
        let zone = self.zone;
        zone.present.fetch_add(pages(&frames).into(), Relaxed);
        zone.managed.fetch_add(pages(&frames).into(), Relaxed);
        for block in each_block(frames.clone()) {
            // Frames and label change together: a concurrent isolation finds either a hole or an
            // isolated pageblock.
            let _locked = self.lock();
            zone.map.set_states(block, PAGEBLOCK_PAGES, State::TAIL);
            // The type that it gets when its isolation ends.
            zone.map.set_block_type(block, MigrateType::Movable);
            zone.map.set_block_type(block, MigrateType::Isolate);
            zone.isolated_blocks.fetch_add(1, Relaxed);
            zone.map.refresh_taint(block);
        }
        let largest = || frames.clone().step_by(1 << MAX_ORDER);
        let unfilled = Rollback::new(|| self.lock().forget(&frames));
        largest().for_each(|block| self.fill(block, MAX_ORDER));
        unfilled.disarm();
        let locked = self.lock();
        largest().for_each(|block| locked.free_block(block, MAX_ORDER));
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Removes empty sections that are on no list. Poisoned frames keep their mark.
    #[inline(never)]
    pub(crate) fn forget(&self, frames: &Range<u32>) {
        let zone = self.zone;
        let run = zone.map.run(frames.start, pages(frames)).iter();
        let poisoned = run.filter(|f| f.state().kind() == Kind::Poisoned).count();
        change(&zone.safety.poisoned, -(poisoned as i64));
        // A failed contiguous range may have ended the isolation of some.
        let is_isolated = |&b: &u32| zone.map.block_type(b) == MigrateType::Isolate;
        let isolated = each_block(frames.clone()).filter(is_isolated).count() as u64;
        zone.isolated_blocks.fetch_sub(isolated, Relaxed);
        if self.rules().isolate_bit {
            let reserved = |&b: &u32| zone.map.own_type(b) == MigrateType::HighAtomic;
            zone.shrink_reserve(each_block(frames.clone()).filter(reserved).count() as u64);
        }
        zone.map.clear_range(frames.start, pages(frames));
        zone.managed.fetch_sub(pages(frames).into(), Relaxed);
        zone.present.fetch_sub(pages(frames).into(), Relaxed);
    }
}
