//! The Pareto front: policies that no other policy beats in every respect.

use pageyard_lab::result::is_named;

use crate::cell::{CellResult, Work};

/// What policies are judged by. Lower is better for all of them.
pub const OBJECTIVES: [&str; 4] = ["zone lock", "idle pages", "fragmentation", "latency"];

/// One policy on one input and machine, over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The policy with its settings.
    pub policy: String,
    /// Means of the objectives; `None` where the input does not have one.
    pub values: [Option<f64>; OBJECTIVES.len()],
    /// Whether no other policy is at least as good in every objective and better in one.
    pub on_front: bool,
}

/// The policies on one input and machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// The input.
    pub input: String,
    /// The simulated machine; empty without one.
    pub machine: String,
    /// The unit of each objective here.
    pub units: [&'static str; OBJECTIVES.len()],
    /// The policies, in the plan's order.
    pub points: Vec<Point>,
}

/// Returns the metric that stands for each objective, and its unit. A trace without a machine has no
/// times: holds of the zone lock stand for their share.
fn metrics(work: &Work) -> [(&'static str, &'static str); OBJECTIVES.len()] {
    let unusable = ("unusable_9", "1/1000");
    match work {
        Work::Replay { on: None, .. } => {
            [("lock_holds", "holds"), ("idle_mean", "pages"), unusable, ("", "")]
        }
        Work::Replay { on: Some(_), .. } => [
            ("price.held_percent", "%"),
            ("idle_mean", "pages"),
            unusable,
            ("price.operation_ns", "ns"),
        ],
        Work::Run { .. } => {
            [("zone_lock", "%"), ("peak_pcp", "pages"), ("", ""), ("request_p999", "us")]
        }
    }
}

/// A policy, and its cells on one input and machine, one per seed.
type Seeds<'r> = (&'r str, Vec<&'r CellResult>);

/// Computes the front of every input and machine.
pub fn fronts(results: &[CellResult]) -> Vec<Front> {
    // Each work in the plan's order; works with one label but other parameters stay apart.
    let mut groups: Vec<(&Work, Vec<Seeds<'_>>)> = Vec::new();
    for result in results {
        let of = &result.cell;
        let at = groups.iter().position(|g| *g.0 == of.work).unwrap_or_else(|| {
            groups.push((&of.work, Vec::new()));
            groups.len() - 1
        });
        let policies = &mut groups[at].1;
        match policies.iter_mut().find(|p| p.0 == of.policy) {
            Some((_, cells)) => cells.push(result),
            None => policies.push((&of.policy, vec![result])),
        }
    }
    groups.into_iter().map(|(work, policies)| front(work, &policies)).collect()
}

fn front(work: &Work, policies: &[Seeds<'_>]) -> Front {
    let metrics = metrics(work);
    let point = |(policy, cells): &Seeds<'_>| {
        let mean = |(name, _): (&str, &str)| {
            let all = cells.iter().flat_map(|c| &c.values);
            let of = all.filter(|v| !name.is_empty() && is_named(&v.metric, name));
            let found: Vec<f64> = of.filter_map(|v| v.value).collect();
            (!found.is_empty()).then(|| found.iter().sum::<f64>() / found.len() as f64)
        };
        Point { policy: (*policy).to_owned(), values: metrics.map(mean), on_front: true }
    };
    let mut points: Vec<Point> = policies.iter().map(point).collect();
    let is_best = |point: &Point| !points.iter().any(|other| dominates(other, point));
    let best: Vec<bool> = points.iter().map(is_best).collect();
    points.iter_mut().zip(best).for_each(|(point, best)| point.on_front = best);
    let cell = &policies[0].1[0].cell;
    let units = metrics.map(|(_, unit)| unit);
    Front { input: cell.input(), machine: cell.machine().to_owned(), units, points }
}

/// Whether a policy is at least as good in every objective that both have, and better in one. A
/// policy that lacks an objective of the other cannot beat it.
fn dominates(one: &Point, other: &Point) -> bool {
    let pairs = || one.values.iter().zip(&other.values);
    let no_worse = pairs().all(|(a, b)| match (a, b) {
        (Some(a), Some(b)) => a <= b,
        (None, Some(_)) => false,
        (_, None) => true,
    });
    no_worse && pairs().any(|(a, b)| matches!((a, b), (Some(a), Some(b)) if a < b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(values: [Option<f64>; 4]) -> Point {
        Point { policy: String::new(), values, on_front: true }
    }

    #[test]
    fn a_policy_beats_another_only_in_all_objectives() {
        let p = |a: f64, b: f64| point([Some(a), Some(b), None, None]);
        assert!(dominates(&p(1.0, 1.0), &p(1.0, 2.0)));
        assert!(!dominates(&p(1.0, 1.0), &p(1.0, 1.0)), "equal");
        assert!(!dominates(&p(0.0, 2.0), &p(1.0, 1.0)), "a trade");
        let lacks = point([Some(0.0), None, None, None]);
        assert!(!dominates(&lacks, &p(1.0, 1.0)), "not measured is not better");
    }

    #[test]
    fn points_of_a_workload_have_the_metrics_name() {
        assert!(is_named("zone_lock", "zone_lock") && is_named("zone_lock-63", "zone_lock"));
        assert!(!is_named("zone_locked", "zone_lock") && !is_named("zone", "zone_lock"));
    }
}
