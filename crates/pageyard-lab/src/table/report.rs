//! Sets in one form: the output of `pageyard compare`.

use std::fmt;

use serde::Serialize;

use super::convention::Convention;
use super::era::Era;
use super::grid::wrapped;
use super::mmtests::Rows;
use super::select::Selection;
use super::set::{Column, Partial, Set};
use super::{Aggregate, change, index, mmtests, ours, series, tab};

/// The forms of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Medians, intervals, and only significant changes.
    #[default]
    Pageyard,
    /// mmtests with its significance rule until 2024-11.
    #[serde(rename = "mmtests-2019")]
    Mmtests2019,
    /// mmtests with its significance rule since 2024-12.
    #[serde(rename = "mmtests-2024")]
    Mmtests2024,
    /// Indices; the base is 100.
    Index,
    /// Plain change in percent.
    Change,
    /// Change of each figure plus one, as printed by the mail of 2024.
    #[serde(rename = "change-2024")]
    Change2024,
    /// Every sample.
    Series,
}

impl Form {
    /// All forms with their names.
    pub const ALL: [(&'static str, Form); 7] = [
        ("pageyard", Form::Pageyard),
        ("mmtests-2019", Form::Mmtests2019),
        ("mmtests-2024", Form::Mmtests2024),
        ("index", Form::Index),
        ("change", Form::Change),
        ("change-2024", Form::Change2024),
        ("series", Form::Series),
    ];
}

/// Options of a table.
#[derive(Clone, Debug, Serialize)]
pub struct Options {
    /// The form.
    pub form: Form,
    /// The metrics that are shown: [`Selection::of`] selects them before a report is built.
    pub metrics: Selection,
    /// Form `pageyard`: the rule for claiming a change.
    pub rule: ours::Rule,
    /// mmtests: the rows to print.
    pub rows: Rows,
    /// mmtests: digits after the decimal point of a value.
    pub precision: usize,
    /// Index and change: the value that represents all samples.
    pub aggregate: Aggregate,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            form: Form::default(),
            metrics: Selection::default(),
            rule: ours::Rule::default(),
            rows: Rows::default(),
            precision: 2,
            aggregate: Aggregate::default(),
        }
    }
}

/// Tables, with everything that they were made from.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version that made the comparison, not the one that ran the workload.
    pub version: &'static str,
    /// The options of the tables.
    pub options: Options,
    /// One table per set.
    pub tables: Vec<Titled>,
}

/// A table and the source of its figures.
#[derive(Clone, Debug, Serialize)]
pub struct Titled {
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub parameters: std::collections::BTreeMap<String, String>,
    /// The machine, in words; states whether it was simulated.
    pub world: String,
    /// The columns: files, policies, machines, seeds, versions.
    pub sources: Vec<Column>,
    /// The line above the table.
    pub heading: String,
    /// The table. The forms other than `pageyard` and `series` have the metrics of all columns.
    pub table: Printed,
    /// The metrics that not every column has.
    pub partial: Vec<Partial>,
}

/// A table of any form.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Printed {
    /// Pageyard's own form.
    Ours(ours::Table),
    /// mmtests' form.
    Mmtests(mmtests::Table),
    /// Indices.
    Index(index::Table),
    /// Changes.
    Change(change::Table),
    /// Series.
    Series(series::Table),
}

impl Report {
    /// Builds one table per set.
    pub fn new(sets: &[Set], options: &Options) -> Report {
        let titled = |set: &Set| Titled {
            workload: set.workload.clone(),
            parameters: set.parameters.clone(),
            world: set.world(),
            sources: set.columns.clone(),
            heading: set.to_string(),
            table: Printed::new(set, options),
            partial: set.partial(),
        };
        let tables = sets.iter().map(titled).collect();
        Report { version: env!("CARGO_PKG_VERSION"), options: options.clone(), tables }
    }

    /// Formats as CSV: one header; every row begins with its workload and machine.
    pub fn csv(&self) -> String {
        let mut all: Vec<Vec<String>> = Vec::new();
        for t in &self.tables {
            let mut records = t.table.records().into_iter();
            let pairs: String = t.parameters.iter().map(|(k, v)| format!(" {k}={v}")).collect();
            let title = format!("{}{pairs}", t.workload);
            let begin = |first: &str, second: &str, record: Vec<String>| {
                [vec![first.to_owned(), second.to_owned()], record].concat()
            };
            if let Some(header) = records.next().filter(|_| all.is_empty()) {
                all.push(begin("workload", "machine", header));
            }
            all.extend(records.map(|r| begin(&title, &t.world, r)));
        }
        tab::csv(&all)
    }
}

impl Printed {
    fn new(set: &Set, o: &Options) -> Printed {
        let all = set.complete();
        let mmtests = |era| Printed::Mmtests(mmtests::Table::new(&all, era, o.rows, o.precision));
        let change = |c| Printed::Change(change::Table::new(&all, c, o.aggregate));
        match o.form {
            Form::Pageyard => Printed::Ours(ours::Table::new(set, o.rule)),
            Form::Mmtests2019 => mmtests(Era::Mmtests2019),
            Form::Mmtests2024 => mmtests(Era::Mmtests2024),
            Form::Index => Printed::Index(index::Table::new(&all, o.aggregate)),
            Form::Change => change(Convention::Change),
            Form::Change2024 => change(Convention::ChangePlusOne),
            Form::Series => Printed::Series(series::Table::new(set)),
        }
    }

    /// Returns the table as rows of text, header first.
    pub(crate) fn records(&self) -> Vec<Vec<String>> {
        match self {
            Printed::Ours(t) => t.records(),
            Printed::Mmtests(t) => t.records(),
            Printed::Index(t) => t.records(),
            Printed::Change(t) => t.records(),
            Printed::Series(t) => t.records(),
        }
    }
}

/// The formatter's width, as in `{report:80}`, limits the length of lines: wide tables are folded.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, t) in self.tables.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            t.heading.lines().try_for_each(|line| wrapped(f, line, "  "))?;
            writeln!(f)?;
            t.table.fmt(f)?;
            t.partial.iter().try_for_each(|p| wrapped(f, &p.to_string(), "  "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Printed::Ours(t) => t.fmt(f),
            Printed::Mmtests(t) => t.fmt(f),
            Printed::Index(t) => t.fmt(f),
            Printed::Change(t) => t.fmt(f),
            Printed::Series(t) => t.fmt(f),
        }
    }
}
