//! Constants of the file layout.

use crate::event::{Kind, Record};

/// First bytes of a file. Like those of PNG, they detect transfers that change line ends or drop
/// bits.
pub(crate) const MAGIC: [u8; 8] = *b"\x89PGY\r\n\x1a\n";
/// Version of the layout.
///
/// Version 2 added compaction events, version 3 reclaim events, version 4 the attachments
/// `kernel_release` and `enabled_events`. Files of older versions are valid and contain none.
pub(super) const VERSION: u16 = 4;
/// Length of the file header: magic, version, declared CPUs, checksum.
pub(super) const HEAD_LEN: usize = 16;
/// Number of records in a chunk, as the writer makes it.
pub(super) const CHUNK_RECORDS: usize = 1 << 16;
/// A chunk also ends when its marks contain this many bytes.
pub(super) const CHUNK_MARK_BYTES: usize = 1 << 20;
/// Maximum number of records in a chunk that a reader accepts.
pub(super) const MAX_RECORDS: u64 = 1 << 18;
/// Maximum size of a chunk's content in bytes, before and after compression.
pub(super) const MAX_CONTENT: usize = 1 << 26;
/// Attachments are split into parts of this many bytes.
pub(super) const PART: usize = 1 << 24;
/// Maximum total size of all attachments in bytes.
pub(super) const MAX_ATTACHED: u64 = 1 << 30;
/// Maximum length of a mark in bytes: the text reader's longest line, all escaped as `\xNN`.
pub(super) const MAX_MARK: usize = 1 << 18;
/// Maximum length of a command name in bytes: the text reader's longest, all escaped as `\xNN`.
pub(super) const MAX_COMM: usize = 512;
/// Maximum length of an attachment's name in bytes; the names of state files are shorter.
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

/// Returns the kind and CPU of the stream that a record belongs to.
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

/// Returns the number of bytes of order and type in an event of this stream kind.
pub(super) fn attributes(kind: u8) -> usize {
    match kind {
        FREE_BATCHED | MARK | COMPACTION => 0,
        EXT_FRAG => 2,
        _ => 1,
    }
}
