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
    let number = number.trim_end();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(part) {
        return Err(wrong());
    }
    let bytes = || {
        // More digits than a byte of the largest unit needs.
        let part = &part[..part.len().min(18)];
        let whole = u128::from(whole.parse::<u64>().ok()?) * unit;
        let part = part.parse::<u128>().ok()? * unit / 10u128.pow(part.len() as u32);
        // The largest number is printed as 16.0 EiB, one byte more.
        let bytes = whole + part;
        u64::try_from(bytes - u128::from(bytes == 1 << 64)).ok()
    };
    bytes().ok_or_else(|| format!("`{text}` is more than 16 EiB; expected a smaller size"))
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
            "1.000000000000000000x5",
            "1.00000000000000000é",
            "17E",
            "1..5G",
            "１G",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!(size("17E"), Err("`17E` is more than 16 EiB; expected a smaller size".into()));
    }
}
