//! Events as ftrace text (spec §9.5): reading returns what was written, and writing reproduces what
//! was read.

use std::cell::RefCell;

use pageyard::policy::{StaticPolicy, TypeChecked};
use pageyard::{CpuId, Event};
use pageyard_lab::hygiene::{Options, soak};
use pageyard_lab::record::{Recorder, Sink, tracepoint};
use pageyard_trace::{Kind, Options as Reading, Record, TextWriter, TraceReader};

/// Writes events, and keeps the first ones.
struct Both {
    recorder: Recorder<Vec<u8>>,
    seen: RefCell<Vec<(u64, CpuId, Event)>>,
}

/// Enough events for every kind to occur.
const MOST: usize = 1_200_000;

impl Sink for Both {
    fn observe(&self, t_ns: u64, cpu: CpuId, event: Event) {
        if self.seen.borrow().len() < MOST {
            self.recorder.observe(t_ns, cpu, event);
            self.seen.borrow_mut().push((t_ns, cpu, event));
        }
    }
}

#[test]
fn s9_5_recorded_events_survive_a_round_trip() {
    let recorder = Recorder::new(Vec::new(), 4, "hygiene").unwrap();
    let both = Both { recorder, seen: RefCell::default() };
    let options = Options { rounds: 1, memory: 256 << 20, ..Options::default() };
    soak(&options, "Linux612", &<TypeChecked>::RULES, &both).unwrap();
    let seen = both.seen.into_inner();
    let (written, text) = both.recorder.finish().unwrap();

    let wanted: Vec<_> = seen
        .iter()
        .filter_map(|(t_ns, cpu, event)| Some((*t_ns, cpu.0 as u16, tracepoint(event)?)))
        .collect();
    let compacts = seen.iter().filter(|(_, _, e)| matches!(e, Event::Compact(_))).count();
    assert_eq!(written, (wanted.len() + compacts) as u64);
    let has = |is: fn(&Kind) -> bool| assert!(wanted.iter().any(|w| is(&w.2)));
    has(|k| matches!(k, Kind::Alloc { pfn: Some(_), .. }));
    has(|k| matches!(k, Kind::Alloc { pfn: None, .. }));
    has(|k| matches!(k, Kind::Free { .. }));
    has(|k| matches!(k, Kind::FreeBatched { .. }));
    has(|k| matches!(k, Kind::ZoneLocked { .. }));
    has(|k| matches!(k, Kind::Drain { .. }));
    has(|k| matches!(k, Kind::ExtFrag { .. }));

    let input = std::io::Cursor::new(text.clone());
    let mut reader = TraceReader::from_reader("written", input, Reading::default()).unwrap();
    let mut again = TextWriter::new(Vec::new(), Some(4)).unwrap();
    let mut records = Vec::new();
    let mut read = Vec::new();
    while reader.next_chunk(&mut records).unwrap() {
        for record in &records {
            again.write(reader.tasks(), record).unwrap();
            match record {
                Record::Event(e) => read.push((e.t_ns, e.cpu, e.kind)),
                // Compaction events have their own test.
                Record::Compaction { .. } => {}
                Record::Mark { .. } => panic!("a mark that was not written"),
            }
        }
    }
    assert!(read == wanted, "events differ");
    assert!(again.finish().unwrap() == text, "text differs");
    assert_eq!(reader.summary().declared_cpus, Some(4));
}
