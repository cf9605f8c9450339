//! A workload's parameters: names, defaults, and values from the command line.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::WorkloadError;

/// A parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in `--set name=value`.
    pub name: &'static str,
    /// Its value unless told otherwise.
    pub default: &'static str,
    /// What it means.
    pub help: &'static str,
}

/// A parameter.
pub(super) const fn param(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, default, help }
}

/// Values of all parameters of one workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    workload: &'static str,
    values: BTreeMap<String, String>,
}

impl Params {
    /// The defaults, changed as told.
    ///
    /// # Errors
    /// A name that is not the workload's.
    pub(super) fn new(
        workload: &'static str,
        all: &[Param],
        set: &[(String, String)],
    ) -> Result<Params, WorkloadError> {
        let mut values: BTreeMap<String, String> =
            all.iter().map(|p| (p.name.to_owned(), p.default.to_owned())).collect();
        for (name, value) in set {
            match values.get_mut(name) {
                Some(v) => value.trim().clone_into(v),
                None => {
                    return Err(WorkloadError::UnknownParameter {
                        workload,
                        name: name.clone(),
                        known: all.iter().map(|p| p.name).collect::<Vec<_>>().join(", "),
                    });
                }
            }
        }
        Ok(Params { workload, values })
    }

    /// All of them, as text.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    pub(super) fn wrong(&self, name: &str, want: impl Into<String>) -> WorkloadError {
        WorkloadError::BadParameter {
            workload: self.workload,
            name: name.to_owned(),
            value: self.text(name).to_owned(),
            want: want.into(),
        }
    }

    fn parse(
        &self,
        name: &str,
        text: &str,
        range: &RangeInclusive<u64>,
    ) -> Result<u64, WorkloadError> {
        u64::from_str(text.trim()).ok().filter(|n| range.contains(n)).ok_or_else(|| {
            self.wrong(name, format!("a whole number from {} to {}", range.start(), range.end()))
        })
    }

    /// A whole number within a range.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, WorkloadError> {
        self.parse(name, self.text(name), &range)
    }

    /// The same, where `all` stands for the end of the range.
    pub(super) fn number_or_all(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, WorkloadError> {
        if self.text(name) == "all" { Ok(*range.end()) } else { self.number(name, range) }
    }

    /// Numbers with commas between them; the word `all` stands for `all`.
    pub(super) fn list(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
        all: u64,
    ) -> Result<Vec<u64>, WorkloadError> {
        let each = |s: &str| {
            if s.trim() == "all" { Ok(all) } else { self.parse(name, s, &range) }
        };
        self.text(name).split(',').map(each).collect()
    }

    /// One of a few words, by its place among them.
    pub(super) fn choice(&self, name: &str, words: &[&str]) -> Result<usize, WorkloadError> {
        let text = self.text(name);
        words
            .iter()
            .position(|w| *w == text)
            .ok_or_else(|| self.wrong(name, format!("one of {}", words.join(", "))))
    }
}
