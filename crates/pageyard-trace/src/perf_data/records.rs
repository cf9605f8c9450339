//! Reads one record after the other.

use crate::binary::Layout;
use crate::error::Fault;
use crate::trace_dat::Store;

/// Bytes read at once; a record has less than 64 KiB.
const WINDOW: u64 = 1 << 18;
/// Size of the head of a record in bytes: type, flags, size.
const HEAD: usize = 8;

/// The head of a record.
#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) kind: u32,
    /// Size with the head in bytes.
    pub(super) size: usize,
}

impl Header {
    /// Parses the head at the front; `None` if it is not complete.
    pub(super) fn parse(layout: Layout, bytes: &[u8]) -> Result<Option<Header>, Fault> {
        let (kind, size) = (layout.u32(bytes, 0), layout.at(bytes, 6, 2));
        let (Some(kind), Some(size)) = (kind, size) else { return Ok(None) };
        if size < HEAD as u64 {
            return Err(Fault::Record("a record of less than eight bytes"));
        }
        Ok(Some(Header { kind, size: size as usize }))
    }
}

/// A range of records in the file, and a window over it.
pub(super) struct Records {
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl Records {
    pub(super) fn new(at: u64, end: u64) -> Self {
        Records { at, end, window: Vec::new(), window_at: at }
    }

    /// Returns the position of the next record.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next record to `into`; `None` at the end.
    ///
    /// # Errors
    /// Fails if the record is damaged or cut. No record can be found after it.
    pub(super) fn next(
        &mut self,
        store: &Store,
        layout: Layout,
        into: &mut Vec<u8>,
    ) -> Result<Option<Header>, Fault> {
        if self.at >= self.end {
            return Ok(None);
        }
        const CUT: Fault = Fault::Truncated("a record");
        let head = self.bytes(store, HEAD)?;
        let header = Header::parse(layout, head)?.ok_or(CUT)?;
        let bytes = self.bytes(store, header.size)?;
        into.clear();
        into.extend_from_slice(bytes);
        self.at += header.size as u64;
        Ok(Some(header))
    }

    /// Returns the next `length` bytes without passing them.
    fn bytes(&mut self, store: &Store, length: usize) -> Result<&[u8], Fault> {
        let from = (self.at - self.window_at) as usize;
        if self.window.len().saturating_sub(from) < length {
            let size = WINDOW.min(self.end - self.at);
            store.read(self.at, size, &mut self.window, "a record")?;
            self.window_at = self.at;
        }
        let from = (self.at - self.window_at) as usize;
        self.window.get(from..from + length).ok_or(Fault::Truncated("a record"))
    }

    /// Reads the `length` bytes that follow the last record and belong to it.
    pub(super) fn payload(
        &mut self,
        store: &Store,
        length: u64,
        into: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let at = self.at;
        self.skip(length)?;
        store.read(at, length, into, "the descriptions of the events")
    }

    /// Skips the `length` bytes that follow the last record and belong to it.
    pub(super) fn skip(&mut self, length: u64) -> Result<(), Fault> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.end);
        self.at = end.ok_or(Fault::Truncated("what follows a record"))?;
        if self.at > self.window_at + self.window.len() as u64 {
            self.window.clear();
            self.window_at = self.at;
        }
        Ok(())
    }
}
