//! Writer of records as text, in the format of `trace-cmd report -t`.

use std::io::{self, Write};

use super::compaction;
use super::cursor::{Form, Line, MAX_COMM};
use super::line;
use crate::check::{MAX_CPUS, at_most, check_event};
use crate::compaction_layout::{POINTS, check_compaction};
use crate::error::{Fault, Position, TraceError};
use crate::event::{Event, Kind, Record};
use crate::gfp;
use crate::tasks::{Task, Tasks};

/// Writes ftrace text that [`crate::TraceReader`] reads back to the same records.
///
/// Page addresses are not part of a record. The text has those of a machine whose page descriptors
/// are at 0xffffea0000000000, 64 bytes each. The writer of a mark is not stored either; its task is
/// written as `marker-1`.
pub struct TextWriter<W: Write> {
    out: W,
    gfp_names: bool,
    lines: u64,
}

/// Maximum length of a mark that still yields a readable line.
const MAX_MARK: usize = 60 << 10;

const PAGES_AT: u64 = 0xffff_ea00_0000_0000;

impl<W: Write> TextWriter<W> {
    /// Writes to `out`, which should be buffered. Writes a declared number of CPUs as a `cpus=`
    /// line at the top.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn new(out: W, declared_cpus: Option<u16>) -> Result<Self, TraceError> {
        let mut writer = TextWriter { out, gfp_names: false, lines: 0 };
        if let Some(cpus) = declared_cpus {
            writer.line(format_args!("cpus={cpus}"))?;
        }
        Ok(writer)
    }

    /// Sets whether request flags are written as names. By default they are numbers.
    pub fn gfp_names(mut self, names: bool) -> Self {
        self.gfp_names = names;
        self
    }

    /// Writes one record.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`]; with [`Fault::OutOfRange`] for an impossible event; with
    /// [`Fault::Unwritable`] if the text format cannot represent the record: an unknown task index,
    /// or a line break in a name or mark. A name must also not have leading blanks, more than 127
    /// bytes, or text like a line's pid and CPU.
    pub fn write(&mut self, tasks: &Tasks, record: &Record) -> Result<(), TraceError> {
        match record {
            Record::Event(event) => {
                check_event(event).map_err(|fault| self.error(fault))?;
                let task = self.task(tasks, event.task)?;
                let result = self.try_event(event, task);
                self.written(result)
            }
            Record::Compaction { t_ns, cpu, task, what } => {
                at_most("cpu", u64::from(*cpu), u64::from(MAX_CPUS - 1))
                    .and_then(|()| check_compaction(what))
                    .map_err(|fault| self.error(fault))?;
                let task = self.task(tasks, *task)?;
                let name = format!("{}:", POINTS[what.values().0].name);
                let result = self
                    .head(task, *cpu, *t_ns, &name)
                    .and_then(|()| compaction::write(&mut self.out, what, self.gfp_names));
                self.written(result)
            }
            Record::Mark { t_ns, cpu, text } => {
                at_most("cpu", u64::from(*cpu), u64::from(MAX_CPUS - 1))
                    .map_err(|fault| self.error(fault))?;
                if text.contains('\n') || text.ends_with('\r') || text.len() > MAX_MARK {
                    let why = "a mark with a line break or of more than 60 KiB";
                    return Err(self.error(Fault::Unwritable(why)));
                }
                let (s, ns) = split(*t_ns);
                self.line(format_args!(
                    "{:>16}-{:<5} [{cpu:03}] {s:5}.{ns:09}: {:<21} tracing_mark_write: {text}",
                    "marker", 1, "print:"
                ))
            }
        }
    }

    /// Writes the release of the kernel that recorded, in the heading that `perf script` prints.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn write_kernel_release(&mut self, release: &str) -> Result<(), TraceError> {
        self.line(format_args!("# os release : {release}"))
    }

    /// Writes that the recorder lost `count` events.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn write_lost(&mut self, count: u64) -> Result<(), TraceError> {
        self.line(format_args!("CPU:0 [LOST {count} EVENTS]"))
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// Fails with [`Fault::Io`].
    pub fn finish(mut self) -> Result<W, TraceError> {
        match self.out.flush() {
            Ok(()) => Ok(self.out),
            Err(error) => Err(self.error(Fault::Io(error))),
        }
    }

    fn task<'t>(&self, tasks: &'t Tasks, task: u32) -> Result<&'t Task, TraceError> {
        let Some(task) = tasks.get(task) else {
            return Err(self.error(Fault::Unwritable("the event's task is unknown")));
        };
        if task.comm.contains('\n') || task.comm.starts_with(|c: char| c.is_ascii_whitespace()) {
            let why = "a command name with a line break or leading blanks";
            return Err(self.error(Fault::Unwritable(why)));
        }
        if task.comm.len() > MAX_COMM {
            return Err(self.error(Fault::Unwritable("a command name of more than 127 bytes")));
        }
        // Only a name that contains something like `-1 [0]`, ` 1 [0]`, `-1 0d.. 1.0:` or `name:  `, or
        // ends with a blank, can be misread.
        let may_mislead = |c: &str| {
            let blank = c.ends_with(|c: char| c.is_ascii_whitespace());
            blank
                || c.contains('[')
                || c.contains(":  ")
                || ['-', '.', ':'].iter().all(|&b| c.contains(b))
        };
        if may_mislead(&task.comm) {
            let Task { pid, comm } = task;
            let line = format!("{}{comm}-{pid:<5} [000]     0.0: mm_page_free:", padding(comm));
            let read = line::parse(line.as_bytes());
            let same = |l: Line<'_>| l.comm == task.comm.as_bytes() && l.pid == task.pid;
            if !matches!(read, Ok(Form::Event(l)) if same(l)) {
                let why = "a command name that looks like the start of a line";
                return Err(self.error(Fault::Unwritable(why)));
            }
        }
        Ok(task)
    }

    fn written(&mut self, result: io::Result<()>) -> Result<(), TraceError> {
        self.lines += 1;
        result.map_err(|error| self.error(Fault::Io(error)))
    }

    /// Writes the part of a line before an event's fields.
    fn head(&mut self, task: &Task, cpu: u16, t_ns: u64, name: &str) -> io::Result<()> {
        let (s, ns) = split(t_ns);
        let Task { pid, comm } = task;
        let out = &mut self.out;
        let pad = padding(comm);
        write!(out, "{pad}{comm}-{pid:<5} [{cpu:03}] {s:5}.{ns:09}: {name:<21} ")
    }

    fn try_event(&mut self, event: &Event, task: &Task) -> io::Result<()> {
        let (name, pfn) = name_and_frame(&event.kind);
        self.head(task, event.cpu, event.t_ns, name)?;
        let out = &mut self.out;
        match pfn {
            Some(pfn) => {
                let page = PAGES_AT.wrapping_add(pfn.wrapping_mul(64));
                write!(out, "page={page:#x} pfn={pfn:#x}")?;
            }
            None => out.write_all(b"page=(nil) pfn=0x0")?,
        }
        match event.kind {
            Kind::Alloc { order, migratetype, gfp, .. } => {
                write!(out, " order={order} migratetype={migratetype} gfp_flags=")?;
                if self.gfp_names {
                    writeln!(out, "{}", gfp::to_names(gfp))
                } else {
                    writeln!(out, "{gfp:#x}")
                }
            }
            Kind::Free { order, .. } => writeln!(out, " order={order}"),
            Kind::FreeBatched { .. } => writeln!(out, " order=0"),
            Kind::ZoneLocked { order, migratetype, refill, .. } => writeln!(
                out,
                " order={order} migratetype={migratetype} percpu_refill={}",
                u8::from(refill)
            ),
            Kind::Drain { order, migratetype, .. } => {
                writeln!(out, " order={order} migratetype={migratetype}")
            }
            Kind::ExtFrag {
                alloc_order,
                fallback_order,
                alloc_type,
                fallback_type,
                change_ownership,
                ..
            } => writeln!(
                out,
                " alloc_order={alloc_order} fallback_order={fallback_order} pageblock_order=9 \
                 alloc_migratetype={alloc_type} fallback_migratetype={fallback_type} \
                 fragmenting={} change_ownership={}",
                u8::from(fallback_order < 9),
                u8::from(change_ownership)
            ),
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<(), TraceError> {
        self.lines += 1;
        writeln!(self.out, "{text}").map_err(|error| self.error(Fault::Io(error)))
    }

    fn error(&self, fault: Fault) -> TraceError {
        TraceError::new("text output", Position::Line(self.lines), fault)
    }
}

fn split(t_ns: u64) -> (u64, u64) {
    (t_ns / 1_000_000_000, t_ns % 1_000_000_000)
}

/// Returns the blanks before a name, which the kernel aligns by bytes, not characters.
fn padding(comm: &str) -> &'static str {
    &"                "[comm.len().min(16)..]
}

fn name_and_frame(kind: &Kind) -> (&'static str, Option<u64>) {
    match *kind {
        Kind::Alloc { pfn, .. } => ("mm_page_alloc:", pfn),
        Kind::Free { pfn, .. } => ("mm_page_free:", Some(pfn)),
        Kind::FreeBatched { pfn } => ("mm_page_free_batched:", Some(pfn)),
        Kind::ZoneLocked { pfn, .. } => ("mm_page_alloc_zone_locked:", pfn),
        Kind::Drain { pfn, .. } => ("mm_page_pcpu_drain:", Some(pfn)),
        Kind::ExtFrag { pfn, .. } => ("mm_page_alloc_extfrag:", Some(pfn)),
    }
}
