//! Timelines for Perfetto: every byte is walked against a table of the published schema's field
//! numbers and types, and the counters are compared with the report.

use std::collections::{BTreeMap, BTreeSet};

use pageyard_lab::replay::{Input, Options, Report, by_names, timeline};

use crate::sample;

/// A field's type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Varint,
    Text,
    Message(&'static str),
}
use Type::{Message, Text, Varint};

/// Number, name and type of a message's fields.
type Fields = [(u64, &'static str, Type)];

/// Fields by message, as published (protos/perfetto/trace). Only those that a timeline uses.
const SCHEMA: &[(&str, &Fields)] = &[
    ("Trace", &[(1, "packet", Message("TracePacket"))]),
    (
        "TracePacket",
        &[
            (8, "timestamp", Varint),
            (10, "trusted_packet_sequence_id", Varint),
            (11, "track_event", Message("TrackEvent")),
            (60, "track_descriptor", Message("TrackDescriptor")),
        ],
    ),
    (
        "TrackDescriptor",
        &[
            (1, "uuid", Varint),
            (2, "name", Text),
            (3, "process", Message("ProcessDescriptor")),
            (5, "parent_uuid", Varint),
            (8, "counter", Message("CounterDescriptor")),
        ],
    ),
    ("ProcessDescriptor", &[(1, "pid", Varint), (6, "process_name", Text)]),
    ("CounterDescriptor", &[(6, "unit_name", Text)]),
    (
        "TrackEvent",
        &[
            (4, "debug_annotations", Message("DebugAnnotation")),
            (9, "type", Varint),
            (11, "track_uuid", Varint),
            (23, "name", Text),
            (30, "counter_value", Varint),
        ],
    ),
    (
        "DebugAnnotation",
        &[(3, "uint_value", Varint), (6, "string_value", Text), (10, "name", Text)],
    ),
];

#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Text(String),
    Message(Decoded),
}

/// A message: its fields by name, in order.
#[derive(Clone, Debug, Default)]
struct Decoded(Vec<(&'static str, Value)>);

impl Decoded {
    fn number(&self, name: &str) -> Option<u64> {
        self.0.iter().find_map(|(n, v)| match v {
            Value::Number(x) if *n == name => Some(*x),
            _ => None,
        })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(n, v)| match v {
            Value::Text(x) if *n == name => Some(x.as_str()),
            _ => None,
        })
    }

    fn messages<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Decoded> {
        self.0.iter().filter_map(move |(n, v)| match v {
            Value::Message(m) if *n == name => Some(m),
            _ => None,
        })
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..70).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint of more than ten bytes");
}

/// Decodes a message. Fails on a field that is not in the schema or has another wire type.
fn decode(message: &'static str, mut bytes: &[u8]) -> Decoded {
    let fields = SCHEMA.iter().find(|m| m.0 == message).expect(message).1;
    let mut decoded = Decoded::default();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = fields.iter().find(|f| f.0 == key >> 3);
        let &(_, name, of) = field.unwrap_or_else(|| panic!("{message} has no field {}", key >> 3));
        let value = match (key & 7, of) {
            (0, Varint) => Value::Number(varint(&mut bytes)),
            (2, Text | Message(_)) => {
                let length = varint(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                match of {
                    Message(inner) => Value::Message(decode(inner, content)),
                    _ => Value::Text(String::from_utf8(content.to_vec()).expect("UTF-8")),
                }
            }
            (wire, of) => panic!("{message}.{name}: wire type {wire}, but {of:?}"),
        };
        decoded.0.push((name, value));
    }
    decoded
}

fn written(policies: &str) -> (Report, Vec<u8>) {
    let options = Options { policies: by_names(policies).unwrap(), ..Options::default() };
    let mut out = Vec::new();
    let input = Input::Path(sample("kbuild.pgy"));
    let report = timeline(input, &options, &mut out, &mut |_, _, _| {}).unwrap();
    (report, out)
}

/// The packed engine has samples and failures, and no slices of refills and drains.
#[test]
fn the_packed_engine_has_a_timeline() {
    let (report, bytes) = written("Packed");
    assert_eq!(report.policies[0].figures.failed, 0);
    let names: BTreeSet<String> = decode("Trace", &bytes)
        .messages("packet")
        .flat_map(|packet| packet.messages("track_descriptor"))
        .flat_map(|track| track.messages("process"))
        .map(|process| process.text("process_name").unwrap().to_owned())
        .collect();
    assert!(names.iter().any(|name| name.contains("Packed")), "{names:?}");
}

#[test]
fn a_timeline_follows_the_published_schema_and_agrees_with_the_report() {
    let (report, bytes) = written("Base,Linux612");
    assert!(bytes.len() < 64 << 20, "{} bytes", bytes.len());
    let trace = decode("Trace", &bytes);
    let mut processes: BTreeMap<u64, String> = BTreeMap::new();
    let mut tracks: BTreeMap<u64, (u64, String, bool)> = BTreeMap::new();
    let mut counters: BTreeMap<u64, Vec<(u64, i64)>> = BTreeMap::new();
    let mut depth: BTreeMap<u64, i64> = BTreeMap::new();
    let mut slices: BTreeMap<(u64, String), (u64, u64)> = BTreeMap::new();
    let mut instants: BTreeMap<(u64, String), u64> = BTreeMap::new();
    for packet in trace.messages("packet") {
        assert!(packet.number("trusted_packet_sequence_id").unwrap() > 0);
        for track in packet.messages("track_descriptor") {
            let uuid = track.number("uuid").unwrap();
            assert_ne!(uuid, 0, "0 is the trace's own track");
            if let Some(process) = track.messages("process").next() {
                let name = process.text("process_name").unwrap().to_owned();
                assert!(process.number("pid").unwrap() > 0);
                assert!(processes.insert(uuid, name).is_none());
            } else {
                let parent = track.number("parent_uuid").unwrap();
                assert!(processes.contains_key(&parent), "a parent is described first");
                let counts = track.messages("counter").next().is_some();
                let name = track.text("name").unwrap().to_owned();
                assert!(tracks.insert(uuid, (parent, name, counts)).is_none());
            }
        }
        for event in packet.messages("track_event") {
            let t = packet.number("timestamp").unwrap();
            let uuid = event.number("track_uuid").unwrap();
            let (process, _, counts) = &tracks[&uuid];
            let note = |name: &str| {
                let notes = event.messages("debug_annotations");
                notes.filter(|n| n.text("name") == Some(name)).find_map(|n| n.number("uint_value"))
            };
            match event.number("type").unwrap() {
                1 => {
                    let depth = depth.entry(uuid).or_default();
                    *depth += 1;
                    assert_eq!(*depth, 1, "slices do not nest");
                    let name = event.text("name").unwrap().to_owned();
                    let sum = slices.entry((*process, name)).or_default();
                    sum.0 += 1;
                    sum.1 += note("pages").unwrap();
                }
                2 => *depth.get_mut(&uuid).unwrap() -= 1,
                3 => {
                    let name = event.text("name").unwrap().to_owned();
                    assert!(note("order").is_some() && note("cpu").is_some());
                    *instants.entry((*process, name)).or_default() += 1;
                }
                4 => {
                    assert!(counts);
                    let value = event.number("counter_value").unwrap() as i64;
                    counters.entry(uuid).or_default().push((t, value));
                }
                other => panic!("type {other}"),
            }
            assert!(*counts == (event.number("type") == Some(4)));
        }
    }
    assert!(depth.values().all(|&d| d == 0), "every slice ends");
    let names: Vec<&str> = processes.values().map(String::as_str).collect();
    assert_eq!(names, ["recorded", "Base", "Linux612"]);
    let figures = [&report.recorded, &report.policies[0].figures, &report.policies[1].figures];
    for ((uuid, name), f) in processes.iter().zip(figures) {
        let slice = |what: &str| slices.get(&(*uuid, what.to_owned())).copied().unwrap_or_default();
        assert_eq!(slice("refill"), (f.moved.refill_holds, f.moved.refill_pages), "{name}");
        assert_eq!(slice("drain"), (f.moved.drain_holds, f.moved.drain_pages), "{name}");
        let claims = instants.get(&(*uuid, "claim".to_owned())).copied().unwrap_or(0);
        assert_eq!(claims, f.claims, "{name}");
        let last = |wanted: &str| {
            let mut found = tracks.iter().filter(|(_, t)| t.0 == *uuid && t.1 == wanted);
            let (uuid, _) = found.next().unwrap_or_else(|| panic!("{name}: no track {wanted}"));
            counters[uuid].last().unwrap().1
        };
        // The free blocks of all orders and types are the free pages.
        let zone = "node 0 DMA32";
        let blocks = tracks.iter().filter(|(_, t)| t.0 == *uuid);
        let blocks = blocks.filter_map(|(uuid, t)| {
            let rest = t.1.strip_prefix(&format!("{zone}: free blocks, order "))?;
            let order: u32 = rest.split(' ').next()?.parse().ok()?;
            Some(counters[uuid].last()?.1 << order)
        });
        assert_eq!(blocks.sum::<i64>(), last(&format!("{zone}: free pages")), "{name}");
        assert_eq!(
            last(&format!("{zone}: watermark MIN")),
            report.machine.zones.iter().find(|z| z.kind.to_string() == "DMA32").unwrap().watermarks
                [0] as i64
        );
        // `high` is not in the events of a recording.
        let high: BTreeSet<&str> = tracks
            .values()
            .filter(|t| t.0 == *uuid && t.1.ends_with(": high"))
            .map(|t| t.1.as_str())
            .collect();
        assert_eq!(high.is_empty(), name == "recorded", "{high:?}");
    }
}
