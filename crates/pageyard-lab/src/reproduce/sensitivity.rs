//! Measures which cost of the machine affects which result: runs an experiment repeatedly, each
//! time with one number of the cost model at half and at double its default.

use std::fmt;

use pageyard_machine::Costs;
use pageyard_machine::costs::{Cost, TABLE};
use serde::Serialize;

use super::error::ReproduceError;
use super::experiment::{Experiment, Options, Scale, Watch};
use super::{Report, run};

/// The effect of one cost on an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The cost's name.
    pub cost: &'static str,
    /// The effects at half and at double the default.
    pub factors: [Moved; 2],
}

/// How far results changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Moved {
    /// The largest relative change of a figure.
    pub most: f64,
    /// The figure with that change: table, column, row.
    pub figure: String,
    /// Columns whose agreement with the published direction differs from the default run.
    pub turned: Vec<String>,
}

/// All costs, those with the largest effect first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The experiment's name.
    pub experiment: &'static str,
    /// The seed.
    pub seed: u64,
    /// One row per cost.
    pub rows: Vec<Row>,
}

/// Runs a shortened experiment with every cost in turn halved and doubled.
///
/// # Errors
/// Fails like [`run`], and with [`ReproduceError::Unavailable`] for an experiment that is not
/// simulated.
pub fn sensitivity(
    experiment: &Experiment,
    options: &Options,
    watch: &mut dyn Watch,
) -> Result<Sensitivity, ReproduceError> {
    if !experiment.simulated {
        return Err(ReproduceError::Unavailable {
            experiment: experiment.name,
            why:
                "its figures are counted or calibrated here and do not depend on the costs of the \
                  simulated machine; run it without --sensitivity"
                    .into(),
        });
    }
    let all = 2 * TABLE.len() as u64 + 1;
    let mut done = 0;
    let mut with = |costs: Costs, watch: &mut dyn Watch| {
        let options = Options { scale: Scale::Small, costs, ..options.clone() };
        watch.progress(experiment.name, done, all);
        done += 1;
        run(experiment, &options, &mut ())
    };
    let default = with(options.costs.clone(), watch)?;
    let mut rows = Vec::new();
    for cost in TABLE {
        let mut factors = [Moved::default(), Moved::default()];
        for (i, moved) in factors.iter_mut().enumerate() {
            let mut costs = options.costs.clone();
            let values = half_and_double(cost, (cost.get)(&costs));
            (cost.set)(&mut costs, values[i]);
            *moved = Moved::between(&default, &with(costs, watch)?);
        }
        rows.push(Row { cost: cost.name, factors });
    }
    let most = |r: &Row| r.factors.iter().map(|m| m.most).fold(0.0, f64::max);
    rows.sort_by(|a, b| most(b).total_cmp(&most(a)));
    Ok(Sensitivity { experiment: experiment.name, seed: options.seed, rows })
}

/// Returns half and double a cost. Of a duration relative to that on an idle core, the excess is halved
/// and doubled. A cost of zero is set to a nanosecond instead of doubled.
fn half_and_double(cost: &Cost, value: u64) -> [u64; 2] {
    let least = if cost.unit == "1/1000" { 1000 } else { 0 };
    let excess = value.saturating_sub(least);
    [least + excess / 2, least + if excess == 0 { 1000 } else { excess * 2 }]
}

impl Moved {
    fn between(default: &Report, other: &Report) -> Moved {
        let mut moved = Moved::default();
        for (a, b) in default.outcome.tables.iter().zip(&other.outcome.tables) {
            for (x, y) in a.columns.iter().zip(&b.columns) {
                for ((row, was), is) in a.rows.iter().zip(&x.ours).zip(&y.ours) {
                    let (Some(was), Some(is)) = (was, is) else { continue };
                    let by = if was == is { 0.0 } else { (is / was - 1.0).abs() };
                    // A figure that was 0 has no relative change.
                    if by.is_finite() && by > moved.most {
                        moved.most = by;
                        moved.figure = format!("{}: {}, {row}", a.title, x.name);
                    }
                }
                let agrees = |c: &super::Column| c.agreement.direction.0 == c.agreement.direction.1;
                if agrees(x) != agrees(y) {
                    moved.turned.push(format!("{}: {}", a.title, x.name));
                }
            }
        }
        moved
    }
}

impl fmt::Display for Sensitivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: one cost at a time halved and doubled; simulated, shortened, seed {}",
            self.experiment, self.seed
        )?;
        writeln!(
            f,
            "{:18} {:>9} {:>9}  largest change; reversed directions",
            "cost", "half", "double"
        )?;
        for Row { cost, factors: [half, double] } in &self.rows {
            let most = if half.most > double.most { half } else { double };
            write!(f, "{cost:18} {:>8.1}% {:>8.1}%", 100.0 * half.most, 100.0 * double.most)?;
            if most.most > 0.0 {
                write!(f, "  {}", most.figure)?;
            }
            for turned in half.turned.iter().chain(&double.turned) {
                write!(f, "; turned: {turned}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_never_become_faster_than_on_an_idle_core() {
        let of = |name| {
            let cost = TABLE.iter().find(|cost| cost.name == name).unwrap();
            half_and_double(cost, cost.default)
        };
        assert_eq!(of("smt_work"), [1300, 2200]);
        assert_eq!(of("smt_spin"), [1025, 1100]);
        assert_eq!(of("lock"), [3000, 12_000]);
        let lock = TABLE.iter().find(|cost| cost.name == "lock").unwrap();
        assert_eq!(half_and_double(lock, 0), [0, 1000]);
    }
}
