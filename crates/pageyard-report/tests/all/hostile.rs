//! Calls every public function of the crate with invalid and extreme arguments: the extremes of all
//! numbers, records of frames that the yard does not have, impossible counters. None panics, no
//! number overflows, and the yard is unchanged.
//!
//! The functions are in `verify/calls/report/table.rs`; `scripts/no-panic.sh` checks their machine code.

use std::path::Path;

use crate::common;
use common::{Lock, Y, all_records};
use pageyard::policy::Linux612;
use pageyard::tuning::Tuning;
use pageyard::{BlockCounts, CpuStats};
use pageyard_report::OwnerRecord;

#[path = "../../../pageyard/tests/all/common/calls.rs"]
#[macro_use]
mod calls;
#[path = "../../../pageyard/tests/all/common/public.rs"]
mod public;

use calls::{Hostile, WIDTH, is_called, leak, machine};
use public::{functions, functions_under};

/// A row: a function's name, and code that calls it with each of its arguments.
type Row = (&'static str, fn(&Y<'_, Linux612>, &mut dyn FnMut()));

include!("../../../../verify/calls/report/table.rs");

fn owners() -> Vec<PageOwner<'static>> {
    let some = || -> &'static [OwnerRecord] { leak(<[OwnerRecord; 9]>::default()) };
    let none = PageOwner::new(Pfn(0), &[]);
    vec![none, PageOwner::new(Pfn(u64::MAX), some()), PageOwner::new(Pfn(4), some())]
}

/// Counters and tunings at their extremes.
fn samples() -> Vec<&'static [CpuSample]> {
    let of = |n: u64| {
        let stats = CpuStats {
            allocs: BlockCounts([[n; 6]; 11]),
            refills: n,
            refilled_pages: n,
            drains: [n; 5],
            ..CpuStats::default()
        };
        CpuSample { stats, tuning: Tuning { high: n as i32, count: n as i32, ..Tuning::default() } }
    };
    vec![&[], leak([CpuSample::default(); 70]), leak([of(1), of(1 << 40), of(7)])]
}

fn reports() -> Vec<ZoneReport<'static>> {
    [0, u64::MAX, 7, 1 << 62]
        .map(|n| ZoneReport {
            node: NodeId(n as u16),
            free: n,
            boost: n,
            marks: [n; 3],
            present: n,
            managed: n,
            free_pcp: n,
            local_pcp: n,
            ..REPORT
        })
        .into()
}

fn zone_texts() -> Vec<ZoneText<'static>> {
    [0, u64::MAX, 7]
        .map(|n| ZoneText {
            free: n,
            boost: n,
            marks: [n; 3],
            spanned: n,
            start: Pfn(n),
            protection: &[],
            ..ZONE_TEXT
        })
        .into()
}

hostile! {
    HighChange: [HIGH, HighChange { from: i32::MIN, to: i32::MAX, count: -1, refills: u64::MAX, ..HIGH }];
    PageOwner<'static>: owners();
    ZoneReport<'static>: reports();
    ZoneText<'static>: zone_texts();
    &'static mut Paper: [leak(Paper)];
    &'static [CpuSample]: samples();
    &'static [(&'static str, u64)]: [&[][..], leak([("%n", u64::MAX); 70])];
    &'static [&'static str]: [&[][..], leak([""; 70])];
    &'static [FreeCount]: [&[][..], leak([FreeCount { blocks: u64::MAX, at_least: true }; 70])];
    &'static [BlockSupply]: [&[][..], leak([BlockSupply { blocks: u64::MAX, ..BlockSupply::default() }; 11])];
    &'static Mutex<Lock, Ring<3>>: [&*leak(Mutex::new(Ring::new()))];
    &'static Ring<3>: [&*leak(Ring::new())];
    &'static mut Ring<3>: [leak(Ring::new())];
}

fn call_all(cpu: u32) {
    machine().run_on(common::Stage::default(), |y: &Y<'_, Linux612>| {
        y.hooks().on(cpu);
        let before = all_records(y);
        for (name, row) in ROWS {
            println!("{name}, CPU {cpu}");
            row(y, &mut || {});
        }
        assert_eq!(all_records(y), before);
        y.validate().unwrap();
    });
}

#[test]
fn extreme_arguments_do_not_panic() {
    call_all(0);
}

#[test]
fn extreme_arguments_do_not_panic_on_an_unknown_cpu() {
    call_all(u32::MAX);
}

#[test]
fn every_public_function_has_a_row() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut declared = functions_under(&package.join("src"));
    assert!(declared.len() > 30, "{}: the form of the sources has changed", declared.len());
    let table =
        std::fs::read_to_string(package.join("../../verify/calls/report/table.rs")).unwrap();
    let missing = |declared: &std::collections::BTreeSet<String>| -> Vec<String> {
        declared.iter().filter(|f| !is_called(&table, f)).cloned().collect()
    };
    assert_eq!(missing(&declared), [""; 0]);
    // Functions without a row are found.
    declared.extend(functions("text", "pub fn melt() {}\n"));
    assert_eq!(missing(&declared), ["text::melt"]);
}
