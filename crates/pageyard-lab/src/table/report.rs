//! Sets in one form: what `pageyard compare` prints.

use std::fmt;

use serde::Serialize;

use super::convention::Convention;
use super::era::Era;
use super::mmtests::Rows;
use super::set::{Column, Set};
use super::{Aggregate, change, index, mmtests, ours, series, tab};

/// The forms of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Medians, intervals, and changes only where they are shown (§10).
    #[default]
    Pageyard,
    /// mmtests with its rule of significance until 2024-11 (§4).
    #[serde(rename = "mmtests-2019")]
    Mmtests2019,
    /// mmtests with its rule since 2024-12 (§4).
    #[serde(rename = "mmtests-2024")]
    Mmtests2024,
    /// The base is 100.
    Index,
    /// Plain change in percent.
    Change,
    /// Change of figures one larger, as the mail of 2024 printed it.
    #[serde(rename = "change-2024")]
    Change2024,
    /// Every sample.
    Series,
}

impl Form {
    /// All forms, by name.
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

/// What a table is made with.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Options {
    /// The form.
    pub form: Form,
    /// Our own form: when a change is claimed.
    pub rule: ours::Rule,
    /// mmtests: which rows.
    pub rows: Rows,
    /// mmtests: digits after the point of a value.
    pub precision: usize,
    /// Index and change: what stands for all samples.
    pub aggregate: Aggregate,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            form: Form::default(),
            rule: ours::Rule::default(),
            rows: Rows::default(),
            precision: 2,
            aggregate: Aggregate::default(),
        }
    }
}

/// Tables with all that they were made from.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version that compared, not the one that ran.
    pub version: &'static str,
    /// How.
    pub options: Options,
    /// A table for each set.
    pub tables: Vec<Titled>,
}

/// A table and where its figures come from.
#[derive(Clone, Debug, Serialize)]
pub struct Titled {
    /// The workload.
    pub workload: String,
    /// Its parameters.
    pub parameters: std::collections::BTreeMap<String, String>,
    /// The machine, in words; says where it was simulated.
    pub world: String,
    /// The columns: files, policies, machines, seeds, versions.
    pub sources: Vec<Column>,
    /// The line over the table.
    pub heading: String,
    /// The table.
    pub table: Printed,
}

/// A table of any form.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Printed {
    /// Our own.
    Ours(ours::Table),
    /// mmtests'.
    Mmtests(mmtests::Table),
    /// Indices.
    Index(index::Table),
    /// Changes.
    Change(change::Table),
    /// Series.
    Series(series::Table),
}

impl Report {
    /// Makes a table of each set.
    pub fn new(sets: &[Set], options: &Options) -> Report {
        let titled = |set: &Set| Titled {
            workload: set.workload.clone(),
            parameters: set.parameters.clone(),
            world: set.world(),
            sources: set.columns.clone(),
            heading: set.to_string(),
            table: Printed::new(set, options),
        };
        let tables = sets.iter().map(titled).collect();
        Report { version: env!("CARGO_PKG_VERSION"), options: *options, tables }
    }

    /// As CSV: one header, and every row begins with its workload and machine.
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
        let mmtests = |era| Printed::Mmtests(mmtests::Table::new(set, era, o.rows, o.precision));
        let change = |c| Printed::Change(change::Table::new(set, c, o.aggregate));
        match o.form {
            Form::Pageyard => Printed::Ours(ours::Table::new(set, o.rule)),
            Form::Mmtests2019 => mmtests(Era::Mmtests2019),
            Form::Mmtests2024 => mmtests(Era::Mmtests2024),
            Form::Index => Printed::Index(index::Table::new(set, o.aggregate)),
            Form::Change => change(Convention::Change),
            Form::Change2024 => change(Convention::ChangePlusOne),
            Form::Series => Printed::Series(series::Table::new(set)),
        }
    }

    /// As rows of text, a header first.
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, t) in self.tables.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{}\n\n{}", t.heading, t.table)?;
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
