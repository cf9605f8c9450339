//! Bytes of an input, decompressed, through one window that grows only as far as it must.

pub(crate) mod bound;
mod compression;
mod decompressed;
mod source;

pub(crate) use compression::{Used, decompress_all, read_at_most};
pub use decompressed::Decompressed;
pub(crate) use source::Source;

/// How far reading has come, for a progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes taken from the input so far, as it is stored (compressed).
    pub consumed: u64,
    /// Size of the input in bytes, if it is a regular file.
    pub total: Option<u64>,
}
