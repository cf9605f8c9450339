//! Decodes the content of a chunk to records.

use super::bytes::{Bytes, Wrong, unzigzag};
use super::layout::{
    ALLOC, COMPACTION, DRAIN, EXT_FRAG, FREE, FREE_BATCHED, MARK, MAX_COMM, MAX_CONTENT, MAX_MARK,
    MAX_RECORDS, STREAM_KINDS, ZONE_LOCKED, attributes,
};
use crate::check::{MAX_CPUS, MAX_ORDER, MAX_PFN};
use crate::compaction::Compaction;
use crate::compaction_layout::{MOST, POINTS};
use crate::error::Fault;
use crate::event::{Event, Kind, Record};
use crate::printable::name_from_bytes;
use crate::tasks::Tasks;

/// Read positions in the columns of one stream.
struct Stream<'a> {
    kind: u8,
    cpu: u16,
    count: usize,
    last_pfn: u64,
    first: Bytes<'a>,
    attributes: Bytes<'a>,
    tasks: Indices<'a>,
    flags: Indices<'a>,
}

/// Column of one-byte or two-byte indices.
struct Indices<'a> {
    low: &'a [u8],
    high: Option<&'a [u8]>,
    at: usize,
}

impl<'a> Indices<'a> {
    const NONE: Indices<'static> = Indices { low: &[], high: None, at: 0 };

    fn take(from: &mut Bytes<'a>, count: usize, limit: usize) -> Result<Self, Wrong> {
        let low = from.take(count)?.0;
        let high = if limit > 256 { Some(from.take(count)?.0) } else { None };
        Ok(Indices { low, high, at: 0 })
    }

    #[inline(always)]
    fn next(&mut self) -> Result<usize, Wrong> {
        let low = *self.low.get(self.at).ok_or("a column ends early")?;
        let high = self.high.map_or(0, |high| high[self.at]);
        self.at += 1;
        Ok(usize::from(high) << 8 | usize::from(low))
    }
}

/// Buffers reused from chunk to chunk.
#[derive(Default)]
pub(super) struct Decoder {
    tasks: Vec<u32>,
    flags: Vec<u32>,
}

impl Decoder {
    /// Appends the records of a chunk. On a fault, `out` is unchanged but `tasks` may have grown.
    pub(super) fn decode(
        &mut self,
        content: &[u8],
        tasks: &mut Tasks,
        out: &mut Vec<Record>,
    ) -> Result<(), Fault> {
        let before = out.len();
        let result = self.try_decode(content, tasks, out);
        if result.is_err() {
            out.truncate(before);
        }
        result.map_err(Fault::Content)
    }

    fn try_decode(
        &mut self,
        content: &[u8],
        tasks: &mut Tasks,
        out: &mut Vec<Record>,
    ) -> Result<(), Wrong> {
        let mut input = Bytes(content);
        let count = input.count(MAX_RECORDS as usize)?;
        if count == 0 {
            return Err("no records");
        }
        let mut t_ns = input.number()?;

        self.tasks.clear();
        for _ in 0..input.count(count)? {
            let pid = u32::try_from(input.number()?).map_err(|_| "a pid exceeds 32 bits")?;
            let comm = name_from_bytes(input.text(MAX_COMM)?.as_bytes(), None);
            if comm.len() > MAX_COMM {
                return Err("a command name of more than 512 bytes");
            }
            self.tasks.push(tasks.intern(pid, &comm));
        }
        self.flags.clear();
        for _ in 0..input.count(count)? {
            let flags =
                u32::try_from(input.number()?).map_err(|_| "request flags exceed 32 bits")?;
            self.flags.push(flags);
        }

        let (mut streams, lengths) = streams(&mut input, count)?;
        let mut order = Indices::take(&mut input, count, streams.len())?;
        let times = input.count(MAX_CONTENT)?;
        let mut times = input.take(times)?;
        columns(&mut input, &mut streams, &lengths, self.tasks.len(), self.flags.len())?;
        input.end()?;

        out.reserve(count);
        for _ in 0..count {
            let number = order.next()?;
            let stream = streams.get_mut(number).ok_or("unknown stream")?;
            t_ns = unzigzag(t_ns, times.number()?);
            out.push(if stream.kind == MARK {
                let text = name_from_bytes(stream.first.text(MAX_MARK)?.as_bytes(), Some('\t'));
                if text.len() > MAX_MARK {
                    return Err("a mark of more than 256 KiB");
                }
                Record::Mark { t_ns, cpu: stream.cpu, text }
            } else {
                let task = stream.tasks.next()?;
                let task = *self.tasks.get(task).ok_or("unknown task")?;
                let cpu = stream.cpu;
                if stream.kind == COMPACTION {
                    let what = Box::new(stream.compaction()?);
                    Record::Compaction { t_ns, cpu, task, what }
                } else {
                    let kind = stream.event(&self.flags)?;
                    Record::Event(Event { t_ns, cpu, task, kind })
                }
            });
        }
        times.end()?;
        streams.iter().try_for_each(Stream::end)
    }
}

/// Reads the table of streams, with empty columns, and the lengths of their first columns.
fn streams<'a>(
    input: &mut Bytes<'a>,
    records: usize,
) -> Result<(Vec<Stream<'a>>, Vec<usize>), Wrong> {
    let mut streams = Vec::new();
    let mut lengths = Vec::new();
    for _ in 0..input.count(records.min(STREAM_KINDS * usize::from(MAX_CPUS)))? {
        let kind = input.byte()?;
        if usize::from(kind) >= STREAM_KINDS {
            return Err("a stream of unknown kind");
        }
        let cpu = input.count(usize::from(MAX_CPUS) - 1)? as u16;
        let count = input.count(records)?;
        lengths.push(input.count(MAX_CONTENT)?);
        streams.push(Stream {
            kind,
            cpu,
            count,
            last_pfn: 0,
            first: Bytes(&[]),
            attributes: Bytes(&[]),
            tasks: Indices::NONE,
            flags: Indices::NONE,
        });
    }
    Ok((streams, lengths))
}

/// Assigns the columns to the streams. Similar columns are adjacent.
fn columns<'a>(
    input: &mut Bytes<'a>,
    streams: &mut [Stream<'a>],
    lengths: &[usize],
    tasks: usize,
    flags: usize,
) -> Result<(), Wrong> {
    for (stream, &length) in streams.iter_mut().zip(lengths) {
        stream.first = input.take(length)?;
    }
    for stream in streams.iter_mut() {
        stream.attributes = input.take(stream.count * attributes(stream.kind))?;
    }
    for stream in streams.iter_mut().filter(|stream| stream.kind != MARK) {
        stream.tasks = Indices::take(input, stream.count, tasks)?;
    }
    for stream in streams.iter_mut().filter(|stream| stream.kind == ALLOC) {
        stream.flags = Indices::take(input, stream.count, flags)?;
    }
    Ok(())
}

impl Stream<'_> {
    #[inline(always)]
    fn event(&mut self, flags: &[u32]) -> Result<Kind, Wrong> {
        let pfn = self.frame()?;
        let some = || pfn.ok_or("an event that needs a frame has none");
        Ok(match self.kind {
            ALLOC => {
                let (order, migratetype, _) = self.attribute(0)?;
                let gfp = self.flags.next()?;
                let gfp = *flags.get(gfp).ok_or("unknown request flags")?;
                Kind::Alloc { pfn, order, migratetype, gfp }
            }
            FREE => {
                let (order, 0, _) = self.attribute(0)? else {
                    return Err("a free has a type");
                };
                Kind::Free { pfn: some()?, order }
            }
            FREE_BATCHED => Kind::FreeBatched { pfn: some()? },
            ZONE_LOCKED => {
                let (order, migratetype, refill) = self.attribute(1)?;
                Kind::ZoneLocked { pfn, order, migratetype, refill }
            }
            DRAIN => {
                let (order, migratetype, _) = self.attribute(0)?;
                Kind::Drain { pfn: some()?, order, migratetype }
            }
            EXT_FRAG => {
                let (alloc_order, alloc_type, change_ownership) = self.attribute(1)?;
                let (fallback_order, fallback_type, _) = self.attribute(0)?;
                Kind::ExtFrag {
                    pfn: some()?,
                    alloc_order,
                    fallback_order,
                    alloc_type,
                    fallback_type,
                    change_ownership,
                }
            }
            _ => return Err("a stream of unknown kind"),
        })
    }

    fn compaction(&mut self) -> Result<Compaction, Wrong> {
        let point = usize::from(self.first.byte()?);
        let described = POINTS.get(point).ok_or("an event of compaction of unknown kind")?;
        let mut values = [0; MOST];
        for (value, _) in values.iter_mut().zip(described.fields) {
            *value = self.first.number()?;
        }
        let read = Compaction::from_values(point, values);
        read.ok().flatten().ok_or("an impossible value of compaction")
    }

    /// Reads an order, a type, and the top bit, which is at most `top`.
    #[inline(always)]
    fn attribute(&mut self, top: u8) -> Result<(u8, u8, bool), Wrong> {
        let byte = self.attributes.byte()?;
        let (order, migratetype, flag) = (byte & 15, byte >> 4 & 7, byte >> 7);
        if order > MAX_ORDER || flag > top {
            return Err("an impossible order or type");
        }
        Ok((order, migratetype, flag == 1))
    }

    #[inline(always)]
    fn frame(&mut self) -> Result<Option<u64>, Wrong> {
        let code = self.first.number()?;
        if code == 0 {
            return Ok(None);
        }
        self.last_pfn = unzigzag(self.last_pfn, code - 1);
        if self.last_pfn > MAX_PFN {
            return Err("a frame number exceeds its limit");
        }
        Ok(Some(self.last_pfn))
    }

    /// Checks that every column was consumed.
    fn end(&self) -> Result<(), Wrong> {
        self.first.end()?;
        self.attributes.end()?;
        let left = self.tasks.at != self.tasks.low.len() || self.flags.at != self.flags.low.len();
        if left { Err("a column has surplus entries") } else { Ok(()) }
    }
}
