//! How a difference is expressed as a percentage. Authors do not agree, so every table states its
//! convention.

use serde::Serialize;

use crate::result::Better;

/// The meaning of a percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Convention {
    /// mmtests: positive is better, for costs and for rates.
    PositiveIsBetter,
    /// 100·(new-base)/base, regardless of which direction is better.
    Change,
    /// 100·((new+1)/(base+1)-1): what the mail of 2024 actually printed (A.3). Defined for a base
    /// of 0.
    ChangePlusOne,
    /// 100·new/base: the base is 100.
    Index,
}

impl Convention {
    /// Returns the percentage of a new value; NaN if it is undefined.
    pub fn of(self, better: Better, base: f64, new: f64) -> f64 {
        match self {
            Convention::PositiveIsBetter => match better {
                Better::Higher => pdiff(base, new),
                Better::Lower => pndiff(base, new),
            },
            Convention::Change if base == new => 0.0,
            Convention::Change if base == 0.0 => f64::NAN,
            Convention::Change => 100.0 * (new - base) / base,
            Convention::ChangePlusOne => 100.0 * ((new + 1.0) / (base + 1.0) - 1.0),
            Convention::Index if base == 0.0 => f64::NAN,
            Convention::Index => 100.0 * new / base,
        }
    }
}

/// Higher is better. A new value of 0 prints 0.00 %: a defect of mmtests, kept because it is part
/// of its tables.
fn pdiff(base: f64, new: f64) -> f64 {
    if base == new || new == 0.0 {
        0.0
    } else if base == 0.0 || base.is_nan() {
        100.0
    } else {
        100.0 * new / base - 100.0
    }
}

/// Lower is better.
fn pndiff(base: f64, new: f64) -> f64 {
    if base == new {
        0.0
    } else if new == 0.0 {
        100.0
    } else if base == 0.0 {
        -99.0
    } else {
        100.0 - 100.0 * new / base
    }
}

#[cfg(test)]
mod tests {
    use super::Convention::*;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentages_of_0_equal_and_undefined_values() {
        let p = |better, base, new| PositiveIsBetter.of(better, base, new);
        assert_eq!(p(Better::Higher, 5.0, 5.0), 0.0);
        assert_eq!(p(Better::Higher, 5.0, 0.0), 0.0);
        assert_eq!(p(Better::Higher, 0.0, 5.0), 100.0);
        assert_eq!(p(Better::Higher, f64::NAN, 5.0), 100.0);
        assert_eq!(p(Better::Higher, 4.0, 5.0), 25.0);
        assert_eq!(p(Better::Lower, 5.0, 5.0), 0.0);
        assert_eq!(p(Better::Lower, 0.0, 0.0), 0.0);
        assert_eq!(p(Better::Lower, 5.0, 0.0), 100.0);
        assert_eq!(p(Better::Lower, 0.0, 5.0), -99.0);
        assert_eq!(p(Better::Lower, 4.0, 5.0), -25.0);
        assert_eq!(Change.of(Better::Lower, 4.0, 5.0), 25.0);
        assert_eq!(Index.of(Better::Lower, 4.0, 5.0), 125.0);
        assert!(Change.of(Better::Lower, 0.0, 5.0).is_nan());
        assert_eq!(Change.of(Better::Lower, 0.0, 0.0), 0.0);
    }

    proptest! {
        /// An improvement is positive, and reversing the preference reverses the sign.
        #[test]
        fn improvements_are_positive_under_either_preference(base in 0.001..1e9f64, new in 0.001..1e9f64) {
            let [low, high] = [Better::Lower, Better::Higher]
                .map(|b| PositiveIsBetter.of(b, base, new));
            prop_assert!((low + high).abs() <= 1e-9 * low.abs().max(1.0));
            prop_assert!(new >= base || (low > 0.0 && high < 0.0));
            prop_assert!((Change.of(Better::Lower, base, new) - high).abs() <= 1e-9 * high.abs().max(1.0));
            prop_assert!((Index.of(Better::Lower, base, new) - 100.0 - high).abs() <= 1e-9 * high.abs().max(1.0));
        }
    }
}
