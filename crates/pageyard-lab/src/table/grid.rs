//! A plain grid: the first column is left-aligned, all others right-aligned.
//!
//! The formatter's width, if it has one, is the maximum length of a line. A wider grid is folded
//! into blocks of columns, each with the first column; where not even one column fits beside the
//! first, every row becomes a list of its cells.

use std::fmt;
use std::ops::Range;

/// How a grid is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Number of rows that are headings, repeated over every block. The first one names the cells.
    pub(super) headings: usize,
    /// Number of columns that stay together, from the third column on; the second, the base,
    /// stands alone.
    pub(super) together: usize,
}

impl Layout {
    /// One row of headings; columns may be divided anywhere.
    pub(super) const PLAIN: Layout = Layout { headings: 1, together: 1 };
}

/// Prints rows of equal length, with two blanks between columns.
pub(super) fn print(
    f: &mut fmt::Formatter<'_>,
    rows: &[Vec<String>],
    layout: Layout,
) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|r| r.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let Some(blocks) = blocks(&widths, layout.together, f.width()) else {
        return list(f, rows, layout.headings);
    };
    for (i, block) in blocks.into_iter().enumerate() {
        if i > 0 {
            writeln!(f)?;
        }
        for row in rows {
            let mut line = row.first().map_or(String::new(), |c| format!("{c:0$}", widths[0]));
            for (cell, width) in row.iter().zip(&widths).take(block.end).skip(block.start) {
                line += &format!("  {cell:>width$}");
            }
            writeln!(f, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

/// Returns the columns of each block; `None` if one of them is wider than a line.
fn blocks(widths: &[usize], together: usize, most: Option<usize>) -> Option<Vec<Range<usize>>> {
    let label = widths.first().copied().unwrap_or(0);
    let all = label + widths.iter().skip(1).map(|w| 2 + w).sum::<usize>();
    if widths.len() < 2 || most.is_none_or(|most| all <= most) {
        return Some(std::iter::once(1..widths.len().max(1)).collect());
    }
    let most = most?;
    let (mut blocks, mut at): (Vec<Range<usize>>, usize) = (Vec::new(), 1);
    let mut used = label;
    while at < widths.len() {
        let end = if at == 1 { 2 } else { (at + together).min(widths.len()) };
        let more: usize = widths[at..end].iter().map(|w| 2 + w).sum();
        match blocks.last_mut() {
            Some(last) if used + more <= most => last.end = end,
            _ => {
                used = label;
                if used + more > most {
                    return None;
                }
                blocks.push(at..end);
            }
        }
        used += more;
        at = end;
    }
    Some(blocks)
}

/// Prints every row as its label and, below it, its cells with the names of their columns.
fn list(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>], headings: usize) -> fmt::Result {
    let names = rows.first().map_or(&[][..], |names| names.get(1..).unwrap_or(&[]));
    let most = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
    for row in rows.iter().skip(headings) {
        let mut cells = row.iter();
        wrapped(f, cells.next().map_or("", String::as_str), "")?;
        for (name, cell) in names.iter().zip(cells) {
            wrapped(f, &format!("  {name:most$}  {}", cell.trim()), "      ")?;
        }
    }
    Ok(())
}

/// Prints a line, wrapped to the formatter's width; further lines begin with `indent`.
pub(super) fn wrapped(f: &mut fmt::Formatter<'_>, text: &str, indent: &str) -> fmt::Result {
    let Some(width) = f.width() else { return writeln!(f, "{text}") };
    if text.chars().count() <= width {
        return writeln!(f, "{text}");
    }
    let options = textwrap::Options::new(width).subsequent_indent(indent);
    wrapped_lines(text, options).iter().try_for_each(|line| writeln!(f, "{line}"))
}

/// Wraps a text into lines, of which none ends between the groups of a number.
pub(crate) fn wrapped_lines(text: &str, options: textwrap::Options<'_>) -> Vec<String> {
    let text = joined(text);
    textwrap::wrap(&text, options).iter().map(|l| l.trim_end().replace(JOINT, " ")).collect()
}

/// Stands for a blank at which no line ends.
const JOINT: char = '\u{a0}';

/// Replaces the blanks between groups of digits.
fn joined(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let is_digit =
        |i: Option<usize>| i.and_then(|i| chars.get(i)).is_some_and(char::is_ascii_digit);
    let within = |i: usize| {
        let group = (1..4).all(|n| is_digit(Some(i + n))) && !is_digit(Some(i + 4));
        chars[i] == ' ' && group && is_digit(i.checked_sub(1))
    };
    (0..chars.len()).map(|i| if within(i) { JOINT } else { chars[i] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Grid(Vec<Vec<String>>, Layout);

    impl fmt::Display for Grid {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            print(f, &self.0, self.1)
        }
    }

    fn grid(together: usize) -> Grid {
        let rows = ["|base|one|change", "time|12.5|13.5|+8.00% better", "rate|7|9|+28.57% ~"];
        let rows = rows.map(|r| r.split('|').map(String::from).collect());
        Grid(rows.to_vec(), Layout { headings: 1, together })
    }

    #[test]
    fn a_wide_grid_is_folded_and_no_line_is_too_long() {
        let whole = "      base   one         change\n\
                     time  12.5  13.5  +8.00% better\n\
                     rate     7     9      +28.57% ~\n";
        assert_eq!(grid(1).to_string(), whole);
        assert_eq!(format!("{:31}", grid(2)), whole);
        assert_eq!(
            format!("{:25}", grid(2)),
            "      base\ntime  12.5\nrate     7\n\n       one         change\n\
             time  13.5  +8.00% better\nrate     9      +28.57% ~\n"
        );
        assert_eq!(
            format!("{:24}", grid(1)),
            "      base   one\ntime  12.5  13.5\nrate     7     9\n\n             change\n\
             time  +8.00% better\nrate      +28.57% ~\n"
        );
        assert_eq!(
            format!("{:20}", grid(2)),
            "time\n  base    12.5\n  one     13.5\n  change  +8.00%\n      better\n\
             rate\n  base    7\n  one     9\n  change  +28.57% ~\n"
        );
        // No line ends within a number.
        let rows = ["|base|one", "time in us|1 234 567 [1 200 000, 1 300 000]|12 345 678"];
        let rows: Vec<Vec<String>> =
            rows.iter().map(|r| r.split('|').map(String::from).collect()).collect();
        for width in 18..60 {
            let text = format!("{:width$}", Grid(rows.clone(), Layout::PLAIN));
            for number in ["1 234 567", "1 200 000", "1 300 000", "12 345 678"] {
                assert!(text.contains(number), "{width}:\n{text}");
            }
            assert!(text.lines().all(|l| l.len() <= width), "{width}:\n{text}");
        }
        // In narrower ones, words are divided.
        for width in 13..40 {
            for together in [1, 2] {
                let text = format!("{:width$}", grid(together));
                assert!(text.lines().all(|l| l.len() <= width), "{width}:\n{text}");
                assert!(text.contains("7") && text.contains("better"), "{width}:\n{text}");
            }
        }
    }
}
