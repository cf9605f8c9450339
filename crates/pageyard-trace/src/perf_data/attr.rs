//! The recorded events and the layout of their samples.

use std::collections::HashMap;

use crate::binary::Layout;
use crate::error::Fault;

/// How to record what is needed.
pub(super) const RECORD: &str = "record all CPUs with tracepoints: perf record -a -k CLOCK_MONOTONIC -e kmem:mm_page_alloc -e …";

/// Bits of `sample_type`: which fields a sample has.
mod has {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of `read_format`.
mod read {
    pub(super) const TIMES: [u64; 2] = [1 << 0, 1 << 1];
    pub(super) const ID: u64 = 1 << 2;
    pub(super) const GROUP: u64 = 1 << 3;
    pub(super) const LOST: u64 = 1 << 4;
}

/// Type of an event that is a tracepoint.
const TRACEPOINT: u64 = 2;
/// Smallest size of the description of an event in bytes: that of its first version.
pub(super) const MIN_SIZE: usize = 64;
/// Bit of the flags: other records end with the sample's identification.
const SAMPLE_ID_ALL: u64 = 1 << 18;

/// A recorded event.
#[derive(Clone, Copy)]
struct Attr {
    kind: u64,
    config: u64,
    sample_type: u64,
    read_format: u64,
    sample_id_all: bool,
}

impl Attr {
    fn tracepoint(&self) -> Option<u16> {
        u16::try_from(self.config).ok().filter(|_| self.kind == TRACEPOINT)
    }
}

/// All recorded events, and which of them has which identifiers.
#[derive(Default)]
pub(super) struct Attrs {
    list: Vec<Attr>,
    /// Fields of samples that all events have, and that any event has. Kept, so that a record takes
    /// the same time however many events there are.
    in_all: Option<u64>,
    in_any: u64,
    by_id: HashMap<u64, usize>,
}

/// The parts of a sample that are used.
pub(super) struct Sample<'a> {
    pub(super) tid: Option<u32>,
    pub(super) t_ns: u64,
    pub(super) cpu: u32,
    pub(super) raw: &'a [u8],
}

impl Attrs {
    /// Adds an event by its description.
    ///
    /// # Errors
    /// Fails with [`Fault::Truncated`] if it is too short.
    pub(super) fn add(&mut self, layout: Layout, bytes: &[u8]) -> Result<(), Fault> {
        let number = |at, size| layout.at(bytes, at, size).ok_or(Fault::Truncated("an event"));
        let attr = Attr {
            kind: number(0, 4)?,
            config: number(8, 8)?,
            sample_type: number(24, 8)?,
            read_format: number(32, 8)?,
            sample_id_all: number(40, 8)? & SAMPLE_ID_ALL != 0,
        };
        self.in_all = Some(self.in_all.unwrap_or(u64::MAX) & attr.sample_type);
        self.in_any |= attr.sample_type;
        self.list.push(attr);
        Ok(())
    }

    /// Adds an identifier of the last event.
    pub(super) fn add_id(&mut self, id: u64) {
        self.by_id.insert(id, self.list.len().saturating_sub(1));
    }

    /// Adds the event that a record of a pipe describes.
    pub(super) fn add_record(&mut self, layout: Layout, record: &[u8]) -> Result<(), Fault> {
        let cut = || Fault::Truncated("the description of an event");
        let size = layout.at(record, 12, 4).ok_or_else(cut)? as usize;
        let end = size.checked_add(8).filter(|_| size >= MIN_SIZE).ok_or_else(cut)?;
        self.add(layout, record.get(8..end).ok_or_else(cut)?)?;
        record[end..].chunks_exact(8).for_each(|id| self.add_id(layout.number(id)));
        Ok(())
    }

    /// Returns the numbers of the recorded tracepoints.
    pub(super) fn tracepoints(&self) -> impl Iterator<Item = u16> {
        self.list.iter().filter_map(Attr::tracepoint)
    }

    /// Returns the number of the tracepoint that was added last, if that event is one.
    pub(super) fn last_tracepoint(&self) -> Option<u16> {
        self.list.last().and_then(Attr::tracepoint)
    }

    /// Returns the event with this identifier; without one, the first.
    fn of(&self, id: Option<u64>) -> Result<&Attr, Fault> {
        let at = match id {
            // 0 is written by perf itself.
            Some(id) if id != 0 => self.by_id.get(&id).copied(),
            _ => Some(0),
        };
        let found = at.and_then(|at| self.list.get(at));
        found.ok_or(Fault::Record("a record of an event that the file does not describe"))
    }

    /// Returns whether records begin and end with the event's identifier.
    fn are_identified(&self) -> bool {
        self.in_all.is_none_or(|fields| fields & has::IDENTIFIER != 0)
    }

    /// Returns the time at the end of a record that is not a sample; 0 if it has none.
    pub(super) fn time_at_end(&self, layout: Layout, record: &[u8]) -> u64 {
        let from_end = |words: usize| {
            let at = record.len().checked_sub(8 * words).filter(|&at| at >= 8)?;
            layout.at(record, at, 8)
        };
        let id = self.are_identified().then(|| from_end(1)).flatten();
        let Ok(attr) = self.of(id) else { return 0 };
        if !attr.sample_id_all || attr.sample_type & has::TIME == 0 {
            return 0;
        }
        let after = [has::ID, has::STREAM_ID, has::CPU, has::IDENTIFIER];
        let after = after.into_iter().filter(|bit| attr.sample_type & bit != 0).count();
        from_end(after + 1).unwrap_or(0)
    }

    /// Parses a sample. Returns `None` for one of an event that is not a tracepoint.
    ///
    /// # Errors
    /// Fails if the sample ends before its fields, or lacks a field that is needed.
    pub(super) fn sample<'a>(
        &self,
        layout: Layout,
        record: &'a [u8],
    ) -> Result<Option<Sample<'a>>, Fault> {
        let mut at = Cursor { layout, bytes: record, at: 8 };
        let id = if self.are_identified() { layout.at(record, 8, 8) } else { None };
        let attr = self.of(id)?;
        if attr.kind != TRACEPOINT {
            return Ok(None);
        }
        if id.is_none() && self.in_all != Some(self.in_any) {
            return Err(Fault::Unusable {
                what: "the samples of the events have different fields and no identifier",
                fix: RECORD,
            });
        }
        let fields = attr.sample_type;
        let needed = has::TIME | has::CPU | has::RAW;
        if fields & needed != needed {
            let what = "the samples lack the time, the CPU or the event's own fields";
            return Err(Fault::Unusable { what, fix: RECORD });
        }
        let mut word = |bit: u64| (fields & bit != 0).then(|| at.word()).transpose();
        word(has::IDENTIFIER)?;
        word(has::IP)?;
        let ids = word(has::TID)?.map(|at| &record[at..at + 8]);
        let time = word(has::TIME)?;
        for bit in [has::ADDR, has::ID, has::STREAM_ID] {
            word(bit)?;
        }
        let cpu = word(has::CPU)?;
        word(has::PERIOD)?;
        if fields & has::READ != 0 {
            at.skip_values(attr.read_format)?;
        }
        if fields & has::CALLCHAIN != 0 {
            let count = at.number(8)?;
            at.skip(count.saturating_mul(8))?;
        }
        let size = at.number(4)?;
        let raw = at.at;
        at.skip(size)?;
        let number = |at: Option<usize>, size| at.and_then(|at| layout.at(record, at, size));
        Ok(Some(Sample {
            tid: ids.map(|ids| layout.number(&ids[4..]) as u32),
            t_ns: number(time, 8).unwrap_or(0),
            cpu: number(cpu, 4).unwrap_or(0) as u32,
            raw: &record[raw..at.at],
        }))
    }
}

/// A position in a sample.
struct Cursor<'a> {
    layout: Layout,
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn skip(&mut self, size: u64) -> Result<(), Fault> {
        let end = usize::try_from(size).ok().and_then(|size| self.at.checked_add(size));
        let end = end.filter(|&end| end <= self.bytes.len());
        self.at = end.ok_or(Fault::Record("a sample ends before its last field"))?;
        Ok(())
    }

    /// Skips a field of eight bytes, and returns where it begins.
    fn word(&mut self) -> Result<usize, Fault> {
        let at = self.at;
        self.skip(8).map(|()| at)
    }

    fn number(&mut self, size: usize) -> Result<u64, Fault> {
        let at = self.at;
        self.skip(size as u64)?;
        Ok(self.layout.number(&self.bytes[at..self.at]))
    }

    /// Skips the values of counters.
    fn skip_values(&mut self, format: u64) -> Result<(), Fault> {
        let with = |bits: &[u64]| bits.iter().filter(|&&bit| format & bit != 0).count() as u64;
        let each = 1 + with(&[read::ID, read::LOST]);
        let values = if format & read::GROUP != 0 { self.number(8)? } else { 1 };
        let words = values.saturating_mul(each).saturating_add(with(&read::TIMES));
        self.skip(words.saturating_mul(8))
    }
}
