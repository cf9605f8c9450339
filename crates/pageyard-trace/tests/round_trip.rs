//! Any trace survives `.pgy` and text.

mod common;

use common::{pgy, read};
use pageyard_trace::{Attachments, Event, Kind, Options, Record, Tasks, TextWriter};
use proptest::collection::vec;
use proptest::prelude::*;

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

#[derive(Clone, Debug)]
enum Step {
    Event(u16, u32, String, Kind),
    Mark(u16, String),
}

fn trace() -> impl Strategy<Value = (Vec<Record>, Tasks)> {
    let cpu = || prop_oneof![0u16..4, 0u16..4096];
    // As long as the kernel allows, without leading blanks, which text cannot carry.
    let comm = "[!-~][ -~]{0,14}";
    let step = prop_oneof![
        9 => (cpu(), 0u32..5, comm, kind()).prop_map(|(c, p, n, k)| Step::Event(c, p, n, k)),
        1 => (cpu(), "[ -~é]{0,30}").prop_map(|(c, t)| Step::Mark(c, t)),
    ];
    let gap = prop_oneof![0u64..2_000_000, 0u64..10_000_000_000];
    vec((gap, step), 0..200).prop_map(|steps| {
        let mut tasks = Tasks::new();
        let mut t = 1_000_000_000;
        let record = |(gap, step)| {
            // Up to half a millisecond back.
            t = t + gap - 500_000;
            match step {
                Step::Event(cpu, pid, comm, kind) => {
                    let task = tasks.intern(pid, &comm);
                    Record::Event(Event { t_ns: t, cpu, task, kind })
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
        cuts in vec((0usize..common::TEXT.len(), any::<u8>()), 1..10)
    ) {
        let mut bytes = common::TEXT.as_bytes().to_vec();
        for (at, byte) in cuts {
            bytes[at] = byte;
        }
        let _ = read(&bytes, Options::default());
        let (_, reader) = read(&bytes, Options::lenient()).unwrap();
        let _ = reader.summary();
    }
}
