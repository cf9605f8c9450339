//! A workload's parameters: names, defaults, and values from the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::error::WorkloadError;

/// A parameter of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in `--set name=value`.
    pub name: &'static str,
    /// Its default value.
    pub default: &'static str,
    /// Its description.
    pub help: &'static str,
}

/// Creates a parameter.
pub(super) const fn param(name: &'static str, default: &'static str, help: &'static str) -> Param {
    Param { name, default, help }
}

/// Values of all parameters of one workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Params {
    workload: &'static str,
    values: BTreeMap<String, String>,
    /// The names of those that were given.
    given: BTreeSet<String>,
}

impl Params {
    /// Starts from the defaults and applies the given values.
    ///
    /// # Errors
    /// Fails if a name is not a parameter of the workload.
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
        let given = set.iter().map(|(name, _)| name.clone()).collect();
        Ok(Params { workload, values, given })
    }

    /// Returns all values as text.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    pub(super) fn wrong(&self, name: &str, want: impl Into<String>) -> WorkloadError {
        let (mut value, mut want) = (self.text(name).to_owned(), want.into());
        if !self.given.contains(name) {
            value += " (the default)";
            want += &format!(" here; use --set {name}=VALUE");
        }
        WorkloadError::BadParameter { workload: self.workload, name: name.to_owned(), value, want }
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

    /// Parses an integer within a range.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, WorkloadError> {
        self.parse(name, self.text(name), &range)
    }

    /// Like [`number`](Params::number), where `all` means the end of the range.
    pub(super) fn number_or_all(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, WorkloadError> {
        if self.text(name) == "all" { Ok(*range.end()) } else { self.number(name, range) }
    }

    /// Parses comma-separated numbers, each of which may be there once: their points have names of
    /// their own. The word `all` means the value `all`.
    pub(super) fn list(
        &self,
        name: &str,
        range: RangeInclusive<u64>,
        all: u64,
    ) -> Result<Vec<u64>, WorkloadError> {
        let each = |s: &str| {
            if s.trim() == "all" { Ok(all) } else { self.parse(name, s, &range) }
        };
        let numbers = self.text(name).split(',').map(each).collect::<Result<Vec<u64>, _>>()?;
        match (1..numbers.len()).find(|&at| numbers[..at].contains(&numbers[at])) {
            Some(_) => Err(self.wrong(name, "each number once")),
            None => Ok(numbers),
        }
    }

    /// Whether a value is several numbers.
    pub(super) fn is_list(&self, name: &str) -> bool {
        self.text(name).contains(',')
    }

    /// Parses one of `words` and returns its index.
    pub(super) fn choice(&self, name: &str, words: &[&str]) -> Result<usize, WorkloadError> {
        let text = self.text(name);
        words
            .iter()
            .position(|w| *w == text)
            .ok_or_else(|| self.wrong(name, format!("one of {}", words.join(", "))))
    }
}
