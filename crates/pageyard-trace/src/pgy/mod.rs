//! The compact trace format `.pgy`. Its layout is described in `docs/trace-format.md`.
//!
//! A file is a header followed by chunks, each with a checksum: attachments, then records, then a
//! last chunk with totals. Truncation at any point is therefore detected. No part requires seeking.

mod bytes;
mod chunk;
mod decode;
mod encode;
mod layout;
mod reader;
mod writer;

pub(crate) use layout::MAGIC;
pub(crate) use reader::PgyBody;
pub use writer::{TraceWriter, WriterOptions};
