//! Makes a `.pgy` file of a recording, with the state files that lie in a folder attached.
//!
//! `import INPUT OUTPUT.pgy [STATE-FOLDER]`; INPUT `-` is standard input.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter};

use pageyard_trace::state::StateDir;
use pageyard_trace::{Options, TraceReader, TraceWriter, WriterOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, state @ ..] = args.as_slice() else {
        return Err("usage: import INPUT OUTPUT.pgy [STATE-FOLDER]".into());
    };
    let mut reader = match input.as_str() {
        "-" => TraceReader::from_reader("standard input", io::stdin(), Options::default())?,
        path => TraceReader::open(path, Options::default())?,
    };
    // The first group is read before the file begins, since `cpus=` stands in its first line.
    let mut group = Vec::new();
    let mut more = reader.next_chunk(&mut group)?;
    let declared_cpus = reader.summary().declared_cpus;
    let out = BufWriter::new(File::create(output)?);
    let mut writer = TraceWriter::new(out, WriterOptions { level: 19, declared_cpus })?;
    writer.attach_all(reader.attachments())?;
    if let Some(folder) = state.first() {
        writer.attach_all(&StateDir::collect(folder)?.0)?;
    }
    while more {
        for record in &group {
            writer.write(reader.tasks(), record)?;
        }
        more = reader.next_chunk(&mut group)?;
    }
    writer.finish(reader.tasks(), reader.summary())?;
    println!("{:#?}", reader.summary());
    Ok(())
}
