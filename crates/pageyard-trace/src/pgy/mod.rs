//! The compact trace file `.pgy`; its layout is described in `docs/trace-format.md`.
//!
//! A file is a head, then chunks that each carry a checksum: attachments first, then records, and
//! a last chunk with totals, so that a file cut anywhere is noticed. No part needs seeking.

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
