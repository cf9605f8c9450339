//! A platform for tests with threads of their own: each is a CPU.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::any::{SharedHooks, shared_hooks};
use super::random::Random;
use pageyard::{Config, CpuId, Defences, Gfp, Observer, Order, Platform, Reclaim, Yard};

thread_local! {
    /// The CPU of this thread.
    pub(crate) static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Hooks of a platform whose threads run each on the CPU that it stored in `CPU`.
pub(crate) type ByThread = SharedHooks<'static>;

pub(crate) fn by_thread() -> ByThread {
    shared_hooks(Threads)
}

struct Threads;

impl Platform for Threads {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Reclaim for Threads {}
impl Observer for Threads {}
impl Defences for Threads {}

/// Allocates and frees blocks as this CPU, in each of the ways to free, until told to stop. Calls
/// `also` with a random number after each step.
pub(crate) fn churn<C: Config>(
    y: &Yard<'_, C>,
    cpu: u32,
    stop: &AtomicBool,
    mut also: impl FnMut(usize),
) {
    CPU.set(cpu);
    let mut random = Random(cpu.into());
    let mut held = Vec::new();
    while !stop.load(Relaxed) {
        let pick = random.next();
        if pick & 1 == 0 && held.len() < 600 {
            let order = Order::new([0, 0, 0, 0, 1, 3, 4, 9][pick >> 1 & 7]).unwrap();
            held.extend(y.alloc(order, Gfp::KERNEL).ok().map(|p| (p, order)));
        } else if !held.is_empty() {
            let (p, order) = held.swap_remove(pick % held.len());
            match pick >> 20 & 3 {
                0 => y.free_batch(&[(p, order)]).unwrap(),
                1 => y.free_direct(p, order).unwrap(),
                _ => y.free(p, order).unwrap(),
            }
        }
        also(pick);
    }
    held.into_iter().for_each(|(p, order)| y.free(p, order).unwrap());
}
