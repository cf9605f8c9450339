//! Parsers of `/proc/vmstat` and of the settings in `/proc/sys/vm`.

use super::lines::Lines;
use crate::error::TraceError;

/// Counters by name, in the order of the file (spec §9.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    list: Vec<(String, u64)>,
}

impl Counters {
    /// Parses `/proc/vmstat`: `name value` on each line.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut counters = Counters::default();
        let mut lines = Lines::new(name, bytes);
        while let Some(line) = lines.next()? {
            counters.line(&lines, line)?;
        }
        Ok(counters)
    }

    /// Adds the counter of one line.
    pub(super) fn line(&mut self, lines: &Lines<'_>, line: &str) -> Result<(), TraceError> {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
            return Err(lines.expected("`name value`", line));
        };
        let value = lines.number("a counter's value", value)?;
        self.list.push((name.to_owned(), value));
        Ok(())
    }

    /// Returns the value of the counter of this name.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.list.iter().find(|(n, _)| n == name).map(|&(_, value)| value)
    }

    /// Returns names and values in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.list.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns the number of counters.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no counters.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The settings that are used, which are numbers.
const NUMBERS: [&str; 2] = ["percpu_pagelist_high_fraction", "stat_interval"];

/// Settings by name (spec §10), as `grep . /proc/sys/vm/*` prints them, with or without the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    list: Vec<(String, String)>,
}

impl Settings {
    /// Parses lines of the form `name:value` or `/proc/sys/vm/name:value`.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form, or with a value that must be a number and is
    /// none.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut settings = Settings::default();
        let mut lines = Lines::new(name, bytes);
        while let Some(line) = lines.next()? {
            let Some((name, value)) = line.split_once(':') else {
                return Err(lines.expected("`name:value`", line));
            };
            let name = name.rsplit('/').next().unwrap_or(name);
            let value = value.trim();
            if NUMBERS.contains(&name) && value.parse::<i64>().is_err() {
                return Err(lines.expected("a number after the setting's name", line));
            }
            settings.list.push((name.to_owned(), value.to_owned()));
        }
        Ok(settings)
    }

    /// Returns the value of the setting of this name, as text.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of the setting of this name, if it is a single number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.parse().ok()
    }

    /// Returns the value of the setting of this name, if it is a list of numbers separated by
    /// blanks.
    pub fn numbers(&self, name: &str) -> Option<Vec<i64>> {
        self.get(name)?.split_ascii_whitespace().map(|word| word.parse().ok()).collect()
    }

    /// Returns names and values in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
