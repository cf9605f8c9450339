//! Soaks of a few short phases: one without a finding, and one for each planted mistake.

use std::ops::ControlFlow;

use pageyard_soak::{Found, Plan, Plant, Report, soak};

/// Phases within which a planted mistake must be found; it is made in the first phase that can make
/// it.
const SOON: u64 = 20;

fn plan(phases: u64, plant: Option<Plant>) -> Plan {
    Plan { size: 512 << 20, phases, length: 10, plant, ..Plan::new(u64::MAX) }
}

fn run(plan: &Plan) -> Report {
    soak(plan, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn found(plant: Plant) -> Found {
    let finding = run(&plan(SOON, Some(plant))).found.expect("it is found");
    assert!(finding.configuration.starts_with(&format!("seed 1 phase {}: ", finding.phase)));
    finding.found
}

#[test]
fn a_soak_finds_no_errors_and_uses_every_operation() {
    // Phases of many kinds: each operation succeeds some 50 times at least.
    let report = run(&Plan { seed: 4, ..plan(8, None) });
    assert_eq!((report.phases, report.found), (8, None));
    let unused: Vec<_> = report.counts.0.iter().filter(|(_, n)| **n == 0).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn a_double_allocation_is_detected() {
    let found = found(Plant::Twice);
    let Found::HandedOut { owner, to, .. } = found else { panic!("{found}") };
    assert_ne!(owner, to);
}

#[test]
fn a_lost_page_is_detected() {
    let found = found(Plant::Lose);
    let Found::NotEmpty { used, free, managed, .. } = found else { panic!("{found}") };
    assert!(used > 0 && free < managed);
}

#[test]
fn a_nonzero_page_is_detected() {
    let found = found(Plant::Dirt);
    assert!(matches!(found, Found::NotZero { .. }), "{found}");
}

#[test]
fn a_free_by_the_wrong_owner_is_detected() {
    let found = found(Plant::WrongOwner);
    let Found::NotOwner { owner, by, .. } = found else { panic!("{found}") };
    assert_ne!(owner, by);
}

#[test]
fn an_overwritten_page_is_detected() {
    let found = found(Plant::Scribble);
    assert!(matches!(found, Found::Pattern { at: 0, .. }), "{found}");
}

#[test]
fn one_phase_can_be_repeated() {
    let mut seen = Vec::new();
    let plan = Plan { only: Some(3), size: 16 << 20, ..plan(1, None) };
    let tell = &mut |phase: &pageyard_soak::Phase| {
        seen.push(phase.number);
        ControlFlow::Continue(())
    };
    assert_eq!(soak(&plan, tell).unwrap().phases, 1);
    assert!(!seen.is_empty() && seen.iter().all(|&number| number == 3));
}

#[test]
fn invalid_plans_are_errors() {
    let wrong = |plan: Plan| {
        let done = soak(&plan, &mut |_| ControlFlow::Continue(()));
        done.unwrap_err().to_string()
    };
    assert!(wrong(Plan { size: 1, ..Plan::new(1) }).contains("size 1 bytes"));
    assert!(wrong(Plan { threads: 0, ..Plan::new(1) }).contains("expected 1 to 1024"));
}
