//! Faults of an input: what is wrong, where, and how to fix it.

use std::fmt;
use std::io;

use crate::compression::Compression;
use crate::printable::printable;

/// A fault in an input, with its position and a suggested fix.
#[derive(Debug)]
pub struct TraceError {
    /// The input's name as the caller gave it, usually a path.
    pub input: Box<str>,
    /// Position in the input.
    pub position: Position,
    /// What is wrong.
    pub fault: Box<Fault>,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", printable(&self.input))?;
        if self.position != Position::Whole {
            write!(f, "{}: ", self.position)?;
        }
        write!(f, "{}", self.fault)?;
        match *self.fault {
            Fault::Io(ref e) => match e.kind() {
                io::ErrorKind::NotFound => write!(f, "; name a file that exists"),
                io::ErrorKind::IsADirectory => write!(f, "; name a file in it"),
                // The other messages of the operating system need no general advice.
                _ => Ok(()),
            },
            _ => write!(f, "; {}", self.fault.fix()),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.fault)
    }
}

impl TraceError {
    pub(crate) fn new(input: &str, position: Position, fault: Fault) -> Self {
        TraceError { input: input.into(), position, fault: Box::new(fault) }
    }
}

/// A place in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The input as a whole.
    Whole,
    /// A line of text, counted from 1.
    Line(u64),
    /// A chunk of a `.pgy` file: its number, counted from 0, and where it starts.
    Chunk {
        /// Number of the chunk.
        index: u64,
        /// Byte offset of its start in the (decompressed) file.
        offset: u64,
    },
    /// A byte of the (decompressed) input, counted from 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Position::Whole => f.write_str("whole input"),
            Position::Line(line) => write!(f, "line {line}"),
            Position::Chunk { index, offset } => write!(f, "chunk {index} at byte {offset}"),
            Position::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// What is wrong with an input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system failed to open, read or write.
    #[error("{0}")]
    Io(#[source] io::Error),
    /// The compressed stream around the input is damaged or ends early.
    #[error("the {0} stream is damaged or ends early: {1}")]
    Compression(Compression, #[source] io::Error),
    /// The input is empty.
    #[error("the input is empty")]
    Empty,
    /// The input has a format that this crate does not read.
    #[error("{0} is not a supported trace format")]
    Foreign(&'static str),
    /// The text line has no known form.
    #[error("not an ftrace line: {0}")]
    NotALine(&'static str),
    /// The last line does not end with a newline, so it may be truncated.
    #[error("the last line has no line end, so the text may be truncated")]
    CutLine,
    /// The line is longer than any line that ftrace prints.
    #[error("line of more than {limit} bytes")]
    LongLine {
        /// Maximum length in bytes.
        limit: usize,
    },
    /// A required field of the event is missing.
    #[error("{event} has no field `{field}`")]
    MissingField {
        /// The event.
        event: &'static str,
        /// The field.
        field: &'static str,
    },
    /// A field's value is not a number of the expected form.
    #[error("`{field}` has the value `{text}`, which is not a number")]
    BadNumber {
        /// The field.
        field: &'static str,
        /// Its value as found, shortened.
        text: Box<str>,
    },
    /// A number is out of range.
    #[error("`{field}` is {value}; the maximum is {limit}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// Maximum value.
        limit: u64,
    },
    /// The event requires a frame but has none.
    #[error("{event} has no frame (nil page)")]
    NoFrame {
        /// The event.
        event: &'static str,
    },
    /// The page is nil, but there is a frame number.
    #[error("{event} has a nil page but the frame number {pfn:#x}")]
    NilPage {
        /// The event.
        event: &'static str,
        /// The frame number.
        pfn: u64,
    },
    /// The name of a request flag is unknown.
    #[error("unknown request flag `{name}` in gfp_flags")]
    UnknownGfp {
        /// The name.
        name: Box<str>,
    },
    /// The field has a value that is not one of its known words.
    #[error("`{field}` has the unknown value `{word}`")]
    UnknownWord {
        /// The field.
        field: &'static str,
        /// Its value as found, shortened.
        word: Box<str>,
    },
    /// Time goes back by more than clock differences between CPUs explain.
    #[error("time goes back by {by_ns} ns")]
    Backwards {
        /// By how much, in nanoseconds.
        by_ns: u64,
    },
    /// The kernel's description of an event or of a buffer's layout cannot be used.
    #[error("the description of an event cannot be used: `{part}`")]
    Format {
        /// The part that cannot be used, shortened.
        part: Box<str>,
    },
    /// A binary record or buffer contradicts itself.
    #[error("damaged record: {0}")]
    Record(&'static str),
    /// The `trace.dat` has a version that this program does not know.
    #[error("unsupported version {found} of trace.dat; this program reads versions 6 and 7")]
    DatVersion {
        /// The file's version, shortened.
        found: Box<str>,
    },
    /// The `trace.dat` is compressed with an algorithm that this program does not know.
    #[error("the trace.dat is compressed with `{name}`; this program reads zstd and zlib")]
    DatCompression {
        /// Name of the algorithm, shortened.
        name: Box<str>,
    },
    /// The times of the recording are not in nanoseconds.
    #[error("the trace clock `{name}` does not count nanoseconds")]
    Clock {
        /// Name of the clock.
        name: Box<str>,
    },
    /// Several tracing instances of the recording, or several of Perfetto's ftrace data sources, have
    /// page events.
    #[error("page events are in two buffers of the recording, so some are there twice")]
    TwoBuffers,
    /// The recording lacks something that is needed, or has a form that is not read.
    #[error("{what}")]
    Unusable {
        /// What is wrong.
        what: &'static str,
        /// How to fix it.
        fix: &'static str,
    },
    /// The `.pgy` file has a version that this program does not know.
    #[error(
        "unsupported version {found} of the .pgy format; this program reads versions 1 to \
         {known}"
    )]
    Version {
        /// The file's version.
        found: u16,
        /// The latest supported version.
        known: u16,
    },
    /// A `.pgy` file or chunk ends early.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// A checksum does not match.
    #[error("{0} is damaged: wrong checksum")]
    Checksum(&'static str),
    /// The content of a chunk contradicts itself.
    #[error("the chunk contradicts itself: {0}")]
    Content(&'static str),
    /// A compressed input expands to more than any recording or state file does.
    #[error("{what}: {stored} bytes expand to more than {limit}")]
    Expands {
        /// The object that expands.
        what: &'static str,
        /// Compressed size in bytes.
        stored: u64,
        /// Maximum decompressed size in bytes.
        limit: u64,
    },
    /// The attachment is not a state file.
    #[error("the attachment `{name}` is not a state file of a recording")]
    UnknownAttachment {
        /// Its name, shortened.
        name: Box<str>,
    },
    /// A line of a state file does not have the expected form.
    #[error("expected {expected}, found `{found}`")]
    State {
        /// Expected form.
        expected: &'static str,
        /// Actual text, shortened.
        found: Box<str>,
    },
    /// The output format cannot represent the record.
    #[error("cannot be written: {0}")]
    Unwritable(&'static str),
}

impl Fault {
    /// Returns a short instruction for the user.
    pub fn fix(&self) -> &'static str {
        match self {
            Fault::Io(_) => "check the path, the permissions and the free space",
            Fault::Compression(..) => {
                "copy the file again, or use --lenient to read it up to the damage"
            }
            Fault::Empty => "check that the command that recorded it succeeded",
            Fault::Foreign("a trace.dat with latency text") => {
                "record without a latency tracer: trace-cmd record -C mono -e kmem:..."
            }
            Fault::Foreign(_) => {
                "name a .pgy, trace.dat, perf.data or Perfetto file, or ftrace text; recordings of \
                 answers are for `pageyard conform`"
            }
            Fault::NotALine(_) => {
                "use the output of `trace-cmd report -t` or a `trace` file with task, [cpu] and \
                 seconds (trace_clock local or mono), or use --lenient"
            }
            Fault::CutLine => {
                "copy the file again; if its last line is complete, end it with a newline; or use \
                 --lenient"
            }
            Fault::LongLine { .. } => "check that this is a text recording, or use --lenient",
            Fault::MissingField { .. } | Fault::BadNumber { .. } | Fault::UnknownWord { .. } => {
                "record again with the kernel's own event format, or use --lenient"
            }
            Fault::OutOfRange { .. } | Fault::NoFrame { .. } | Fault::NilPage { .. } => {
                "repair the line, which is damaged or from another kind of machine, or use \
                 --lenient"
            }
            Fault::UnknownGfp { .. } => {
                "write the flags as a number (gfp_flags=0x...), or use --lenient"
            }
            Fault::Backwards { .. } => {
                "sort the recording by time, record with one clock (trace_clock mono), or use \
                 --lenient"
            }
            Fault::Version { .. } => "use a program of that version, or import the text again",
            Fault::Format { .. } => {
                "convert the recording to text with a newer tool (trace-cmd report -t), or use \
                 --lenient to skip the event"
            }
            Fault::DatVersion { .. } => "convert it: trace-cmd report -t -i FILE > trace.txt",
            Fault::DatCompression { .. } => {
                "convert it: trace-cmd convert --compression none -i FILE -o OUTPUT"
            }
            Fault::Unusable { fix, .. } => fix,
            Fault::Clock { .. } => "record with another clock: trace-cmd record -C mono",
            Fault::TwoBuffers => {
                "record page events in one tracing instance (one ftrace data source of Perfetto) only"
            }
            Fault::Truncated(_) | Fault::Checksum(_) | Fault::Content(_) | Fault::Record(_) => {
                "copy the file again, or use --lenient to skip the damaged parts"
            }
            Fault::Expands { .. } => {
                "if this size is correct, decompress it first (zstd -d, xz -d, gzip -d), or import \
                 the text again"
            }
            Fault::UnknownAttachment { .. } => {
                "import the recording again, or use --lenient to skip it"
            }
            Fault::State { .. } => "copy the file from the machine again, or remove it",
            Fault::Unwritable(_) => {
                "change the record, or write .pgy, which can represent every \
                 record"
            }
        }
    }
}

/// Returns at most 40 characters of the input, for an error message.
pub(crate) fn excerpt(bytes: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(160)]);
    let short: String = text.chars().take(40).collect();
    let mut out = printable(&short).into_owned();
    if short.len() < bytes.len() {
        out.push_str("...");
    }
    out.into()
}
