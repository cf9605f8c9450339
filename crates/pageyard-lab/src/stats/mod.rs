//! Statistics for tables of results: those of mmtests, as mmtests computes them, and those of
//! Pageyard's own tables.
//!
//! Distributions come from `statrs`. This module adds what no well-maintained crate provides: the
//! order statistics of mmtests, Mann-Whitney with ties, Holm, and a bootstrap that gives the same
//! results on every host.

mod bootstrap;
mod holm;
mod order;
mod power;
mod rank;
mod sample;

pub use bootstrap::{RESAMPLES, ratio, ratio_interval};
pub use holm::holm;
pub use order::{median, median_interval, order_interval};
pub use power::{POWER, fewest_for_test, samples_for_interval, samples_for_test};
pub use rank::mann_whitney;
pub use sample::Samples;

use serde::Serialize;

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the two intervals have no point in common.
    pub fn apart(self, other: Interval) -> bool {
        self.high < other.low || other.high < self.low
    }

    /// Whether the interval contains a value.
    pub fn contains(self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}
