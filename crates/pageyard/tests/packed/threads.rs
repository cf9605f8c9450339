//! Several threads: no frame has two owners, none is lost, and exactly one of several frees of one
//! block succeeds.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::thread;

use crate::*;

const FRAMES: u32 = 1 << 15;

/// The owner of each frame, swapped when ownership begins and when it ends.
struct Owners(Vec<AtomicU8>);

impl Owners {
    fn new() -> Self {
        Owners((0..FRAMES).map(|_| AtomicU8::new(0)).collect())
    }

    fn set(&self, (pfn, order): (Pfn, Order), to: u8) {
        for frame in pfn.0..pfn.0 + u64::from(order.pages()) {
            let was = self.0[frame as usize].swap(to, SeqCst);
            assert_eq!(was, 1 - to, "frame {frame}");
        }
    }
}

/// Allocates and frees at random on one CPU; passes some blocks to other threads.
fn work(
    region: &R<'_>,
    owners: &Owners,
    pool: &Mutex<Vec<(Pfn, Order)>>,
    on: usize,
    limit: u32,
    seed: u64,
    steps: u32,
) {
    let mut numbers = Numbers(seed);
    let mut held: Vec<(Pfn, Order)> = vec![];
    let mut pages = 0;
    let mut pinned = None;
    let free = |block: (Pfn, Order),
                pinned: &mut Option<pageyard::packed::Pinned<'_, '_, Lock>>| {
        owners.set(block, 0);
        match pinned {
            Some(pinned) => pinned.free(block.0, block.1),
            None => region.free(cpu(on), block.0, block.1),
        }
        .unwrap();
    };
    for step in 0..steps {
        // The CPU is pinned half of the time.
        if step % 1000 == 0 {
            pinned = if numbers.below(2) == 0 { region.pin(cpu(on)) } else { None };
        }
        if let Some(pinned) = &mut pinned
            && step % 100 == 0
        {
            pinned.poll();
        }
        let goal = if numbers.below(2) == 0 { limit } else { limit / 2 };
        if pages < goal && (held.is_empty() || numbers.below(4) != 0) {
            let (order, t) = (o(numbers.order()), TYPES[numbers.below(3)]);
            let block = match &mut pinned {
                Some(pinned) => pinned.alloc(order, t),
                None => region.alloc(cpu(on), order, t),
            };
            if let Some(pfn) = block {
                owners.set((pfn, order), 1);
                held.push((pfn, order));
                pages += order.pages();
            }
        } else if !held.is_empty() {
            let block = held.swap_remove(numbers.below(held.len()));
            pages -= block.1.pages();
            if numbers.below(8) == 0 {
                let mut pool = pool.lock().unwrap();
                pool.push(block);
                if pool.len() > 8 {
                    let n = numbers.below(pool.len());
                    let other = pool.swap_remove(n);
                    drop(pool);
                    free(other, &mut pinned);
                }
            } else {
                free(block, &mut pinned);
            }
        }
    }
    for block in held {
        free(block, &mut pinned);
    }
}

fn stress(cpus: usize, threads: usize, seed: u64, steps: u32) {
    let storage = Storage::new(FRAMES, cpus as u32, 2).unwrap();
    let region = full(&storage, FRAMES);
    let (owners, pool) = (Owners::new(), Mutex::new(vec![]));
    let left = AtomicUsize::new(threads);
    thread::scope(|s| {
        for n in 0..threads {
            let (region, owners, pool, left) = (&region, &owners, &pool, &left);
            // Together the threads use a little less or a little more than all memory.
            let limit = FRAMES / threads as u32 * if seed.is_multiple_of(2) { 3 } else { 5 } / 4;
            s.spawn(move || {
                work(region, owners, pool, n % cpus, limit, seed * 100 + n as u64, steps);
                left.fetch_sub(1, SeqCst);
            });
        }
        // Meanwhile isolates pageblocks, drains and ticks.
        let mut numbers = Numbers(seed);
        let mut isolated = vec![];
        while left.load(SeqCst) > 0 {
            let pfn = Pfn(numbers.below(FRAMES as usize) as u64 & !511);
            if region.isolate(pfn).is_ok() {
                isolated.push(pfn);
            }
            if isolated.len() > 6 {
                let pfn = isolated.remove(0);
                if region.free_in_block(pfn) == Some(512) {
                    for frame in pfn.0..pfn.0 + 512 {
                        assert_eq!(owners.0[frame as usize].load(SeqCst), 0, "frame {frame}");
                    }
                }
                region.unisolate(pfn).unwrap();
            }
            match numbers.below(20) {
                0 => region.tick(),
                1 => _ = region.drain(cpu(numbers.below(cpus))),
                2 => _ = region.drain_all(),
                _ => thread::yield_now(),
            }
        }
        for pfn in isolated {
            region.unisolate(pfn).unwrap();
        }
    });
    for block in pool.into_inner().unwrap() {
        owners.set(block, 0);
        region.free(cpu(0), block.0, block.1).unwrap();
    }
    assert_empty(&region, FRAMES);
}

#[test]
fn no_frame_has_two_owners_with_a_cpu_per_thread() {
    let seed = seed();
    for n in 0..4 {
        stress(4, 4, seed + n, 40_000);
    }
}

#[test]
fn no_frame_has_two_owners_with_threads_that_share_cpus() {
    let seed = seed();
    for n in 0..4 {
        stress(2, 5, seed + n, 30_000);
    }
}

#[test]
fn one_of_concurrent_frees_succeeds() {
    const THREADS: usize = 4;
    let storage = Storage::new(FRAMES, THREADS as u32, 2).unwrap();
    let region = full(&storage, FRAMES);
    let mut numbers = Numbers(seed());
    for _ in 0..200 {
        let blocks: Vec<_> = (0..64)
            .map(|_| {
                let order = o(numbers.order() % 10);
                (region.alloc(cpu(0), order, MigrateType::Movable).unwrap(), order)
            })
            .collect();
        let freed: Vec<_> = blocks.iter().map(|_| AtomicUsize::new(0)).collect();
        let go = AtomicBool::new(false);
        thread::scope(|s| {
            for n in 0..THREADS {
                let (region, blocks, freed, go) = (&region, &blocks, &freed, &go);
                s.spawn(move || {
                    while !go.load(SeqCst) {
                        std::hint::spin_loop();
                    }
                    for (block, freed) in blocks.iter().zip(freed) {
                        if region.free(cpu(n), block.0, block.1).is_ok() {
                            freed.fetch_add(1, SeqCst);
                        }
                    }
                });
            }
            go.store(true, SeqCst);
        });
        assert!(freed.iter().all(|n| n.load(SeqCst) == 1));
    }
    assert_empty(&region, FRAMES);
}

#[test]
fn pinned_cpus_drain_on_request() {
    let storage = Storage::new(FRAMES, 2, 2).unwrap();
    let region = full(&storage, FRAMES);
    let mut pinned = region.pin(cpu(0)).unwrap();
    assert!(region.pin(cpu(0)).is_none());
    let page = pinned.alloc(o(0), MigrateType::Movable).unwrap();
    // A request that names a pinned CPU goes to the zone.
    let other = region.alloc(cpu(0), o(0), MigrateType::Movable).unwrap();
    assert_ne!(page, other);
    region.free(cpu(0), other, o(0)).unwrap();
    pinned.free(page, o(0)).unwrap();
    assert!(!region.drain(cpu(0)), "the thread that pinned the CPU must drain it");
    assert!(region.whole_blocks() < u64::from(FRAMES) / 512);
    assert!(pinned.poll() && !pinned.poll());
    assert_eq!(region.whole_blocks(), u64::from(FRAMES) / 512);
    // Without a poll, the next refill drains.
    let page = pinned.alloc(o(0), MigrateType::Movable).unwrap();
    assert!(!region.drain(cpu(0)));
    let rest: Vec<_> =
        (0..200).map(|_| pinned.alloc(o(0), MigrateType::Movable).unwrap()).collect();
    assert!(!pinned.poll(), "a refill has drained already");
    for pfn in rest.into_iter().chain([page]) {
        pinned.free(pfn, o(0)).unwrap();
    }
    drop(pinned);
    assert_empty(&region, FRAMES);
}
