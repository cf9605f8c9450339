//! Reads recordings and prints how fast:
//! `cargo run --release -p pageyard-trace --example read_speed FILE...`

use std::error::Error;
use std::time::Instant;

use pageyard_trace::{Options, TraceReader};

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        let start = Instant::now();
        let mut reader = TraceReader::open(&path, Options::default())?;
        let mut group = Vec::new();
        while reader.next_chunk(&mut group)? {}
        let seconds = start.elapsed().as_secs_f64();
        let records = reader.summary().kinds.total() + reader.summary().marks;
        println!("{path}: {records} records, {:.2} M/s", records as f64 / seconds / 1e6);
    }
    Ok(())
}
