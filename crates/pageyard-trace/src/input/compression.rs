//! The decoders of compressed inputs.

use std::io::{self, BufReader, Read};

use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::bound::Bound;
use crate::compression::Compression;
use crate::error::Fault;

/// What a decoder of xz may ask for, in bytes: four times what `xz -9` needs. The input's head says
/// how much it wants, up to 4 GiB. (That of zstd refuses more than 128 MiB itself.)
const XZ_MEMORY: u64 = 1 << 28;

impl Compression {
    /// A reader of the decompressed bytes.
    pub(crate) fn decoder(
        self,
        raw: impl Read + Send + 'static,
    ) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Compression::None => Box::new(raw),
            Compression::Zstd => Box::new(zstd::stream::read::Decoder::new(raw)?),
            Compression::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
                Box::new(XzDecoder::new_stream(raw, stream))
            }
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(
                BufReader::with_capacity(1 << 16, raw),
            )),
        })
    }
}

/// The bytes of a file decompressed as a whole, at most as many as `bound` allows with `used` of
/// them gone already, and never more than `most`.
pub(crate) fn decompress_all(
    data: Vec<u8>,
    bound: Bound,
    used: &mut Used,
    most: u64,
) -> Result<Vec<u8>, Fault> {
    let compression = Compression::sniff(&data);
    used.stored += data.len() as u64;
    let out = if compression == Compression::None {
        data
    } else {
        let limit = bound.of(used.stored).saturating_sub(used.plain).min(most);
        let mut out = Vec::new();
        compression
            .decoder(io::Cursor::new(data))
            .and_then(|decoder| decoder.take(limit.saturating_add(1)).read_to_end(&mut out))
            .map_err(|error| Fault::Compression(compression, error))?;
        if out.len() as u64 > limit {
            let what = "the state files";
            return Err(Fault::Expands { what, stored: used.stored, limit: used.plain + limit });
        }
        out
    };
    used.plain += out.len() as u64;
    Ok(out)
}

/// Bytes of several files so far.
#[derive(Default)]
pub(crate) struct Used {
    pub(crate) stored: u64,
    pub(crate) plain: u64,
}

/// What a reader has, at most `most` bytes of it.
pub(crate) fn read_at_most(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut out)?;
    if out.len() as u64 > most {
        let what = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(out)
}
