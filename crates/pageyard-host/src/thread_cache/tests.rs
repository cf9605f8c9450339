use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Barrier, Mutex};

use super::*;

#[test]
fn a_nested_slow_path_leaves_the_outer_one_busy() {
    let outer = Busy::begin();
    assert!(outer.is_some());
    assert!(Busy::begin().is_none());
    assert!(BUSY.get(), "the outer slow path goes on");
    drop(outer);
    assert!(!BUSY.get());
}

/// An allocator that counts. Its pages have numbers and addresses, but no memory.
#[derive(Default)]
struct TestBackend {
    room: AtomicI64,
    /// How many pages a refill gets at most.
    most: AtomicUsize,
    allocated: AtomicUsize,
    freed: Mutex<Vec<(Kind, usize)>>,
    near: Mutex<(usize, usize)>,
}

const PAGE: usize = 4096;
const START: usize = 1 << 30;

fn address(page: usize) -> NonNull<u8> {
    NonNull::new(ptr::without_provenance_mut(START + page * PAGE)).unwrap()
}

fn page(block: Ready) -> usize {
    (block.start().addr().get() - START) / PAGE
}

impl CacheBackend for TestBackend {
    fn alloc(&self, _: Gfp, to: &mut [Option<Ready>]) -> usize {
        let n = to.len().min(self.most.load(Relaxed));
        for slot in &mut to[..n] {
            *slot = Some(Ready::new(address(self.allocated.fetch_add(1, Relaxed)), false));
        }
        n
    }

    fn free(&self, kind: Kind, blocks: &[Option<Ready>]) {
        let blocks = blocks.iter().flatten().map(|&b| (kind, page(b)));
        self.freed.lock().unwrap().extend(blocks);
    }

    fn room(&self) -> i64 {
        self.room.load(Relaxed)
    }

    fn near(&self) -> (usize, usize) {
        *self.near.lock().unwrap()
    }
}

impl TestBackend {
    /// Returns the blocks freed since the last call.
    fn freed(&self) -> Vec<(Kind, usize)> {
        std::mem::take(&mut *self.freed.lock().unwrap())
    }
}

/// A yard of 2^20 pages with plenty of room, whose cache keeps this many blocks of each type.
fn cache(pages: u32, huge: u32) -> (ThreadCaches, Arc<TestBackend>) {
    let backend = Arc::new(TestBackend {
        room: AtomicI64::new(1 << 20),
        most: AtomicUsize::new(usize::MAX),
        near: Mutex::new((START, START)),
        ..TestBackend::default()
    });
    let how = ThreadCache::Blocks { pages, larger: pages / 4, huge };
    (ThreadCaches::new(how, 1 << 20, false, backend.clone()), backend)
}

/// Allocates as a yard does: from the magazine, else by a refill.
fn take(cache: &ThreadCaches, kind: Kind) -> Option<usize> {
    cache.pop(kind).or_else(|| cache.refill(kind, Gfp::KERNEL)).map(page)
}

/// Frees as a yard does; `false` if the caller keeps the block.
fn put(cache: &ThreadCaches, kind: Kind, page: usize) -> bool {
    cache.push(kind, address(page)) || cache.make_room(kind, address(page))
}

const ONE: Kind = Kind::Unmovable;

/// Runs `body` while another thread keeps page 1 in its magazine. That thread runs `last` before it
/// ends.
fn beside_an_idle_thread(cache: &ThreadCaches, last: impl FnOnce() + Send, body: impl FnOnce()) {
    let (idle, done) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|s| {
        s.spawn(|| {
            assert!(put(cache, ONE, 1));
            idle.wait();
            done.wait();
            last();
        });
        idle.wait();
        body();
        done.wait();
    });
}

#[test]
fn limits_leave_three_quarters_of_the_yard() {
    let of = |how: ThreadCache, yard| how.limits(yard, false).map(|l| (l.blocks, l.threads));
    let full = |huge| [126, 126, 126, 63, 63, 31, 31, 15, 15, huge, huge];
    // A GiB: 126 * 3 + 2 * (126 + 124 + 120) + 4 * 2 * 512 pages for a thread.
    assert_eq!(of(ThreadCache::Auto, 1 << 18), Some((full(4), 65_536 / 5214)));
    assert_eq!(of(ThreadCache::Auto, 1 << 17), Some((full(4), 32_768 / 5214)));
    let half = [64, 64, 64, 32, 32, 16, 16, 8, 8, 2, 2];
    assert_eq!(of(ThreadCache::Auto, 1 << 16), Some((half, 16_384 / 2624)));
    let given = |pages, larger, huge| {
        let l = larger;
        [pages, pages, pages, l, l, l, l, l, l, huge, huge]
    };
    // A smaller yard has room for more threads.
    assert_eq!(of(ThreadCache::Auto, (1 << 16) - 1), Some((given(63, 0, 1), 16_383 / 1213)));
    assert_eq!(of(ThreadCache::Auto, 1 << 12), Some((given(4, 0, 0), 1024 / 12)));
    let blocks = |pages, huge| ThreadCache::Blocks { pages, larger: 0, huge };
    assert_eq!(of(blocks(100, 1), 1 << 14), Some((given(100, 0, 1), 3)));
    let larger = ThreadCache::Blocks { pages: 100, larger: 10, huge: 0 };
    assert_eq!(of(larger, 1 << 14), Some((given(100, 10, 0), 4096 / 580)));
    // A quarter holds the blocks of one thread, or of none.
    assert_eq!(of(blocks(100, 0), 1200), Some((given(100, 0, 0), 1)));
    assert_eq!(of(blocks(100, 0), 1199), None);
    assert_eq!(of(blocks(0, 0), 1 << 20), None);
    assert_eq!(of(ThreadCache::Off, 1 << 20), None);
    assert!(ThreadCache::Auto.limits(1 << 18, true).is_none(), "the policy fills pages");
}

#[test]
fn half_a_magazine_is_fetched_and_a_magazine_below_four_pages_none() {
    for (limit, fetched) in [(3, 0), (4, 2), (5, 2), (6, 3)] {
        let (cache, backend) = cache(limit, 0);
        assert_eq!(take(&cache, ONE).is_some(), fetched > 0);
        assert_eq!(backend.allocated.load(Relaxed), fetched, "a limit of {limit}");
        let stats = cache.stats();
        let wanted = (fetched as u64, u64::from(fetched > 0));
        assert_eq!((stats.refilled_pages, stats.refills), wanted);
    }
}

/// A refill empties the magazine only if the thread has moved to another node.
#[test]
fn a_thread_on_another_node_frees_the_blocks_of_the_old_one() {
    let (cache, backend) = cache(8, 0);
    let first = take(&cache, ONE).unwrap();
    assert!(put(&cache, Kind::Movable, 100));
    for _ in 0..3 {
        take(&cache, ONE).unwrap();
    }
    // The magazine has no unmovable page; the next one is of a refill on the same node.
    take(&cache, ONE).unwrap();
    assert_eq!((backend.freed(), cache.stats().flushes), (vec![], 0));
    for _ in 0..3 {
        take(&cache, ONE).unwrap();
    }
    *backend.near.lock().unwrap() = (2 * START, START);
    take(&cache, ONE).unwrap();
    assert_eq!(backend.freed(), [(Kind::Movable, 100)]);
    assert_eq!((cache.stats().flushes, cache.stats().flushed_pages), (1, 1));
    assert!(!put(&cache, ONE, first), "a page of the old node is not kept");
}

#[test]
fn a_block_of_another_node_flushes_nothing() {
    let (cache, backend) = cache(8, 0);
    for n in 0..8 {
        assert!(put(&cache, ONE, n));
    }
    assert!(!put(&cache, ONE, 1 << 20));
    assert_eq!((backend.freed(), cache.stats().pages), (vec![], 8));
    // One of this node makes room by half.
    assert!(put(&cache, ONE, 8));
    assert_eq!(backend.freed(), [(ONE, 0), (ONE, 1), (ONE, 2), (ONE, 3)]);
    assert_eq!(cache.stats().pages, 5);
}

/// A refill that gets no more than one page, while the zone has less room than it wanted above
/// its low watermark, finds a shortage.
#[test]
fn a_refill_of_a_page_at_most_finds_a_shortage() {
    for (got, room, short) in
        [(0, 3, true), (1, 3, true), (1, 4, false), (0, 4, false), (2, 3, false), (3, -1, false)]
    {
        let (cache, backend) = cache(8, 0);
        backend.most.store(got, Relaxed);
        backend.room.store(room, Relaxed);
        assert_eq!(take(&cache, ONE).is_some(), got > 0);
        let stats = cache.stats();
        let found = (stats.pressed, stats.presses);
        assert_eq!(found, (short, u64::from(short)), "{got} pages, {room} of room");
    }
}

#[test]
fn a_tick_finds_a_zone_below_its_low_watermark() {
    let (cache, backend) = cache(8, 1);
    assert!(put(&cache, ONE, 1));
    backend.room.store(0, Relaxed);
    cache.tick();
    assert!(!cache.stats().pressed && cache.stats().pages == 1);
    backend.room.store(-1, Relaxed);
    cache.tick();
    let stats = cache.stats();
    assert!(stats.pressed && stats.presses == 1 && stats.pages == 0, "{stats:?}");
    assert_eq!((backend.freed(), stats.drains), (vec![(ONE, 1)], 1));
    // Threads keep nothing now. An empty magazine is not drained again.
    assert!(!put(&cache, ONE, 2) && take(&cache, ONE).is_none());
    cache.tick();
    let stats = cache.stats();
    assert_eq!((stats.presses, stats.drains, stats.drained_pages), (1, 1, 1));
}

/// After a shortage, threads keep nothing until a tick finds room for all that all threads may keep.
#[test]
fn threads_keep_nothing_after_a_shortage() {
    let (cache, backend) = cache(8, 1);
    let last = || assert!(put(&cache, ONE, 2), "there is room for both threads' blocks");
    beside_an_idle_thread(&cache, last, || {
        assert!(put(&cache, ONE, 3));
        backend.room.store(-1, Relaxed);
        cache.tick();
        let each = 3 * 8 + 2 * 2 * (2 + 4 + 8) + 2 * 512;
        for room in [0, each, 2 * each - 1] {
            backend.room.store(room, Relaxed);
            cache.tick();
            assert!(!put(&cache, ONE, 4) && cache.stats().pressed, "{room}");
        }
        backend.room.store(2 * each, Relaxed);
        cache.tick();
        assert!(put(&cache, ONE, 4) && !cache.stats().pressed);
    });
}

#[test]
fn many_threads_have_magazines() {
    const THREADS: usize = 40;
    let (cache, backend) = cache(8, 0);
    let (all, done) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    std::thread::scope(|s| {
        let (cache, all, done) = (&cache, &all, &done);
        let work = |n| {
            move || {
                assert!(put(cache, ONE, n));
                all.wait();
                done.wait();
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|n| s.spawn(work(n))).collect();
        all.wait();
        assert_eq!((cache.stats().threads, cache.stats().pages), (THREADS, THREADS as u64));
        assert_eq!(cache.threads().len(), THREADS);
        cache.drain();
        assert_eq!(cache.stats().drained_pages, THREADS as u64);
        done.wait();
        threads.into_iter().for_each(|t| t.join().unwrap());
    });
    let mut freed: Vec<_> = backend.freed().into_iter().map(|(_, page)| page).collect();
    freed.sort_unstable();
    assert!(freed.into_iter().eq(0..THREADS));
    assert_eq!(cache.stats().threads, 0);
}

#[test]
fn a_tick_drains_magazines_unused_since_the_last_one() {
    let (cache, backend) = cache(8, 1);
    assert!(put(&cache, ONE, 1) && put(&cache, Kind::HugeMovable, 512));
    cache.tick();
    assert!(backend.freed().is_empty());
    cache.tick();
    assert_eq!(backend.freed(), [(ONE, 1), (Kind::HugeMovable, 512)]);
    let stats = cache.stats();
    assert_eq!((stats.drains, stats.drained_pages, stats.pages), (1, 513, 0));
}

#[test]
fn a_tick_leaves_the_magazines_of_active_threads() {
    let (cache, backend) = cache(8, 0);
    beside_an_idle_thread(
        &cache,
        || (),
        || {
            assert!(put(&cache, ONE, 2));
            cache.tick();
            assert!(backend.freed().is_empty());
            assert_eq!(take(&cache, ONE), Some(2));
            assert!(put(&cache, ONE, 2));
            cache.tick();
            assert_eq!(backend.freed(), [(ONE, 1)]);
        },
    );
}

#[test]
fn what_leaves_the_cache_is_counted() {
    let (cache, _backend) = cache(8, 1);
    assert_eq!(format!("{cache:?}"), format!("{:?}", cache.stats()));
    cache.drain();
    assert_eq!(cache.given_back(), 0);
    assert!(put(&cache, ONE, 1) && put(&cache, Kind::Reclaimable, 2));
    assert!(put(&cache, Kind::HugeUnmovable, 512));
    (0..2).for_each(|_| cache.drain());
    let stats = cache.stats();
    // Once for each kind.
    assert_eq!((stats.drained_pages, stats.drains, cache.given_back()), (514, 1, 3));
    (0..9).for_each(|n| assert!(put(&cache, ONE, n)));
    assert_eq!((cache.stats().flushes, cache.given_back()), (1, 4));
}

#[test]
fn a_threads_counters_and_blocks_outlive_it() {
    let (cache, backend) = cache(8, 1);
    let work = || {
        // Two refills, three hits each; then a flush, and a drain.
        (0..8).for_each(|_| _ = take(&cache, ONE).unwrap());
        (0..9).for_each(|n| assert!(put(&cache, ONE, n)));
        cache.drain();
        assert!(put(&cache, Kind::HugeMovable, 512));
        let [thread] = cache.threads()[..] else { panic!("one thread") };
        // SAFETY: no arguments.
        assert_eq!(thread.thread as i64, unsafe { libc::syscall(libc::SYS_gettid) });
        assert_eq!((thread.pages, thread.hits), (512, 6));
        assert_eq!((thread.refills, thread.flushes, thread.drains), (2, 1, 1));
    };
    for round in 1..=2 {
        std::thread::scope(|s| s.spawn(work).join().unwrap());
        assert_eq!(backend.freed().last(), Some(&(Kind::HugeMovable, 512)));
        let stats = cache.stats();
        let wanted = ThreadCacheStats {
            on: true,
            hits: 6 * round,
            hits_by_order: std::array::from_fn(|order| if order == 0 { 6 * round } else { 0 }),
            refills: 2 * round,
            refilled_pages: 8 * round,
            flushes: 2 * round,
            flushed_pages: (4 + 512) * round,
            drains: round,
            drained_pages: 5 * round,
            ..ThreadCacheStats::default()
        };
        assert_eq!(stats, wanted);
        assert!(cache.threads().is_empty());
    }
}

/// Also those of threads that have exited.
#[test]
fn blocks_are_counted_by_order() {
    let (cache, _backend) = cache(8, 1);
    let work = |hits| {
        assert!(put(&cache, ONE, 1));
        for _ in 0..hits {
            assert!(put(&cache, Kind::HugeMovable, 512));
            assert_eq!(take(&cache, Kind::HugeMovable), Some(512));
        }
        assert!(put(&cache, Kind::HugeMovable, 512));
        let stats = cache.stats();
        (stats.pages, stats.blocks, stats.hits, stats.hits_by_order)
    };
    let at = |order: usize, n| std::array::from_fn(|o| if o == order { n } else { 0 });
    let blocks = std::array::from_fn(|order| u64::from(order == 0 || order == 9));
    for (hits, all) in [(2, 2), (3, 5)] {
        let seen = std::thread::scope(|s| s.spawn(|| work(hits)).join().unwrap());
        assert_eq!(seen, (513, blocks, all, at(9, all)));
    }
}

/// A thread that uses one yard after the other keeps nothing of those that are gone, and ends
/// in those that are not.
#[test]
fn a_thread_forgets_only_the_yards_that_are_gone() {
    let (stays, backend) = cache(8, 0);
    let work = || {
        let known = || MEMBERSHIPS.with(|all| all.0.borrow().len());
        assert!(put(&stays, ONE, 1));
        for n in 2..10 {
            let (goes, _) = cache(8, 0);
            assert!(put(&goes, ONE, n));
            assert_eq!(known(), 2);
        }
    };
    std::thread::scope(|s| s.spawn(work).join().unwrap());
    assert_eq!(backend.freed(), [(ONE, 1)]);
    assert_eq!(stays.stats().threads, 0);
}

/// Larger blocks than pages are neither fetched in advance nor flushed to make room, not even by a
/// thread's first request.
#[test]
fn larger_blocks_are_kept_one_by_one() {
    for (kind, most) in [(Kind::HugeMovable, 4), (Kind::Unmovable16K, 2)] {
        let (cache, backend) = cache(8, 4);
        let pages = kind.order().pages() as usize;
        assert_eq!(take(&cache, kind), None);
        assert!((1..=most).all(|n| put(&cache, kind, pages * n)));
        assert!(!put(&cache, kind, pages * (most + 1)));
        assert!((1..=most).rev().all(|n| take(&cache, kind) == Some(pages * n)));
        assert_eq!(take(&cache, kind), None);
        assert_eq!((backend.freed(), backend.allocated.load(Relaxed)), (vec![], 0));
    }
}

/// A request made on a slow path is not served from the cache, nor is its block kept.
#[test]
fn a_nested_request_bypasses_the_cache() {
    let (cache, backend) = cache(8, 0);
    let busy = Busy::begin();
    assert!(!put(&cache, ONE, 1) && take(&cache, ONE).is_none());
    assert_eq!(backend.allocated.load(Relaxed), 0);
    drop(busy);
    assert!(put(&cache, ONE, 1));
}
