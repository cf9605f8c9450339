//! Why a setting was refused, or has nothing to say: with the name and the value, without a heap.

use core::fmt::{self, Write};

use crate::base::put::{Put, put};

/// How many bytes of a text an [`Excerpt`] holds.
const EXCERPT: usize = 38;

/// The beginning of a text that somebody else owns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Excerpt {
    bytes: [u8; EXCERPT],
    len: u8,
    cut: bool,
}

impl Excerpt {
    /// A value's text, as far as it fits.
    pub(crate) fn of(value: impl Put) -> Excerpt {
        let mut e = Excerpt { bytes: [0; EXCERPT], len: 0, cut: false };
        // It takes what fits and never fails.
        let _ = value.put(&mut e);
        e
    }

    /// The text, or its first bytes.
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

/// Why a setting was not written or read. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KnobError {
    /// There is no setting of this name; [`KNOBS`](crate::KNOBS) lists them.
    Unknown {
        /// The name asked for.
        name: Excerpt,
    },
    /// The value is none that the setting takes.
    Refused {
        /// Which setting.
        name: &'static str,
        /// The value refused.
        value: Excerpt,
        /// What it takes.
        range: &'static str,
    },
    /// The setting cannot be written any more.
    ReadOnly {
        /// Which setting.
        name: &'static str,
        /// Where it is chosen.
        chosen: &'static str,
    },
    /// The setting can be written, but there is nothing to read.
    WriteOnly {
        /// Which setting.
        name: &'static str,
    },
    /// The kernel has it as a setting; here something else decides.
    Elsewhere {
        /// Which setting.
        name: &'static str,
        /// What decides.
        decides: &'static str,
    },
    /// The writer that was to take the value did not take it.
    NoRoom {
        /// Which setting.
        name: &'static str,
    },
}

impl KnobError {
    /// Writes what [`Display`](fmt::Display) shows, on less stack than `core::fmt` takes.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            KnobError::Unknown { name } => {
                put!(out, "there is no knob \"")?;
                for c in name.as_str().chars() {
                    // The quote that does not end it stays as it is.
                    match c {
                        '\'' => put!(out, c)?,
                        _ => c.escape_default().try_for_each(|c| put!(out, c))?,
                    }
                }
                put!(out, '"')
            }
            KnobError::Refused { name, value, range } => {
                let dots = if value.cut { "..." } else { "" };
                put!(out, name, " = ", value.as_str(), dots, ": it takes ", range)
            }
            KnobError::ReadOnly { name, chosen } => {
                put!(out, name, " cannot be written: it is chosen by ", chosen)
            }
            KnobError::WriteOnly { name } => {
                put!(out, name, " can only be written: there is nothing to read")
            }
            KnobError::Elsewhere { name, decides } => {
                put!(out, name, " is not a setting of a yard: ", decides)
            }
            KnobError::NoRoom { name } => {
                put!(out, name, ": the writer did not take its value")
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
        // 12 times three bytes, and no room for a thirteenth.
        let e = Excerpt::of("€€€€€€€€€€€€€€€€");
        assert_eq!((e.as_str().len(), e.cut), (36, true));
        // What comes after the cut must not sneak in behind it.
        let mut e = Excerpt::of("€€€€€€€€€€€€€");
        e.write_str("ab").unwrap();
        assert_eq!(e.as_str().len(), 36);
    }
}
