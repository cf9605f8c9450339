//! Saved replays as results. Each policy is one; what the kernel recorded is not, because it was
//! not simulated.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::result::{Better, Metric, RunResult, World};

/// The figures that a table of replays has, with their units. All are costs. The blocks and pages of
/// the trace's owners are the same in every column.
const FIGURES: [(&str, &str); 16] = [
    ("failed", "requests"),
    ("zone_pages", "pages"),
    ("refill_pages", "pages"),
    ("refill_holds", "holds"),
    ("drain_pages", "pages"),
    ("drain_holds", "holds"),
    ("depot_pages", "pages"),
    ("tick_pages", "pages"),
    ("lock_holds", "holds"),
    ("free_high_drains", "drains"),
    ("claims", "claims"),
    ("steals", "steals"),
    ("mismatches", "blocks"),
    ("idle_peak", "pages"),
    ("idle_mean", "pages"),
    ("unusable_9", "thousandths"),
];

/// The fields of a saved [`Report`](crate::replay::Report) that become results.
#[derive(Deserialize)]
pub(super) struct Replayed {
    /// The program adds it; a report that the library serialized has none.
    #[serde(default = "unknown")]
    version: String,
    reading: Reading,
    seed: u64,
    on: Option<String>,
    policies: Vec<Column>,
}

fn unknown() -> String {
    "of unknown version".to_owned()
}

#[derive(Deserialize)]
struct Reading {
    input: String,
}

#[derive(Deserialize)]
struct Column {
    policy: String,
    figures: BTreeMap<String, Value>,
}

impl Replayed {
    /// Returns the results of the first seed.
    pub(super) fn results(self) -> Vec<RunResult> {
        let Replayed { version, reading, seed, on, policies } = self;
        // Replays of several traces may stand side by side.
        let machine = on.as_deref().unwrap_or("the recorded machine");
        let world = World::Simulated(format!("{machine} ({})", reading.input));
        let metric = |(name, unit): (&str, &str), figures: &BTreeMap<String, Value>| Metric {
            name: name.to_owned(),
            unit: unit.to_owned(),
            better: Better::Lower,
            samples: vec![figures.get(name).and_then(Value::as_f64)],
        };
        let result = |column: Column| RunResult {
            workload: "replay".to_owned(),
            parameters: BTreeMap::new(),
            policy: column.policy,
            world: world.clone(),
            seed,
            version: version.clone(),
            metrics: FIGURES.map(|figure| metric(figure, &column.figures)).into(),
            lines: None,
            tracks: Vec::new(),
        };
        policies.into_iter().map(result).collect()
    }
}
