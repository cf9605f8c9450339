//! Perfetto's trace format, as far as a timeline needs it: packets of descriptors and events of
//! tracks, in protobuf's wire format. Names and numbers of fields are those of the published
//! schema; each is stated once, here.

use std::io::{self, Write};

/// A protobuf message under construction.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends a number; negative ones as their two's complement, as `int64` is encoded.
    fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(self, field: u32, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(self, field: u32, message: &Message) -> Self {
        self.bytes(field, &message.0)
    }
}

/// What an event does on its track (`TrackEvent.Type`).
#[derive(Clone, Copy, Debug)]
pub(super) enum Does {
    Begin = 1,
    End = 2,
    Instant = 3,
}

/// Writes packets, each complete.
#[derive(Debug)]
pub(super) struct Packets<W> {
    out: W,
    /// The sequence that all packets belong to; not 0.
    sequence: u64,
}

impl<W: Write> Packets<W> {
    pub(super) fn new(out: W, sequence: u64) -> Packets<W> {
        Packets { out, sequence }
    }

    pub(super) fn into_inner(self) -> W {
        self.out
    }

    /// Writes a `TracePacket`: `Trace.packet` is field 1.
    fn packet(&mut self, t_ns: Option<u64>, field: u32, content: &Message) -> io::Result<()> {
        let mut packet = Message::default();
        if let Some(t_ns) = t_ns {
            packet = packet.number(8, t_ns); // timestamp
        }
        let packet = packet.number(10, self.sequence).message(field, content);
        self.out.write_all(&Message::default().message(1, &packet).0)
    }

    /// Describes a process; its track has the process's number.
    pub(super) fn process(&mut self, uuid: u64, pid: u32, name: &str) -> io::Result<()> {
        // ProcessDescriptor: pid, process_name.
        let process = Message::default().number(1, pid.into()).text(6, name);
        // TrackDescriptor: uuid, process.
        let track = Message::default().number(1, uuid).message(3, &process);
        self.packet(None, 60, &track)
    }

    /// Describes a track below another one: a counter with a unit's name, or a track of slices.
    pub(super) fn track(
        &mut self,
        uuid: u64,
        parent: u64,
        name: &str,
        counts: Option<&str>,
    ) -> io::Result<()> {
        // TrackDescriptor: uuid, name, parent_uuid.
        let mut track = Message::default().number(1, uuid).text(2, name).number(5, parent);
        if let Some(unit) = counts {
            // counter: CounterDescriptor with unit_name.
            track = track.message(8, &Message::default().text(6, unit));
        }
        self.packet(None, 60, &track)
    }

    /// Gives a counter's value at a time.
    pub(super) fn count(&mut self, uuid: u64, t_ns: u64, value: i64) -> io::Result<()> {
        // TrackEvent: type (TYPE_COUNTER), track_uuid, counter_value.
        let event = Message::default().number(9, 4).number(11, uuid).number(30, value as u64);
        self.packet(Some(t_ns), 11, &event)
    }

    /// Writes an event with annotations; `End` needs neither name nor annotations.
    pub(super) fn event(
        &mut self,
        does: Does,
        uuid: u64,
        t_ns: u64,
        name: &str,
        notes: &[(&str, Note<'_>)],
    ) -> io::Result<()> {
        // TrackEvent: debug_annotations, type, track_uuid, name.
        let mut event = Message::default();
        for (key, value) in notes {
            // DebugAnnotation: uint_value or string_value, name.
            let note = match value {
                Note::Number(n) => Message::default().number(3, *n),
                Note::Text(text) => Message::default().text(6, text),
            };
            event = event.message(4, &note.text(10, key));
        }
        event = event.number(9, does as u64).number(11, uuid);
        if !name.is_empty() {
            event = event.text(23, name);
        }
        self.packet(Some(t_ns), 11, &event)
    }
}

/// The value of an annotation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Note<'a> {
    Number(u64),
    Text(&'a str),
}
