//! Any trace survives a round trip through `.pgy` and text.

use pageyard_trace::compaction::{Deferral, Isolated, STATUSES, Scanners, Wake, Wanted, ZONES};
use pageyard_trace::{Attachments, Compaction, Event, Kind, Options, Record, Tasks, TextWriter};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::common::{TEXT, pgy, read};

fn frame() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..1000, 1u64..=pageyard_trace::MAX_PFN]
}

fn kind() -> impl Strategy<Value = Kind> {
    let (order, mt) = (|| 0u8..=10, || 0u8..=7);
    prop_oneof![
        (proptest::option::of(frame()), order(), mt(), any::<u32>()).prop_map(
            |(pfn, order, migratetype, gfp)| Kind::Alloc { pfn, order, migratetype, gfp }
        ),
        (frame(), order()).prop_map(|(pfn, order)| Kind::Free { pfn, order }),
        frame().prop_map(|pfn| Kind::FreeBatched { pfn }),
        (proptest::option::of(frame()), order(), mt(), any::<bool>()).prop_map(
            |(pfn, order, migratetype, refill)| Kind::ZoneLocked {
                pfn,
                order,
                migratetype,
                refill
            }
        ),
        (frame(), order(), mt()).prop_map(|(pfn, order, migratetype)| Kind::Drain {
            pfn,
            order,
            migratetype
        }),
        (frame(), order(), order(), mt(), mt(), any::<bool>()).prop_map(
            |(pfn, alloc_order, fallback_order, alloc_type, fallback_type, change_ownership)| {
                Kind::ExtFrag {
                    pfn,
                    alloc_order,
                    fallback_order,
                    alloc_type,
                    fallback_type,
                    change_ownership,
                }
            }
        ),
    ]
}

fn place() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), frame()]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let order = proptest::option::of(0u8..=10);
    (any::<u16>(), 0..ZONES.len() as u8, order).prop_map(|(node, zone, order)| Wanted {
        node,
        zone,
        order,
    })
}

fn scanners() -> impl Strategy<Value = Scanners> {
    (place(), place(), place(), place(), any::<bool>()).prop_map(
        |(zone_start, migrate, free, zone_end, sync)| Scanners {
            zone_start,
            migrate,
            free,
            zone_end,
            sync,
        },
    )
}

fn isolated() -> impl Strategy<Value = Isolated> {
    (place(), place(), any::<u64>(), any::<u64>())
        .prop_map(|(start, end, scanned, taken)| Isolated { start, end, scanned, taken })
}

fn deferral() -> impl Strategy<Value = Deferral> {
    (wanted(), 0u8..=11, any::<u64>(), any::<u64>()).prop_map(
        |(wanted, order_failed, considered, limit)| Deferral {
            wanted,
            order_failed,
            considered,
            limit,
        },
    )
}

fn wake() -> impl Strategy<Value = Wake> {
    wanted().prop_map(|Wanted { node, zone, order }| Wake { node, order, highest: zone })
}

/// Every tracepoint of compaction and reclaim, with any value of its fields.
fn compaction() -> impl Strategy<Value = Compaction> {
    use Compaction as C;
    let status = || 0..STATUSES.len() as u8;
    let order = || proptest::option::of(0u8..=10);
    prop_oneof![
        (proptest::option::of(0u8..=10), any::<u32>(), 0u8..=2)
            .prop_map(|(order, gfp, priority)| C::TryToCompactPages { order, gfp, priority }),
        scanners().prop_map(C::Begin),
        (scanners(), status()).prop_map(|(scanners, status)| C::End { scanners, status }),
        isolated().prop_map(C::IsolateMigratepages),
        isolated().prop_map(C::IsolateFreepages),
        isolated().prop_map(C::FastIsolateFreepages),
        (any::<u64>(), any::<u64>())
            .prop_map(|(migrated, failed)| C::Migratepages { migrated, failed }),
        (wanted(), status()).prop_map(|(wanted, status)| C::Finished { wanted, status }),
        (wanted(), status()).prop_map(|(wanted, status)| C::Suitable { wanted, status }),
        deferral().prop_map(C::Deferred),
        deferral().prop_map(C::DeferCompaction),
        deferral().prop_map(C::DeferReset),
        any::<u16>().prop_map(|node| C::KcompactdSleep { node }),
        wake().prop_map(C::WakeupKcompactd),
        wake().prop_map(C::KcompactdWake),
        any::<u16>().prop_map(|node| C::KswapdSleep { node }),
        (any::<u16>(), order()).prop_map(|(node, order)| C::KswapdWake { node, order }),
        (any::<u16>(), order(), any::<u32>()).prop_map(|(node, order, gfp)| C::WakeupKswapd {
            node,
            order,
            gfp
        }),
        (order(), any::<u32>()).prop_map(|(order, gfp)| C::DirectReclaimBegin { order, gfp }),
        any::<u64>().prop_map(|reclaimed| C::DirectReclaimEnd { reclaimed }),
    ]
}

/// A number for every generated tracepoint. A new tracepoint does not compile until it is listed
/// here; the test below then fails until it is generated.
fn number(c: &Compaction) -> usize {
    use Compaction as C;
    match c {
        C::TryToCompactPages { .. } => 0,
        C::Begin(_) => 1,
        C::End { .. } => 2,
        C::IsolateMigratepages(_) => 3,
        C::IsolateFreepages(_) => 4,
        C::FastIsolateFreepages(_) => 5,
        C::Migratepages { .. } => 6,
        C::Finished { .. } => 7,
        C::Suitable { .. } => 8,
        C::Deferred(_) => 9,
        C::DeferCompaction(_) => 10,
        C::DeferReset(_) => 11,
        C::KcompactdSleep { .. } => 12,
        C::WakeupKcompactd(_) => 13,
        C::KcompactdWake(_) => 14,
        C::KswapdSleep { .. } => 15,
        C::KswapdWake { .. } => 16,
        C::WakeupKswapd { .. } => 17,
        C::DirectReclaimBegin { .. } => 18,
        C::DirectReclaimEnd { .. } => 19,
    }
}

#[test]
fn every_tracepoint_of_compaction_and_reclaim_is_generated() {
    let mut runner = TestRunner::deterministic();
    let mut seen = [0; 20];
    for _ in 0..2000 {
        seen[number(&compaction().new_tree(&mut runner).unwrap().current())] += 1;
    }
    assert!(seen.iter().all(|&n| n > 30), "{seen:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Event(u16, u32, String, Kind),
    Compaction(u16, u32, String, Compaction),
    Mark(u16, String),
}

fn trace() -> impl Strategy<Value = (Vec<Record>, Tasks)> {
    let cpu = || prop_oneof![0u16..4, 0u16..4096];
    // Up to the kernel's maximum length, without leading blanks, which text cannot represent.
    let comm = "[!-~][ -~]{0,14}";
    let step = prop_oneof![
        9 => (cpu(), 0u32..5, comm, kind()).prop_map(|(c, p, n, k)| Step::Event(c, p, n, k)),
        9 => (cpu(), 0u32..5, comm, compaction())
            .prop_map(|(c, p, n, w)| Step::Compaction(c, p, n, w)),
        2 => (cpu(), "[ -~é]{0,30}").prop_map(|(c, t)| Step::Mark(c, t)),
    ];
    let gap = prop_oneof![0u64..2_000_000, 0u64..10_000_000_000];
    vec((gap, step), 0..200).prop_map(|steps| {
        let mut tasks = Tasks::new();
        let mut t = 1_000_000_000;
        let record = |(gap, step)| {
            // Up to half a millisecond backwards.
            t = t + gap - 500_000;
            match step {
                Step::Event(cpu, pid, comm, kind) => {
                    let task = tasks.intern(pid, &comm);
                    Record::Event(Event { t_ns: t, cpu, task, kind })
                }
                Step::Compaction(cpu, pid, comm, what) => {
                    let task = tasks.intern(pid, &comm);
                    Record::Compaction { t_ns: t, cpu, task, what: Box::new(what) }
                }
                Step::Mark(cpu, text) => Record::Mark { t_ns: t, cpu, text },
            }
        };
        (steps.into_iter().map(record).collect(), tasks)
    })
}

proptest! {
    #[test]
    fn through_pgy((records, tasks) in trace()) {
        let bytes = pgy(&records, &tasks, &Attachments::new());
        let (got, reader) = read(&bytes, Options::default()).unwrap();
        prop_assert_eq!(got, records);
        prop_assert_eq!(reader.tasks(), &tasks);
    }

    #[test]
    fn through_text((records, tasks) in trace(), names in any::<bool>()) {
        let mut writer = TextWriter::new(Vec::new(), Some(3)).unwrap().gfp_names(names);
        for record in &records {
            writer.write(&tasks, record).unwrap();
        }
        let text = writer.finish().unwrap();
        let (got, reader) = read(&text, Options::default()).unwrap();
        prop_assert_eq!(got, records);
        prop_assert_eq!(reader.tasks(), &tasks);
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, Options::lenient());
        let _ = read(&bytes, Options::default());
    }

    #[test]
    fn any_damage_to_text_is_read_without_panic(
        cuts in vec((0usize..TEXT.len(), any::<u8>()), 1..10)
    ) {
        let mut bytes = TEXT.as_bytes().to_vec();
        for (at, byte) in cuts {
            bytes[at] = byte;
        }
        let _ = read(&bytes, Options::default());
        let (_, reader) = read(&bytes, Options::lenient()).unwrap();
        let _ = reader.summary();
    }
}
