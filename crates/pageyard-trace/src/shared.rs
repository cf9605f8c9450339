//! State shared by the readers of all formats.

use crate::check::{MAX_BACKWARD_NS, check_event};
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::summary::Summary;
use crate::tasks::Tasks;

/// Collects tasks, counts and faults from the readers.
pub(crate) struct Shared {
    pub(crate) name: Box<str>,
    lenient: bool,
    pub(crate) tasks: Tasks,
    pub(crate) summary: Summary,
    last_ns: u64,
}

impl Shared {
    /// Creates the state before anything is read.
    pub(crate) fn new(name: &str, lenient: bool) -> Self {
        Shared {
            name: name.into(),
            lenient,
            tasks: Tasks::new(),
            summary: Summary::default(),
            last_ns: 0,
        }
    }

    /// Returns whether faults are counted.
    pub(crate) fn is_lenient(&self) -> bool {
        self.lenient
    }

    /// Reports a fault: returns an error in strict mode, counts it in lenient mode. I/O errors, and
    /// a clock whose times mean nothing, are always returned.
    pub(crate) fn fault(&mut self, position: Position, fault: Fault) -> Result<(), TraceError> {
        let fatal = !self.lenient || matches!(fault, Fault::Io(_) | Fault::Clock { .. });
        let error = TraceError::new(&self.name, position, fault);
        if fatal {
            return Err(error);
        }
        self.summary.malformed.add(error);
        Ok(())
    }

    /// Appends a record to `out`, counted and checked. An error leaves `out` as it was.
    pub(crate) fn push(
        &mut self,
        out: &mut Vec<Record>,
        record: Record,
        position: Position,
    ) -> Result<(), TraceError> {
        out.push(record);
        self.accept(&out[out.len() - 1..], position).map_err(|(_, error)| {
            out.pop();
            error
        })
    }

    /// Counts records and checks that time does not go back. An error includes the number of valid
    /// records before it.
    pub(crate) fn accept(
        &mut self,
        records: &[Record],
        position: Position,
    ) -> Result<(), (usize, TraceError)> {
        // Local copies keep this loop out of memory; it runs for every record.
        let mut last_ns = self.last_ns;
        let mut kinds = self.summary.kinds;
        let (mut earliest, mut latest) = self.summary.span_ns.unwrap_or((u64::MAX, 0));
        let mut marks = 0;
        for (at, record) in records.iter().enumerate() {
            let t_ns = match record {
                Record::Event(event) => {
                    debug_assert!(check_event(event).is_ok());
                    kinds.add(event);
                    event.t_ns
                }
                Record::Compaction { t_ns, what, .. } => {
                    self.summary.compaction.add(what);
                    *t_ns
                }
                Record::Mark { t_ns, .. } => {
                    marks += 1;
                    *t_ns
                }
            };
            let by_ns = last_ns.saturating_sub(t_ns);
            if by_ns > MAX_BACKWARD_NS {
                self.fault(position, Fault::Backwards { by_ns }).map_err(|error| (at, error))?;
            }
            last_ns = t_ns;
            earliest = earliest.min(t_ns);
            latest = latest.max(t_ns);
        }
        self.last_ns = last_ns;
        self.summary.kinds = kinds;
        self.summary.marks += marks;
        if !records.is_empty() {
            self.summary.span_ns = Some((earliest, latest));
        }
        Ok(())
    }
}
