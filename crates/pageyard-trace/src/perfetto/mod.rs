//! Perfetto traces with ftrace events: the protobuf messages `TracePacket`, one after the other.
//!
//! Only the fields that are needed are read, by the numbers of the published schema. A trace holds
//! bundles of one CPU's events, in no order of time among CPUs, so all events are kept and sorted.

mod event;
mod fields;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use event::Said;
use fields::{Fields, Value, packed, varint};
use names::Names;

use crate::check::{MAX_CPUS, at_most};
use crate::error::{Fault, Position, TraceError};
use crate::event::Record;
use crate::input::{Source, bound};
use crate::merge::{self, Item, Queue, Threads};
use crate::printable::name_from_bytes;
use crate::release;
use crate::shared::Shared;
use crate::summary::PAGE_EVENTS;
use crate::text::MAX_COMM;

/// Tag of a packet in a trace: field 1, with a length.
const PACKET: u8 = 0x0a;
/// Longest packet that is read, in bytes. Perfetto splits at 512 KiB or less.
const MAX_PACKET: usize = 16 << 20;
/// Bytes of the first packet that are looked at to tell a trace from text.
const LOOK: usize = 1 << 12;
/// Bytes read before the caller can show progress.
const STEP: u64 = 1 << 20;
/// Longest mark in bytes.
const MAX_MARK: usize = 1 << 16;
/// Maximum number of sequences of packets that are told apart. Perfetto numbers them with 16 bits.
const MAX_SEQUENCES: usize = 1 << 16;
/// Maximum number of names of threads and of events that a trace lists.
const MAX_EVENTS: usize = 1 << 12;

/// Fields of a packet.
mod packet {
    pub(super) const FTRACE: u64 = 1;
    pub(super) const PROCESSES: u64 = 2;
    pub(super) const SEQUENCE: u64 = 10;
    pub(super) const CONFIG: u64 = 33;
    pub(super) const STATS: u64 = 34;
    pub(super) const BUFFERS: u64 = 35;
    pub(super) const DROPPED: u64 = 42;
    pub(super) const SYSTEM: u64 = 45;
    pub(super) const COMPRESSED: u64 = 50;
}

/// Reads the records of a Perfetto trace.
pub(crate) struct PerfettoBody {
    queue: Queue,
    names: Names,
    threads: Threads,
    /// Decompressed bytes of packets so far.
    expanded: u64,
    /// Bytes of the input so far, and bytes that the names of threads take.
    consumed: u64,
    named: u64,
    /// Bundles before which events were lost, and the events that the statistics count as lost.
    gaps: u64,
    overruns: (u64, u64),
    /// Losses between the kernel and the trace: gaps in the sequences of packets, and what Perfetto's
    /// statistics of its buffers count.
    sequences: BTreeMap<u64, Sequence>,
    discarded: u64,
    /// The sequence that has the page events of each CPU, and that of the present packet.
    owners: BTreeMap<u16, u64>,
    sequence: u64,
    /// Names of events in the configuration, and of those that the kernel did not have.
    enabled: BTreeSet<String>,
    failed: BTreeSet<String>,
    ended: bool,
}

/// Packets of one writer.
#[derive(Default)]
struct Sequence {
    has_events: bool,
    /// Gaps in the sequence.
    gaps: u64,
}

/// Returns whether the input begins with a packet.
///
/// # Errors
/// Fails if the input cannot be read.
pub(crate) fn is_perfetto(source: &mut Source) -> Result<bool, Fault> {
    // Text may begin with an empty line, and thus with the same byte.
    if source.window().first() != Some(&PACKET) {
        return Ok(false);
    }
    source.need(11)?;
    let mut rest = &source.window()[1..];
    let Some(length) = varint(&mut rest) else { return Ok(false) };
    if length == 0 || length > MAX_PACKET as u64 {
        return Ok(false);
    }
    let from = source.window().len() - rest.len();
    let length = length as usize;
    source.need(from + length.min(LOOK))?;
    let rest = &source.window()[from..];
    Ok(match rest.get(..length) {
        Some(packet) => Fields::new(packet).all(|field| field.is_ok()),
        // A longer packet than is looked at: by its first field.
        None => rest.len() >= LOOK && Fields::new(rest).next().is_some_and(|field| field.is_ok()),
    })
}

impl Default for PerfettoBody {
    fn default() -> Self {
        PerfettoBody {
            queue: Queue::default(),
            names: Names::default(),
            threads: Threads::new("<idle>", |_| "<...>".to_owned()),
            expanded: 0,
            consumed: 0,
            named: 0,
            gaps: 0,
            overruns: (0, 0),
            sequences: BTreeMap::new(),
            discarded: 0,
            owners: BTreeMap::new(),
            sequence: 0,
            enabled: BTreeSet::new(),
            failed: BTreeSet::new(),
            ended: false,
        }
    }
}

impl PerfettoBody {
    /// Appends up to `max` records; none while the input is being read. Returns `false` at the end.
    pub(crate) fn next_chunk(
        &mut self,
        source: &mut Source,
        shared: &mut Shared,
        out: &mut Vec<Record>,
        max: usize,
    ) -> Result<bool, TraceError> {
        if !self.ended {
            let until = source.offset() + STEP;
            while source.offset() < until && !self.ended {
                let at = source.offset();
                let result = self.next_packet(source, shared);
                if !matches!(result, Ok(true)) {
                    self.finish(shared);
                }
                if let Err(fault) = result {
                    shared.fault(Position::Byte(at), fault)?;
                }
            }
            return Ok(true);
        }
        merge::give(&mut self.queue, &mut self.threads, shared, out, max)?;
        Ok(out.len() >= max)
    }

    /// Reads a packet. Returns `false` at the end. Nothing can be read after an error.
    fn next_packet(&mut self, source: &mut Source, shared: &mut Shared) -> Result<bool, Fault> {
        if !source.need(1)? {
            return Ok(false);
        }
        source.need(11)?;
        let at = source.offset();
        let mut rest = source.window();
        let before = rest.len();
        if varint(&mut rest) != Some(PACKET.into()) {
            return Err(Fault::Record("no packet of a Perfetto trace where one belongs"));
        }
        let length = varint(&mut rest).ok_or(Fault::Truncated("a packet"))?;
        if length > MAX_PACKET as u64 {
            return Err(Fault::Record("a packet of more than 16 MiB"));
        }
        let (head, length) = (before - rest.len(), length as usize);
        if !source.need(head + length)? {
            return Err(Fault::Truncated("a packet"));
        }
        let packet = &source.window()[head..head + length];
        self.consumed = source.consumed();
        self.packet(packet, at, true, shared)?;
        source.consume(head + length);
        Ok(true)
    }

    /// Handles a packet. A faulty event is counted and skipped in lenient mode.
    fn packet(
        &mut self,
        packet: &[u8],
        at: u64,
        outer: bool,
        shared: &mut Shared,
    ) -> Result<(), Fault> {
        self.sequence(packet)?;
        for field in Fields::new(packet) {
            let (number, value) = field?;
            let bytes = value.bytes();
            match number {
                packet::FTRACE => self.bundle(bytes, at, shared)?,
                packet::PROCESSES => self.processes(bytes)?,
                packet::CONFIG => self.config(bytes)?,
                packet::STATS => self.stats(bytes)?,
                packet::BUFFERS => self.buffers(bytes)?,
                packet::SYSTEM => system(bytes, shared)?,
                packet::COMPRESSED if outer => {
                    let plain = self.inflate(bytes)?;
                    for inner in Fields::new(&plain) {
                        let (number, inner) = inner?;
                        if number == u64::from(PACKET >> 3) {
                            self.packet(inner.bytes(), at, false, shared)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes a gap before a packet, and whether its sequence has events.
    fn sequence(&mut self, packet: &[u8]) -> Result<(), Fault> {
        let (mut id, mut has_events, mut is_after_gap) = (None, false, false);
        for field in Fields::new(packet) {
            match field? {
                (packet::SEQUENCE, value) => id = Some(value.number()),
                (packet::FTRACE, _) => has_events = true,
                (packet::DROPPED, value) => is_after_gap = value.number() != 0,
                _ => {}
            }
        }
        self.sequence = id.unwrap_or(0);
        let Some(id) = id else { return Ok(()) };
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.has_events |= has_events;
            sequence.gaps += u64::from(is_after_gap);
        } else if self.sequences.len() < MAX_SEQUENCES {
            // Perfetto marks the first packet of each sequence so too.
            self.sequences.insert(id, Sequence { has_events, gaps: 0 });
        }
        Ok(())
    }

    /// Takes the number of chunks and packets that were lost in all of Perfetto's buffers. The
    /// statistics count from the start, so the last ones hold.
    fn buffers(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.discarded = 0;
        for field in Fields::new(bytes) {
            let (1, buffer) = field? else { continue };
            for count in Fields::new(buffer.bytes()) {
                // chunks_overwritten, chunks_discarded, trace_writer_packet_loss
                if let (3 | 18 | 19, count) = count? {
                    self.discarded = self.discarded.saturating_add(count.number());
                }
            }
        }
        Ok(())
    }

    /// Decompresses packets.
    fn inflate(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
        let limit = bound::TEXT.of(self.consumed);
        let left = limit.saturating_sub(self.expanded);
        let mut plain = Vec::new();
        let mut decoder = flate2::read::ZlibDecoder::new(bytes).take(left.saturating_add(1));
        decoder.read_to_end(&mut plain).map_err(|_| Fault::Record("compressed packets"))?;
        self.expanded += plain.len() as u64;
        let what = "the compressed packets";
        bound::TEXT.check(what, self.consumed, self.expanded).map(|()| plain)
    }

    /// Handles the events of a CPU.
    fn bundle(&mut self, bytes: &[u8], at: u64, shared: &mut Shared) -> Result<(), Fault> {
        let bundle = Fields::new(bytes);
        let cpu = bundle.get(1)?.map_or(0, Value::number);
        at_most("cpu", cpu, u64::from(MAX_CPUS - 1))?;
        for field in bundle {
            let (number, value) = field?;
            let result = match number {
                2 => self.event(cpu as u16, value.bytes(), at, shared),
                3 => {
                    self.gaps += u64::from(value.number() != 0);
                    Ok(())
                }
                4 => self.switches(value.bytes(), at),
                _ => Ok(()),
            };
            if let Err(fault) = result {
                // In strict mode this ends the reading.
                if !shared.is_lenient() {
                    return Err(fault);
                }
                let _ = shared.fault(Position::Byte(at), fault);
            }
        }
        Ok(())
    }

    fn event(&mut self, cpu: u16, bytes: &[u8], at: u64, shared: &mut Shared) -> Result<(), Fault> {
        let (mut t_ns, mut tid, mut said) = (0, 0, None);
        for field in Fields::new(bytes) {
            match field? {
                (1, value) => t_ns = value.number(),
                (2, value) => tid = value.number() as u32,
                // The flags are a number.
                (5, _) => {}
                (number, Value::Bytes(message)) => said = Some((number, message)),
                _ => {}
            }
        }
        let Some((number, message)) = said else { return Ok(()) };
        let item = match event::parse(number, message)? {
            Said::Page(kind) => {
                if *self.owners.entry(cpu).or_insert(self.sequence) != self.sequence {
                    return Err(Fault::TwoBuffers);
                }
                Item::Page { cpu, tid, kind }
            }
            Said::Compaction(what) => Item::Compaction { cpu, tid, what },
            Said::Mark(text) => {
                let text = text.strip_suffix(b"\n").unwrap_or(text);
                if text.len() > MAX_MARK {
                    return Err(Fault::Record("a mark of more than 64 KiB"));
                }
                Item::Mark { cpu, text: name_from_bytes(text, Some('\t')) }
            }
            Said::Names(names) => {
                return names
                    .into_iter()
                    .try_for_each(|(tid, comm)| self.name_at(t_ns, at, tid, comm));
            }
            Said::Other(name) => {
                shared.summary.ignored.add(&name);
                return Ok(());
            }
        };
        self.queue.push(t_ns, at, item);
        Ok(())
    }

    /// Notes the name that a thread has from a time on. Fails if the names take far more memory than
    /// the input has bytes: a switch in the compact form has three bytes and may stand for two names.
    fn name_at(&mut self, t_ns: u64, at: u64, tid: u32, comm: &[u8]) -> Result<(), Fault> {
        if comm.is_empty() || comm.len() > MAX_COMM {
            return Ok(());
        }
        bound::TEXT.check("the names of threads", self.consumed, self.named)?;
        let (queue, named) = (&mut self.queue, &mut self.named);
        self.names.see(t_ns, tid, comm, |t_ns, comm| {
            *named += (Queue::ENTRY + comm.len()) as u64;
            queue.push(t_ns, at, Item::Comm { tid, comm: comm.into() });
        });
        Ok(())
    }

    /// Handles switches between threads in their compact form, for the names in it.
    fn switches(&mut self, bytes: &[u8], at: u64) -> Result<(), Fault> {
        let (mut names, mut times, mut tids, mut indices) = (Vec::new(), &[][..], &[][..], &[][..]);
        for field in Fields::new(bytes) {
            match field? {
                (1, value) => times = value.bytes(),
                (3, value) => tids = value.bytes(),
                (5, value) => names.push(value.bytes()),
                (6, value) => indices = value.bytes(),
                _ => {}
            }
        }
        let mut t_ns = 0u64;
        for ((step, tid), index) in packed(times).zip(packed(tids)).zip(packed(indices)) {
            // The first time is absolute, further ones are differences.
            t_ns = t_ns.wrapping_add(step);
            if let Some(comm) = usize::try_from(index).ok().and_then(|index| names.get(index)) {
                self.name_at(t_ns, at, tid as u32, comm)?;
            }
        }
        Ok(())
    }

    /// Takes the names of threads, and of processes for their first threads.
    fn processes(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        for field in Fields::new(bytes) {
            let (number, value) = field?;
            let fields = Fields::new(value.bytes());
            let (tid, comm) = match number {
                // The command line: the name is the last part of the first argument.
                1 => {
                    let arguments = fields.clone().find_map(|f| f.ok().filter(|f| f.0 == 3));
                    let first = arguments.map_or(&[][..], |(_, value)| value.bytes());
                    let name = first.rsplit(|&b| b == b'/').next().unwrap_or(first);
                    (fields.get(1)?, &name[..name.len().min(15)])
                }
                2 => (fields.get(1)?, fields.get(2)?.map_or(&[][..], Value::bytes)),
                _ => continue,
            };
            if let Some(tid) = tid
                && !comm.is_empty()
                && comm.len() <= MAX_COMM
            {
                self.threads.name(tid.number() as u32, comm);
            }
        }
        Ok(())
    }

    /// Takes the names of the events in the configuration.
    fn config(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        fn within(message: Value<'_>, field: u64) -> Result<Option<Value<'_>>, Fault> {
            Fields::new(message.bytes()).get(field)
        }
        for source in Fields::new(bytes) {
            let (number, source) = source?;
            if number != 2 {
                continue;
            }
            let Some(config) = within(source, 1)? else { continue };
            let Some(ftrace) = within(config, 100)? else { continue };
            for event in Fields::new(ftrace.bytes()) {
                if let (1, name) = event? {
                    add_name(&mut self.enabled, name.bytes());
                }
            }
        }
        Ok(())
    }

    /// Takes the number of lost events, and the names of events that the kernel did not have.
    fn stats(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let fields = Fields::new(bytes);
        let at_end = fields.get(1)?.map_or(0, Value::number) == 2;
        for field in fields {
            match field? {
                (2, cpu) => {
                    let overrun = Fields::new(cpu.bytes()).get(3)?.map_or(0, Value::number);
                    let sum = if at_end { &mut self.overruns.1 } else { &mut self.overruns.0 };
                    *sum = sum.saturating_add(overrun);
                }
                (6 | 7, name) => add_name(&mut self.failed, name.bytes()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes that all packets were read.
    fn finish(&mut self, shared: &mut Shared) {
        self.ended = true;
        self.queue.finish();
        let overruns = self.overruns.1.saturating_sub(self.overruns.0);
        let with_events = self.sequences.values().filter(|sequence| sequence.has_events);
        let gaps = with_events.map(|sequence| sequence.gaps).sum();
        shared.summary.lost = overruns.max(self.gaps).saturating_add(self.discarded.max(gaps));
        if !self.enabled.is_empty() {
            let enabled = self.enabled.difference(&self.failed).cloned();
            shared.summary.enabled_events = Some(enabled.collect());
        }
    }
}

/// Adds the name of an event, without its group; a `*` stands for all page events.
fn add_name(to: &mut BTreeSet<String>, name: &[u8]) {
    let Ok(name) = str::from_utf8(&name[..name.len().min(MAX_COMM)]) else { return };
    if to.len() >= MAX_EVENTS {
        return;
    }
    match name.rsplit_once('/').unwrap_or(("", name)) {
        ("kmem", "*") => to.extend(PAGE_EVENTS.map(str::to_owned)),
        (_, name) => _ = to.insert(name.to_owned()),
    }
}

/// Takes the release of the kernel and the number of CPUs.
fn system(bytes: &[u8], shared: &mut Shared) -> Result<(), Fault> {
    let system = Fields::new(bytes);
    if let Some(names) = system.get(1)?
        && let Some(text) = Fields::new(names.bytes()).get(3)?
        && let Some(found) = release::find(text.bytes())
    {
        shared.summary.kernel_release = Some(found.to_owned());
    }
    let cpus = system.get(8)?.map_or(0, Value::number);
    if cpus > 0 {
        at_most("cpus", cpus, MAX_CPUS.into())?;
        shared.summary.declared_cpus = Some(cpus as u16);
    }
    Ok(())
}
