//! page_fault1 of will-it-scale, as processes.
//!
//! Each process, on its own CPU if there are enough, maps 128 MiB, writes to each page, and unmaps
//! it. It makes 512 faults after each page table (stated). It then frees all pages in allocation
//! order, in lists of 500 (stated), and then the tables. This is far more than the per-CPU lists
//! keep, so every batch goes to the zone and back. The other costs of a fault are derived
//! ([`costs`](super::costs)).

use pageyard::{CpuId, Order};

use super::actor::{Actor, Block, Plan, Stage};
use super::costs::{FAULT, UNMAP};
use super::error::WorkloadError;
use super::params::{Param, Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use crate::hygiene::build::{GATHER, flags, gfp};

/// Pages mapped by one table.
const PER_TABLE: u64 = 512;

pub(super) const PARAMS: [Param; 3] = [
    param(
        "processes",
        "all",
        "number of processes, up to 4 per CPU; comma-separated for several \
         points; all: one per CPU",
    ),
    param("pages", "32768", "pages mapped by a process"),
    param("cycles", "1", "number of times it maps and unmaps them, after one warm-up"),
];

pub(super) const RECIPE: Recipe = Recipe {
    name: "page_fault1",
    summary: "processes that map memory, write to each page and unmap it (will-it-scale)",
    params: &PARAMS,
    score: Score::Rate("pages/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let processes = params.list("processes", 1..=4 * site.count(), site.count())?;
    let pages = params.number("pages", 1..=1 << 24)?;
    let cycles = params.number("cycles", 1..=1 << 20)?;
    let label = |p: u64| if processes.len() > 1 { p.to_string() } else { String::new() };
    Ok(processes
        .iter()
        .map(|&p| {
            (
                label(p),
                Box::new(Faults { processes: p, cpus: site.count(), pages, cycles })
                    as Box<dyn Plan>,
            )
        })
        .collect())
}

#[derive(Debug)]
pub(super) struct Faults {
    pub(super) processes: u64,
    /// Number of CPUs; processes are assigned to them in turn.
    pub(super) cpus: u64,
    pub(super) pages: u64,
    pub(super) cycles: u64,
}

impl Faults {
    pub(super) fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, cycles: u64) {
        for process in 0..self.processes {
            stage.spawn(
                CpuId((process % self.cpus) as u32),
                Box::new(move |actor| (0..cycles).for_each(|_| cycle(actor, self.pages))),
            );
        }
    }
}

impl Plan for Faults {
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, 1);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.cycles);
    }
}

fn cycle(actor: &dyn Actor<'_>, pages: u64) {
    let mut tables: Vec<Block> = Vec::new();
    let mut mapped: Vec<Block> = Vec::with_capacity(pages as usize);
    for page in 0..pages {
        if page.is_multiple_of(PER_TABLE) {
            tables.extend(actor.alloc(Order::ZERO, gfp(flags::TABLE)));
        }
        actor.think(FAULT);
        mapped.extend(actor.alloc(Order::ZERO, gfp(flags::ANON)));
    }
    actor.done(mapped.len() as u64);
    for chunk in mapped.chunks(GATHER) {
        actor.think(UNMAP * chunk.len() as u64);
        actor.free_list(chunk);
    }
    actor.free_list(&tables);
}
