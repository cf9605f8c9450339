//! State shared by requests and the worker, and the registered callbacks.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::{fmt, io, mem};

use pageyard::{Context, Gfp, NodeId, Order, ReclaimJob, Relocation, TaskFlags};

use crate::backing::Backing;
use crate::balloon::Balloon;
use crate::callback::guarded;
use crate::fork::Birthplace;
use crate::give_back::GiveBack;
use crate::held::{Class, Mutex, MutexGuard};
use crate::limits::Limits;
use crate::pressure::{Level, Listener};
use crate::registry::Registry;
use crate::relocate::{Movables, Moving, Relocator};
use crate::requests::Requests;
use crate::shrink::{Shrinker, count_all, shrink_all};
use crate::signals::{SystemFiles, Watching};
use crate::trace_events::TraceEvents;
use crate::wake_event::WakeEvent;

thread_local! {
    /// Set while this thread runs a callback that frees or moves memory. Its requests may use the
    /// reserves and do not lead to another reclaim or compaction.
    static RECLAIMS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the thread as reclaiming until it is dropped.
struct Reclaiming(bool);

impl Reclaiming {
    fn begin() -> Reclaiming {
        Reclaiming(RECLAIMS.replace(true))
    }
}

impl Drop for Reclaiming {
    fn drop(&mut self) {
        RECLAIMS.set(self.0);
    }
}

/// A set of nodes that requests add to and the worker empties.
#[derive(Debug, Default)]
pub(crate) struct Wanted(AtomicU64);

impl Wanted {
    pub(crate) fn add(&self, node: NodeId) {
        self.0.fetch_or(1 << (node.0 % 64), SeqCst);
    }

    pub(crate) fn take(&self, node: NodeId) -> bool {
        let bit = 1 << (node.0 % 64);
        self.0.load(Relaxed) & bit != 0 && self.0.fetch_and(!bit, SeqCst) & bit != 0
    }
}

/// What a yard's worker has done and sees ([`HostYard::status`](crate::HostYard::status)).
///
/// ```
/// use pageyard_host::Builder;
///
/// let yard = Builder::new(16 << 20).build()?;
/// let status = yard.status();
/// println!("{} of {} pages resident", status.resident, status.target);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// Whether the yard has a worker: its own thread, or the embedder's.
    pub worker: bool,
    /// Whether the system's memory stalls (PSI) are watched, or why not.
    pub stalls: Watching,
    /// Whether the limits of a control group (cgroup v2) are watched, or why not.
    pub group: Watching,
    /// Why idle memory is not returned to the system, if it is not.
    pub keeps: Option<String>,
    /// Pressure level.
    pub level: Level,
    /// Pages in use: allocated, or out of use.
    pub used: u64,
    /// Pages of these that callers hold: all but what thread caches keep and what is out of use. 0 once
    /// everything is freed. As `used`, it counts for a moment the free pages of a range that is being taken.
    pub owned: u64,
    /// Pages that the system backs, as far as the allocator knows.
    pub resident: u64,
    /// Pages of these that are free and lie in pageblocks of which other pages are in use, or on per-CPU
    /// lists. They are returned to the system only if [`GiveBack::least`](crate::GiveBack::least) says so.
    pub in_pieces: u64,
    /// Pages that are to stay resident at the moment.
    pub target: u64,
    /// Pages kept out of circulation by the hard limit.
    pub kept: u64,
    /// Pages returned to the system, and pages of those that requests took again, since the yard
    /// began. Pages that were returned in blocks of less than 2 MiB are no part of the latter.
    pub given_back: u64,
    /// See `given_back`.
    pub fetched: u64,
    /// Pages freed by shrinkers, for the worker and for requests.
    pub shrunk: u64,
    /// See `shrunk`.
    pub shrunk_directly: u64,
    /// Blocks that compaction moved.
    pub moved: u64,
    /// Ticks of the statistics worker.
    pub ticks: u64,
}

/// Options of the background work.
#[derive(Clone, Debug)]
pub(crate) struct ServiceOptions {
    pub(crate) backing: Backing,
    pub(crate) fallback: bool,
    pub(crate) limits: Limits,
    /// `None`: not set.
    pub(crate) give_back: Option<Option<GiveBack>>,
    pub(crate) system: Option<SystemFiles>,
    pub(crate) publish: bool,
}

/// State shared by a yard, its hooks and its worker.
pub(crate) struct Service {
    /// Pages of the yard: no shrinker frees more at once, whatever it claims.
    pages: u64,
    pub(crate) born: Birthplace,
    pub(crate) wake_event: WakeEvent,
    pub(crate) events: TraceEvents,
    pub(crate) reclaim: Wanted,
    pub(crate) compaction: Wanted,
    pub(crate) shrinkers: Registry<dyn Shrinker>,
    pub(crate) relocators: Registry<dyn Relocator>,
    pub(crate) movables: Movables,
    pub(crate) listeners: Registry<Listener>,
    pub(crate) balloon: Balloon,
    pub(crate) hotplug: Hotplug,
    /// Set while the yard has a worker.
    pub(crate) working: Arc<AtomicBool>,
    pub(crate) lazily: AtomicBool,
    /// Whether free pieces of pageblocks are returned to the system.
    pub(crate) returns_pieces: AtomicBool,
    /// Pages returned that had been touched, if pieces are returned.
    pub(crate) returned_touched: AtomicU64,
    pub(crate) level: AtomicU8,
    pub(crate) target: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) shrunk: AtomicU64,
    pub(crate) shrunk_directly: AtomicU64,
    /// Set if the last call of the shrinkers by a request freed nothing.
    barren: AtomicBool,
    pub(crate) moved: AtomicU64,
    pub(crate) requests: Requests,
    pub(crate) ticks: AtomicU64,
    /// Operations that isolate pageblocks: their free pages are neither free nor in use meanwhile.
    pub(crate) isolating: AtomicU64,
    /// Free pages that are being returned to the system.
    pub(crate) returning: AtomicU64,
    /// Whether the system refused the last ones, as for locked memory.
    pub(crate) refused: AtomicBool,
    states: Mutex<Arc<States>>,
}

/// Whether stalls and the control group are watched, and why idle memory is not returned.
pub(crate) type States = (Watching, Watching, Option<String>);

/// A number that is added to a counter until this is dropped.
pub(crate) struct Meanwhile<'s>(&'s AtomicU64, u64);

impl<'s> Meanwhile<'s> {
    pub(crate) fn add(counter: &'s AtomicU64, n: u64) -> Self {
        counter.fetch_add(n, SeqCst);
        Meanwhile(counter, n)
    }
}

impl Drop for Meanwhile<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, SeqCst);
    }
}

/// Busy flag for onlining and offlining memory.
#[derive(Debug)]
pub(crate) struct Hotplug {
    busy_guard: Mutex<()>,
    /// The task that holds the flag, or 0.
    task: AtomicU64,
}

/// Holds the busy flag until it is dropped.
pub(crate) struct HotplugGuard<'s> {
    task: &'s AtomicU64,
    _busy: MutexGuard<'s, ()>,
}

impl Default for Hotplug {
    fn default() -> Self {
        Hotplug { busy_guard: Mutex::new(Class::Hotplug, ()), task: AtomicU64::new(0) }
    }
}

impl Hotplug {
    /// Waits for the busy flag; `None` if the calling task holds it. Relocators run while it is
    /// held, and one that waited for it would wait for itself.
    pub(crate) fn begin(&self, task: u64) -> Option<HotplugGuard<'_>> {
        // Only the task itself stores its number.
        if self.task.load(Relaxed) == task {
            return None;
        }
        let busy_guard = self.busy_guard.lock();
        self.task.store(task, Relaxed);
        Some(HotplugGuard { task: &self.task, _busy: busy_guard })
    }
}

impl Drop for HotplugGuard<'_> {
    fn drop(&mut self) {
        self.task.store(0, Relaxed);
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("shrinkers", &self.shrinkers).finish_non_exhaustive()
    }
}

impl Service {
    /// Creates the state of a yard of `pages` pages.
    pub(crate) fn new(pages: u64) -> io::Result<Service> {
        const NOT_YET: &str = "no worker has looked yet";
        let none = || Watching::Not(NOT_YET.into());
        Ok(Service {
            pages,
            born: Birthplace::here(),
            wake_event: WakeEvent::new()?,
            events: TraceEvents::new(),
            reclaim: Wanted::default(),
            compaction: Wanted::default(),
            shrinkers: Registry::default(),
            relocators: Registry::default(),
            movables: Movables::default(),
            listeners: Registry::default(),
            balloon: Balloon::default(),
            hotplug: Hotplug::default(),
            working: Arc::default(),
            lazily: AtomicBool::new(false),
            returns_pieces: AtomicBool::new(false),
            returned_touched: AtomicU64::new(0),
            level: AtomicU8::new(0),
            target: AtomicU64::new(u64::MAX),
            given_back: AtomicU64::new(0),
            shrunk: AtomicU64::new(0),
            shrunk_directly: AtomicU64::new(0),
            barren: AtomicBool::new(false),
            moved: AtomicU64::new(0),
            requests: Requests::default(),
            ticks: AtomicU64::new(0),
            isolating: AtomicU64::new(0),
            returning: AtomicU64::new(0),
            refused: AtomicBool::new(false),
            states: Mutex::new(Class::States, Arc::new((none(), none(), Some(NOT_YET.into())))),
        })
    }

    pub(crate) fn states(&self) -> Arc<States> {
        self.states.lock().clone()
    }

    pub(crate) fn set_states(&self, states: States) {
        let mut other = Arc::new(states);
        mem::swap(&mut *self.states.lock(), &mut other);
        // The old states are dropped without the lock.
    }

    pub(crate) fn set_returns_pieces(&self, pieces: bool) {
        self.returns_pieces.store(pieces, Relaxed);
    }

    /// Records a failed request, and wakes the worker if it has to report it.
    pub(crate) fn failed(&self, order: Order, gfp: Gfp) {
        self.requests.count_failure();
        if self.events.failed(order, gfp) {
            self.wake_event.signal();
        }
    }

    pub(crate) fn level(&self) -> Level {
        Level::from_u8(self.level.load(Relaxed))
    }

    /// Calls the shrinkers on the thread of a request.
    pub(crate) fn reclaim_directly(&self, job: &ReclaimJob) -> u64 {
        let freed = shrink_all(&self.shrinkers, job).min(self.pages);
        self.barren.store(freed == 0, Relaxed);
        self.shrunk_directly.fetch_add(freed, Relaxed);
        freed
    }

    /// Calls the shrinkers on the worker's thread.
    pub(crate) fn reclaim_in_background(&self, job: &ReclaimJob) -> u64 {
        let _mark = Reclaiming::begin();
        let freed = shrink_all(&self.shrinkers, job).min(self.pages);
        self.shrunk.fetch_add(freed, Relaxed);
        freed
    }

    pub(crate) fn reclaimable(&self) -> u64 {
        // A shrinker's count may allocate, and a request calls for counts.
        let _mark = Reclaiming::begin();
        count_all(&self.shrinkers, !self.barren.load(Relaxed))
    }

    pub(crate) fn context(&self, embedders: Context) -> Context {
        if RECLAIMS.get() {
            Context { flags: embedders.flags | TaskFlags::MEMALLOC, ..embedders }
        } else {
            embedders
        }
    }

    pub(crate) fn can_move(&self) -> bool {
        !self.movables.is_empty() || !self.relocators.is_empty() || self.balloon.pages() > 0
    }

    pub(crate) fn relocate(&self, block: &Moving) -> Relocation {
        let ask = || {
            // A relocator may allocate, and a request without memory compacts.
            let _mark = Reclaiming::begin();
            let all = self.relocators.all();
            let mut answers = all.iter().filter_map(|r| guarded(|| r.relocate(block)));
            answers.find(|&a| a != Relocation::Refused).unwrap_or(Relocation::Refused)
        };
        let answer = self.movables.relocate(block).unwrap_or_else(ask);
        if answer == Relocation::Moved {
            self.moved.fetch_add(1, Relaxed);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use pageyard::Pfn;
    use pageyard::Relocation::{Busy, Moved, Refused};

    use super::*;

    /// Returns its answer or panics, and counts its calls.
    struct Answers(Option<Relocation>, AtomicU64);

    // SAFETY: it moves nothing, and the block does not exist.
    unsafe impl Relocator for Answers {
        fn relocate(&self, _: &Moving) -> Relocation {
            self.1.fetch_add(1, Relaxed);
            self.0.expect("planted: relocate")
        }
    }

    /// Returns the answer of a service with these relocators, the number of calls of each, and the
    /// number of blocks moved.
    fn ask<const N: usize>(answers: [Option<Relocation>; N]) -> (Relocation, [u64; N], u64) {
        let service = Service::new(1024).unwrap();
        let all = answers.map(|answer| Arc::new(Answers(answer, AtomicU64::new(0))));
        all.iter().for_each(|r| service.relocators.add(r.clone()).keep());
        let (old, new) = (NonNull::dangling(), NonNull::dangling());
        let block = Moving { from: Pfn(1), to: Pfn(2), order: Order::ZERO, old, new };
        let answer = service.relocate(&block);
        (answer, all.map(|r| r.1.load(Relaxed)), service.moved.load(Relaxed))
    }

    /// Busy is the owner's answer, as Moved is: compaction retries later.
    #[test]
    fn relocators_are_called_until_one_accepts() {
        assert_eq!(ask([]), (Refused, [], 0));
        assert_eq!(ask([Some(Refused), Some(Refused)]), (Refused, [1, 1], 0));
        assert_eq!(ask([Some(Refused), Some(Busy), Some(Moved)]), (Busy, [1, 1, 0], 0));
        assert_eq!(ask([Some(Moved), Some(Busy)]), (Moved, [1, 0], 1));
        assert_eq!(ask([None, Some(Moved)]), (Moved, [1, 1], 1), "a panic refuses");
    }
}
