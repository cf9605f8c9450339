//! Encodes records as the content of a chunk: one set of columns per kind and CPU.

use std::collections::HashMap;

use super::bytes::{put, put_bytes, zigzag};
use super::layout::{MARK, STREAM_KINDS, stream_of};
use crate::check::MAX_CPUS;
use crate::compaction_layout::POINTS;
use crate::event::{Event, Kind, Record};
use crate::tasks::Tasks;

/// Columns of one stream.
#[derive(Default)]
struct Stream {
    kind: u8,
    cpu: u16,
    count: u64,
    last_pfn: u64,
    /// Frame differences, texts of marks, or values of compaction events.
    first: Vec<u8>,
    attributes: Vec<u8>,
    tasks: Vec<u32>,
    flags: Vec<u32>,
}

/// Numbers values in order of first use.
#[derive(Default)]
struct Dictionary {
    numbers: HashMap<u32, u32>,
    list: Vec<u32>,
}

impl Dictionary {
    fn number(&mut self, value: u32) -> u32 {
        *self.numbers.entry(value).or_insert_with(|| {
            self.list.push(value);
            self.list.len() as u32 - 1
        })
    }
}

/// Encodes `records`, of which there is at least one, as the content of a chunk. Every event's task
/// must be in `tasks`.
pub(super) fn encode(records: &[Record], tasks: &Tasks) -> Vec<u8> {
    // Streams are numbered by kind, then CPU, so that similar columns are adjacent.
    let mut stream_at = vec![u16::MAX; STREAM_KINDS * usize::from(MAX_CPUS)];
    let slot =
        |(kind, cpu): (u8, u16)| usize::from(kind) * usize::from(MAX_CPUS) + usize::from(cpu);
    let mut slots = Vec::new();
    for record in records {
        let at = slot(stream_of(record));
        if stream_at[at] == u16::MAX {
            stream_at[at] = 0;
            slots.push(at);
        }
    }
    slots.sort_unstable();
    let mut streams = Vec::with_capacity(slots.len());
    for (number, at) in (0..).zip(slots) {
        stream_at[at] = number;
        let cpus = usize::from(MAX_CPUS);
        let (kind, cpu) = ((at / cpus) as u8, (at % cpus) as u16);
        streams.push(Stream { kind, cpu, ..Stream::default() });
    }

    let mut used_tasks = Dictionary::default();
    let mut used_flags = Dictionary::default();
    let mut order = Vec::with_capacity(records.len());
    let mut times = Vec::new();
    let mut t_last = time(&records[0]);
    let t_first = t_last;
    for record in records {
        let number = stream_at[slot(stream_of(record))];
        order.push(number);
        put(&mut times, zigzag(t_last, time(record)));
        t_last = time(record);
        let stream = &mut streams[usize::from(number)];
        stream.count += 1;
        match record {
            Record::Compaction { task, what, .. } => {
                stream.tasks.push(used_tasks.number(*task));
                let (point, values) = what.values();
                stream.first.push(point as u8);
                for (_, value) in POINTS[point].fields.iter().zip(values) {
                    put(&mut stream.first, value);
                }
            }
            Record::Mark { text, .. } => put_bytes(&mut stream.first, text.as_bytes()),
            Record::Event(event) => {
                stream.tasks.push(used_tasks.number(event.task));
                stream.event(event, &mut used_flags);
            }
        }
    }

    let mut out = Vec::with_capacity(records.len() * 8);
    put(&mut out, records.len() as u64);
    put(&mut out, t_first);
    put(&mut out, used_tasks.list.len() as u64);
    for &task in &used_tasks.list {
        let task = &tasks[task];
        put(&mut out, u64::from(task.pid));
        put_bytes(&mut out, task.comm.as_bytes());
    }
    put(&mut out, used_flags.list.len() as u64);
    for &flags in &used_flags.list {
        put(&mut out, u64::from(flags));
    }
    put(&mut out, streams.len() as u64);
    for stream in &streams {
        out.push(stream.kind);
        put(&mut out, u64::from(stream.cpu));
        put(&mut out, stream.count);
        put(&mut out, stream.first.len() as u64);
    }
    put_indices(&mut out, order.iter().map(|&s| u32::from(s)), streams.len());
    put_bytes(&mut out, &times);
    streams.iter().for_each(|s| out.extend_from_slice(&s.first));
    streams.iter().for_each(|s| out.extend_from_slice(&s.attributes));
    for stream in streams.iter().filter(|s| s.kind != MARK) {
        put_indices(&mut out, stream.tasks.iter().copied(), used_tasks.list.len());
    }
    for stream in &streams {
        put_indices(&mut out, stream.flags.iter().copied(), used_flags.list.len());
    }
    out
}

impl Stream {
    fn event(&mut self, event: &Event, flags: &mut Dictionary) {
        let attribute = |order: u8, migratetype: u8| order | migratetype << 4;
        match event.kind {
            Kind::Alloc { pfn, order, migratetype, gfp } => {
                self.frame(pfn);
                self.attributes.push(attribute(order, migratetype));
                self.flags.push(flags.number(gfp));
            }
            Kind::Free { pfn, order } => {
                self.frame(Some(pfn));
                self.attributes.push(order);
            }
            Kind::FreeBatched { pfn } => self.frame(Some(pfn)),
            Kind::ZoneLocked { pfn, order, migratetype, refill } => {
                self.frame(pfn);
                self.attributes.push(attribute(order, migratetype) | u8::from(refill) << 7);
            }
            Kind::Drain { pfn, order, migratetype } => {
                self.frame(Some(pfn));
                self.attributes.push(attribute(order, migratetype));
            }
            Kind::ExtFrag {
                pfn,
                alloc_order,
                fallback_order,
                alloc_type,
                fallback_type,
                change_ownership,
            } => {
                self.frame(Some(pfn));
                let changed = u8::from(change_ownership) << 7;
                self.attributes.push(attribute(alloc_order, alloc_type) | changed);
                self.attributes.push(attribute(fallback_order, fallback_type));
            }
        }
    }

    /// Appends 0 for no frame, otherwise the difference to the stream's last frame, plus 1.
    fn frame(&mut self, pfn: Option<u64>) {
        match pfn {
            None => self.first.push(0),
            Some(pfn) => {
                put(&mut self.first, zigzag(self.last_pfn, pfn) + 1);
                self.last_pfn = pfn;
            }
        }
    }
}

fn time(record: &Record) -> u64 {
    match record {
        Record::Event(event) => event.t_ns,
        Record::Compaction { t_ns, .. } | Record::Mark { t_ns, .. } => *t_ns,
    }
}

/// Appends indices below `limit`. One byte each if that suffices; otherwise all low bytes, then all
/// high bytes.
fn put_indices(out: &mut Vec<u8>, indices: impl Iterator<Item = u32> + Clone, limit: usize) {
    out.extend(indices.clone().map(|index| index as u8));
    if limit > 256 {
        out.extend(indices.map(|index| (index >> 8) as u8));
    }
}
