//! Threads that use a yard, small enough for Miri (`scripts/miri.sh`), which runs them with many
//! seeds.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pageyard::policy::{Linux612, Packed, Policy, StaticPolicy};
use pageyard::{Gfp, Order};
use pageyard_host::{Block, Builder, HostYard, HugePages, Limits, SystemFiles, ThreadCache};

const MIB: u64 = 1 << 20;
const ONE: Order = Order::ZERO;
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
/// Rounds of each thread.
const ROUNDS: u32 = if cfg!(miri) { 3 } else { 300 };

/// Uses nothing of the system but memory.
fn yard<P: StaticPolicy + Send + Sync + 'static>(front: ThreadCache) -> HostYard<P> {
    let b = Builder::new(8 * MIB).system(SystemFiles::none()).publish(false).cpus([0]);
    let b = b.huge_pages(HugePages::System).thread_cache(front).give_back(None).tick(None);
    b.build_with().unwrap()
}

fn is_of<P: Policy>(block: &Block<'_, P>, mark: u8) -> bool {
    (0..block.len()).step_by(1024).all(|at| block[at] == mark)
}

fn mark<P: Policy>(block: &mut Block<'_, P>, mark: u8) {
    (0..block.len()).step_by(1024).for_each(|at| block[at] = mark);
}

/// Asserts that all memory is free and the yard is valid.
fn is_empty<P: Policy>(yard: &HostYard<P>) {
    yard.drain();
    yard.validate().unwrap();
    let zone = yard.zones().next().unwrap();
    let info = yard.zone_info(zone).unwrap();
    assert_eq!((info.free_exact, info.cached), (info.managed, 0));
}

/// Two threads allocate blocks while a third one drains their caches.
fn threads<P: StaticPolicy + Send + Sync + 'static>(front: ThreadCache) {
    let yard = yard::<P>(front);
    let working = AtomicU32::new(2);
    std::thread::scope(|s| {
        for n in 1..=2 {
            let (yard, working) = (&yard, &working);
            s.spawn(move || {
                for round in 0..ROUNDS {
                    let mut held: Vec<Block<'_, P>> = Vec::new();
                    for k in 0..4 {
                        let zero = k == 0;
                        let gfp = if zero { GFP | Gfp::ZERO } else { GFP };
                        let mut block = yard.alloc(ONE, gfp).expect("memory is left");
                        assert!(!zero || is_of(&block, 0), "a page requested as zeroed");
                        mark(&mut block, n);
                        held.push(block);
                    }
                    if round % 2 == 0 {
                        let mut large =
                            yard.alloc(Order::new(3).unwrap(), GFP).expect("memory is left");
                        mark(&mut large, n);
                        assert!(is_of(&large, n), "a block has two owners");
                    }
                    assert!(held.iter().all(|b| is_of(b, n)), "a page has two owners");
                }
                working.fetch_sub(1, Relaxed);
            });
        }
        s.spawn(|| {
            while working.load(Relaxed) > 0 {
                yard.drain();
                yard.tick();
                yard.set_limits(Limits { hard: Some(1200), soft: None }).unwrap();
                std::thread::yield_now();
                yard.set_limits(Limits::default()).unwrap();
            }
        });
    });
    is_empty(&yard);
}

#[test]
fn threads_with_a_cache_own_their_blocks() {
    threads::<Packed>(ThreadCache::Auto);
    threads::<Linux612>(ThreadCache::Auto);
}

#[test]
fn threads_without_a_cache_own_their_blocks() {
    threads::<Packed>(ThreadCache::Off);
    threads::<Linux612>(ThreadCache::Off);
}

#[test]
fn a_block_may_be_freed_on_another_thread() {
    fn run<P: StaticPolicy + Send + Sync + 'static>() {
        let yard = yard::<P>(ThreadCache::Auto);
        let mut blocks: Vec<_> = (0..4).map(|_| yard.alloc(ONE, GFP).unwrap()).collect();
        blocks.iter_mut().for_each(|b| mark(b, 7));
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(blocks.iter().all(|b| is_of(b, 7)));
                blocks.clear();
            });
        });
        is_empty(&yard);
    }
    run::<Packed>();
    run::<Linux612>();
}

#[test]
fn a_movable_block_keeps_its_bytes() {
    fn run<P: StaticPolicy + Send + Sync + 'static>() {
        let yard = yard::<P>(ThreadCache::Auto);
        let movable = yard.alloc_movable(ONE, GFP).unwrap();
        movable.lock()[..4].copy_from_slice(b"here");
        std::thread::scope(|s| {
            s.spawn(|| yard.compact());
            assert_eq!(movable.lock()[..4], *b"here");
        });
        assert_eq!(movable.lock()[..4], *b"here");
        drop(movable);
        is_empty(&yard);
    }
    run::<Packed>();
    run::<Linux612>();
}
