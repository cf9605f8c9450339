//! Tracepoints of compaction and reclaim in the kernel's format.

use pageyard_trace::compaction::{Deferral, Isolated, STATUSES, Scanners, Wake, Wanted};
use pageyard_trace::{Attachments, Compaction, Options, Position, Record, TextWriter};

use crate::common::{error, pgy, read};

/// One line for every tracepoint, in the formats that 6.12 stores in a `trace.dat`.
const LINES: [&str; 20] = [
    "mm_compaction_try_to_compact_pages: order=9 gfp_mask=0x3d24ca priority=1",
    "mm_compaction_begin: zone_start=0x0 migrate_pfn=0x200 free_pfn=0x7e00 zone_end=0x8000, mode=sync",
    "mm_compaction_end: zone_start=0x0 migrate_pfn=0x400 free_pfn=0x7c00 zone_end=0x8000, mode=async status=success",
    "mm_compaction_isolate_migratepages: range=(0x200 ~ 0x400) nr_scanned=512 nr_taken=32",
    "mm_compaction_isolate_freepages: range=(0x7e00 ~ 0x7e40) nr_scanned=64 nr_taken=33",
    "mm_compaction_fast_isolate_freepages: range=(0x7e00 ~ 0x7e40) nr_scanned=1 nr_taken=0",
    "mm_compaction_migratepages: nr_migrated=30 nr_failed=2",
    "mm_compaction_finished: node=0 zone=Normal   order=-1 ret=continue",
    "mm_compaction_suitable: node=1 zone=DMA32    order=9 ret=not_suitable_zone",
    "mm_compaction_deferred: node=0 zone=Normal   order=9 order_failed=9 consider=1 limit=64",
    "mm_compaction_defer_compaction: node=0 zone=Movable  order=9 order_failed=9 consider=0 limit=2",
    "mm_compaction_defer_reset: node=0 zone=DMA      order=10 order_failed=11 consider=0 limit=1",
    "mm_compaction_kcompactd_sleep: nid=3",
    "mm_compaction_wakeup_kcompactd: nid=0 order=9 classzone_idx=Normal  ",
    "mm_compaction_kcompactd_wake: nid=0 order=9 classzone_idx=Movable ",
    "mm_vmscan_kswapd_sleep: nid=1",
    "mm_vmscan_kswapd_wake: nid=0 order=3",
    "mm_vmscan_wakeup_kswapd: nid=0 order=0 gfp_flags=0xcc0",
    "mm_vmscan_direct_reclaim_begin: order=9 gfp_flags=0x3d24ca",
    "mm_vmscan_direct_reclaim_end: nr_reclaimed=54",
];

fn expected() -> [Compaction; 20] {
    let scanners =
        Scanners { zone_start: 0, migrate: 0x200, free: 0x7e00, zone_end: 0x8000, sync: true };
    let end = Scanners { migrate: 0x400, free: 0x7c00, sync: false, ..scanners };
    let wanted = |node, zone, order| Wanted { node, zone, order };
    let deferral = |zone, order, order_failed, considered, limit| Deferral {
        wanted: wanted(0, zone, Some(order)),
        order_failed,
        considered,
        limit,
    };
    let wake = |highest| Wake { node: 0, order: Some(9), highest };
    [
        Compaction::TryToCompactPages { order: Some(9), gfp: 0x3d24ca, priority: 1 },
        Compaction::Begin(scanners),
        Compaction::End { scanners: end, status: 8 },
        Compaction::IsolateMigratepages(Isolated {
            start: 0x200,
            end: 0x400,
            scanned: 512,
            taken: 32,
        }),
        Compaction::IsolateFreepages(Isolated {
            start: 0x7e00,
            end: 0x7e40,
            scanned: 64,
            taken: 33,
        }),
        Compaction::FastIsolateFreepages(Isolated {
            start: 0x7e00,
            end: 0x7e40,
            scanned: 1,
            taken: 0,
        }),
        Compaction::Migratepages { migrated: 30, failed: 2 },
        Compaction::Finished { wanted: wanted(0, 2, None), status: 4 },
        Compaction::Suitable { wanted: wanted(1, 1, Some(9)), status: 0 },
        Compaction::Deferred(deferral(2, 9, 9, 1, 64)),
        Compaction::DeferCompaction(deferral(3, 9, 9, 0, 2)),
        Compaction::DeferReset(deferral(0, 10, 11, 0, 1)),
        Compaction::KcompactdSleep { node: 3 },
        Compaction::WakeupKcompactd(wake(2)),
        Compaction::KcompactdWake(wake(3)),
        Compaction::KswapdSleep { node: 1 },
        Compaction::KswapdWake { node: 0, order: Some(3) },
        Compaction::WakeupKswapd { node: 0, order: Some(0), gfp: 0xcc0 },
        Compaction::DirectReclaimBegin { order: Some(9), gfp: 0x3d24ca },
        Compaction::DirectReclaimEnd { reclaimed: 54 },
    ]
}

fn text(lines: &[&str]) -> String {
    lines.iter().map(|line| format!(" kcompactd0-38 [001] 2.000001: {line}\n")).collect()
}

#[test]
fn every_tracepoint_survives_a_round_trip() {
    let (records, reader) = read(text(&LINES).as_bytes(), Options::default()).unwrap();
    let whats: Vec<_> = records
        .iter()
        .map(|r| match r {
            Record::Compaction { t_ns: 2_000_001_000, cpu: 1, what, .. } => **what,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(whats, expected());
    assert_eq!(reader.summary().compaction.total(), 20);
    assert_eq!(reader.summary().compaction.reclaim(), 5);
    let reclaim = whats.iter().map(Compaction::is_reclaim);
    assert!(reclaim.eq((0..20).map(|i| i >= 15)));
    assert_eq!(reader.summary().compaction.iter().map(|(_, n)| n).max(), Some(1));
    assert_eq!((reader.summary().kinds.total(), reader.summary().ignored.total()), (0, 0));

    let mut writer = TextWriter::new(Vec::new(), None).unwrap();
    records.iter().for_each(|r| writer.write(reader.tasks(), r).unwrap());
    let written = String::from_utf8(writer.finish().unwrap()).unwrap();
    for (line, wanted) in written.lines().zip(LINES) {
        let (name, fields) = wanted.split_once(": ").unwrap();
        let name = format!("{name}:");
        let head = "      kcompactd0-38    [001]     2.000001000: ";
        assert_eq!(line, format!("{head}{name:<21} {fields}"));
    }
    let packed = pgy(&records, reader.tasks(), &Attachments::new());
    let (again, from_pgy) = read(&packed, Options::default()).unwrap();
    assert_eq!(again, records);
    assert_eq!(from_pgy.tasks(), reader.tasks());
}

#[test]
fn statuses_are_the_kernels_words() {
    for (number, word) in STATUSES.iter().enumerate() {
        let line = format!("mm_compaction_suitable: node=0 zone=Normal   order=3 ret={word}");
        let (records, _) = read(text(&[&line]).as_bytes(), Options::default()).unwrap();
        let Record::Compaction { what, .. } = &records[0] else { panic!() };
        assert!(
            matches!(**what, Compaction::Suitable { status, .. } if usize::from(status) == number)
        );
    }
}

#[test]
fn faults_name_the_line_and_the_field() {
    for (line, expected) in [
        ("mm_compaction_kcompactd_sleep: ", "no field `nid`"),
        ("mm_compaction_kcompactd_sleep: nid=x", "`nid` has the value `x`"),
        ("mm_compaction_kcompactd_sleep: nid=65536", "`nid` is 65536"),
        ("mm_vmscan_kswapd_wake: nid=0", "no field `order`"),
        ("mm_vmscan_direct_reclaim_end: nr_reclaimed=-1", "`nr_reclaimed` has the value `-1`"),
        ("mm_compaction_migratepages: nr_migrated=30", "no field `nr_failed`"),
        (
            "mm_compaction_isolate_freepages: range=(0x1) nr_scanned=1 nr_taken=1",
            "no field `range`",
        ),
        ("mm_compaction_isolate_freepages: range=(0x1 ~ 0x2) nr_taken=1", "no field `nr_scanned`"),
        (
            "mm_compaction_suitable: node=0 zone=High order=1 ret=success",
            "`zone` has the unknown value `High`",
        ),
        ("mm_compaction_suitable: node=0 zone=DMA order=11 ret=success", "`order` is 11"),
        ("mm_compaction_suitable: node=0 zone=DMA order=-2 ret=success", "`order` has the value"),
        ("mm_compaction_suitable: node=0 zone=DMA order=1 ret=", "`ret` has the unknown value ``"),
        (
            "mm_compaction_try_to_compact_pages: order=1 gfp_mask=GFP_X priority=1",
            "unknown request flag `GFP_X`",
        ),
        ("mm_compaction_try_to_compact_pages: order=1 gfp_mask=0x1 priority=3", "`priority` is 3"),
        (
            "mm_compaction_begin: zone_start=0x0 migrate_pfn=0x10000000000000 free_pfn=0x0 zone_end=0x0, mode=sync",
            "`migrate_pfn` is",
        ),
    ] {
        let text = text(&[LINES[0], line, LINES[1]]);
        let error = error(text.as_bytes());
        assert_eq!(error.position, Position::Line(2), "{line}: {error}");
        assert!(error.to_string().contains(expected), "{line}: {error}");
        let (records, reader) = read(text.as_bytes(), Options::lenient()).unwrap();
        assert_eq!((records.len(), reader.summary().malformed.count), (2, 1), "{line}");
    }
}

#[test]
fn impossible_values_are_not_written() {
    let (records, reader) = read(text(&LINES).as_bytes(), Options::default()).unwrap();
    let Record::Compaction { t_ns, cpu, task, .. } = records[0] else { panic!() };
    for what in [
        Compaction::TryToCompactPages { order: Some(11), gfp: 0, priority: 0 },
        Compaction::Suitable { wanted: Wanted { node: 0, zone: 5, order: None }, status: 0 },
        Compaction::Finished { wanted: Wanted { node: 0, zone: 0, order: None }, status: 9 },
    ] {
        let record = Record::Compaction { t_ns, cpu, task, what: Box::new(what) };
        let mut writer = TextWriter::new(Vec::new(), None).unwrap();
        assert!(writer.write(reader.tasks(), &record).is_err());
        let mut writer = pageyard_trace::TraceWriter::new(Vec::new(), Default::default()).unwrap();
        assert!(writer.write(reader.tasks(), &record).is_err());
    }
}

#[test]
fn other_tracepoints_of_compaction_are_counted_by_name() {
    let text = text(&["mm_compaction_new: x=1"]);
    let (_, reader) = read(text.as_bytes(), Options::default()).unwrap();
    assert_eq!(reader.summary().ignored.total(), 1);
}
