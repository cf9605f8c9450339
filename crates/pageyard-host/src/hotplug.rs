//! Memory that comes and goes by sections, and pages with faulty memory.

use std::ops::Range;

use pageyard::policy::Policy;
use pageyard::{ContigError, HotplugError, IsolateError, Pfn, PoisonError, Poisoned};

use crate::platform::current_task;
use crate::service::{HotplugGuard, Meanwhile};
use crate::yard::HostYard;

impl<P: Policy> HostYard<P> {
    /// Takes whole sections of memory offline ([`Yard::offline`], §8.4) and returns their memory to
    /// the system. Movable blocks in them are migrated; a [`Block`](crate::Block) is not.
    ///
    /// A hard limit applies to the remaining memory.
    ///
    /// # Errors
    /// As [`Yard::offline`]; the sections stay in use as before. [`ContigError::Busy`] from a
    /// relocator that another `offline` call runs.
    ///
    /// [`Yard::offline`]: pageyard::Yard::offline
    pub fn offline(&self, sections: Range<Pfn>) -> Result<(), HotplugError> {
        if !self.is_here() {
            return Err(HotplugError::Refused(ContigError::NoMemory));
        }
        // Another thread must not online the sections before their memory is discarded.
        let _hotplug = self.begin_hotplug(&sections)?;
        self.drain();
        let core = self.raw().core();
        let isolating = Meanwhile::add(&self.raw().service().isolating, 1);
        // A relocator may fork. Its child waits for no lock that another thread had, and changes nothing.
        let elsewhere = HotplugError::Refused(ContigError::NoMemory);
        let mut answer = core.offline(sections.clone());
        if !self.is_here() {
            return Err(elsewhere);
        }
        let balloon = &self.raw().service().balloon;
        let is_in_the_way = |error| match error {
            ContigError::NoMemory => true,
            ContigError::Busy(pfn) | ContigError::Isolate(IsolateError::Unmovable(pfn)) => {
                balloon.keeps(pfn)
            }
            _ => false,
        };
        if let Err(HotplugError::Refused(error)) = answer
            && is_in_the_way(error)
            && balloon.leave(core, &sections)
        {
            // Without what the hard limit keeps there.
            answer = core.offline(sections.clone());
        }
        if !self.is_here() {
            return Err(elsewhere);
        }
        drop(isolating);
        if answer.is_err() {
            self.raw().adjust_balloon();
            return answer;
        }
        // If the system refuses it (hugetlbfs), the memory stays with the process.
        let pages = sections.end.0 - sections.start.0;
        if self.raw().region().discard(sections.start, pages, false).is_ok() {
            core.hooks().note_returned(&sections);
        }
        self.raw().adjust_balloon();
        Ok(())
    }

    /// Brings sections back online that [`offline`](HostYard::offline) took offline. A hard limit
    /// keeps their pages out of circulation.
    ///
    /// # Errors
    /// As [`Yard::online`](pageyard::Yard::online); [`ContigError::Busy`] as for
    /// [`offline`](HostYard::offline).
    pub fn online(&self, sections: Range<Pfn>) -> Result<(), HotplugError> {
        if !self.is_here() {
            return Err(HotplugError::Refused(ContigError::NoMemory));
        }
        let _hotplug = self.begin_hotplug(&sections)?;
        self.raw().core().online(sections)?;
        self.raw().adjust_balloon();
        Ok(())
    }

    fn begin_hotplug(&self, sections: &Range<Pfn>) -> Result<HotplugGuard<'_>, HotplugError> {
        let begun = self.raw().service().hotplug.begin(current_task());
        begun.ok_or(HotplugError::Refused(ContigError::Busy(sections.start)))
    }

    /// Takes a page with faulty memory out of use ([`Yard::poison_frame`], §11.3). A free page is
    /// taken at once, one that a thread keeps too. A page in use is taken when it is freed to the
    /// allocator behind the thread cache: a thread that frees it may be given it again before.
    ///
    /// # Errors
    /// [`PoisonError`]; nothing has changed then. In a child after a fork, every frame is foreign.
    ///
    /// [`Yard::poison_frame`]: pageyard::Yard::poison_frame
    pub fn poison_frame(&self, pfn: Pfn) -> Result<Poisoned, PoisonError> {
        if !self.is_here() {
            return Err(PoisonError::Foreign);
        }
        self.drain_threads();
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

    /// Returns the number of pages out of use: faulty, bad, or guard pages.
    pub fn out_of_use(&self) -> u64 {
        let core = self.raw().core();
        core.zone_ids().filter_map(|zone| core.out_of_use(zone)).map(|out| out.pages()).sum()
    }
}
