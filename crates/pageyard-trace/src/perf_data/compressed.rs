//! Records that are compressed (`perf record -z`): one zstd stream over all compressed records.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::records::Header;
use crate::binary::Layout;
use crate::compression::Compression;
use crate::error::Fault;

/// Bytes decompressed at once.
const STEP: usize = 1 << 16;

/// Decompresses records.
pub(super) struct Inflate {
    decoder: Decoder<'static>,
    plain: Vec<u8>,
    /// Bytes of `plain` that were given.
    given: usize,
    /// Bytes decompressed so far.
    total: u64,
}

impl Inflate {
    pub(super) fn new() -> Result<Self, Fault> {
        let decoder = Decoder::new().map_err(damaged)?;
        Ok(Inflate { decoder, plain: Vec::new(), given: 0, total: 0 })
    }

    /// Decompresses the content of a record. All together may become `limit` bytes.
    ///
    /// # Errors
    /// Fails if the stream is damaged or expands too far.
    pub(super) fn add(&mut self, packed: &[u8], limit: u64) -> Result<(), Fault> {
        self.plain.drain(..self.given);
        self.given = 0;
        let mut input = InBuffer::around(packed);
        loop {
            let from = self.plain.len();
            self.plain.resize(from + STEP, 0);
            let mut output = OutBuffer::around(&mut self.plain[from..]);
            let result = self.decoder.run(&mut input, &mut output);
            let written = output.pos();
            self.plain.truncate(from + written);
            result.map_err(damaged)?;
            self.total += written as u64;
            if self.total > limit {
                let what = "the compressed records";
                return Err(Fault::Expands { what, stored: packed.len() as u64, limit });
            }
            // A full buffer means that more may come.
            if input.pos() == packed.len() && written < STEP {
                return Ok(());
            }
        }
    }

    /// Returns the next complete record.
    pub(super) fn next(&mut self, layout: Layout) -> Result<Option<(Header, Vec<u8>)>, Fault> {
        let rest = &self.plain[self.given..];
        let Some(header) = Header::parse(layout, rest)? else { return Ok(None) };
        let Some(record) = rest.get(..header.size) else { return Ok(None) };
        self.given += header.size;
        Ok(Some((header, record.to_vec())))
    }

    /// Returns whether a record is not complete.
    pub(super) fn has_rest(&self) -> bool {
        self.given < self.plain.len()
    }
}

fn damaged(error: std::io::Error) -> Fault {
    Fault::Compression(Compression::Zstd, error)
}
