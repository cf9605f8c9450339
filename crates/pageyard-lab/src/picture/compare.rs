//! Figures of results side by side: scaling curves, and samples with their intervals.

use std::collections::BTreeSet;

use super::axis::Axis;
use super::figure::{Body, Figure};
use super::plot::{Panel, Point, Series, Shape, Value};
use crate::result::RunResult;
use crate::stats::{median, median_interval};
use crate::table::{Row, Set};

/// A set of results, its table in Pageyard's own form, and its place in the page's data.
pub(super) struct Compared<'a> {
    pub(super) set: &'a Set,
    /// Place of the table if it is in Pageyard's own form; otherwise values have no place.
    pub(super) at: Option<String>,
    /// By column: its results and their place.
    pub(super) results: Vec<Vec<(String, &'a RunResult)>>,
}

pub(super) fn figures(c: &Compared<'_>) -> Vec<Figure> {
    let families = families(c.set);
    let mut all = vec![scaling(c, &families), dots(c, &families)];
    all.retain(|f| !f.is_empty());
    all
}

/// Groups metrics whose names end in `-N` by the part before it, in the order of the table. Groups
/// of one are left out.
fn families(set: &Set) -> Vec<(String, Vec<(f64, usize)>)> {
    let mut all: Vec<(String, Vec<(f64, usize)>)> = Vec::new();
    for (i, m) in set.metrics.iter().enumerate() {
        let Some((name, n)) = m.name.rsplit_once('-') else { continue };
        let Some(n) = n.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0) else { continue };
        match all.iter_mut().find(|f| f.0 == name) {
            Some(family) => family.1.push((n, i)),
            None => all.push((name.to_owned(), vec![(n, i)])),
        }
    }
    all.retain(|f| f.1.len() > 1);
    all.iter_mut().for_each(|f| f.1.sort_by(|a, b| a.0.total_cmp(&b.0)));
    all
}

impl Compared<'_> {
    /// Returns the median of a metric's samples in a column, and its interval.
    fn median(&self, metric: usize, column: usize) -> (Value, Option<[Value; 2]>) {
        let samples = &self.set.metrics[metric].samples[column];
        let at = |field: &str| match &self.at {
            Some(at) => format!("{at}/table/lines/{metric}/cells/{column}/{field}"),
            None => String::new(),
        };
        let interval = median_interval(samples).map(|i| {
            [Value::new(i.low, at("interval/low")), Value::new(i.high, at("interval/high"))]
        });
        (Value::new(median(samples), at("median")), interval)
    }

    /// Returns all samples of a metric in a column.
    fn samples(&self, metric: usize, column: usize) -> Vec<Value> {
        let name = &self.set.metrics[metric].name;
        let mut all = Vec::new();
        for (at, result) in &self.results[column] {
            for (m, metric) in result.metrics.iter().enumerate().filter(|(_, m)| m.name == *name) {
                let place = |i| format!("{at}/metrics/{m}/samples/{i}");
                let value = |(i, v): (usize, &Option<f64>)| Some(Value::new((*v)?, place(i)));
                all.extend(metric.samples.iter().enumerate().filter_map(value));
            }
        }
        all
    }
}

fn title(m: &Row, name: &str) -> String {
    let better = format!("{:?}", m.better).to_lowercase();
    let unit = if m.unit.is_empty() { String::new() } else { format!("{}, ", m.unit) };
    format!("{name} ({unit}{better} is better)")
}

fn scaling(c: &Compared<'_>, families: &[(String, Vec<(f64, usize)>)]) -> Figure {
    let panel = |(name, members): &(String, Vec<(f64, usize)>)| {
        let m = &c.set.metrics[members[0].1];
        // The parameter that lists these numbers names the axis.
        let listed = |v: &str| {
            let listed: Vec<f64> = v.split(',').filter_map(|n| n.trim().parse().ok()).collect();
            listed.len() == members.len() && members.iter().all(|p| listed.contains(&p.0))
        };
        let counted = c.set.parameters.iter().find(|p| listed(p.1)).map_or("point", |p| p.0);
        let x = Axis::counts(counted, members.iter().map(|m| m.0).collect());
        let all = members.iter().flat_map(|m| c.set.metrics[m.1].samples.iter().flatten());
        let y = Axis::linear(name, &m.unit, all.copied());
        let mut series = Vec::new();
        for (column, of) in c.set.columns.iter().enumerate() {
            let point = |&(n, metric): &(f64, usize)| {
                let (y, interval) = c.median(metric, column);
                Point { x: Value::plain(n), y, interval }
            };
            let has = |m: &&(f64, usize)| !c.set.metrics[m.1].samples[column].is_empty();
            let points = members.iter().filter(has).map(point).collect();
            series.push(Series::points(&of.name, column, Shape::Linked, points));
            let many = members.iter().filter(|m| c.set.metrics[m.1].samples[column].len() > 1);
            let samples: Vec<Point> = many
                .flat_map(|&(n, metric)| {
                    let samples = c.samples(metric, column).into_iter();
                    samples.map(move |y| Point { x: Value::plain(n), y, interval: None })
                })
                .collect();
            if !samples.is_empty() {
                series.push(Series::points(&of.name, column, Shape::Marks, samples));
            }
        }
        Panel::new(&title(m, name), x, y, series)
    };
    let panels = families.iter().map(panel).collect();
    let note = "Medians with 95 % intervals from six samples up; faint marks are the samples.";
    Figure::new("scaling", "Scaling", note, Body::Panels(panels))
}

fn dots(c: &Compared<'_>, families: &[(String, Vec<(f64, usize)>)]) -> Figure {
    let in_family: BTreeSet<usize> =
        families.iter().flat_map(|f| f.1.iter().map(|m| m.1)).collect();
    let names: Vec<&str> = c.set.columns.iter().map(|c| c.name.as_str()).collect();
    let panel = |metric: usize| {
        let m = &c.set.metrics[metric];
        let x = Axis::tight(&m.name, &m.unit, m.samples.iter().flatten().copied());
        let mut series = Vec::new();
        for (column, of) in c.set.columns.iter().enumerate() {
            if m.samples[column].is_empty() {
                continue;
            }
            let y = column as f64;
            let (median, interval) = c.median(metric, column);
            let middle = Point { x: median, y: Value::plain(y), interval };
            series.push(Series::points(&of.name, column, Shape::Ticks, vec![middle]));
            let samples = c.samples(metric, column).into_iter();
            let point = |x| Point { x, y: Value::plain(y), interval: None };
            series.push(Series::points(
                &of.name,
                column,
                Shape::Marks,
                samples.map(point).collect(),
            ));
        }
        let mut panel = Panel::new(&title(m, &m.name), x, Axis::rows("", &names), series);
        panel.height = 62.0 + 22.0 * names.len() as f64;
        panel
    };
    // The table already shows single samples and metrics that never differ.
    let several = |i: &usize| {
        let samples = &c.set.metrics[*i].samples;
        let mut all = samples.iter().flatten();
        let differs = all.next().is_some_and(|first| all.any(|v| v != first));
        differs && samples.iter().any(|s| s.len() > 1)
    };
    let all = (0..c.set.metrics.len()).filter(|i| !in_family.contains(i)).filter(several);
    let panels = all.map(panel).collect();
    let note = "Every sample, the median (bar), and its 95 % interval from six samples up. Metrics \
                with equal samples are not shown.";
    Figure::new("dots", "Samples by metric", note, Body::Panels(panels))
}
