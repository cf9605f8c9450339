//! Bytes of an input, decompressed, through a window that grows only as needed.

pub(crate) mod bound;
mod compression;
mod decompressed;
mod source;

pub(crate) use compression::{Used, decompress_all, read_at_most};
pub use decompressed::Decompressed;
pub(crate) use source::Source;

/// Progress of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read from the input so far, before decompression.
    pub consumed: u64,
    /// Size of the input in bytes, if it is a regular file.
    pub total: Option<u64>,
}
