//! Reader of `.pgy` files, in one pass.

use super::bytes::{Bytes, Wrong};
use super::chunk::{CHUNK_HEAD, CHUNK_MAGIC, ChunkHead, ChunkKind};
use super::decode::Decoder;
use super::layout::{HEAD_LEN, MAX_ATTACHED, MAX_CONTENT, MAX_NAME, VERSION};
use crate::attachment::Attachments;
use crate::check::MAX_CPUS;
use crate::error::{Fault, Position, TraceError, excerpt};
use crate::event::Record;
use crate::input::{Source, bound};
use crate::shared::Shared;
use crate::state::is_state_file;

/// Reads chunks from a source.
#[derive(Default)]
pub(crate) struct PgyBody {
    content: Vec<u8>,
    decoder: Decoder,
    /// The header of the chunk whose content is in `content`.
    current: Option<ChunkHead>,
    position: Option<Position>,
    next_index: u32,
    records: u64,
    attachments: u64,
    /// An attachment with missing parts: its name and length.
    open: Option<(String, usize)>,
    /// Decompressed bytes so far: of attached frame maps, of other attachments, and of records.
    maps: u64,
    texts: u64,
    expanded: u64,
}

impl PgyBody {
    /// Reads the file header and the attachments.
    pub(crate) fn start(
        source: &mut Source,
        shared: &mut Shared,
        attachments: &mut Attachments,
    ) -> Result<Self, TraceError> {
        let mut body = PgyBody::default();
        if let Err(fault) = head(source, shared) {
            // Another version cannot be read at all; a damaged header can be skipped.
            if matches!(fault, Fault::Version { .. }) {
                return Err(TraceError::new(&shared.name, Position::Byte(0), fault));
            }
            shared.fault(Position::Byte(0), fault)?;
        }
        let mut part = Vec::new();
        while let Some(chunk) = body.load(source, shared)?
            && chunk.kind == ChunkKind::Attachment
        {
            if let Err(fault) = body.attachment(attachments, &mut part, source.consumed()) {
                body.open = None;
                shared.fault(body.position(), fault)?;
            }
            body.current = None;
        }
        body.close_attachment(shared)?;
        Ok(body)
    }

    /// Appends the records of the next chunk. Returns `false` at the end.
    pub(crate) fn next_chunk(
        &mut self,
        source: &mut Source,
        shared: &mut Shared,
        out: &mut Vec<Record>,
    ) -> Result<bool, TraceError> {
        loop {
            let Some(chunk) = self.load(source, shared)? else { return Ok(false) };
            self.current = None;
            let position = self.position();
            match chunk.kind {
                ChunkKind::Records => {
                    match self.decoder.decode(&self.content, &mut shared.tasks, out) {
                        Ok(()) => {
                            self.records += out.len() as u64;
                            if let Err((good, error)) = shared.accept(out, position) {
                                out.truncate(good);
                                return Err(error);
                            }
                            return Ok(true);
                        }
                        Err(fault) => shared.fault(position, fault)?,
                    }
                }
                ChunkKind::Attachment => {
                    shared.fault(position, Fault::Content("an attachment after records"))?;
                }
                ChunkKind::End => {
                    if let Err(wrong) = self.totals(shared) {
                        shared.fault(position, Fault::Content(wrong))?;
                    }
                    let more = match source.need(1) {
                        Ok(true) => Some(Fault::Content("bytes follow the end")),
                        Ok(false) => None,
                        Err(fault) => Some(fault),
                    };
                    if let Some(fault) = more {
                        shared.fault(Position::Byte(source.offset()), fault)?;
                    }
                    return Ok(false);
                }
            }
        }
    }

    fn position(&self) -> Position {
        self.position.unwrap_or(Position::Whole)
    }

    /// Returns the header of the current chunk, reading and checking it if necessary. Returns
    /// `None` if the file ends without an end chunk (which is reported).
    fn load(
        &mut self,
        source: &mut Source,
        shared: &mut Shared,
    ) -> Result<Option<ChunkHead>, TraceError> {
        if let Some(current) = self.current {
            return Ok(Some(current));
        }
        loop {
            let index = u64::from(self.next_index);
            let position = Position::Chunk { index, offset: source.offset() };
            self.position = Some(position);
            match self.try_load(source) {
                Ok((head, opened)) => {
                    let expected = self.next_index;
                    self.next_index = head.index.saturating_add(1);
                    if let Err(fault) = opened {
                        // Only the damage is counted, not also that chunks before it are missing.
                        shared.fault(position, fault)?;
                        continue;
                    }
                    if head.index != expected {
                        shared.fault(position, Fault::Content("chunks before it are missing"))?;
                    }
                    self.current = Some(head);
                    return Ok(Some(head));
                }
                Err(fault) => {
                    let over = matches!(
                        fault,
                        Fault::Truncated(_)
                            | Fault::Compression(..)
                            | Fault::Expands { .. }
                            | Fault::Io(_)
                    );
                    shared.fault(position, fault)?;
                    if over || !find_chunk(source, shared)? {
                        return Ok(None);
                    }
                    // Only the damage is counted, not also that its chunk is missing.
                    if let Some(head) = peek(source) {
                        self.next_index = head.index;
                    }
                }
            }
        }
    }

    /// Returns the next chunk's header and whether its content is valid, and consumes the chunk. An
    /// error consumes nothing.
    fn try_load(&mut self, source: &mut Source) -> Result<(ChunkHead, Result<(), Fault>), Fault> {
        if !source.need(CHUNK_HEAD)? {
            let cut = if source.window().is_empty() {
                "the list of chunks: no end chunk"
            } else {
                "a chunk's head"
            };
            return Err(Fault::Truncated(cut));
        }
        let head = ChunkHead::parse(source.window().first_chunk().expect("checked by need()"))?;
        if !source.need(CHUNK_HEAD + head.stored)? {
            return Err(Fault::Truncated("a chunk"));
        }
        if head.kind != ChunkKind::Attachment {
            self.expanded += head.plain as u64;
            bound::TEXT.check("the records", source.consumed(), self.expanded)?;
        }
        let stored = &source.window()[CHUNK_HEAD..CHUNK_HEAD + head.stored];
        let opened = head.open(stored, &mut self.content);
        // The header is valid, so it says where the next chunk begins. Searching a damaged content
        // for a chunk would take time quadratic in the input.
        source.consume(CHUNK_HEAD + head.stored);
        Ok((head, opened))
    }

    /// Adds one part of an attachment.
    fn attachment(
        &mut self,
        all: &mut Attachments,
        data: &mut Vec<u8>,
        consumed: u64,
    ) -> Result<(), Fault> {
        let wrong = |what| Err(Fault::Content(what));
        let mut input = Bytes(&self.content);
        let name = input.text(MAX_NAME).map_err(Fault::Content)?;
        if !is_state_file(name) {
            return Err(Fault::UnknownAttachment { name: excerpt(name.as_bytes()) });
        }
        let total = input.count(MAX_ATTACHED as usize).map_err(Fault::Content)?;
        let at = input.count(total).map_err(Fault::Content)?;
        let part = input.0;
        match &self.open {
            Some(open) if (open.0.as_str(), open.1) == (name, total) && data.len() == at => {}
            None if at == 0 => data.clear(),
            _ => return wrong("parts of an attachment are missing"),
        }
        let held: usize = all.iter().map(|a| a.data.len()).sum();
        if part.len() > total - at || (part.is_empty() && total > 0) {
            return wrong("a part of an attachment does not match");
        }
        if held + total > MAX_ATTACHED as usize {
            return wrong("attachments exceed 1 GiB");
        }
        if all.get(name).is_some() {
            return wrong("an attachment's name appears twice");
        }
        let map = name.starts_with("pfnmap.");
        let (bound, expanded) =
            if map { (bound::MAP, &mut self.maps) } else { (bound::TEXT, &mut self.texts) };
        *expanded += part.len() as u64;
        bound.check("the attachments", consumed, *expanded)?;
        data.extend_from_slice(part);
        self.open = Some((name.to_owned(), total));
        if data.len() == total {
            all.insert(name, std::mem::take(data));
            self.attachments += 1;
            self.open = None;
        }
        Ok(())
    }

    fn close_attachment(&mut self, shared: &mut Shared) -> Result<(), TraceError> {
        if self.open.take().is_some() {
            let fault = Fault::Content("parts of an attachment are missing before it");
            shared.fault(self.position(), fault)?;
        }
        Ok(())
    }

    /// Checks the totals of the end chunk.
    fn totals(&mut self, shared: &mut Shared) -> Result<(), Wrong> {
        let mut input = Bytes(&self.content);
        let records = input.number()?;
        let attachments = input.number()?;
        shared.summary.lost = input.number()?;
        shared.summary.malformed_at_import = input.number()?;
        input.end()?;
        if records != self.records || attachments != self.attachments {
            return Err("the totals differ from those of the chunks read");
        }
        Ok(())
    }
}

/// Reads the file header.
fn head(source: &mut Source, shared: &mut Shared) -> Result<(), Fault> {
    if !source.need(HEAD_LEN)? {
        return Err(Fault::Truncated("the file header"));
    }
    let head: [u8; HEAD_LEN] = *source.window().first_chunk().expect("checked by need()");
    source.consume(HEAD_LEN);
    if crc32fast::hash(&head[..12]).to_le_bytes() != head[12..] {
        return Err(Fault::Checksum("the file header"));
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if !(1..=VERSION).contains(&version) {
        return Err(Fault::Version { found: version, known: VERSION });
    }
    let cpus = u16::from_le_bytes([head[10], head[11]]);
    if cpus > MAX_CPUS {
        return Err(Fault::Content("the file declares too many CPUs"));
    }
    shared.summary.declared_cpus = (cpus > 0).then_some(cpus);
    Ok(())
}

/// Returns the chunk header at the front of the window, if there is one.
fn peek(source: &Source) -> Option<ChunkHead> {
    ChunkHead::parse(source.window().first_chunk()?).ok()
}

/// Advances to the next chunk header after the current position. Returns `false` if there is none.
fn find_chunk(source: &mut Source, shared: &mut Shared) -> Result<bool, TraceError> {
    source.consume(1);
    loop {
        if let Some(at) = memchr::memmem::find(source.window(), &CHUNK_MAGIC) {
            source.consume(at);
            match source.need(CHUNK_HEAD) {
                Ok(true) if peek(source).is_some() => return Ok(true),
                Ok(true) => source.consume(1),
                Ok(false) => return Ok(false),
                Err(fault) => {
                    shared.fault(Position::Byte(source.offset()), fault)?;
                    return Ok(false);
                }
            }
            continue;
        }
        let keep = CHUNK_MAGIC.len() - 1;
        source.consume(source.window().len().saturating_sub(keep));
        match source.grow() {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(fault) => {
                shared.fault(Position::Byte(source.offset()), fault)?;
                return Ok(false);
            }
        }
        debug_assert!(source.window().len() <= MAX_CONTENT);
    }
}
