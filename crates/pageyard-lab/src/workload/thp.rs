//! Builds, a cache server and bursts of requests for huge pages on full memory (spec A.3). Measures
//! whether the requests succeed, and whether memory of different mobility stays apart.
//! Rounds of a [build](super::kbuild) follow each other. Beside them a server holds 40% of memory,
//! 2% of which is replaced every minute (stated). Its network passes blocks of orders 2 and 3
//! ([`memcached`](super::memcached), measured). Every ten seconds, 500 to 2,000 huge pages are
//! requested, on 8 GiB (assumed: the machine was not published), and held for a second (stated).
//! When a request fails, 512 small pages are allocated instead. A round takes the recipe's 310
//! seconds (A.3's mean). The warm-up round measures how long a round takes here, and the clocks of
//! the other tasks are scaled to match (derived).
//!
//! All other memory is page cache from the beginning, freed in a different order than it was read
//! (assumed). A background task frees the oldest pages, including those that the builds leave
//! behind. It starts when free memory falls to the zones' low watermarks and stops at the high ones
//! (spec §7.1), each plus a sixteenth of memory (assumed: that much may be on per-CPU lists, out of
//! reach of other CPUs). A task that allocates small pages in place of a huge one helps it. Nothing
//! else reclaims, and nothing is compacted: a request for a huge page succeeds or fails at once.
//! `pageyard run hygiene` is the same mix on a heap without CPUs of its own, with direct reclaim
//! and every list operation checked.

use std::collections::VecDeque;
use std::sync::Mutex;

use pageyard::{CpuId, Gfp, MAX_ORDER, Order, PAGE_SIZE};

use super::actor::{Actor, BarrierId, Block, Measure, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::kbuild::Kbuild;
use super::metrics::percent;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::hygiene::build::{flags, gfp, order};
use crate::result::Better;
use crate::rng::Rng;
use crate::stats;

/// Duration of a round in seconds (A.3).
const ROUND: f64 = 310.24;
/// The share of memory that the server holds, in thousandths, and the part of it that is replaced
/// every second, in millionths (stated: 2% a minute).
const RESIDENT: u64 = 400;
const REPLACED: u64 = 333;
/// Network buffers per second (measured), the number of those of order 2 in a thousand, and how
/// many wait for their reader (as in [`memcached`](super::memcached)).
const BUFFERS: f64 = 3100.0;
const ORDER_2: u64 = 608;
const DEPTH: usize = 17;
/// Seconds between two bursts, number of huge pages in a burst, the size of the machine for which
/// that number holds, and the seconds for which they are held.
const PERIOD: u64 = 10;
const BURST: (u64, u64) = (500, 2000);
const MACHINE: u64 = 8 << 30;
const HELD: u64 = 1;
/// Divisor: this part of memory is kept free or on per-CPU lists, above the watermarks.
const MARGIN: u64 = 16;
/// Pages for each job, at least. The server, the largest burst and the margin leave 4.9% of all pages to
/// the builds; that holds a compiler at its 90th percentile (3,430 pages, measured). With fewer, nothing is
/// left to reclaim in a burst, and requests fail for seconds.
const PER_JOB: u64 = 70_000;
/// Pages freed at a time (§1.1), and the reclaimer's sleep in nanoseconds (assumed).
const RECLAIMED: usize = 32;
const NAP: u64 = 100_000;

pub(super) const RECIPE: Recipe = Recipe {
    name: "thp",
    summary: "builds, a cache server and requests for huge pages on full memory, in rounds",
    params: &[
        param("pages", "1048576", "pages of memory that the workload uses"),
        param("rounds", "10", "builds, after one warm-up"),
        param("jobs", "4", "concurrent processes of the build, one for each 70000 pages at most"),
        param("objects", "3", "objects per job and round"),
        param("work", "28500", "nanoseconds of work between two page faults of a process"),
    ],
    score: Score::Time,
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    if site.pages < PER_JOB {
        return Err(
            params.wrong("pages", format!("a machine with {PER_JOB} pages of memory at least"))
        );
    }
    let pages = params.number("pages", PER_JOB..=site.pages)?;
    let rounds = params.number("rounds", 1..=100_000)?;
    let jobs = params.number("jobs", 1..=pages / PER_JOB)? as usize;
    let objects = params.number("objects", 1..=1 << 20)? as usize;
    let work = params.number("work", 0..=1 << 40)?;
    let build = Kbuild::on(site, jobs, work, objects);
    let state = Mutex::new(State { second: 1.0, ..State::default() });
    let plan = Thp {
        cpus: site.count(),
        pages,
        spare: site.pages.saturating_sub(pages),
        rounds,
        jobs,
        objects,
        build,
        state,
        cache: Mutex::default(),
    };
    Ok(vec![(String::new(), Box::new(plan))])
}

/// Counters of all zones for memory that changed its type.
#[derive(Clone, Copy, Default, Debug)]
struct Mixing {
    steals: u64,
    claims: u64,
    mismatches: u64,
}

#[derive(Default, Debug)]
struct State {
    /// Jobs that are not done.
    running: usize,
    /// Free memory at which reclaim of the cache starts, and at which it stops.
    low: u64,
    enough: u64,
    /// Nanoseconds that a second of the recipe takes here.
    second: f64,
    /// Start of the warm-up round, and its latest known end.
    warm: (u64, u64),
    /// Counters after each round, preceded by those at the beginning.
    mixing: Vec<Mixing>,
    /// The duration of each huge-page request, in nanoseconds, and the number that failed.
    huge: Vec<u64>,
    missed: u64,
    /// Memory taken out of use.
    spare: Vec<Block>,
    resident: Vec<Block>,
}

struct Thp {
    cpus: u64,
    pages: u64,
    spare: u64,
    rounds: u64,
    jobs: usize,
    objects: usize,
    build: Kbuild,
    state: Mutex<State>,
    /// File pages, oldest first.
    cache: Mutex<VecDeque<Block>>,
}

impl Thp {
    /// Returns the CPU of the `n`th task that is not a job.
    fn beside(&self, n: u64) -> CpuId {
        CpuId(((self.jobs as u64 + n) % self.cpus) as u32)
    }

    fn second(&self) -> f64 {
        lock(&self.state).second
    }

    fn is_over(&self, actor: &dyn Actor<'_>) -> bool {
        actor.sync();
        lock(&self.state).running == 0
    }

    /// Sleeps for `seconds` of the recipe's time, or until the workload has ended. Returns whether
    /// it has.
    fn rest(&self, actor: &dyn Actor<'_>, seconds: f64) -> bool {
        let until = actor.now() + (seconds * self.second()) as u64;
        while actor.now() < until && !self.is_over(actor) {
            // The end of the workload must not wait for a long sleep.
            actor.sleep_until(until.min(actor.now() + 10 * NAP));
        }
        self.is_over(actor)
    }

    fn mixing(actor: &dyn Actor<'_>) -> Mixing {
        let mut sum = Mixing::default();
        for zone in actor.zones() {
            sum.steals += zone.stats.steals;
            sum.claims += zone.stats.claims_whole + zone.stats.claims_part;
            sum.mismatches += zone.stats.mismatches;
        }
        sum
    }

    /// If free memory is low, frees the oldest file pages until there is enough. Returns whether
    /// there were any to free.
    fn shrink(&self, actor: &dyn Actor<'_>) -> bool {
        let free = actor.free_pages();
        let (low, enough) = {
            let state = lock(&self.state);
            (state.low, state.enough)
        };
        if free >= low {
            return false;
        }
        let mut left = enough.saturating_sub(free);
        let all = left;
        while left > 0 {
            let oldest: Vec<Block> = {
                let mut cache = lock(&self.cache);
                cache.extend(lock(&self.build.kept).drain(..));
                let n = cache.len().min(RECLAIMED);
                cache.drain(..n).collect()
            };
            if oldest.is_empty() {
                break;
            }
            left = left.saturating_sub(oldest.len() as u64);
            actor.free_list(&oldest);
        }
        left < all
    }

    fn reclaim(&self, actor: &dyn Actor<'_>) {
        while !self.is_over(actor) {
            if !self.shrink(actor) {
                actor.sleep_until(actor.now() + NAP);
            }
        }
    }

    fn serve(&self, actor: &dyn Actor<'_>) {
        let mut pages = std::mem::take(&mut lock(&self.state).resident);
        let mut due = 0;
        while !self.rest(actor, 1.0) {
            actor.migrate(CpuId(actor.random(self.cpus) as u32));
            due += pages.len() as u64 * REPLACED;
            for _ in 0..std::mem::replace(&mut due, 0) / 1_000_000 {
                let at = actor.random(pages.len() as u64) as usize;
                actor.free(pages[at]);
                match actor.alloc(Order::ZERO, gfp(flags::ANON)) {
                    Some(page) => pages[at] = page,
                    None => drop(pages.swap_remove(at)),
                }
            }
        }
        lock(&self.state).resident = pages;
    }

    fn write(&self, actor: &dyn Actor<'_>) {
        let gap = self.second() / BUFFERS;
        let mut at = actor.now();
        while !self.is_over(actor) {
            at += actor.random_exponential(gap as u64);
            actor.sleep_until(at);
            let size = if actor.random(1000) < ORDER_2 { order(2) } else { order(3) };
            actor.send(PipeId(0), actor.alloc(size, gfp(flags::BUFFER)).into_iter().collect());
        }
        actor.close(PipeId(0));
    }

    fn read(actor: &dyn Actor<'_>) {
        while let Some(parcel) = actor.receive(PipeId(0)) {
            parcel.into_iter().for_each(|block| actor.free(block));
        }
    }

    fn probe(&self, actor: &dyn Actor<'_>) {
        while !self.rest(actor, (PERIOD - HELD) as f64) {
            actor.migrate(CpuId(actor.random(self.cpus) as u32));
            let wanted = BURST.0 + actor.random(BURST.1 - BURST.0);
            let wanted = (wanted * self.pages).div_ceil(MACHINE / PAGE_SIZE);
            let mut held: Vec<Block> = Vec::new();
            let (mut times, mut missed) = (Vec::new(), 0);
            for _ in 0..wanted {
                let asked = actor.now();
                if let Some(block) = actor.alloc(order(9), gfp(flags::HUGE)) {
                    times.push(actor.now() - asked);
                    held.push(block);
                } else {
                    missed += 1;
                    self.shrink(actor);
                    held.extend(
                        (0..512).filter_map(|_| actor.alloc(Order::ZERO, gfp(flags::ANON))),
                    );
                }
            }
            {
                let mut state = lock(&self.state);
                state.huge.append(&mut times);
                state.missed += missed;
            }
            self.rest(actor, HELD as f64);
            held.into_iter().for_each(|block| actor.free(block));
        }
    }

    fn work(&self, actor: &dyn Actor<'_>, number: usize) {
        for round in 0..self.rounds {
            self.build.job(actor, number, self.objects).run();
            actor.meet(BarrierId(0));
            if number == 0 {
                let mixing = Self::mixing(actor);
                lock(&self.state).mixing.push(mixing);
                if round + 1 < self.rounds {
                    self.build.begin(self.objects);
                }
            }
            actor.meet(BarrierId(0));
        }
        self.done();
    }

    fn done(&self) {
        lock(&self.state).running -= 1;
    }
}

impl Plan for Thp {
    fn pipes(&self) -> Vec<usize> {
        vec![DEPTH]
    }

    fn barriers(&self) -> Vec<usize> {
        vec![self.jobs]
    }

    fn prepare<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                self.build.choose(actor);
                let zones = actor.zones();
                let marks = |at: usize| zones.iter().map(|z| z.watermarks[at]).sum::<u64>();
                let low = marks(1) + self.pages / MARGIN;
                let enough = marks(2) + self.pages / MARGIN;
                let largest = Order::new(MAX_ORDER).unwrap_or_default();
                // The memory that the watermarks keep free is in addition to what is in use.
                let spare = (0..self.spare.saturating_sub(enough) >> MAX_ORDER)
                    .map_while(|_| actor.alloc(largest, Gfp::HIGHUSER_MOVABLE));
                let spare: Vec<Block> = spare.collect();
                let resident = (0..self.pages * RESIDENT / 1000)
                    .filter_map(|_| actor.alloc(Order::ZERO, gfp(flags::ANON)));
                let resident: Vec<Block> = resident.collect();
                let mut files: Vec<Block> = Vec::new();
                while actor.free_pages() > enough
                    && let Some(page) = actor.alloc(Order::ZERO, gfp(flags::READ))
                {
                    files.push(page);
                }
                Rng::new(actor.random(u64::MAX)).shuffle(&mut files);
                lock(&self.cache).extend(files);
                let mut state = lock(&self.state);
                (state.spare, state.resident) = (spare, resident);
                (state.low, state.enough) = (low, enough);
            }),
        );
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.build.begin(self.objects);
        lock(&self.state).running = self.jobs;
        for number in 0..self.jobs {
            stage.spawn(
                self.build.cpu(number),
                Box::new(move |actor| {
                    let began = actor.now();
                    self.build.job(actor, number, self.objects).run();
                    let mut state = lock(&self.state);
                    if number == 0 {
                        state.warm.0 = began;
                    }
                    state.warm.1 = state.warm.1.max(actor.now());
                    state.running -= 1;
                }),
            );
        }
        stage.spawn(self.beside(0), Box::new(move |actor| self.reclaim(actor)));
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.build.begin(self.objects);
        {
            let mut state = lock(&self.state);
            state.running = self.jobs;
            state.second = (state.warm.1 - state.warm.0) as f64 / ROUND;
        }
        for number in 0..self.jobs {
            stage.spawn(
                self.build.cpu(number),
                Box::new(move |actor| {
                    if number == 0 {
                        let mixing = Self::mixing(actor);
                        lock(&self.state).mixing.push(mixing);
                    }
                    self.work(actor, number);
                }),
            );
        }
        stage.spawn(self.beside(0), Box::new(move |actor| self.reclaim(actor)));
        stage.spawn(self.beside(1), Box::new(move |actor| self.serve(actor)));
        stage.spawn(self.beside(2), Box::new(move |actor| self.probe(actor)));
        stage.spawn(self.beside(3), Box::new(move |actor| self.write(actor)));
        stage.spawn(self.beside(4), Box::new(Self::read));
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                let mut all: Vec<Block> = lock(&self.cache).drain(..).collect();
                all.append(&mut self.build.left());
                {
                    let mut state = lock(&self.state);
                    all.append(&mut state.resident);
                    all.append(&mut state.spare);
                }
                all.into_iter().for_each(|block| actor.free(block));
            }),
        );
    }

    fn measures(&self) -> Vec<Measure> {
        let state = lock(&self.state);
        let row = |name: &str, unit, better, value: Option<f64>| Measure {
            name: name.to_owned(),
            unit,
            better,
            value,
        };
        let (got, missed) = (state.huge.len() as u64, state.missed);
        let us: Vec<f64> = state.huge.iter().map(|&ns| ns as f64 / 1e3).collect();
        let mean_of = |all: &[f64]| (got > 0).then(|| all.iter().sum::<f64>() / got as f64);
        let mean = mean_of(&us);
        let squares = |mean| us.iter().map(|t| (t - mean) * (t - mean)).collect::<Vec<f64>>();
        let spread = mean.and_then(|mean| mean_of(&squares(mean)));
        let mut all = vec![
            row("thp_alloc", "pages", Better::Higher, Some(got as f64)),
            row("thp_fallback", "pages", Better::Lower, Some(missed as f64)),
            row("thp_fail", "%", Better::Lower, percent(missed, got + missed)),
            row("hugealloc_mean", "us", Better::Lower, mean),
            row("hugealloc_stddev", "us", Better::Lower, spread.map(f64::sqrt)),
        ];
        let rounds = state.mixing.windows(2).map(|w| {
            let (a, b) = (w[0], w[1]);
            [b.steals - a.steals, b.claims - a.claims, b.mismatches - a.mismatches]
        });
        let rounds: Vec<[u64; 3]> = rounds.collect();
        let names = ["steals", "claims", "mismatches"];
        for (i, name) in names.into_iter().enumerate() {
            // The median over the rounds, as in A.3's column of fallbacks.
            let values: Vec<f64> = rounds.iter().map(|r| r[i] as f64).collect();
            let median = (!values.is_empty()).then(|| stats::median(&values));
            all.push(row(&format!("{name}_median"), "a round", Better::Lower, median));
        }
        for (number, round) in (1..).zip(&rounds) {
            for (name, &value) in names.iter().zip(round) {
                all.push(row(&format!("{name}-{number}"), "", Better::Lower, Some(value as f64)));
            }
        }
        all
    }
}
