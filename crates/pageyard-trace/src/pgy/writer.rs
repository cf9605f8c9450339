//! Writer of `.pgy` files, in one pass.

use std::io::Write;

use super::bytes::{put, put_bytes};
use super::chunk::{self, ChunkKind};
use super::encode::encode;
use super::layout::{
    CHUNK_MARK_BYTES, CHUNK_RECORDS, HEAD_LEN, MAGIC, MAX_ATTACHED, MAX_COMM, MAX_MARK, PART,
    VERSION,
};
use crate::attachment::Attachments;
use crate::check::{MAX_CPUS, at_most, check_event};
use crate::compaction_layout::check_compaction;
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::state::is_state_file;
use crate::summary::Summary;
use crate::tasks::Tasks;

/// Options for writing a `.pgy` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterOptions {
    /// zstd level, from 1 (fast) to 22 (small).
    pub level: i32,
    /// Number of CPUs that the recording declares, if any.
    pub declared_cpus: Option<u16>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        WriterOptions { level: 9, declared_cpus: None }
    }
}

/// Writes a `.pgy` file: attachments first, then records, then [`TraceWriter::finish`]. An
/// unfinished file reads as truncated.
pub struct TraceWriter<W: Write> {
    out: W,
    options: WriterOptions,
    chunks: u32,
    written: u64,
    buffer: Vec<Record>,
    mark_bytes: usize,
    records: u64,
    attached: u64,
    names: Vec<String>,
}

impl<W: Write> TraceWriter<W> {
    /// Begins a file; `out` need not be buffered.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`], or [`Fault::OutOfRange`] for more than [`MAX_CPUS`] CPUs.
    pub fn new(out: W, options: WriterOptions) -> Result<Self, TraceError> {
        let mut writer = TraceWriter {
            out,
            options,
            chunks: 0,
            written: 0,
            buffer: Vec::with_capacity(CHUNK_RECORDS),
            mark_bytes: 0,
            records: 0,
            attached: 0,
            names: Vec::new(),
        };
        // 0 means "not declared".
        let cpus = options.declared_cpus.unwrap_or(0);
        at_most("cpus", u64::from(cpus), u64::from(MAX_CPUS)).map_err(|f| writer.error(f))?;
        let mut head = Vec::with_capacity(HEAD_LEN);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&cpus.to_le_bytes());
        head.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
        writer.out.write_all(&head).map_err(|e| writer.error(Fault::Io(e)))?;
        writer.written = head.len() as u64;
        Ok(writer)
    }

    /// Attaches a file. Attach all files before the first record, each name once.
    ///
    /// # Errors
    /// Fails with [`Fault::Unwritable`] if records have been written, or if all attachments
    /// together exceed 1 GiB. Also if the name is not one of the [state
    /// files](crate::state::StateDir), or is already used. Fails with [`Fault::Io`] on I/O errors.
    pub fn attach(&mut self, name: &str, data: &[u8]) -> Result<(), TraceError> {
        self.attached += data.len() as u64;
        if self.records > 0 {
            return Err(self.error(Fault::Unwritable("an attachment after records")));
        }
        if !is_state_file(name) {
            return Err(self.error(Fault::Unwritable("an attachment that is not a state file")));
        }
        if self.names.iter().any(|other| other == name) {
            return Err(self.error(Fault::Unwritable("a duplicate attachment name")));
        }
        if self.attached > MAX_ATTACHED {
            return Err(self.error(Fault::Unwritable("attachments exceed 1 GiB")));
        }
        let mut at = 0;
        loop {
            let part = &data[at..data.len().min(at + PART)];
            let mut content = Vec::with_capacity(part.len() + 64);
            put_bytes(&mut content, name.as_bytes());
            put(&mut content, data.len() as u64);
            put(&mut content, at as u64);
            content.extend_from_slice(part);
            self.chunk(ChunkKind::Attachment, &content)?;
            at += part.len();
            if at == data.len() {
                break;
            }
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    /// Attaches all files.
    ///
    /// # Errors
    /// As for [`TraceWriter::attach`].
    pub fn attach_all(&mut self, attachments: &Attachments) -> Result<(), TraceError> {
        attachments.iter().try_for_each(|a| self.attach(&a.name, &a.data))
    }

    /// Writes one record. Only tasks that events refer to are stored; a reader numbers them by
    /// first use.
    ///
    /// # Errors
    /// Fails with [`Fault::OutOfRange`] for an impossible event, or with [`Fault::Io`]. Fails with
    /// [`Fault::Unwritable`] for an unknown task, or for a name or mark that is too long.
    pub fn write(&mut self, tasks: &Tasks, record: &Record) -> Result<(), TraceError> {
        match record {
            Record::Event(event) => {
                check_event(event).map_err(|fault| self.error(fault))?;
                self.known(tasks, event.task)?;
            }
            Record::Compaction { cpu, task, what, .. } => {
                at_most("cpu", u64::from(*cpu), u64::from(MAX_CPUS - 1))
                    .and_then(|()| check_compaction(what))
                    .map_err(|fault| self.error(fault))?;
                self.known(tasks, *task)?;
            }
            Record::Mark { cpu, text, .. } => {
                at_most("cpu", u64::from(*cpu), u64::from(MAX_CPUS - 1))
                    .map_err(|fault| self.error(fault))?;
                if text.len() > MAX_MARK {
                    return Err(self.error(Fault::Unwritable("a mark of more than 256 KiB")));
                }
                self.mark_bytes += text.len();
            }
        }
        self.buffer.push(record.clone());
        self.records += 1;
        if self.buffer.len() == CHUNK_RECORDS || self.mark_bytes >= CHUNK_MARK_BYTES {
            self.flush(tasks)?;
        }
        Ok(())
    }

    /// Fails if the task cannot be written.
    fn known(&self, tasks: &Tasks, task: u32) -> Result<(), TraceError> {
        let why = match tasks.get(task) {
            None => "the event's task is unknown",
            Some(task) if task.comm.len() > MAX_COMM => "a command name of more than 512 bytes",
            Some(_) => return Ok(()),
        };
        Err(self.error(Fault::Unwritable(why)))
    }

    /// Writes the remaining records and the totals. `summary` must be the source's after it was
    /// read to the end: lost events and faults at import are taken from it.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn finish(mut self, tasks: &Tasks, summary: &Summary) -> Result<W, TraceError> {
        self.flush(tasks)?;
        let mut content = Vec::new();
        let malformed = summary.malformed.count.saturating_add(summary.malformed_at_import);
        for total in [self.records, self.names.len() as u64, summary.lost, malformed] {
            put(&mut content, total);
        }
        self.chunk(ChunkKind::End, &content)?;
        match self.out.flush() {
            Ok(()) => Ok(self.out),
            Err(error) => Err(self.error(Fault::Io(error))),
        }
    }

    fn flush(&mut self, tasks: &Tasks) -> Result<(), TraceError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let content = encode(&self.buffer, tasks);
        self.buffer.clear();
        self.mark_bytes = 0;
        self.chunk(ChunkKind::Records, &content)
    }

    fn chunk(&mut self, kind: ChunkKind, content: &[u8]) -> Result<(), TraceError> {
        match chunk::write(&mut self.out, kind, self.chunks, content, self.options.level) {
            Ok(written) => {
                self.written += written;
                self.chunks += 1;
                Ok(())
            }
            Err(error) => Err(self.error(Fault::Io(error))),
        }
    }

    fn error(&self, fault: Fault) -> TraceError {
        TraceError::new(".pgy output", Position::Byte(self.written), fault)
    }
}
