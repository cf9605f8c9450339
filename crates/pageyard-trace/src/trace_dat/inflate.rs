//! Compression inside a version 7 file: of sections, and of chunks of sub-buffers.

use std::io::Read;

use crate::compression::Compression;
use crate::error::{Fault, excerpt};
use crate::input::bound;

/// Decompressor of a file's algorithm.
pub(super) struct Inflate {
    algorithm: Algorithm,
    /// Size of the file, which bounds what all its parts may expand to.
    stored: u64,
    plain: u64,
}

#[derive(Clone, Copy)]
enum Algorithm {
    None,
    Zstd,
    Zlib,
}

impl Inflate {
    /// Chooses the algorithm by its name in the file's head.
    ///
    /// # Errors
    /// Fails with [`Fault::DatCompression`] for any but `none`, `zstd` and `zlib`.
    pub(super) fn new(name: &[u8], stored: u64) -> Result<Self, Fault> {
        let algorithm = match name {
            b"" | b"none" => Algorithm::None,
            b"zstd" => Algorithm::Zstd,
            b"zlib" => Algorithm::Zlib,
            _ => return Err(Fault::DatCompression { name: excerpt(name) }),
        };
        Ok(Inflate { algorithm, stored, plain: 0 })
    }

    /// Returns the decompressor of chunks that this program wrote, which may be sparse.
    pub(super) fn of_own() -> Self {
        Inflate { algorithm: Algorithm::Zstd, stored: u64::MAX, plain: 0 }
    }

    /// Decompresses `data` to exactly `length` bytes.
    ///
    /// # Errors
    /// Fails with [`Fault::Expands`] if all parts of the file so far expand to more than any
    /// recording does, and with [`Fault::Record`] if the data are damaged or of another length.
    pub(super) fn inflate(&mut self, data: &[u8], length: u32) -> Result<Vec<u8>, Fault> {
        self.plain = self.plain.saturating_add(length.into());
        bound::TEXT.check("the compressed parts", self.stored, self.plain)?;
        let mut plain = Vec::new();
        let most = u64::from(length) + 1;
        let done = match self.algorithm {
            Algorithm::None => {
                return Err(Fault::Record("a compressed part in a file without compression"));
            }
            Algorithm::Zstd => zstd::stream::read::Decoder::with_buffer(data)
                .and_then(|decoder| decoder.take(most).read_to_end(&mut plain))
                .map_err(|error| Fault::Compression(Compression::Zstd, error)),
            Algorithm::Zlib => flate2::bufread::ZlibDecoder::new(data)
                .take(most)
                .read_to_end(&mut plain)
                .map_err(|error| Fault::Compression(Compression::Gzip, error)),
        };
        done?;
        if plain.len() as u64 != u64::from(length) {
            return Err(Fault::Record("a compressed part of another length than it states"));
        }
        Ok(plain)
    }
}
