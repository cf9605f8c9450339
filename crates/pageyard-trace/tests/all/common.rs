//! Helpers shared by the tests.

use std::io::Cursor;

use pageyard_trace::{
    Attachments, Options, Record, Summary, Tasks, TraceError, TraceReader, TraceWriter,
    WriterOptions,
};

/// A recording in the form of `trace-cmd report -t`, with every kind of event.
pub(crate) const TEXT: &str = "\
cpus=4
          run.sh-1     [001]    25.174893138: print:                tracing_mark_write: TRACE_ON
          run.sh-1     [001]    25.190487028: mm_page_alloc:        page=0xffffffffb9b56390 pfn=0x1df8 order=1 migratetype=0 gfp_flags=GFP_KERNEL_ACCOUNT|__GFP_ZERO
             cut-229   [003]    25.212355504: mm_page_free:         page=0xffffffffb9b6f9d6 pfn=0x1b43e order=1
             cut-229   [003]    25.230526714: mm_page_free_batched: page=0xffffffffb9b57872 pfn=0x32da order=0
          run.sh-1     [001]    27.642369543: mm_page_alloc_zone_locked: page=0xffffffffb9b6fb7c pfn=0x1b5e4 order=0 migratetype=0 percpu_refill=1
             cc1-246   [002]    49.488692606: mm_page_pcpu_drain:   page=0xffffffffb9b8d880 pfn=0x392e8 order=0 migratetype=1
             thp-303   [001]   116.607061800: mm_page_alloc:        page=(nil) pfn=0x0 order=9 migratetype=1 gfp_flags=0x3d24ca
       configure-354   [000]   224.299241176: mm_page_alloc_extfrag: page=0xffffffffb9b8d998 pfn=0x39400 alloc_order=0 fallback_order=10 pageblock_order=9 alloc_migratetype=0 fallback_migratetype=1 fragmenting=10 change_ownership=1
";

pub(crate) fn open(bytes: &[u8], options: Options) -> Result<TraceReader, TraceError> {
    TraceReader::from_reader("test", Cursor::new(bytes.to_vec()), options)
}

/// Reads all records.
pub(crate) fn read(
    bytes: &[u8],
    options: Options,
) -> Result<(Vec<Record>, TraceReader), TraceError> {
    let mut reader = open(bytes, options)?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((records, reader))
}

/// The records of a valid text, to which a final `
/// ` is added if it lacks one.
pub(crate) fn records(text: &str) -> Vec<Record> {
    let text = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    read(text.as_bytes(), Options::default()).expect("the text is right").0
}

/// The error of a strict read.
pub(crate) fn error(bytes: &[u8]) -> TraceError {
    match read(bytes, Options::default()) {
        Ok((records, _)) => panic!("read without error: {records:?}"),
        Err(error) => error,
    }
}

pub(crate) fn attachments() -> Attachments {
    let mut files = Attachments::new();
    files.insert("before/buddyinfo", b"Node 0, zone DMA 1 2 3\n".to_vec());
    files.insert("pfnmap.before", vec![1; 5000]);
    files.insert("after/vmstat", Vec::new());
    files
}

pub(crate) fn pgy(records: &[Record], tasks: &Tasks, files: &Attachments) -> Vec<u8> {
    let options = WriterOptions { level: 3, declared_cpus: Some(4) };
    let mut writer = TraceWriter::new(Vec::new(), options).unwrap();
    writer.attach_all(files).unwrap();
    for record in records {
        writer.write(tasks, record).unwrap();
    }
    let summary = Summary { lost: 17, ..Summary::default() };
    writer.finish(tasks, &summary).unwrap()
}
