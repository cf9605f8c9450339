//! sysbench's OLTP on a database larger than its cache. Pages of the page cache are allocated at
//! random times on all CPUs, and freed, oldest first, in batches of 32 from one CPU (stated). The
//! threads fill the cache before the measurement, so that each page that is read replaces another.
//!
//! How long a thread works between two cache misses is assumed.

use std::collections::VecDeque;
use std::sync::Mutex;

use pageyard::{CpuId, Order};

use super::actor::{Actor, Block, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::hygiene::build::{flags, gfp};

/// Pages freed at a time (stated).
const RECLAIMED: usize = 32;
/// How long the reclaimer sleeps, in nanoseconds, if there is nothing to do (assumed).
const NAP: u64 = 100_000;

pub(super) const RECIPE: Recipe = Recipe {
    name: "sysbench",
    summary: "a database's page cache: pages allocated on all CPUs and freed, oldest first, by one",
    params: &[
        param(
            "threads",
            "all",
            "threads of the database, each on its own CPU; all: all CPUs but \
             one",
        ),
        param("cache", "65536", "pages in the cache"),
        param("reads", "10000", "pages read by each thread"),
        param("work", "20000", "mean nanoseconds between two reads"),
    ],
    score: Score::Rate("pages/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    if site.count() < 2 {
        return Err(params.wrong("threads", "a machine with at least two CPUs"));
    }
    let threads = params.number_or_all("threads", 1..=site.count() - 1)? as u32;
    let cache = params.number("cache", 1..=site.pages / 2)? as usize;
    let reads = params.number("reads", 1..=1 << 32)?;
    let work = params.number("work", 0..=1 << 40)?;
    let state = Mutex::new(Cache { pages: VecDeque::new(), running: threads });
    Ok(vec![(String::new(), Box::new(Sysbench { threads, cache, reads, work, state }))])
}

#[derive(Debug)]
struct Cache {
    /// Pages, oldest first.
    pages: VecDeque<Block>,
    /// Threads that are not done.
    running: u32,
}

#[derive(Debug)]
struct Sysbench {
    threads: u32,
    cache: usize,
    reads: u64,
    work: u64,
    state: Mutex<Cache>,
}

impl Sysbench {
    fn read(&self, actor: &dyn Actor<'_>, pages: u64) {
        for _ in 0..pages {
            actor.think(actor.random_exponential(self.work));
            let Some(page) = actor.alloc(Order::ZERO, gfp(flags::READ)) else { continue };
            actor.touch(page, pageyard::PAGE_SIZE);
            actor.sync();
            lock(&self.state).pages.push_back(page);
            actor.done(1);
        }
    }
}

impl Plan for Sysbench {
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        for thread in 1..=self.threads {
            // The shares add up to the cache.
            let share = (self.cache as u64 + u64::from(thread) - 1) / u64::from(self.threads);
            stage.spawn(CpuId(thread), Box::new(move |actor| self.read(actor, share)));
        }
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        for thread in 1..=self.threads {
            stage.spawn(
                CpuId(thread),
                Box::new(move |actor| {
                    self.read(actor, self.reads);
                    lock(&self.state).running -= 1;
                }),
            );
        }
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                loop {
                    actor.sync();
                    let (oldest, over): (Vec<Block>, bool) = {
                        let mut state = lock(&self.state);
                        let excess = state.pages.len().saturating_sub(self.cache);
                        let over = state.running == 0;
                        (state.pages.drain(..excess.min(RECLAIMED)).collect(), over)
                    };
                    if !oldest.is_empty() {
                        actor.free_list(&oldest);
                    } else if over {
                        break;
                    } else {
                        actor.sleep_until(actor.now() + NAP);
                    }
                }
            }),
        );
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                let left: Vec<Block> = lock(&self.state).pages.drain(..).collect();
                actor.free_list(&left);
            }),
        );
    }
}
