//! Errors of reading and writing settings, with the name and the value, without a heap.

use core::fmt::{self, Write};

use crate::base::put::{Put, put};

/// Maximum length of an [`Excerpt`] in bytes.
const EXCERPT: usize = 38;

/// The beginning of a text, copied so that the original need not outlive it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; EXCERPT],
    len: u8,
    cut: bool,
}

impl Excerpt {
    /// Returns a value's text, truncated if it does not fit.
    pub(crate) fn of(value: impl Put) -> Excerpt {
        let mut e = Excerpt { bytes: [0; EXCERPT], len: 0, cut: false };
        // An `Excerpt` truncates instead of failing.
        let _ = value.put(&mut e);
        e
    }

    /// Returns the text, truncated to its first bytes if it was too long.
    pub fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.len.into()).unwrap_or_default();
        core::str::from_utf8(text).unwrap_or_default()
    }
}

impl Write for Excerpt {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        for c in s.chars() {
            let at = usize::from(self.len);
            let size = c.len_utf8();
            self.cut |= at + size > EXCERPT;
            if self.cut {
                break;
            }
            let mut utf8 = [0; 4];
            c.encode_utf8(&mut utf8);
            for (to, from) in self.bytes.iter_mut().skip(at).zip(utf8.iter().take(size)) {
                *to = *from;
            }
            self.len += size as u8;
        }
        Ok(())
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if self.cut { f.write_str("...") } else { Ok(()) }
    }
}

impl fmt::Debug for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Why a setting was not written or read. Nothing has changed.
///
/// ```
/// use pageyard::{KnobError, Knobs};
///
/// let error = Knobs::default().set("min_free_kbyte", "512").unwrap_err();
/// assert!(matches!(error, KnobError::Unknown { .. }));
/// println!("{error}"); // names the setting
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnobError {
    /// There is no setting of this name; [`KNOBS`](crate::KNOBS) lists them.
    Unknown {
        /// The requested name.
        name: Excerpt,
    },
    /// The setting does not accept the value.
    Refused {
        /// The setting's name.
        name: &'static str,
        /// The rejected value.
        value: Excerpt,
        /// The accepted range.
        range: &'static str,
    },
    /// The setting is read-only.
    ReadOnly {
        /// The setting's name.
        name: &'static str,
        /// Where the setting is chosen.
        chosen: &'static str,
    },
    /// The setting is write-only.
    WriteOnly {
        /// The setting's name.
        name: &'static str,
    },
    /// A kernel setting that the allocator does not have.
    Elsewhere {
        /// The setting's name.
        name: &'static str,
        /// What decides instead.
        decides: &'static str,
    },
    /// The writer rejected the value's text.
    NoRoom {
        /// The setting's name.
        name: &'static str,
    },
}

impl KnobError {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            KnobError::Unknown { name } => {
                put!(out, "unknown knob \"")?;
                for c in name.as_str().chars() {
                    // A single quote needs no escape inside double quotes.
                    match c {
                        '\'' => put!(out, c)?,
                        _ => c.escape_default().try_for_each(|c| put!(out, c))?,
                    }
                }
                put!(out, '"')
            }
            KnobError::Refused { name, value, range } => {
                let dots = if value.cut { "..." } else { "" };
                put!(out, name, " = ", value.as_str(), dots, ": expected ", range)
            }
            KnobError::ReadOnly { name, chosen } => {
                put!(out, name, " is read-only: it is chosen by ", chosen)
            }
            KnobError::WriteOnly { name } => {
                put!(out, name, " is write-only")
            }
            KnobError::Elsewhere { name, decides } => {
                put!(out, name, " is not a setting of a yard: ", decides)
            }
            KnobError::NoRoom { name } => {
                put!(out, name, ": the writer rejected its value")
            }
        }
    }
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl core::error::Error for KnobError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_end_between_characters() {
        assert_eq!(Excerpt::of("high").as_str(), "high");
        assert_eq!(Excerpt::of(-17i64).as_str(), "-17");
        let full = Excerpt::of("12345678901234567890123456789012345678");
        assert!(!full.cut && full.as_str().len() == 38);
        // 12 characters of three bytes; a thirteenth does not fit.
        let e = Excerpt::of("€€€€€€€€€€€€€€€€");
        assert_eq!((e.as_str().len(), e.cut), (36, true));
        // Nothing is appended after a truncation, even if it would fit.
        let mut e = Excerpt::of("€€€€€€€€€€€€€");
        e.write_str("ab").unwrap();
        assert_eq!(e.as_str().len(), 36);
    }
}
