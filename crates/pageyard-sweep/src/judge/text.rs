//! A judgement as one page of text.

use std::fmt;

use pageyard_lab::format::number;

use super::{Aspect, BAND, BAND_POINTS, Figure, Judgement, Verdict};

/// Most figures that a list shows; the others are in the JSON and in `results.parquet`.
const MOST: usize = 20;

/// The judgement as text.
impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} against {}", self.policy, self.against)?;
        writeln!(f, "{}; machines are simulated", seeds(&self.seeds))?;
        writeln!(
            f,
            "a figure changed if it did with every seed, the same way, by more than {} % (shares: \
             {BAND_POINTS} points)\n",
            100.0 * BAND
        )?;
        self.counts(f)?;
        let regressions: Vec<&Figure> = self
            .figures
            .iter()
            .filter(|x| x.known_regression && x.aspect == Aspect::Result)
            .collect();
        if regressions.is_empty() {
            writeln!(f, "\nknown regressions: not run")?;
        } else {
            list(f, "known regressions, time or rate", &regressions, true)?;
        }
        for (verdict, title) in
            [(Verdict::Better, "better"), (Verdict::Worse, "worse"), (Verdict::Unclear, "unclear")]
        {
            let mut found: Vec<&Figure> = self.with(verdict).collect();
            // The workloads' own results first, then by the size of the change.
            found.sort_by(|a, b| a.aspect.cmp(&b.aspect).then(size(b).total_cmp(&size(a))));
            list(f, title, &found, false)?;
        }
        Ok(())
    }
}

impl Judgement {
    /// Writes how many figures of each aspect have which verdict.
    fn counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all =
            [Verdict::Better, Verdict::Worse, Verdict::Unclear, Verdict::Same, Verdict::Missing];
        writeln!(
            f,
            "{:14} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "figures", "better", "worse", "unclear", "same", "missing"
        )?;
        for aspect in Aspect::ALL {
            let of: Vec<_> = self.figures.iter().filter(|x| x.aspect == aspect).collect();
            if of.is_empty() {
                writeln!(f, "{:14} not measured: add --trace FILE", aspect.name())?;
                continue;
            }
            write!(f, "{:14}", aspect.name())?;
            for verdict in all {
                write!(f, " {:>8}", of.iter().filter(|x| x.verdict == verdict).count())?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn seeds(seeds: &[u64]) -> String {
    let list: Vec<String> = seeds.iter().map(u64::to_string).collect();
    match seeds.len() {
        1 => format!("seed {}: one seed says nothing about the spread", list[0]),
        n => format!("{n} seeds ({})", list.join(", ")),
    }
}

/// The size of a change for the order of a list: the smallest among the seeds.
fn size(figure: &Figure) -> f64 {
    figure.changes().map_or(0.0, |(low, high)| low.abs().min(high.abs()))
}

fn list(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    figures: &[&Figure],
    verdicts: bool,
) -> fmt::Result {
    if figures.is_empty() {
        return writeln!(f, "\n{title}: none");
    }
    writeln!(f, "\n{title}")?;
    let mut last = None;
    for figure in figures.iter().take(MOST) {
        let of = (&figure.input, &figure.machine);
        if last.replace(of) != Some(of) {
            let on = if figure.machine.is_empty() { "" } else { " on " };
            writeln!(f, "  {}{on}{}: {}", figure.input, figure.machine, figure.about)?;
        }
        let says = if verdicts { format!(", {}", name(figure.verdict)) } else { String::new() };
        writeln!(f, "    {}: {}{says}", figure.metric, change(figure))?;
    }
    match figures.len().checked_sub(MOST) {
        Some(more @ 1..) => writeln!(f, "  and {more} more; --json lists all"),
        _ => Ok(()),
    }
}

fn name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same => "same",
        Verdict::Unclear => "unclear",
        Verdict::Missing => "missing",
    }
}

/// Formats the mean of what was counted; `-` if nothing was.
fn mean(of: &[Option<f64>]) -> String {
    let counted: Vec<f64> = of.iter().copied().flatten().collect();
    match counted.len() {
        0 => "-".into(),
        n => number(counted.iter().sum::<f64>() / n as f64),
    }
}

/// Formats both means and the range of changes.
fn change(figure: &Figure) -> String {
    if figure.against.is_empty() || figure.policy.is_empty() {
        return "measured under one of the policies only".into();
    }
    let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
    let (a, p) = (mean(&figure.against), mean(&figure.policy));
    let Some((low, high)) = figure.changes() else { return format!("{a} -> {p}{unit}") };
    let percent = |change: f64| match change.is_finite() {
        true => format!("{:+.1} %", 100.0 * change),
        false => "from 0".into(),
    };
    let range = match (percent(low), percent(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    format!("{a} -> {p}{unit} ({range})")
}
