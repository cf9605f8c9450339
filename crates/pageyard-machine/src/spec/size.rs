//! Parses sizes in bytes.

/// Parses a number of bytes: `4096`, `512K`, `2M`, `16G`, `1T`, and in the form in which
/// [`format::size`](crate::format::size) prints it: `4 KiB`, `1.5 GiB`. Units are powers of 1024. A
/// part of a byte is dropped.
///
/// # Errors
/// Fails on anything else; the message states the valid forms.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size; expected bytes, or 512K, 2M, 1.5G, 1T, or 64 MiB");
    let trimmed = text.trim();
    let number = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match trimmed[number.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        "P" | "PB" | "PIB" => 1 << 50,
        "E" | "EB" | "EIB" => 1u128 << 60,
        _ => return Err(wrong()),
    };
    let (whole, part) = match number.trim_end().split_once('.') {
        Some((whole, part)) => (whole, Some(part)),
        None => (number.trim_end(), None),
    };
    let digits = |text: &str| -> Option<u128> {
        let all = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        all.then(|| text.parse().ok()).flatten()
    };
    let bytes = || {
        let mut bytes = u128::from(u64::try_from(digits(whole)?).ok()?) * unit;
        if let Some(part) = part {
            // More digits than a byte of the largest unit needs.
            let exact = &part[..part.len().min(18)];
            bytes += digits(part).or_else(|| digits(exact)).map(|_| digits(exact))?? * unit
                / 10u128.pow(exact.len() as u32);
            // The largest number is printed as 16.0 EiB, one byte more.
            bytes -= u128::from(bytes == 1 << 64);
        }
        u64::try_from(bytes).ok()
    };
    bytes().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_suffixes_and_fractions() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4 KiB", 4096),
            (" 16GiB ", 16 << 30),
            ("1.5G", 3 << 29),
            ("0.5k", 512),
            ("1.00001 B", 1),
            ("1P", 1 << 50),
            ("16.0 EiB", u64::MAX),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "B",
            ".5G",
            "1.G",
            "1.x5G",
            "-1",
            "+1",
            "1 2",
            "1e3",
            "16X",
            "99999999T",
            "16E",
            "1..5G",
            "１G",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
