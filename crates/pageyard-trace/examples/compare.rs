//! `compare A B`: checks that two recordings, in any formats, have the same records.

use pageyard_trace::{Options, Record, Task, TraceReader};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [a, b] = &args[..] else { return Err("compare A B".into()) };
    let mut a = TraceReader::open(a, Options::default())?;
    let mut b = TraceReader::open(b, Options::default())?;
    let mut n = 0u64;
    loop {
        match (a.next().transpose()?, b.next().transpose()?) {
            (None, None) => break,
            (Some(x), Some(y)) if named(&x, &a) == named(&y, &b) => n += 1,
            (x, y) => {
                let (x, y) = (x.map(|x| named(&x, &a)), y.map(|y| named(&y, &b)));
                return Err(format!("record {n}:\n{x:?}\n{y:?}").into());
            }
        }
    }
    let totals = |r: &TraceReader| {
        let s = r.summary();
        format!("lost {} ignored {:?} cpus {:?}", s.lost, s.ignored, s.declared_cpus)
    };
    println!("{n} records are the same\n{}\n{}", totals(&a), totals(&b));
    println!("{:?} {:?}", a.summary().kernel_release, a.summary().clock);
    Ok(())
}

/// Replaces the task's number, which depends on the order of first use, by the task.
fn named(record: &Record, reader: &TraceReader) -> (Record, Option<Task>) {
    let mut record = record.clone();
    let task = match &mut record {
        Record::Event(event) => Some(&mut event.task),
        Record::Compaction { task, .. } => Some(task),
        Record::Mark { .. } => None,
    };
    let named = task.and_then(|task| {
        let named = reader.tasks().get(*task).cloned();
        *task = 0;
        named
    });
    (record, named)
}
