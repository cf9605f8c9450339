//! `perf.data`, the binary recording of `perf record`, as a file or from a pipe.
//!
//! The file holds copies of the kernel's event descriptions, the recorded events with the layout of
//! their samples, and a stream of records: samples, names of tasks, losses. Records of several CPUs
//! alternate in rounds; those of a round and the next are sorted by time here, as `perf script` does.

mod attr;
mod compressed;
mod head;
mod records;

use std::fs::File;

use attr::{Attrs, RECORD};
use compressed::Inflate;
pub(crate) use head::MAGICS;
use head::{Parts, feature};
use records::{Header, Records};

use crate::binary::{EventTable, Layout, What};
use crate::check::{MAX_CPUS, at_most};
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::input::{Source, bound};
use crate::merge::{self, Item, Queue, Threads};
use crate::printable::name_from_bytes;
use crate::shared::Shared;
use crate::text::MAX_COMM;
use crate::trace_dat::{Store, tracing_data};

/// Types of records.
mod kind {
    pub(super) const LOST: u32 = 2;
    pub(super) const COMM: u32 = 3;
    pub(super) const FORK: u32 = 7;
    pub(super) const SAMPLE: u32 = 9;
    pub(super) const LOST_SAMPLES: u32 = 13;
    pub(super) const ATTR: u32 = 64;
    pub(super) const TRACING_DATA: u32 = 66;
    pub(super) const FINISHED_ROUND: u32 = 68;
    pub(super) const AUXTRACE: u32 = 71;
    pub(super) const FEATURE: u32 = 80;
    pub(super) const COMPRESSED: u32 = 81;
    pub(super) const COMPRESSED2: u32 = 83;
}

/// Reads the records of a `perf.data`.
pub(crate) struct PerfBody {
    store: Store,
    records: Records,
    layout: Layout,
    attrs: Attrs,
    events: Option<EventTable>,
    inflate: Inflate,
    queue: Queue,
    /// Events that were lost, as told at the time, and as summed up at the end by newer kernels.
    lost: (u64, u64),
    threads: Threads,
    ended: bool,
}

impl PerfBody {
    /// Reads the head of the input; for `file`, see [`Store::open`].
    pub(crate) fn start(
        source: &mut Source,
        file: Option<(File, u64)>,
        shared: &mut Shared,
    ) -> Result<Self, TraceError> {
        let mut store = Store::open(source, file, shared)?;
        let mut at = 0;
        let parts = head::read(&mut store, &mut at);
        let parts =
            parts.map_err(|fault| TraceError::new(&shared.name, Position::Byte(at), fault))?;
        let Parts { layout, records, attrs, tracing_data: formats, release } = parts;
        let mut body = PerfBody {
            store,
            records,
            layout,
            attrs,
            events: None,
            inflate: Inflate::new()
                .map_err(|fault| TraceError::new(&shared.name, Position::Whole, fault))?,
            queue: Queue::default(),
            lost: (0, 0),
            threads: Threads::new("swapper", |tid| format!(":{}", tid as i32)),
            ended: false,
        };
        shared.summary.kernel_release = release;
        if let Some((at, bytes)) = formats {
            let events = tracing_data(&bytes);
            let events =
                events.map_err(|fault| TraceError::new(&shared.name, Position::Byte(at), fault))?;
            body.events = Some(events);
            body.note_enabled(shared);
        }
        Ok(body)
    }

    /// Returns the number of bytes of records read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.records.at()
    }

    /// Appends up to `max` records. Returns `false` at the end.
    pub(crate) fn next_chunk(
        &mut self,
        shared: &mut Shared,
        out: &mut Vec<Record>,
        max: usize,
    ) -> Result<bool, TraceError> {
        loop {
            merge::give(&mut self.queue, &mut self.threads, shared, out, max)?;
            if out.len() >= max {
                return Ok(true);
            }
            if self.ended {
                return Ok(false);
            }
            self.read_more(shared)?;
        }
    }

    /// Reads records until some can be given, in order of time.
    fn read_more(&mut self, shared: &mut Shared) -> Result<(), TraceError> {
        let mut record = Vec::new();
        while !self.ended && !self.queue.is_ready() {
            let at = self.records.at();
            match self.records.next(&self.store, self.layout, &mut record) {
                Ok(Some(header)) => self.outer(header, at, &record, shared)?,
                end => {
                    self.ended = true;
                    self.queue.finish();
                    if let Err(fault) = end {
                        shared.fault(Position::Byte(at), fault)?;
                    } else if self.inflate.has_rest() {
                        shared
                            .fault(Position::Byte(at), Fault::Truncated("a compressed record"))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Handles a record of the file, which may hold compressed ones.
    fn outer(
        &mut self,
        header: Header,
        at: u64,
        record: &[u8],
        shared: &mut Shared,
    ) -> Result<(), TraceError> {
        let packed = match header.kind {
            kind::COMPRESSED => record.get(8..),
            kind::COMPRESSED2 => self
                .layout
                .at(record, 8, 8)
                .and_then(|size| record.get(16..)?.get(..usize::try_from(size).ok()?)),
            _ => return self.handle(header, at, record, shared),
        };
        let result = packed.ok_or(Fault::Truncated("a compressed record")).and_then(|packed| {
            let limit = bound::TEXT.of(self.records.at());
            self.inflate.add(packed, limit)
        });
        if let Err(fault) = result {
            // Nothing after the damage can be decompressed.
            self.ended = true;
            self.queue.finish();
            return shared.fault(Position::Byte(at), fault);
        }
        loop {
            match self.inflate.next(self.layout) {
                Ok(None) => return Ok(()),
                Ok(Some((header, inner))) => self.handle(header, at, &inner, shared)?,
                Err(fault) => {
                    self.ended = true;
                    self.queue.finish();
                    return shared.fault(Position::Byte(at), fault);
                }
            }
        }
    }

    /// Handles a plain record; a faulty one is counted and skipped in lenient mode.
    fn handle(
        &mut self,
        header: Header,
        at: u64,
        record: &[u8],
        shared: &mut Shared,
    ) -> Result<(), TraceError> {
        self.try_handle(header, at, record, shared)
            .or_else(|fault| shared.fault(Position::Byte(at), fault))
    }

    fn try_handle(
        &mut self,
        header: Header,
        at: u64,
        record: &[u8],
        shared: &mut Shared,
    ) -> Result<(), Fault> {
        let short = Fault::Truncated("a record");
        let number =
            |at, size| self.layout.at(record, at, size).ok_or(Fault::Truncated("a record"));
        match header.kind {
            kind::SAMPLE => return self.sample(at, record, shared),
            kind::LOST => self.lost.0 = self.lost.0.saturating_add(number(16, 8)?),
            kind::LOST_SAMPLES => self.lost.1 = self.lost.1.saturating_add(number(8, 8)?),
            kind::COMM => {
                let text = record.get(16..).ok_or(short)?;
                let comm = text.split(|&b| b == 0).next().unwrap_or_default();
                if comm.len() > MAX_COMM {
                    return Err(Fault::Record("a command name of more than 127 bytes"));
                }
                let item = Item::Comm { tid: number(12, 4)? as u32, comm: comm.into() };
                self.queue.push(self.attrs.time_at_end(self.layout, record), at, item);
            }
            kind::FORK => {
                let (tid, parent) = (number(16, 4)? as u32, number(20, 4)? as u32);
                self.queue.push(number(24, 8)?, at, Item::Fork { tid, parent });
            }
            kind::FINISHED_ROUND => self.queue.finish_round(),
            kind::ATTR => {
                self.attrs.add_record(self.layout, record)?;
                self.note_last(shared);
            }
            kind::FEATURE if number(8, 8)? == feature::OS_RELEASE => {
                shared.summary.kernel_release = head::string(self.layout, &record[16..])
                    .or(shared.summary.kernel_release.take());
            }
            // A table of events is large for the few bytes that may describe it.
            kind::TRACING_DATA if self.events.is_some() => {
                return Err(Fault::Record("a second set of descriptions of the events"));
            }
            kind::TRACING_DATA => {
                let mut bytes = Vec::new();
                self.records.payload(&self.store, number(8, 4)?, &mut bytes)?;
                self.events = Some(tracing_data(&bytes)?);
                self.note_enabled(shared);
            }
            kind::AUXTRACE => self.records.skip(number(8, 8)?)?,
            _ => {}
        }
        shared.summary.lost = self.lost.0.max(self.lost.1);
        Ok(())
    }

    /// Notes the names of the recorded tracepoints.
    fn note_enabled(&self, shared: &mut Shared) {
        if let Some(events) = &self.events {
            let names = self.attrs.tracepoints().filter_map(|id| events.name(id));
            shared.summary.enabled_events = Some(names.map(str::to_owned).collect());
        }
    }

    /// Notes the name of the last described event. Only of that one: there may be any number.
    fn note_last(&self, shared: &mut Shared) {
        if let Some(events) = &self.events
            && let Some(name) = self.attrs.last_tracepoint().and_then(|id| events.name(id))
        {
            let enabled = shared.summary.enabled_events.get_or_insert_default();
            enabled.push(name.to_owned());
        }
    }

    fn sample(&mut self, at: u64, record: &[u8], shared: &mut Shared) -> Result<(), Fault> {
        let Some(sample) = self.attrs.sample(self.layout, record)? else { return Ok(()) };
        let events = self.events.as_ref().ok_or(Fault::Unusable {
            what: "the descriptions of the events are missing: the recording was not finished",
            fix: RECORD,
        })?;
        let decoded = events.decode(sample.raw)?;
        let tid = sample.tid.unwrap_or(decoded.pid);
        at_most("cpu", sample.cpu.into(), u64::from(MAX_CPUS - 1))?;
        let cpu = sample.cpu as u16;
        let item = match decoded.what {
            What::Page(kind) => Item::Page { cpu, tid, kind },
            What::Compaction(what) => Item::Compaction { cpu, tid, what },
            What::Print { text, .. } => Item::Mark { cpu, text: name_from_bytes(text, Some('\t')) },
            What::Comm { event: name, .. } | What::Other(name) => {
                shared.summary.ignored.add(name);
                return Ok(());
            }
        };
        self.queue.push(sample.t_ns, at, item);
        Ok(())
    }
}
