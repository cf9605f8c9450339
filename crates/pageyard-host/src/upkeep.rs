//! Background work of a yard as its users see it: callbacks, limits, statistics.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use pageyard::policy::Policy;
use pageyard::{AllocError, Gfp, Hooked, Invalid, KnobError, Order, Yard};
use pageyard_report::text;

use crate::block::Block;
use crate::limits::{LimitError, Limits};
use crate::lock::HostLock;
use crate::movable::Movable;
use crate::platform::HostPlatform;
use crate::pressure::{Level, PressureEvent};
use crate::registry::{Registration, Registry};
use crate::relocate::Relocator;
use crate::service::Status;
use crate::shrink::Shrinker;
use crate::signals::Watching;
use crate::stats::YardStats;
use crate::usable::Usable;
use crate::usage::Usage;
use crate::worker::Worker;
use crate::yard::HostYard;

/// Background work: callbacks, limits, statistics.
impl<P: Policy> HostYard<P> {
    /// Allocates a block that compaction may move while it is not pinned.
    ///
    /// # Errors
    /// As [`Yard::alloc`]; and as [`alloc`](HostYard::alloc).
    pub fn alloc_movable(&self, order: Order, gfp: Gfp) -> Result<Movable<'_, P>, AllocError> {
        let pfn = self.request(order, gfp, || self.raw().alloc(order, gfp | Gfp::MOVABLE))?;
        // SAFETY: this yard, which is exclusive, just allocated the block at this order
        // (`movable_blocks_keep_their_contents`).
        Ok(unsafe { Movable::new(self.raw(), pfn, order) })
    }

    /// Registers a shrinker: a callback that frees cached blocks under memory pressure.
    pub fn register_shrinker(&self, shrinker: impl Shrinker + 'static) -> Registration {
        self.add(&self.raw().service().shrinkers, Arc::new(shrinker))
    }

    /// Registers a relocator: a callback that moves blocks that its owner holds by number.
    pub fn register_relocator(&self, relocator: impl Relocator + 'static) -> Registration {
        self.add(&self.raw().service().relocators, Arc::new(relocator))
    }

    /// Registers a listener for changes of the pressure level. The worker calls it without any of
    /// the yard's locks; it may use the yard.
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

    /// Returns the pressure level of the worker's last step.
    pub fn pressure(&self) -> Level {
        self.raw().service().level()
    }

    /// Returns the limits in force; in a child after a fork, none.
    pub fn limits(&self) -> Limits {
        if self.is_here() { self.raw().service().balloon.limits() } else { Limits::default() }
    }

    /// Sets the limits. Returns whether the yard already keeps to the hard limit; in a child after
    /// a fork, always `false`.
    ///
    /// If more is in use than the hard limit allows, free pages are taken out of circulation now.
    /// The worker takes the rest as blocks are freed, and calls the shrinkers for it; without one,
    /// [`tick`](HostYard::tick) takes it. Until then a request succeeds only if it finds freed
    /// pages before the limit takes them.
    ///
    /// # Errors
    /// [`LimitError`]; nothing has changed then.
    pub fn set_limits(&self, limits: Limits) -> Result<bool, LimitError> {
        limits.check(self.raw().region().pages(), self.zones().count() as u64)?;
        if !self.is_here() {
            return Ok(false);
        }
        let balloon = &self.raw().service().balloon;
        balloon.set(limits);
        if limits.hard.is_some() {
            // Pages on per-CPU lists may be all that is missing.
            self.drain();
        }
        let done = self.raw().adjust_balloon();
        self.raw().service().events.limits(limits, done);
        self.wake_worker();
        Ok(done)
    }

    /// Compacts all memory now: moves movable blocks together, so that large blocks become free.
    pub fn compact(&self) {
        if self.is_here() {
            self.drain();
            self.raw().core().compact_all();
        }
    }

    /// Checks every structural invariant of the allocator at once ([`Yard::validate`]), for tests.
    /// The result is meaningful only while no other thread, including the worker, uses the yard. In
    /// a child after a fork, nothing is checked.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.is_here() { self.raw().core().validate() } else { Ok(()) }
    }

    /// Sets a knob by name ([`Yard::set_knob`]; docs/knobs.md lists them all). Does nothing in a
    /// child after a fork.
    ///
    /// # Errors
    /// The knob does not exist, is read-only, or does not accept the value.
    pub fn set_knob(&self, name: &str, value: &str) -> Result<(), KnobError> {
        if self.is_here() { self.raw().core().set_knob(name, value) } else { Ok(()) }
    }

    /// Returns the worker, to run on a thread of the caller, for a yard that has no worker thread
    /// ([`Builder::tick`](crate::Builder::tick)). Returns `None` if the yard already has a worker.
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

    /// Wakes the worker, which takes its next step at once.
    pub fn wake_worker(&self) {
        if self.is_here() {
            self.raw().service().wake_event.signal();
        }
    }

    /// Returns what the worker has done and sees. In a child after a fork, the status of a yard
    /// without a worker.
    pub fn status(&self) -> Status {
        let service = self.raw().service();
        let here = self.is_here();
        let not_here = || Watching::Not("this is a child of its process".into());
        let (stalls, group, keeps) = match here {
            true => (*service.states()).clone(),
            false => (not_here(), not_here(), None),
        };
        let refused = || "the system refuses to take it: is it locked (mlock)?".to_owned();
        let keeps = keeps.or_else(|| (here && service.refused.load(Relaxed)).then(refused));
        let usage = if here { Usage::of(self.raw()) } else { Usage::default() };
        let resident = if here { usage.resident(self.raw()) } else { 0 };
        let pages = self.raw().region().pages();
        Status {
            worker: here && service.working.load(SeqCst),
            stalls,
            group,
            keeps,
            level: service.level(),
            used: usage.used,
            owned: usage.owned(self.thread_cache_stats().pages, self.out_of_use()),
            resident,
            in_pieces: usage.in_pieces(self.raw(), resident),
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

    /// Returns how much ordinary requests for single pages can have at once, and what takes the
    /// rest. In a child after a fork, zeros.
    pub fn usable(&self) -> Usable {
        if !self.is_here() {
            return Usable::default();
        }
        Usable::of(self.raw(), self.thread_cache_stats().pages)
    }

    /// Returns the most bytes that ordinary requests for single pages can have at once, to within a
    /// refill of a CPU's lists ([`Usable::bytes`]).
    pub fn usable_bytes(&self) -> u64 {
        self.usable().bytes
    }

    /// Returns all statistics of the yard, in the form that the worker publishes. In a child after
    /// a fork, zeros.
    pub fn stats(&self) -> YardStats {
        if !self.is_here() {
            return YardStats::default();
        }
        YardStats::of(self.raw(), || self.thread_cache_stats())
    }

    /// Returns the free blocks by order, in the format of `/proc/buddyinfo`.
    pub fn buddyinfo(&self) -> String {
        self.text(|core, out| text::write_buddyinfo(out, core))
    }

    /// Returns the free blocks and pageblocks by type, in the format of `/proc/pagetypeinfo`.
    pub fn pagetypeinfo(&self) -> String {
        self.text(|core, out| text::write_pagetypeinfo(out, core))
    }

    /// Returns the zones with their watermarks and lists, in the format of `/proc/zoneinfo`. Values
    /// that an allocator does not know, such as page cache, are 0.
    pub fn zoneinfo(&self) -> String {
        self.text(|core, out| text::write_zoneinfo(out, core, &()))
    }

    /// Returns the counters, in the format of `/proc/vmstat`. Values that an allocator does not
    /// know are 0.
    pub fn vmstat(&self) -> String {
        self.text(|core, out| text::write_vmstat(out, core, &()))
    }

    fn text(
        &self,
        write: impl Fn(&Yard<'_, Hooked<HostLock, HostPlatform, P>>, &mut String) -> fmt::Result,
    ) -> String {
        let mut text = String::new();
        if self.is_here() {
            // Writing to a string cannot fail.
            let _ = write(self.raw().core(), &mut text);
        }
        text
    }

    /// Returns the file that holds the memory, for another process to map; `None` for anonymous
    /// memory. A block's bytes begin at [`offset`](HostYard::offset) in the file.
    ///
    /// # Safety
    /// Nothing writes to the file, or to a mapping of it, where code in this process borrows bytes.
    /// That includes writes by other processes.
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: as the caller guarantees.
        unsafe { self.raw().region().fd() }
    }

    /// Returns the offset of a block's bytes in the file of [`fd`](HostYard::fd).
    ///
    /// # Panics
    /// If the block belongs to another yard: its offset would name other bytes in this yard's file.
    pub fn offset(&self, block: &Block<'_, P>) -> u64 {
        assert!(block.is_of(self), "the block is another yard's; ask that one for its offset");
        (block.pfn().0 - self.raw().region().first().0) * pageyard::PAGE_SIZE
    }
}
