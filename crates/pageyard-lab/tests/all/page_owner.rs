//! Spec §9.7: the owners of pages at the end of a replayed trace.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use pageyard_lab::owner::By;
use pageyard_lab::replay::{Input, MachineOptions, Options, Owners, by_name, owners};
use pageyard_trace::{Kind, Record, TraceReader};

use crate::sample;

fn options(policies: &[&str]) -> Options {
    Options {
        policies: policies.iter().map(|p| by_name(p).unwrap()).collect(),
        ..Options::default()
    }
}

fn small(text: &str) -> Owners {
    let machine =
        MachineOptions { memory: Some(64 << 20), cpus: Some(1), ..MachineOptions::default() };
    let options = Options { machine, ..options(&["Linux612"]) };
    let text = Cursor::new(text.as_bytes().to_vec());
    let input = Input::Stream("test".into(), Box::new(text));
    owners(input, &options, &mut |_, _, _| {}).unwrap()
}

fn of_sample(policies: &[&str]) -> Owners {
    owners(Input::Path(sample("kbuild.pgy")), &options(policies), &mut |_, _, _| {}).unwrap()
}

/// One request is freed completely, one in part; the page of another left its list without an
/// event, and a frame gets a new owner.
const SMALL: &str = "\
cc1-12 [000] 10.000001: mm_page_alloc_zone_locked: page=0x1 pfn=0x2000 order=0 migratetype=1 percpu_refill=1
cc1-12 [000] 10.000002: mm_page_alloc_zone_locked: page=0x1 pfn=0x2001 order=0 migratetype=1 percpu_refill=1
cc1-12 [000] 10.000003: mm_page_alloc_zone_locked: page=0x1 pfn=0x2002 order=0 migratetype=1 percpu_refill=1
cc1-12 [000] 10.000004: mm_page_alloc: page=0x1 pfn=0x2000 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
a name of sixteen-9 [000] 10.000005: mm_page_alloc: page=0x1 pfn=0x2002 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
make-7 [000] 10.000006: mm_page_alloc: page=0x1 pfn=0x2010 order=2 migratetype=0 gfp_flags=GFP_KERNEL|__GFP_ZERO
cc1-12 [000] 10.000007: mm_page_free: page=0x1 pfn=0x2000 order=0
make-7 [000] 10.000008: mm_page_alloc: page=0x1 pfn=0x2000 order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE
make-7 [000] 10.000009: mm_page_free: page=0x1 pfn=0x2012 order=1
sh-8 [000] 10.000010: mm_page_free: page=0x1 pfn=0x2030 order=0
sh-8 [000] 10.000011: mm_page_alloc: page=0x1 pfn=0x2800 order=4 migratetype=0 gfp_flags=GFP_KERNEL
sh-8 [000] 10.000012: mm_page_free: page=0x1 pfn=0x2800 order=4
";

/// The lines of each block, without the address that the policy chose.
fn requests(owners: &Owners) -> Vec<String> {
    let text = owners.to_string();
    assert!(text.ends_with("\n\n"));
    let mut all: Vec<_> =
        text.split_terminator("\n\n").map(|b| b.lines().next().unwrap().to_owned()).collect();
    all.sort();
    all
}

#[test]
fn s9_7_unfreed_requests_are_owners() {
    let owners = small(SMALL);
    let mask = "mask 0x100cca(GFP_HIGHUSER_MOVABLE)";
    assert_eq!(
        requests(&owners),
        [
            format!("Page allocated via order 0, {mask}, pid 7, tgid 0 (make), ts 10000008000 ns"),
            format!(
                "Page allocated via order 0, {mask}, pid 9, tgid 0 (a name of sixte), ts \
                 10000005000 ns"
            ),
            "Page allocated via order 1, mask 0xdc0(GFP_KERNEL|__GFP_ZERO), pid 7, tgid 0 (make), \
             ts 10000006000 ns"
                .to_owned(),
        ]
    );
    // The page that was allocated without an event is in use and has no owner.
    assert_eq!((owners.pages(), owners.in_use), (4, 5));
    let notes = owners.notes();
    assert!(notes[0].starts_with("1 of 5 pages in use have no record"), "{notes:?}");
    assert!(notes.iter().any(|n| n.contains("processes (tgid 0 here)")), "{notes:?}");
    assert!(!notes.iter().any(|n| n.contains("the same task")), "{notes:?}");
    assert_eq!(
        owners.summary(By::Task),
        "test at its end under Linux612: 3 blocks and 4 pages with a recorded request, by task\n\
         2 times, 3 pages: make (pid 7)\n\
         1 times, 1 pages: a name of sixte (pid 9)\n"
    );
}

#[test]
fn a_single_task_trace_is_noted() {
    let text = "hygiene-1 [000] 1.000001: mm_page_alloc: page=0x1 pfn=0x2010 order=2 migratetype=0 \
                gfp_flags=GFP_KERNEL\n";
    let notes = small(text).notes();
    assert!(notes[1].contains("the same task, hygiene (pid 1)"), "{notes:?}");
}

#[test]
fn owners_as_json() {
    let owners = small(SMALL);
    let v = owners.json(None);
    let blocks = v["owners"].as_array().unwrap();
    assert_eq!((blocks.len(), &v["blocks"], &v["pages_in_use"]), (3, &3.into(), &5.into()));
    let of_make = blocks.iter().find(|b| b["order"] == 1).unwrap();
    assert_eq!((&of_make["comm"], &of_make["pid"]), (&"make".into(), &7.into()));
    assert_eq!(of_make["gfp_names"], "GFP_KERNEL|__GFP_ZERO");
    assert!(of_make["tgid"].is_null(), "not recorded");
    let groups = &owners.json(Some(By::Task))["groups"];
    assert_eq!(groups[0], serde_json::json!({ "task": "make (pid 7)", "blocks": 2, "pages": 3 }));
}

/// The owner of each frame in use, from the events alone: the last request for the frame that was
/// not freed since. Pages by task and time.
fn by_hand(path: &Path) -> BTreeMap<(u32, u64), u64> {
    let mut reader = TraceReader::open(path, pageyard_trace::Options::default()).unwrap();
    let mut frames: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
    let mut records = Vec::new();
    while reader.next_chunk(&mut records).unwrap() {
        for record in &records {
            let Record::Event(e) = record else { continue };
            match e.kind {
                Kind::Alloc { pfn: Some(pfn), order, .. } => {
                    let who = (reader.tasks()[e.task].pid, e.t_ns);
                    frames.extend((pfn..pfn + (1 << order)).map(|f| (f, who)));
                }
                Kind::Free { pfn, order } => {
                    (pfn..pfn + (1 << order)).for_each(|f| {
                        frames.remove(&f);
                    });
                }
                _ => {}
            }
        }
    }
    let mut sums = BTreeMap::new();
    frames.into_values().for_each(|who| *sums.entry(who).or_default() += 1);
    sums
}

/// Under every policy the same requests are open; only the addresses depend on the policy.
#[test]
fn s9_7_owners_of_a_recorded_build_match_its_events() {
    let expected = by_hand(&sample("kbuild.pgy"));
    let mut texts = Vec::new();
    for policy in ["Linux612", "Base"] {
        let owners = of_sample(&[policy]);
        assert_eq!(owners.policy, policy);
        let mut got = BTreeMap::new();
        for h in &owners.holders {
            let who = (h.owner.task.pid, h.owner.since);
            *got.entry(who).or_default() += u64::from(h.owner.order.pages());
        }
        assert!(got == expected, "{policy}");
        assert!(owners.in_use > owners.pages());
        assert!(owners.holders.is_sorted_by(|a, b| a.owner.pfn < b.owner.pfn));
        texts.push(owners.to_string());
    }
    assert_ne!(texts[0], texts[1]);
}

/// The result when this was written; the recording cannot change.
const BY_NAME: &str = "\
6914 times, 6967 pages: cc1
2460 times, 2660 pages: cp
734 times, 772 pages: as
526 times, 527 pages: ld
362 times, 376 pages: gcc
186 times, 186 pages: snap
165 times, 165 pages: ranlib
139 times, 139 pages: collect2
102 times, 112 pages: ar
100 times, 103 pages: date
70 times, 73 pages: make
22 times, 71 pages: kworker/u16:1
10 times, 45 pages: kworker/u16:2
42 times, 42 pages: sed
35 times, 35 pages: mv
33 times, 33 pages: run.sh
31 times, 31 pages: sh
12 times, 20 pages: cat
12 times, 12 pages: nm
12 times, 12 pages: tee
10 times, 10 pages: configure
10 times, 10 pages: dirname
3 times, 3 pages: rm
1 times, 2 pages: cut
";

#[test]
fn s9_7_owners_of_a_recorded_build_in_the_kernels_format() {
    let owners = of_sample(&[]);
    assert_eq!(owners.policy, "Linux612", "the policy of the recording kernel");
    let summary = owners.summary(By::Name);
    let (_, groups) = summary.split_once('\n').unwrap();
    assert_eq!(groups, BY_NAME);
    let first = "\
Page allocated via order 0, mask 0x52cd0(GFP_KERNEL|__GFP_RECLAIMABLE|__GFP_NOWARN|__GFP_NORETRY|\
__GFP_COMP), pid 230, tgid 0 (snap), ts 25675137578 ns
PFN 0x1490 type Reclaimable Block 10 type Reclaimable Flags 0x0(node=0|zone=1)

";
    let text = owners.to_string();
    assert!(text.starts_with(first), "{}", &text[..400]);
    assert_eq!(text.lines().count(), 3 * owners.holders.len());
}
