// The body for bytes that may be a recording or a state file: the worst that an input may cause is
// an error, and an input that is read without one is written and read back unchanged.

use std::io::Cursor;

use pageyard_trace::state::{
    BuddyInfo, Counters, CpuCaches, PageTypeInfo, Settings, StateDir, ZoneInfo,
};
use pageyard_trace::{
    Attachments, Compression, Format, Options, Record, TextWriter, TraceError, TraceReader,
    TraceWriter, WriterOptions, gfp,
};

fn read(data: Vec<u8>, options: Options) -> Result<(Vec<Record>, TraceReader), TraceError> {
    let mut reader = TraceReader::from_reader("fuzz", Cursor::new(data), options)?;
    let mut all = Vec::new();
    for record in reader.by_ref() {
        all.push(record?);
    }
    Ok((all, reader))
}

/// A recording in any form.
pub fn recording(data: &[u8]) {
    if let Err(e) = read(data.to_vec(), Options::lenient()) {
        // Errors can be printed, and name the input.
        assert!(e.to_string().contains("fuzz"), "{e}");
    }
    let Ok((records, reader)) = read(data.to_vec(), Options::default()) else { return };
    if reader.compression() == Compression::None && reader.format() == Format::Text {
        assert!(records.len() <= data.len(), "more records than bytes");
    }
    let _ = StateDir::from_attachments(reader.attachments());
    // The fastest level, since compression is not tested here.
    let options = WriterOptions { level: 1, ..WriterOptions::default() };
    let mut w = TraceWriter::new(Vec::new(), options).unwrap();
    w.attach_all(reader.attachments()).unwrap();
    for r in &records {
        w.write(reader.tasks(), r).unwrap();
    }
    let packed = w.finish(reader.tasks(), reader.summary()).unwrap();
    let (again, packed) = read(packed, Options::default()).unwrap();
    assert_eq!(again.len(), records.len());
    assert!(again.iter().zip(&records).all(|(a, b)| same(a, &packed, b, &reader)));
    if records.is_empty() {
        // Without records the text is an empty file, which is refused.
        return;
    }
    let mut text = TextWriter::new(Vec::new(), None).unwrap();
    for r in &records {
        if text.write(reader.tasks(), r).is_err() {
            // A `.pgy` file can hold marks and names that no line of text can.
            return;
        }
    }
    let text = text.finish().unwrap();
    let (again, text) = read(text, Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(again.len(), records.len());
    assert!(again.iter().zip(&records).all(|(a, b)| same(a, &text, b, &reader)));
}

/// Whether two records are the same, except for the numbers of their tasks.
fn same(a: &Record, of_a: &TraceReader, b: &Record, of_b: &TraceReader) -> bool {
    let mut moved = a.clone();
    let tasks = match (&mut moved, b) {
        (Record::Event(a), Record::Event(b)) => Some((&mut a.task, b.task)),
        (Record::Compaction { task: a, .. }, Record::Compaction { task: b, .. }) => Some((a, *b)),
        _ => None,
    };
    let named = tasks.is_none_or(|(a, b)| {
        let same = of_a.tasks().get(*a) == of_b.tasks().get(b);
        *a = b;
        same
    });
    named && moved == *b
}

/// A `.pgy` file whose checksums are corrected first, so that damage gets past them.
pub fn pgy(data: &[u8]) {
    recording(&mended(data));
}

/// Corrects the checksums of a `.pgy` file's header and of its chunk headers.
pub fn mended(data: &[u8]) -> Vec<u8> {
    const HEAD: usize = 28;
    let mut out = data.to_vec();
    out.resize(out.len().max(16), 0);
    out[..8].copy_from_slice(b"\x89PGY\r\n\x1a\n");
    out[8..10].copy_from_slice(&[2, 0]);
    let crc = crc32fast::hash(&out[..12]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    let mut at = 16;
    while let Some(chunk) = out.get_mut(at..).filter(|c| c.len() >= HEAD) {
        chunk[..4].copy_from_slice(b"PGYc");
        let room = chunk.len() - HEAD;
        let asked = u32::from_le_bytes([chunk[12], chunk[13], chunk[14], chunk[15]]) as usize;
        let stored = if asked <= room { asked } else { asked % (room + 1) };
        chunk[12..16].copy_from_slice(&(stored as u32).to_le_bytes());
        if chunk[5] == 0 {
            chunk[16..20].copy_from_slice(&(stored as u32).to_le_bytes());
        }
        let crc = crc32fast::hash(&chunk[HEAD..HEAD + stored]);
        chunk[20..24].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32fast::hash(&chunk[..24]);
        chunk[24..28].copy_from_slice(&crc.to_le_bytes());
        at += HEAD + stored;
    }
    out
}

/// A state file; the first byte chooses which one.
pub fn state(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let refused = match which % 8 {
        0 => ZoneInfo::parse("fuzz", data).err(),
        1 => BuddyInfo::parse("fuzz", data).err(),
        2 => PageTypeInfo::parse("fuzz", data).err(),
        3 => Counters::parse("fuzz", data).err(),
        4 => CpuCaches::parse("fuzz", data)
            .inspect(|c| {
                for cpu in [0, 1, 1023, u16::MAX] {
                    c.last_level(cpu);
                    c.data_slice(cpu);
                }
            })
            .err(),
        5 => Settings::parse("fuzz", data)
            .inspect(|s| {
                let names: Vec<String> = s.iter().map(|(name, _)| name.to_owned()).collect();
                for name in names {
                    s.number(&name);
                    s.numbers(&name);
                }
            })
            .err(),
        6 => {
            if let Ok(text) = std::str::from_utf8(data)
                && let Ok(flags) = gfp::parse(text)
            {
                assert_eq!(gfp::parse(&gfp::to_names(flags)), Ok(flags));
            }
            None
        }
        _ => {
            // All files at once, as attached to a trace.
            let mut files = Attachments::new();
            let names = ["before/zoneinfo", "after/vmstat", "sys_vm.traced_end", "pfnmap.after"];
            for (name, part) in names.iter().zip(data.split(|&b| b == 0)) {
                files.insert(*name, part.to_vec());
            }
            StateDir::from_attachments(&files).err()
        }
    };
    if let Some(e) = refused {
        assert!(!e.to_string().is_empty());
    }
}
