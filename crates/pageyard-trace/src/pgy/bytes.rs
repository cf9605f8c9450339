//! Reads and writes variable-length numbers.

/// A fault in the content of a chunk. Small, because every decoding step returns it.
pub(super) type Wrong = &'static str;

/// Appends a number, seven bits per byte, lowest first. The top bit means that more bytes follow.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length and the bytes.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Encodes a small difference in either direction as a small number.
pub(super) fn zigzag(from: u64, to: u64) -> u64 {
    let delta = to.wrapping_sub(from) as i64;
    (delta << 1 ^ delta >> 63) as u64
}

/// Inverse of [`zigzag`].
pub(super) fn unzigzag(from: u64, code: u64) -> u64 {
    from.wrapping_add(code >> 1 ^ (code & 1).wrapping_neg())
}

/// Reads from the front of a slice. Running out of bytes is a fault of the chunk.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

const SHORT: Wrong = "ends early";

impl<'a> Bytes<'a> {
    #[inline(always)]
    pub(super) fn byte(&mut self) -> Result<u8, Wrong> {
        let (&first, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(first)
    }

    #[inline(always)]
    pub(super) fn number(&mut self) -> Result<u64, Wrong> {
        // Nearly all numbers take one to three bytes.
        match *self.0 {
            [a, ref rest @ ..] if a < 0x80 => {
                self.0 = rest;
                Ok(u64::from(a))
            }
            [a, b, ref rest @ ..] if b < 0x80 => {
                self.0 = rest;
                Ok(u64::from(a & 0x7f) | u64::from(b) << 7)
            }
            [a, b, c, ref rest @ ..] if c < 0x80 => {
                self.0 = rest;
                Ok(u64::from(a & 0x7f) | u64::from(b & 0x7f) << 7 | u64::from(c) << 14)
            }
            _ => self.long_number(),
        }
    }

    #[cold]
    fn long_number(&mut self) -> Result<u64, Wrong> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err("a number exceeds 64 bits")
    }

    /// Reads a length, a count or an index, at most `limit`.
    pub(super) fn count(&mut self, limit: usize) -> Result<usize, Wrong> {
        let value = self.number()?;
        if value > limit as u64 {
            return Err("a count or length exceeds its limit");
        }
        Ok(value as usize)
    }

    pub(super) fn take(&mut self, n: usize) -> Result<Bytes<'a>, Wrong> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(SHORT)?;
        self.0 = rest;
        Ok(Bytes(taken))
    }

    pub(super) fn text(&mut self, limit: usize) -> Result<&'a str, Wrong> {
        let n = self.count(limit)?;
        str::from_utf8(self.take(n)?.0).map_err(|_| "a text is not UTF-8")
    }

    pub(super) fn end(&self) -> Result<(), Wrong> {
        if self.0.is_empty() { Ok(()) } else { Err("trailing bytes") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            let mut bytes = Bytes(&out);
            assert_eq!(bytes.number().unwrap(), value);
            assert!(bytes.end().is_ok());
        }
        assert!(Bytes(&[0x80]).number().is_err());
        assert!(Bytes(&[0xff; 11]).number().is_err());
    }

    #[test]
    fn differences_come_back() {
        for (from, to) in [(0, 0), (5, 4), (4, 5), (0, u64::MAX), (u64::MAX, 0), (1, 1 << 63)] {
            assert_eq!(unzigzag(from, zigzag(from, to)), to);
        }
        assert_eq!((zigzag(7, 7), zigzag(7, 6), zigzag(7, 8)), (0, 1, 2));
    }
}
