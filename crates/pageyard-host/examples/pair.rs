//! Costs of hot pairs, in nanoseconds: the lock, another lock, the current CPU, and a page. Best of
//! many rounds; to compare, not to quote.

use std::hint::black_box;
use std::time::Instant;

use pageyard::{Gfp, Order};
use pageyard_host::{Builder, HostLock, HostYard, RawYard, ThreadCache, cpu};

fn best(name: &str, mut one: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let round = |_| {
        let start = Instant::now();
        (0..TIMES).for_each(|_| one());
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    let least = (0..30).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:24} {least:6.2}");
}

/// Allocates and frees an owned block.
#[inline(always)]
fn pair(yard: &HostYard, order: Order, gfp: Gfp) {
    let block = yard.alloc(order, gfp).expect("there is memory");
    black_box(block.as_ptr());
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("restartable sequences    {:>6}", if cpu::is_registered() { "yes" } else { "no" });
    best("current CPU", || {
        black_box(cpu::current());
    });
    let lock = lock_api::Mutex::<HostLock, u32>::new(0);
    best("lock, try and release", || {
        if let Some(mut n) = lock.try_lock() {
            *n += 1;
        }
    });
    let other = std::sync::Mutex::new(0u32);
    best("std's, try and release", || {
        if let Ok(mut n) = other.try_lock() {
            *n += 1;
        }
    });
    let yard: RawYard = Builder::new(64 << 20).build_raw(())?;
    best("page by number", || {
        let pfn = black_box(yard.alloc(Order::ZERO, Gfp::KERNEL)).unwrap();
        yard.free(pfn, Order::ZERO).unwrap();
    });
    let yard = Builder::new(1 << 30).tick(None).build()?;
    best("page as a block", || {
        pair(&yard, Order::ZERO, Gfp::KERNEL);
    });
    best("2 MiB as a block", || {
        pair(&yard, Order::new(9).unwrap(), Gfp::KERNEL);
    });
    best("page, zeroed", || {
        pair(&yard, Order::ZERO, Gfp::KERNEL | Gfp::ZERO);
    });
    let bare = Builder::new(64 << 20).thread_cache(ThreadCache::Off).build()?;
    best("page as a block, no front", || {
        pair(&bare, Order::ZERO, Gfp::KERNEL);
    });
    let yard: RawYard = Builder::new(64 << 20).build_raw(())?;
    best("page, zeroed by words", || {
        let pfn = black_box(yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::ZERO)).unwrap();
        yard.free(pfn, Order::ZERO).unwrap();
    });
    Ok(())
}
