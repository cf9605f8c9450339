//! The measured patterns, run in the process of one contestant.

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::hint::{black_box, spin_loop};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use pageyard_bench::patterns::Rng;
use pageyard_host::{clock, cpu};

use crate::pages::Pages;

/// Results by pattern, one per run.
pub type Found = BTreeMap<String, Vec<f64>>;

/// The names of all timed patterns, in the order of the table, with descriptions.
pub const PATTERNS: [(&str, &str); 19] = [
    ("pair-4k", "a page taken and given back"),
    ("pair-4k-2t", "the same on two threads"),
    ("pair-4k-touch", "the same, a word of it written"),
    ("fault1", "128 MiB page by page, a word written in each, all given back; per page"),
    ("fault1-2t", "the same on two threads, 128 MiB each"),
    ("alloc-64k", "65,536 pages, one by one"),
    ("free-in-order", "given back in the same order"),
    ("free-random", "given back in random order"),
    ("alloc-again", "65,536 pages after that"),
    ("alloc-64k-2t", "the four on two threads, 32,768 pages each"),
    ("free-in-order-2t", ""),
    ("free-random-2t", ""),
    ("alloc-again-2t", ""),
    ("pair-16k", "16 KiB taken and given back"),
    ("pair-16k-2t", "the same on two threads"),
    ("replace-16k", "of 16,384 blocks of 16 KiB one at random given back and another taken"),
    ("pair-2m", "2 MiB taken and given back"),
    ("held-2m", "64 of 2 MiB taken, a word written in each, given back; per block"),
    ("pass-on", "taken by one thread, given back by another; wall time"),
];

/// Warm-up runs, which do not count.
const WARM: usize = 2;
const HELD: usize = 1 << 16;
const FAULTS: usize = 1 << 15;
const PASSED: usize = 1 << 18;
const PAIRS: usize = 100_000;

fn touch<P: Pages>(block: &P::Block) {
    // SAFETY: the block is the caller's, mapped and at least a page long.
    unsafe { P::start(block).cast::<u64>().as_ptr().write_volatile(1) };
}

fn pairs<P: Pages, const ORDER: u8, const TOUCH: bool>(pages: &P, n: usize) {
    for _ in 0..n {
        let block = pages.take::<ORDER>();
        black_box(P::start(&block));
        if TOUCH {
            touch::<P>(&block);
        }
        pages.give::<ORDER>(block);
    }
}

/// Nanoseconds of the thread's CPU time for each of `n` operations.
fn timed(n: usize, work: impl FnOnce()) -> f64 {
    let before = clock::thread();
    work();
    (clock::thread() - before) as f64 / n as f64
}

/// A barrier that spins instead of sleeping.
struct Gate(AtomicUsize, usize);

impl Gate {
    fn pass(&self) {
        let turn = self.0.fetch_add(1, std::sync::atomic::Ordering::AcqRel) / self.1 + 1;
        while self.0.load(Acquire) < turn * self.1 {
            spin_loop();
        }
    }
}

/// Runs `work` on threads of two CPUs at once. Returns the times of the slower one.
fn on_two(work: impl Fn(&Gate, u64) -> Vec<f64> + Sync) -> Vec<f64> {
    let (gate, cpus) = (Gate(AtomicUsize::new(0), 2), cpu::allowed().unwrap_or_default());
    std::thread::scope(|s| {
        let one = |n: usize| {
            let (gate, work, cpus) = (&gate, &work, &cpus);
            s.spawn(move || {
                if let Some(&cpu) = cpus.get(n) {
                    let _ = cpu::bind(&[cpu]);
                }
                // For contestants that are told the CPU.
                pageyard_bench::set_cpu(n as u32);
                gate.pass();
                work(gate, n as u64)
            })
        };
        let [a, b] = [one(0), one(1)].map(|t| t.join().expect("no panic"));
        a.iter().zip(&b).map(|(a, b)| a.max(*b)).collect()
    })
}

fn faults<P: Pages>(pages: &P, held: &mut Vec<P::Block>) -> f64 {
    timed(FAULTS, || {
        for _ in 0..FAULTS {
            let block = pages.take::<0>();
            touch::<P>(&block);
            held.push(block);
        }
        held.drain(..).for_each(|block| pages.give::<0>(block));
    })
}

/// A vector for `n` elements whose memory is already mapped.
fn room<T>(n: usize) -> Vec<T> {
    let mut room: Vec<T> = Vec::with_capacity(n);
    let bytes = room.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: within the memory just reserved, which holds no elements yet.
    unsafe { bytes.write_bytes(1, n * size_of::<T>()) };
    room
}

/// Allocates, frees in order, allocates, frees in random order, and allocates again.
fn singles<P: Pages>(pages: &P, n: usize, seed: u64, gate: &dyn Fn()) -> Vec<f64> {
    let mut held = room::<P::Block>(n);
    let take = |held: &mut Vec<P::Block>| {
        gate();
        timed(n, || (0..n).for_each(|_| held.push(pages.take::<0>())))
    };
    let give = |held: &mut Vec<P::Block>| {
        gate();
        timed(n, || held.drain(..).for_each(|block| pages.give::<0>(block)))
    };
    let first = take(&mut held);
    let in_order = give(&mut held);
    take(&mut held);
    Rng(seed).shuffle(&mut held);
    let at_random = give(&mut held);
    let again = take(&mut held);
    give(&mut held);
    vec![first, in_order, at_random, again]
}

/// A buffer pool whose frames are all in use: each miss gives one back and takes one.
fn replace<P: Pages>(pages: &P, seed: u64) -> f64 {
    const FRAMES: u64 = 1 << 14;
    let mut rng = Rng(seed);
    let mut held = room::<P::Block>(FRAMES as usize);
    (0..FRAMES).for_each(|_| held.push(pages.take::<2>()));
    let took = timed(PAIRS, || {
        for _ in 0..PAIRS {
            let at = (rng.number() % FRAMES) as usize;
            pages.give::<2>(held.swap_remove(at));
            held.push(pages.take::<2>());
        }
    });
    held.drain(..).for_each(|block| pages.give::<2>(block));
    took
}

/// A ring that one thread fills and another empties.
struct Ring<T> {
    slots: Vec<UnsafeCell<MaybeUninit<T>>>,
    filled: Padded,
    emptied: Padded,
}

#[repr(align(128))]
struct Padded(AtomicU64);

// SAFETY: a slot belongs to the filling thread until `filled` passes it, then to the other thread
// until `emptied` does.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn new() -> Self {
        let slots = (0..1024).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Ring { slots, filled: Padded(AtomicU64::new(0)), emptied: Padded(AtomicU64::new(0)) }
    }

    /// Fills `n` slots from `at` on, then publishes them.
    fn put(&self, at: u64, n: u64, value: impl Fn() -> T) {
        while at + n - self.emptied.0.load(Acquire) > self.slots.len() as u64 {
            spin_loop();
        }
        for at in at..at + n {
            // SAFETY: see `Sync`; only one thread puts.
            unsafe { (*self.slots[at as usize % self.slots.len()].get()).write(value()) };
        }
        self.filled.0.store(at + n, Release);
    }

    /// Empties `n` slots once they are full.
    fn get(&self, at: u64, n: u64, mut each: impl FnMut(T)) {
        while self.filled.0.load(Acquire) < at + n {
            spin_loop();
        }
        for at in at..at + n {
            // SAFETY: see `Sync`; only one thread gets, each slot once.
            let slot = unsafe { &*self.slots[at as usize % self.slots.len()].get() };
            // SAFETY: it was filled, and is read once.
            each(unsafe { slot.assume_init_read() });
        }
        self.emptied.0.store(at + n, Release);
    }
}

/// Pages published at once, so that passing them on costs little.
const TOGETHER: u64 = 32;

fn pass_on<P: Pages>(pages: &P) -> f64 {
    let ring = Ring::<P::Block>::new();
    let took = on_two(|gate, me| {
        gate.pass();
        let start = Instant::now();
        for at in (0..PASSED as u64).step_by(TOGETHER as usize) {
            match me {
                0 => ring.put(at, TOGETHER, || pages.take::<0>()),
                _ => ring.get(at, TOGETHER, |block| pages.give::<0>(block)),
            }
        }
        vec![start.elapsed().as_nanos() as f64 / PASSED as f64]
    });
    took[0]
}

/// Resident memory of the process in MiB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = text.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0.0);
    pages * 4096.0 / f64::from(1 << 20)
}

/// Resident memory in MiB after 256 MiB were written and freed: at once and after two seconds.
fn kept<P: Pages>(pages: &P) -> (f64, f64) {
    let mut held = room::<P::Block>(HELD);
    let before = resident();
    for _ in 0..HELD {
        let block = pages.take::<0>();
        touch::<P>(&block);
        held.push(block);
    }
    held.drain(..).for_each(|block| pages.give::<0>(block));
    let now = resident() - before;
    std::thread::sleep(Duration::from_secs(2));
    (now.max(0.0), (resident() - before).max(0.0))
}

/// Runs every pattern that the contestant supports and whose name contains `only`, `times` times.
pub fn run<P: Pages>(pages: &P, only: &str, times: usize, does: fn(&str) -> bool) -> Found {
    let mut found = Found::new();
    let wanted = |name: &str| name.contains(only) && does(name);
    if wanted("kept") {
        // First, while nothing is allocated.
        let (now, later) = kept(pages);
        found.insert("kept at once, MiB".into(), vec![now]);
        found.insert("kept after 2 s, MiB".into(), vec![later]);
    }
    let mut again = |names: &[&str], run: &mut dyn FnMut(u64) -> Vec<f64>| {
        if !names.iter().any(|n| wanted(n)) {
            return;
        }
        for time in 0..times + WARM {
            let values = run(time as u64);
            for (name, value) in names.iter().zip(values).filter(|_| time >= WARM) {
                found.entry((*name).to_owned()).or_default().push(value);
            }
        }
    };
    again(&["pair-4k"], &mut |_| vec![timed(PAIRS, || pairs::<P, 0, false>(pages, PAIRS))]);
    again(&["pair-4k-2t"], &mut |_| {
        on_two(|_, _| vec![timed(PAIRS, || pairs::<P, 0, false>(pages, PAIRS))])
    });
    again(&["pair-4k-touch"], &mut |_| {
        vec![timed(PAIRS / 10, || pairs::<P, 0, true>(pages, PAIRS / 10))]
    });
    again(&["fault1"], &mut |_| vec![faults(pages, &mut room(FAULTS))]);
    again(&["fault1-2t"], &mut |_| {
        on_two(|gate, _| {
            let mut held = room(FAULTS);
            gate.pass();
            vec![faults(pages, &mut held)]
        })
    });
    let four = ["alloc-64k", "free-in-order", "free-random", "alloc-again"];
    again(&four, &mut |seed| singles(pages, HELD, seed, &|| ()));
    let two = ["alloc-64k-2t", "free-in-order-2t", "free-random-2t", "alloc-again-2t"];
    again(&two, &mut |seed| {
        on_two(|gate, n| singles(pages, HELD / 2, 2 * seed + n, &|| gate.pass()))
    });
    again(&["pair-16k"], &mut |_| vec![timed(PAIRS, || pairs::<P, 2, false>(pages, PAIRS))]);
    again(&["pair-16k-2t"], &mut |_| {
        on_two(|_, _| vec![timed(PAIRS, || pairs::<P, 2, false>(pages, PAIRS))])
    });
    again(&["replace-16k"], &mut |seed| vec![replace(pages, seed)]);
    let huge = PAIRS / 20;
    again(&["pair-2m"], &mut |_| vec![timed(huge, || pairs::<P, 9, false>(pages, huge))]);
    again(&["held-2m"], &mut |_| {
        let mut held = room::<P::Block>(64);
        vec![timed(640, || {
            for _ in 0..10 {
                for _ in 0..64 {
                    let block = pages.take::<9>();
                    touch::<P>(&block);
                    held.push(block);
                }
                held.drain(..).for_each(|block| pages.give::<9>(block));
            }
        })]
    });
    let locks = pages.shared_locks();
    again(&["pass-on"], &mut |_| vec![pass_on(pages)]);
    if let (Some(before), Some(after)) = (locks, pages.shared_locks())
        && after > before
    {
        let passed = ((times + WARM) * PASSED) as f64;
        found.insert("pages per zone lock".into(), vec![passed / (after - before) as f64]);
    }
    found
}
