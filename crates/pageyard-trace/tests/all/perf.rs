//! `perf.data` against the output of `perf script` for the same file. The files are real recordings
//! by perf 6.1 on Linux 6.18: of one command, of all CPUs compressed by perf, and through a pipe.

use pageyard_trace::{Format, Options, Record, Task, TraceReader};

use crate::common::{error, read, records};

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/perf/{name}.zst", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn plain(name: &str) -> Vec<u8> {
    zstd::decode_all(&data(name)[..]).unwrap()
}

/// Records with their tasks by name, since the numbers of tasks depend on the order of first use.
pub(crate) fn named(records: Vec<Record>, reader: &TraceReader) -> Vec<(Record, Option<Task>)> {
    let task = |record: &mut Record| match record {
        Record::Event(event) => reader.tasks().get(std::mem::take(&mut event.task)).cloned(),
        Record::Compaction { task, .. } => reader.tasks().get(std::mem::take(task)).cloned(),
        Record::Mark { .. } => None,
    };
    let pair = |mut record| {
        let task = task(&mut record);
        (record, task)
    };
    records.into_iter().map(pair).collect()
}

#[test]
fn a_perf_data_equals_the_text_of_perf_script() {
    for (name, count) in [("task", 157), ("packed", 411), ("pipe", 336)] {
        let binary = data(&format!("{name}.data"));
        let (theirs, text) = read(&data(&format!("{name}.txt")), Options::default()).unwrap();
        // Compressed from outside, and plain.
        for bytes in [binary, plain(&format!("{name}.data"))] {
            let (ours, reader) = read(&bytes, Options::default()).unwrap();
            assert_eq!(reader.format(), Format::PerfData);
            assert_eq!(ours.len(), count, "{name}");
            assert!(named(ours, &reader) == named(theirs.clone(), &text), "{name}");
            let summary = reader.summary();
            assert_eq!(summary.kernel_release.as_deref(), Some("6.18.44-fc-v782"), "{name}");
            let enabled = summary.enabled_events.as_ref().unwrap();
            assert!(enabled.iter().any(|event| event == "mm_page_alloc_extfrag"), "{enabled:?}");
        }
    }
    let (_, reader) = read(&data("task.data"), Options::default()).unwrap();
    let enabled = reader.summary().enabled_events.clone().unwrap();
    assert_eq!(enabled.last().map(String::as_str), Some("mm_vmscan_kswapd_wake"));
}

#[test]
fn a_perf_data_is_read_from_a_file_by_position() {
    let path = std::env::temp_dir().join(format!("pageyard-perf-{}.data", std::process::id()));
    std::fs::write(&path, plain("task.data")).unwrap();
    let mut reader = TraceReader::open(&path, Options::default()).unwrap();
    let ours: Vec<Record> = reader.by_ref().map(Result::unwrap).collect();
    std::fs::remove_file(&path).unwrap();
    let (theirs, text) = read(&data("task.txt"), Options::default()).unwrap();
    assert!(named(ours, &reader) == named(theirs, &text));
}

#[test]
fn a_cut_perf_data_is_an_error_and_its_start_is_read_leniently() {
    for name in ["task.data", "packed.data", "pipe.data"] {
        let whole = plain(name);
        let (all, _) = read(&whole, Options::default()).unwrap();
        for part in 1..16 {
            let cut = &whole[..whole.len() * part / 16];
            match read(cut, Options::default()) {
                Err(error) => {
                    assert!(error.to_string().starts_with("test: byte "), "{name} {part}: {error}");
                }
                // The end of a file has features that are not read.
                Ok((some, _)) => assert!(some == all, "{name} {part}"),
            }
            if let Ok((some, _)) = read(cut, Options::lenient()) {
                assert!(some.len() <= all.len());
            }
        }
    }
}

/// A file whose bytes at `at` are replaced.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = plain("task.data");
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// Replaces the first record of at least 64 bytes that says where a library was mapped.
fn instead_of_a_mapping(record: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut file = plain("task.data");
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (mut at, mut found) = (number(40), None);
    while found.is_none() {
        let size = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
        found = (matches!(file[at], 1 | 10) && size >= 64).then_some((at, size));
        at += size;
    }
    let (at, size) = found.unwrap();
    let record = record(size);
    file[at..at + record.len()].copy_from_slice(&record);
    file
}

#[test]
fn records_of_losses_and_of_foreign_data_between_samples() {
    let (all, before) = read(&plain("task.data"), Options::default()).unwrap();
    // 300 lost samples; the rest of the record is not looked at.
    let file = instead_of_a_mapping(|size| {
        [&[13, 0, 0, 0, 0, 0][..], &(size as u16).to_le_bytes(), &300u64.to_le_bytes()].concat()
    });
    let (some, reader) = read(&file, Options::default()).unwrap();
    assert!(some == all && reader.summary().lost == before.summary().lost + 300);
    // A record of 16 bytes, and after it the bytes that it announces.
    let file = instead_of_a_mapping(|size| {
        let mut record =
            [&[71, 0, 0, 0, 0, 0, 16, 0][..], &(size as u64 - 16).to_le_bytes()].concat();
        record.resize(size, 0xff);
        record
    });
    assert!(read(&file, Options::default()).unwrap().0 == all);
}

/// The records of the pipe's output: kind, start and end, payloads that follow included.
fn records_of_pipe(file: &[u8]) -> Vec<(u32, usize, usize)> {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut found) = (16, Vec::new());
    while at < file.len() {
        let kind = word(at);
        let size = usize::from(u16::from_le_bytes([file[at + 6], file[at + 7]]));
        let more = if kind == 66 { word(at + 8) as usize } else { 0 };
        found.push((kind, at, at + size + more));
        at += size + more;
    }
    found
}

#[test]
fn many_descriptions_of_events_in_a_pipe_take_linear_time() {
    let file = plain("pipe.data");
    let (all, _) = read(&file, Options::default()).unwrap();
    let parts = records_of_pipe(&file);
    let of =
        |kind| parts.iter().find(|part| part.0 == kind).map(|&(_, from, to)| from..to).unwrap();
    let (attr, formats) = (of(64), of(66));
    // 200000 more descriptions, with the identifiers of the first. With time in proportion to all
    // before, for each of them and for each sample, this would take minutes.
    let many = file[attr].repeat(200_000);
    let large = [&file[..formats.end], &many, &file[formats.end..]].concat();
    let (some, reader) = read(&large, Options::default()).unwrap();
    assert_eq!(some.len(), all.len());
    assert!(reader.summary().enabled_events.as_ref().unwrap().len() > 200_000);
    // The descriptions of events are there once.
    let twice = [&file[..formats.end], &file[formats.clone()], &file[formats.end..]].concat();
    let said = error(&twice).to_string();
    assert!(said.contains("a second set of descriptions"), "{said}");
}

#[test]
fn an_unfinished_or_unsuitable_perf_data_says_how_to_record() {
    // An interrupted perf leaves the size of the records at 0.
    let error = error(&changed(48, &[0; 8])).to_string();
    assert!(error.contains("the recording was not finished; record all CPUs"), "{error}");
    // Without the CPU in the samples.
    let mut file = plain("task.data");
    let number = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let (each, attrs) = (number(&file, 16) as usize, number(&file, 24) as usize);
    for at in (attrs..attrs + number(&file, 32) as usize).step_by(each) {
        let fields = number(&file, at + 24) & !(1 << 7);
        file[at + 24..at + 32].copy_from_slice(&fields.to_le_bytes());
    }
    let error = crate::common::error(&file).to_string();
    assert!(error.contains("the samples lack the time, the CPU"), "{error}");
    let error = crate::common::error(&changed(8, &[103])).to_string();
    assert!(error.contains("unknown version; convert it: perf script"), "{error}");
}

#[test]
fn overlapping_parts_of_a_perf_data_are_rejected() {
    // The identifiers of the first event are said to be the whole file, again and again.
    let mut file = plain("task.data");
    let length = file.len() as u64;
    let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (each, attrs) = (number(16), number(24));
    for n in 0..2 {
        let place = attrs + each * (n + 1) - 16;
        file[place..place + 8].copy_from_slice(&0u64.to_le_bytes());
        file[place + 8..place + 16].copy_from_slice(&length.to_le_bytes());
    }
    let error = error(&file).to_string();
    assert!(error.contains("parts of the file overlap"), "{error}");
}

/// Lines of `perf script` with various fields, and what they say.
#[test]
fn text_of_perf_script_with_other_fields() {
    const EVENT: &str = "kmem:mm_page_free: page=0x10 pfn=0x10 order=0";
    let same = |line: &str| {
        let (records, reader) = read(format!("{line}\n").as_bytes(), Options::default())
            .unwrap_or_else(|e| panic!("{e}"));
        named(records, &reader)
    };
    let plain = same(&format!("          a-1 b 13720 [001]   437.169342440:      {EVENT}"));
    let task = plain[0].1.clone().unwrap();
    assert_eq!((task.comm.as_str(), task.pid), ("a-1 b", 13720));
    for line in [
        format!("a-1 b 12/13720 [001] 437.169342440: {EVENT}"),
        format!("a-1 b 13720 [001] 437.169342440:          1 {EVENT}"),
        format!("a-1 b 13720 [001] 437.169342440: {EVENT} ffffffff816396fb __free_pages"),
        format!(
            "# os release : 6.6.1\na-1 b 13720 [001] 437.169342440: {EVENT}\n\tffffffff816396fb f+0x2 ([k])\n\t         8bd99f0 main\n"
        ),
    ] {
        assert_eq!(same(&line), plain, "{line}");
    }
    let lost = "perf  9495 [001]  2721.139086191: PERF_RECORD_LOST lost 1230\n";
    let (none, reader) = read(lost.as_bytes(), Options::default()).unwrap();
    assert!(none.is_empty() && reader.summary().lost == 1230);
    let header = "# os release : 6.6.1\n";
    let (_, reader) = read(header.as_bytes(), Options::default()).unwrap();
    assert_eq!(reader.summary().kernel_release.as_deref(), Some("6.6.1"));
}

#[test]
fn the_latency_format_of_trace_cmd() {
    let usual =
        records("cc1-246 [002] d..1. 49.488692606: mm_page_free: page=0x1 pfn=0x392e8 order=0");
    for flags in ["d..1.", ".....", "dNh2.", "d...."] {
        let line = format!(
            "     cc1-246     2{flags}    49.488692606: mm_page_free:  page=0x1 pfn=0x392e8 order=0"
        );
        assert_eq!(records(&line), usual, "{line}");
    }
    let wide =
        records("cc1-246   102d..1.    49.488692606: mm_page_free:  page=0x1 pfn=0x392e8 order=0");
    assert!(matches!(wide[0], Record::Event(e) if e.cpu == 102));
    let relative =
        "     cc1-246     2d..1.    49us : mm_page_free:  page=0x1 pfn=0x392e8 order=0\n";
    let error = error(relative.as_bytes()).to_string();
    assert!(error.contains("the time is relative, in microseconds"), "{error}");
}

#[test]
fn a_name_that_looks_like_the_start_of_another_form_is_not_written_as_text() {
    for comm in ["a-246  2d..1. 49.4: mm_page_free:", "a 5 [001] 1.0: kmem:x:"] {
        let mut tasks = pageyard_trace::Tasks::new();
        let task = tasks.intern(7, comm);
        let kind = pageyard_trace::Kind::Free { pfn: 16, order: 0 };
        let event = pageyard_trace::Event { t_ns: 5, cpu: 0, task, kind };
        let mut text = pageyard_trace::TextWriter::new(Vec::new(), None).unwrap();
        let error = text.write(&tasks, &Record::Event(event)).unwrap_err().to_string();
        assert!(error.contains("looks like the start of a line"), "{error}");
    }
}
