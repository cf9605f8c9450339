//! A check of a region's invariants while nothing else runs.

use core::fmt::{self, Write};

use lock_api::RawMutex;

use crate::base::put::put;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{PAGEBLOCK_PAGES, Pfn};
use crate::packed::class::{CLASSES, capacity, order_of};
use crate::packed::cpu::NONE;
use crate::packed::label::BUCKETS;
use crate::packed::region::Region;
use crate::packed::storage::FrameState;

/// Where a region's frames are.
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::Pfn;
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(4096))?;
/// let census = region.validate()?;
/// assert_eq!((census.present, census.whole), (4096, 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Frames that were added.
    pub present: u64,
    /// Frames of allocated blocks.
    pub allocated: u64,
    /// Free frames as bits.
    pub bits: u64,
    /// Frames of whole pageblocks.
    pub whole: u64,
    /// Frames that CPUs keep.
    pub cpus: u64,
    /// Frames in depots.
    pub depots: u64,
    /// Faulty frames that are out of use.
    pub faulty: u64,
    /// Isolated pageblocks that have memory.
    pub isolated_blocks: u64,
}

/// An invariant that does not hold.
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::packed::Broken;
/// use pageyard::{CpuId, Pfn};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
/// let region = storage.region(Pfn(0))?;
/// let pinned = region.pin(CpuId(0));
/// assert_eq!(region.validate(), Err(Broken::Busy));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// A CPU's lock is held: the check cannot run.
    Busy,
    /// An allocated block contains a frame that is absent, a head, or free.
    Inside(Pfn),
    /// A whole pageblock has set bits or allocated frames, or is not active.
    Whole(Pfn),
    /// A pageblock with free frames is in no index.
    Lost(Pfn),
    /// A pageblock whose frames are all free is not whole.
    NotWhole(Pfn),
    /// A pageblock of a CMA area or the highatomic reserve is not listed as such, or frames freed into it
    /// do not go to the zone.
    SetApart(Pfn),
    /// A pageblock has a free block of an order of which a search found none, and nothing took that back.
    Missed(Pfn),
    /// A block in a magazine is not free, or also free as bits.
    Kept(Pfn),
    /// A frame that is out of use is free, in use or not marked.
    Faulty(Pfn),
    /// The frames do not add up.
    Sum(Census),
}

impl Broken {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            Broken::Busy => put!(out, "a CPU's lock is held: release it before the check"),
            Broken::Inside(pfn) => {
                put!(out, "frame ", pfn, " is inside an allocated block, but has another state")
            }
            Broken::Whole(pfn) => put!(out, "the whole pageblock of frame ", pfn, " is in use"),
            Broken::Lost(pfn) => put!(out, "the pageblock of frame ", pfn, " is in no index"),
            Broken::NotWhole(pfn) => {
                put!(out, "the free pageblock of frame ", pfn, " is not whole")
            }
            Broken::SetApart(pfn) => {
                put!(
                    out,
                    "the pageblock of frame ",
                    pfn,
                    " is set apart, but not listed, or not bypassed by frees"
                )
            }
            Broken::Missed(pfn) => {
                put!(
                    out,
                    "the pageblock of frame ",
                    pfn,
                    " has a free block that requests do not find"
                )
            }
            Broken::Kept(pfn) => {
                put!(out, "frame ", pfn, " in a magazine is in use elsewhere")
            }
            Broken::Faulty(pfn) => put!(out, "the faulty frame ", pfn, " is in use or not marked"),
            Broken::Sum(Census {
                present, allocated, bits, whole, cpus, depots, faulty, ..
            }) => {
                put!(out, "the frames do not add up: ", present, " present, but ", allocated)?;
                put!(out, " allocated, ", bits, " bits, ", whole, " in whole pageblocks, ", cpus)?;
                put!(out, " of CPUs, ", depots, " in depots, ", faulty, " out of use")
            }
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl core::error::Error for Broken {}

/// How often a CPU's lock is tried: some milliseconds.
const TRIES: u32 = 1 << 20;

impl<R: RawMutex> Region<'_, R> {
    /// Checks the invariants of the [engine](crate::packed) and counts the frames.
    ///
    /// # Errors
    /// The first violation found, or [`Broken::Busy`]. Operations that run concurrently lead to
    /// false violations.
    pub fn validate(&self) -> Result<Census, Broken> {
        let mut census = Census::default();
        self.check_frames(&mut census)?;
        for block in 0..self.blocks.len() {
            self.check_block(block, &mut census)?;
        }
        for part in self.cpus {
            // A request or a tick ends soon; a pinned CPU keeps its lock.
            let wait = |_| {
                part.own.try_lock().or_else(|| {
                    core::hint::spin_loop();
                    None
                })
            };
            let mut cpu = (0..TRIES).find_map(wait).ok_or(Broken::Busy)?;
            census.cpus += cpu.pages();
            for class in 0..CLASSES {
                let slot = cpu.slot(class);
                for (magazine, blocks) in
                    [(slot.loaded, slot.count), (slot.previous, slot.previous_count)]
                {
                    self.check_magazine(magazine, blocks, class)?;
                }
            }
        }
        let mut kept = Ok(());
        self.depots.for_each_full(|magazine, class| {
            let order = order_of(class);
            census.depots += u64::from(capacity(order)) << order;
            let checked = self.check_magazine(magazine, capacity(order), class);
            kept = kept.and(checked);
        });
        kept?;
        let Census { present, allocated, bits, whole, cpus, depots, faulty, .. } = census;
        if present == allocated + bits + whole + cpus + depots + faulty {
            Ok(census)
        } else {
            Err(Broken::Sum(census))
        }
    }

    fn check_frames(&self, census: &mut Census) -> Result<(), Broken> {
        let mut inside = 0u32;
        for pfn in (self.frames().start.0..self.frames().end.0).map(Pfn) {
            let Some(state) = self.frame_state(pfn) else { continue };
            census.present += u64::from(!state.is_absent());
            let marked = self.index_of(pfn).is_some_and(|frame| self.blocks.is_marked(frame));
            if state.is_faulty() {
                census.faulty += 1;
                if inside > 0 || !marked || self.is_free(pfn) {
                    return Err(Broken::Faulty(pfn));
                }
            }
            if inside > 0 {
                if state.is_absent() || state.allocated().is_some() || self.is_free(pfn) {
                    return Err(Broken::Inside(pfn));
                }
                inside -= 1;
            } else if let Some(order) = state.allocated() {
                if self.is_free(pfn) || !pfn.0.is_multiple_of(order.pages().into()) {
                    return Err(Broken::Inside(pfn));
                }
                census.allocated += u64::from(order.pages());
                inside = order.pages() - 1;
            }
        }
        Ok(())
    }

    fn check_block(&self, block: u32, census: &mut Census) -> Result<(), Broken> {
        let pfn = self.pfn(block * PAGEBLOCK_PAGES);
        let free = self.blocks.free_in(block);
        census.bits += u64::from(free);
        let (bucket, active, isolated) = self.blocks.place(block);
        if self.blocks.whole().contains(block) {
            census.whole += u64::from(PAGEBLOCK_PAGES);
            if free != 0 || !active {
                return Err(Broken::Whole(pfn));
            }
            return Ok(());
        }
        if isolated {
            let first = block * PAGEBLOCK_PAGES;
            let mut frames = first..first + PAGEBLOCK_PAGES;
            let has_memory = frames.any(|f| self.state(f).is_some_and(FrameState::is_memory));
            census.isolated_blocks += u64::from(has_memory);
            return Ok(());
        }
        let t = self.blocks.block_type(block);
        if t.is_set_apart() {
            let listed = active && self.blocks.set_apart(t).contains(block);
            let bypasses = self.blocks.routes.bypasses(block, t as usize);
            return if listed && bypasses { Ok(()) } else { Err(Broken::SetApart(pfn)) };
        }
        if self.blocks.notes.missing().is_some_and(|order| self.blocks.has_free_run(block, order)) {
            return Err(Broken::Missed(pfn));
        }
        if active {
            // A CPU's own, or allocated as a whole.
            let shared = self.cpus.iter().flat_map(|part| part.shared.current());
            let is_current = shared.map(|c| c.load(Relaxed)).any(|b| b == block && b != NONE);
            return if is_current || free == 0 { Ok(()) } else { Err(Broken::Lost(pfn)) };
        }
        if free == PAGEBLOCK_PAGES {
            return Err(Broken::NotWhole(pfn));
        }
        let listed =
            (1..=BUCKETS).contains(&bucket) && self.blocks.partial(t, bucket).contains(block);
        if free != 0 && !listed { Err(Broken::Lost(pfn)) } else { Ok(()) }
    }

    fn check_magazine(&self, magazine: u32, blocks: u32, class: usize) -> Result<(), Broken> {
        let Some(magazine) = self.magazines.get(magazine as usize) else { return Ok(()) };
        for entry in magazine.0.iter().take(blocks as usize) {
            let head = self.pfn(entry.load(Relaxed));
            for n in 0..1u64 << order_of(class) {
                let pfn = Pfn(head.0 + n);
                let free = |state: &FrameState| {
                    !state.is_absent()
                        && !state.is_faulty()
                        && state.allocated().is_none()
                        && !self.is_free(pfn)
                };
                if !self.frame_state(pfn).is_some_and(free) {
                    return Err(Broken::Kept(pfn));
                }
            }
        }
        Ok(())
    }

    /// Returns whether a frame is free in the zone, as a bit or in a whole pageblock.
    fn is_free(&self, pfn: Pfn) -> bool {
        let Some(frame) = self.index_of(pfn) else { return false };
        let block = frame / PAGEBLOCK_PAGES;
        self.blocks.whole().contains(block) || self.blocks.is_set(frame)
    }
}
