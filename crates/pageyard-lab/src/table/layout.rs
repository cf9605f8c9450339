//! The layout of mmtests' tables (§5): labels to the left, columns to the right of two lines of
//! names.

use std::fmt::{self, Write as _};

/// Of a column in a table with percentages: value, and ` (   0.00%)`.
pub(super) const PERCENT: usize = 23;

/// A column's name in two lines (§5.3): it splits at the first `-`, but a following `-rcN` stays
/// with the first half.
fn halves(name: &str) -> (&str, &str) {
    let Some(mut at) = name.find('-') else {
        return (name, "");
    };
    if let Some(candidate) = name[at..].strip_prefix("-rc") {
        let digits = candidate.bytes().take_while(u8::is_ascii_digit).count();
        let after = at + 3 + digits;
        if digits > 0 && name[after..].starts_with('-') {
            at = after;
        } else if digits > 0 && after == name.len() {
            return (name, "");
        }
    }
    (&name[..at], &name[at + 1..])
}

/// The widths of all columns: as mmtests has them, or wider where a name needs it. The field of a
/// name is one blank wider than the name.
pub(super) fn widths(names: &[&str], first: usize, others: usize) -> Vec<usize> {
    let width = |(i, name): (usize, &&str)| {
        let (a, b) = halves(name);
        let least = if i == 0 { first } else { others };
        least.max(a.chars().count().max(b.chars().count()) + 1)
    };
    names.iter().enumerate().map(width).collect()
}

/// The header, names to the right over their columns. One line where no name splits.
pub(super) fn header(
    f: &mut fmt::Formatter<'_>,
    margin: usize,
    names: &[&str],
    widths: &[usize],
) -> fmt::Result {
    let mut lines = [" ".repeat(margin), " ".repeat(margin)];
    for (name, width) in names.iter().zip(widths) {
        let (first, second) = halves(name);
        write!(lines[0], "{first:>width$}")?;
        write!(lines[1], "{second:>width$}")?;
    }
    for line in lines.iter().map(|l| l.trim_end()).filter(|l| !l.is_empty()) {
        writeln!(f, "{line}")?;
    }
    Ok(())
}

/// NaN is printed as 0 (§5.4).
pub(super) fn zero(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_3_names_split_at_the_first_dash() {
        assert_eq!(halves("5.4.0-rc3-vanilla"), ("5.4.0-rc3", "vanilla"));
        assert_eq!(halves("5.17.0-rc3-mm-highpcpopt-v1"), ("5.17.0-rc3", "mm-highpcpopt-v1"));
        assert_eq!(halves("5.4.0-rc3"), ("5.4.0-rc3", ""));
        assert_eq!(halves("5.4.0-resetpcpu-v2"), ("5.4.0", "resetpcpu-v2"));
        assert_eq!(halves("5.4.0-rcu-v2"), ("5.4.0", "rcu-v2"));
        assert_eq!(halves("5.4.0-rc3x"), ("5.4.0", "rc3x"));
        assert_eq!(halves("Linux612"), ("Linux612", ""));
    }

    #[test]
    fn columns_widen_for_long_names() {
        let long = "NoHighOrder<TwoPassBulkFree<Linux612>>";
        assert_eq!(widths(&["a-b", long], 23, 23), [23, long.len() + 1]);
        assert_eq!(widths(&["a", "b"], 12, 13), [12, 13]);
    }
}
