//! Forks while threads allocate, free, compact, change settings and register callbacks, and while
//! the yard's own worker returns memory. The child uses its copy of the yard in every way: no call
//! waits, no page is allocated, and no shared memory changes. The parent continues, and its yard is
//! valid at the end.
//!
//! A program of its own: a forked child would inherit locks that threads of other tests held. The
//! tests here run side by side, so their children start no threads.

#![allow(unsafe_code)] // forks

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pageyard::{AllocError, CpuId, Gfp, Order, PAGE_SIZE, ReclaimJob};
use pageyard_host::{
    Backing, Block, Builder, FragmentCache, GiveBack, HostYard, Limits, Movable, Shrinker,
    ThreadCache,
};

const ONE: Order = Order::ZERO;
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
const THREADS: u64 = 3;
/// A child that has not ended after this time hangs.
const SECONDS: u32 = 60;

fn order(n: u64) -> Order {
    Order::new(n as u8).unwrap()
}

/// How a child ended.
#[derive(PartialEq, Eq, Debug)]
enum End {
    Well,
    /// A check failed at this line.
    Wrong(i32),
    Hung,
    Crashed(i32),
}

/// Runs `f` in a child, which reports the line at which a check failed.
fn in_child(seconds: u32, f: impl FnOnce() -> Result<(), u32>) -> End {
    // SAFETY: the child only uses the yard, which documents what it may do, and exits at once.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: takes a number; the signal ends the child.
            unsafe { libc::alarm(seconds) };
            // A panic must not unwind into the parent's test.
            let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            let wrong = wrong.unwrap_or(Err(254)).err();
            let code = wrong.map_or(0, |line| (line % 255 + 1) as i32);
            // SAFETY: takes a number.
            unsafe { libc::_exit(code) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local number.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            match (libc::WIFEXITED(status), libc::WTERMSIG(status)) {
                (true, _) if libc::WEXITSTATUS(status) == 0 => End::Well,
                (true, _) => End::Wrong(libc::WEXITSTATUS(status) - 1),
                (_, libc::SIGALRM) => End::Hung,
                (_, signal) => End::Crashed(signal),
            }
        }
    }
}

/// Frees nothing.
struct Nothing;

impl Shrinker for Nothing {
    fn count(&self) -> u64 {
        1
    }

    fn shrink(&self, _: &ReclaimJob) -> u64 {
        0
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn is_of(block: &Block<'_>, mark: u8) -> bool {
    block.iter().all(|&b| b == mark)
}

/// Uses a yard in all ways that threads do, in random order.
fn work(yard: &HostYard, mark: u8, stop: &AtomicBool, done: &AtomicU64) {
    let mut state = u64::from(mark) << 32 | 0x7f4a_7c15;
    let (mut held, mut movable): (Vec<Block<'_>>, Vec<Movable<'_>>) = (Vec::new(), Vec::new());
    let (min, max) = ("1024", "2048");
    while !stop.load(Relaxed) {
        let n = random(&mut state);
        match n % 16 {
            0..=4 => held.extend(yard.alloc(order(n >> 8 & 3), GFP)),
            5 => held.extend(yard.alloc(order(n >> 8 & 7), GFP | Gfp::ZERO)),
            6 => {
                let mut some = Vec::new();
                let _ = yard.alloc_bulk(40, GFP, &mut some);
                yard.free_bulk(some);
            }
            7 => drop(yard.alloc_range(100, 1, GFP)),
            8 => drop(yard.alloc_aligned(order(2), 1 << 16, GFP)),
            9 => movable.extend(yard.alloc_movable(order(n >> 8 & 1), GFP)),
            10 => movable.iter().take(3).for_each(|m| m.lock().fill(mark)),
            11 => drop(yard.register_shrinker(Nothing)),
            12 if n & 0x700 == 0 => yard.compact(),
            12 => yard.drain(),
            13 => {
                let value = if n & 0x100 == 0 { min } else { max };
                yard.set_knob("min_free_kbytes", value).unwrap();
            }
            14 => {
                let hard = (n & 0x100 == 0).then_some(3072);
                let _ = yard.set_limits(Limits { hard, soft: None });
            }
            _ => drop((yard.stats(), yard.status(), yard.buddyinfo(), yard.thread_cache_threads())),
        }
        if let Some(block) = held.last_mut() {
            block.fill(mark);
        }
        if held.len() > 60 {
            assert!(held.iter().all(|b| is_of(b, mark)), "a block was overwritten");
            held.truncate((n >> 16) as usize % 60);
        }
        movable.truncate(20);
        done.fetch_add(1, Relaxed);
    }
    assert!(held.iter().all(|b| is_of(b, mark)), "a block was overwritten");
}

fn hold(holds: bool, line: u32) -> Result<(), u32> {
    if holds { Ok(()) } else { Err(line) }
}

/// What a child does with its copy of the yard.
fn misuse<'y>(
    yard: &'y HostYard,
    mut mine: Block<'y>,
    mut movable: Option<Movable<'y>>,
    shared: bool,
) -> Result<(), u32> {
    hold(!yard.is_here(), line!())?;
    hold(is_of(&mine, 77), line!())?;
    if !shared {
        mine.fill(0xee);
    }
    for n in 0..10 {
        let none = matches!(yard.alloc(order(n), GFP), Err(AllocError::NoMemory));
        hold(none && yard.alloc(order(n), GFP | Gfp::ZERO).is_err(), line!())?;
    }
    hold(yard.alloc_movable(ONE, GFP).is_err(), line!())?;
    let mut some = Vec::new();
    let _ = yard.alloc_bulk(10, GFP, &mut some);
    hold(some.is_empty(), line!())?;
    hold(yard.alloc_range(10, 1, GFP).is_err(), line!())?;
    hold(yard.alloc_aligned(ONE, 1 << 16, GFP).is_err(), line!())?;
    drop(mine);
    drop(movable.take());
    drop(yard.register_shrinker(Nothing));
    drop(yard.on_pressure(|_| ()));
    yard.compact();
    yard.drain();
    yard.tick();
    yard.wake_worker();
    let _ = (yard.set_knob("min_free_kbytes", "4096"), yard.knobs());
    hold(yard.set_limits(Limits { hard: Some(2048), soft: None }) == Ok(false), line!())?;
    hold(yard.limits() == Limits::default() && yard.validate().is_ok(), line!())?;
    let frame = pageyard_host::Region::FIRST;
    hold(yard.poison_frame(frame).is_err() && yard.unpoison_frame(frame).is_err(), line!())?;
    let _ = yard.out_of_use();
    hold(yard.worker().is_none() && !yard.status().worker, line!())?;
    let zone = yard.zones().next().ok_or(line!())?;
    hold(yard.zone_info(zone).is_none(), line!())?;
    let _ = (yard.zone_stats(zone), yard.cpu_stats(zone, CpuId(0)), yard.resident());
    let _ =
        (yard.stats(), yard.thread_cache_stats(), yard.thread_cache_threads(), format!("{yard:?}"));
    let texts = [yard.buddyinfo(), yard.pagetypeinfo(), yard.zoneinfo(), yard.vmstat()];
    hold(texts.iter().all(String::is_empty), line!())
}

/// A yard that the child builds itself works. It starts no thread: the standard library's threads
/// take a lock when they begin and end, and a thread of the parent, of another test too, may have
/// held it (`tests/fork_worker.rs`).
fn another() -> Result<(), u32> {
    let yard: HostYard = Builder::new(8 << 20).tick(None).build().map_err(|_| line!())?;
    let block = yard.alloc(order(3), GFP).map_err(|_| line!())?;
    hold(yard.is_here() && block.order() == order(3), line!())?;
    hold(yard.validate().is_ok(), line!())
}

/// A block, as soon as the limit and the blocks of the other threads leave one.
fn block_for<'y>(yard: &'y HostYard, order: Order, stop: &AtomicBool) -> Block<'y> {
    for _ in 0..10_000 {
        match yard.alloc(order, GFP) {
            Ok(block) => return block,
            // The other threads must run before there can be memory again.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    stop.store(true, Relaxed);
    panic!("no block of {order:?} in 10,000 tries: {:?}\n{}", yard.status(), yard.zoneinfo());
}

/// Forks with `mine` filled with 77. Returns how the child ended, and whether the parent's block is
/// unchanged.
fn fork_with<'y>(
    yard: &'y HostYard,
    mut mine: Block<'y>,
    child: impl FnOnce(Block<'y>) -> Result<(), u32>,
) -> (End, bool) {
    mine.fill(77);
    let (pfn, order) = mine.into_raw();
    // SAFETY: each process makes it a block again once.
    let again = || unsafe { yard.from_raw(pfn, order) }.expect("the yard's");
    let end = in_child(SECONDS, || child(again()));
    (end, is_of(&again(), 77))
}

fn forks_during_use(backing: Backing, front: ThreadCache, forks: u64) {
    let at_once = GiveBack { after: Duration::ZERO, ..GiveBack::default() };
    let builder = Builder::new(16 << 20).backing(backing).thread_cache(front);
    let builder = builder.give_back(Some(at_once)).tick(Some(Duration::from_millis(5)));
    let yard = builder.build().unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let registered = yard.register_shrinker(Nothing);
    std::thread::scope(|s| {
        for n in 0..THREADS {
            let (yard, stop, done) = (&yard, &stop, &done);
            s.spawn(move || work(yard, n as u8 + 1, stop, done));
        }
        let mut state = forks;
        for k in 0..forks {
            // Fork at a different moment each time.
            (0..random(&mut state) % 20_000).for_each(|_| std::hint::spin_loop());
            // The child drops its copy; the parent's stays until the fork is over.
            let mut movable = std::mem::ManuallyDrop::new(yard.alloc_movable(ONE, GFP).ok());
            let shared = backing == Backing::Memfd;
            let mine = block_for(&yard, order(k % 4), &stop);
            let (end, whole) = fork_with(&yard, mine, |mine| {
                misuse(&yard, mine, movable.take(), shared)?;
                if k % 8 == 0 { another() } else { Ok(()) }
            });
            drop(std::mem::ManuallyDrop::into_inner(movable));
            if end != End::Well || !whole {
                stop.store(true, Relaxed);
            }
            assert_eq!(end, End::Well, "fork {k} of {backing:?}, {front:?}");
            assert!(whole, "the child changed the parent's block");
        }
        stop.store(true, Relaxed);
    });
    assert!(done.load(Relaxed) > forks);
    drop(registered);
    yard.set_limits(Limits::default()).unwrap();
    yard.drain();
    still(&yard);
}

/// The yard's worker may be active, so the yard must be seen idle once.
fn still(yard: &HostYard) {
    let whole = || {
        let zone = yard.zones().next().unwrap();
        let info = yard.zone_info(zone).unwrap();
        yard.validate().map_err(|e| e.to_string())?;
        match info.free_exact + info.cached == info.managed {
            true => Ok(()),
            false => Err(format!("pages were lost: {info:?}")),
        }
    };
    let found = (0..500).map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        whole()
    });
    let mut last = Ok(());
    for found in found {
        last = found;
        if last.is_ok() {
            return;
        }
    }
    panic!("{last:?}");
}

/// Number of forks; set `PAGEYARD_FORKS` for more.
fn forks() -> u64 {
    std::env::var("PAGEYARD_FORKS").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

#[test]
fn forked_children_of_private_memory() {
    forks_during_use(Backing::Anonymous, ThreadCache::Auto, forks());
    forks_during_use(Backing::Anonymous, ThreadCache::Off, forks());
}

#[test]
fn forked_children_of_shared_memory() {
    forks_during_use(Backing::Memfd, ThreadCache::Auto, forks());
    forks_during_use(Backing::Memfd, ThreadCache::Off, forks());
}

/// A worker that was taken before the fork does nothing in the child. What is free in the child's
/// copy may be in use in the parent, and both share the memory and the wake event.
#[test]
fn a_worker_of_the_parent_does_nothing_in_a_child() {
    let at_once = GiveBack { after: Duration::ZERO, ..GiveBack::default() };
    let builder = Builder::new(16 << 20).backing(Backing::Memfd).thread_cache(ThreadCache::Off);
    let yard: HostYard = builder.give_back(Some(at_once)).tick(None).build().unwrap();
    let mut worker = yard.worker().unwrap();
    let mut block = yard.alloc(order(9), GFP).unwrap();
    block.fill(77);
    let start = block.as_ptr();
    // Stands for a block that the parent allocates after the fork.
    drop(block);
    yard.drain();
    yard.wake_worker();
    let stop = AtomicBool::new(true);
    let steps = || {
        for _ in 0..50 {
            worker.step();
            worker.wait(Duration::from_millis(1));
        }
        worker.run(&stop);
        Ok(())
    };
    assert_eq!(in_child(SECONDS, steps), End::Well);
    // SAFETY: the yard maps the page for as long as it lives; nothing else uses it.
    assert_eq!(unsafe { start.read() }, 77, "the child returned memory to the system");
    // Waits for ever without the event.
    worker.wait(Duration::MAX);
}

/// The planted bugs: a child that waits for a thread of its parent, one that writes to memory
/// shared with its parent, and one that allocates a page from it.
#[test]
fn a_hanging_or_interfering_child_is_detected() {
    let yard: HostYard = Builder::new(16 << 20).backing(Backing::Memfd).tick(None).build().unwrap();
    let movable = yard.alloc_movable(ONE, GFP).unwrap();
    // Stands for an allocator lock that a thread held at the fork.
    let held = movable.lock();
    let waits = || {
        drop(movable.lock());
        Ok(())
    };
    assert_eq!(in_child(1, waits), End::Hung);
    drop(held);
    // The core, because the yard would refuse. SAFETY: no block with an owner is freed or moved.
    let core = || unsafe { yard.core() };
    let hands_out = || core().alloc(ONE, GFP).map(|_| ()).map_or(Ok(()), |()| Err(line!()));
    assert!(matches!(in_child(SECONDS, hands_out), End::Wrong(_)));
    let writes = |mut mine: Block<'_>| {
        mine.fill(0);
        Ok(())
    };
    let mine = || yard.alloc(ONE, GFP).unwrap();
    assert_eq!(fork_with(&yard, mine(), writes), (End::Well, false));
    assert_eq!(fork_with(&yard, mine(), |_| Ok(())), (End::Well, true));
    assert_eq!(in_child(SECONDS, || std::process::abort()), End::Crashed(libc::SIGABRT));
}

fn take(yard: &HostYard, n: usize) -> Vec<Block<'_>> {
    (0..n).map(|_| yard.alloc(ONE, Gfp::KERNEL).unwrap()).collect()
}

#[test]
fn a_child_keeps_its_copy_and_cannot_allocate() {
    for how in [ThreadCache::Auto, ThreadCache::Off] {
        let yard = Builder::new(64 << 20).thread_cache(how).build().unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            // Another thread allocates continuously, and may hold a lock when the process forks.
            s.spawn(|| {
                while !stop.load(Relaxed) {
                    drop(take(&yard, 50));
                }
            });
            for round in 0..20 {
                let mut mine = yard.alloc(ONE, Gfp::KERNEL).unwrap();
                let mut other = Some(yard.alloc(ONE, Gfp::KERNEL).unwrap());
                mine.fill(round);
                let before = yard.thread_cache_stats().hits;
                let end = in_child(SECONDS, || {
                    let same = mine.iter().all(|&b| b == round);
                    mine.fill(0xff);
                    let none = yard.alloc(ONE, Gfp::KERNEL).map(|_| ())
                        == Err(AllocError::NoMemory)
                        && yard.alloc(order(9), Gfp::KERNEL).is_err();
                    drop(other.take());
                    yard.drain();
                    yard.tick();
                    if same && none { Ok(()) } else { Err(line!()) }
                });
                assert_eq!(end, End::Well);
                assert!(mine.iter().all(|&b| b == round), "the child wrote only to its copy");
                assert!(yard.thread_cache_stats().hits >= before);
            }
            stop.store(true, Relaxed);
        });
        yard.drain();
        // Blocks that children dropped are still the parent's to free.
        still(&yard);
    }
}

/// Returns whether a reference to a page (`vmsplice`) shows what the parent wrote to the page after
/// a fork, and whether the child found its block as the parent had filled it.
fn fork_keeps_page(pinned: bool, backing: Backing) -> (bool, bool) {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    let yard = Builder::new(16 << 20).pinned(pinned).backing(backing).tick(None).build().unwrap();
    let mut block = yard.alloc(ONE, Gfp::KERNEL).unwrap();
    block.fill(1);
    let (mut pipe, end) = std::io::pipe().unwrap();
    let page = libc::iovec { iov_base: block.as_mut_ptr().cast(), iov_len: block.len() };
    // SAFETY: the page is mapped; it is only read, when the pipe is.
    assert_eq!(unsafe { libc::vmsplice(end.as_raw_fd(), &page, 1, 0) }, block.len() as isize);
    let child = in_child(SECONDS, || hold(is_of(&block, 1), line!()));
    let copied = match child {
        End::Well => true,
        // Zeros, if they can be read and written.
        _ => {
            in_child(SECONDS, || {
                let zeros = is_of(&block, 0);
                block.fill(3);
                hold(zeros && is_of(&block, 3), line!())
            }) != End::Well
        }
    };
    block.fill(2);
    let mut seen = [0; PAGE_SIZE as usize];
    pipe.read_exact(&mut seen).unwrap();
    (seen.iter().all(|&b| b == 2), copied)
}

#[test]
fn a_fork_takes_no_page_from_a_pinned_yard() {
    // The hazard: the parent's write after the fork goes to a copy.
    assert_eq!(fork_keeps_page(false, Backing::Anonymous), (false, true));
    assert_eq!(fork_keeps_page(true, Backing::Anonymous), (true, false));
    assert_eq!(fork_keeps_page(true, Backing::Memfd), (true, true));
}

/// The child drops its copies, the last of which drops its copy of the yard.
#[test]
fn a_child_drops_owned_blocks_without_effect() {
    let yard = std::sync::Arc::new(Builder::new(16 << 20).build().unwrap());
    let mut block = yard.alloc_owned(order(2), Gfp::KERNEL).unwrap();
    let range = yard.alloc_range_owned(100, 1, Gfp::KERNEL).unwrap();
    block.fill(7);
    drop(yard);
    let mut all = std::mem::ManuallyDrop::new((block, range));
    let end = in_child(SECONDS, || {
        hold(all.0.yard().alloc_owned(ONE, GFP).is_err(), line!())?;
        hold(all.0.iter().all(|&b| b == 7), line!())?;
        // SAFETY: dropped once in this process, which then exits.
        unsafe { std::mem::ManuallyDrop::drop(&mut all) };
        Ok(())
    });
    assert_eq!(end, End::Well);
    let (block, range) = std::mem::ManuallyDrop::into_inner(all);
    assert!(block.iter().all(|&b| b == 7) && block.yard().alloc_owned(ONE, GFP).is_ok());
    drop(block);
    drop(range);
}

/// The counts of a cache are copies in the child, but the memory of a file is shared: a fragment there
/// would be one that the parent allocates too.
#[test]
fn a_child_gets_no_fragments() {
    let yard = Builder::new(16 << 20).backing(Backing::Memfd).build().unwrap();
    let mut cache = FragmentCache::new(&std::sync::Arc::new(yard), Gfp::KERNEL);
    let mut first = cache.alloc(100, 1).unwrap();
    first.fill(7);
    let mut cache = std::mem::ManuallyDrop::new(cache);
    let end = in_child(SECONDS, || hold(cache.alloc(100, 1).is_err(), line!()));
    assert_eq!(end, End::Well);
    let mut second = cache.alloc(100, 1).unwrap();
    second.fill(8);
    assert!(first.iter().all(|&b| b == 7) && second.iter().all(|&b| b == 8));
    drop(std::mem::ManuallyDrop::into_inner(cache));
}

/// A shrinker that forks once, while it frees nothing. Its child goes on with what the parent did.
struct Forks {
    /// The child's wait status, and what the parent then reads. A panic here would be caught.
    ended: std::sync::OnceLock<i32>,
    seen: AtomicU64,
    page: std::sync::OnceLock<usize>,
    /// 0 in the child, its number in the parent.
    child: std::sync::OnceLock<libc::pid_t>,
    /// Blocks that it drops, so that the request finds free pages.
    kept: std::sync::Mutex<Vec<Block<'static>>>,
}

impl Forks {
    fn new() -> &'static Forks {
        Box::leak(Box::new(Forks {
            ended: Default::default(),
            seen: AtomicU64::new(0),
            page: Default::default(),
            child: Default::default(),
            kept: Default::default(),
        }))
    }

    fn is_child(&self) -> bool {
        self.child.get() == Some(&0)
    }
}

impl Shrinker for &'static Forks {
    fn count(&self) -> u64 {
        u64::from(self.child.get().is_none())
    }

    fn shrink(&self, _: &ReclaimJob) -> u64 {
        if self.child.get().is_some() {
            return 0;
        }
        let freed = std::mem::take(&mut *self.kept.lock().unwrap());
        let pages = freed.len() as u64;
        drop(freed);
        // SAFETY: the child uses only the yard, which documents what it may do, and exits after its
        // request or step.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        self.child.set(child).unwrap();
        if child == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(SECONDS) };
        } else {
            let mut status = 1;
            // SAFETY: the pointer is to a local number.
            unsafe { libc::waitpid(child, &mut status, 0) };
            self.ended.set(status).unwrap();
            if let Some(&page) = self.page.get() {
                // SAFETY: the yard maps the page for as long as it lives; nothing else uses it.
                let seen = unsafe { (page as *const u8).read() };
                self.seen.store(seen.into(), Relaxed);
            }
        }
        pages
    }
}

/// In a child that a callback forks, a request fails, and a step of the worker leaves the memory alone
/// that it shares with its parent.
#[test]
fn a_callback_may_fork() {
    for front in [ThreadCache::Off, ThreadCache::Auto] {
        let builder = Builder::new(64 << 20).backing(Backing::Memfd).thread_cache(front);
        let yard: &HostYard = Box::leak(Box::new(builder.tick(None).build().unwrap()));
        let forks = Forks::new();
        let all: Vec<_> =
            std::iter::from_fn(|| yard.alloc(ONE, Gfp::NOWAIT | Gfp::NOWARN).ok()).collect();
        yard.drain();
        let mut all = all;
        forks.kept.lock().unwrap().extend(all.drain(..2000));
        yard.register_shrinker(forks).keep();
        let got = yard.alloc(ONE, Gfp::KERNEL | Gfp::ZERO);
        if forks.is_child() {
            let failed = matches!(got, Err(AllocError::NoMemory));
            // SAFETY: takes a number.
            unsafe { libc::_exit(i32::from(!failed)) };
        }
        assert!(got.is_ok(), "{front:?}: {got:?}");
        assert_eq!(forks.ended.get(), Some(&0), "{front:?}: the child's wait status");
    }

    let at_once = GiveBack { after: Duration::ZERO, ..GiveBack::default() };
    let builder = Builder::new(16 << 20).backing(Backing::Memfd).thread_cache(ThreadCache::Off);
    let builder = builder.give_back(Some(at_once)).soft_limit(4096).tick(None);
    let yard: &HostYard = Box::leak(Box::new(builder.build().unwrap()));
    let mut block = yard.alloc(order(9), GFP).unwrap();
    block.fill(77);
    let forks = Forks::new();
    forks.page.set(block.as_ptr().addr().get()).unwrap();
    let _above = [yard.alloc(ONE, GFP).unwrap(), yard.alloc(ONE, GFP).unwrap()];
    let mut worker = yard.worker().unwrap();
    drop(block);
    yard.drain();
    // It sees that the block was in use until now, and returns idle memory in its next step.
    worker.step();
    yard.register_shrinker(forks).keep();
    while forks.child.get().is_none() {
        worker.step();
    }
    if forks.is_child() {
        (0..20).for_each(|_| _ = worker.step());
        // SAFETY: takes a number.
        unsafe { libc::_exit(0) };
    }
    assert_eq!(forks.ended.get(), Some(&0), "the child's wait status");
    assert_eq!(forks.seen.load(Relaxed), 77, "the child returned memory to the system");
}

/// The system would end the process by a signal.
#[test]
fn a_file_above_the_size_limit_is_an_error() {
    let limited = || {
        let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        // SAFETY: the structure lives until the call returns.
        hold(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } == 0, line!())?;
        let small = || Builder::new(16 << 20).tick(None);
        let says = |builder: Builder, what: &str| {
            builder.build().is_err_and(|e| e.to_string().starts_with(what))
        };
        hold(says(small(), "publish"), line!())?;
        hold(says(small().backing(Backing::Memfd).publish(false), "backing"), line!())?;
        hold(small().publish(false).build().is_ok(), line!())
    };
    assert_eq!(in_child(SECONDS, limited), End::Well);
}
