//! A series of runs, the same in every world. Each iteration runs all policies in turn, so that a
//! disturbance affects all of them, or several runs at once where they do not disturb each other. Each
//! iteration has its own seed, which all policies share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use super::actor::{Measure, Plan};
use super::error::WorkloadError;
use super::params::Params;
use super::recipe::{Recipe, Site};
use crate::policies::Choice;
use crate::result::{Metric, RunResult, SharedLines, World};
use crate::track::{Bounds, Track, keep_common};

/// What to run, how often, and where.
pub(super) struct Series<'s> {
    pub(super) recipe: &'s Recipe,
    pub(super) policies: &'s [Choice],
    pub(super) seed: u64,
    pub(super) iterations: u32,
    pub(super) set: &'s [(String, String)],
    pub(super) site: &'s Site,
    pub(super) world: World,
    /// Properties of the world that the world's name does not include and that are needed to repeat
    /// a run.
    pub(super) of_world: Vec<(&'static str, String)>,
}

/// One run of the series.
pub(super) struct Turn<'t> {
    pub(super) policy: &'t Choice,
    pub(super) plan: &'t dyn Plan,
    pub(super) seed: u64,
    /// Whether this is the first iteration.
    pub(super) first: bool,
    /// Number of points of the workload.
    pub(super) points: usize,
}

/// The measurements of a run.
pub(super) struct Done {
    pub(super) measures: Vec<Measure>,
    /// What CPUs waited for shared lines, if those are priced.
    pub(super) lines: Option<SharedLines>,
    /// Its track, if one was requested.
    pub(super) track: Option<Track>,
}

impl Series<'_> {
    /// Checks the parameters and the policies' settings.
    ///
    /// # Errors
    /// Fails with an invalid parameter, or with a setting of what the workload itself sets.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        self.order().map(drop)
    }

    /// Runs the whole series in order; `one` executes a single run. `progress` receives the number of
    /// completed runs and the total.
    ///
    /// # Errors
    /// Fails with an invalid parameter, before anything runs, or with the error of a run.
    pub(super) fn run(
        self,
        progress: &mut dyn FnMut(u64, u64),
        one: &mut dyn FnMut(Turn<'_>) -> Result<Done, WorkloadError>,
    ) -> Result<Vec<RunResult>, WorkloadError> {
        let order = self.order()?;
        self.in_turn(&order, progress, one)
    }

    fn in_turn(
        &self,
        order: &Order,
        progress: &mut dyn FnMut(u64, u64),
        one: &mut dyn FnMut(Turn<'_>) -> Result<Done, WorkloadError>,
    ) -> Result<Vec<RunResult>, WorkloadError> {
        let all = order.runs.len() as u64;
        progress(0, all);
        let mut found = Vec::new();
        for &slot in &order.runs {
            found.push(self.one(order, slot, one)?);
            progress(found.len() as u64, all);
        }
        Ok(self.results(order, found))
    }

    /// Like [`run`](Series::run), on up to `threads` threads. `worker` is called on each of them and
    /// returns what executes its runs. The results are the same for any number of threads; so is the
    /// error, that of the first run that fails.
    ///
    /// # Errors
    /// Fails like [`run`](Series::run).
    pub(super) fn run_on<W>(
        self,
        threads: usize,
        progress: &mut dyn FnMut(u64, u64),
        worker: &(dyn Fn() -> W + Sync),
    ) -> Result<Vec<RunResult>, WorkloadError>
    where
        W: FnMut(Turn<'_>) -> Result<Done, WorkloadError>,
    {
        let order = self.order()?;
        let all = order.runs.len();
        let threads = threads.min(all);
        if threads < 2 {
            return self.in_turn(&order, progress, &mut worker());
        }
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (finished, news) = mpsc::channel();
        let work = |finished: mpsc::Sender<_>| {
            let mut one = worker();
            let _alarm = Alarm(&failed);
            while !failed.load(Relaxed)
                && let at = next.fetch_add(1, Relaxed)
                && let Some(&slot) = order.runs.get(at)
            {
                let found = self.one(&order, slot, &mut one);
                failed.fetch_or(found.is_err(), Relaxed);
                // It is received: the receiver outlives this thread.
                let _ = finished.send((at, found));
            }
        };
        let mut found: Vec<_> = (0..all).map(|_| None).collect();
        progress(0, all as u64);
        std::thread::scope(|scope| {
            let mut started = 0;
            for _ in 0..threads {
                let finished = finished.clone();
                let thread = std::thread::Builder::new();
                started += usize::from(thread.spawn_scoped(scope, || work(finished)).is_ok());
            }
            if started == 0 {
                work(finished.clone());
            }
            drop(finished);
            for (done, (at, run)) in (1..).zip(news) {
                found[at] = Some(run);
                progress(done, all as u64);
            }
        });
        // Runs begin in order, so those that were never begun come after the one that failed.
        let found = found.into_iter().flatten().collect::<Result<_, _>>()?;
        Ok(self.results(&order, found))
    }

    /// Lists the runs in order.
    fn order(&self) -> Result<Order, WorkloadError> {
        let params = Params::new(self.recipe.name, self.recipe.params, self.set)?;
        let plans = (self.recipe.plan)(&params, self.site)?;
        if plans.iter().any(|(_, plan)| plan.limits().is_some()) {
            // A policy's setting would replace what the point's name says.
            let given = self.policies.iter().find_map(|p| Some((p, p.settings.of_limits()?)));
            if let Some((policy, setting)) = given {
                return Err(WorkloadError::SetByWorkload {
                    workload: self.recipe.name,
                    policy: policy.name.clone(),
                    setting: setting.to_owned(),
                });
            }
        }
        let (points, policies) = (plans.len(), self.policies.len());
        let slot = |n: usize| Slot {
            iteration: (n / points / policies) as u32,
            policy: n / points % policies,
            point: n % points,
        };
        let all = self.iterations as usize * policies * points;
        Ok(Order { params, points, runs: (0..all).map(slot).collect() })
    }

    /// Executes a run. Its plan is a new one, since plans hold a run's state.
    fn one(
        &self,
        order: &Order,
        slot: Slot,
        one: &mut dyn FnMut(Turn<'_>) -> Result<Done, WorkloadError>,
    ) -> Result<Found, WorkloadError> {
        let mut plans = (self.recipe.plan)(&order.params, self.site)?;
        let (label, plan) = plans.swap_remove(slot.point);
        let turn = Turn {
            policy: &self.policies[slot.policy],
            plan: &*plan,
            seed: derived(self.seed, slot.iteration),
            first: slot.iteration == 0,
            points: order.points,
        };
        Ok(Found { label, done: one(turn)? })
    }

    /// Puts together what was found, in the order of the runs.
    fn results(&self, order: &Order, found: Vec<Found>) -> Vec<RunResult> {
        let mut parameters = order.params.values().clone();
        let of_world = self.of_world.iter().map(|(name, value)| ((*name).into(), value.clone()));
        parameters.extend(of_world);
        let result = |policy: &Choice| RunResult {
            workload: self.recipe.name.to_owned(),
            parameters: parameters.clone(),
            policy: policy.name.clone(),
            world: self.world.clone(),
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            metrics: Vec::new(),
            lines: None,
            tracks: Vec::new(),
        };
        let mut results: Vec<RunResult> = self.policies.iter().map(result).collect();
        for (slot, Found { label, done }) in order.runs.iter().zip(found) {
            let result = &mut results[slot.policy];
            let largest = |lines: Option<&SharedLines>| lines.map_or(-1.0, SharedLines::largest);
            if largest(done.lines.as_ref()) > largest(result.lines.as_ref()) {
                result.lines = done.lines;
            }
            let samples = done.measures.into_iter().map(|m| labelled(m, &label)).collect();
            add(&mut result.metrics, samples);
            result.tracks.extend(done.track.map(|track| Track { point: label, ..track }));
        }
        // All policies keep the same lists.
        let tracks = results.iter().map(|r| r.tracks.len()).min().unwrap_or(0);
        let limit = Bounds::shared_by(order.points).lists();
        for i in 0..tracks {
            let mut same: Vec<&mut Track> = results.iter_mut().map(|r| &mut r.tracks[i]).collect();
            keep_common(&mut same, limit);
        }
        results
    }
}

/// Ends the series after a panic: the other threads begin no further run.
struct Alarm<'f>(&'f AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.0.fetch_or(std::thread::panicking(), Relaxed);
    }
}

/// The runs of a series.
struct Order {
    params: Params,
    /// Number of points of the workload.
    points: usize,
    runs: Vec<Slot>,
}

/// Which run.
#[derive(Clone, Copy)]
struct Slot {
    iteration: u32,
    policy: usize,
    point: usize,
}

/// What a run found, and the label of its point.
struct Found {
    label: String,
    done: Done,
}

fn labelled(mut measure: Measure, label: &str) -> Measure {
    if !label.is_empty() {
        measure.name = format!("{}-{label}", measure.name);
    }
    measure
}

/// Returns the seed of one iteration.
fn derived(seed: u64, iteration: u32) -> u64 {
    crate::rng::Rng::new(seed ^ u64::from(iteration) << 32).next()
}

/// Adds one sample to each metric.
fn add(metrics: &mut Vec<Metric>, samples: Vec<Measure>) {
    for Measure { name, unit, better, value } in samples {
        match metrics.iter_mut().find(|m| m.name == name) {
            Some(m) => m.samples.push(value),
            None => {
                metrics.push(Metric { name, unit: unit.to_owned(), better, samples: vec![value] });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use pageyard_machine::MachineSpec;

    use super::*;
    use crate::replay::columns;
    use crate::result::Better;

    /// The results of a series, and its progress.
    type Ended = (Result<Vec<RunResult>, WorkloadError>, Vec<(u64, u64)>);

    /// Runs a series of 4 policies, 3 iterations and 2 points.
    fn series(
        threads: usize,
        one: impl Fn(&Turn<'_>) -> Result<(), WorkloadError> + Sync,
    ) -> Ended {
        let site = Site::new(&MachineSpec::shipped("desktop").unwrap(), None);
        let policies = columns("Base,Step5,Linux612,Packed").unwrap();
        let series = Series {
            recipe: &super::super::by_name("page_fault1").unwrap(),
            policies: &policies,
            seed: 1,
            iterations: 3,
            set: &[("processes".into(), "1,2".into())],
            site: &site,
            world: World::Simulated("desktop".into()),
            of_world: Vec::new(),
        };
        let worker = || {
            |turn: Turn<'_>| {
                one(&turn)?;
                let value = Some(turn.seed as f64 + turn.policy.name.len() as f64);
                let measure = Measure { name: "m".into(), unit: "", better: Better::Lower, value };
                Ok(Done { measures: vec![measure], lines: None, track: None })
            }
        };
        let mut told = Vec::new();
        (series.run_on(threads, &mut |at, all| told.push((at, all)), &worker), told)
    }

    #[test]
    fn results_are_the_same_on_any_number_of_threads() {
        let (alone, told) = series(1, |_| Ok(()));
        let alone = alone.unwrap();
        assert_eq!(told, (0..=24).map(|n| (n, 24)).collect::<Vec<_>>());
        assert!(alone.iter().all(|r| r.metrics.len() == 2 && r.metrics[1].samples.len() == 3));
        for threads in [2, 5, 100] {
            let (found, progress) = series(threads, |_| Ok(()));
            assert_eq!((found.unwrap(), progress), (alone.clone(), told.clone()), "{threads}");
        }
    }

    /// Of several runs that fail, the first in order is reported, though a later one fails sooner.
    #[test]
    fn the_first_run_that_fails_ends_the_series() {
        let fails = |turn: &Turn<'_>| {
            let missing = match turn.policy.name.as_str() {
                "Linux612" => 1,
                "Packed" => 2,
                _ => return Ok(()),
            };
            std::thread::sleep(Duration::from_millis(if missing == 1 { 50 } else { 0 }));
            Err(WorkloadError::Leak { missing, in_use: 0 })
        };
        for threads in [1, 8] {
            let (found, told) = series(threads, fails);
            assert!(matches!(found, Err(WorkloadError::Leak { missing: 1, .. })), "{found:?}");
            assert!(told.len() < 24, "it goes on after an error: {told:?}");
        }
    }

    #[test]
    fn a_panic_ends_the_series() {
        /// Says that its thread unwinds.
        struct Unwound<'u>(&'u AtomicBool);
        impl Drop for Unwound<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let (begun, unwound) = (AtomicU64::new(0), AtomicBool::new(false));
        let panics = |_: &Turn<'_>| {
            match begun.fetch_add(1, Relaxed) {
                0 | 1 => {}
                2 => {
                    let _unwound = Unwound(&unwound);
                    resume_unwind(Box::new("the third run"));
                }
                _ => {
                    while !unwound.load(Relaxed) {
                        std::thread::yield_now();
                    }
                    // The panic reaches the thread's end meanwhile.
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            Ok(())
        };
        assert!(catch_unwind(AssertUnwindSafe(|| series(2, panics))).is_err());
        assert!(begun.into_inner() < 24, "it goes on after a panic");
    }
}
