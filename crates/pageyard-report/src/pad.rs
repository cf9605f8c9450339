//! Pieces of a text, padded to a width.

use core::fmt::{self, Write};

use pageyard::put::Put;

/// A piece whose width is known before it is written.
pub(crate) trait Width: Put {
    /// Returns the number of characters that `put` writes.
    fn width(self) -> usize;
}

/// A piece padded with blanks on the left, like `{:>n}`.
#[derive(Clone, Copy)]
pub(crate) struct Right<T>(pub(crate) T, pub(crate) usize);

/// A piece padded with blanks on the right, like `{:<n}`.
#[derive(Clone, Copy)]
pub(crate) struct Left<T>(pub(crate) T, pub(crate) usize);

impl Width for &str {
    fn width(self) -> usize {
        self.chars().count()
    }
}

impl Width for u64 {
    fn width(self) -> usize {
        self.checked_ilog10().unwrap_or(0) as usize + 1
    }
}

impl Width for u16 {
    fn width(self) -> usize {
        u64::from(self).width()
    }
}

impl Width for usize {
    fn width(self) -> usize {
        (self as u64).width()
    }
}

impl<T: Width> Put for Right<T> {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        blanks(out, self.1.saturating_sub(self.0.width()))?;
        self.0.put(out)
    }
}

impl<T: Width> Put for Left<T> {
    fn put<W: Write + ?Sized>(self, out: &mut W) -> fmt::Result {
        self.0.put(out)?;
        blanks(out, self.1.saturating_sub(self.0.width()))
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

    use pageyard::put::put;

    use super::*;

    #[test]
    fn pieces_are_padded_as_core_fmt_pads_them() {
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
    fn a_writer_that_fails_ends_the_padding() {
        struct Full;
        impl Write for Full {
            fn write_str(&mut self, _: &str) -> fmt::Result {
                Err(fmt::Error)
            }
        }
        assert!(put!(&mut Full, Right(1u64, 3)).is_err());
    }
}
