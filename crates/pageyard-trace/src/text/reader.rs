//! Reads lines from a source and converts them to records.

use memchr::{memchr, memmem};

use super::compaction;
use super::cursor::{Form, Line};
use super::fields::{FieldParser, Name};
use super::line;
use crate::error::{Fault, Position, TraceError};
use crate::event::{Event, Record};
use crate::input::Source;
use crate::printable::name_from_bytes;
use crate::shared::Shared;

/// Maximum length of a line in bytes; marks are at most one page.
const MAX_LINE: usize = 1 << 16;

/// Text that trace-cmd prints before the text of a mark.
const MARK_PREFIX: &[u8] = b"tracing_mark_write: ";

/// Reads text from a source.
#[derive(Default)]
pub(crate) struct TextBody {
    lines: u64,
    parser: FieldParser,
    /// The last task seen on each CPU.
    running: Vec<Option<Running>>,
    /// Events that the heading counts as overwritten, and those that lines count as lost.
    overwritten: u64,
    gaps: u64,
}

/// A task as printed in a line, and its index in the table.
#[derive(Clone)]
struct Running {
    task: u32,
    pid: u32,
    comm: Box<[u8]>,
}

impl TextBody {
    /// Appends up to `max` records. Returns `false` at the end.
    pub(crate) fn next_chunk(
        &mut self,
        source: &mut Source,
        shared: &mut Shared,
        out: &mut Vec<Record>,
        max: usize,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            let Some(length) = self.next_line(source, shared)? else { return Ok(false) };
            let line = &source.window()[..length];
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let position = Position::Line(self.lines);
            let record = match self.record(line, shared) {
                Ok(record) => record,
                Err(fault) => {
                    shared.fault(position, fault)?;
                    None
                }
            };
            source.consume(length + 1);
            if let Some(record) = record {
                shared.push(out, record, position)?;
            }
        }
        Ok(true)
    }

    /// Returns the length of the next complete line, which is then at the front of the window.
    fn next_line(
        &mut self,
        source: &mut Source,
        shared: &mut Shared,
    ) -> Result<Option<usize>, TraceError> {
        let mut searched = 0;
        let mut too_long = false;
        loop {
            if let Some(found) = memchr(b'\n', &source.window()[searched..]) {
                if !too_long {
                    self.lines += 1;
                    return Ok(Some(searched + found));
                }
                source.consume(searched + found + 1);
                (searched, too_long) = (0, false);
                continue;
            }
            searched = source.window().len();
            if searched > MAX_LINE {
                if !too_long {
                    self.lines += 1;
                    shared
                        .fault(Position::Line(self.lines), Fault::LongLine { limit: MAX_LINE })?;
                }
                too_long = true;
                source.consume(searched);
                searched = 0;
            }
            match source.grow() {
                Ok(true) => {}
                Ok(false) => {
                    let rest = source.window().len();
                    source.consume(rest);
                    if rest > 0 && !too_long {
                        self.lines += 1;
                        shared.fault(Position::Line(self.lines), Fault::CutLine)?;
                    }
                    return Ok(None);
                }
                Err(fault) => {
                    // The part of a line before the damage is dropped too.
                    let rest = source.window().len();
                    source.consume(rest);
                    shared.fault(Position::Line(self.lines + 1), fault)?;
                    return Ok(None);
                }
            }
        }
    }

    fn record(&mut self, text: &[u8], shared: &mut Shared) -> Result<Option<Record>, Fault> {
        let line = match line::parse(text)? {
            Form::Event(line) => line,
            Form::Cpus(n) => {
                shared.summary.declared_cpus = Some(n as u16);
                return Ok(None);
            }
            Form::Lost(n) => {
                self.gaps = self.gaps.saturating_add(n.max(1));
                shared.summary.lost = self.gaps.max(self.overwritten);
                return Ok(None);
            }
            Form::Overwritten { events, cpus } => {
                // The lines between events may count the same events again.
                self.overwritten = self.overwritten.saturating_add(events);
                shared.summary.lost = self.gaps.max(self.overwritten);
                shared.summary.declared_cpus = Some(cpus);
                return Ok(None);
            }
            Form::Kernel(release) => {
                shared.summary.kernel_release = Some(release.to_owned());
                return Ok(None);
            }
            Form::Nothing => return Ok(None),
        };
        if let Some(name) = Name::of(line.event) {
            let kind = self.parser.parse(name, line.rest)?;
            let task = self.task(&line, shared);
            return Ok(Some(Record::Event(Event { t_ns: line.t_ns, cpu: line.cpu, task, kind })));
        }
        let mark = match line.event {
            b"print" => Some(mark_text(line.rest)),
            b"tracing_mark_write" => Some(line.rest),
            _ => None,
        };
        if let Some(text) = mark {
            let text = name_from_bytes(text, Some('\t'));
            return Ok(Some(Record::Mark { t_ns: line.t_ns, cpu: line.cpu, text }));
        }
        if let Some(point) = compaction::point_of(line.event)
            && let Some(what) = compaction::parse(point, line.rest)?
        {
            let task = self.task(&line, shared);
            let (t_ns, cpu, what) = (line.t_ns, line.cpu, Box::new(what));
            return Ok(Some(Record::Compaction { t_ns, cpu, task, what }));
        }
        match str::from_utf8(line.event) {
            Ok(name) => shared.summary.ignored.add(name),
            Err(_) => return Err(Fault::NotALine("the event's name is not text")),
        }
        Ok(None)
    }

    fn task(&mut self, line: &Line<'_>, shared: &mut Shared) -> u32 {
        let cpu = usize::from(line.cpu);
        if self.running.len() <= cpu {
            self.running.resize(cpu + 1, None);
        }
        if let Some(last) = &self.running[cpu]
            && last.pid == line.pid
            && *last.comm == *line.comm
        {
            return last.task;
        }
        let task = shared.tasks.intern(line.pid, &name_from_bytes(line.comm, None));
        self.running[cpu] = Some(Running { task, pid: line.pid, comm: line.comm.into() });
        task
    }
}

/// Returns the text of a `print` event: after the writer's name, or in `ip=… buf=…` (`report -R`).
pub(crate) fn mark_text(rest: &[u8]) -> &[u8] {
    if let Some(text) = rest.strip_prefix(MARK_PREFIX) {
        return text;
    }
    if rest.starts_with(b"ip=")
        && let Some(at) = memmem::find(rest, b" buf=")
    {
        return &rest[at + 5..];
    }
    rest
}
