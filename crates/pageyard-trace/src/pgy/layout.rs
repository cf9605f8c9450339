//! Constants of the file layout.

use crate::event::{Kind, Record};

/// First bytes of a file. Like PNG's, they show a transfer that changed line ends or dropped bits.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PGY\r\n\x1a\n";
/// Version of the layout.
///
/// 2 brought compaction's events, 3 reclaim's; a file of an older version is one without them.
pub(super) const VERSION: u16 = 3;
/// Length of the file head: magic, version, declared CPUs, checksum.
pub(super) const HEAD_LEN: usize = 16;
/// Records in a chunk that the writer makes.
pub(super) const CHUNK_RECORDS: usize = 1 << 16;
/// A chunk is also closed when its marks hold this many bytes.
pub(super) const CHUNK_MARK_BYTES: usize = 1 << 20;
/// Greatest number of records in a chunk that a reader accepts.
pub(super) const MAX_RECORDS: u64 = 1 << 18;
/// Greatest length of a chunk's content in bytes, before and after compression.
pub(super) const MAX_CONTENT: usize = 1 << 26;
/// Attachments are cut into parts of this length.
pub(super) const PART: usize = 1 << 24;
/// Greatest length of all attachments together.
pub(super) const MAX_ATTACHED: u64 = 1 << 30;
/// Greatest length of a mark in bytes: the text reader's longest line, all of it `\xNN`.
pub(super) const MAX_MARK: usize = 1 << 18;
/// Greatest length of a command name in bytes: the text reader's longest, all of it `\xNN`.
pub(super) const MAX_COMM: usize = 512;
/// Greatest length of an attachment's name in bytes; those of state files are shorter.
pub(super) const MAX_NAME: usize = 255;

/// Kinds of streams within a chunk of records: page events as in [`Kind`], marks, compaction.
pub(super) const ALLOC: u8 = 0;
pub(super) const FREE: u8 = 1;
pub(super) const FREE_BATCHED: u8 = 2;
pub(super) const ZONE_LOCKED: u8 = 3;
pub(super) const DRAIN: u8 = 4;
pub(super) const EXT_FRAG: u8 = 5;
pub(super) const MARK: u8 = 6;
pub(super) const COMPACTION: u8 = 7;
pub(super) const STREAM_KINDS: usize = 8;

/// The stream a record belongs to: its kind and CPU.
pub(super) fn stream_of(record: &Record) -> (u8, u16) {
    match record {
        Record::Mark { cpu, .. } => (MARK, *cpu),
        Record::Compaction { cpu, .. } => (COMPACTION, *cpu),
        Record::Event(event) => {
            let kind = match event.kind {
                Kind::Alloc { .. } => ALLOC,
                Kind::Free { .. } => FREE,
                Kind::FreeBatched { .. } => FREE_BATCHED,
                Kind::ZoneLocked { .. } => ZONE_LOCKED,
                Kind::Drain { .. } => DRAIN,
                Kind::ExtFrag { .. } => EXT_FRAG,
            };
            (kind, event.cpu)
        }
    }
}

/// Bytes of order and type that an event of this stream kind has.
pub(super) fn attributes(kind: u8) -> usize {
    match kind {
        FREE_BATCHED | MARK | COMPACTION => 0,
        EXT_FRAG => 2,
        _ => 1,
    }
}
