//! A yard of a phase with the owners of its pages, and the check that it is empty afterwards.

use std::alloc::System;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pageyard::{Gfp, Order, PAGE_SIZE, Pfn, Poisoned, SECTION_PAGES};
use pageyard_host::{Limits, Region};

use crate::SoakError;
use crate::counts::Counts;
use crate::found::Found;
use crate::owner::Names;
use crate::owners::Owners;
use crate::phase::{Shape, Upkeep};
use crate::raw;
use crate::yards::{HostYard, PageAlloc};

/// Limit of checks of a yard whose own worker may currently hold blocks.
const LOOKS: u32 = 2000;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parts of a yard's memory that are unavailable.
#[derive(Default)]
pub(crate) struct Absent {
    /// First frames of offline sections.
    pub(crate) sections: Vec<u64>,
    /// Poisoned frames, and whether each was taken out of use at once.
    pub(crate) poisoned: Vec<(u64, bool)>,
    /// Total number of sections that went offline, and of frames that were poisoned.
    totals: [u64; 2],
}

/// A yard and its associated state.
pub(crate) struct TrackedYard {
    pub(crate) number: usize,
    shape: Shape,
    pub(crate) yard: Arc<HostYard>,
    pub(crate) owners: Owners,
    /// Address of the first frame.
    base: usize,
    pub(crate) heap: PageAlloc<System>,
    pub(crate) absent: Mutex<Absent>,
    /// One lock per section, held while the section goes offline or online.
    turns: Box<[Mutex<()>]>,
}

impl TrackedYard {
    pub(crate) fn new(number: usize, shape: Shape, names: Names) -> Result<TrackedYard, SoakError> {
        let yard = shape.build()?;
        let first = yard.alloc(Order::ZERO, Gfp::KERNEL).map_err(|_| SoakError::Empty)?;
        let offset = first.pfn().0 - Region::FIRST.0;
        let base = first.as_ptr().addr().get() - (offset * PAGE_SIZE) as usize;
        drop(first);
        let pages = shape.size.div_ceil(PAGE_SIZE);
        let owners = Owners::new(Region::FIRST.0..Region::FIRST.0 + pages, names);
        Ok(TrackedYard {
            number,
            shape,
            yard: Arc::new(yard),
            owners,
            base,
            heap: PageAlloc::new(System),
            absent: Mutex::default(),
            turns: (0..pages.div_ceil(SECTION_PAGES)).map(|_| Mutex::default()).collect(),
        })
    }

    /// Adds the yard's own counters.
    pub(crate) fn count(&self, counts: &mut Counts) {
        let (front, status) = (self.yard.thread_cache_stats(), self.yard.status());
        let [sections, poisoned] = lock(&self.absent).totals;
        for (what, n) in [
            ("cache hits", front.hits),
            ("cache refills", front.refills),
            ("cache flushes", front.flushes),
            ("cache drains", front.drains),
            ("cache presses", front.presses),
            ("pages shrunk", status.shrunk + status.shrunk_directly),
            ("blocks moved", status.moved),
            ("pages given back", status.given_back),
            ("pages fetched", status.fetched),
            ("pages poisoned", poisoned),
            ("sections offline", sections),
        ] {
            counts.add(what, n);
        }
    }

    /// Returns the frames of the smallest block for `bytes` bytes at an address, or an empty range
    /// outside the yard.
    pub(crate) fn frames(&self, address: *const u8, bytes: usize) -> Range<u64> {
        if !self.yard.holds(address) {
            return 0..0;
        }
        let pages = (bytes as u64).div_ceil(PAGE_SIZE).next_power_of_two();
        let first = Region::FIRST.0 + (address.addr() - self.base) as u64 / PAGE_SIZE;
        first..first + pages
    }

    pub(crate) fn pages(&self) -> u64 {
        let frames = self.owners.frames();
        frames.end - frames.start
    }

    /// Waits until the current step of the yard's own worker has ended.
    pub(crate) fn wait_for_worker(&self) -> Result<(), Found> {
        let seen = self.yard.status().ticks;
        let ended = || self.yard.status().ticks > seen + 1;
        if matches!(self.shape.upkeep, Upkeep::Own(_)) && !eventually(self.shape.upkeep, ended) {
            return Err(Found::Wrong("the yard's worker does not tick".into()));
        }
        Ok(())
    }

    /// Fails unless the yard is empty. Checks first with the frames that are still poisoned, then
    /// without them.
    pub(crate) fn prove_empty(&self) -> Result<(), Found> {
        if !raw::finish_deferred(&self.yard) {
            return Err(Found::Wrong("deferred initialisation does not end".into()));
        }
        while self.online()? {}
        if self.yard.set_limits(Limits::default()) != Ok(true) {
            return Err(Found::Wrong("the limits cannot be lifted".into()));
        }
        self.look()?;
        while self.unpoison()? {}
        self.look()
    }

    fn look(&self) -> Result<(), Found> {
        let mut last = Ok(());
        let is_empty = eventually(self.shape.upkeep, || {
            last = self.look_once();
            last.is_ok()
        });
        if is_empty { Ok(()) } else { last }
    }

    fn look_once(&self) -> Result<(), Found> {
        self.yard.drain();
        if let Err(e) = self.yard.validate() {
            return Err(Found::Wrong(format!("yard {}: {e}", self.number)));
        }
        let (mut free, mut managed) = (0, 0);
        for zone in self.yard.zones().filter_map(|zone| self.yard.zone_info(zone)) {
            free += zone.free_exact;
            managed += zone.managed;
        }
        let (used, poisoned) = (self.yard.status().used, self.yard.out_of_use());
        let front = self.yard.thread_cache_stats().pages;
        let owned = self.owners.first_owned();
        if (used, free, managed) == (poisoned, managed - poisoned, self.pages())
            && poisoned == lock(&self.absent).poisoned.len() as u64
            && front == 0
            && owned.is_none()
        {
            return Ok(());
        }
        let owner = owned.map_or("none".into(), |(frame, owner)| format!("{owner}, of {frame:#x}"));
        Err(Found::NotEmpty { yard: self.number, used, free, managed, poisoned, front, owner })
    }

    fn turn(&self, start: u64) -> &Mutex<()> {
        &self.turns[((start - self.owners.frames().start) / SECTION_PAGES) as usize]
    }

    /// Takes the section that begins at a frame offline, unless it is in use.
    pub(crate) fn offline(&self, start: u64) -> Result<bool, Found> {
        let frames = start..start + SECTION_PAGES;
        let Ok(_turn) = self.turn(start).try_lock() else { return Ok(false) };
        if self.yard.offline(Pfn(frames.start)..Pfn(frames.end)).is_err() {
            return Ok(false);
        }
        self.owners.offline(frames)?;
        let mut absent = lock(&self.absent);
        absent.sections.push(start);
        absent.totals[0] += 1;
        Ok(true)
    }

    /// Brings an offline section online. Returns whether there was one.
    pub(crate) fn online(&self) -> Result<bool, Found> {
        let Some(start) = lock(&self.absent).sections.pop() else { return Ok(false) };
        let frames = start..start + SECTION_PAGES;
        // Without this lock, the section could go offline again before the slower thread makes its
        // call.
        let _turn = lock(self.turn(start));
        self.owners.online(frames.clone())?;
        let frames = Pfn(frames.start)..Pfn(frames.end);
        // A second thread requests the same section concurrently, bypassing the host's lock.
        let ready = AtomicBool::new(false);
        let (first, second) = thread::scope(|s| {
            let other = || {
                ready.store(true, Relaxed);
                raw::online(&self.yard, frames.clone())
            };
            // The system may refuse another thread.
            let other = thread::Builder::new().spawn_scoped(s, other).ok();
            while other.is_some() && !ready.load(Relaxed) {
                thread::yield_now();
            }
            let first = self.yard.online(frames.clone());
            (first, other.and_then(|other| other.join().ok()).unwrap_or(false))
        });
        match (first, second) {
            (Ok(()), true) => Err(Found::Wrong(format!("section {start:#x} comes online twice"))),
            (Err(e), false) => {
                Err(Found::Wrong(format!("section {start:#x} cannot be brought online: {e}")))
            }
            _ => Ok(true),
        }
    }

    /// Poisons a frame, unless it is offline or poisoned.
    pub(crate) fn poison(&self, frame: u64) -> Result<bool, Found> {
        let Ok(how) = self.yard.poison_frame(Pfn(frame)) else { return Ok(false) };
        let removed = how == Poisoned::Removed;
        if removed {
            self.owners.poison(frame)?;
        }
        let mut absent = lock(&self.absent);
        absent.poisoned.push((frame, removed));
        absent.totals[1] += 1;
        Ok(true)
    }

    /// Unpoisons a poisoned frame. Returns whether there was one.
    pub(crate) fn unpoison(&self) -> Result<bool, Found> {
        let Some((frame, removed)) = lock(&self.absent).poisoned.pop() else { return Ok(false) };
        if removed {
            self.owners.unpoison(frame)?;
        }
        let done = self.yard.unpoison_frame(Pfn(frame));
        done.map_err(|e| Found::Wrong(format!("frame {frame:#x} stays poisoned: {e}")))?;
        Ok(true)
    }
}

/// Returns whether a condition becomes true: at once, or after a while if the yard has its own
/// worker.
fn eventually(upkeep: Upkeep, mut f: impl FnMut() -> bool) -> bool {
    let looks = if matches!(upkeep, Upkeep::Own(_)) { LOOKS } else { 1 };
    (0..looks).any(|n| {
        if n > 0 {
            thread::sleep(Duration::from_millis(5));
        }
        f()
    })
}
