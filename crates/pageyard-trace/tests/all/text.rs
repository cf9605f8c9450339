//! Every text format that can be read.

use pageyard_trace::{
    Compression, Event, Fault, Format, Kind, Options, Position, Record, TextWriter, TraceReader,
};

use crate::common::{TEXT, error, open, read, records};

fn event(line: &str) -> (Event, TraceReader) {
    let text = format!("{line}\n");
    let (records, reader) = read(text.as_bytes(), Options::default()).expect(line);
    let [Record::Event(event)] = records.as_slice() else { panic!("{line}: {records:?}") };
    (*event, reader)
}

#[test]
fn every_kind() {
    let (records, reader) = read(TEXT.as_bytes(), Options::default()).unwrap();
    let kinds: Vec<Kind> = records
        .iter()
        .filter_map(|record| match record {
            Record::Event(event) => Some(event.kind),
            Record::Compaction { .. } | Record::Mark { .. } => None,
        })
        .collect();
    assert_eq!(
        kinds,
        [
            Kind::Alloc { pfn: Some(0x1df8), order: 1, migratetype: 0, gfp: 0x400dc0 },
            Kind::Free { pfn: 0x1b43e, order: 1 },
            Kind::FreeBatched { pfn: 0x32da },
            Kind::ZoneLocked { pfn: Some(0x1b5e4), order: 0, migratetype: 0, refill: true },
            Kind::Drain { pfn: 0x392e8, order: 0, migratetype: 1 },
            Kind::Alloc { pfn: None, order: 9, migratetype: 1, gfp: 0x3d24ca },
            Kind::ExtFrag {
                pfn: 0x39400,
                alloc_order: 0,
                fallback_order: 10,
                alloc_type: 0,
                fallback_type: 1,
                change_ownership: true
            },
        ]
    );
    let mark = Record::Mark { t_ns: 25_174_893_138, cpu: 1, text: "TRACE_ON".into() };
    assert_eq!(records[0], mark);
    let summary = reader.summary();
    assert_eq!((summary.marks, summary.declared_cpus), (1, Some(4)));
    assert_eq!((summary.kinds.alloc, summary.kinds.alloc_failed, summary.kinds.total()), (2, 1, 7));
    assert_eq!(summary.span_ns, Some((25_174_893_138, 224_299_241_176)));
    assert_eq!((reader.format(), reader.compression()), (Format::Text, Compression::None));
    let names: Vec<_> = reader.tasks().iter().map(|t| (t.pid, t.comm.as_str())).collect();
    let expected = [(1, "run.sh"), (229, "cut"), (246, "cc1"), (303, "thp"), (354, "configure")];
    assert_eq!(names, expected);
}

#[test]
fn trace_file_of_the_kernel() {
    let text = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 3/3   #P:4
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
          <idle>-0       [002] d.h1.   123.000001: mm_page_free: page=00000000f7d7f6f1 pfn=0x12 order=0
##### CPU 3 buffer started ####
 kworker/u8:1+ev-4711    [003] .....   123.000002: tracing_mark_write: hello: world
           <...>-99      (-------) [001] ..... 123.000003: mm_page_free: page=0000000012345678 pfn=19 order=2
            bash-100     (    100) [001] dNh2. 123.000004: sched_switch: prev_comm=a prev_pid=1 ==> next_comm=b
CPU:2 [LOST 1234 EVENTS]
CPU:1 [7 EVENTS DROPPED]
CPU:3 [EVENTS DROPPED]
CPU 0 is empty
            bash-100     [001] d..1. 123.000005: _raw_spin_lock <-do_it
version = 7
";
    let (records, reader) = read(text.as_bytes(), Options::default()).unwrap();
    assert_eq!(records.len(), 3);
    let Record::Event(first) = records[0] else { panic!() };
    assert_eq!((first.t_ns, first.cpu), (123_000_001_000, 2));
    assert_eq!(reader.tasks()[first.task].comm, "<idle>");
    let mark = Record::Mark { t_ns: 123_000_002_000, cpu: 3, text: "hello: world".into() };
    assert_eq!(records[1], mark);
    let Record::Event(last) = records[2] else { panic!() };
    assert_eq!(last.kind, Kind::Free { pfn: 19, order: 2 });
    assert_eq!(reader.summary().lost, 1234 + 7 + 1);
    let ignored: Vec<_> = reader.summary().ignored.iter().collect();
    assert_eq!(ignored, [("_raw_spin_lock", 1), ("sched_switch", 1)]);
}

#[test]
fn the_heading_counts_overwritten_events_and_cpus() {
    let read = |heading: &str, after: &str| {
        let text = format!(
            "# entries-in-buffer/entries-written: {heading}\n\
             a-1 [002] d..1. 1.000001: mm_page_free: page=0x1 pfn=0x1 order=0\n{after}"
        );
        let (_, reader) = read(text.as_bytes(), Options::default()).unwrap();
        (reader.summary().lost, reader.summary().declared_cpus)
    };
    assert_eq!(read("3/250280   #P:4", ""), (250_277, Some(4)));
    // A gap may be part of what was overwritten.
    assert_eq!(read("3/250280   #P:4", "CPU:2 [LOST 50 EVENTS]\n"), (250_277, Some(4)));
    assert_eq!(read("3/4   #P:4", "CPU:2 [LOST 50 EVENTS]\n"), (50, Some(4)));
    for other in ["3/x   #P:4", "3/2   #P:4", "3/4", "3/4   #P:x"] {
        assert_eq!(read(other, ""), (0, None), "{other}");
    }
    let text = "# entries-in-buffer/entries-written: 3/3   #P:9999\n";
    assert!(error(text.as_bytes()).to_string().contains("`cpus` is 9999"));
}

#[test]
fn numeric_form_of_trace_cmd() {
    let text = "\
          run.sh-1     [002]    23.327645747: print:                 ip=tracing_mark_write buf=TRACE_ON
          run.sh-1     [002]    23.329668701: mm_page_alloc:         pfn=0x1ce0 order=1 gfp_flags=0x400dc0 migratetype=0
             thp-9     [002]    23.329668702: mm_page_alloc:         pfn=0xffffffffffffffff order=9 gfp_flags=4194304 migratetype=1";
    let records = records(text);
    assert!(matches!(&records[0], Record::Mark { text, .. } if text == "TRACE_ON"));
    let kinds = records[1..].iter().map(|r| match r {
        Record::Event(e) => e.kind,
        _ => panic!(),
    });
    let expected = [
        Kind::Alloc { pfn: Some(0x1ce0), order: 1, migratetype: 0, gfp: 0x400dc0 },
        Kind::Alloc { pfn: None, order: 9, migratetype: 1, gfp: 0x400000 },
    ];
    assert!(kinds.eq(expected));
}

#[test]
fn commands_with_any_characters() {
    for comm in [
        "a b",
        "x-1 [2] y",
        "(sd-pam)",
        "a: b: c",
        "a:  b",
        "#hash",
        "-",
        "--",
        "]-5 [",
        "1-2",
        "é",
        "cpus=4",
    ] {
        let fields = "pfn=0x10 order=0 page=0x1";
        for line in [
            format!("{comm:>16}-77    [001]    1.000001: mm_page_free: {fields}"),
            format!("{:>16}     [001]    1.000001: mm_page_free: {fields}", format!("{comm}-77")),
        ] {
            let (event, reader) = event(&line);
            let task = &reader.tasks()[event.task];
            assert_eq!((task.pid, task.comm.as_str()), (77, comm), "{line}");
        }
    }
    let mut bytes =
        b"           a\xff\xfeb-5     [000] 1.000001: mm_page_free: page=0x1 pfn=1 order=0\n"
            .to_vec();
    let (records, reader) = read(&bytes, Options::default()).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(reader.tasks()[0].comm, "a\\xff\\xfeb");
    bytes.truncate(20);
    error(&bytes);
}

/// `trace-cmd report` of a file with the buffers of the top and of an instance.
#[test]
fn lines_of_an_instance_are_refused() {
    let fields = "mm_page_free: page=0x1 pfn=0x100 order=0";
    let top = format!("{:>21}-246   [002]    49.488692: {fields}\n", "cc1");
    for comm in ["cc1", "kworker/u8:1+ev"] {
        let line = format!("{:>5}{comm:>16}-246   [002]    49.488693: {fields}\n", "foo: ");
        let text = format!("cpus=4\n{top}{line}");
        let error = error(text.as_bytes());
        assert_eq!(error.position, Position::Line(3), "{error}");
        assert!(error.to_string().contains("the name of a tracing instance"), "{error}");
        let (records, reader) = read(text.as_bytes(), Options::lenient()).unwrap();
        assert_eq!((records.len(), reader.summary().malformed.count), (1, 1));
    }
}

#[test]
fn a_name_that_changes_is_a_new_task() {
    let text = "\
 sh-5 [000] 1.000001: mm_page_free: page=0x1 pfn=1 order=0
 ls-5 [000] 1.000002: mm_page_free: page=0x1 pfn=2 order=0
 sh-5 [001] 1.000003: mm_page_free: page=0x1 pfn=3 order=0";
    let tasks: Vec<u32> = records(text)
        .iter()
        .map(|record| match record {
            Record::Event(event) => event.task,
            _ => panic!(),
        })
        .collect();
    assert_eq!(tasks, [0, 1, 0]);
}

#[test]
fn windows_line_ends_and_blank_lines() {
    let text = TEXT.replace('\n', "\r\n\r\n");
    assert_eq!(records(&text), records(TEXT));
}

#[test]
fn faults_name_the_line() {
    let good = " a-1 [000] 2.000000: mm_page_free: page=0x1 pfn=0x1 order=0";
    for (line, expected) in [
        ("hello world", "not an ftrace line"),
        (" a-1 [000] 2.0", "no colon after the time"),
        (" a-1 [000] 2000: x:", "no time of the form"),
        (" a-1 [000", "without `]`"),
        (" a-1 [4096] 2.0: x: y", "`cpu` is 4096"),
        (" a-99999999999 [000] 2.0: x: y", "`pid` has the value"),
        (" a-1 [000] 99999999999.0: x: y", "`time` has the value"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 pfn=0x1", "no field `order`"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 order=1", "no field `pfn`"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 pfn=0x1 order=11", "`order` is 11"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 pfn=0x1 order=", "`order` has the value ``"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 pfn=1df8 order=0", "`pfn` has the value"),
        (" a-1 [000] 2.0: mm_page_free: page=0x1 pfn=0x10000000000000 order=0", "`pfn` is"),
        (" a-1 [000] 2.0: mm_page_free: page=(nil) pfn=0x0 order=0", "no frame"),
        (" a-1 [000] 2.0: mm_page_free: page=(nil) pfn=0x7 order=0", "nil page"),
        (" a-1 [000] 2.0: mm_page_free_batched: page=0x1 pfn=0x7 order=3", "`order` is 3"),
        (" a-1 [000] 2.0: mm_page_pcpu_drain: page=0x1 pfn=0x7 order=3 migratetype=8", "is 8"),
        (
            " a-1 [000] 2.0: mm_page_alloc: page=0x1 pfn=0x7 order=0 migratetype=0 gfp_flags=GFP_KERN",
            "unknown request flag `GFP_KERN`",
        ),
        (
            " a-1 [000] 2.0: mm_page_alloc: page=0x1 pfn=0x7 order=0 migratetype=0 gfp_flags=0x100000000",
            "unknown request flag",
        ),
        (
            " a-1 [000] 1.998: mm_page_free: page=0x1 pfn=0x1 order=0",
            "time goes back by 2000000 ns",
        ),
        ("cpus=9999", "`cpus` is 9999"),
        ("cpus=x", "`cpus` has the value `x`"),
    ] {
        let text = format!("{good}\n{line}\n{good}\n");
        let error = error(text.as_bytes());
        assert_eq!(error.position, Position::Line(2), "{line}: {error}");
        let message = error.to_string();
        assert!(message.contains(expected), "{line}: {message}");
        assert!(message.starts_with("test: line 2: ") && message.contains("; "), "{message}");

        let (records, reader) = read(text.as_bytes(), Options::lenient()).unwrap();
        let malformed = &reader.summary().malformed;
        assert_eq!(malformed.count, 1, "{line}");
        assert_eq!(malformed.first[0].position, Position::Line(2));
        // A record that is only late is still returned.
        let late = matches!(*malformed.first[0].fault, Fault::Backwards { .. });
        assert_eq!(records.len(), 2 + usize::from(late), "{line}");
    }
}

#[test]
fn records_before_a_fault_are_returned() {
    let text = format!("{TEXT}garbage\n");
    let mut reader = open(text.as_bytes(), Options::default()).unwrap();
    for record in records(TEXT) {
        assert_eq!(reader.next().unwrap().unwrap(), record);
    }
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn small_steps_back_in_time_are_no_fault() {
    let text = "\
 a-1 [000] 2.000000: mm_page_free: page=0x1 pfn=0x1 order=0
 a-1 [001] 1.999000: mm_page_free: page=0x1 pfn=0x2 order=0";
    assert_eq!(records(text).len(), 2);
}

#[test]
fn truncation_anywhere_is_detected() {
    let whole = records(TEXT).len();
    for end in 1..TEXT.len() {
        let cut = &TEXT.as_bytes()[..end];
        if cut.ends_with(b"\n") {
            assert!(read(cut, Options::default()).is_ok());
            continue;
        }
        assert!(matches!(*error(cut).fault, Fault::CutLine), "cut at {end}");
        let (records, reader) = read(cut, Options::lenient()).unwrap();
        assert_eq!(reader.summary().malformed.count, 1);
        assert!(records.len() < whole);
    }
}

#[test]
fn many_faults_are_counted_and_few_kept() {
    let text = "x\n".repeat(1000);
    let (records, reader) = read(text.as_bytes(), Options::lenient()).unwrap();
    assert!(records.is_empty());
    assert_eq!(reader.summary().malformed.count, 1000);
    assert_eq!(reader.summary().malformed.first.len(), 8);
}

#[test]
fn an_endless_line_is_bounded() {
    let mut text = TEXT.as_bytes().to_vec();
    text.extend(std::iter::repeat_n(b'x', 3 << 20));
    text.push(b'\n');
    text.extend_from_slice(&TEXT.as_bytes()[TEXT.find("       conf").unwrap()..]);
    let fault = error(&text);
    assert!(matches!(*fault.fault, Fault::LongLine { .. }), "{fault}");
    assert_eq!(fault.position, Position::Line(10));
    let (records, reader) = read(&text, Options::lenient()).unwrap();
    assert_eq!((records.len(), reader.summary().malformed.count), (9, 1));
}

#[test]
fn foreign_and_empty_inputs() {
    let kind = |bytes: &[u8]| match open(bytes, Options::lenient()) {
        Ok(_) => panic!("opened"),
        Err(error) => *error.fault,
    };
    assert!(matches!(kind(b""), Fault::Empty));
    assert!(matches!(kind(b"PTRC1\n{}"), Fault::Foreign(_)));
    for (bytes, wanted) in [
        (&b"{\"op\":\"c 1\"}\n"[..], "x: JSON is not a supported trace format; name a .pgy"),
        (b"\x7fELF\0\0", "x: unknown binary data is not a supported trace format; name a .pgy"),
    ] {
        let error = TraceReader::from_reader("x", bytes, Options::default()).err().unwrap();
        assert!(error.to_string().starts_with(wanted), "{error}");
    }
    let error = TraceReader::open("/nonexistent/trace.txt", Options::default()).err().unwrap();
    assert!(error.to_string().starts_with("/nonexistent/trace.txt: "));
}

#[test]
fn names_of_other_events_are_bounded() {
    let mut text = String::new();
    for i in 0..2000 {
        text.push_str(&format!(" a-1 [000] 2.0: event{i}: x\n"));
    }
    let (_, reader) = read(text.as_bytes(), Options::default()).unwrap();
    assert_eq!(reader.summary().ignored.total(), 2000);
    assert_eq!(reader.summary().ignored.iter().count(), 1025);
}

/// A fuzzer's find: names that the reader accepts (bytes that are not UTF-8 become `\xNN`) but that
/// no line can represent.
#[test]
fn unrepresentable_names_are_not_written() {
    let names = [
        "a-1 [000] 5.0: e",
        "b-7 [1",
        "foo:              cc1",
        // With its blank, the dash and the pid look like the pid -1 of `perf script`.
        "more than sixteen bytes ",
        "no ASCII: \u{11d}  ",
        "blanks  ",
    ];
    for comm in ["\\xff".repeat(100)].into_iter().chain(names.map(str::to_owned)) {
        let mut tasks = pageyard_trace::Tasks::new();
        let task = tasks.intern(1, &comm);
        let event = Event { t_ns: 0, cpu: 0, task, kind: Kind::Free { pfn: 1, order: 0 } };
        let mut writer = TextWriter::new(Vec::new(), None).unwrap();
        match writer.write(&tasks, &Record::Event(event)) {
            Err(e) => assert!(matches!(*e.fault, Fault::Unwritable(_)), "{e}"),
            Ok(()) => {
                let text = writer.finish().unwrap();
                let (_, reader) = read(&text, Options::default()).unwrap();
                assert_eq!(reader.tasks().get(0).unwrap().comm, comm);
            }
        }
    }
}
