//! A recording that can be read several times.

use std::fs::File;
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use pageyard_machine::Stop;
use pageyard_trace::state::StateDir;
use pageyard_trace::{
    Compaction, Event, Fault, Format, KindCounts, Options, Record, Tasks, TraceError, TraceReader,
    TraceWriter, WriterOptions,
};

use super::error::ReplayError;
use super::options::{Options as ReplayOptions, Stage};

/// The source of a trace.
pub enum Input {
    /// A file.
    Path(PathBuf),
    /// Any other source, such as standard input, with a name for error messages.
    Stream(String, Box<dyn Read + Send>),
}

/// What was read, and what was wrong with it, for the report.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Reading {
    /// The trace's name.
    pub input: String,
    /// Page events.
    pub events: u64,
    /// Marks.
    pub marks: u64,
    /// Events that the recorder reports as lost.
    pub lost: u64,
    /// Malformed lines or chunks (lenient reading), including those found at an earlier import.
    pub malformed: u64,
    /// The first malformed ones.
    pub malformed_first: Vec<String>,
    /// Ignored events of other names.
    pub ignored: u64,
    /// Events that contradict the machine and were left out (lenient reading).
    pub inconsistent: u64,
    /// The first inconsistent ones.
    pub inconsistent_first: Vec<String>,
    /// Files beside the trace with names similar to those of state files: which are used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Seconds from the first to the last record, in the trace's clock.
    pub seconds: f64,
}

/// An open recording: its file and its state files.
pub(super) struct Recording {
    name: String,
    file: File,
    options: Options,
    /// Count events that contradict the machine instead of failing.
    lenient: bool,
    stop: Stop,
    pub(super) state: StateDir,
    pub(super) reading: Reading,
    pub(super) declared_cpus: Option<u16>,
    /// Release of the kernel, if the trace itself says it.
    pub(super) kernel_release: Option<String>,
    /// The events that were enabled, if the trace itself says it.
    pub(super) enabled_events: Option<Vec<String>>,
    /// Page events by kind.
    pub(super) kinds: KindCounts,
}

/// Number of faults that are kept with their position.
const KEPT: usize = 8;

/// Converts an error from writing the copy of a trace, which is a temporary file.
fn of_the_copy(e: TraceError) -> ReplayError {
    let TraceError { input, position, fault } = e;
    match *fault {
        Fault::Io(e) => ReplayError::Temporary(e),
        fault => TraceError { input, position, fault: Box::new(fault) }.into(),
    }
}

impl Recording {
    /// Opens a trace. Any but a `.pgy` file is imported once into a temporary file.
    pub(super) fn open(
        input: Input,
        state: Option<&Path>,
        of: &ReplayOptions,
        progress: &mut dyn FnMut(Stage, u64, Option<u64>),
    ) -> Result<Recording, ReplayError> {
        let lenient = of.lenient;
        let options = Options { lenient };
        // A pipe at a path can be read only once, like a stream.
        let input = match input {
            Input::Path(path)
                if std::fs::metadata(&path).is_ok_and(|m| !m.is_file() && !m.is_dir()) =>
            {
                let pipe = File::open(&path).map_err(ReplayError::Temporary)?;
                Input::Stream(path.display().to_string(), Box::new(pipe))
            }
            input => input,
        };
        let (reader, path) = match input {
            Input::Path(path) => (TraceReader::open(&path, options)?, Some(path)),
            Input::Stream(name, stream) => {
                (TraceReader::from_reader(&name, stream, options)?, None)
            }
        };
        let name = reader.name().to_owned();
        let state = match (state, &path) {
            (Some(folder), _) => {
                let state = StateDir::beside(folder)?;
                if state.is_empty() {
                    return Err(ReplayError::machine(
                        format!("no state files in {}", folder.display()),
                        "name the folder with zoneinfo.traced_start, before/ and so on",
                    ));
                }
                state
            }
            (None, path) => StateDir::of_trace(reader.attachments(), path.as_deref())?,
        };
        let mut state = state;
        let notes = std::mem::take(&mut state.notes);
        let mut recording = Recording {
            name: name.clone(),
            file: match (&path, reader.format()) {
                (Some(path), Format::Pgy) => File::open(path).map_err(ReplayError::Temporary)?,
                _ => tempfile::tempfile().map_err(ReplayError::Temporary)?,
            },
            options,
            lenient,
            stop: of.stop.clone(),
            state,
            reading: Reading { input: name, notes, ..Reading::default() },
            declared_cpus: reader.summary().declared_cpus,
            kernel_release: None,
            enabled_events: None,
            kinds: KindCounts::default(),
        };
        if reader.format() != Format::Pgy || path.is_none() {
            recording.import(reader, progress)?;
        }
        Ok(recording)
    }

    /// Returns the trace's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn import(
        &mut self,
        mut reader: TraceReader,
        progress: &mut dyn FnMut(Stage, u64, Option<u64>),
    ) -> Result<(), ReplayError> {
        let copy = self.file.try_clone().map_err(ReplayError::Temporary)?;
        let fast = WriterOptions { level: 1, declared_cpus: None };
        let mut writer = TraceWriter::new(BufWriter::new(copy), fast).map_err(of_the_copy)?;
        let mut group = Vec::new();
        while reader.next_chunk(&mut group)? {
            for record in &group {
                writer.write(reader.tasks(), record).map_err(of_the_copy)?;
            }
            self.check_stop()?;
            let at = reader.progress();
            progress(Stage::Import, at.consumed, at.total);
        }
        self.note(&reader);
        let mut out = writer.finish(reader.tasks(), reader.summary()).map_err(of_the_copy)?;
        out.flush().map_err(ReplayError::Temporary)?;
        // The faults are recorded now, and the copy is sound.
        self.options = Options::default();
        Ok(())
    }

    fn check_stop(&self) -> Result<(), ReplayError> {
        if self.stop.is_requested() { Err(ReplayError::Stopped) } else { Ok(()) }
    }

    /// Takes over what a reader found. The reader must have reached the end.
    fn note(&mut self, reader: &TraceReader) {
        let s = reader.summary();
        self.declared_cpus = self.declared_cpus.or(s.declared_cpus);
        self.kernel_release = s.kernel_release.clone();
        self.enabled_events = s.enabled_events.clone();
        self.kinds = s.kinds;
        let r = &mut self.reading;
        r.events = s.kinds.total();
        r.marks = s.marks;
        r.lost = s.lost;
        r.malformed = s.malformed.count + s.malformed_at_import;
        r.malformed_first = s.malformed.first.iter().map(TraceError::to_string).collect();
        r.ignored = s.ignored.total() + s.compaction.total() - s.compaction.reclaim();
        r.seconds = s.span_ns.map_or(0.0, |(a, b)| (b - a) as f64 / 1e9);
    }

    /// Reads all records once.
    pub(super) fn pass(
        &mut self,
        stage: Stage,
        progress: &mut dyn FnMut(Stage, u64, Option<u64>),
        visitor: &mut impl Visitor,
    ) -> Result<(), ReplayError> {
        let mut file = self.file.try_clone().map_err(ReplayError::Temporary)?;
        file.rewind().map_err(ReplayError::Temporary)?;
        let total = file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len());
        let mut reader = TraceReader::from_reader(&self.name, file, self.options)?;
        let mut group = Vec::new();
        let mut record = 0;
        // Faults of this pass: events that the visitor rejects.
        let (mut refused, mut first) = (0, Vec::new());
        while reader.next_chunk(&mut group)? {
            for r in &group {
                let result = match r {
                    Record::Event(e) => visitor.event(record, e, reader.tasks()),
                    // The page events already show what compaction moved.
                    Record::Compaction { t_ns, cpu, task, what } => {
                        visitor.point(*t_ns, *cpu, *task, what);
                        Ok(())
                    }
                    Record::Mark { t_ns, text, .. } => {
                        visitor.mark(record, *t_ns, text);
                        Ok(())
                    }
                };
                record += 1;
                if let Err(Refused { what, fix }) = result {
                    if !self.lenient {
                        let input = self.name.clone();
                        return Err(ReplayError::Inconsistent { input, record, what, fix });
                    }
                    refused += 1;
                    if first.len() < KEPT {
                        first.push(format!("record {record}: {what}"));
                    }
                }
            }
            self.check_stop()?;
            progress(stage, reader.progress().consumed, total);
        }
        self.reading.inconsistent = refused;
        self.reading.inconsistent_first = first;
        if self.reading.events == 0 {
            self.note(&reader);
        }
        if self.reading.events == 0 {
            return Err(ReplayError::NoEvents { input: self.name.clone() });
        }
        Ok(())
    }
}

/// An event that contradicts the machine.
pub(super) struct Refused {
    pub(super) what: String,
    pub(super) fix: &'static str,
}

/// Receives each record of a pass.
pub(super) trait Visitor {
    /// Handles a page event. Records are numbered from 0.
    fn event(&mut self, record: u64, event: &Event, tasks: &Tasks) -> Result<(), Refused>;

    /// Handles a mark.
    fn mark(&mut self, record: u64, t_ns: u64, text: &str);

    /// Handles a tracepoint of compaction or reclaim.
    fn point(&mut self, _t_ns: u64, _cpu: u16, _task: u32, _: &Compaction) {}
}
