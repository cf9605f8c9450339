//! Observes an allocator and writes its events in the format of the kernel's tracers.

mod compaction;

use std::cell::RefCell;
use std::io::Write;

pub use compaction::compaction;
use pageyard::{CpuId, Event};
use pageyard_trace::{self as trace, Kind, Record, Tasks, TextWriter, TraceError};

/// Receives every event of a simulated machine.
pub trait Sink {
    /// Whether events are observed. If false, observing costs nothing.
    const ACTIVE: bool = true;

    /// Receives an event on a CPU at a time in nanoseconds.
    fn observe(&self, t_ns: u64, cpu: CpuId, event: Event);
}

/// A sink that ignores all events.
impl Sink for () {
    const ACTIVE: bool = false;

    fn observe(&self, _: u64, _: CpuId, _: Event) {}
}

/// Returns the kernel's page event (§9.5) for an event. Returns `None` if the kernel has no such
/// event or only a compaction event ([`compaction()`]).
pub fn tracepoint(event: &Event) -> Option<Kind> {
    Some(match *event {
        Event::Alloc { pfn, order, migrate_type, gfp } => Kind::Alloc {
            pfn: pfn.map(|p| p.0),
            order: order.get(),
            migratetype: migrate_type as u8,
            gfp: gfp.bits(),
        },
        Event::Free { pfn, order } => Kind::Free { pfn: pfn.0, order: order.get() },
        Event::FreeBatched { pfn } => Kind::FreeBatched { pfn: pfn.0 },
        Event::ZoneLocked { pfn, order, migrate_type, refill } => Kind::ZoneLocked {
            pfn: Some(pfn.0),
            order: order.get(),
            migratetype: migrate_type as u8,
            refill,
        },
        Event::Drain { pfn, order, migrate_type } => {
            Kind::Drain { pfn: pfn.0, order: order.get(), migratetype: migrate_type as u8 }
        }
        Event::Fallback { pfn, order, found, migrate_type, from, claimed } => Kind::ExtFrag {
            pfn: pfn.0,
            alloc_order: order.get(),
            fallback_order: found.get(),
            alloc_type: migrate_type as u8,
            fallback_type: from as u8,
            change_ownership: claimed,
        },
        // The kernel shows these only as the events of the blocks.
        Event::Refill { .. } | Event::BulkFree { .. } | Event::High { .. } | Event::Compact(_) => {
            return None;
        }
    })
}

/// Writes events as ftrace text, one after another, without keeping them.
///
/// All events have the name of one task. After the first error nothing more is written, and
/// [`finish`](Recorder::finish) returns that error.
pub struct Recorder<W: Write> {
    state: RefCell<State<W>>,
}

struct State<W: Write> {
    writer: TextWriter<W>,
    tasks: Tasks,
    task: u32,
    written: u64,
    failed: Option<TraceError>,
}

impl<W: Write> Recorder<W> {
    /// Creates a recorder for a machine of `cpus` CPUs that writes to `out` under the task name
    /// `comm`. `out` should be buffered.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn new(out: W, cpus: u16, comm: &str) -> Result<Self, TraceError> {
        let mut tasks = Tasks::new();
        let task = tasks.intern(1, comm);
        let writer = TextWriter::new(out, Some(cpus))?;
        let state = State { writer, tasks, task, written: 0, failed: None };
        Ok(Recorder { state: RefCell::new(state) })
    }

    /// Flushes and returns the number of events written, and the output.
    ///
    /// # Errors
    /// Fails with the first error since the start.
    pub fn finish(self) -> Result<(u64, W), TraceError> {
        let state = self.state.into_inner();
        match state.failed {
            Some(e) => Err(e),
            None => Ok((state.written, state.writer.finish()?)),
        }
    }
}

impl<W: Write> Sink for Recorder<W> {
    fn observe(&self, t_ns: u64, cpu: CpuId, event: Event) {
        let State { writer, tasks, task, written, failed } = &mut *self.state.borrow_mut();
        if failed.is_some() {
            return;
        }
        let cpu = u16::try_from(cpu.0).unwrap_or(u16::MAX);
        let task = *task;
        let record = match (event, tracepoint(&event)) {
            (_, Some(kind)) => Record::Event(trace::Event { t_ns, cpu, task, kind }),
            (Event::Compact(event), None) => {
                Record::Compaction { t_ns, cpu, task, what: Box::new(compaction(&event)) }
            }
            (_, None) => return,
        };
        match writer.write(tasks, &record) {
            Ok(()) => *written += 1,
            Err(e) => *failed = Some(e),
        }
    }
}
