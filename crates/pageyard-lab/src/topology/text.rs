//! Text values of a description: sizes, ranges of addresses, lists of CPUs.

use std::ops::Range;

use pageyard_machine::size;

use super::machine::MOST_CPUS;

/// Parses a range of addresses `from..to`, each written as a size.
pub(super) fn range(text: &str) -> Result<Range<u64>, String> {
    let Some((from, to)) = text.split_once("..") else {
        return Err(format!(
            "`{text}` is not a range of addresses; expected a range such as 4G..20G"
        ));
    };
    let range = size(from)?..size(to)?;
    if range.start >= range.end {
        return Err(format!("the range {text} ends before it starts, or is empty"));
    }
    Ok(range)
}

/// Parses numbers in the form of the kernel's CPU lists: `0-3,8,10-11`. Empty text is an empty
/// list.
pub(super) fn numbers(text: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("`{text}` is not a list of CPUs; expected a list such as 0-3,8");
    let mut out = Vec::new();
    for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().map_err(|_| wrong())?;
        let last: u32 = last.trim().parse().map_err(|_| wrong())?;
        if first > last || last >= MOST_CPUS {
            return Err(format!("CPUs {part}: expected ascending numbers below {}", MOST_CPUS));
        }
        out.extend(first..=last);
        if out.len() > MOST_CPUS as usize {
            return Err(format!("CPUs {part}: duplicates; name each once"));
        }
    }
    Ok(out)
}

/// Formats numbers as a CPU list.
pub(super) fn list(numbers: &[u32]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run = rest.iter().zip(first..).take_while(|&(&n, i)| n == i).count();
        let last = rest[run - 1];
        out.push(if run == 1 { first.to_string() } else { format!("{first}-{last}") });
        rest = &rest[run..];
    }
    out.join(",")
}

#[cfg(test)]
mod tests {
    use pageyard_machine::format::exact_size;

    use super::*;

    #[test]
    fn sizes_ranges_and_lists() {
        assert_eq!(size("512K"), Ok(512 << 10));
        assert_eq!(size(" 16GiB"), Ok(16 << 30));
        assert_eq!(size("0"), Ok(0));
        assert!(size("16X").is_err() && size("").is_err() && size("99999999T").is_err());
        assert_eq!(range("4G..20G"), Ok(4 << 30..20 << 30));
        assert!(range("4G-20G").is_err() && range("4G..4G").is_err());
        assert_eq!(numbers("0-3,8"), Ok(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers(""), Ok(vec![]));
        assert!(numbers("3-1").is_err() && numbers("a").is_err() && numbers("0-99999").is_err());
        assert_eq!(list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!([0, 1536, 8 << 20].map(exact_size), ["0", "1536", "8M"]);
    }
}
