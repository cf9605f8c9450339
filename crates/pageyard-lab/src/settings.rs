//! Settings of a run: the allocator's knobs, and the limits of the per-CPU lists.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use pageyard::tuning::{Limits, MAX_BATCH, MAX_PAGES};
use pageyard::{Config, CpuId, KnobError, Knobs, Yard};
use pageyard_trace::printable;

/// A limit of the per-CPU lists that has no file in the kernel.
struct Limit {
    name: &'static str,
    range: RangeInclusive<i32>,
    set: fn(&mut Limits, i32),
}

const LIMITS: [Limit; 4] = [
    Limit {
        name: "high",
        range: 0..=MAX_PAGES,
        set: |limits, n| (limits.high_min, limits.high_max) = (n, n),
    },
    Limit { name: "high_min", range: 0..=MAX_PAGES, set: |limits, n| limits.high_min = n },
    Limit { name: "high_max", range: 0..=MAX_PAGES, set: |limits, n| limits.high_max = n },
    Limit { name: "batch", range: 1..=MAX_BATCH, set: |limits, n| limits.batch = n },
];

/// Knobs of these lists.
const OF_LISTS: [&str; 2] = ["percpu_pagelist_high_fraction", "pcp_autotune"];

/// Settings of the allocator by name, in the order in which they are applied. These are all
/// writable knobs (`docs/knobs.md`) and the limits of every zone's per-CPU lists in pages: `high`,
/// `high_min`, `high_max` and `batch`.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Settings(Vec<(String, String)>);

/// An invalid setting.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingError {
    /// The text is not of the form `NAME=VALUE`.
    #[error("{}: expected NAME=VALUE, such as high=400", printable(.0))]
    Form(String),
    /// The limit is out of range.
    #[error("{name} = {}: expected a number of pages from {least} to {most}", printable(.value))]
    Limit {
        /// The limit.
        name: &'static str,
        /// The smallest valid value.
        least: i32,
        /// The largest valid value.
        most: i32,
        /// The given value.
        value: String,
    },
    /// The minimum of a zone's lists exceeds their maximum.
    #[error("{zone}: high_min = {} is above high_max = {}; set both",
            .limits.high_min, .limits.high_max)]
    Crossed {
        /// The zone.
        zone: String,
        /// The resulting limits.
        limits: Limits,
    },
    /// The knob does not exist.
    #[error(
        "{0}; expected a knob, high, high_min, high_max or batch (pageyard knobs lists the knobs)"
    )]
    Unknown(KnobError),
    /// The allocator rejects the value.
    #[error(transparent)]
    Knob(KnobError),
}

impl From<KnobError> for SettingError {
    fn from(e: KnobError) -> Self {
        match e {
            KnobError::Unknown { .. } => SettingError::Unknown(e),
            _ => SettingError::Knob(e),
        }
    }
}

impl FromStr for Settings {
    type Err = SettingError;

    /// Parses one setting, `NAME=VALUE`. Rejects values that no allocator accepts.
    fn from_str(text: &str) -> Result<Settings, SettingError> {
        let form = || SettingError::Form(text.trim().to_owned());
        let (name, value) = text.split_once('=').ok_or_else(form)?;
        let (name, value) = (name.trim(), value.trim());
        match limit(name) {
            Some(limit) => drop(limit.parse(value)?),
            None => Knobs::default().set(name, value)?,
        }
        Ok(Settings(vec![(name.to_owned(), value.to_owned())]))
    }
}

fn limit(name: &str) -> Option<&'static Limit> {
    LIMITS.iter().find(|limit| limit.name == name)
}

impl Limit {
    fn parse(&self, value: &str) -> Result<i32, SettingError> {
        let number = value.parse().ok().filter(|n| self.range.contains(n));
        number.ok_or_else(|| SettingError::Limit {
            name: self.name,
            least: *self.range.start(),
            most: *self.range.end(),
            value: value.to_owned(),
        })
    }
}

/// Formats the settings as they follow a policy's name: `+NAME=VALUE` for each.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| write!(f, "+{name}={value}"))
    }
}

impl Settings {
    /// Returns whether there are no settings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of those that concern per-CPU lists, which the packed engine does not have.
    pub(crate) fn of_lists(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        names.filter(|name| limit(name).is_some() || OF_LISTS.contains(name))
    }

    /// Returns the name of a setting that changes [`Limits`], if there is one.
    pub(crate) fn of_limits(&self) -> Option<&str> {
        self.of_lists().find(|name| *name != "pcp_autotune")
    }

    /// Returns whether both set something of the same name.
    pub(crate) fn overlap(&self, others: &Settings) -> bool {
        self.0.iter().any(|(name, _)| others.0.iter().any(|(other, _)| name == other))
    }

    /// Appends other settings, which are applied after these.
    pub fn add(&mut self, others: &Settings) {
        self.0.extend_from_slice(&others.0);
    }

    /// Sets the knobs in order, then the limits of every zone's lists.
    ///
    /// # Errors
    /// Fails with [`SettingError`] if the allocator rejects a value; earlier settings are in force
    /// then.
    pub fn apply<C: Config>(&self, yard: &Yard<'_, C>) -> Result<(), SettingError> {
        let mut changes = Vec::new();
        for (name, value) in &self.0 {
            match limit(name) {
                Some(limit) => changes.push((limit.set, limit.parse(value)?)),
                None => yard.set_knob(name, value)?,
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        for zone in yard.zone_ids() {
            let Some(tuning) = yard.pageset(zone, CpuId(0)) else { continue };
            let mut limits = tuning.limits;
            changes.iter().for_each(|&(set, n)| set(&mut limits, n));
            if !yard.set_pcp_limits(zone, limits) {
                return Err(SettingError::Crossed { zone: zone.to_string(), limits });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected() {
        let said = |text: &str| text.parse::<Settings>().unwrap_err().to_string();
        for (text, says) in [
            ("high", "high: expected NAME=VALUE, such as high=400"),
            ("high=-1", "high = -1: expected a number of pages from 0 to 268435456"),
            ("batch=0", "batch = 0: expected a number of pages from 1 to 16384"),
            ("high_max=many", "high_max = many: expected"),
            ("percpu_pagelist_high_fraction=7", "expected 0, or 8 to 2^31-1"),
            ("lists=3", "unknown knob \"lists\"; expected a knob, high, high_min"),
            ("init_on_free=Y", "the policy"),
            ("page_owner=on", "page_owner"),
        ] {
            assert!(said(text).contains(says), "{text}: {}", said(text));
        }
        let mut all: Settings = " high = 400 ".parse().unwrap();
        all.add(&"min_free_kbytes=4096".parse().unwrap());
        assert_eq!(all.to_string(), "+high=400+min_free_kbytes=4096");
    }
}
