//! What goes on around the threads: time, settings, limits, memory that comes and goes, and the
//! moments in which everybody stands still.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Mutex, RwLock};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pageyard::{PAGE_SIZE, Pfn, SECTION_PAGES};
use pageyard_host::{Builder, GiveBack, HostYard, Limits};

use crate::cache::{Cache, lock};
use crate::counts::{Counts, Report, Tally, add};
use crate::crew::Crew;
use crate::held::Found;
use crate::settings::SETTINGS;
use crate::shared::Shared;
use crate::thread::Mail;
use crate::{Plan, SoakError};

/// Tenths of a second of a round, and from when on everybody gives back only.
const ROUND: u64 = 50;
const REST: u64 = 40;
/// Pages whose memory is faulty at a time.
const MOST_FAULTY: usize = 8;

/// What the keeper does from time to time.
struct Keeper<'s> {
    shared: &'s Shared,
    rng: Rng,
    pages: u64,
    first: Pfn,
    /// Sections that are out.
    out: Vec<u64>,
    /// Pages whose memory is said to be faulty.
    faulty: Vec<Pfn>,
}

impl Keeper<'_> {
    fn change_settings(&mut self) {
        let (name, values) = SETTINGS[self.rng.usize(..SETTINGS.len())];
        let value = values[self.rng.usize(..values.len())];
        let done = self.shared.yard.set_knob(name, value);
        if let Err(e) = done {
            self.shared.report(Found::Invalid(format!("{name} cannot be set to {value}: {e}")));
        }
        add(&self.shared.tally.settings, 1);
    }

    fn change_limits(&mut self) {
        let hard = self.rng.bool().then(|| self.rng.u64(self.pages / 3..=self.pages));
        let soft = self.rng.bool().then(|| hard.unwrap_or(self.pages) / 2);
        // What is too small for this yard is refused.
        if self.shared.yard.set_limits(Limits { hard, soft }).is_ok() {
            add(&self.shared.tally.limits, 1);
        }
    }

    /// A section goes, or comes back.
    fn change_memory(&mut self) {
        let Shared { yard, tally, .. } = self.shared;
        let sections = self.pages / SECTION_PAGES;
        let range = |n: u64| {
            let start = Pfn(self.first.0 + n * SECTION_PAGES);
            start..Pfn(start.0 + SECTION_PAGES)
        };
        if !self.out.is_empty() && self.rng.bool() {
            let n = self.out.swap_remove(self.rng.usize(..self.out.len()));
            if let Err(e) = yard.online(range(n)) {
                self.shared.report(Found::Invalid(format!("a section does not come back: {e}")));
            }
        } else if (self.out.len() as u64) < sections / 2 {
            let n = self.rng.u64(..sections);
            if self.out.contains(&n) {
                return;
            }
            if yard.offline(range(n)).is_ok() {
                self.out.push(n);
                add(&tally.sections, 1);
            } else {
                add(&tally.sections_kept, 1);
            }
        }
    }

    /// The memory of a page becomes faulty, or is good again.
    fn change_faults(&mut self) {
        let Shared { yard, tally, .. } = self.shared;
        if self.faulty.len() < MOST_FAULTY && self.rng.bool() {
            let pfn = Pfn(self.first.0 + self.rng.u64(..self.pages));
            // It may be out with its section.
            if yard.poison_frame(pfn).is_ok() {
                self.faulty.push(pfn);
                add(&tally.faulty, 1);
            }
        } else if let Some(pfn) = self.faulty.pop() {
            self.mend(pfn);
        }
    }

    fn mend(&self, pfn: Pfn) {
        let out = self.out.contains(&((pfn.0 - self.first.0) / SECTION_PAGES));
        match self.shared.yard.unpoison_frame(pfn) {
            Err(e) if !out => {
                self.shared.report(Found::Invalid(format!("{pfn} stays faulty: {e}")))
            }
            _ => {}
        }
    }

    fn change_appetite(&mut self, threads: usize) {
        // From nothing to half more than there is.
        let part = self.rng.u64(0..=150);
        self.shared.appetite.store(self.pages * part / 100 / threads as u64, Relaxed);
    }

    /// Everybody stands still, and everything must be as it must be.
    fn validate(&self, crew: &mut Crew<'_>) {
        let shared = self.shared;
        let _still = shared.stop_all();
        crew.join_ended();
        let fail = |found| shared.report(found);
        if let Some(found) = shared.cache.wrong() {
            fail(found);
        }
        if let Err(e) = shared.yard.validate() {
            fail(Found::Invalid(e.to_string()));
        }
        let used = shared.yard.status().used - shared.yard.out_of_use();
        let held = shared.hands.pages();
        let front = shared.yard.front_stats().pages;
        if used != held + front {
            fail(Found::Count { used, held, front });
        }
        add(&shared.tally.validated, 1);
    }

    fn counts(&self) -> Counts {
        self.shared.tally.counts(&self.shared.yard.status())
    }
}

/// Runs it. `tell` hears of it about ten times a second.
///
/// The yard stays mapped until the process ends: who holds blocks for its shrinkers is part of it.
///
/// # Errors
/// [`SoakError`]. What is found is no error, but in the report.
pub fn soak(plan: &Plan, tell: &mut dyn FnMut(&Counts)) -> Result<Report, SoakError> {
    if !(1..=1024).contains(&plan.threads) {
        return Err(SoakError::Threads(plan.threads));
    }
    let how = GiveBack { after: Duration::from_millis(100), ..GiveBack::default() };
    // Validation looks while the worker stands still too: it is ours.
    let yard: HostYard = Builder::new(plan.size).tick(None).give_back(Some(how)).build()?;
    let yard: &'static HostYard = Box::leak(Box::new(yard));
    let cache: &'static Cache = Box::leak(Box::default());
    let shared = Shared {
        yard,
        hands: Box::leak(Box::default()),
        tally: Tally::default(),
        cache,
        still: RwLock::default(),
        over: AtomicBool::new(false),
        appetite: AtomicU64::new(0),
        plant: Mutex::new(plan.plant),
        found: Mutex::new(None),
    };
    let registered = yard.register_shrinker(cache);
    let start = Instant::now();
    let mut keeper = Keeper {
        shared: &shared,
        rng: Rng::with_seed(plan.seed),
        pages: plan.size.div_ceil(PAGE_SIZE),
        first: pageyard_host::Region::FIRST,
        out: Vec::new(),
        faulty: Vec::new(),
    };
    thread::scope(|s| {
        let done = keep(s, plan, &mut keeper, start, tell);
        shared.over.store(true, SeqCst);
        done
    })?;
    // What nobody wants any more is free again, all of it.
    drop(registered);
    if let Err(found) = cache.clear() {
        shared.report(found);
    }
    yard.drain();
    keeper.validate(&mut Crew::new([]));
    Ok(Report {
        seed: plan.seed,
        threads: plan.threads,
        size: plan.size,
        seconds: start.elapsed().as_secs_f64(),
        counts: keeper.counts(),
        found: lock(&shared.found).take(),
    })
}

/// The run itself, until its time is over or something was found.
fn keep<'scope, 's: 'scope>(
    s: &'scope Scope<'scope, '_>,
    plan: &Plan,
    keeper: &mut Keeper<'s>,
    start: Instant,
    tell: &mut dyn FnMut(&Counts),
) -> Result<(), SoakError> {
    let shared = keeper.shared;
    keeper.change_appetite(plan.threads);
    // Each sends to the next.
    let (mut ends, starts): (Vec<_>, Vec<_>) = (0..plan.threads).map(|_| channel()).unzip();
    ends.rotate_left(1);
    let mails = ends.into_iter().zip(starts).map(|(to, from)| Mail { to, from });
    let mut crew = Crew::new(mails);
    crew.fill(s, shared, &mut keeper.rng)?;
    thread::Builder::new().spawn_scoped(s, || upkeep(shared))?;

    let mut next = Instant::now();
    for tenth in 1u64.. {
        next += Duration::from_millis(100);
        thread::sleep(next.saturating_duration_since(Instant::now()));
        tell(&keeper.counts());
        if shared.is_over() || start.elapsed().as_secs() >= plan.seconds {
            break;
        }
        keeper.change_settings();
        match tenth % ROUND {
            REST..ROUND => shared.appetite.store(0, Relaxed),
            n if n % 7 == 0 => keeper.change_appetite(plan.threads),
            _ => {}
        }
        if tenth % 10 == 0 {
            keeper.validate(&mut crew);
        }
        if tenth % 13 == 0 {
            keeper.change_limits();
        }
        match tenth % ROUND {
            // A section with a faulty page stays.
            REST => keeper.faulty.split_off(0).into_iter().for_each(|pfn| keeper.mend(pfn)),
            n if n < REST && n % 2 == 0 => keeper.change_faults(),
            _ => {}
        }
        if tenth % ROUND == ROUND - 2 {
            // Nobody wants anything: now memory can go.
            if let Err(found) = shared.cache.clear() {
                shared.report(found);
            }
            (0..3).for_each(|_| keeper.change_memory());
        } else if tenth % 17 == 0 {
            keeper.change_memory();
        }
        if tenth % 31 == 0 {
            shared.yard.compact();
            add(&shared.tally.compactions, 1);
        }
        // Those that end are followed by others.
        crew.join_ended();
        crew.fill(s, shared, &mut keeper.rng)?;
    }
    Ok(())
}

/// The yard's worker, a step at a time, but never while everybody stands still.
fn upkeep(shared: &Shared) {
    let Some(mut worker) = shared.yard.worker() else { return };
    while !shared.is_over() {
        let pause = {
            let _in = shared.enter();
            worker.step()
        };
        thread::sleep(pause.min(Duration::from_millis(20)));
    }
}
