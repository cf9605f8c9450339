//! The records of one CPU, in their order.

use std::ops::Range;

use super::head::CpuData;
use super::inflate::Inflate;
use super::store::Store;
use crate::binary::{Page, PageLayout};
use crate::error::Fault;

/// Number of bytes to read at once from uncompressed sub-buffers.
const BATCH: u64 = 1 << 16;

/// Reads the sub-buffers of one CPU. Keeps those of one chunk or batch in memory.
pub(super) struct CpuStream {
    pub(super) cpu: u16,
    /// Number of the instance.
    pub(super) buffer: usize,
    /// Number of the store with its sub-buffers.
    pub(super) store: usize,
    pages: PageLayout,
    /// The part of the file that is not yet read.
    at: u64,
    end: u64,
    /// For compressed sub-buffers: number of chunks that follow, once it is known.
    chunks: Option<Option<u32>>,
    /// The current chunk or batch, and where the batch begins in the file.
    batch: Vec<u8>,
    batch_at: u64,
    position: u64,
    /// The current sub-buffer in the batch, and the position in it.
    page_at: usize,
    page: Option<Page>,
    /// Events lost before sub-buffers read so far.
    pub(super) lost: u64,
}

impl CpuStream {
    pub(super) fn new(
        data: &CpuData,
        buffer: usize,
        pages: PageLayout,
        is_compressed: bool,
    ) -> Self {
        CpuStream {
            cpu: data.cpu,
            buffer,
            store: 0,
            pages,
            at: data.at,
            end: data.at.saturating_add(data.size),
            chunks: is_compressed.then_some(None),
            batch: Vec::new(),
            batch_at: data.at,
            position: data.at,
            page_at: 0,
            page: None,
            lost: 0,
        }
    }

    /// Like [`CpuStream::new`], for a number of chunks that are alone in a store.
    pub(super) fn of_chunks(data: &CpuData, store: usize, pages: PageLayout, chunks: u32) -> Self {
        let stream = CpuStream::new(data, 0, pages, true);
        CpuStream { store, chunks: Some(Some(chunks)), ..stream }
    }

    /// Returns the position in the file, for errors: of the chunk or of the sub-buffer.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the bytes of a record.
    pub(super) fn record(&self, range: Range<usize>) -> &[u8] {
        &self.page_bytes()[range]
    }

    fn page_bytes(&self) -> &[u8] {
        let to = self.batch.len().min(self.page_at.saturating_add(self.pages.size));
        &self.batch[self.page_at..to]
    }

    /// Returns the next record: its time by the trace's clock, and its place for
    /// [`CpuStream::record`]. `None` at the end.
    ///
    /// # Errors
    /// Fails on damage. The next call continues behind it.
    pub(super) fn next(
        &mut self,
        store: &mut Store,
        inflate: &mut Inflate,
    ) -> Result<Option<(u64, Range<usize>)>, Fault> {
        loop {
            if let Some(mut page) = self.page {
                let found = page.next(self.page_bytes());
                self.page = Some(page);
                if let Some(record) = found? {
                    return Ok(Some(record));
                }
                self.page = None;
                self.page_at += self.pages.size.min(self.batch.len() - self.page_at);
            }
            if self.page_at == self.batch.len() && !self.load(store, inflate)? {
                return Ok(None);
            }
            if self.chunks.is_none() {
                self.position = self.batch_at + self.page_at as u64;
            }
            match self.pages.open(self.page_bytes()) {
                Ok(page) => {
                    self.lost = self.lost.saturating_add(page.lost);
                    self.page = Some(page);
                }
                Err(fault) => {
                    self.page_at += self.pages.size.min(self.batch.len() - self.page_at);
                    return Err(fault);
                }
            }
        }
    }

    /// Reads the next chunk or batch. Returns `false` at the end.
    fn load(&mut self, store: &mut Store, inflate: &mut Inflate) -> Result<bool, Fault> {
        const WHAT: &str = "the sub-buffers of a CPU";
        self.batch.clear();
        self.page_at = 0;
        let left = self.end - self.at;
        if self.chunks.is_none() {
            let size = self.pages.size as u64;
            let length = left.min((BATCH / size).max(1) * size);
            let at = self.at;
            // After a failure, there is nothing to continue with.
            self.at = self.end;
            store.read(at, length, &mut self.batch, WHAT)?;
            (self.batch_at, self.at, self.position) = (at, at + length, at);
            store.consumed += length;
            return Ok(length > 0);
        }
        if left == 0 {
            return Ok(false);
        }
        let layout = self.pages.layout();
        let mut word = |stream: &mut Self| {
            let mut bytes = Vec::new();
            if stream.end - stream.at < 4 {
                stream.at = stream.end;
                return Err(Fault::Truncated("a chunk of sub-buffers"));
            }
            store.read(stream.at, 4, &mut bytes, WHAT)?;
            stream.at += 4;
            store.consumed += 4;
            Ok(layout.number(&bytes) as u32)
        };
        let count = match self.chunks {
            Some(Some(count)) => count,
            _ => word(self)?,
        };
        if count == 0 {
            self.at = self.end;
            return Ok(false);
        }
        self.chunks = Some(Some(count - 1));
        self.position = self.at;
        let (stored, plain) = (word(self)?, word(self)?);
        let at = self.at;
        if u64::from(stored) > self.end - at {
            self.at = self.end;
            return Err(Fault::Truncated("a chunk of sub-buffers"));
        }
        self.at += u64::from(stored);
        store.consumed += u64::from(stored);
        let mut data = Vec::new();
        store.read(at, stored.into(), &mut data, WHAT)?;
        self.batch = inflate.inflate(&data, plain)?;
        Ok(true)
    }
}
