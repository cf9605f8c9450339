//! Detects the compression of an input from its first bytes.

use std::fmt;

/// Compression of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None.
    None,
    /// Zstandard, one or more frames.
    Zstd,
    /// xz, one or more streams.
    Xz,
    /// gzip, one or more members.
    Gzip,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::None => "plain",
            Compression::Zstd => "zstd",
            Compression::Xz => "xz",
            Compression::Gzip => "gzip",
        })
    }
}

/// Number of first bytes needed to detect the compression.
pub(crate) const SNIFF: usize = 6;

impl Compression {
    /// Detects the compression from the first bytes.
    pub(crate) fn sniff(head: &[u8]) -> Self {
        match head {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A skippable frame: tools put one before the first data frame.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [0x1f, 0x8b, ..] => Compression::Gzip,
            _ => Compression::None,
        }
    }
}
