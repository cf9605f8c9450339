//! Compaction events as ftrace text and in `.pgy`: reading returns what was written, and writing
//! reproduces what was read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Cursor;

use pageyard::{
    CompactEvent, CpuId, Defences, Event, Gfp, Hooked, NodeId, Order, Pfn, Platform, Priority,
    Reclaim, Relocation, Yard, ZoneKind,
};
use pageyard_lab::Lock;
use pageyard_lab::record::{Recorder, Sink, compaction, tracepoint};
use pageyard_trace::{
    Compaction, Options, Record, Summary, TextWriter, TraceReader, TraceWriter, WriterOptions,
};

use crate::with_yard;

/// A machine whose pages move when asked, unless they are stuck.
struct Machine {
    recorder: Recorder<Vec<u8>>,
    seen: RefCell<Vec<(u64, Event)>>,
    clock: Cell<u64>,
    owned: RefCell<BTreeMap<Pfn, Order>>,
    stuck: Cell<bool>,
}

impl Platform for Machine {
    fn now(&self) -> u64 {
        self.clock.get()
    }
}

impl Reclaim for Machine {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        if self.stuck.get() {
            return Relocation::Refused;
        }
        let mut owned = self.owned.borrow_mut();
        assert_eq!(owned.remove(&from), Some(order));
        owned.insert(to, order);
        Relocation::Moved
    }
}

impl pageyard::Observer for Machine {
    fn event(&self, cpu: CpuId, event: Event) {
        self.clock.set(self.clock.get() + 1000);
        self.recorder.observe(self.clock.get(), cpu, event);
        self.seen.borrow_mut().push((self.clock.get(), event));
    }
}

impl Defences for Machine {}

/// Compacts, fails, is deferred, and leaves work to the daemon.
fn work(yard: &Yard<'_, Hooked<Lock, &Machine>>, machine: &Machine) {
    let gfp = Gfp::HIGHUSER_MOVABLE;
    let mut all = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, gfp | Gfp::MEMALLOC) {
        yard.set_movable(pfn, Order::ZERO, true).unwrap();
        machine.owned.borrow_mut().insert(pfn, Order::ZERO);
        all.push(pfn);
    }
    for pfn in all.into_iter().filter(|pfn| pfn.0 % 2 == 0) {
        machine.owned.borrow_mut().remove(&pfn).unwrap();
        yard.free(pfn, Order::ZERO).unwrap();
    }
    yard.drain_all(None);
    let done = yard.compact_for(Order::HUGE, gfp, Priority::SyncLight).unwrap();
    assert!(done.captured.is_some());
    machine.stuck.set(true);
    for _ in 0..3 {
        yard.compact_for(Order::HUGE, gfp, Priority::SyncLight).unwrap();
    }
    machine.stuck.set(false);
    yard.compact_for(Order::HUGE, gfp, Priority::SyncFull).unwrap();
    yard.request_compaction(NodeId(0), Order::HUGE, ZoneKind::Normal);
    yard.compact_background(NodeId(0));
    yard.compact_node(NodeId(0));
}

/// The trace of a run that compacts, fails, is deferred, and leaves work to the daemon; and its
/// events.
fn recorded() -> (Vec<u8>, Vec<(u64, Event)>) {
    let machine = Machine {
        recorder: Recorder::new(Vec::new(), 1, "compacts").unwrap(),
        seen: RefCell::default(),
        clock: Cell::new(1_000_000_000),
        owned: RefCell::default(),
        stuck: Cell::new(false),
    };
    with_yard(0..32_768, &machine, |yard| work(yard, &machine));
    let (written, text) = machine.recorder.finish().unwrap();
    let seen = machine.seen.into_inner();
    let has = |e: &Event| matches!(e, Event::Compact(_)) || tracepoint(e).is_some();
    assert_eq!(written, seen.iter().filter(|(_, e)| has(e)).count() as u64);
    (text, seen)
}

/// The compaction events of a trace, and the trace as text.
fn through(trace: Vec<u8>) -> (Vec<(u64, Compaction)>, Vec<u8>, Vec<u8>) {
    let mut reader =
        TraceReader::from_reader("written", Cursor::new(trace), Options::default()).unwrap();
    let mut text = TextWriter::new(Vec::new(), Some(1)).unwrap();
    let options = WriterOptions { level: 1, declared_cpus: Some(1) };
    let mut pgy = TraceWriter::new(Vec::new(), options).unwrap();
    let (mut read, mut records) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut records).unwrap() {
        for record in &records {
            text.write(reader.tasks(), record).unwrap();
            pgy.write(reader.tasks(), record).unwrap();
            if let Record::Compaction { t_ns, what, .. } = record {
                read.push((*t_ns, **what));
            }
        }
    }
    let summary = reader.summary();
    assert_eq!(summary.ignored.total(), 0);
    assert_eq!(summary.compaction.total(), read.len() as u64);
    let pgy = pgy.finish(reader.tasks(), &Summary::default()).unwrap();
    (read, text.finish().unwrap(), pgy)
}

#[test]
fn s7_recorded_compaction_survives_a_round_trip() {
    let (text, seen) = recorded();
    let mut wanted = Vec::new();
    let mut kinds = Vec::new();
    for (t, event) in &seen {
        if let Event::Compact(event) = event {
            wanted.push((*t, compaction(event)));
            kinds.push(std::mem::discriminant(event));
        }
    }
    let differ = |a: &CompactEvent| kinds.contains(&std::mem::discriminant(a));
    let sleep = CompactEvent::KcompactdSleep { node: NodeId(0) };
    assert!(differ(&sleep), "the daemon has slept");
    kinds.sort_by_key(|k| format!("{k:?}"));
    kinds.dedup();
    assert_eq!(kinds.len(), 14, "every kind of event occurs: {kinds:?}");

    let (read, again, pgy) = through(text.clone());
    assert!(read == wanted, "events differ");
    assert!(again == text, "text differs");
    let (read, again, _) = through(pgy);
    assert!(read == wanted && again == text, "converted to .pgy and back");
}
