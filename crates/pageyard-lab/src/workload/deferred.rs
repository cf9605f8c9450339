//! A kernel build on a machine with late memory initialisation (spec §8.2, A.5).
//!
//! The yard begins with one section of the last zone of each node; the rest is initialised before
//! anything runs. Limits of the per-CPU lists that are computed for that section alone are the
//! defect of A.5: a batch of 7 and a `high` of 42 (C.2) instead of 63 and 378, on all zones except
//! DMA and DMA32. Policies decide whether the limits are computed again:
//! `--policy "EarlyLimits<SixBatches<Base>>,SixBatches<Base>"` are that kernel without and with the
//! fix. The computed limits are metrics (`batch`, `high`). Their cost shows in the
//! [build](super::kbuild), which is the seed's own load, with the same parameters.

use std::sync::Mutex;

use pageyard::CpuId;

use super::actor::{Measure, Plan, Stage, ZoneView};
use super::error::WorkloadError;
use super::kbuild;
use super::params::Params;
use super::recipe::{Point, Recipe, Site};
use super::seats::lock;
use crate::result::Better;

pub(super) const RECIPE: Recipe = Recipe {
    name: "deferred",
    summary: "a kernel build after deferred initialisation, whose early limits are too small",
    plan,
    ..kbuild::RECIPE
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let late = |(label, build): Point| {
        (label, Box::new(DeferredBuild { build, zones: Mutex::default() }) as Box<dyn Plan>)
    };
    Ok(kbuild::plan(params, site)?.into_iter().map(late).collect())
}

struct DeferredBuild {
    build: Box<dyn Plan>,
    /// The zones after all memory was initialised.
    zones: Mutex<Vec<ZoneView>>,
}

impl Plan for DeferredBuild {
    fn deferred(&self) -> bool {
        true
    }

    fn pipes(&self) -> Vec<usize> {
        self.build.pipes()
    }

    fn barriers(&self) -> Vec<usize> {
        self.build.barriers()
    }

    fn lru_locks(&self) -> usize {
        self.build.lru_locks()
    }

    fn prepare<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                let zones = actor.zones();
                *lock(&self.zones) = zones;
            }),
        );
        self.build.prepare(stage);
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.build.setup(stage);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.build.run(stage);
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.build.finish(stage);
    }

    fn measures(&self) -> Vec<Measure> {
        let mut all = self.build.measures();
        for zone in lock(&self.zones).iter() {
            let name = format!("{}-{}", zone.id.kind, zone.id.node.0);
            for (what, value) in [("batch", zone.limits.batch), ("high", zone.limits.high_min)] {
                let name = format!("{what}-{name}");
                let value = Some(f64::from(value));
                all.push(Measure { name, unit: "pages", better: Better::Higher, value });
            }
        }
        all
    }
}
