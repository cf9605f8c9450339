//! Measuring what can be measured of the [costs](crate::costs) on the machine at hand.
//!
//! The results are printed beside the table; the table is not changed by them.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::costs::{Costs, TABLE};

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// What.
    pub name: String,
    /// The costs of the table that it stands beside; their sum is what it measures.
    pub beside: &'static [&'static str],
    /// In picoseconds.
    pub ps: u64,
}

/// The best of several rounds, each so many times: others may use the host too.
fn best(rounds: u32, times: u64, mut round: impl FnMut(u64)) -> u64 {
    let one = |_| {
        let start = Instant::now();
        round(times);
        (start.elapsed().as_nanos() * 1000) as u64 / times
    };
    (0..rounds).map(one).min().unwrap_or(0)
}

fn lock_pair() -> u64 {
    let lock = AtomicBool::new(false);
    best(20, 100_000, |times| {
        for _ in 0..times {
            black_box(&lock).swap(true, Ordering::Acquire);
            black_box(&lock).store(false, Ordering::Release);
        }
    })
}

/// The CPUs that this process may use.
fn cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&c| set.is_set(c)).collect()
}

fn bind(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Where that is not allowed, the measurement is of wherever the thread runs.
    let _ = sched_setaffinity(None, &set);
}

/// One way of a line between two CPUs.
fn transfer(a: usize, b: usize) -> u64 {
    const TURNS: u32 = 20_000;
    let turn = AtomicU32::new(0);
    let side = |cpu: usize, mine: u32| {
        bind(cpu);
        let start = Instant::now();
        for n in 0..TURNS {
            while turn.load(Ordering::Acquire) != 2 * n + mine {
                std::hint::spin_loop();
            }
            turn.store(2 * n + mine + 1, Ordering::Release);
        }
        start.elapsed().as_nanos() as u64
    };
    (0..5)
        .map(|_| {
            turn.store(0, Ordering::Relaxed);
            std::thread::scope(|s| {
                let other = s.spawn(|| side(b, 1));
                // On a thread of its own, so that the caller's is not bound.
                let _ = s.spawn(|| side(a, 0)).join();
                other.join().unwrap_or(0)
            })
        })
        .min()
        .unwrap_or(0)
        * 1000
        / u64::from(2 * TURNS)
}

/// Zeroing pages, one after the other, of so many bytes again and again.
fn clear(bytes: usize, rounds: u32) -> u64 {
    let mut memory = vec![1u8; bytes];
    let pages = (bytes / 4096) as u64;
    let times = pages.max(10_000) / pages * pages;
    best(rounds, times, |times| {
        for _ in 0..times / pages {
            for page in memory.chunks_exact_mut(4096) {
                page.fill(0);
                black_box(page);
            }
        }
    })
}

/// Following a chain through memory in random order: one line after the other.
fn chase(bytes: usize) -> u64 {
    const WORDS: usize = 64 / 8;
    let lines = bytes / 64;
    let mut rng = crate::rng::Rng::new(1);
    let mut order: Vec<usize> = (0..lines).collect();
    for i in (1..lines).rev() {
        order.swap(i, rng.below(i as u64 + 1) as usize);
    }
    let mut memory = vec![0u64; lines * WORDS];
    for (i, &line) in order.iter().enumerate() {
        memory[line * WORDS] = (order[(i + 1) % lines] * WORDS) as u64;
    }
    let mut at = 0;
    best(5, 200_000.max(lines as u64 / 4), |times| {
        for _ in 0..times {
            at = memory[at] as usize;
        }
        black_box(at);
    })
}

/// Everything; takes some seconds.
pub fn calibrate() -> Vec<Measured> {
    let row = |name: &str, beside, ps| Measured { name: name.into(), beside, ps };
    let mut rows = vec![row("lock pair", &["lock", "unlock"] as &[_], lock_pair())];
    let cpus = cpus();
    if let [a, .., b] = cpus[..] {
        let name = format!("line from CPU {a} to {b}");
        rows.push(row(&name, &["transfer_complex"], transfer(a, b)));
    }
    rows.push(row("line, random, of 256K", &["private_hit"], chase(256 << 10)));
    rows.push(row("line, random, of 256M", &["memory"], chase(256 << 20)));
    rows.push(row("line of a page cleared, of 128K", &["clear_hit"], clear(128 << 10, 20) / 64));
    rows.push(row("line of a page cleared, of 256M", &["clear_miss"], clear(256 << 20, 5) / 64));
    rows
}

/// Costs with what was measured in place of what the table has; a sum of several is shared out as
/// the table has it.
pub fn apply(rows: &[Measured], costs: &Costs) -> Costs {
    let mut applied = costs.clone();
    for row in rows {
        let named = || TABLE.iter().filter(|c| row.beside.contains(&c.name));
        let sum: u64 = named().map(|c| (c.get)(costs)).sum();
        for cost in named().filter(|_| sum > 0) {
            (cost.set)(&mut applied, (cost.get)(costs) * row.ps / sum);
        }
    }
    applied
}

/// Measurements beside the table.
#[derive(Clone, Debug)]
pub struct Report<'c> {
    /// What was measured.
    pub rows: Vec<Measured>,
    /// The table.
    pub costs: &'c Costs,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:34} {:>12} {:>12}  cost", "measured here", "ps", "table, ps")?;
        for row in &self.rows {
            let of =
                |name: &&str| TABLE.iter().find(|c| c.name == *name).map(|c| (c.get)(self.costs));
            let table: u64 = row.beside.iter().filter_map(of).sum();
            let names = row.beside.join(" + ");
            writeln!(f, "{:34} {:>12} {table:>12}  {names}", row.name, row.ps)?;
        }
        Ok(())
    }
}
