//! A series of runs, the same in every world. Each iteration runs all policies in turn, so that a
//! disturbance affects all of them. Each iteration has its own seed, which all policies share.

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
    /// Checks the parameters.
    ///
    /// # Errors
    /// Fails with an invalid parameter.
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        self.params().and_then(|params| (self.recipe.plan)(&params, self.site)).map(drop)
    }

    fn params(&self) -> Result<Params, WorkloadError> {
        Params::new(self.recipe.name, self.recipe.params, self.set)
    }

    /// Runs the whole series; `one` executes a single run. `progress` receives the number of
    /// completed runs and the total.
    ///
    /// # Errors
    /// Fails with an invalid parameter, before anything runs, or with the error of a run.
    pub(super) fn run(
        self,
        progress: &mut dyn FnMut(u64, u64),
        one: &mut dyn FnMut(Turn<'_>) -> Result<Done, WorkloadError>,
    ) -> Result<Vec<RunResult>, WorkloadError> {
        let params = self.params()?;
        let Series { recipe, policies, site, .. } = self;
        let points = (recipe.plan)(&params, site)?.len();
        let all = points as u64 * u64::from(self.iterations) * policies.len() as u64;
        let mut parameters = params.values().clone();
        parameters.extend(self.of_world.into_iter().map(|(name, value)| (name.into(), value)));
        let result = |policy: &Choice| RunResult {
            workload: recipe.name.to_owned(),
            parameters: parameters.clone(),
            policy: policy.name.clone(),
            world: self.world.clone(),
            seed: self.seed,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            metrics: Vec::new(),
            lines: None,
            tracks: Vec::new(),
        };
        let mut results: Vec<RunResult> = policies.iter().map(result).collect();
        let mut done = 0;
        progress(0, all);
        for iteration in 0..self.iterations {
            let seed = derived(self.seed, iteration);
            for (policy, result) in policies.iter().zip(&mut results) {
                let mut samples = Vec::new();
                // Create new plans for each run, since they hold a run's state.
                for (label, plan) in (recipe.plan)(&params, site)? {
                    let first = iteration == 0;
                    let turn = Turn { policy, plan: &*plan, seed, first, points };
                    let Done { measures, lines, track } = one(turn)?;
                    if lines.as_ref().map_or(-1.0, SharedLines::largest)
                        > result.lines.as_ref().map_or(-1.0, SharedLines::largest)
                    {
                        result.lines = lines;
                    }
                    samples.extend(measures.into_iter().map(|m| labelled(m, &label)));
                    result.tracks.extend(track.map(|track| Track { point: label, ..track }));
                    done += 1;
                    progress(done, all);
                }
                add(&mut result.metrics, samples);
            }
        }
        // All policies keep the same lists.
        let tracks = results.iter().map(|r| r.tracks.len()).min().unwrap_or(0);
        let limit = Bounds::shared_by(points).lists();
        for i in 0..tracks {
            let mut same: Vec<&mut Track> = results.iter_mut().map(|r| &mut r.tracks[i]).collect();
            keep_common(&mut same, limit);
        }
        Ok(results)
    }
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
