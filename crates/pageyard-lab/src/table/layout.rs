//! The layout of mmtests' tables: labels are left-aligned, columns are right-aligned under two lines
//! of names.

use std::fmt::{self, Write as _};
use std::ops::Range;

use super::grid::wrapped;

/// Width of the value and of ` (   0.00%)` in a column of a table with percentages.
pub(super) const PERCENT: usize = 23;

/// Splits a column's name into two lines: at the first `-`, but a following `-rcN` stays with the
/// first half.
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

/// Returns the widths of all columns: mmtests' own, or wider if a name needs it. The field of a
/// name is one blank wider than the name.
pub(super) fn widths(names: &[&str], first: usize, others: usize) -> Vec<usize> {
    let width = |(i, name): (usize, &&str)| {
        let (a, b) = halves(name);
        let least = if i == 0 { first } else { others };
        least.max(a.chars().count().max(b.chars().count()) + 1)
    };
    names.iter().enumerate().map(width).collect()
}

/// Divides the columns into blocks, each of which fits in a line beside the labels if a single
/// column does. The formatter's width is the length of a line.
pub(super) fn blocks(f: &fmt::Formatter<'_>, margin: usize, widths: &[usize]) -> Vec<Range<usize>> {
    let most = f.width().unwrap_or(usize::MAX);
    let (mut blocks, mut used): (Vec<Range<usize>>, usize) = (Vec::new(), 0);
    for (i, width) in widths.iter().enumerate() {
        match blocks.last_mut() {
            Some(last) if used + width <= most => last.end = i + 1,
            _ => {
                blocks.push(i..i + 1);
                used = margin;
            }
        }
        used += width;
    }
    blocks
}

/// Prints the header, names right-aligned over their columns. It has one line if no name splits.
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
    let mut lines = lines.iter().map(|l| l.trim_end()).filter(|l| !l.is_empty());
    lines.try_for_each(|line| wrapped(f, line, "  "))
}

/// Maps NaN to 0, as NaN is printed.
pub(super) fn zero(x: f64) -> f64 {
    if x.is_nan() { 0.0 } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_at_the_first_dash_after_a_release_candidate() {
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
