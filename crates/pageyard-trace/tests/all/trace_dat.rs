//! `trace.dat`: equal to the text that `trace-cmd report -t` prints of it, and damaged.
//!
//! `trace-v6` and `trace-v7-zstd` were recorded on a 6.18 kernel, `trace-v7-zlib` on 6.1. All were
//! cut to some sub-buffers per CPU and to the descriptions of known events. `trace-v6` lost events;
//! `trace-v7-zstd` is of a tracing instance.

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use pageyard_trace::{Fault, Format, Options, Record, Task, TraceReader};

use crate::common::{error, read};

const FILES: [&str; 3] = ["trace-v6.dat.xz", "trace-v7-zstd.dat", "trace-v7-zlib.dat"];

fn path(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect()
}

/// A file's bytes, decompressed.
fn plain(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path(name)).unwrap();
    pageyard_trace::Decompressed::new(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// Records with their task, whose number depends on the order of first use.
fn named(records: &[Record], reader: &TraceReader) -> Vec<(Record, Option<Task>)> {
    let one = |record: &Record| {
        let mut record = record.clone();
        let task = match &mut record {
            Record::Event(event) => Some(std::mem::take(&mut event.task)),
            Record::Compaction { task, .. } => Some(std::mem::take(task)),
            Record::Mark { .. } => None,
        };
        (record, task.and_then(|task| reader.tasks().get(task).cloned()))
    };
    records.iter().map(one).collect()
}

/// Position of `needle`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|w| w == needle).expect("it is there")
}

#[test]
fn every_record_equals_that_of_the_text() {
    for name in FILES {
        let text = plain(&format!("{}.txt.xz", name.split('.').next().unwrap()));
        let (expected, of_text) = read(&text, Options::default()).unwrap();
        assert!(expected.len() > 4000, "{name}: {}", expected.len());
        let expected = named(&expected, &of_text);
        // From a file, with positioned reads, and from a stream.
        let mut file = TraceReader::open(path(name), Options::default()).unwrap();
        let records: Vec<_> = file.by_ref().map(Result::unwrap).collect();
        let (streamed, stream) = read(&plain(name), Options::default()).unwrap();
        for (records, reader) in [(records, &file), (streamed, &stream)] {
            assert_eq!(reader.format(), Format::TraceDat);
            let records = named(&records, reader);
            let differs = records.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!((differs, records.len()), (None, expected.len()), "{name}");
            let (is, of_text) = (reader.summary(), of_text.summary());
            assert_eq!((is.lost, &is.ignored), (of_text.lost, &of_text.ignored), "{name}");
            assert_eq!(is.declared_cpus, of_text.declared_cpus, "{name}");
            assert_eq!(is.clock.as_deref(), Some("mono"));
        }
    }
}

#[test]
fn the_recordings_hold_what_they_are_to_test() {
    let summary = |name| read(&plain(name), Options::default()).unwrap().1;
    let (v6, v7, old) = (summary(FILES[0]), summary(FILES[1]), summary(FILES[2]));
    assert_eq!(v6.summary().lost, 3045);
    assert!(v6.summary().ignored.total() > 0 && v6.summary().marks == 2);
    assert!(v7.summary().compaction.total() > 800);
    let kinds = [&v6, &v7, &old].map(|r| r.summary().kinds);
    assert!(kinds.iter().any(|k| k.drain > 0) && kinds.iter().any(|k| k.zone_locked > 0));
    assert!(kinds.iter().any(|k| k.ext_frag > 0) && kinds.iter().any(|k| k.free_batched > 0));
    let release = |r: &TraceReader| r.summary().kernel_release.clone();
    assert_eq!(release(&v6).as_deref(), Some("6.18.44-fc-v782"));
    assert_eq!(release(&old).as_deref(), Some("6.1.0-56-cloud-amd64"));
}

#[test]
fn a_truncated_file_is_an_error() {
    for name in FILES {
        let bytes = plain(name);
        for cut in (0..bytes.len()).step_by(bytes.len() / 150).skip(1).chain([bytes.len() - 1]) {
            let failed = error(&bytes[..cut]);
            assert!(
                matches!(
                    *failed.fault,
                    Fault::Truncated(_) | Fault::Record(_) | Fault::NotALine(_)
                ),
                "{name} cut at {cut}: {failed}"
            );
        }
    }
}

#[test]
fn lenient_reading_skips_a_damaged_sub_buffer() {
    let mut bytes = plain(FILES[0]);
    let all = read(&bytes, Options::default()).unwrap().0.len();
    // The commit word of the last sub-buffer.
    let page = bytes.len() - 4096;
    bytes[page + 8..page + 10].copy_from_slice(&[0xff, 0xff]);
    let failed = error(&bytes);
    assert!(matches!(*failed.fault, Fault::Record(_)), "{failed}");
    assert!(failed.to_string().contains(&format!("byte {page}")), "{failed}");
    let (records, reader) = read(&bytes, Options::lenient()).unwrap();
    assert!(records.len() < all && records.len() > all - 200);
    assert_eq!(reader.summary().malformed.count, 1);
}

#[test]
fn lenient_reading_skips_a_damaged_chunk() {
    let mut bytes = plain(FILES[1]);
    let all = read(&bytes, Options::default()).unwrap().0.len();
    // The last zstd frame is a chunk of sub-buffers.
    let frame = bytes.windows(4).rposition(|w| w == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    bytes[frame..frame + 4].fill(0);
    let failed = error(&bytes);
    assert!(matches!(*failed.fault, Fault::Compression(..)), "{failed}");
    let (records, reader) = read(&bytes, Options::lenient()).unwrap();
    assert!(records.len() < all && !records.is_empty());
    assert_eq!(reader.summary().malformed.count, 1);
}

#[test]
fn what_is_not_supported_is_named() {
    let change = |name, from: &[u8], to: &[u8]| {
        let mut bytes = plain(name);
        let at = find(&bytes, from);
        bytes[at..at + to.len()].copy_from_slice(to);
        *error(&bytes).fault
    };
    assert!(
        matches!(change(FILES[0], b"6\0", b"5\0"), Fault::DatVersion { found } if &*found == "5")
    );
    let other = change(FILES[1], b"zstd\0", b"lzma\0");
    assert!(matches!(other, Fault::DatCompression { name } if &*name == "lzma"));
    // Counts of events, not times.
    let clock = change(FILES[0], b"[mono] mono_raw", b"mono [counter] ");
    assert!(matches!(clock, Fault::Clock { name } if &*name == "counter"));
    let clock = change(FILES[0], b"[mono] mono_raw", b"[ppc-tb] mono_r");
    assert!(matches!(clock, Fault::Clock { name } if &*name == "ppc-tb"));
    // The clock of the instance with the page events, whatever that of the top buffer is.
    let clock = change(FILES[1], b"pyfix\0mono\0", b"pyfix\0xtsc\0");
    assert!(matches!(clock, Fault::Clock { name } if &*name == "xtsc"));
    let mut bytes = plain(FILES[1]);
    let at = find(&bytes, b"[mono] mono_raw");
    bytes[at..at + 15].copy_from_slice(b"mono [counter] ");
    assert_eq!(
        read(&bytes, Options::default()).unwrap().1.summary().clock.as_deref(),
        Some("mono")
    );
    let latency = change(FILES[0], b"flyrecord\0", b"latency  \0");
    assert!(matches!(latency, Fault::Foreign(_)));
    let heads = change(FILES[0], b"time_delta  :   27", b"time_delta  :   28");
    assert!(matches!(heads, Fault::Format { .. }));
}

/// Puts options in place of the clock's, whose text is long; an unknown one fills the rest.
fn with_options(name: &str, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = plain(name);
    let text = find(&bytes, b"local global");
    let length = u32::from_le_bytes(*bytes[text - 4..].first_chunk().unwrap()) as usize;
    let one = |&(id, data): &(u16, &[u8])| {
        [&id.to_le_bytes()[..], &(data.len() as u32).to_le_bytes(), data].concat()
    };
    let mut new: Vec<u8> = options.iter().flat_map(one).collect();
    let rest = length - new.len();
    new.extend(one(&(999, &vec![0; rest])));
    bytes.splice(text - 6..text + length, new);
    bytes
}

#[test]
fn statistics_of_cpus_count_lost_events() {
    let stats = |overrun: u32| format!("CPU: 0\noverrun: {overrun}\ndropped events: 77\n");
    let lost = |overrun| {
        let stats = stats(overrun);
        let bytes = with_options(FILES[0], &[(2, stats.as_bytes())]);
        read(&bytes, Options::default()).unwrap().1.summary().lost
    };
    assert_eq!(lost(50_000), 50_077);
    // The gaps between the sub-buffers count 3,045, which the statistics count too.
    assert_eq!(lost(3), 3045);
}

/// Replaces the places of sub-buffers in the table of version 6.
fn with_table(places: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = plain(FILES[0]);
    let at = find(&bytes, b"flyrecord\0") + 10;
    for (n, (offset, size)) in places.iter().enumerate() {
        bytes[at + 16 * n..][..8].copy_from_slice(&offset.to_le_bytes());
        bytes[at + 16 * n + 8..][..8].copy_from_slice(&size.to_le_bytes());
    }
    bytes
}

#[test]
fn sub_buffers_that_overlap_or_leave_the_file_are_rejected() {
    let length = plain(FILES[0]).len() as u64;
    let overlap = *error(&with_table(&[(0, length), (0, length)])).fault;
    assert!(matches!(overlap, Fault::Record("parts of the file overlap")), "{overlap}");
    for place in [(length, 1), (0, length + 1), (u64::MAX, 2), (2, u64::MAX)] {
        let outside = *error(&with_table(&[place])).fault;
        assert!(matches!(outside, Fault::Truncated(_)), "{place:?}: {outside}");
    }
    // No sub-buffers are no fault.
    assert!(read(&with_table(&[(0, 0), (0, 0)]), Options::default()).unwrap().0.is_empty());
}

#[test]
fn instances_whose_tables_overlap_are_rejected() {
    // Options that all name the table of the top buffer as that of an instance.
    let table = find(&plain(FILES[0]), b"flyrecord\0") as u64;
    let bytes = with_options(FILES[0], &[(3, &table.to_le_bytes()[..]); 3]);
    let failed = error(&bytes);
    assert!(matches!(*failed.fault, Fault::Record("parts of the file overlap")), "{failed}");
}

#[test]
fn options_that_lead_in_a_circle_end() {
    let mut bytes = plain(FILES[1]);
    // The option DONE of the first section holds the place of the second. Let it name itself.
    let second = u64::from_le_bytes(*bytes[25..].first_chunk().unwrap());
    let done = [&[0, 0, 8, 0, 0, 0][..], &[0; 0]].concat();
    let at = bytes[second as usize..].windows(6).rposition(|w| w == done).unwrap();
    let at = second as usize + at + 6;
    bytes[at..at + 8].copy_from_slice(&second.to_le_bytes());
    let failed = error(&bytes);
    assert!(matches!(*failed.fault, Fault::Record("parts of the file overlap")), "{failed}");
}

#[test]
fn a_chunk_that_expands_beyond_measure_is_rejected() {
    let bytes = plain(FILES[1]);
    let frame = bytes.windows(4).rposition(|w| w == [0x28, 0xb5, 0x2f, 0xfd]).unwrap();
    let mut changed = bytes;
    changed[frame - 4..frame].copy_from_slice(&(64u32 << 20).to_le_bytes());
    let failed = error(&changed);
    assert!(matches!(*failed.fault, Fault::Expands { .. }), "{failed}");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_truncated() {
    let bytes = plain(FILES[0]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let reader = TraceReader::open(file.path(), Options::default()).unwrap();
    file.as_file().set_len(bytes.len() as u64 / 2).unwrap();
    let result: Result<Vec<Record>, _> = reader.collect();
    let failed = result.unwrap_err();
    assert!(matches!(*failed.fault, Fault::Truncated(_)), "{failed}");
}
