//! The costs of cache lines and locks on the host's processor alone.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::cache::LINE;

/// Returns the best of several rounds of `times` operations each, in picoseconds per operation. The
/// best is used because others may share the host.
fn best(rounds: u32, times: u64, mut round: impl FnMut(u64)) -> u64 {
    let one = |_| {
        let start = Instant::now();
        round(times);
        (start.elapsed().as_nanos() * 1000) as u64 / times
    };
    (0..rounds).map(one).min().unwrap_or(0)
}

pub(super) fn lock_pair() -> u64 {
    let lock = AtomicBool::new(false);
    best(20, 100_000, |times| {
        for _ in 0..times {
            black_box(&lock).swap(true, Ordering::Acquire);
            black_box(&lock).store(false, Ordering::Release);
        }
    })
}

/// Returns the CPUs that this process may use.
pub(super) fn cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&c| set.is_set(c)).collect()
}

fn bind(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // If binding is not allowed, the measurement is of the CPU on which the thread runs.
    let _ = sched_setaffinity(None, &set);
}

/// Returns the one-way transfer time of a line between two CPUs.
pub(super) fn transfer(a: usize, b: usize) -> u64 {
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
                // On a separate thread, so that the caller's thread is not bound.
                let _ = s.spawn(|| side(a, 0)).join();
                other.join().unwrap_or(0)
            })
        })
        .min()
        .unwrap_or(0)
        * 1000
        / u64::from(2 * TURNS)
}

/// Measures zeroing a line, page after page, in a buffer of `bytes` bytes.
pub(super) fn clear(bytes: u64) -> u64 {
    let mut memory = vec![1u8; bytes as usize];
    let pages = bytes / 4096;
    let times = pages.max(10_000) / pages * pages;
    let page = best(10, times, |times| {
        for _ in 0..times / pages {
            for page in memory.chunks_exact_mut(4096) {
                page.fill(0);
                black_box(page);
            }
        }
    });
    page / (4096 / LINE)
}

/// Measures changing a word of each line, one line after the other, in a buffer of `bytes` bytes.
pub(super) fn stream(bytes: u64) -> u64 {
    let mut memory = vec![1u64; bytes as usize / 8];
    let lines = bytes / LINE;
    let times = lines.max(100_000) / lines * lines;
    best(10, times, |times| {
        for _ in 0..times / lines {
            for line in memory.chunks_exact_mut(LINE as usize / 8) {
                line[0] = line[0].wrapping_add(1);
            }
            black_box(&mut memory);
        }
    })
}

/// Measures following a chain through memory in random order, one line after the other. The chain
/// covers one part after the other. Each part is small enough for the processor's address
/// translation caches, so that lines are measured and not page tables.
pub(super) fn chase(bytes: u64) -> u64 {
    const PART: usize = (2 << 20) / LINE as usize;
    let mut rng = crate::rng::Rng::new(1);
    let mut order: Vec<usize> = (0..(bytes / LINE) as usize).collect();
    for part in order.chunks_mut(PART) {
        for i in (1..part.len()).rev() {
            part.swap(i, rng.below(i as u64 + 1) as usize);
        }
    }
    follow(&order)
}

/// Measures following a chain through memory in order.
pub(super) fn walk(bytes: u64) -> u64 {
    follow(&(0..(bytes / LINE) as usize).collect::<Vec<_>>())
}

/// Follows a chain of lines in this order; each line names the next one.
fn follow(order: &[usize]) -> u64 {
    const WORDS: usize = LINE as usize / 8;
    let lines = order.len();
    let mut memory = vec![0u64; lines * WORDS];
    for (i, &line) in order.iter().enumerate() {
        memory[line * WORDS] = (order[(i + 1) % lines] * WORDS) as u64;
    }
    let mut at = 0;
    best(5, 200_000.max(lines as u64), |times| {
        for _ in 0..times {
            at = memory[at] as usize;
        }
        black_box(at);
    })
}
