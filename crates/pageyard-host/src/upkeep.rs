//! A yard's background work as its users see it: who is asked or told, limits, statistics.

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pageyard::policy::Policy;
use pageyard::{
    AllocError, ContigError, Gfp, Hooked, HotplugError, Invalid, IsolateError, KnobError, Order,
    Pfn, Platform, PoisonError, Poisoned, Yard,
};

use crate::block::Block;
use crate::limits::{LimitError, Limits};
use crate::lock::HostLock;
use crate::movable::Movable;
use crate::platform::HostPlatform;
use crate::platform::current_task;
use crate::pressure::{Level, PressureEvent};
use crate::relocate::Relocator;
use crate::service::{HotplugTurn, Status};
use crate::shrink::{Registration, Registry, Shrinker};
use crate::signals::Watching;
use crate::stats::YardStats;
use crate::usage::Usage;
use crate::worker::Worker;
use crate::yard::HostYard;

/// What happens in the background, and who is asked or told.
impl<P: Policy> HostYard<P> {
    /// A block that compaction may move while nobody looks at it.
    ///
    /// # Errors
    /// As [`Yard::alloc`]; and as [`alloc`](HostYard::alloc).
    pub fn alloc_movable(&self, order: Order, gfp: Gfp) -> Result<Movable<'_, P>, AllocError> {
        if !self.is_here() {
            return Err(AllocError::NoMemory);
        }
        let take = || self.raw().alloc(order, gfp | Gfp::MOVABLE);
        let pfn = match take() {
            Err(AllocError::NoMemory) if self.drain_threads() > 0 => take(),
            answer => answer,
        };
        let pfn = pfn.inspect_err(|&error| self.note_failure(error, order, gfp))?;
        // SAFETY: it was just allocated, at this order, by this yard, which is exclusive
        // (`movable_blocks_are_moved_together_with_their_contents`).
        Ok(unsafe { Movable::new(self.raw(), pfn, order) })
    }

    /// Registers somebody who can do with fewer pages.
    pub fn register_shrinker(&self, shrinker: impl Shrinker + 'static) -> Registration {
        self.add(&self.raw().service().shrinkers, Arc::new(shrinker))
    }

    /// Registers somebody who can move blocks of its own.
    pub fn register_relocator(&self, relocator: impl Relocator + 'static) -> Registration {
        self.add(&self.raw().service().relocators, Arc::new(relocator))
    }

    /// Registers somebody who is told when the level of pressure changes. Called by the worker,
    /// without any of the yard's locks; it may use the yard.
    pub fn on_pressure(
        &self,
        told: impl Fn(&PressureEvent) + Send + Sync + 'static,
    ) -> Registration {
        self.add(&self.raw().service().listeners, Arc::new(told))
    }

    fn add<T: ?Sized + Send + Sync + 'static>(
        &self,
        to: &Registry<T>,
        what: Arc<T>,
    ) -> Registration {
        if self.is_here() { to.add(what) } else { Registration::of_nothing() }
    }

    /// How short memory was when the worker last looked.
    pub fn pressure(&self) -> Level {
        self.raw().service().level()
    }

    /// The limits in force; in a child after a fork, none.
    pub fn limits(&self) -> Limits {
        if self.is_here() { self.raw().service().balloon.limits() } else { Limits::default() }
    }

    /// Sets the limits. Where more is in use than the hard limit allows, what is free is taken out of
    /// circulation now, and the rest by the worker as it is given back, for which it asks the
    /// shrinkers; until then every request fails. Whether all of it is done: never in a child after
    /// a fork.
    ///
    /// # Errors
    /// [`LimitError`]; then nothing has changed.
    pub fn set_limits(&self, limits: Limits) -> Result<bool, LimitError> {
        limits.check(self.raw().region().pages(), self.zones().count() as u64)?;
        if !self.is_here() {
            return Ok(false);
        }
        let balloon = &self.raw().service().balloon;
        balloon.set(limits);
        if limits.hard.is_some() {
            // What lies on lists may be all that is missing.
            self.drain();
        }
        let done = self.raw().adjust_balloon();
        self.raw().service().tell.limits(limits, done);
        self.wake_worker();
        Ok(done)
    }

    /// Compacts all of its memory now: moves what can be moved together, so that large blocks become
    /// free.
    pub fn compact(&self) {
        if self.is_here() {
            self.drain();
            self.raw().core().compact_all();
        }
    }

    /// Looks at every structural invariant of the allocator at once ([`Yard::validate`]): for tests.
    /// Only while no other thread uses the yard, its worker included, does the answer mean something;
    /// in a child after a fork, nothing is looked at.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.is_here() { self.raw().core().validate() } else { Ok(()) }
    }

    /// Sets a setting by its name ([`Yard::set_knob`]; docs/knobs.md has them all). In a child after a
    /// fork, nothing is done.
    ///
    /// # Errors
    /// There is no such setting, it cannot be written, or not to this value.
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), KnobError> {
        if self.is_here() { self.raw().core().set_knob(name, value) } else { Ok(()) }
    }

    /// Takes whole sections of memory out of the yard ([`Yard::offline`], §8.4) and gives them back
    /// to the system. Movable blocks there move; what a [`Block`](crate::Block) owns does not.
    ///
    /// A hard limit counts what is left.
    ///
    /// # Errors
    /// As [`Yard::offline`]; then all of it is in use as before. [`ContigError::Busy`] from within a
    /// relocator that another `offline` has called.
    pub fn offline(&self, sections: Range<Pfn>) -> Result<(), HotplugError> {
        if !self.is_here() {
            return Err(HotplugError::Refused(ContigError::NoMemory));
        }
        // Another thread must not bring them back before their memory is gone.
        let _turn = self.begin_hotplug(&sections)?;
        self.drain();
        let core = self.raw().core();
        patiently(|| core.offline(sections.clone()), || core.hooks().pause())?;
        // Where the system does not take it (hugetlbfs), it stays with the process.
        let pages = sections.end.0 - sections.start.0;
        let _ = self.raw().region().discard(sections.start, pages, false);
        self.raw().adjust_balloon();
        Ok(())
    }

    /// Takes sections back that [`offline`](HostYard::offline) took out. A hard limit keeps them out of
    /// circulation.
    ///
    /// # Errors
    /// As [`Yard::online`]; [`ContigError::Busy`] as for [`offline`](HostYard::offline).
    pub fn online(&self, sections: Range<Pfn>) -> Result<(), HotplugError> {
        if !self.is_here() {
            return Err(HotplugError::Refused(ContigError::NoMemory));
        }
        let _turn = self.begin_hotplug(&sections)?;
        self.raw().core().online(sections)?;
        self.raw().adjust_balloon();
        Ok(())
    }

    fn begin_hotplug(&self, sections: &Range<Pfn>) -> Result<HotplugTurn<'_>, HotplugError> {
        let turn = self.raw().service().hotplug.begin(current_task());
        turn.ok_or(HotplugError::Refused(ContigError::Busy(sections.start)))
    }

    /// Takes a page with faulty memory out of use ([`Yard::poison_frame`], §11.3): at once where it is
    /// free, else when its owner gives it back to the allocator behind the front cache.
    ///
    /// # Errors
    /// [`PoisonError`]; nothing has changed. In a child after a fork, no frame is the yard's.
    pub fn poison_frame(&self, pfn: Pfn) -> Result<Poisoned, PoisonError> {
        if !self.is_here() {
            return Err(PoisonError::Foreign);
        }
        self.raw().core().poison_frame(pfn)
    }

    /// Undoes [`poison_frame`](HostYard::poison_frame).
    ///
    /// # Errors
    /// As [`poison_frame`](HostYard::poison_frame).
    pub fn unpoison_frame(&self, pfn: Pfn) -> Result<(), PoisonError> {
        if !self.is_here() {
            return Err(PoisonError::Foreign);
        }
        self.raw().core().unpoison_frame(pfn)
    }

    /// Pages out of use: faulty, bad, or guards.
    pub fn out_of_use(&self) -> u64 {
        let core = self.raw().core();
        core.zone_ids().filter_map(|zone| core.out_of_use(zone)).map(|out| out.pages()).sum()
    }

    /// The worker, for a thread of the caller's own, where the yard has none
    /// ([`Builder::tick`](crate::Builder::tick)); `None` where somebody is the worker already.
    ///
    /// ```
    /// # use pageyard_host::Builder;
    /// # use std::sync::atomic::{AtomicBool, Ordering};
    /// let yard = Builder::new(64 << 20).tick(None).build()?;
    /// let stop = AtomicBool::new(false);
    /// std::thread::scope(|s| {
    ///     s.spawn(|| yard.worker().map(|mut worker| worker.run(&stop)));
    ///     // … the program …
    ///     stop.store(true, Ordering::SeqCst);
    ///     yard.wake_worker();
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn worker(&self) -> Option<Worker<'_, P>> {
        if self.is_here() { Worker::new(self.raw(), self.plan()) } else { None }
    }

    /// Rings the worker's bell: it takes its next step at once.
    pub fn wake_worker(&self) {
        if self.is_here() {
            self.raw().service().bell.ring();
        }
    }

    /// What the worker has done and sees. In a child after a fork, that of no worker.
    pub fn status(&self) -> Status {
        let service = self.raw().service();
        let here = self.is_here();
        let not_here = || Watching::Not("this is a child of its process".into());
        let (stalls, group, keeps) = match here {
            true => (*service.states()).clone(),
            false => (not_here(), not_here(), None),
        };
        let usage = if here { Usage::of(self.raw()) } else { Usage::default() };
        let pages = self.raw().region().pages();
        Status {
            worker: here && service.working.load(SeqCst),
            stalls,
            group,
            keeps,
            level: service.level(),
            used: usage.used,
            resident: usage.resident(self.raw()),
            target: service.target.load(Relaxed).min(pages),
            kept: service.balloon.pages(),
            given_back: service.given_back.load(Relaxed),
            fetched: usage.retaken,
            shrunk: service.shrunk.load(Relaxed),
            shrunk_directly: service.shrunk_directly.load(Relaxed),
            moved: service.moved.load(Relaxed),
            ticks: service.ticks.load(Relaxed),
        }
    }

    /// All of its statistics: what the worker publishes, now. In a child after a fork, zeros.
    pub fn stats(&self) -> YardStats {
        if self.is_here() { YardStats::of(self.raw()) } else { YardStats::default() }
    }

    /// Its free blocks by order, as `/proc/buddyinfo` shows a kernel's.
    pub fn buddyinfo(&self) -> String {
        self.text(|core, out| core.write_buddyinfo(out))
    }

    /// Its free blocks and pageblocks by type, as `/proc/pagetypeinfo` shows a kernel's.
    pub fn pagetypeinfo(&self) -> String {
        self.text(|core, out| core.write_pagetypeinfo(out))
    }

    /// Its zones, their marks and lists, as `/proc/zoneinfo` shows a kernel's. What an allocator does
    /// not know, such as page cache, is 0.
    pub fn zoneinfo(&self) -> String {
        self.text(|core, out| core.write_zoneinfo(out, &()))
    }

    /// Its counters, as `/proc/vmstat` shows a kernel's; what an allocator does not know is 0.
    pub fn vmstat(&self) -> String {
        self.text(|core, out| core.write_vmstat(out, &()))
    }

    fn text(
        &self,
        write: impl Fn(&Yard<'_, Hooked<HostLock, HostPlatform, P>>, &mut String) -> fmt::Result,
    ) -> String {
        let mut text = String::new();
        if self.is_here() {
            // A string takes everything.
            let _ = write(self.raw().core(), &mut text);
        }
        text
    }

    /// The file that holds its memory, for another process to map; `None` where it is anonymous.
    /// A block's bytes lie [`offset`](HostYard::offset) behind its beginning.
    ///
    /// # Safety
    /// Whoever writes to the file, or maps it and writes there, in this process or another one,
    /// leaves alone what somebody here borrows as bytes.
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: as the caller says.
        unsafe { self.raw().region().fd() }
    }

    /// Where a block's bytes are in the file of [`fd`](HostYard::fd).
    ///
    /// # Panics
    /// If the block is another yard's: an offset in this one's file would name bytes of another block.
    pub fn offset(&self, block: &Block<'_, P>) -> u64 {
        assert!(block.is_of(self), "the block is another yard's; ask that one for its offset");
        (block.pfn().0 - self.raw().region().first().0) * pageyard::PAGE_SIZE
    }
}

/// How often sections are isolated before what is in use there makes them stay.
const TRIES: usize = 8;

/// Makes attempts with pauses between them, as long as something unmovable is in the way: a free block
/// that a report or compaction holds looks so for the moment.
fn patiently(
    mut attempt: impl FnMut() -> Result<(), HotplugError>,
    pause: impl Fn(),
) -> Result<(), HotplugError> {
    for _ in 1..TRIES {
        match attempt() {
            Err(HotplugError::Refused(ContigError::Isolate(IsolateError::Unmovable(_)))) => pause(),
            answer => return answer,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_held_for_a_moment_does_not_keep_a_section() {
        let unmovable = HotplugError::Refused(IsolateError::Unmovable(Pfn(7)).into());
        // Number of refusals, then the answer, attempts and pauses.
        let run = |refusals: usize, last| {
            let (attempts, pauses) = (Cell::new(0), Cell::new(0));
            let attempt = || {
                attempts.set(attempts.get() + 1);
                if attempts.get() > refusals { last } else { Err(unmovable) }
            };
            let answer = patiently(attempt, || pauses.set(pauses.get() + 1));
            (answer, attempts.get(), pauses.get())
        };
        assert_eq!(run(0, Ok(())), (Ok(()), 1, 0));
        assert_eq!(run(7, Ok(())), (Ok(()), 8, 7));
        assert_eq!(run(100, Ok(())), (Err(unmovable), 8, 7), "it is in use");
        let hole = Err(HotplugError::Hole(Pfn(7)));
        assert_eq!(run(1, hole), (hole, 2, 1), "no other refusal is for the moment");
    }
}
