//! A chunk: a header of fixed length with checksums, and its content.

use std::io::{self, ErrorKind, Write};

use zstd::zstd_safe::{CCtx, DCtx, compress_bound, get_error_name};

use super::layout::MAX_CONTENT;
use crate::error::Fault;

/// First bytes of every chunk. A lenient reader uses them to find the next chunk after damage.
pub(super) const CHUNK_MAGIC: [u8; 4] = *b"PGYc";
/// Length of a chunk's header in bytes.
pub(super) const CHUNK_HEAD: usize = 28;

/// Content of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    Attachment = 1,
    Records = 2,
    End = 3,
}

/// Header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) kind: ChunkKind,
    pub(super) compressed: bool,
    pub(super) index: u32,
    pub(super) stored: usize,
    pub(super) plain: usize,
    crc: u32,
}

impl ChunkHead {
    /// Parses a header, and checks everything that does not need the content.
    pub(super) fn parse(head: &[u8; CHUNK_HEAD]) -> Result<Self, Fault> {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..4] != CHUNK_MAGIC || crc32fast::hash(&head[..24]) != word(24) {
            return Err(Fault::Checksum("a chunk's head"));
        }
        let kind = match head[4] {
            1 => ChunkKind::Attachment,
            2 => ChunkKind::Records,
            3 => ChunkKind::End,
            _ => return Err(Fault::Content("unknown kind")),
        };
        let compressed = match head[5] {
            0 => false,
            1 => true,
            _ => return Err(Fault::Content("unknown compression")),
        };
        if head[6..8] != [0, 0] {
            return Err(Fault::Content("reserved bytes are not zero"));
        }
        let (stored, plain) = (word(12) as usize, word(16) as usize);
        if stored > MAX_CONTENT || plain > MAX_CONTENT || (!compressed && stored != plain) {
            return Err(Fault::Content("impossible lengths"));
        }
        Ok(ChunkHead { kind, compressed, index: word(8), stored, plain, crc: word(20) })
    }

    /// Checks the stored content and decompresses it into `plain`.
    pub(super) fn open(&self, stored: &[u8], plain: &mut Vec<u8>) -> Result<(), Fault> {
        if crc32fast::hash(stored) != self.crc {
            return Err(Fault::Checksum("a chunk"));
        }
        plain.clear();
        if !self.compressed {
            plain.extend_from_slice(stored);
            return Ok(());
        }
        plain.reserve(self.plain);
        // `zstd::bulk` panics if there is no memory for a context.
        let mut zstd =
            DCtx::try_create().ok_or_else(|| Fault::Io(ErrorKind::OutOfMemory.into()))?;
        zstd.decompress(plain, stored).map_err(|_| Fault::Content("cannot be decompressed"))?;
        if plain.len() != self.plain {
            return Err(Fault::Content("length differs from the declared one"));
        }
        Ok(())
    }
}

/// Writes one chunk, compressed if that makes it smaller. Returns the bytes written.
pub(super) fn write(
    out: &mut impl Write,
    kind: ChunkKind,
    index: u32,
    plain: &[u8],
    level: i32,
) -> io::Result<u64> {
    debug_assert!(plain.len() <= MAX_CONTENT);
    let mut packed = Vec::with_capacity(compress_bound(plain.len()));
    let mut zstd = CCtx::try_create().ok_or(ErrorKind::OutOfMemory)?;
    zstd.compress(&mut packed, plain, level).map_err(|e| io::Error::other(get_error_name(e)))?;
    let compressed = packed.len() < plain.len();
    let stored = if compressed { &packed } else { plain };
    let mut head = Vec::with_capacity(CHUNK_HEAD);
    head.extend_from_slice(&CHUNK_MAGIC);
    head.extend_from_slice(&[kind as u8, u8::from(compressed), 0, 0]);
    head.extend_from_slice(&index.to_le_bytes());
    head.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    head.extend_from_slice(&(plain.len() as u32).to_le_bytes());
    head.extend_from_slice(&crc32fast::hash(stored).to_le_bytes());
    let crc = crc32fast::hash(&head);
    head.extend_from_slice(&crc.to_le_bytes());
    out.write_all(&head)?;
    out.write_all(stored)?;
    Ok((head.len() + stored.len()) as u64)
}
