//! The measured usage patterns.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::contestants::{CPUS, Contestant};

/// The timed operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Allocates a block of this order (0, 3 or 9) and frees it at once.
    Pair(u8),
    /// Allocates single frames and keeps all of them.
    Alloc,
    /// Frees single frames in the order of their allocation.
    FreeInOrder,
    /// Frees single frames in random order.
    FreeAtRandom,
    /// Allocates single frames again that were freed in random order.
    Again,
    /// One thread allocates single frames, the other one frees them.
    PassOn,
}

/// A shape and the number of threads that run it concurrently, each on its own CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Name in tables.
    pub name: &'static str,
    /// The timed operation.
    pub shape: Shape,
    /// Number of threads, at most [`CPUS`].
    pub threads: usize,
    /// Whether the pattern is part of the timed comparison. The others are for instruction counts
    /// only.
    pub timed: bool,
}

/// Number of frames held at once, by all threads together.
pub const HELD: usize = 1 << 16;

const fn pattern(name: &'static str, shape: Shape, threads: usize, timed: bool) -> Pattern {
    Pattern { name, shape, threads, timed }
}

/// All patterns, in the order of the tables.
pub const PATTERNS: [Pattern; 13] = [
    pattern("pair-4k", Shape::Pair(0), 1, true),
    pattern("pair-4k-2t", Shape::Pair(0), 2, true),
    pattern("alloc-64k", Shape::Alloc, 1, true),
    pattern("alloc-64k-2t", Shape::Alloc, 2, true),
    pattern("free-in-order", Shape::FreeInOrder, 1, true),
    pattern("free-random", Shape::FreeAtRandom, 1, true),
    pattern("free-in-order-2t", Shape::FreeInOrder, 2, true),
    pattern("free-random-2t", Shape::FreeAtRandom, 2, true),
    pattern("again", Shape::Again, 1, true),
    pattern("again-2t", Shape::Again, 2, true),
    pattern("pass-on", Shape::PassOn, 2, true),
    pattern("pair-32k", Shape::Pair(3), 1, false),
    pattern("pair-2m", Shape::Pair(9), 1, true),
];

/// Runs `count` pairs. Not inlined, so that callgrind reports it separately.
#[inline(never)]
pub fn measured_pairs<A: Contestant, const ORDER: u8>(a: &A, count: usize) {
    for _ in 0..count {
        let block = black_box(a.alloc(ORDER));
        a.free(block, ORDER);
    }
}

/// Fills `held` with single frames. Not inlined, as above.
#[inline(never)]
pub fn measured_allocs<A: Contestant>(a: &A, held: &mut [usize]) {
    for slot in held {
        *slot = a.alloc(0);
    }
}

/// Frees these single frames. Not inlined, as above.
#[inline(never)]
pub fn measured_frees<A: Contestant>(a: &A, held: &[usize]) {
    for &block in held {
        a.free(block, 0);
    }
}

/// A small deterministic generator (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Shuffles a slice.
    pub fn shuffle<T>(&mut self, slice: &mut [T]) {
        for i in (1..slice.len()).rev() {
            slice.swap(i, (self.number() % (i as u64 + 1)) as usize);
        }
    }
}

/// Returns the CPU time of this thread.
fn cpu_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec as u32)
}

/// Pins this thread to the `n`-th CPU it may use, so that two threads run on different CPUs. If
/// pinning fails, the scheduler decides.
fn pin(n: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    if let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|&c| allowed.is_set(c)).nth(n) {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}

/// A spinning barrier, so that all threads continue at the same moment.
struct Gate {
    threads: usize,
    came: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        let me = self.came.fetch_add(1, Ordering::AcqRel);
        let all = (me / self.threads + 1) * self.threads;
        while self.came.load(Ordering::Acquire) < all {
            spin_loop();
        }
    }
}

/// Slots of a ring.
const SLOTS: usize = 1024;

/// A queue from one thread to another. The same for all contestants, and its cost is in all rows.
struct Ring {
    slots: Vec<AtomicUsize>,
    pushed: Line,
    popped: Line,
}

/// A counter on a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

impl Ring {
    fn new() -> Ring {
        let slots = (0..SLOTS).map(|_| AtomicUsize::new(0)).collect();
        Ring { slots, pushed: Line::default(), popped: Line::default() }
    }

    fn push(&self, block: usize) {
        let n = self.pushed.0.load(Ordering::Relaxed);
        while n - self.popped.0.load(Ordering::Acquire) >= SLOTS {
            spin_loop();
        }
        self.slots[n % SLOTS].store(block, Ordering::Relaxed);
        self.pushed.0.store(n + 1, Ordering::Release);
    }

    fn pop(&self) -> usize {
        let n = self.popped.0.load(Ordering::Relaxed);
        while self.pushed.0.load(Ordering::Acquire) <= n {
            spin_loop();
        }
        let block = self.slots[n % SLOTS].load(Ordering::Relaxed);
        self.popped.0.store(n + 1, Ordering::Release);
        block
    }
}

/// A thread's start time, wall time and CPU time.
struct Timing {
    start: Instant,
    wall: Duration,
    cpu: Duration,
}

fn timed(work: impl FnOnce()) -> Timing {
    let (start, cpu) = (Instant::now(), cpu_time());
    work();
    Timing { cpu: cpu_time() - cpu, wall: start.elapsed(), start }
}

/// The result of one run of a pattern.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// CPU time of the slowest thread, in ns per operation. A pair is one operation.
    pub ns: f64,
    /// Whether all threads started together and none lost its CPU, so that they ran in parallel.
    pub undisturbed: bool,
}

impl Sample {
    fn of(all: &[Timing], count: usize) -> Sample {
        let cpu = all.iter().map(|t| t.cpu).max().unwrap_or_default();
        let first = all.iter().map(|t| t.start).min();
        let undisturbed = all.iter().all(|t| {
            let late = first.map_or(Duration::ZERO, |first| t.start - first);
            // A tolerance of 10%, for clocks and interrupts.
            t.wall <= t.cpu.mul_f64(1.1) && late <= t.cpu.mul_f64(0.1)
        });
        Sample { ns: cpu.as_nanos() as f64 / count as f64, undisturbed }
    }
}

impl Pattern {
    /// Runs the pattern once on every thread; pair patterns run `pairs` pairs. Frees all frames
    /// before it returns.
    pub fn run<A: Contestant>(&self, a: &A, pairs: usize, seed: u64) -> Sample {
        assert!(self.threads <= CPUS, "the gate would wait for threads that are not there");
        let gate = Gate { threads: self.threads, came: AtomicUsize::new(0) };
        let count = if matches!(self.shape, Shape::Pair(_)) { pairs } else { HELD / self.threads };
        let ring = Ring::new();
        let one = &|cpu: usize| {
            crate::set_cpu(cpu as u32);
            self.work(a, count, &mut Rng(seed + cpu as u64), &gate, &ring)
        };
        if self.threads == 1 {
            return Sample::of(&[one(0)], count);
        }
        std::thread::scope(|s| {
            let all: Vec<_> = (0..self.threads)
                .map(|cpu| {
                    s.spawn(move || {
                        pin(cpu);
                        one(cpu)
                    })
                })
                .collect();
            let all: Vec<_> = all.into_iter().map(|t| t.join().expect("no panic")).collect();
            Sample::of(&all, count)
        })
    }

    fn work<A: Contestant>(
        &self,
        a: &A,
        count: usize,
        rng: &mut Rng,
        gate: &Gate,
        ring: &Ring,
    ) -> Timing {
        if self.shape == Shape::PassOn {
            gate.pass();
            return match crate::cpu() {
                0 => timed(|| (0..count).for_each(|_| ring.push(a.alloc(0)))),
                _ => timed(|| (0..count).for_each(|_| a.free(ring.pop(), 0))),
            };
        }
        if let Shape::Pair(order) = self.shape {
            gate.pass();
            return timed(|| match order {
                0 => measured_pairs::<A, 0>(a, count),
                3 => measured_pairs::<A, 3>(a, count),
                _ => measured_pairs::<A, 9>(a, count),
            });
        }
        // Written once, so that the timed part takes no page faults on it.
        let mut held = vec![usize::MAX; count];
        if matches!(self.shape, Shape::Alloc | Shape::Again) {
            if self.shape == Shape::Again {
                held.fill_with(|| a.alloc(0));
                rng.shuffle(&mut held);
                held.iter().for_each(|&block| a.free(block, 0));
            }
            gate.pass();
            let timing = timed(|| measured_allocs(a, &mut held));
            // No thread frees while another still allocates.
            gate.pass();
            held.iter().for_each(|&block| a.free(block, 0));
            return timing;
        }
        held.fill_with(|| a.alloc(0));
        if self.shape == Shape::FreeAtRandom {
            rng.shuffle(&mut held);
        }
        gate.pass();
        timed(|| measured_frees(a, &held))
    }
}
