//! Decoders of compressed inputs.

use std::io::{self, BufReader, Read};

use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

use super::bound::Bound;
use crate::compression::Compression;
use crate::error::Fault;

/// Memory limit of the xz decoder in bytes: four times what `xz -9` needs. The input's header
/// states the need, up to 4 GiB. (The zstd decoder itself refuses more than 128 MiB.)
const XZ_MEMORY: u64 = 1 << 28;

impl Compression {
    /// Returns a reader of the decompressed bytes.
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

/// Decompresses a whole file. Fails if the result exceeds what `bound` allows in addition to the
/// files counted in `used`, or exceeds `most` bytes.
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

/// Total bytes of several files so far.
#[derive(Default)]
pub(crate) struct Used {
    pub(crate) stored: u64,
    pub(crate) plain: u64,
}

/// Reads to the end. Fails if there are more than `most` bytes.
pub(crate) fn read_at_most(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut out)?;
    if out.len() as u64 > most {
        let what = format!("more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(out)
}
