//! Runs phases in sequence.

use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::actor::Actor;
use crate::counts::{Counts, Finding, Report};
use crate::found::{Found, Report as _};
use crate::operations::NAMES;
use crate::phase::Phase;
use crate::raw::Shared;
use crate::tracked::lock;
use crate::world::World;
use crate::{Plan, Plant, SoakError};

/// Interval between checks of a phase.
const LOOK: Duration = Duration::from_millis(100);
/// Number of checks after which a thread that has not begun an operation counts as hung. Checks are
/// counted rather than timed, so that a stopped process can continue.
const PATIENCE: u32 = 3000;

/// The result of a phase.
struct Over {
    counts: Counts,
    plant: Option<Plant>,
    found: Option<Found>,
}

/// Runs phases until the time is over, a failure is found, or `tell` breaks. `tell` receives the
/// current phase about ten times a second, and at least once.
///
/// [`SoakError`]. A failure that the soak finds is in the report.
pub fn soak(
    plan: &Plan,
    tell: &mut dyn FnMut(&Phase) -> ControlFlow<()>,
) -> Result<Report, SoakError> {
    if !(1..=1024).contains(&plan.threads) {
        return Err(SoakError::Threads(plan.threads));
    }
    let start = Instant::now();
    let (mut plant, mut phases, mut told) = (plan.plant, 0, ControlFlow::Continue(()));
    let mut report = Report {
        seed: plan.seed,
        threads: plan.threads,
        size: plan.size,
        seconds: 0.0,
        phases: 0,
        counts: Counts::default(),
        found: None,
    };
    let mut is_over = |phase: &Phase| {
        told = tell(phase);
        told.is_break() || start.elapsed().as_secs() >= plan.seconds
    };
    while phases < plan.phases && report.found.is_none() {
        let phase = Phase::new(plan, plan.only.unwrap_or(phases + 1));
        if is_over(&phase) {
            break;
        }
        phases += 1;
        let over = run(&phase, plant, &mut || is_over(&phase))?;
        plant = over.plant;
        over.counts.0.into_iter().for_each(|(what, n)| report.counts.add(what, n));
        let configuration = phase.to_string();
        report.found = over.found.map(|found| Finding {
            seed: plan.seed,
            phase: phase.number,
            configuration,
            found,
        });
    }
    Ok(Report { phases, seconds: start.elapsed().as_secs_f64(), ..report })
}

/// Runs one phase.
#[allow(unsafe_code)] // frees the phase's memory
fn run(
    phase: &Phase,
    plant: Option<Plant>,
    is_over: &mut dyn FnMut() -> bool,
) -> Result<Over, SoakError> {
    let shared = Shared::new(World::new(phase.clone(), plant, &NAMES)?);
    let world = shared.get();
    world.open();
    let seed = Rng::with_seed(phase.seed ^ phase.number).u64(..);
    let all = thread::Builder::new().spawn(move || work(world, seed))?;
    let stuck = watch(world, &all, is_over);
    let found = match stuck {
        Some(found) => Some(found),
        None => {
            all.join().map_err(|_| io::Error::other("the phase's first thread panicked"))??;
            lock(&world.found).take().or_else(|| world.close().err())
        }
    };
    world.yards.iter().for_each(|tracked| tracked.count(&mut lock(&world.counts)));
    let over = Over {
        counts: std::mem::take(&mut *lock(&world.counts)),
        plant: lock(&world.plant).take(),
        found,
    };
    if over.found.is_none() {
        // SAFETY: all threads have ended, including the destructors of their thread-local storage;
        // all items were freed, and all calls of registered callbacks have ended.
        unsafe { shared.free() };
    }
    Ok(over)
}

/// Starts a thread for each seat and waits for all of them.
fn work(world: &'static World, seed: u64) -> io::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let mut start = |seat| {
        let rng = rng.fork();
        thread::Builder::new().spawn(move || Actor::new(world, seat, rng).run())
    };
    let all: Vec<io::Result<JoinHandle<()>>> = (0..world.seats.len()).map(&mut start).collect();
    let mut done = Ok(());
    for thread in all {
        match thread.map(JoinHandle::join) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => world.report(Err(Found::Wrong("a thread panicked".into()))),
            Err(e) => {
                world.stop();
                done = Err(e);
            }
        }
    }
    done
}

/// Waits until the phase's threads have ended. Returns a finding if a thread hangs.
fn watch(
    world: &World,
    all: &JoinHandle<io::Result<()>>,
    is_over: &mut dyn FnMut() -> bool,
) -> Option<Found> {
    let mut seen = vec![(0, 0); world.seats.len()];
    while !all.is_finished() {
        thread::sleep(LOOK);
        if is_over() {
            world.stop();
        }
        for (seat, (progress, looks)) in world.seats.iter().zip(&mut seen) {
            let now = seat.progress.load(Relaxed);
            *looks = if now == *progress { *looks + 1 } else { 0 };
            *progress = now;
        }
        if let Some(at) = seen.iter().position(|&(_, looks)| looks > PATIENCE) {
            let operation = world.names[(seen[at].0 & 0xff) as usize];
            return Some(Found::Stuck { thread: format!("{:?}", world.seats[at].role), operation });
        }
    }
    None
}
