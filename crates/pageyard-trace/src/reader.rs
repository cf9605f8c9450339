//! Reader of recordings in any supported format.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::attachment::{Attachments, KERNEL_RELEASE};
use crate::binary::{EventTable, PageLayout};
use crate::compression::Compression;
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::input::{Progress, Source};
use crate::perf_data::{self, PerfBody};
use crate::perfetto::{self, PerfettoBody};
use crate::pgy::{self, PgyBody};
use crate::release;
use crate::shared::Shared;
use crate::summary::Summary;
use crate::tasks::Tasks;
use crate::text::TextBody;
use crate::trace_dat::{self, DatBody, Spool};

/// Options of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Lenient mode: count faults in the input and continue where possible, instead of failing. I/O
    /// errors are still errors.
    pub lenient: bool,
}

impl Options {
    /// Returns options for lenient mode.
    pub fn lenient() -> Self {
        Options { lenient: true }
    }
}

/// Format of a recording inside its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ftrace text.
    Text,
    /// The compact `.pgy` format.
    Pgy,
    /// `trace.dat`, version 6 or 7.
    TraceDat,
    /// `perf.data`, of a file or a pipe.
    PerfData,
    /// Perfetto.
    Perfetto,
}

/// Number of records per group, of all formats but `.pgy`, whose groups are its chunks.
const GROUP: usize = 1 << 14;

/// Reads a recording in one pass. Detects its format and compression from its first bytes.
///
/// The reader is an iterator over records. [`TraceReader::next_chunk`] yields the same records in
/// groups, which is cheaper. Iteration ends after an error.
pub struct TraceReader {
    source: Source,
    body: Body,
    shared: Shared,
    attachments: Attachments,
    group: Vec<Record>,
    given: usize,
    failed: Option<TraceError>,
    ended: bool,
}

enum Body {
    Text(TextBody),
    Pgy(PgyBody),
    TraceDat(Box<DatBody>),
    PerfData(Box<PerfBody>),
    Perfetto(Box<PerfettoBody>),
}

impl TraceReader {
    /// Opens a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is empty, has a foreign format, or if its header is
    /// damaged. Damage found here is an error in lenient mode too if nothing can follow it.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let fail = |error| TraceError::new(&name, Position::Whole, Fault::Io(error));
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        let total = meta.is_file().then_some(meta.len());
        let whole = file.try_clone().ok().zip(total);
        Self::start(&name, file, whole, options)
    }

    /// Reads from any input, such as standard input. `name` is used in errors.
    ///
    /// # Errors
    /// As for [`TraceReader::open`].
    pub fn from_reader(
        name: impl AsRef<str>,
        input: impl Read + Send + 'static,
        options: Options,
    ) -> Result<Self, TraceError> {
        Self::start(name.as_ref(), input, None, options)
    }

    fn start(
        name: &str,
        input: impl Read + Send + 'static,
        file: Option<(File, u64)>,
        options: Options,
    ) -> Result<Self, TraceError> {
        let total = file.as_ref().map(|&(_, length)| length);
        let whole = |fault| TraceError::new(name, Position::Whole, fault);
        let mut source = Source::new(input, total).map_err(whole)?;
        let mut shared = Shared::new(name, options.lenient);
        if let Err(fault) = source.need(trace_dat::MAGIC.len()) {
            shared.fault(Position::Byte(0), fault)?;
        }
        let is_perfetto = perfetto::is_perfetto(&mut source).or_else(|fault| {
            shared.fault(Position::Byte(source.offset()), fault).map(|()| false)
        })?;
        let mut attachments = Attachments::new();
        let body = match source.window() {
            [] if shared.summary.malformed.count == 0 => return Err(whole(Fault::Empty)),
            head if head.starts_with(&pgy::MAGIC) => {
                Body::Pgy(PgyBody::start(&mut source, &mut shared, &mut attachments)?)
            }
            head if head.starts_with(&trace_dat::MAGIC) => {
                let file = file.filter(|_| source.compression() == Compression::None);
                Body::TraceDat(Box::new(DatBody::start(&mut source, file, &mut shared)?))
            }
            head if perf_data::MAGICS.iter().any(|magic| head.starts_with(magic)) => {
                let file = file.filter(|_| source.compression() == Compression::None);
                Body::PerfData(Box::new(PerfBody::start(&mut source, file, &mut shared)?))
            }
            head if head.starts_with(b"PTRC1\n") => {
                return Err(whole(Fault::Foreign("a .ptrc recording")));
            }
            _ if is_perfetto => Body::Perfetto(Box::default()),
            head => {
                let is_json = head.starts_with(b"{");
                if is_json || head.iter().take(512).any(|&b| b == 0) {
                    let what = if is_json { "JSON" } else { "unknown binary data" };
                    shared.fault(Position::Whole, Fault::Foreign(what))?;
                }
                Body::Text(TextBody::default())
            }
        };
        if let Some(release) = attachments.get(KERNEL_RELEASE).and_then(release::find) {
            shared.summary.kernel_release = Some(release.to_owned());
        }
        Ok(TraceReader {
            source,
            body,
            shared,
            attachments,
            group: Vec::new(),
            given: 0,
            failed: None,
            ended: false,
        })
    }

    /// Reads what [`crate::record`] recorded.
    pub(crate) fn of_recording(
        attachments: Attachments,
        events: EventTable,
        comms: HashMap<u32, String>,
        pages: PageLayout,
        spools: Vec<Spool>,
        unseen: u64,
        options: Options,
    ) -> Result<Self, TraceError> {
        const NAME: &str = "the recording";
        let total = spools.iter().map(|spool| spool.size).sum();
        let mut shared = Shared::new(NAME, options.lenient);
        shared.summary.declared_cpus = u16::try_from(spools.len()).ok();
        shared.summary.clock = Some("mono".into());
        // The heads of sub-buffers add the others.
        shared.summary.lost = unseen;
        let release = attachments.get(KERNEL_RELEASE).and_then(release::find);
        shared.summary.kernel_release = release.map(str::to_owned);
        let source = Source::new(io::empty(), Some(total));
        let source = source.map_err(|fault| TraceError::new(NAME, Position::Whole, fault))?;
        let body = DatBody::of_spools(events, comms, pages, spools, &mut shared)?;
        Ok(TraceReader {
            source,
            body: Body::TraceDat(Box::new(body)),
            shared,
            attachments,
            group: Vec::new(),
            given: 0,
            failed: None,
            ended: false,
        })
    }

    /// Replaces the content of `out` with the next group of records, which may be empty. Returns
    /// `false` at the end, with `out` empty. Do not mix with iteration while the iterator is inside a group.
    ///
    /// # Errors
    /// Fails on the first fault in strict mode; `out` then holds the records before it. Further
    /// calls return `false`.
    pub fn next_chunk(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        out.clear();
        if self.ended {
            return Ok(false);
        }
        let more = match &mut self.body {
            Body::Text(body) => body.next_chunk(&mut self.source, &mut self.shared, out, GROUP),
            Body::Pgy(body) => body.next_chunk(&mut self.source, &mut self.shared, out),
            Body::TraceDat(body) => body.next_chunk(&mut self.shared, out, GROUP),
            Body::PerfData(body) => body.next_chunk(&mut self.shared, out, GROUP),
            Body::Perfetto(body) => body.next_chunk(&mut self.source, &mut self.shared, out, GROUP),
        };
        self.ended = !matches!(more, Ok(true));
        more.map(|more| more || !out.is_empty())
    }

    /// Returns the tasks seen so far.
    pub fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    /// Returns the files attached to a `.pgy` trace or to a recording of [`crate::record`], complete
    /// from the start; none for other formats.
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Returns totals of what has been read so far (in whole groups), including faults.
    pub fn summary(&self) -> &Summary {
        &self.shared.summary
    }

    /// Returns the format of the recording.
    pub fn format(&self) -> Format {
        match self.body {
            Body::Text(_) => Format::Text,
            Body::Pgy(_) => Format::Pgy,
            Body::TraceDat(_) => Format::TraceDat,
            Body::PerfData(_) => Format::PerfData,
            Body::Perfetto(_) => Format::Perfetto,
        }
    }

    /// Returns the compression of the recording.
    pub fn compression(&self) -> Compression {
        self.source.compression()
    }

    /// Returns the progress of reading.
    pub fn progress(&self) -> Progress {
        let progress = self.source.progress();
        match &self.body {
            // Of a file, the source has only the first bytes.
            Body::TraceDat(body) if progress.total.is_some() => {
                Progress { consumed: progress.consumed.max(body.consumed()), ..progress }
            }
            Body::PerfData(body) if progress.total.is_some() => {
                Progress { consumed: progress.consumed.max(body.consumed()), ..progress }
            }
            _ => progress,
        }
    }

    /// Returns the input's name, as used in errors.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
}

impl Iterator for TraceReader {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.group.get(self.given) {
                self.given += 1;
                return Some(Ok(record.clone()));
            }
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let mut group = std::mem::take(&mut self.group);
            self.given = 0;
            let more = self.next_chunk(&mut group);
            self.group = group;
            match more {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => self.failed = Some(error),
            }
        }
    }
}
