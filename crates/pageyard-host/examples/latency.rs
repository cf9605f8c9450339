//! Latency of requests under load: median, 99%, 99.99% and maximum. Prints measurements of this
//! machine; nothing is simulated.
//!
//!     cargo run --release -p pageyard-host --example latency [SECONDS [THREADS]]
//!
//! Every thread is measured, two per CPU unless THREADS is given. It holds up to its share of 512
//! MiB, allocates and frees blocks of several orders in random order, and writes to each page. If a
//! thread is preempted during a request, that time counts too: the maximum is the system's.

use std::error::Error;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use pageyard::{Gfp, Order, PAGE_SIZE};
use pageyard_host::{Block, Builder, HostYard, ThreadCache};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SIZE: u64 = 1 << 30;
/// Kinds of requests: name, order, and number per thousand requests.
const KINDS: [(&str, u8, u64); 3] = [("4 KiB", 0, 900), ("32 KiB", 3, 90), ("2 MiB", 9, 10)];

/// Latencies of alloc and free in nanoseconds, by kind.
struct Times([[Histogram<u64>; 2]; KINDS.len()]);

impl Times {
    fn new() -> Result<Times> {
        let one = || Histogram::new(3);
        let pair = || -> Result<_> { Ok([one()?, one()?]) };
        Ok(Times([pair()?, pair()?, pair()?]))
    }

    fn add(&mut self, other: &Times) -> Result<()> {
        for (to, from) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            to.add(from)?;
        }
        Ok(())
    }
}

fn work(yard: &HostYard, seed: u64, share: u64, end: Instant) -> Result<Times> {
    let mut times = Times::new()?;
    let mut held: Vec<(Block<'_>, usize)> = Vec::new();
    let (mut pages, mut draw) = (0, seed);
    let mut next = move || {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        draw >> 33
    };
    while Instant::now() < end {
        for _ in 0..256 {
            if pages < share && next() % 100 < 55 || held.is_empty() {
                let mut luck = next() % 1000;
                let of = |k: &&(&str, u8, u64)| {
                    let here = luck < k.2;
                    luck = luck.saturating_sub(k.2);
                    here
                };
                let found = KINDS.iter().find(of).unwrap_or(&KINDS[0]);
                let kind = KINDS.iter().position(|k| k.0 == found.0).unwrap_or(0);
                let order = Order::new(found.1).ok_or("no such order")?;
                let begin = Instant::now();
                let mut block = yard.alloc(order, Gfp::KERNEL)?;
                times.0[kind][0].record(begin.elapsed().as_nanos() as u64)?;
                block.chunks_mut(PAGE_SIZE as usize).for_each(|page| page[0] = 1);
                pages += u64::from(order.pages());
                held.push((block, kind));
            } else {
                let (block, kind) = held.swap_remove(next() as usize % held.len());
                pages -= u64::from(block.order().pages());
                let begin = Instant::now();
                drop(block);
                times.0[kind][1].record(begin.elapsed().as_nanos() as u64)?;
            }
        }
    }
    Ok(times)
}

fn run(front: ThreadCache, seconds: u64, threads: u64) -> Result<Times> {
    let yard = Builder::new(SIZE).thread_cache(front).prefault(true).build()?;
    let share = SIZE / PAGE_SIZE / 2 / threads;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut all = Times::new()?;
    std::thread::scope(|s| {
        let yard = &yard;
        let work = |n| s.spawn(move || work(yard, n, share, end));
        let threads: Vec<_> = (1..=threads).map(work).collect();
        threads.into_iter().try_for_each(|t| {
            let times = t.join().map_err(|_| "a thread panicked")??;
            all.add(&times)
        })
    })?;
    Ok(all)
}

fn main() -> Result<()> {
    let number = |n: usize, default: u64| {
        std::env::args().nth(n).map_or(Ok(default), |text| {
            let wrong = |e| format!("{text}: {e}; give SECONDS and THREADS as numbers above 0");
            text.parse::<u64>().map_err(wrong).map(|n| n.max(1))
        })
    };
    let cpus = std::thread::available_parallelism()?.get() as u64;
    let (seconds, threads) = (number(1, 10)?, number(2, 2 * cpus)?);
    // Two clock reads are part of every time below.
    let begin = Instant::now();
    (0..100_000).for_each(|_| _ = std::hint::black_box(Instant::now()));
    let clock = begin.elapsed().as_nanos() / 100_000;
    println!(
        "{threads} threads on {cpus} CPUs, {seconds} s each way; a look at the clock: {clock} ns\n"
    );
    println!("| ns | | requests | half | 99% | 99.99% | longest |");
    println!("|---|---|---|---|---|---|---|");
    for (name, front) in [("thread cache", ThreadCache::Auto), ("without", ThreadCache::Off)] {
        let times = run(front, seconds, threads)?;
        for ((kind, ..), pair) in KINDS.iter().zip(&times.0) {
            for (what, h) in ["take", "give back"].iter().zip(pair) {
                let at = |q| h.value_at_quantile(q);
                let (half, p99, p9999) = (at(0.5), at(0.99), at(0.9999));
                let (n, max) = (h.len(), h.max());
                println!("| {name} | {what} {kind} | {n} | {half} | {p99} | {p9999} | {max} |");
            }
        }
    }
    Ok(())
}
