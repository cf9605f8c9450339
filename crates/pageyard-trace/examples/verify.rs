//! Shows that nothing is lost: `verify FILE...` reads each recording, writes it as `.pgy` and as
//! text (flags as names), reads both back and compares every record and task.

use std::error::Error;
use std::io::Cursor;

use pageyard_trace::{Options, Record, TextWriter, TraceReader, TraceWriter, WriterOptions};

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let mut reader = TraceReader::open(&path, Options::default())?;
        let records: Vec<Record> = reader.by_ref().collect::<Result<_, _>>()?;
        let declared_cpus = reader.summary().declared_cpus;

        let mut pgy = TraceWriter::new(Vec::new(), WriterOptions { level: 3, declared_cpus })?;
        let mut text = TextWriter::new(Vec::new(), declared_cpus)?.gfp_names(true);
        for record in &records {
            pgy.write(reader.tasks(), record)?;
            text.write(reader.tasks(), record)?;
        }
        let pgy = pgy.finish(reader.tasks(), reader.summary())?;
        let text = text.finish()?;

        let size = pgy.len() as f64 / records.len() as f64;
        for (form, bytes) in [(".pgy", pgy), ("text", text)] {
            let mut again = TraceReader::from_reader(form, Cursor::new(bytes), Options::default())?;
            for (at, record) in records.iter().enumerate() {
                let other = again.next().transpose()?;
                if other.as_ref() != Some(record) {
                    return Err(format!("{path}: {form}: record {at}: {record:?} {other:?}").into());
                }
            }
            let same = again.next().is_none()
                && again.tasks() == reader.tasks()
                && again.summary().kinds == reader.summary().kinds
                && again.summary().declared_cpus == declared_cpus;
            if !same {
                return Err(format!("{path}: {form}: the rest differs").into());
            }
        }
        let s = reader.summary();
        println!(
            "{path}: {} records, {} tasks, {} of other names, {} lost; {size:.2} bytes each",
            records.len(),
            reader.tasks().len(),
            s.ignored.total(),
            s.lost
        );
        println!("  {:?}", s.kinds);
    }
    Ok(())
}
