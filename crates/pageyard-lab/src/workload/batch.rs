//! The sweep of batches (spec A.4 step 4): [page_fault1](super::fault) with a given batch of the
//! per-CPU lists, and `high` of two batches, so that neither refills nor bulk frees grow. The
//! relevant results are the hold times of the zone lock: `hold_alloc` and `hold_free`.

use pageyard::tuning::Limits;

use super::actor::{Plan, Stage};
use super::error::WorkloadError;
use super::fault::Faults;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};

pub(super) const RECIPE: Recipe = Recipe {
    name: "batch",
    summary: "page_fault1 with several batch sizes: throughput and holds of the zone lock",
    params: &[
        param("batches", "63,127,255,511,1023,2047,4095", "batch sizes in pages, one point each"),
        param("processes", "all", "number, each on its own CPU; all: one per CPU"),
        param("pages", "10240", "pages mapped by a process"),
        param("cycles", "1", "number of times it maps and unmaps them, after one warm-up"),
    ],
    score: Score::Rate("pages/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let most = pageyard::tuning::MAX_BATCH as u64;
    let batches = params.list("batches", 1..=most, most)?;
    let processes = params.number_or_all("processes", 1..=site.count())?;
    let pages = params.number("pages", 1..=1 << 24)?;
    let cycles = params.number("cycles", 1..=1 << 20)?;
    let point = |&batch: &u64| {
        let faults = Faults { processes, cpus: site.count(), pages, cycles };
        (batch.to_string(), Box::new(Sweep { batch: batch as i32, faults }) as Box<dyn Plan>)
    };
    Ok(batches.iter().map(point).collect())
}

#[derive(Debug)]
struct Sweep {
    batch: i32,
    faults: Faults,
}

impl Plan for Sweep {
    fn limits(&self) -> Option<Limits> {
        let high = 2 * self.batch;
        Some(Limits { batch: self.batch, high_min: high, high_max: high })
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.faults.setup(stage);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.faults.run(stage);
    }
}
