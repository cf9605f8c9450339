//! A window over the decompressed input.

use std::io::{self, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Progress, bound};
use crate::compression::{Compression, SNIFF};
use crate::error::Fault;

/// Minimum and maximum read size in bytes. The size grows with the window, so a small input costs
/// little.
const STEPS: (usize, usize) = (1 << 12, 1 << 18);

/// Statistics of the raw input: bytes read, and whether a read failed.
#[derive(Default)]
struct Meter {
    consumed: AtomicU64,
    failed: AtomicBool,
}

/// Counts the bytes read. An error here comes from the system; any other error comes from the
/// decoder.
struct Metered<R> {
    inner: R,
    meter: Arc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buf) {
            Ok(n) => {
                self.meter.consumed.fetch_add(n as u64, Ordering::Relaxed);
                Ok(n)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.meter.failed.store(true, Ordering::Relaxed);
                }
                Err(error)
            }
        }
    }
}

/// Window over the decompressed bytes of an input.
pub(crate) struct Source {
    reader: Box<dyn Read + Send>,
    meter: Arc<Meter>,
    compression: Compression,
    total: Option<u64>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before the window.
    offset: u64,
    ended: bool,
}

impl Source {
    /// Opens an input and detects its compression.
    pub(crate) fn new(raw: impl Read + Send + 'static, total: Option<u64>) -> Result<Self, Fault> {
        let meter = Arc::new(Meter::default());
        let mut raw = Metered { inner: raw, meter: Arc::clone(&meter) };
        let mut head = Vec::with_capacity(SNIFF);
        (&mut raw).take(SNIFF as u64).read_to_end(&mut head).map_err(Fault::Io)?;
        let compression = Compression::sniff(&head);
        let reader = compression.decoder(Cursor::new(head).chain(raw)).map_err(Fault::Io)?;
        Ok(Source {
            reader,
            meter,
            compression,
            total,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
        })
    }

    /// Returns the bytes available for consumption.
    pub(crate) fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the position of the window's first byte in the decompressed input.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Removes `n` bytes from the front of the window.
    pub(crate) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        self.offset += n as u64;
    }

    /// Grows the window. Returns `false` at the end of the input. The input also ends after a
    /// fault, because the rest of a damaged compressed stream cannot be trusted.
    pub(crate) fn grow(&mut self) -> Result<bool, Fault> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let step = self.buffer.len().clamp(STEPS.0, STEPS.1);
        if self.buffer.len() < self.end + step {
            self.buffer.resize(self.end + step, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(false);
                }
                Ok(n) => {
                    self.end += n;
                    if self.compression != Compression::None {
                        let plain = self.offset + self.end as u64;
                        let within =
                            bound::TEXT.check("the compressed stream", self.consumed(), plain);
                        self.ended = within.is_err();
                        within?;
                    }
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.ended = true;
                    let system = self.meter.failed.load(Ordering::Relaxed);
                    return Err(if system || self.compression == Compression::None {
                        Fault::Io(error)
                    } else {
                        Fault::Compression(self.compression, error)
                    });
                }
            }
        }
    }

    /// Takes all bytes from the window on, and the fault that ended the input early, if any.
    pub(crate) fn take_all(&mut self) -> (Vec<u8>, Option<Fault>) {
        let damage = loop {
            match self.grow() {
                Ok(true) => {}
                Ok(false) => break None,
                Err(fault) => break Some(fault),
            }
        };
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.truncate(self.end);
        bytes.drain(..self.start);
        self.offset += bytes.len() as u64;
        (self.start, self.end) = (0, 0);
        (bytes, damage)
    }

    /// Grows the window to at least `n` bytes. Returns `false` if the input ends before.
    pub(crate) fn need(&mut self, n: usize) -> Result<bool, Fault> {
        while self.end - self.start < n {
            if !self.grow()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the compression of the input.
    pub(crate) fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the progress of reading.
    pub(crate) fn progress(&self) -> Progress {
        Progress { consumed: self.consumed(), total: self.total }
    }

    /// Returns the bytes read from the input so far, before decompression.
    pub(crate) fn consumed(&self) -> u64 {
        self.meter.consumed.load(Ordering::Relaxed)
    }
}
