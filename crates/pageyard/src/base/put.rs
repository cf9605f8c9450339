//! Writes text piece by piece, without `core::fmt`.
//!
//! `core::fmt` calls through pointers, so the stack use of a text cannot be read from the machine
//! code, and each level of it takes some hundred bytes. Kernels write texts on stacks of a few KiB.

use core::fmt::{self, Write};

use crate::base::units::Pfn;

/// Number of digits of the largest number.
const DIGITS: usize = 20;

/// A piece of a text.
///
/// ```
/// use pageyard::put::put;
///
/// let mut text = String::new();
/// put!(&mut text, "node ", 3u16, ": ", 1u64 << 40, " pages")?;
/// assert_eq!(text, "node 3: 1099511627776 pages");
/// # Ok::<(), core::fmt::Error>(())
/// ```
pub trait Put: Copy {
    /// Writes the piece as `{}` does.
    ///
    /// # Errors
    /// The errors of `out`.
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result;
}

/// Writes pieces ([`Put`](crate::put::Put)) one after another, up to the first error.
#[doc(hidden)]
#[macro_export]
macro_rules! put {
    ($out:expr, $($piece:expr),+ $(,)?) => {
        Ok::<(), ::core::fmt::Error>(())
            $(.and_then(|()| $crate::put::Put::put($piece, &mut *$out)))+
    };
}
#[doc(inline)]
pub use put;

impl Put for &str {
    #[inline]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        out.write_str(self)
    }
}

impl Put for char {
    #[inline]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        out.write_str(self.encode_utf8(&mut [0; 4]))
    }
}

impl Put for u64 {
    #[inline(never)]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        let mut digits = [b'0'; DIGITS];
        let mut rest = self;
        let mut first = DIGITS;
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (rest % 10) as u8;
            first = at;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = digits.get(first..).unwrap_or_default();
        out.write_str(core::str::from_utf8(digits).unwrap_or_default())
    }
}

impl Put for i64 {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        if self < 0 {
            out.write_str("-")?;
        }
        self.unsigned_abs().put(out)
    }
}

impl Put for Pfn {
    /// Writes the frame number in hexadecimal.
    #[inline(never)]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        out.write_str("0x")?;
        let digits = 16 - self.0.leading_zeros() / 4;
        for at in (0..digits.max(1)).rev() {
            let digit = (self.0 >> (4 * at)) as u8 & 0xf;
            let letter = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            char::from(letter).put(out)?;
        }
        Ok(())
    }
}

macro_rules! as_u64 {
    ($($number:ty),+) => {$(
        impl Put for $number {
            #[inline]
            fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
                (self as u64).put(out)
            }
        }
    )+};
}
as_u64!(u8, u16, u32, usize);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;
    use std::string::String;

    use super::*;

    #[test]
    fn pieces_are_formatted_like_core_fmt() {
        let mut text = String::new();
        put!(&mut text, "a", 'µ', 0u64, ' ', u64::MAX, ' ', i64::MIN, ' ', 7u8, 300u16, -1i64)
            .unwrap();
        assert_eq!(text, format!("aµ0 {} {} 7300-1", u64::MAX, i64::MIN));
        for pfn in [0, 9, 0x10, 0xabc_def0, u64::MAX].map(Pfn) {
            text.clear();
            put!(&mut text, pfn).unwrap();
            assert_eq!(text, format!("{pfn}"));
        }
    }

    #[test]
    fn a_writer_that_fails_ends_the_text() {
        struct Full;
        impl Write for Full {
            fn write_str(&mut self, _: &str) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        assert!(put!(&mut Full, 1u64, "never").is_err());
        assert!(put!(&mut Full, -1i64).is_err());
    }
}
