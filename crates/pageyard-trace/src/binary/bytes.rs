//! Numbers in the recording machine's layout.

/// Byte order and word size of the machine that recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Whether the most significant byte comes first.
    pub(crate) big_endian: bool,
    /// Size of the kernel's `long` in bytes: 4 or 8.
    pub(crate) long: usize,
}

impl Layout {
    /// Returns the unsigned number that `bytes` hold, at most the first eight.
    pub(crate) fn number(self, bytes: &[u8]) -> u64 {
        let bytes = &bytes[..bytes.len().min(8)];
        let add = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
    }

    /// Returns the number of `size` bytes at `at`, if they are there.
    pub(crate) fn at(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        Some(self.number(bytes.get(at..at.checked_add(size)?)?))
    }

    /// Returns the 32-bit number at `at`, if it is there.
    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let bytes = bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) })
    }
}
