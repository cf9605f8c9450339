//! Experiments as their watchers see them.

use std::io;

use pageyard_lab::reproduce::{self, Comparison, Options, ReproduceError, Scale, Watch};
use pageyard_machine::Costs;

/// What happened: the parts that began, and the titles of the tables.
#[derive(Default)]
struct Log {
    seen: Vec<String>,
    /// Refuse this table.
    full: Option<usize>,
}

impl Watch for Log {
    fn progress(&mut self, part: &str, _: u64, _: u64) {
        if self.seen.last().is_none_or(|last| last != part) {
            self.seen.push(part.to_owned());
        }
    }

    fn table(&mut self, table: &Comparison) -> io::Result<()> {
        let tables = self.seen.iter().filter(|seen| seen.contains(':')).count();
        if self.full == Some(tables) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.seen.push(table.title.clone());
        Ok(())
    }
}

/// Costs of the machine cannot matter to what is counted on a heap without CPUs, or measured on this
/// host.
#[test]
fn only_simulated_experiments_depend_on_costs() {
    for name in ["hygiene", "fast-path", "truth"] {
        let experiment = reproduce::by_name(name).unwrap();
        assert!(!experiment.simulated, "{name}");
        let error = reproduce::sensitivity::sensitivity(&experiment, &small(), &mut ());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("counted or calibrated here"), "{error}");
    }
}

fn small() -> Options {
    let costs = Costs::default();
    Options { seed: 1, iterations: 1, scale: Scale::Small, costs, jobs: 0, program: None }
}

#[test]
fn tables_are_passed_on_before_the_next_part_begins() {
    let bulk_free = reproduce::by_name("bulk-free").unwrap();
    let mut log = Log::default();
    let report = reproduce::run(&bulk_free, &small(), &mut log).unwrap();
    let seen = [
        "trunc, 1 socket",
        "trunc, 1 socket: time to remove the files",
        "trunc, 2 sockets",
        "trunc, 2 sockets: time to remove the files",
        "page_fault1",
        "page_fault1 on 80 CPUs: pages/s",
    ];
    assert_eq!(log.seen, seen);
    assert_eq!(report.outcome.tables.len(), 3);
    assert!(report.to_string().contains(&report.heading().to_string()));
    assert!(report.to_string().ends_with(&report.closing().to_string()));

    let mut log = Log { full: Some(1), ..Log::default() };
    let error = reproduce::run(&bulk_free, &small(), &mut log).unwrap_err();
    assert!(matches!(error, ReproduceError::Output(_)), "{error}");
    assert_eq!(log.seen, seen[..3], "an experiment ends where a table is refused");
}
