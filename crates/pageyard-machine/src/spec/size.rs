//! Parses sizes in bytes.

/// Parses a number of bytes: `4096`, `512K`, `2M`, `16G`, `1T`.
///
/// # Errors
/// Fails on anything else; the message states the valid forms.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; expected bytes, or 512K, 2M, 16G, 1T");
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match trimmed[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1u64 << 40,
        _ => return Err(wrong()),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
}
