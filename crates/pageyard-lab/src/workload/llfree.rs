//! The benchmarks of LLFree: bulk, repeat, rand and frag.
//!
//! - bulk: all threads allocate their share, meet at a barrier, and free everything.
//! - repeat: each thread repeatedly frees a block and allocates another.
//! - rand: like repeat, on blocks that were shuffled among all threads.
//! - frag: memory is filled with single pages, and a random half of them is freed. Then, in every
//!   round, each thread frees random pages, 10% of its number, and allocates one after each free, as
//!   the original does. A per-CPU list returns the page that was just freed, so that nothing changes
//!   there; the published share stays at its 15% with Linux, too. The score is the share of free
//!   memory in whole huge pages: `huge-0` before the first round, and so on.
//!
//! Where the original uses all memory, these benchmarks use the given number of pages. frag
//! allocates the rest beforehand in the largest available blocks.

use std::sync::Mutex;

use pageyard::{CpuId, Gfp, MAX_ORDER, Order};

use super::actor::{Actor, BarrierId, Block, Measure, Plan, Stage};
use super::error::WorkloadError;
use super::metrics::percent;
use super::params::{Param, Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::result::Better;
use crate::rng::Rng;

/// Movable and without reclaim: the benchmarks may fill memory.
const FLAGS: Gfp = Gfp::HIGHUSER_MOVABLE.difference(Gfp::RECLAIM).union(Gfp::NOWARN);

const PARAMS: [Param; 4] = [
    param("threads", "all", "number, each on its own CPU; all: one per CPU"),
    param("order", "0", "order of the blocks"),
    param("pages", "2097152", "pages in use, of all threads"),
    param("rounds", "4", "number of times every block is freed and reallocated"),
];

const fn recipe(
    name: &'static str,
    summary: &'static str,
    plan: fn(&Params, &Site) -> Result<Vec<Point>, WorkloadError>,
) -> Recipe {
    Recipe { name, summary, params: &PARAMS, score: Score::Rate("blocks/s"), plan }
}

pub(super) const BULK: Recipe = recipe(
    "llfree-bulk",
    "all threads allocate in bulk, meet at a barrier, and free everything",
    |p, s| plan(p, s, Kind::Bulk),
);
pub(super) const REPEAT: Recipe =
    recipe("llfree-repeat", "each thread repeatedly frees and allocates a block", |p, s| {
        plan(p, s, Kind::Repeat)
    });
pub(super) const RAND: Recipe =
    recipe("llfree-rand", "like llfree-repeat, with blocks shuffled among all threads", |p, s| {
        plan(p, s, Kind::Rand)
    });
pub(super) const FRAG: Recipe = Recipe {
    name: "llfree-frag",
    summary: "half of full memory is freed at random; measures how many huge pages form again",
    params: &[
        PARAMS[0],
        param("pages", "2097152", "pages available to the workload"),
        param("rounds", "10", "number of times 10% of the pages are freed and reallocated"),
    ],
    score: Score::Own,
    plan: |p, s| plan(p, s, Kind::Frag),
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Bulk,
    Repeat,
    Rand,
    Frag,
}

fn plan(params: &Params, site: &Site, kind: Kind) -> Result<Vec<Point>, WorkloadError> {
    let threads = params.number_or_all("threads", 1..=site.count())? as usize;
    let order = match kind {
        Kind::Frag => 0,
        _ => params.number("order", 0..=u64::from(MAX_ORDER))? as u8,
    };
    let order = Order::new(order).unwrap_or_default();
    let most = if kind == Kind::Frag { site.pages } else { site.pages / 2 };
    let pages =
        params.number("pages", u64::from(order.pages())..=most.max(order.pages().into()))?;
    let rounds = params.number("rounds", 1..=1 << 20)?;
    let each = (pages >> order.get()).div_ceil(threads as u64);
    let owned = (0..threads).map(|_| Mutex::default()).collect();
    let (taken, huge) = (Mutex::default(), Mutex::default());
    let spare = site.pages.saturating_sub(pages);
    Ok(vec![(
        String::new(),
        Box::new(Llfree { kind, order, rounds, each, spare, owned, taken, huge }),
    )])
}

#[derive(Debug)]
struct Llfree {
    kind: Kind,
    order: Order,
    rounds: u64,
    /// Number of blocks of each thread.
    each: u64,
    /// Pages that frag allocates beforehand.
    spare: u64,
    /// Blocks held by each thread.
    owned: Vec<Mutex<Vec<Block>>>,
    /// Blocks that frag allocated beforehand.
    taken: Mutex<Vec<Block>>,
    /// The share of free memory in whole huge pages, in percent, round by round.
    huge: Mutex<Vec<Option<f64>>>,
}

impl Llfree {
    fn each_thread<'env>(
        &'env self,
        stage: &dyn Stage<'env>,
        job: impl Fn(&dyn Actor<'env>, usize, &mut Vec<Block>) + Copy + Send + 'env,
    ) {
        for thread in 0..self.owned.len() {
            stage.spawn(
                CpuId(thread as u32),
                Box::new(move |actor| {
                    // Taken out, so that the lock is not held while other threads run.
                    let mut blocks = std::mem::take(&mut *lock(&self.owned[thread]));
                    job(actor, thread, &mut blocks);
                    *lock(&self.owned[thread]) = blocks;
                }),
            );
        }
    }

    fn fill(&self, actor: &dyn Actor<'_>, blocks: &mut Vec<Block>) {
        while (blocks.len() as u64) < self.each {
            let Some(block) = actor.alloc(self.order, FLAGS) else { break };
            blocks.push(block);
        }
    }

    /// Redistributes the blocks of all threads at random.
    fn shuffle(&self, actor: &dyn Actor<'_>) {
        let mut all: Vec<Block> = Vec::new();
        self.owned.iter().for_each(|o| all.append(&mut lock(o)));
        Rng::new(actor.random(u64::MAX)).shuffle(&mut all);
        let share = all.len().div_ceil(self.owned.len()).max(1);
        for (part, owned) in all.chunks(share).zip(&self.owned) {
            lock(owned).extend_from_slice(part);
        }
    }

    /// Frees and reallocates blocks, `times` times: one thread's blocks in turn, or random ones for
    /// frag.
    fn again(&self, actor: &dyn Actor<'_>, blocks: &mut Vec<Block>, times: usize) {
        for i in 0..times {
            let at = match self.kind {
                Kind::Frag => actor.random(blocks.len() as u64) as usize,
                _ => i % blocks.len().max(1),
            };
            let Some(block) = blocks.get_mut(at) else { break };
            actor.free(*block);
            match actor.alloc(self.order, FLAGS) {
                Some(other) => *block = other,
                // If memory is full, another thread may have allocated the freed block.
                None => drop(blocks.swap_remove(at)),
            }
        }
        actor.done(times as u64);
    }

    fn frag(&self, actor: &dyn Actor<'_>, thread: usize, blocks: &mut Vec<Block>) {
        for round in 0..=self.rounds {
            if round > 0 {
                let tenth = blocks.len() / 10;
                self.again(actor, blocks, tenth);
            }
            actor.meet(BarrierId(0));
            if thread == 0 {
                let share = percent(actor.free_huge_pages(), actor.free_pages());
                lock(&self.huge).push(share);
            }
            actor.meet(BarrierId(0));
        }
    }
}

impl Plan for Llfree {
    fn barriers(&self) -> Vec<usize> {
        vec![self.owned.len()]
    }

    fn prepare<'env>(&'env self, stage: &dyn Stage<'env>) {
        if self.kind == Kind::Frag {
            stage.spawn(
                CpuId(0),
                Box::new(move |actor| {
                    let largest = Order::new(MAX_ORDER).unwrap_or_default();
                    let blocks =
                        (0..self.spare >> MAX_ORDER).map_while(|_| actor.alloc(largest, FLAGS));
                    let blocks = blocks.collect();
                    *lock(&self.taken) = blocks;
                }),
            );
        }
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        if self.kind == Kind::Bulk {
            return;
        }
        self.each_thread(stage, |actor, thread, blocks| {
            self.fill(actor, blocks);
            if matches!(self.kind, Kind::Repeat) {
                return;
            }
            // All threads put their blocks back, and one thread shuffles them.
            *lock(&self.owned[thread]) = std::mem::take(blocks);
            actor.meet(BarrierId(0));
            if thread == 0 {
                self.shuffle(actor);
            }
            actor.meet(BarrierId(0));
            *blocks = std::mem::take(&mut *lock(&self.owned[thread]));
            if self.kind == Kind::Frag {
                blocks.drain(..blocks.len() / 2).for_each(|block| actor.free(block));
            }
        });
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.each_thread(stage, |actor, thread, blocks| match self.kind {
            Kind::Bulk => {
                for _ in 0..self.rounds {
                    self.fill(actor, blocks);
                    actor.meet(BarrierId(0));
                    actor.done(blocks.len() as u64);
                    blocks.drain(..).for_each(|block| actor.free(block));
                    actor.meet(BarrierId(0));
                }
            }
            Kind::Repeat | Kind::Rand => {
                for _ in 0..self.rounds {
                    let all = blocks.len();
                    self.again(actor, blocks, all);
                }
            }
            Kind::Frag => self.frag(actor, thread, blocks),
        });
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.each_thread(stage, |actor, thread, blocks| {
            blocks.drain(..).for_each(|block| actor.free(block));
            if thread == 0 {
                let taken = std::mem::take(&mut *lock(&self.taken));
                taken.into_iter().for_each(|block| actor.free(block));
            }
        });
    }

    fn measures(&self) -> Vec<Measure> {
        let huge = lock(&self.huge);
        let row = |(round, &value)| Measure {
            name: format!("huge-{round}"),
            unit: "%",
            better: Better::Higher,
            value,
        };
        huge.iter().enumerate().map(row).collect()
    }
}
