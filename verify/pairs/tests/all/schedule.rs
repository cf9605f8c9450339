//! Threads of which only one runs at a time, and the scheduling points at which another one may
//! take over.
//!
//! The threads of a schedule are its *actors*, numbered from 0. Actor 0 runs first.
//!
//! - An actor with a *stop* yields to the next actor when it reaches that scheduling point, and
//!   resumes when that actor ends.
//! - An actor that waits for a lock also yields. It resumes as soon as the lock is free.
//! - An actor that pauses tries again at the next points of the others, then once they have ended.
//!
//! So the stops alone determine a schedule.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use lock_api::RawMutex;
use pageyard_pairs_atomics::{Access, Fault, set_fault, set_hook};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Limits on accesses to atomics and on switches between actors. An actor beyond them counts as
/// looping forever.
const MOST_STEPS: u64 = 20_000_000;
const MOST_TURNS: u64 = 100_000;
/// Pauses of an actor after which it resumes at the next scheduling point.
const SHORT_PAUSES: u32 = 5;

/// A scheduling point.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Point {
    what: &'static str,
    file: &'static str,
    line: u32,
}

impl Point {
    fn at(what: &'static str, place: &'static Location<'static>) -> Point {
        Point { what, file: place.file(), line: place.line() }
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit("src/").next().unwrap_or(self.file);
        write!(f, "{} at {file}:{}", self.what, self.line)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    /// Not started: it waits for the previous actor to reach its stop.
    New,
    /// It can run.
    Ready,
    /// It waits for the lock at this address.
    Blocked(usize),
    /// It waits for an action of another actor.
    Paused,
    Done,
}

struct State {
    running: usize,
    actors: Vec<Status>,
    turns: u64,
    /// All actors wait for locks: each one is to unwind.
    deadlock: bool,
}

struct Schedule {
    state: Mutex<State>,
    turn: Condvar,
    /// The actor that resumes at the next scheduling point.
    back_to: AtomicUsize,
}

/// No actor.
const NONE: usize = usize::MAX;

/// The calling thread's role in a schedule.
#[derive(Default)]
struct Seat {
    schedule: RefCell<Option<(Arc<Schedule>, usize)>>,
    /// Number of scheduling points reached, and the point to stop at.
    points: Cell<u64>,
    stop: Cell<u64>,
    /// Whether plain loads and stores are points too.
    plain: Cell<bool>,
    pauses: Cell<u32>,
    steps: Cell<u64>,
    held: Cell<u32>,
    /// Whether it proceeds without the locks that it waits for (a planted bug).
    impatient: Cell<bool>,
    /// The points reached, if they are recorded.
    trace: RefCell<Option<Vec<Point>>>,
}

thread_local! {
    static SEAT: Seat = Seat::default();
}

impl State {
    /// Returns the actor that runs when actor `me` cannot. The last ready one comes first, then a
    /// paused one, in turn, then one that has not started. If all wait for locks, returns the last
    /// of them, to unwind.
    fn next(&mut self, me: usize) -> Option<usize> {
        let last = |is: &dyn Fn(Status) -> bool| self.actors.iter().rposition(|&a| is(a));
        let n = self.actors.len();
        let paused = (1..=n).map(|i| (me + i) % n).find(|&i| self.actors[i] == Status::Paused);
        let new = self.actors.iter().position(|&a| a == Status::New);
        let free = last(&|a| a == Status::Ready).or(paused).or(new);
        free.or_else(|| {
            let blocked = last(&|a| matches!(a, Status::Blocked(_)));
            self.deadlock |= blocked.is_some();
            blocked
        })
    }
}

impl Schedule {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until actor `me` runs.
    fn wait(&self, mut state: MutexGuard<'_, State>, me: usize) {
        while state.running != me {
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Switches to actor `to` and waits until this one runs again.
    fn pass(&self, mut state: MutexGuard<'_, State>, me: usize, to: usize) {
        state.turns += 1;
        let turns = state.turns;
        state.actors[to] = Status::Ready;
        state.running = to;
        self.turn.notify_all();
        self.wait(state, me);
        assert!(
            turns < MOST_TURNS || thread::panicking(),
            "the actors wait for each other for ever"
        );
    }

    /// At a scheduling point: switches to an actor that has paused.
    fn pass_back(&self, me: usize) {
        let to = self.back_to.swap(NONE, SeqCst);
        let state = self.state();
        if state.actors.get(to) == Some(&Status::Paused) {
            self.pass(state, me, to);
        }
    }

    /// Starts the next actor if it has not started.
    fn begin_next(&self, me: usize) {
        let state = self.state();
        if state.actors.get(me + 1) == Some(&Status::New) {
            self.pass(state, me, me + 1);
        }
    }

    /// Switches to another actor because actor `me` cannot continue or has ended.
    fn leave(&self, me: usize, status: Status) {
        let mut state = self.state();
        state.actors[me] = status;
        match state.next(me) {
            Some(to) if to == me => state.actors[me] = Status::Ready,
            Some(to) if status == Status::Done => {
                state.actors[to] = Status::Ready;
                state.running = to;
                self.turn.notify_all();
            }
            Some(to) => self.pass(state, me, to),
            None => {}
        }
    }
}

fn seated<T>(f: impl FnOnce(&Schedule, usize) -> T) -> Option<T> {
    let seat = SEAT.with(|s| s.schedule.borrow().clone());
    seat.map(|(schedule, me)| f(&schedule, me))
}

/// A scheduling point other than an access to an atomic: a hook or a lock.
#[track_caller]
pub(crate) fn point(what: &'static str) {
    reach(Point::at(what, Location::caller()));
}

fn access(access: Access, place: &'static Location<'static>) {
    let counts = SEAT.with(|s| {
        s.steps.set(s.steps.get() + 1);
        assert!(s.steps.get() < MOST_STEPS || thread::panicking(), "the operation does not end");
        access == Access::Update || s.plain.get()
    });
    if counts {
        let what = match access {
            Access::Load => "load",
            Access::Store => "store",
            Access::Update => "update",
        };
        reach(Point::at(what, place));
    }
}

fn reach(point: Point) {
    let (stops, passes_back) = SEAT.with(|s| {
        let seat = s.schedule.borrow();
        let Some((schedule, _)) = seat.as_ref().filter(|_| !thread::panicking()) else {
            return (false, false);
        };
        if let Some(trace) = &mut *s.trace.borrow_mut() {
            trace.push(point);
        }
        s.points.set(s.points.get() + 1);
        (s.points.get() == s.stop.get(), schedule.back_to.load(SeqCst) != NONE)
    });
    if passes_back {
        seated(Schedule::pass_back);
    }
    if stops {
        seated(Schedule::begin_next);
    }
}

/// Runs `f` without scheduling points, for what a test inspects outside the operation.
pub(crate) fn quietly<T>(f: impl FnOnce() -> T) -> T {
    let seat = SEAT.with(|s| s.schedule.take());
    let hook = set_hook(None);
    let answer = f();
    set_hook(hook);
    SEAT.with(|s| s.schedule.replace(seat));
    answer
}

/// Yields while the actor waits for another one. Returns at once if no other actor can run.
#[track_caller]
pub(crate) fn pause() {
    point("pause");
    let short = SEAT.with(|s| s.pauses.replace(s.pauses.get() + 1) < SHORT_PAUSES);
    seated(|schedule, me| {
        if short {
            schedule.back_to.store(me, SeqCst);
        }
        schedule.leave(me, Status::Paused);
    });
}

/// Returns how many of the core's locks the calling thread holds.
pub(crate) fn locks_held() -> u32 {
    SEAT.with(|s| s.held.get())
}

/// A lock whose waiters yield to other actors. `SLEEPING`: hooks may be called while it is held.
pub(crate) struct Turnstile<const SLEEPING: bool>(AtomicBool);

/// The type of the core's locks. No hook that may sleep is called under them.
pub(crate) type Lock = Turnstile<false>;
/// A lock whose holder may sleep.
pub(crate) type SleepingLock = Turnstile<true>;

impl<const SLEEPING: bool> Turnstile<SLEEPING> {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn count(by: i32) {
        if !SLEEPING {
            SEAT.with(|s| s.held.set(s.held.get().wrapping_add_signed(by)));
        }
    }
}

// SAFETY: only one swap from false to true can succeed before the next unlock. The exception is a
// thread that unwinds out of a deadlock, where the others do not run.
#[allow(unsafe_code)]
unsafe impl<const SLEEPING: bool> RawMutex for Turnstile<SLEEPING> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Turnstile(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    #[track_caller]
    fn lock(&self) {
        point("lock");
        while self.0.swap(true, SeqCst) {
            let impatient = SEAT.with(|s| s.impatient.get());
            if thread::panicking() || impatient {
                break;
            }
            let deadlock = seated(|schedule, me| {
                schedule.leave(me, Status::Blocked(self.address()));
                schedule.state().deadlock
            });
            assert_ne!(deadlock, Some(true), "deadlock: every actor waits for a lock");
            assert!(deadlock.is_some(), "a lock is taken that the thread holds already");
        }
        Self::count(1);
        point("locked");
    }

    #[track_caller]
    fn try_lock(&self) -> bool {
        point("try_lock");
        let taken = !self.0.swap(true, SeqCst);
        if taken {
            Self::count(1);
            point("locked");
        }
        taken
    }

    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
        Self::count(-1);
        seated(|schedule, me| {
            let mut state = schedule.state();
            let waits = Status::Blocked(self.address());
            if let Some(to) = state.actors.iter().rposition(|&a| a == waits) {
                if to > me && !thread::panicking() {
                    schedule.pass(state, me, to);
                } else {
                    state.actors[to] = Status::Ready;
                }
            }
        });
        point("unlocked");
    }
}

/// Parameters of a schedule.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// The point, from 1, at which each actor yields to the next one; 0 for none.
    pub(crate) stops: Vec<u64>,
    /// Whether plain loads and stores are scheduling points too.
    pub(crate) plain: bool,
    /// The planted bug, if any.
    pub(crate) bug: Bug,
}

/// Bugs planted to check that they are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Bug {
    #[default]
    None,
    /// The atomics have a fault.
    Atomics(Fault),
    /// Actor 1 proceeds without the locks that it waits for.
    Impatient,
}

type Actor<'a> = Box<dyn FnOnce() + Send + 'a>;

thread_local! {
    /// The calling thread's panic message.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the actors. Returns the points that each reached, or the first failure.
pub(crate) fn run(plan: &Plan, actors: Vec<Actor<'_>>) -> Result<Vec<Vec<Point>>, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if SEAT.with(|s| s.schedule.borrow().is_some()) {
                PANIC.set(Some(info.to_string()));
            } else {
                told(info);
            }
        }));
    });
    let state =
        State { running: 0, actors: vec![Status::New; actors.len()], turns: 0, deadlock: false };
    let schedule = Arc::new(Schedule {
        state: Mutex::new(state),
        turn: Condvar::new(),
        back_to: AtomicUsize::new(NONE),
    });
    let broken = Mutex::new(None);
    let traces = Mutex::new(vec![Vec::new(); actors.len()]);
    thread::scope(|s| {
        for (me, actor) in actors.into_iter().enumerate() {
            let (schedule, broken, traces) = (schedule.clone(), &broken, &traces);
            s.spawn(move || {
                SEAT.with(|seat| {
                    seat.schedule.replace(Some((schedule.clone(), me)));
                    seat.stop.set(plan.stops.get(me).copied().unwrap_or(0));
                    seat.plain.set(plan.plain);
                    seat.impatient.set(plan.bug == Bug::Impatient && me == 1);
                    seat.trace.replace(Some(Vec::new()));
                });
                if let Bug::Atomics(fault) = plan.bug {
                    set_fault(fault);
                }
                let mut state = schedule.state();
                if me == 0 {
                    state.actors[0] = Status::Ready;
                }
                schedule.wait(state, me);
                set_hook(Some(access));
                let answer = catch_unwind(AssertUnwindSafe(actor));
                set_hook(None);
                if answer.is_err() {
                    let why = PANIC.take().unwrap_or_default();
                    broken.lock().unwrap().get_or_insert(format!("actor {me} {why}"));
                }
                let points = SEAT.with(|seat| seat.trace.take()).unwrap_or_default();
                traces.lock().unwrap()[me] = points;
                schedule.leave(me, Status::Done);
            });
        }
    });
    match broken.into_inner().unwrap() {
        Some(why) => Err(why),
        None => Ok(traces.into_inner().unwrap()),
    }
}
