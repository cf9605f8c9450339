//! Runs a workload on a simulated machine, for an experiment.

use pageyard::tuning::Limits;
use pageyard_machine::costs::TABLE;
use pageyard_machine::{Costs, MachineSpec, Stop};

use super::agree::{Column, Kind};
use super::error::ReproduceError;
use super::experiment::Run;
use super::outcome::{Comparison, SIDES};
use crate::replay;
use crate::result::{Metric, RunResult};
use crate::workload;

/// Size of a frame descriptor in bytes on the machines that the seeds measured.
const DESCRIPTOR: u32 = 64;

/// What to run.
#[derive(Clone, Copy, Default)]
pub(super) struct Simulated<'s> {
    pub(super) workload: &'s str,
    /// The name of a shipped machine.
    pub(super) machine: &'s str,
    /// Memory in GiB, if different from the machine's own.
    pub(super) gib: Option<u64>,
    pub(super) policies: &'s [&'s str],
    /// Parameters that differ from their defaults.
    pub(super) set: &'s [(&'s str, &'s str)],
    /// Share of memory that has been in use before, in percent.
    pub(super) age: u8,
    /// Whether to price the kernel's instructions, as the published figures do.
    pub(super) linux: bool,
    /// Limits of the per-CPU lists, if different from those derived from the zones.
    pub(super) limits: Option<Limits>,
}

/// The results, one per policy.
pub(super) struct Found {
    pub(super) results: Vec<RunResult>,
    pub(super) world: String,
    pub(super) command: String,
}

impl Simulated<'_> {
    pub(super) fn run(&self, run: &mut Run<'_>, what: &str) -> Result<Found, ReproduceError> {
        let options = workload::Options {
            machine: MachineSpec::shipped(self.machine)?,
            memory: self.gib.map(|n| n << 30),
            descriptor: DESCRIPTOR,
            age: self.age,
            policies: replay::columns(&self.policies.join(","))?,
            seed: run.options.seed,
            iterations: run.options.iterations,
            set: self.set.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect(),
            costs: self.costs(&run.options.costs),
            limits: self.limits,
            jobs: run.options.jobs,
            stop: Stop::default(),
        };
        let recipe = workload::by_name(self.workload)?;
        let results = workload::run(&recipe, &options, &mut |at, all| run.progress(what, at, all))?;
        let mut world = format!("simulated {}, seed {}", self.machine, run.options.seed);
        if self.age != 0 {
            world += &format!(", {}% of memory used before", self.age);
        }
        if self.linux {
            world += ", at the cost of the kernel's instructions";
        }
        Ok(Found { results, world, command: self.command(run) })
    }

    /// Returns the costs, where the run's options give these.
    fn costs(&self, given: &Costs) -> Costs {
        // A single change is that of an analysis of one cost at a time: it holds in proportion.
        let changed = given.changed();
        if !self.linux || changed.len() > 1 {
            return given.clone();
        }
        let mut costs = Costs::LINUX;
        for row in TABLE.iter().filter(|row| changed.iter().any(|c| c.0 == row.name)) {
            let (linux, value) = ((row.get)(&costs), (row.get)(given));
            (row.set)(&mut costs, linux * value / row.default.max(1));
        }
        costs
    }

    /// Returns the command line that repeats the run, or an empty string if there is none.
    fn command(&self, run: &Run<'_>) -> String {
        // The command line has no option for limits.
        if self.limits.is_some() {
            return String::new();
        }
        let mut command = format!("pageyard run {} --on machine:{}", self.workload, self.machine);
        if let Some(gib) = self.gib {
            command += &format!(" --memory {gib}G");
        }
        command += &format!(" --descriptor {DESCRIPTOR} --policy '{}'", self.policies.join(","));
        if self.age != 0 {
            command += &format!(" --age {}", self.age);
        }
        if self.costs(&run.options.costs) == Costs::LINUX {
            command += " --cost linux";
        }
        for (name, value) in self.set {
            command += &format!(" --set {name}={value}");
        }
        let n = run.options.iterations;
        command + &format!(" --seed {} --iterations {n}", run.options.seed)
    }
}

impl Found {
    /// Returns the mean of a metric under each policy.
    pub(super) fn means(&self, metric: &str) -> Vec<Option<f64>> {
        let mean = |r: &RunResult| r.metrics.iter().find(|m| m.name == metric)?.mean();
        self.results.iter().map(mean).collect()
    }

    /// Returns the sum of two metrics' means; one that was not measured is zero.
    pub(super) fn sum(&self, first: &str, second: &str) -> Vec<Option<f64>> {
        let more = self.means(second);
        self.means(first).iter().zip(more).map(|(a, b)| Some((*a)? + b.unwrap_or(0.0))).collect()
    }

    /// Returns the mean of a metric multiplied by the `rate` of the same run: a value per fixed amount
    /// of work becomes one per second, as it would be counted in a fixed time.
    pub(super) fn per_second(&self, metric: &str) -> Vec<Option<f64>> {
        let mean = |r: &RunResult| {
            let named = |name| r.metrics.iter().find(|m| m.name == name);
            let (counted, rate) = (named(metric)?, named("rate")?);
            let samples = counted.samples.iter().zip(&rate.samples);
            let samples = samples.map(|(counted, rate)| Some((*counted)? * (*rate)?)).collect();
            Metric { samples, ..counted.clone() }.mean()
        };
        self.results.iter().map(mean).collect()
    }

    /// Builds a column of one metric's means.
    pub(super) fn column(
        &self,
        name: &str,
        unit: &'static str,
        kind: Kind,
        metric: &str,
        seed: &[Option<f64>],
    ) -> Column {
        Column::new(name, unit, kind, seed, &self.means(metric))
    }

    /// Builds a table of the published figures and these.
    pub(super) fn compare(
        &self,
        title: impl Into<String>,
        rows: impl IntoIterator<Item = impl ToString>,
        columns: Vec<Column>,
    ) -> Comparison {
        Comparison {
            title: title.into(),
            world: self.world.clone(),
            command: self.command.clone(),
            sides: SIDES,
            rows: rows.into_iter().map(|row| row.to_string()).collect(),
            columns,
        }
    }
}

#[cfg(test)]
impl Found {
    /// Returns a result whose policies measured these metrics, one sample each iteration.
    pub(super) fn of(policies: &[&[(&str, &[f64])]]) -> Found {
        use crate::result::{Better, World};

        let metric = |&(name, samples): &(&str, &[f64])| Metric {
            name: name.into(),
            unit: String::new(),
            better: Better::Lower,
            samples: samples.iter().copied().map(Some).collect(),
        };
        let result = |metrics: &&[(&str, &[f64])]| RunResult {
            workload: String::new(),
            parameters: std::collections::BTreeMap::new(),
            policy: String::new(),
            world: World::Simulated(String::new()),
            seed: 1,
            version: String::new(),
            metrics: metrics.iter().map(metric).collect(),
            lines: None,
            tracks: Vec::new(),
        };
        let results = policies.iter().map(result).collect();
        Found { results, world: String::new(), command: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 drains at a rate of 1, then 20 at a rate of 3.
    #[test]
    fn rates_per_second_are_of_each_iteration() {
        let found = Found::of(&[&[("rate", &[1.0, 3.0]), ("free_high", &[10.0, 20.0])]]);
        assert_eq!(found.per_second("free_high"), [Some(35.0)]);
        assert_eq!(found.per_second("drains"), [None]);
    }

    /// One changed cost keeps its factor at the kernel's cost; a whole cost model is taken as it is.
    #[test]
    fn the_kernels_costs_change_in_proportion() {
        let build = Simulated { linux: true, ..Simulated::default() };
        assert_eq!(build.costs(&Costs::DEFAULT), Costs::LINUX);
        assert_eq!(build.costs(&Costs::LINUX), Costs::LINUX);
        let changed =
            |of: &Costs, factor: u64| Costs { zone_free: of.zone_free * factor, ..of.clone() };
        assert_eq!(build.costs(&changed(&Costs::DEFAULT, 2)), changed(&Costs::LINUX, 2));
        assert_eq!(build.costs(&changed(&Costs::LINUX, 2)), changed(&Costs::LINUX, 2));
        assert_eq!(Simulated::default().costs(&Costs::DEFAULT), Costs::DEFAULT);
    }
}
