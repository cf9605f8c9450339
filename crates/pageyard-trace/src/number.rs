//! Parses numbers in text, without signs, spaces or locale.

/// Parses a decimal number. Returns `None` if it has no digits, is malformed or exceeds 64 bits.
pub(crate) fn parse_decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Parses a number: hexadecimal after `0x`, otherwise decimal.
pub(crate) fn parse_number(text: &[u8]) -> Option<u64> {
    let [b'0', b'x' | b'X', digits @ ..] = text else { return parse_decimal(text) };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(parse_number(b"0x1dF8"), Some(0x1df8));
        assert_eq!(parse_number(b"42"), Some(42));
        assert_eq!(parse_number(b"0xffffffffffffffff"), Some(u64::MAX));
        assert_eq!(parse_decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in
            ["", "0x", "0x10000000000000000", "18446744073709551616", "-1", "+1", "1df8", " 1"]
        {
            assert_eq!(parse_number(bad.as_bytes()), None, "{bad}");
        }
    }
}
