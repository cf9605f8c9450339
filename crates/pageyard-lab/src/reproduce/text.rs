//! A report as text: each quantity twice, as published and as measured here, with their agreement
//! below.

use std::fmt;

use super::Report;
use super::agree::Column;
use super::anchor::Anchor;
use super::experiment::Scale;
use super::outcome::{Claim, Comparison};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.heading().fmt(f)?;
        for table in &self.outcome.tables {
            write!(f, "\n{table}")?;
        }
        self.closing().fmt(f)
    }
}

/// The beginning or the end of a report's text.
struct Part<'r>(&'r Report, fn(&Report, &mut fmt::Formatter<'_>) -> fmt::Result);

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1(self.0, f)
    }
}

impl Report {
    /// Returns what the text says before the tables.
    pub fn heading(&self) -> impl fmt::Display {
        Part(self, Report::write_heading)
    }

    /// Returns what the text says after the tables: claims and notes.
    pub fn closing(&self) -> impl fmt::Display {
        Part(self, Report::write_closing)
    }

    fn write_heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { experiment, summary, source, seed, iterations, .. } = self;
        writeln!(f, "{experiment} ({source}): {summary}")?;
        let runs = if *iterations == 1 { "one run" } else { "means of runs" };
        write!(f, "seed {seed}, {runs}")?;
        if self.scale == Scale::Small {
            write!(f, ", shortened")?;
        }
        for (name, ps) in &self.costs {
            write!(f, ", {name} {ps} ps")?;
        }
        writeln!(f)?;
        if !self.anchors.is_empty() {
            writeln!(f, "\nanchors: parameters derived from figures of this experiment")?;
        }
        for Anchor { parameter, figure, consequence } in self.anchors {
            writeln!(f, "  {parameter}\n    from {figure}\n    so {consequence}")?;
        }
        Ok(())
    }

    fn write_closing(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.outcome.claims.is_empty() {
            writeln!(f)?;
        }
        for Claim { text, found, holds } in &self.outcome.claims {
            let says = match holds {
                Some(true) => "yes",
                Some(false) => "NO ",
                None => "?  ",
            };
            let found = if found.is_empty() { String::new() } else { format!(": {found}") };
            writeln!(f, "{says}  {text}{found}")?;
        }
        for note in &self.outcome.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  [{}]", self.title, self.world)?;
        let label = self.rows.iter().map(|r| r.len()).chain(["direction".len()]).max().unwrap_or(0);
        let cells: Vec<Cells> = self.columns.iter().map(|c| Cells::new(c, self.sides)).collect();
        let line =
            |f: &mut fmt::Formatter<'_>, head: &str, part: &dyn Fn(&Cells) -> [String; 2]| {
                write!(f, "{head:label$}")?;
                for c in &cells {
                    let [seed, ours] = part(c);
                    write!(f, "  {seed:>w$} {ours:>v$}", w = c.widths[0], v = c.widths[1])?;
                }
                writeln!(f)
            };
        write!(f, "{:label$}", "")?;
        for c in &cells {
            write!(f, "  {:>w$}", c.name, w = c.widths[0] + c.widths[1] + 1)?;
        }
        writeln!(f)?;
        line(f, "", &|_| self.sides.map(String::from))?;
        for (i, row) in self.rows.iter().enumerate() {
            line(f, row, &|c| c.rows[i].clone())?;
        }
        for (head, part) in [("direction", 0), ("order", 1), ("factor", 2)] {
            line(f, head, &|c| [String::new(), c.agreement[part].clone()])?;
        }
        if self.columns.iter().any(|c| !c.anchored.is_empty()) {
            writeln!(f, "*: does not count; a parameter was derived from it (anchors, above)")?;
        }
        if !self.command.is_empty() {
            writeln!(f, "again: {}", self.command)?;
        }
        Ok(())
    }
}

/// A column as text.
struct Cells {
    name: String,
    rows: Vec<[String; 2]>,
    /// Direction, order, factor.
    agreement: [String; 3],
    widths: [usize; 2],
}

impl Cells {
    fn new(column: &Column, sides: [&str; 2]) -> Cells {
        let name = match column.unit {
            "" => column.name.clone(),
            unit => format!("{}, {unit}", column.name),
        };
        let mark = |row: usize| if column.anchored.contains(&row) { "*" } else { "" };
        let figures = column.seed.iter().zip(&column.ours).enumerate();
        let rows: Vec<[String; 2]> =
            figures.map(|(i, (s, o))| [number(*s) + mark(i), number(*o)]).collect();
        let a = &column.agreement;
        let of =
            |(n, all): (usize, usize)| if all == 0 { "-".into() } else { format!("{n}/{all}") };
        let mut figures = column.seed.iter().zip(&column.ours).enumerate();
        let compared =
            figures.any(|(i, (s, o))| s.is_some() && o.is_some() && !column.anchored.contains(&i));
        let factor = match a.factor {
            Some(factor) => format!("{factor:.2}x"),
            None if compared => "none".into(),
            None => "-".into(),
        };
        let agreement = [of(a.direction), of(a.order), factor];
        let width =
            |i: usize, least: usize| rows.iter().map(|r| r[i].len()).max().unwrap_or(0).max(least);
        let most = agreement.iter().map(String::len).max().unwrap_or(0);
        let mut widths = [width(0, sides[0].len()), width(1, most.max(sides[1].len()))];
        widths[0] = widths[0].max(name.len().saturating_sub(widths[1] + 1));
        Cells { name, rows, agreement, widths }
    }
}

/// Formats with at least three digits.
fn number(value: Option<f64>) -> String {
    let Some(v) = value else { return "-".into() };
    match v.abs() {
        a if a >= 100.0 || v == 0.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 1.0 => format!("{v:.2}"),
        a if a >= 0.01 => format!("{v:.3}"),
        _ => format!("{v:.1e}"),
    }
}
