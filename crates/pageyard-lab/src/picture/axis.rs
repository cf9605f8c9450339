//! Axes: positions of values, and ticks.

use super::text::{number, time_unit};

/// An axis from `low` to `high`.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The quantity and its unit.
    pub(super) label: String,
    /// The unit of a single value: `ns` for times, else any unit or none.
    pub(super) unit: String,
    pub(super) log: bool,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<(f64, String)>,
}

/// Approximate maximum number of ticks.
const TICKS: f64 = 6.0;

impl Axis {
    /// Creates an axis from 0, or a smaller minimum, to a round number.
    pub(super) fn linear(label: &str, unit: &str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = range(values);
        Axis::between(label, unit, low.min(0.0), high.max(0.0))
    }

    /// Creates an axis around the values only.
    pub(super) fn tight(label: &str, unit: &str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = range(values);
        // Start at 0 if it is near. Add a margin if all values are equal.
        let room = if low == high { low.abs().max(1.0) * 0.05 } else { 0.0 };
        let low = if low >= 0.0 && low < (high - low) * 0.5 { 0.0 } else { low };
        Axis::between(label, unit, low - room, high + room)
    }

    /// Like [`Axis::linear`] for whole numbers: ticks are at whole numbers only.
    pub(super) fn whole(label: &str, unit: &str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = range(values);
        Axis::stepped(label, unit, low.min(0.0), high.max(1.0), 1.0)
    }

    fn between(label: &str, unit: &str, low: f64, high: f64) -> Axis {
        Axis::stepped(label, unit, low, high, 0.0)
    }

    fn stepped(label: &str, unit: &str, low: f64, high: f64, least: f64) -> Axis {
        let high = if high > low { high } else { low + 1.0 };
        let step = step((high - low) / TICKS).max(least);
        let (first, last) = ((low / step).floor(), (high / step - 1e-9).ceil());
        let count = (last - first).round() as usize;
        let ticks = (0..=count).map(|i| (first + i as f64) * step);
        let ticks = ticks.map(|t| (t, short(t, step))).collect();
        let (low, high) = (first * step, last * step);
        Axis { label: with_unit(label, unit), unit: unit.into(), log: false, low, high, ticks }
    }

    /// Creates an axis of times in nanoseconds, from 0.
    pub(super) fn time(label: &str, end_ns: f64) -> Axis {
        let end = end_ns.max(1.0);
        let (unit, per) = time_unit(end);
        let step = step(end / per / TICKS);
        let count = (end / per / step + 1e-9).floor() as usize;
        let ticks = (0..=count).map(|i| i as f64 * step);
        Axis {
            label: with_unit(label, unit),
            unit: "ns".into(),
            log: false,
            low: 0.0,
            high: end,
            ticks: ticks.map(|t| (t * per, short(t, step))).collect(),
        }
    }

    /// Creates a logarithmic axis with a tick per decade. Values of 0 or less are ignored.
    pub(super) fn log(label: &str, unit: &str, values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) = range(values.filter(|v| *v > 0.0));
        let (low, high) = if low > 0.0 { (low, high) } else { (1.0, 10.0) };
        let (first, last) = (low.log10().floor() as i32, (high.log10() - 1e-9).ceil() as i32);
        let last = last.max(first + 1);
        let every = ((last - first) / 8).max(1) as usize;
        let text = |v: f64| if unit == "ns" { super::text::time(v) } else { short(v, v) };
        let ticks = (first..=last).step_by(every).map(|e| 10f64.powi(e));
        Axis {
            label: if unit == "ns" { label.into() } else { with_unit(label, unit) },
            unit: unit.into(),
            log: true,
            low: 10f64.powi(first),
            high: 10f64.powi(last),
            ticks: ticks.map(|v| (v, text(v))).collect(),
        }
    }

    /// Creates an axis for counts, such as of processes, with a tick at each value. The axis is
    /// logarithmic if the counts span a large range.
    pub(super) fn counts(label: &str, mut values: Vec<f64>) -> Axis {
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (low, high) = range(values.iter().copied());
        let log = low > 0.0 && high / low >= 8.0;
        let room = |v: f64, up: bool| match (log, up) {
            (true, true) => v * 1.15,
            (true, false) => v / 1.15,
            (false, true) => v + (high - low).max(1.0) * 0.05,
            (false, false) => v - (high - low).max(1.0) * 0.05,
        };
        let mut axis = Axis {
            label: label.into(),
            unit: String::new(),
            log,
            low: room(low, false),
            high: room(high, true),
            ticks: Vec::new(),
        };
        // Keep only ticks that are far enough apart.
        let mut last = f64::NEG_INFINITY;
        for v in values {
            let at = axis.at(v);
            if at - last >= 0.07 {
                axis.ticks.push((v, number(v)));
                last = at;
            }
        }
        axis
    }

    /// Creates an axis of named rows.
    pub(super) fn rows(label: &str, names: &[&str]) -> Axis {
        let ticks = names.iter().enumerate().map(|(i, name)| (i as f64, (*name).to_owned()));
        Axis {
            label: label.into(),
            unit: "row".into(),
            log: false,
            // The first row is on top.
            low: names.len() as f64 - 0.4,
            high: -0.6,
            ticks: ticks.collect(),
        }
    }

    /// Returns the position of a value from 0 to 1. Values outside the axis are clamped.
    pub(super) fn at(&self, v: f64) -> f64 {
        let part = if self.log {
            let v = v.max(self.low);
            (v.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (v - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }
}

fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.into() } else { format!("{label}, {unit}") }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let all = values.filter(|v| v.is_finite());
    all.fold(None, |r: Option<(f64, f64)>, v| {
        Some(r.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
    })
    .unwrap_or((0.0, 1.0))
}

/// Returns the smallest of 1, 2 or 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let ten = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= least * (1.0 - 1e-9));
    ten.unwrap_or(10.0) * power
}

/// Returns a tick's label, with the digits that its step needs.
fn short(v: f64, step: f64) -> String {
    let v = if v.abs() < step * 1e-6 { 0.0 } else { v };
    let (v, step, letter) = match v.abs() {
        a if a >= 1e9 => (v / 1e9, step / 1e9, "G"),
        a if a >= 1e6 => (v / 1e6, step / 1e6, "M"),
        a if a >= 1e4 => (v / 1e3, step / 1e3, "k"),
        _ => (v, step, ""),
    };
    let digits = (-step.abs().log10().floor()).clamp(0.0, 15.0) as usize;
    let text = format!("{v:.digits$}");
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> String {
        axis.ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn axis_ticks_are_round_and_cover_all_values() {
        for (high, want) in [
            (1760.0, "0 500 1000 1500 2000"),
            (7.0, "0 2 4 6 8"),
            (0.031, "0 0.01 0.02 0.03 0.04"),
            (3_493_680.0, "0 1M 2M 3M 4M"),
            (0.0, "0 0.2 0.4 0.6 0.8 1"),
        ] {
            let axis = Axis::linear("x", "", [0.0, high].into_iter());
            assert_eq!(texts(&axis), want);
            assert!(axis.high >= high && axis.at(high) <= 1.0);
        }
        for n in 1..500 {
            let high = 1.1f64.powi(n - 250);
            let axis = Axis::linear("x", "", [high].into_iter());
            assert!((2..=8).contains(&axis.ticks.len()), "{high}: {}", texts(&axis));
            assert!(axis.high >= high * (1.0 - 1e-9) && axis.ticks[0].0 == 0.0);
            let mut all: Vec<_> = axis.ticks.iter().map(|t| &t.1).collect();
            all.dedup();
            assert_eq!(all.len(), axis.ticks.len(), "{high}: {}", texts(&axis));
        }
    }

    #[test]
    fn times_decades_counts_and_rows() {
        let t = Axis::time("virtual time", 9_964_578.0);
        assert_eq!((t.label.as_str(), texts(&t).as_str()), ("virtual time, ms", "0 2 4 6 8"));
        assert_eq!((t.at(0.0), t.at(9_964_578.0)), (0.0, 1.0));
        let l = Axis::log("latency", "ns", [16.0, 4864.0].into_iter());
        assert_eq!(texts(&l), "10 ns 100 ns 1 µs 10 µs");
        assert!((l.at(316.2277) - 0.5).abs() < 1e-3 && l.at(0.0) == 0.0);
        let c = Axis::counts("processes", vec![1.0, 2.0, 4.0, 64.0, 224.0]);
        assert!(c.log && texts(&c) == "1 2 4 64 224", "{}", texts(&c));
        let r = Axis::rows("", &["Base", "Linux612"]);
        assert!(r.at(0.0) > r.at(1.0));
        assert_eq!(texts(&Axis::whole("x", "", [2.0].into_iter())), "0 1 2");
        let same = Axis::tight("x", "", [5.0, 5.0].into_iter());
        assert!(same.low < 5.0 && same.high > 5.0);
    }
}
