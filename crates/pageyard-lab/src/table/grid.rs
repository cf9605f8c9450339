//! A plain grid: the first column is left-aligned, all others right-aligned.

use std::fmt;

/// Prints rows of equal length, with two blanks between columns.
pub(super) fn print(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |i: usize| {
        rows.iter().filter_map(|r| r.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &if i == 0 { format!("{cell:width$}") } else { format!("  {cell:>width$}") };
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
