//! The one front door: any recording in, records out.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::attachment::Attachments;
use crate::compression::Compression;
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::input::{Progress, Source};
use crate::pgy::{self, PgyBody};
use crate::shared::Shared;
use crate::summary::Summary;
use crate::tasks::Tasks;
use crate::text::TextBody;

/// How to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Count what is wrong with the input and go on where possible, instead of ending with an
    /// error. Failures of the system to read are errors all the same.
    pub lenient: bool,
}

impl Options {
    /// Lenient reading.
    pub fn lenient() -> Self {
        Options { lenient: true }
    }
}

/// Form of a recording inside its compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// ftrace text.
    Text,
    /// Our compact file.
    Pgy,
}

/// Records of text are handed out in groups of this many.
const TEXT_GROUP: usize = 1 << 14;

/// Reads a recording in one pass; its form and compression are found out from its first bytes.
///
/// It is an iterator over records; [`TraceReader::next_chunk`] yields the same ones in groups,
/// which is cheaper. After an error the iteration has ended.
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
}

impl TraceReader {
    /// Opens a file.
    ///
    /// # Errors
    /// The file cannot be read, is empty, of a foreign format, or its head is damaged. Damage
    /// that is found at this point is an error in lenient reading too, if nothing can follow it.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let name = path.to_string_lossy();
        let fail = |error| TraceError::new(&name, Position::Whole, Fault::Io(error));
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        Self::start(&name, file, meta.is_file().then_some(meta.len()), options)
    }

    /// Reads from anything, such as standard input. The name is used in errors.
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
        total: Option<u64>,
        options: Options,
    ) -> Result<Self, TraceError> {
        let whole = |fault| TraceError::new(name, Position::Whole, fault);
        let mut source = Source::new(input, total).map_err(whole)?;
        let mut shared = Shared::new(name, options.lenient);
        if let Err(fault) = source.need(pgy::MAGIC.len()) {
            shared.fault(Position::Byte(0), fault)?;
        }
        let mut attachments = Attachments::new();
        let body = match source.window() {
            [] if shared.summary.malformed.count == 0 => return Err(whole(Fault::Empty)),
            head if head.starts_with(&pgy::MAGIC) => {
                Body::Pgy(PgyBody::start(&mut source, &mut shared, &mut attachments)?)
            }
            [0x17, 0x08, 0x44, b't', b'r', ..] => {
                return Err(whole(Fault::Foreign("a binary trace.dat")));
            }
            head if head.starts_with(b"PTRC1\n") => {
                return Err(whole(Fault::Foreign("a .ptrc recording")));
            }
            _ => Body::Text(TextBody::default()),
        };
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

    /// Replaces the content of `out` by the next group of records; `false` at the end, when
    /// `out` is empty. Not to be mixed with iteration while that is inside a group.
    ///
    /// # Errors
    /// The first fault in strict reading; `out` then holds the records before it. Further calls
    /// say that the end is reached.
    pub fn next_chunk(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        out.clear();
        if self.ended {
            return Ok(false);
        }
        let more = match &mut self.body {
            Body::Text(body) => {
                body.next_chunk(&mut self.source, &mut self.shared, out, TEXT_GROUP)
            }
            Body::Pgy(body) => body.next_chunk(&mut self.source, &mut self.shared, out),
        };
        self.ended = !matches!(more, Ok(true));
        more.map(|more| more || !out.is_empty())
    }

    /// The tasks seen so far.
    pub fn tasks(&self) -> &Tasks {
        &self.shared.tasks
    }

    /// The files attached to a `.pgy` trace, complete from the start; none for text.
    pub fn attachments(&self) -> &Attachments {
        &self.attachments
    }

    /// Counts of what has been read so far (by whole groups), and of what was wrong.
    pub fn summary(&self) -> &Summary {
        &self.shared.summary
    }

    /// The form of the recording.
    pub fn format(&self) -> Format {
        match self.body {
            Body::Text(_) => Format::Text,
            Body::Pgy(_) => Format::Pgy,
        }
    }

    /// The compression around it.
    pub fn compression(&self) -> Compression {
        self.source.compression()
    }

    /// How far reading has come.
    pub fn progress(&self) -> Progress {
        self.source.progress()
    }

    /// The input's name, as in errors.
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
