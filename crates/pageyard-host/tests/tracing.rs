//! The events of feature `tracing`, as the program's subscriber sees them.
//!
//! A program of its own: a process has one global subscriber, and it sees the events of all yards.

#[path = "all/service/group.rs"]
mod group;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use group::Group;
use pageyard::{Gfp, Order};
use pageyard_host::{
    Backing, Block, Builder, GiveBack, HostYard, HugePages, HugeSize, Level, Limits, SystemFiles,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const MIB: u64 = 1 << 20;
const QUIET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

/// An event: its fields as text, its level and message among them.
#[derive(Clone, Debug)]
struct Seen {
    thread: ThreadId,
    fields: BTreeMap<&'static str, String>,
}

impl Seen {
    fn text(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }

    fn number(&self, field: &str) -> u64 {
        self.text(field).parse().unwrap_or_else(|_| panic!("{field} of {self:?}"))
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

static ALL: Mutex<Vec<Seen>> = Mutex::new(Vec::new());
/// The number of the yard of whose events the subscriber panics.
static PANICS: AtomicU64 = AtomicU64::new(0);

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pageyard"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let level = event.metadata().level().to_string();
        let fields = BTreeMap::from([("level of event", level)]);
        let mut seen = Seen { thread: thread::current().id(), fields };
        event.record(&mut seen);
        let panics = seen.text("yard") == PANICS.load(Relaxed).to_string();
        ALL.lock().unwrap().push(seen);
        assert!(!panics, "planted: the subscriber");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn subscribe() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| tracing::subscriber::set_global_default(Collector).unwrap());
}

fn events(message: &str, is: impl Fn(&Seen) -> bool) -> Vec<Seen> {
    let all = ALL.lock().unwrap();
    all.iter().filter(|e| e.text("message") == message && is(e)).cloned().collect()
}

/// A yard, and its number in events.
struct Watched {
    yard: &'static HostYard,
    number: String,
}

impl Watched {
    fn new(builder: Builder) -> Watched {
        subscribe();
        let yard = Box::leak(Box::new(builder.build().unwrap()));
        let here = thread::current().id();
        let made = events("yard made", |e| e.thread == here);
        Watched { yard, number: made.last().unwrap().text("yard").to_owned() }
    }

    fn events(&self, message: &str) -> Vec<Seen> {
        events(message, |e| e.text("yard") == self.number)
    }

    /// Returns the first such event; waits for up to a minute.
    fn wait(&self, message: &str, is: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(event) = self.events(message).into_iter().find(&is) {
                return event;
            }
            assert!(Instant::now() < end, "{message}: {:?}", self.yard.status());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn fill(&self, pages: u64) -> Vec<Block<'static>> {
        let one = |_| {
            let mut block = self.yard.alloc(Order::ZERO, QUIET).unwrap();
            block[0] = 1;
            block
        };
        (0..pages).map(one).collect()
    }

    /// All blocks that requests with these flags get.
    fn exhaust(&self, gfp: Gfp) -> Vec<Block<'static>> {
        std::iter::from_fn(|| self.yard.alloc(Order::ZERO, gfp).ok()).collect()
    }
}

fn builder(size: u64) -> Builder {
    Builder::new(size).huge_pages(HugePages::Never).system(SystemFiles::none()).publish(false)
}

#[test]
fn trace_of_a_yard_its_worker_and_its_limits() {
    let w = Watched::new(builder(32 * MIB).give_back(None));
    let made = w.wait("yard made", |_| true);
    assert_eq!((made.number("pages"), made.text("backing")), (8192, "Anonymous"));
    let began = w.wait("worker began", |_| true);
    assert_eq!(began.text("keeps"), "disabled");
    assert!(began.text("group").starts_with("Not("), "{began:?}");
    w.yard.set_limits(Limits { hard: Some(4096), soft: None }).unwrap();
    let set = w.wait("limits set", |_| true);
    assert_eq!((set.number("hard"), set.text("soft"), set.text("done")), (4096, "", "true"));
    assert_eq!(set.thread, thread::current().id());
}

#[test]
fn trace_of_returned_idle_memory() {
    let soon = GiveBack { after: Duration::from_millis(1), ..GiveBack::default() };
    let w = Watched::new(builder(64 * MIB).give_back(Some(soon)));
    drop(w.fill(10_000));
    let gone = w.wait("idle memory went back", |_| true);
    assert!(gone.number("pages") >= 512 && gone.number("resident") < 16_384, "{gone:?}");
    assert_ne!(gone.thread, thread::current().id());
    let done = || w.yard.status();
    let sum = || -> u64 {
        let all = w.events("idle memory went back");
        all.iter().map(|e| e.number("pages")).sum()
    };
    // The worker may return memory between the two reads.
    while done().given_back != sum() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn trace_of_returned_idle_memory_shows_what_is_left() {
    let soon = GiveBack { after: Duration::ZERO, rate: Some(64 * MIB), ..GiveBack::default() };
    let w = Watched::new(builder(64 * MIB).give_back(Some(soon)).tick(None));
    let mut worker = w.yard.worker().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    for n in 1..=2 {
        while w.events("idle memory went back").len() < n {
            assert!(Instant::now() < end, "{:?}", w.yard.status());
            thread::sleep(Duration::from_millis(5));
            worker.step();
        }
        let events = w.events("idle memory went back");
        let status = w.yard.status();
        let pages: u64 = events.iter().map(|e| e.number("pages")).sum();
        assert_eq!((events.len(), pages), (n, status.given_back));
        assert_eq!(events[n - 1].number("resident"), status.resident);
        assert_eq!(events[n - 1].number("target"), status.target);
    }
}

#[test]
fn trace_of_pressure_and_reclaim() {
    let w = Watched::new(builder(64 * MIB).soft_limit(16 * MIB).give_back(None));
    let blocks = Arc::new(Mutex::new(w.fill(6000)));
    let held = blocks.clone();
    let shrink = move |job: &pageyard::ReclaimJob| {
        let mut blocks = held.lock().unwrap();
        let keep = blocks.len().saturating_sub(job.pages as usize);
        blocks.split_off(keep).len() as u64
    };
    w.yard.register_shrinker(shrink).keep();
    let event = w.wait("pressure", |_| true);
    assert_eq!((event.text("level"), event.text("before")), ("moderate", "calm"));
    assert_eq!((event.text("causes"), event.number("soft")), ("[SoftLimit]", 4096));
    assert!(event.number("used") > 4096 && event.text("hard").is_empty());
    let reclaim = w.wait("reclaim", |e| e.number("freed") > 0);
    assert!(reclaim.number("wanted") > 0 && reclaim.text("node").is_empty(), "{reclaim:?}");
    assert_eq!(w.wait("pressure", |e| e.text("level") == "calm").text("level of event"), "INFO");
}

#[test]
fn a_panicking_subscriber_ends_neither_the_worker_nor_a_call() {
    let w = Watched::new(builder(32 * MIB).give_back(None));
    w.wait("worker began", |_| true);
    let blocks = w.fill(1000);
    PANICS.store(w.number.parse().unwrap(), Relaxed);
    w.yard.set_limits(Limits { hard: None, soft: Some(500) }).unwrap();
    w.wait("pressure", |e| e.text("level") == "moderate");
    PANICS.store(0, Relaxed);
    drop(blocks);
    w.wait("pressure", |e| e.text("level") == "calm");
    assert!(w.yard.status().worker);
}

#[test]
fn failed_requests_are_reported_together() {
    let w = Watched::new(builder(16 * MIB).give_back(None));
    let begun = Instant::now();
    let held = w.exhaust(Gfp::NOWAIT | Gfp::NOWARN);
    assert!(w.events("requests failed").is_empty(), "NOWARN requests emit no event");
    let flags = Gfp::NOWAIT & !Gfp::NOWARN;
    let order = Order::new(2).unwrap();
    let failed = (0..5000).filter(|_| w.yard.alloc(order, flags).is_err()).count() as u64;
    assert!(failed > 4000);
    let first = w.wait("requests failed", |_| true);
    assert_eq!((first.number("order"), first.text("level of event")), (2, "WARN"));
    assert_eq!(first.text("flags"), format!("{flags:?}"));
    let told = || w.events("requests failed").iter().map(|e| e.number("requests")).sum::<u64>();
    let end = Instant::now() + Duration::from_secs(60);
    while told() < failed {
        assert!(Instant::now() < end, "{} of {failed}", told());
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(told(), failed);
    let most = begun.elapsed().as_secs() + 2;
    assert!(w.events("requests failed").len() as u64 <= most, "at most one event per second");
    // While memory is short, thread caches keep nothing.
    let front = w.wait("thread cache", |e| e.text("pressed") == "true");
    assert!(front.number("presses") > 0);
    assert_eq!(
        w.wait("pressure", |e| e.text("level") == "critical").text("level of event"),
        "WARN"
    );
    drop(held);
}

#[test]
fn trace_of_direct_reclaim() {
    let w = Watched::new(builder(16 * MIB).give_back(None).tick(None));
    let blocks = Arc::new(Mutex::new(w.exhaust(Gfp::NOWAIT | Gfp::NOWARN)));
    let held = blocks.clone();
    let shrink = move |job: &pageyard::ReclaimJob| {
        let Ok(mut blocks) = held.try_lock() else { return 0 };
        let keep = blocks.len().saturating_sub(job.pages as usize);
        blocks.split_off(keep).len() as u64
    };
    w.yard.register_shrinker(shrink).keep();
    let more = w.fill(50);
    let mut worker = w.yard.worker().unwrap();
    worker.step();
    let freed = w.wait("requests reclaimed", |_| true).number("freed");
    assert_eq!(freed, w.yard.status().shrunk_directly);
    drop(more);
}

#[test]
fn trace_of_background_compaction() {
    let w = Watched::new(builder(64 * MIB).give_back(None).tick(None));
    let in_pieces = || {
        let take = || w.yard.alloc_movable(Order::ZERO, QUIET & !Gfp::RECLAIM).ok();
        let mut all: Vec<_> = std::iter::from_fn(take).collect();
        let mut n = 0;
        all.retain(|_| {
            n += 1;
            n % 8 == 0
        });
        w.yard.drain();
        all
    };
    // Compaction by a caller does not count as the worker's.
    let first = in_pieces();
    w.yard.compact();
    let before = w.yard.status().moved;
    assert!(before > 0);
    drop(first);
    let _second = in_pieces();
    let mut worker = w.yard.worker().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let moved = || -> u64 { w.events("compaction").iter().map(|e| e.number("moved")).sum() };
    // The worker checks fragmentation every half a second.
    while moved() == 0 {
        assert!(Instant::now() < end, "{:?}", w.yard.status());
        thread::sleep(Duration::from_millis(5));
        worker.step();
    }
    assert_eq!(moved(), w.yard.status().moved - before);
    assert_eq!(w.events("compaction")[0].number("node"), 0);
}

#[test]
fn trace_of_system_pressure() {
    let group = Group::new();
    group.uses(990_000);
    let w = Watched::new(builder(16 * MIB).system(group.files()));
    let _some = w.fill(100);
    let event = w.wait("pressure", |_| true);
    assert_eq!((event.text("level"), event.text("causes")), ("critical", "[Group]"));
    w.wait("threads and CPUs drained", |e| e.text("level") == "critical");
    assert_eq!(w.yard.pressure(), Level::Critical);
}

#[test]
fn trace_of_a_memory_fallback() {
    subscribe();
    // More than any machine has; none of it is touched.
    let wanted = Backing::HugeTlb(HugeSize::G1);
    let region = Builder::new(1 << 42).backing(wanted).fallback(true).region().unwrap();
    assert_eq!(region.backing(), Backing::Memfd);
    let here = thread::current().id();
    let event = events("fallback", |e| e.thread == here).pop().unwrap();
    assert_eq!((event.text("option"), event.text("wanted")), ("backing", "HugeTlb(G1)"));
    assert!(event.text("why").contains("huge pages of 1 GiB"), "{event:?}");
}
