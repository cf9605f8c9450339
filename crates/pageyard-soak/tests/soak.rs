//! Runs of some seconds: one that finds nothing, and one for each planted mistake.

use pageyard_soak::{Found, Plan, Plant, Report, soak};

fn run(seconds: u64, plant: Option<Plant>) -> Report {
    let plan = Plan { size: 256 << 20, plant, ..Plan::new(seconds) };
    soak(&plan, &mut |_| ()).unwrap()
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let report = run(8, None);
    assert_eq!(report.found, None);
    let c = report.counts;
    let all = [
        c.blocks,
        c.bulk_pages,
        c.movables,
        c.ranges,
        c.checked,
        c.zeros,
        c.passed_on,
        c.threads_ended,
        c.validated,
        c.settings,
        c.limits,
        c.sections + c.sections_kept,
        c.faulty,
        c.compactions,
    ];
    assert!(all.iter().all(|&n| n > 0), "{c:?}");
}

#[test]
fn a_word_that_somebody_else_wrote() {
    assert!(matches!(run(60, Some(Plant::Scribble)).found, Some(Found::Pattern { at: 0, .. })));
}

#[test]
fn a_block_that_nobody_holds() {
    let Some(Found::Count { used, held, front }) = run(60, Some(Plant::Lose)).found else {
        panic!("it was not found");
    };
    assert!(used > held + front);
}

#[test]
fn a_page_that_is_not_zero() {
    assert!(matches!(run(60, Some(Plant::Dirt)).found, Some(Found::NotZero { .. })));
}

#[test]
fn what_cannot_be_is_an_error() {
    let wrong = |plan: Plan| soak(&plan, &mut |_| ()).unwrap_err().to_string();
    assert!(wrong(Plan { size: 1, ..Plan::new(1) }).contains("size 1 bytes"));
    assert!(wrong(Plan { threads: 0, ..Plan::new(1) }).contains("give 1 to 1024"));
}
