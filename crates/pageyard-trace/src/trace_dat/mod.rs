//! `trace.dat`, the binary recording of `trace-cmd`, versions 6 and 7.
//!
//! The file holds copies of the kernel's event descriptions and, for each CPU, the sub-buffers of
//! its ring buffer. [`DatBody`] decodes the records and merges those of all CPUs by time.

mod head;
mod inflate;
mod store;
mod stream;
mod symbols;
mod version6;
mod version7;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::ops::Range;

use head::{CpuData, Head};
use inflate::Inflate;
use store::Items;
pub(crate) use store::Store;
use stream::CpuStream;

use crate::binary::{EventTable, Layout, PageLayout, What};
use crate::error::{Fault, Position, TraceError, excerpt};
use crate::event::{Event, Record};
use crate::input::Source;
use crate::printable::name_from_bytes;
use crate::shared::Shared;
use crate::text::mark_text;

/// First bytes of a file.
pub(crate) const MAGIC: [u8; 10] = *b"\x17\x08\x44tracing";

/// Sub-buffers of one CPU that this program recorded: chunks as in version 7.
pub(crate) struct Spool {
    pub(crate) cpu: u16,
    pub(crate) file: File,
    /// Number of chunks.
    pub(crate) chunks: u32,
    /// Size of the file in bytes.
    pub(crate) size: u64,
}

/// Reads the records of a `trace.dat`.
pub(crate) struct DatBody {
    /// The file; of a recording of this program, one for each stream.
    stores: Vec<Store>,
    inflate: Inflate,
    head: Head,
    streams: Vec<CpuStream>,
    /// The next record of each stream, by time, then by stream.
    next: BinaryHeap<Reverse<(u64, usize, usize, usize)>>,
    /// Indices of tasks by pid.
    tasks: HashMap<u32, u32>,
    /// The instance that has page events.
    buffer: Option<usize>,
    /// The instance of the last record, whose clock counts nanoseconds.
    checked: Option<usize>,
    /// Whether this program recorded: then events tell when a task changes its name, and every
    /// `print` event is a mark.
    is_own: bool,
}

/// Maximum length of a mark in bytes, its writer's name included. The kernel cuts at a page.
const MAX_MARK: usize = 1 << 16;

/// What `trace-cmd` prints for a process without a name, and for pid 0.
const UNKNOWN_COMM: &str = "<...>";
const IDLE_COMM: &str = "<idle>";

impl DatBody {
    /// Reads the head of the input; for `file`, see [`Store::open`].
    pub(crate) fn start(
        source: &mut Source,
        file: Option<(File, u64)>,
        shared: &mut Shared,
    ) -> Result<Self, TraceError> {
        let mut store = Store::open(source, file, shared)?;
        let mut head = Head::new(Layout { big_endian: false, long: 8 });
        let (streams, inflate) = match read_head(&mut head, &mut store) {
            Ok(parts) => parts,
            Err(fault) => {
                return Err(TraceError::new(&shared.name, Position::Byte(head.at), fault));
            }
        };
        for (at, fault) in head.faults.drain(..) {
            shared.fault(Position::Byte(at), fault)?;
        }
        let summary = &mut shared.summary;
        summary.kernel_release = head.kernel_release.take();
        // That of the buffer with the page events, once there is one.
        let clock = head.buffers.first().map_or("", |buffer| &buffer.clock);
        summary.clock = Some(clock.to_owned()).filter(|name| !name.is_empty());
        summary.declared_cpus = Some(head.cpus).filter(|&cpus| cpus > 0);
        let body = DatBody {
            stores: vec![store],
            inflate,
            head,
            streams,
            next: BinaryHeap::new(),
            tasks: HashMap::new(),
            buffer: None,
            checked: None,
            is_own: false,
        };
        body.begin(shared)
    }

    /// Reads what this program recorded.
    pub(crate) fn of_spools(
        events: EventTable,
        comms: HashMap<u32, String>,
        pages: PageLayout,
        spools: Vec<Spool>,
        shared: &mut Shared,
    ) -> Result<Self, TraceError> {
        let mut head = Head::new(pages.layout());
        (head.events, head.comms) = (events, comms);
        let (mut streams, mut stores) = (Vec::new(), Vec::new());
        for Spool { cpu, file, chunks, size } in spools {
            let data = CpuData { cpu, at: 0, size };
            streams.push(CpuStream::of_chunks(&data, streams.len(), pages, chunks));
            stores.push(Store::file(file, size));
        }
        let body = DatBody {
            stores,
            inflate: Inflate::of_own(),
            head,
            streams,
            next: BinaryHeap::new(),
            tasks: HashMap::new(),
            buffer: None,
            checked: None,
            is_own: true,
        };
        body.begin(shared)
    }

    /// Finds the first record of each stream.
    fn begin(mut self, shared: &mut Shared) -> Result<Self, TraceError> {
        for stream in 0..self.streams.len() {
            self.advance(stream, shared)?;
        }
        Ok(self)
    }

    /// Returns the number of bytes of sub-buffers read so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.stores.iter().map(|store| store.consumed).sum()
    }

    /// Appends up to `max` records. Returns `false` at the end.
    pub(crate) fn next_chunk(
        &mut self,
        shared: &mut Shared,
        out: &mut Vec<Record>,
        max: usize,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            let Some(Reverse((t, stream, from, to))) = self.next.pop() else {
                // The statistics also count what was lost after the last sub-buffer.
                shared.summary.lost = shared.summary.lost.max(self.head.lost);
                return Ok(false);
            };
            let position = Position::Byte(self.streams[stream].position());
            match self.record(t, stream, from..to, shared) {
                Ok(None) => {}
                Ok(Some(record)) => shared.push(out, record, position)?,
                Err(fault) => shared.fault(position, fault)?,
            }
            self.advance(stream, shared)?;
        }
        Ok(true)
    }

    /// Finds the next record of a stream.
    fn advance(&mut self, stream: usize, shared: &mut Shared) -> Result<(), TraceError> {
        let cpu = &mut self.streams[stream];
        loop {
            let found = cpu.next(&mut self.stores[cpu.store], &mut self.inflate);
            shared.summary.lost = shared.summary.lost.saturating_add(std::mem::take(&mut cpu.lost));
            match found {
                Ok(None) => return Ok(()),
                Ok(Some((t, Range { start, end }))) => {
                    let t = self.head.clock.ns(t);
                    self.next.push(Reverse((t, stream, start, end)));
                    return Ok(());
                }
                Err(fault) => shared.fault(Position::Byte(cpu.position()), fault)?,
            }
        }
    }

    fn record(
        &mut self,
        t_ns: u64,
        stream: usize,
        bytes: Range<usize>,
        shared: &mut Shared,
    ) -> Result<Option<Record>, Fault> {
        let stream = &self.streams[stream];
        let (cpu, buffer) = (stream.cpu, stream.buffer);
        let decoded = self.head.events.decode(stream.record(bytes))?;
        let is_used = !matches!(decoded.what, What::Comm { .. } | What::Other(_));
        if is_used && !self.is_own && self.checked != Some(buffer) {
            self.head.clock.check(&self.head.buffers[buffer].clock)?;
            self.checked = Some(buffer);
        }
        let comms = &self.head.comms;
        let tasks = &mut self.tasks;
        let mut task = |pid| {
            *tasks.entry(pid).or_insert_with(|| {
                let comm = comms.get(&pid).map_or(UNKNOWN_COMM, String::as_str);
                shared.tasks.intern(pid, if pid == 0 { IDLE_COMM } else { comm })
            })
        };
        Ok(Some(match decoded.what {
            What::Page(kind) => {
                if !self.is_own && self.buffer != Some(buffer) {
                    if self.buffer.is_some() {
                        return Err(Fault::TwoBuffers);
                    }
                    self.buffer = Some(buffer);
                    let clock = self.head.buffers[buffer].clock.clone();
                    shared.summary.clock = Some(clock).filter(|name| !name.is_empty());
                }
                Record::Event(Event { t_ns, cpu, task: task(decoded.pid), kind })
            }
            What::Compaction(what) => {
                Record::Compaction { t_ns, cpu, task: task(decoded.pid), what }
            }
            What::Print { text, .. } if self.is_own => {
                Record::Mark { t_ns, cpu, text: name_from_bytes(text, Some('\t')) }
            }
            What::Print { ip, text } => {
                // As in text: the function's name, which for a mark is not part of it.
                let writer = self.head.symbols.name(ip);
                let text = match writer {
                    Some(name) => [name, b": ", text].concat(),
                    None => [format!("{ip:#x}: ").as_bytes(), text].concat(),
                };
                if text.len() > MAX_MARK {
                    return Err(Fault::Record("a mark of more than 64 KiB"));
                }
                let text = name_from_bytes(mark_text(&text), Some('\t'));
                Record::Mark { t_ns, cpu, text }
            }
            What::Comm { pid, comm, .. } if self.is_own => {
                self.head.comms.insert(pid, name_from_bytes(comm.trim_ascii_start(), None));
                self.tasks.remove(&pid);
                return Ok(None);
            }
            What::Comm { event: name, .. } | What::Other(name) => {
                shared.summary.ignored.add(name);
                return Ok(None);
            }
        }))
    }
}

/// Reads the descriptions of events in the form that `perf` stores: the first parts of a version 6.
///
/// # Errors
/// Fails if they cannot be parsed.
pub(crate) fn tracing_data(bytes: &[u8]) -> Result<EventTable, Fault> {
    const WHAT: &str = "the descriptions of the events";
    let mut head = Head::new(Layout { big_endian: false, long: 8 });
    let mut items = Items::of_section(bytes, head.layout, WHAT);
    if items.bytes(MAGIC.len() as u64)? != MAGIC {
        return Err(Fault::Record("no descriptions of the events where they belong"));
    }
    let _version = items.string()?;
    let (order, _long) = (items.bytes(1)?, items.bytes(1)?);
    head.set_big_endian(order[0] == 1);
    items.layout = head.layout;
    let _page_size = items.u32()?;
    head.header_info(&mut items)?;
    head.descriptions(&mut items)?;
    head.systems(&mut items)?;
    match head.faults.into_iter().next() {
        Some((_, fault)) => Err(fault),
        None => Ok(head.events),
    }
}

/// Reads everything but the sub-buffers. Returns the streams of all CPUs.
fn read_head(head: &mut Head, store: &mut Store) -> Result<(Vec<CpuStream>, Inflate), Fault> {
    const WHAT: &str = "the head of the trace.dat";
    let mut items = Items::of_file(store, MAGIC.len() as u64, head.layout, WHAT);
    let version = items.string()?;
    let (order, _long) = (items.bytes(1)?, items.bytes(1)?);
    head.set_big_endian(order[0] == 1);
    items.layout = head.layout;
    let _page_size = items.u32()?;
    let (length, layout) = (store.length(), head.layout);
    let inflate = match &version[..] {
        b"6" => {
            let at = items.at;
            version6::read(head, store, at)?;
            Inflate::new(b"none", length)?
        }
        b"7" => {
            let (algorithm, _version) = (items.string()?, items.string()?);
            let mut inflate = Inflate::new(&algorithm, length)?;
            let at = Items::of_file(store, items.at, layout, WHAT).u64()?;
            version7::read(head, store, &mut inflate, at)?;
            inflate
        }
        _ => return Err(Fault::DatVersion { found: excerpt(&version) }),
    };
    Ok((streams(head)?, inflate))
}

/// Returns the streams of all CPUs of all instances.
fn streams(head: &Head) -> Result<Vec<CpuStream>, Fault> {
    let pages = head.pages.ok_or(Fault::Record("no description of its sub-buffers"))?;
    let mut streams = Vec::new();
    for (n, buffer) in head.buffers.iter().enumerate() {
        let pages = pages.of_size(buffer.page_size.map_or(pages.size, |size| size as usize))?;
        for cpu in &buffer.cpus {
            streams.push(CpuStream::new(cpu, n, pages, buffer.is_compressed));
        }
    }
    Ok(streams)
}
