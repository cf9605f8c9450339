//! Writes text piece by piece, without `core::fmt`.
//!
//! `core::fmt` calls through pointers, so the stack use of a text cannot be read from the machine
//! code, and each level of it takes some hundred bytes. Kernels write these texts on stacks of a
//! few KiB.

use core::fmt::{self, Write};

/// Number of digits of the largest number.
const DIGITS: usize = 20;

/// A piece of a text.
pub(crate) trait Put: Copy {
    /// Writes the piece as `{}` does.
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result;

    /// Returns the number of characters that `put` writes.
    fn width(self) -> usize;
}

/// Writes pieces one after another.
macro_rules! put {
    ($out:expr, $($piece:expr),+ $(,)?) => {
        Ok::<(), core::fmt::Error>(())
            $(.and_then(|()| $crate::base::put::Put::put($piece, &mut *$out)))+
    };
}
pub(crate) use put;

/// A piece padded with blanks on the left, like `{:>n}`.
#[derive(Clone, Copy)]
pub(crate) struct Right<T>(pub(crate) T, pub(crate) usize);

/// A piece padded with blanks on the right, like `{:<n}`.
#[derive(Clone, Copy)]
pub(crate) struct Left<T>(pub(crate) T, pub(crate) usize);

impl Put for &str {
    #[inline]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        out.write_str(self)
    }

    fn width(self) -> usize {
        self.chars().count()
    }
}

impl Put for char {
    #[inline]
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        out.write_str(self.encode_utf8(&mut [0; 4]))
    }

    fn width(self) -> usize {
        1
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

    fn width(self) -> usize {
        self.checked_ilog10().unwrap_or(0) as usize + 1
    }
}

impl Put for i64 {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        if self < 0 {
            out.write_str("-")?;
        }
        self.unsigned_abs().put(out)
    }

    fn width(self) -> usize {
        usize::from(self < 0) + self.unsigned_abs().width()
    }
}

macro_rules! as_u64 {
    ($($number:ty),+) => {$(
        impl Put for $number {
            #[inline]
            fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
                (self as u64).put(out)
            }

            fn width(self) -> usize {
                (self as u64).width()
            }
        }
    )+};
}
as_u64!(u8, u16, u32, usize);

impl<T: Put> Put for Right<T> {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        blanks(out, self.1.saturating_sub(self.0.width()))?;
        self.0.put(out)
    }

    fn width(self) -> usize {
        self.0.width().max(self.1)
    }
}

impl<T: Put> Put for Left<T> {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        self.0.put(out)?;
        blanks(out, self.1.saturating_sub(self.0.width()))
    }

    fn width(self) -> usize {
        self.0.width().max(self.1)
    }
}

fn blanks<W: Write + ?Sized>(out: &mut W, n: usize) -> fmt::Result {
    (0..n).try_for_each(|_| out.write_str(" "))
}

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
        for n in [0, 9, 10, 99_999, 100_000, 1_234_567, u64::MAX] {
            for width in [0, 1, 6, 30] {
                let mut text = String::new();
                put!(&mut text, Right(n, width), '|', Left(n, width), '|').unwrap();
                assert_eq!(text, format!("{n:>width$}|{n:<width$}|"));
            }
        }
        let mut text = String::new();
        put!(&mut text, Right("äöü", 5), Left("äöü", 5), Left("long", 2), '|').unwrap();
        assert_eq!(text, format!("{:>5}{:<5}{:<2}|", "äöü", "äöü", "long"));
    }

    #[test]
    fn a_writer_that_fails_ends_the_text() {
        struct Full;
        impl Write for Full {
            fn write_str(&mut self, _: &str) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        assert!(put!(&mut Full, Right(1u64, 3)).is_err());
        assert!(put!(&mut Full, -1i64).is_err());
    }
}
