//! Decompressed bytes of any input, for readers of other formats.

use std::io::{self, BufRead, Read};

use super::source::Source;
use crate::error::Fault;

/// Reads an input that is plain or compressed with zstd, xz or gzip, and decompresses it on the
/// fly. A compressed input may expand to 8 MiB plus 256 times its stored size; reading fails beyond
/// that.
///
/// ```
/// use std::io::BufRead;
///
/// let input = pageyard_trace::Decompressed::new(&b"one\ntwo\n"[..])?;
/// assert_eq!(input.lines().count(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Decompressed(Source);

impl Decompressed {
    /// Detects the compression from the first bytes.
    ///
    /// # Errors
    /// Fails if the input cannot be read.
    pub fn new(input: impl Read + Send + 'static) -> io::Result<Self> {
        Source::new(input, None).map(Decompressed).map_err(error)
    }
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Io(error) => error,
        fault => {
            let what = format!("{fault}; {}", fault.fix());
            io::Error::new(io::ErrorKind::InvalidData, what)
        }
    }
}

impl BufRead for Decompressed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.0.window().is_empty() {
            self.0.grow().map_err(error)?;
        }
        Ok(self.0.window())
    }

    fn consume(&mut self, n: usize) {
        self.0.consume(n);
    }
}

impl Read for Decompressed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(to)?;
        self.consume(n);
        Ok(n)
    }
}
