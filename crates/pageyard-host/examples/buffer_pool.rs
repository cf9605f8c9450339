//! A buffer pool over a file, shared by threads: frames of 4 KiB, 16 KiB and 2 MiB from one yard,
//! which the pool owns together with them. The file is larger than the yard may be, so frames are
//! evicted all the time: by the pool when the yard has no memory, and by its shrinker above the
//! soft limit.
//!
//! Each thread adds 1 to the counter at the start of random pages. At the end the file's counters
//! add up to the number of additions, unless a page was lost or an old one came back.
//!
//!     cargo run --release -p pageyard-host --example buffer_pool [ADDITIONS]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use pageyard::{AllocError, Gfp, Order, PAGE_SIZE, ReclaimJob};
use pageyard_host::{Builder, HostYard, OwnedBlock, Registration, Shrinker, SystemFiles};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const YARD: u64 = 64 << 20;
const HARD_LIMIT: u64 = 48 << 20;
const SOFT_LIMIT: u64 = 20 << 20;
const THREADS: u64 = 4;

/// Pages of one size in the file.
struct Pages {
    order: Order,
    count: u64,
    /// Offset of the first one in the file.
    start: u64,
}

const SIZES: [Pages; 3] = [
    Pages { order: Order::ZERO, count: 4096, start: 0 },
    Pages { order: Order::new(2).expect("an order"), count: 1024, start: 16 << 20 },
    Pages { order: Order::HUGE, count: 16, start: 32 << 20 },
];

/// A page of the file: size and number.
type Key = (usize, u64);

fn bytes(order: Order) -> u64 {
    PAGE_SIZE << order.get()
}

fn offset((size, number): Key) -> u64 {
    SIZES[size].start + number * bytes(SIZES[size].order)
}

/// A page in memory; without a block until it is read.
#[derive(Default)]
struct Frame {
    page: Mutex<Option<OwnedBlock>>,
    dirty: AtomicBool,
    /// Cleared by one pass of the eviction, which the next one then takes.
    recent: AtomicBool,
}

/// Frames by page. A frame is evicted only while the map alone refers to it, under the map's lock.
struct Pool {
    frames: Mutex<HashMap<Key, Arc<Frame>>>,
    file: File,
    evictions: AtomicU64,
    shrinks: AtomicU64,
    // Ends before the yard is dropped.
    _shrinker: Mutex<Option<Registration>>,
    yard: Arc<HostYard>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn new(yard: Arc<HostYard>, file: File) -> Arc<Pool> {
        let pool = Arc::new(Pool {
            frames: Mutex::default(),
            file,
            evictions: AtomicU64::new(0),
            shrinks: AtomicU64::new(0),
            _shrinker: Mutex::default(),
            yard,
        });
        // Weak: the yard owns the shrinker, and the pool owns the yard.
        let shrinker = PoolShrinker(Arc::downgrade(&pool));
        *lock(&pool._shrinker) = Some(pool.yard.register_shrinker(shrinker));
        pool
    }

    /// Calls `change` with the bytes of a page, which is read first if it is not in memory.
    fn with_page(&self, key: Key, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let frame = lock(&self.frames).entry(key).or_default().clone();
        frame.recent.store(true, Relaxed);
        let mut page = lock(&frame.page);
        let block = match &mut *page {
            Some(block) => block,
            None => {
                let mut block = self.block(SIZES[key.0].order)?;
                self.file.read_exact_at(&mut block, offset(key))?;
                page.insert(block)
            }
        };
        change(block);
        frame.dirty.store(true, Relaxed);
        Ok(())
    }

    /// Allocates a block, and evicts until there is one. The map is not locked meanwhile: the
    /// request may call the shrinker.
    fn block(&self, order: Order) -> Result<OwnedBlock> {
        for _ in 0..1000 {
            match self.yard.alloc_owned(order, Gfp::KERNEL | Gfp::NOWARN) {
                Ok(block) => return Ok(block),
                Err(AllocError::NoMemory) => {}
                Err(e) => return Err(e.into()),
            }
            // More than the block, since what is evicted may not be contiguous.
            self.evict(&mut lock(&self.frames), 8 * u64::from(order.pages()))?;
            self.yard.drain();
        }
        Err(AllocError::NoMemory.into())
    }

    /// Evicts frames until `wanted` pages are free, and returns how many were freed. Writes pages
    /// that changed before the map forgets them, so that no thread reads the old ones.
    fn evict(&self, frames: &mut HashMap<Key, Arc<Frame>>, wanted: u64) -> io::Result<u64> {
        let mut freed = 0;
        let mut failed = None;
        // The second pass takes what the first one saw as recent.
        for _ in 0..2 {
            frames.retain(|&key, frame| {
                if freed >= wanted || failed.is_some() || Arc::strong_count(frame) > 1 {
                    return true;
                }
                if frame.recent.swap(false, Relaxed) {
                    return true;
                }
                failed = self.write_back(key, frame).err();
                if failed.is_none() {
                    freed += u64::from(SIZES[key.0].order.pages());
                    self.evictions.fetch_add(1, Relaxed);
                }
                failed.is_some()
            });
        }
        failed.map_or(Ok(freed), Err)
    }

    fn write_back(&self, key: Key, frame: &Frame) -> io::Result<()> {
        if let Some(block) = &*lock(&frame.page)
            && frame.dirty.load(Relaxed)
        {
            self.file.write_all_at(block, offset(key))?;
            frame.dirty.store(false, Relaxed);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        lock(&self.frames).iter().try_for_each(|(&key, frame)| self.write_back(key, frame))
    }
}

struct PoolShrinker(Weak<Pool>);

impl Shrinker for PoolShrinker {
    fn count(&self) -> u64 {
        // `try_lock`: a caller may be a request whose thread holds the lock.
        let Some(pool) = self.0.upgrade() else { return 0 };
        let pages = |(size, _): &Key| u64::from(SIZES[*size].order.pages());
        pool.frames.try_lock().map_or(0, |frames| frames.keys().map(pages).sum())
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        // This may be the last reference to the pool when it is dropped, and with it to the yard.
        let Some(pool) = self.0.upgrade() else { return 0 };
        let Ok(mut frames) = pool.frames.try_lock() else { return 0 };
        pool.shrinks.fetch_add(1, Relaxed);
        // A page that could not be written stays.
        pool.evict(&mut frames, job.pages).unwrap_or(0)
    }
}

/// Adds 1 to the counters of random pages.
fn add(pool: &Pool, thread: u64, additions: u64) -> Result<()> {
    let mut draw = thread + 1;
    for _ in 0..additions {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Large pages are rarer.
        let size = [0, 0, 0, 0, 0, 1, 1, 1, 1, 2][(draw >> 40) as usize % 10];
        let key = (size, (draw >> 20) % SIZES[size].count);
        pool.with_page(key, |page| {
            let mut counter = [0; 8];
            counter.copy_from_slice(&page[..8]);
            page[..8].copy_from_slice(&(u64::from_le_bytes(counter) + 1).to_le_bytes());
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let additions = std::env::args().nth(1).map_or(Ok(50_000), |n| n.parse())?;
    let yard = Builder::new(YARD)
        .hard_limit(HARD_LIMIT)
        .soft_limit(SOFT_LIMIT)
        .system(SystemFiles::none())
        .build()?;
    let yard = Arc::new(yard);
    let left = Arc::downgrade(&yard);
    let file = tempfile::tempfile()?;
    let last = &SIZES[SIZES.len() - 1];
    file.set_len(last.start + last.count * bytes(last.order))?;
    let pool = Pool::new(yard, file.try_clone()?);

    std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let pool = &pool;
                s.spawn(move || add(pool, thread, additions / THREADS))
            })
            .collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| Err("a panic".into())))
    })?;
    pool.flush()?;

    let mut sum = 0;
    for (size, pages) in SIZES.iter().enumerate() {
        for number in 0..pages.count {
            let mut counter = [0; 8];
            file.read_exact_at(&mut counter, offset((size, number)))?;
            sum += u64::from_le_bytes(counter);
        }
    }
    let (evictions, shrinks) = (pool.evictions.load(Relaxed), pool.shrinks.load(Relaxed));
    let used = pool.yard.status().used * PAGE_SIZE;
    println!("{sum} of {additions} additions, {evictions} evictions, {shrinks} shrinks");
    println!("{} MiB in use of {} MiB", used >> 20, HARD_LIMIT >> 20);
    if sum != additions / THREADS * THREADS || used > HARD_LIMIT {
        return Err("an addition was lost, or the limit was exceeded".into());
    }
    // The shrinker may hold the pool for a moment on the yard's thread, and then drops it.
    drop(pool);
    let mut tries = (0..1000).inspect(|_| std::thread::sleep(Duration::from_millis(5)));
    if left.strong_count() > 0 && !tries.any(|_| left.strong_count() == 0) {
        return Err("the yard outlives its pool".into());
    }
    Ok(())
}
