//! The compact file: round trips, and detection of all damage.

use pageyard_trace::{
    Attachments, Fault, Format, Options, Record, Summary, TextWriter, TraceWriter, WriterOptions,
};

use crate::common::{TEXT, attachments, error, open, pgy, read};

fn sample() -> (Vec<Record>, Vec<u8>) {
    let (records, reader) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let bytes = pgy(&records, reader.tasks(), &attachments());
    (records, bytes)
}

#[test]
fn round_trip() {
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let bytes = pgy(&records, source.tasks(), &attachments());
    let early = open(&bytes, Options::default()).unwrap();
    assert_eq!(*early.attachments(), attachments());
    let (got, reader) = read(&bytes, Options::default()).unwrap();
    assert_eq!(got, records);
    assert_eq!(reader.format(), Format::Pgy);
    assert_eq!(reader.tasks(), source.tasks());
    let summary = reader.summary();
    assert_eq!((summary.lost, summary.declared_cpus), (17, Some(4)));
    assert_eq!(summary.kinds, source.summary().kinds);
    assert_eq!(summary.span_ns, source.summary().span_ns);
    // The same records give the same file.
    assert_eq!(pgy(&got, reader.tasks(), reader.attachments()), bytes);
}

#[test]
fn text_round_trip() {
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    for names in [false, true] {
        let mut writer = TextWriter::new(Vec::new(), Some(4)).unwrap().gfp_names(names);
        for record in &records {
            writer.write(source.tasks(), record).unwrap();
        }
        writer.write_lost(5).unwrap();
        let (got, reader) = read(&writer.finish().unwrap(), Options::default()).unwrap();
        assert_eq!(got, records);
        assert_eq!(reader.tasks(), source.tasks());
        assert_eq!((reader.summary().lost, reader.summary().declared_cpus), (5, Some(4)));
    }
}

#[test]
fn no_records_and_many_records() {
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    for count in [0, 1, 65_536, 65_537, 200_000] {
        let many: Vec<Record> = records[1..2].iter().cycle().take(count).cloned().collect();
        let bytes = pgy(&many, source.tasks(), &Attachments::new());
        let (got, reader) = read(&bytes, Options::default()).unwrap();
        assert!(got == many, "{count} records");
        assert_eq!(reader.summary().kinds.total(), count as u64);
    }
}

#[test]
fn many_tasks_flags_cpus_and_marks() {
    let mut text = String::new();
    for i in 0..5000u32 {
        text.push_str(&format!(
            " t{i}-{i} [{}] 1.{i:09}: mm_page_alloc: page=0x1 pfn={} order=0 migratetype=0 gfp_flags={i}\n",
            i % 4096,
            u64::from(i) * 0xffff_ffff
        ));
        text.push_str(&format!(" t-1 [{}] 1.{i:09}: print: mark {i}\n", i * 7 % 4096));
    }
    let (records, source) = read(text.as_bytes(), Options::default()).unwrap();
    let (got, reader) =
        read(&pgy(&records, source.tasks(), &Attachments::new()), Options::default()).unwrap();
    assert!(got == records);
    assert_eq!(reader.tasks(), source.tasks());
}

#[test]
fn a_large_attachment_is_split_into_parts() {
    let mut files = Attachments::new();
    let data: Vec<u8> = (0..40_000_000u32).map(|i| (i >> 12) as u8).collect();
    files.insert("pfnmap.before", data);
    let source = open(TEXT.as_bytes(), Options::default()).unwrap();
    let bytes = pgy(&[], source.tasks(), &files);
    assert!(*open(&bytes, Options::default()).unwrap().attachments() == files);
}

#[test]
fn truncation_anywhere_is_an_error() {
    let (_, bytes) = sample();
    for end in 0..bytes.len() {
        error(&bytes[..end]);
        if let Ok((_, reader)) = read(&bytes[..end], Options::lenient()) {
            assert!(reader.summary().malformed.count > 0, "cut at {end}");
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error() {
    let (records, bytes) = sample();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            error(&bad);
            // Lenient reading reports it too, and returns only undamaged records.
            if let Ok((got, reader)) = read(&bad, Options::lenient()) {
                assert!(reader.summary().malformed.count > 0, "bit {bit} of byte {at}");
                assert!(got.is_empty() || got == records, "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn bytes_added_anywhere_are_an_error() {
    let (_, bytes) = sample();
    for at in (0..=bytes.len()).rev() {
        let mut bad = bytes.clone();
        bad.insert(at, 0x50);
        error(&bad);
    }
}

#[test]
fn lenient_reading_skips_a_damaged_chunk() {
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let many: Vec<Record> = records[1..2].iter().cycle().take(150_000).cloned().collect();
    let bytes = pgy(&many, source.tasks(), &Attachments::new());
    let starts: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| w == b"PGYc").map(|(at, _)| at).collect();
    assert_eq!(starts.len(), 4);
    // Damage the content, then the header, of the second of three chunks.
    for offset in [40, 10] {
        let mut bad = bytes.clone();
        bad[starts[1] + offset] ^= 1;
        let (got, reader) = read(&bad, Options::lenient()).unwrap();
        assert_eq!(got.len(), 150_000 - 65_536);
        let malformed = &reader.summary().malformed;
        assert_eq!(malformed.count, 2, "the chunk, and totals that do not fit: {malformed:?}");
        assert!(matches!(*malformed.first[0].fault, Fault::Checksum(_)));
    }
    // Remove a chunk.
    let mut bad = bytes[..starts[1]].to_vec();
    bad.extend_from_slice(&bytes[starts[2]..]);
    assert!(error(&bad).to_string().contains("missing"));
    let (got, _) = read(&bad, Options::lenient()).unwrap();
    assert_eq!(got.len(), 150_000 - 65_536);
}

#[test]
fn another_version_is_rejected() {
    let (_, mut bytes) = sample();
    bytes[8] = 9;
    let crc = crc32fast::hash(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
    let fault = error(&bytes);
    assert!(matches!(*fault.fault, Fault::Version { found: 9, known: 4 }), "{fault}");
    assert!(open(&bytes, Options::lenient()).is_err());
}

#[test]
fn faults_at_import_are_kept() {
    let text = format!("{TEXT}garbage\n");
    let (records, source) = read(text.as_bytes(), Options::lenient()).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    for record in &records {
        writer.write(source.tasks(), record).unwrap();
    }
    let bytes = writer.finish(source.tasks(), source.summary()).unwrap();
    let (_, reader) = read(&bytes, Options::default()).unwrap();
    assert_eq!(reader.summary().malformed_at_import, 1);
    assert_eq!(reader.summary().declared_cpus, None);
}

#[test]
fn unrepresentable_records_are_rejected() {
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let mut writer = TraceWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    for name in ["", "/etc/passwd", "../x", "a//b", "a/./b", "a\\b", &"x".repeat(300)] {
        assert!(writer.attach(name, b"").is_err(), "{name}");
    }
    let Record::Event(mut event) = records[1] else { panic!() };
    event.cpu = 4096;
    assert!(writer.write(source.tasks(), &Record::Event(event)).is_err());
    (event.cpu, event.task) = (0, 999);
    assert!(writer.write(source.tasks(), &Record::Event(event)).is_err());
    for name in
        ["zoneinfo", "before/", "before/zoneinfo.traced_end", "before/pfnmap.after", "README"]
    {
        let error = writer.attach(name, b"").unwrap_err();
        assert!(error.to_string().contains("not a state file"), "{name}: {error}");
    }
    writer.attach("before/vmstat", b"").unwrap();
    assert!(writer.attach("before/vmstat", b"").is_err());
    writer.write(source.tasks(), &records[1]).unwrap();
    assert!(writer.attach("after/vmstat", b"").is_err());
    writer.finish(source.tasks(), &Summary::default()).unwrap();

    let mut text = TextWriter::new(Vec::new(), None).unwrap();
    let mark = Record::Mark { t_ns: 0, cpu: 0, text: "a\nb".into() };
    assert!(text.write(source.tasks(), &mark).is_err());
}

/// A chunk in the file format, with valid checksums for any content.
fn chunk(kind: u8, index: u32, content: &[u8]) -> Vec<u8> {
    let mut out = b"PGYc".to_vec();
    out.extend_from_slice(&[kind, 0, 0, 0]);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(content);
    out
}

/// A number below 128, or one of two bytes.
fn number(n: usize) -> Vec<u8> {
    if n < 128 { vec![n as u8] } else { vec![n as u8 | 0x80, (n >> 7) as u8] }
}

/// A file of these chunks, with an end chunk that states the number of attachments.
fn file(chunks: &[(u8, Vec<u8>)], attached: usize) -> Vec<u8> {
    let (_, bytes) = sample();
    let end = [vec![0], number(attached), vec![0, 0]].concat();
    let mut out = bytes[..16].to_vec();
    for (i, (kind, content)) in chunks.iter().chain([&(3, end)]).enumerate() {
        out.extend(chunk(*kind, i as u32, content));
    }
    out
}

fn attachment(name: &str, data: &[u8]) -> (u8, Vec<u8>) {
    let lengths = [number(data.len()), vec![0]].concat();
    (1, [number(name.len()), name.as_bytes().to_vec(), lengths, data.to_vec()].concat())
}

#[test]
fn an_attachment_that_is_not_a_state_file_is_rejected() {
    let good = attachment("before/vmstat", b"a 1\n");
    for name in [".git/hooks/post-checkout", "../x", "/etc/x", "zoneinfo", "a\u{1b}[2J", ""] {
        let bytes = file(&[attachment(name, b"#!/bin/sh\n"), good.clone()], 1);
        let told = error(&bytes).to_string();
        let shown = name.replace('\u{1b}', "\\u{1b}");
        assert!(
            told.contains(&format!("test: chunk 0 at byte 16: the attachment `{shown}` is")),
            "{told}"
        );
        assert!(told.contains("; "), "{told}");
        // Lenient reading skips it and reports that.
        let reader = open(&bytes, Options::lenient()).unwrap();
        let names: Vec<_> = reader.attachments().iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["before/vmstat"]);
        let malformed = &reader.summary().malformed;
        assert_eq!((malformed.count, malformed.first[0].to_string()), (1, told));
    }
}

#[test]
fn names_with_control_characters_are_escaped() {
    let line = " \x1b[31m\u{9b}-7 [000] 1.000000000: mm_page_free: page=0x1 pfn=0x1 order=0\n\
                t-7 [000] 1.000000001: print: tracing_mark_write: a\tb\x1b]0;c\u{202e}\n\
                t-7 [000] 1.000000001: evil\x1b[2J: x\n";
    let (records, text) = read(line.as_bytes(), Options::default()).unwrap();
    assert_eq!(text.tasks()[0].comm, "\\x1b[31m\\xc2\\x9b");
    assert!(
        matches!(&records[1], Record::Mark { text, .. } if text == "a\tb\\x1b]0;c\\xe2\\x80\\xae")
    );
    let ignored: Vec<_> = text.summary().ignored.iter().collect();
    assert_eq!(ignored, [("evil\\u{1b}[2J", 1)]);

    // A compact trace by another program may contain them unescaped.
    let mut tasks = pageyard_trace::Tasks::new();
    let task = tasks.intern(7, "\u{1b}[31m\u{9b}");
    let Record::Event(event) = records[0] else { panic!() };
    let raw = [
        Record::Event(pageyard_trace::Event { task, ..event }),
        Record::Mark { t_ns: 1_000_000_001, cpu: 0, text: "a\tb\u{1b}]0;c\u{202e}".into() },
    ];
    let (again, compact) =
        read(&pgy(&raw, &tasks, &Attachments::new()), Options::default()).unwrap();
    assert_eq!((again, compact.tasks()), (records, text.tasks()));
}

#[test]
fn names_that_grow_too_long_are_a_fault() {
    let mut tasks = pageyard_trace::Tasks::new();
    let task = tasks.intern(7, &"\u{1b}".repeat(400));
    let (records, _) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let Record::Event(event) = records[1] else { panic!() };
    let record = Record::Event(pageyard_trace::Event { task, ..event });
    let told = error(&pgy(&[record], &tasks, &Attachments::new())).to_string();
    assert!(told.contains("a command name of more than 512 bytes"), "{told}");
}

#[test]
fn decompression_bombs_in_chunks_are_rejected() {
    let fault = |bytes: &[u8], what: &str| {
        let told = error(bytes).to_string();
        assert!(told.contains(&format!(": {what}: ")) && told.contains("expand to more"), "{told}");
        assert!(told.contains("decompress it first"), "{told}");
        // Lenient reading does not return them either.
        let (got, reader) = read(bytes, Options::lenient()).unwrap();
        assert!(got.len() < 3_000_000 && reader.summary().malformed.count > 0);
    };
    let (records, source) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let many: Vec<Record> = records[1..2].iter().cycle().take(3_000_000).cloned().collect();
    fault(&pgy(&many, source.tasks(), &Attachments::new()), "the records");
    for (name, bytes) in [("after/vmstat", 9 << 20), ("pfnmap.after", 70 << 20)] {
        let mut files = Attachments::new();
        files.insert(name, vec![b'\n'; bytes]);
        fault(&pgy(&[], source.tasks(), &files), "the attachments");
    }
}

#[test]
fn made_up_content_never_panics() {
    let (_, bytes) = sample();
    // Headers and chunks as written, with unpacked contents.
    let mut at = 16;
    let mut chunks = Vec::new();
    while at < bytes.len() {
        let head = &bytes[at..at + 28];
        let stored = u32::from_le_bytes(head[12..16].try_into().unwrap()) as usize;
        let plain = u32::from_le_bytes(head[16..20].try_into().unwrap()) as usize;
        let content = &bytes[at + 28..at + 28 + stored];
        let content = match head[5] {
            0 => content.to_vec(),
            _ => zstd::bulk::decompress(content, plain).unwrap(),
        };
        chunks.push((head[4], content));
        at += 28 + stored;
    }
    let file = |chunks: &[(u8, Vec<u8>)]| {
        let mut file = bytes[..16].to_vec();
        for (index, (kind, content)) in chunks.iter().enumerate() {
            file.extend(chunk(*kind, index as u32, content));
        }
        file
    };
    read(&file(&chunks), Options::default()).unwrap();
    let records_at = chunks.iter().position(|(kind, _)| *kind == 2).unwrap();
    for which in [0, records_at, chunks.len() - 1] {
        for byte in 0..chunks[which].1.len().min(400) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bad = chunks.clone();
                bad[which].1[byte] = value;
                let _ = read(&file(&bad), Options::default());
                let _ = read(&file(&bad), Options::lenient());
                bad[which].1.truncate(byte);
                error(&file(&bad));
            }
        }
    }
    // Chunks in another order, repeated, or missing.
    for (a, b) in [(0, 1), (0, records_at), (records_at, chunks.len() - 1)] {
        let mut bad = chunks.clone();
        bad.swap(a, b);
        let _ = read(&file(&bad), Options::lenient());
        bad.remove(a);
        error(&file(&bad));
    }
}
