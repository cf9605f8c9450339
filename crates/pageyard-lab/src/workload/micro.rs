//! The microbenchmark of the page allocator (pagealloc of mmtests): one task repeatedly allocates a
//! number of blocks and frees them in the same order.
//!
//! For each order and number of blocks, the times of an allocation, of a free, and of both are
//! metrics:
//! `alloc-odr0-64` and so on. The original divides by a wrong number and does not reset its sums;
//! this one corrects both. As in the original, the first two rounds are dropped.

use std::sync::Mutex;

use pageyard::{CpuId, Gfp, Order};

use super::actor::{Actor, Block, Measure, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::result::Better;

/// Rounds whose times are dropped (stated).
const DROPPED: u64 = 2;
/// Maximum number of pages in use at a time (stated: 128 MiB).
const MOST_PAGES: u64 = 128 << 20 >> 12;

pub(super) const RECIPE: Recipe = Recipe {
    name: "micro",
    summary: "one task allocates and frees N blocks, by order and N (pagealloc of mmtests)",
    params: &[
        param("orders", "4", "highest order"),
        param("rounds", "5", "number of rounds, including two warm-ups (15 in the original)"),
        param("blocks", "4096", "minimum blocks that a round allocates per row"),
    ],
    score: Score::Own,
    plan,
};

fn plan(params: &Params, _: &Site) -> Result<Vec<Point>, WorkloadError> {
    let orders = params.number("orders", 0..=10)? as u8;
    let rounds = params.number("rounds", DROPPED + 1..=1 << 20)?;
    let blocks = params.number("blocks", 1..=1 << 30)?;
    Ok(vec![(String::new(), Box::new(Micro { orders, rounds, blocks, rows: Mutex::default() }))])
}

#[derive(Debug)]
struct Micro {
    orders: u8,
    rounds: u64,
    blocks: u64,
    rows: Mutex<Vec<Measure>>,
}

impl Micro {
    /// Measures one row: `n` blocks at a time.
    fn row(&self, actor: &dyn Actor<'_>, order: Order, n: u64) {
        let mut sums = [0, 0];
        let mut blocks: Vec<Block> = Vec::with_capacity(n as usize);
        let times = self.blocks.div_ceil(n);
        for round in 0..self.rounds {
            for _ in 0..times {
                let start = actor.now();
                blocks.extend((0..n).filter_map(|_| actor.alloc(order, Gfp::KERNEL)));
                let full = actor.now();
                blocks.drain(..).for_each(|block| actor.free(block));
                if round >= DROPPED {
                    sums[0] += full - start;
                    sums[1] += actor.now() - full;
                }
            }
        }
        let each = |ns: u64| ns as f64 / ((self.rounds - DROPPED) * times * n) as f64;
        let [alloc, free] = sums;
        let mut rows = lock(&self.rows);
        for (name, ns) in [("alloc", alloc), ("free", free), ("total", alloc + free)] {
            let name = format!("{name}-odr{order}-{n}");
            rows.push(Measure { name, unit: "ns", better: Better::Lower, value: Some(each(ns)) });
        }
    }
}

impl Plan for Micro {
    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                for order in (0..=self.orders).filter_map(Order::new) {
                    let mut n = 1;
                    while n < MOST_PAGES / u64::from(order.pages()) {
                        self.row(actor, order, n);
                        n *= 2;
                    }
                }
            }),
        );
    }

    fn measures(&self) -> Vec<Measure> {
        lock(&self.rows).clone()
    }
}
