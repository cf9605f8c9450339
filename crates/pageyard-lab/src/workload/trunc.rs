//! The removal of files from the page cache (spec A.1): a bulk free and nothing else.
//!
//! Files are filled with movable pages, in order, on CPU 0. One task on another CPU then frees them
//! file by file in that order, in lists of 15 (stated: a page vector). Only the frees are measured.
//! The other costs of removing a page from the page cache are derived ([`costs`](super::costs)).

use std::sync::Mutex;

use pageyard::{CpuId, Order};

use super::actor::{Block, Plan, Stage};
use super::costs::FORGET;
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::hygiene::build::{flags, gfp};

/// Pages of a list (stated).
const VECTOR: usize = 15;

pub(super) const RECIPE: Recipe = Recipe {
    name: "trunc",
    summary: "files removed from the page cache: only bulk frees, on one CPU",
    params: &[
        param("files", "10", "how many"),
        param("pages", "262144", "pages per file, in blocks of the order below"),
        param("order", "0", "order of the blocks"),
    ],
    score: Score::Time,
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let files = params.number("files", 1..=1 << 20)?;
    let order = params.number("order", 0..=9)?;
    let pages = params.number("pages", 1..=1 << 24)?;
    let order = Order::new(order as u8).unwrap_or_default();
    let blocks = pages.div_ceil(order.pages().into());
    if files.saturating_mul(blocks << order.get()) > site.pages / 2 {
        return Err(params.wrong("files", "fewer or smaller files, filling at most half of memory"));
    }
    let cpu = CpuId(u32::from(site.count() > 1));
    Ok(vec![(
        String::new(),
        Box::new(Trunc { files, blocks, order, cpu, cache: Mutex::default() }),
    )])
}

#[derive(Debug)]
struct Trunc {
    files: u64,
    blocks: u64,
    order: Order,
    /// The CPU that removes the files.
    cpu: CpuId,
    cache: Mutex<Vec<Vec<Block>>>,
}

impl Plan for Trunc {
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                for _ in 0..self.files {
                    let page = |_| actor.alloc(self.order, gfp(flags::READ));
                    let file = (0..self.blocks).filter_map(page).collect();
                    lock(&self.cache).push(file);
                }
            }),
        );
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            self.cpu,
            Box::new(move |actor| {
                let files = std::mem::take(&mut *lock(&self.cache));
                for file in files {
                    for vector in file.chunks(VECTOR) {
                        actor.think(FORGET * vector.len() as u64);
                        actor.free_list(vector);
                    }
                    actor.done(file.len() as u64);
                }
            }),
        );
    }
}
