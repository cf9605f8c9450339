//! Numbers as text: one form for all tables, reports and messages. [`size()`](crate::size()) parses
//! what [`size`] prints.

/// Formats a number of bytes in the largest binary unit of which there is at least one: whole
/// multiples without a fraction, others with one digit after the point.
///
/// ```
/// use pageyard_machine::format::size;
///
/// assert_eq!((size(4096), size(24_536_678)), ("4 KiB".into(), "23.4 MiB".into()));
/// ```
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut at = (63 - (bytes | 1).leading_zeros()) as usize / 10;
    if bytes.is_multiple_of(1 << (10 * at)) {
        return format!("{} {}", bytes >> (10 * at), UNITS[at]);
    }
    let mut value = bytes as f64 / (1u64 << (10 * at)) as f64;
    // 1023.96 would be rounded to a whole larger unit.
    if value >= 1023.95 && at + 1 < UNITS.len() {
        (value, at) = (1.0, at + 1);
    }
    format!("{value:.1} {}", UNITS[at])
}

/// Formats a number of bytes exactly, as files and options have it: in the largest unit that divides it.
///
/// ```
/// use pageyard_machine::format::exact_size;
///
/// assert_eq!((exact_size(256 << 20), exact_size(4097)), ("256M".into(), "4097".into()));
/// ```
pub fn exact_size(bytes: u64) -> String {
    for (shift, unit) in [(40, "T"), (30, "G"), (20, "M"), (10, "K")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Formats a number of pages of 4 KiB as [`size`] does.
pub fn pages(pages: u64) -> String {
    // Not more than an address space; other figures come from processes that are not trusted.
    size(pages.saturating_mul(4096))
}

/// Formats a whole number with blanks between groups of three digits.
///
/// ```
/// assert_eq!(pageyard_machine::format::grouped(1234567), "1 234 567");
/// ```
pub fn grouped(n: u64) -> String {
    group(&n.to_string(), ' ')
}

/// Formats a number of things, with a plural in `s` if it is not 1.
///
/// ```
/// use pageyard_machine::format::many;
///
/// assert_eq!((many(1, "page"), many(2048, "page")), ("1 page".into(), "2 048 pages".into()));
/// ```
pub fn many(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{} {one}s", grouped(n)) }
}

/// Puts a separator between groups of three digits.
fn group(digits: &str, separator: char) -> String {
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(separator);
        }
        out.push(c);
    }
    out
}

/// Formats a number: whole numbers as [`grouped`] does, others with five significant digits, and
/// with all digits before the point.
///
/// ```
/// use pageyard_machine::format::number;
///
/// assert_eq!((number(12.5), number(83362.0)), ("12.500".into(), "83 362".into()));
/// ```
pub fn number(x: f64) -> String {
    number_with(x, ' ')
}

/// [`number`] with this separator between groups of digits.
pub fn number_with(x: f64, separator: char) -> String {
    if !x.is_finite() {
        return if x.is_nan() { "no number" } else { ["∞", "-∞"][usize::from(x < 0.0)] }.into();
    }
    let before = if x == 0.0 { 1 } else { x.abs().log10().floor() as i32 + 1 };
    let whole = x == x.trunc() && x.abs() < 1e15;
    let digits = if whole { 0 } else { (5 - before).clamp(0, 12) as usize };
    let text = format!("{:.digits$}", x.abs());
    let (whole, rest) = text.split_once('.').map_or((&*text, None), |(w, r)| (w, Some(r)));
    let sign = if x < 0.0 { "-" } else { "" };
    let rest = rest.map_or(String::new(), |rest| format!(".{rest}"));
    format!("{sign}{}{rest}", group(whole, separator))
}

/// Formats a rate per second in at most four digits: `950`, `12.3 k`, `33.1 M`.
///
/// ```
/// assert_eq!(pageyard_machine::format::rate(33.14e6), "33.1 M");
/// ```
pub fn rate(per_second: f64) -> String {
    let (value, unit) = match per_second {
        n if n >= 999.95e9 => (n / 1e12, " T"),
        n if n >= 999.95e6 => (n / 1e9, " G"),
        n if n >= 999.95e3 => (n / 1e6, " M"),
        n if n >= 999.5 => (n / 1e3, " k"),
        n => return format!("{n:.0}"),
    };
    format!("{value:.1}{unit}")
}

/// Formats a duration in the largest unit of which there is at least one.
///
/// ```
/// use pageyard_machine::format::duration;
///
/// assert_eq!((duration(36), duration(2_500_000_000)), ("36 ns".into(), "2.50 s".into()));
/// ```
pub fn duration(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => {
            let seconds = format!("{:.2}", ns as f64 / 1e9);
            let (whole, rest) = seconds.split_once('.').unwrap_or((&seconds, ""));
            format!("{}.{rest} s", group(whole, ' '))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_one_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1152 << 30, "1.1 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((pages(3), pages(u64::MAX)), ("12 KiB".into(), "16.0 EiB".into()));
    }

    #[test]
    fn numbers_have_five_digits_and_groups() {
        for (x, text) in [
            (0.0, "0"),
            (540.0, "540"),
            (-1234567.0, "-1 234 567"),
            (0.00012345678, "0.00012346"),
            (12.5, "12.500"),
            (-1234.56, "-1 234.6"),
            (3517878.297, "3 517 878"),
            (f64::INFINITY, "∞"),
            (f64::NEG_INFINITY, "-∞"),
            (f64::NAN, "no number"),
        ] {
            assert_eq!(number(x), text);
        }
        assert_eq!(
            (grouped(0), grouped(999), grouped(1000)),
            ("0".into(), "999".into(), "1 000".into())
        );
    }

    /// What the program prints, a user may copy into an option: the same size, or what was rounded
    /// to it.
    #[test]
    fn printed_sizes_are_parsed() {
        let near = [1, 2, 3, 1023, 1024, 1025, 1536].into_iter();
        let sizes = near.flat_map(|n| (0..7).map(move |unit| n << (10 * unit)));
        for bytes in sizes.filter(|n| n >> 62 == 0).chain([0, u64::MAX]) {
            let text = size(bytes);
            let parsed = crate::size(&text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(size(parsed).replace(".0 ", " "), text.replace(".0 ", " "));
            assert!(parsed.abs_diff(bytes) <= bytes / 20, "{bytes}: {text}");
            if !text.contains('.') {
                assert_eq!(parsed, bytes);
            }
        }
        assert_eq!(crate::size(&pages(3)), Ok(12288));
    }

    #[test]
    fn durations_have_one_unit() {
        for (ns, text) in [
            (999, "999 ns"),
            (1_536, "1.5 µs"),
            (2_000_000, "2.0 ms"),
            (60_000_000_000, "60.00 s"),
            (7_200_000_000_000, "7 200.00 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn rates_have_four_digits() {
        for (n, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1.0 k"),
            (12_345.0, "12.3 k"),
            (999_960.0, "1.0 M"),
            (2e9, "2.0 G"),
            (7e12, "7.0 T"),
        ] {
            assert_eq!(rate(n), text);
        }
    }
}
