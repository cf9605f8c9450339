//! Perfetto traces against text. The traces in `data/perfetto` were encoded from the text by
//! Perfetto's own protobuf classes (the Python package `perfetto` 0.59.1), since no `traced` was at
//! hand: bundles of one CPU each, switches between threads in both forms, statistics.

use std::io::Write;

use pageyard_trace::{Fault, Format, Options, Record};

use crate::common::{error, read};
use crate::perf::named;

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/perfetto/{name}.zst", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn plain(name: &str) -> Vec<u8> {
    zstd::decode_all(&data(name)[..]).unwrap()
}

#[test]
fn a_perfetto_trace_equals_the_text() {
    let (theirs, text) = read(&data("txt"), Options::default()).unwrap();
    let theirs = named(theirs, &text);
    assert_eq!(theirs.len(), 243);
    // Packets as they are, and compressed by Perfetto; each compressed from outside too.
    for bytes in [plain("plain"), data("plain"), plain("packed"), data("packed")] {
        let (ours, reader) = read(&bytes, Options::default()).unwrap();
        assert_eq!(reader.format(), Format::Perfetto);
        assert!(named(ours, &reader) == theirs);
        let summary = reader.summary();
        assert_eq!(summary.kernel_release.as_deref(), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!((summary.declared_cpus, summary.lost), (Some(4), 12 - 5));
        let enabled = summary.enabled_events.as_ref().unwrap();
        assert!(enabled.iter().any(|e| e == "mm_page_alloc_zone_locked"), "kmem/*: {enabled:?}");
        assert!(!enabled.iter().any(|e| e == "mm_vmscan_kswapd_wake"), "it failed: {enabled:?}");
    }
}

#[test]
fn a_cut_perfetto_trace_is_an_error_and_its_start_is_read_leniently() {
    let whole = plain("plain");
    let (all, reader) = read(&whole, Options::default()).unwrap();
    let all = named(all, &reader);
    for part in 1..16 {
        let cut = &whole[..whole.len() * part / 16];
        let error = error(cut).to_string();
        assert!(error.starts_with("test: byte "), "{part}: {error}");
        let (some, reader) = read(cut, Options::lenient()).unwrap();
        assert_eq!(reader.summary().malformed.count, 1, "{part}");
        // Those of some CPUs may be missing, but not the order.
        let some = named(some, &reader);
        let mut rest = all.iter();
        assert!(some.iter().all(|(one, _)| rest.any(|(other, _)| one == other)), "{part}");
    }
}

/// A message: fields with a number and a value.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, bytes) in fields {
        out.extend([number << 3 | 2, bytes.len() as u8]);
        out.extend_from_slice(bytes);
    }
    out
}

/// A free of frame 1 at a time by thread 7.
fn free_at(t_ns: u8) -> Vec<u8> {
    [&[0x08, t_ns, 0x10, 7, 0xb2, 0x13, 4][..], b"\x08\x01\x18\x00"].concat()
}

#[test]
fn times_of_compact_switches_are_differences() {
    // Thread 7 is `a` at time 10, `b` at 10 + 40.
    let compact = message(&[(1, &[10, 40]), (3, &[7, 7]), (5, b"a"), (5, b"b"), (6, &[0, 1])]);
    let events = message(&[(2, &free_at(20)), (2, &free_at(45)), (2, &free_at(60))]);
    let bundle = [&b"\x08\x02"[..], &events, &message(&[(4, &compact)])].concat();
    let trace = message(&[(1, &message(&[(1, &bundle)]))]);
    let (records, reader) = read(&trace, Options::default()).unwrap();
    let named = named(records, &reader);
    let names: Vec<_> = named.iter().map(|(_, task)| &task.as_ref().unwrap().comm[..]).collect();
    assert_eq!(names, ["a", "a", "b"]);
}

/// A packet of a sequence: fields as bytes, after those with these numbers.
fn packet(sequence: u8, is_after_gap: bool, fields: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut packet = vec![10 << 3, sequence, 0xd0, 0x02, is_after_gap.into()];
    for (number, bytes) in fields {
        packet.extend(field(*number, bytes));
    }
    field(1, &packet)
}

/// Events of a CPU.
fn bundle(cpu: u8, events: &[Vec<u8>]) -> Vec<u8> {
    let events = events.iter().flat_map(|event| field(2, event));
    [0x08, cpu].into_iter().chain(events).collect()
}

#[test]
fn events_of_one_cpu_in_two_sequences_are_refused() {
    let of = |sequence, cpu| packet(sequence, false, &[(1, bundle(cpu, &[free_at(20)]))]);
    let (records, _) = read(&[of(1, 2), of(2, 3)].concat(), Options::default()).unwrap();
    assert_eq!(records.len(), 2);
    let twice = [of(1, 2), of(2, 2)].concat();
    let error = error(&twice);
    assert!(matches!(*error.fault, Fault::TwoBuffers), "{error}");
    let (records, reader) = read(&twice, Options::lenient()).unwrap();
    assert_eq!((records.len(), reader.summary().malformed.count), (1, 1));
}

#[test]
fn losses_in_the_buffers_of_perfetto_are_counted() {
    let lost =
        |trace: &[Vec<u8>]| read(&trace.concat(), Options::default()).unwrap().1.summary().lost;
    let events = |t_ns| (1, bundle(2, &[free_at(t_ns)]));
    // Chunks overwritten and discarded, and a writer's packets, in two bytes each.
    let stats = |n| (35, field(1, &[3 << 3, n, 0x90, 1, 5, 0x98, 1, 3]));
    let first = packet(1, true, &[events(20)]);
    // The first packet of each sequence says so.
    assert_eq!(lost(std::slice::from_ref(&first)), 0);
    assert_eq!(lost(&[first.clone(), packet(1, false, &[events(30)])]), 0);
    let gap = packet(1, true, &[events(30)]);
    assert_eq!(lost(&[first.clone(), gap.clone()]), 1);
    // A gap in a sequence without events is none of theirs.
    let other = || packet(2, true, &[]);
    assert_eq!(lost(&[first.clone(), other(), other()]), 0);
    // Statistics count from the start, and count the gap.
    let stats = |n| packet(3, false, &[stats(n)]);
    assert_eq!(lost(&[first, stats(10), gap, stats(40)]), 48);
}

/// A field of any length.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let varint = |mut n: u64| {
        let mut out = Vec::new();
        while n >= 0x80 {
            out.push(n as u8 | 0x80);
            n >>= 7;
        }
        out.push(n as u8);
        out
    };
    [&varint(number << 3 | 2)[..], &varint(bytes.len() as u64), bytes].concat()
}

/// A thread that has another name after each switch, 127 bytes for three bytes of the packet, which
/// is compressed to a thousandth.
#[test]
fn names_in_compact_switches_are_bounded_by_the_input() {
    let switches = |count: usize| {
        let indices: Vec<u8> = (0..count).map(|n| (n % 2) as u8).collect();
        let compact = [
            field(1, &vec![1; count]),
            field(3, &vec![7; count]),
            field(5, &[b'a'; 127]),
            field(5, &[b'b'; 127]),
            field(6, &indices),
        ];
        let bundle = [&b"\x08\x02"[..], &field(2, &free_at(20)), &field(4, &compact.concat())];
        // A trace begins with a short packet.
        [message(&[(1, &message(&[(1, b"\x08\x02")]))]), field(1, &field(1, &bundle.concat()))]
            .concat()
    };
    let packed = |trace: &[u8]| {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(trace).unwrap();
        field(1, &field(50, &zlib.finish().unwrap()))
    };
    let (few, many) = (packed(&switches(1000)), packed(&switches(200_000)));
    assert!(many.len() < 3000, "{}", many.len());
    assert_eq!(read(&few, Options::default()).unwrap().0.len(), 1);
    let error = error(&many).to_string();
    assert!(error.contains("the names of threads"), "{error}");
    // As they are, the same switches are long enough.
    assert_eq!(read(&switches(200_000), Options::default()).unwrap().0.len(), 1);
}

#[test]
fn faults_in_perfetto_traces_are_named() {
    // A free at time 5 by thread 7: event 310 with a frame and an order.
    let trace = |free: &[u8]| {
        let mut event = b"\x08\x05\x10\x07".to_vec();
        event.extend([0xb2, 0x13, free.len() as u8]);
        event.extend_from_slice(free);
        let mut bundle = b"\x08\x02".to_vec();
        bundle.extend(message(&[(2, &event)]));
        message(&[(1, &message(&[(1, &bundle)]))])
    };
    let (records, reader) = read(&trace(b"\x08\x01\x18\x40"), Options::default()).unwrap();
    assert!(matches!(records[..], [Record::Event(e)] if e.cpu == 2 && e.t_ns == 5), "{records:?}");
    assert_eq!(reader.tasks()[0].comm, "<...>");
    for (free, says) in [
        (&b"\x08\x01"[..], "mm_page_free has no field `pfn`"),
        (b"\x08\x0b\x18\x40", "`order` is 11; the maximum is 10"),
        (b"\x08\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "mm_page_free has no frame"),
        (b"\x08\x01\x1f", "a message that is not protobuf"),
    ] {
        let error = error(&trace(free)).to_string();
        assert!(error.starts_with("test: byte 0: ") && error.contains(says), "{error}");
        let (none, reader) = read(&trace(free), Options::lenient()).unwrap();
        assert!(none.is_empty() && reader.summary().malformed.count == 1);
    }
}

#[test]
fn text_that_begins_with_an_empty_line_is_text() {
    for text in ["\n# tracer: nop\n", "\n\n", "\n\ncpus=4\n", "\n$ perf script\n"] {
        let reader = crate::common::open(text.as_bytes(), Options::lenient()).unwrap();
        assert_eq!(reader.format(), Format::Text, "{text:?}");
    }
}
