//! Escapes untrusted text so that a terminal shows every character and acts on none.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns whether a terminal acts on a character instead of showing it, or reorders text because
/// of it. These are control characters (C0, DEL and C1), line and paragraph separators, and the
/// marks and overrides of bidirectional text.
#[must_use]
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// Escapes each [active](is_active) character as in a Rust string literal: `\n`, `\t`, `\r`,
/// otherwise like `\u{1b}`. Everything printed that came from a file or another process passes
/// through this function, including errors.
///
/// ```
/// use pageyard_trace::printable;
///
/// assert_eq!(printable("zone Normal"), "zone Normal");
/// assert_eq!(printable("\u{1b}[2Jowned\n"), "\\u{1b}[2Jowned\\n");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    let Some(first) = text.find(is_active) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_active(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Converts a name from a recording to text. Printable UTF-8 is kept and other bytes are escaped as
/// `\xNN`, so different names stay different. The character `keep` is kept too.
pub(crate) fn name_from_bytes(bytes: &[u8], keep: Option<char>) -> String {
    let mut out = String::with_capacity(bytes.len());
    let escape = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(out, "\\x{byte:02x}");
        }
    };
    for part in bytes.utf8_chunks() {
        let mut rest = part.valid();
        while let Some(at) = rest.find(|c| Some(c) != keep && is_active(c)) {
            let (before, from) = rest.split_at(at);
            out.push_str(before);
            let width = from.chars().next().map_or(0, char::len_utf8);
            escape(&mut out, &from.as_bytes()[..width]);
            rest = &from[width..];
        }
        out.push_str(rest);
        escape(&mut out, part.invalid());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_active_characters_are_escaped() {
        for c in '\0'..=char::MAX {
            let text = format!("a{c}b");
            let shown = printable(&text);
            assert!(!shown.contains(is_active), "{c:?}");
            assert_eq!(shown == text, !is_active(c), "{c:?}");
            let name = name_from_bytes(text.as_bytes(), Some('\t'));
            assert!(!name.contains(|c| c != '\t' && is_active(c)), "{c:?}");
        }
        for c in ['\u{7f}', '\u{9b}', '\u{61c}', '\u{202e}', '\u{2066}', '\u{2028}'] {
            assert!(is_active(c), "{c:?}");
        }
        assert_eq!(printable("a\tb\u{9b}31m\u{202e}"), "a\\tb\\u{9b}31m\\u{202e}");
    }

    #[test]
    fn escaped_names_stay_distinct() {
        let name = |bytes: &[u8]| name_from_bytes(bytes, None);
        assert_eq!(name("kworker/0:1 é".as_bytes()), "kworker/0:1 é");
        assert_eq!(name(b"a\x1b[31m\xffz"), "a\\x1b[31m\\xffz");
        assert_eq!(name("\u{9b}\u{202e}".as_bytes()), "\\xc2\\x9b\\xe2\\x80\\xae");
        // Escaping is idempotent.
        assert_eq!(name(name(b"\x1b\xff").as_bytes()), name(b"\x1b\xff"));
        assert_eq!(name_from_bytes(b"a\tb\x07", Some('\t')), "a\tb\\x07");
    }
}
