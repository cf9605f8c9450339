//! The core's protocols under its own locks. A CPU's lists, which its requests only try to lock,
//! run against threads that drain them. The CPUs' counter deltas run against threads that fold and
//! read them.
//!
//! The whole core runs, on a zone of [`PAGES`] pages. Only the actions of the model's threads go
//! through loom.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::thread;
use pageyard_loom_atomics::{Lock, Planted, plant, skip, staged};
use pageyard_loom_core::policy::Linux612;
use pageyard_loom_core::{
    Bare, CpuId, Gfp, Knobs, Layout, NodeId, Order, OwnedStorage, Pfn, Platform, Yard, ZoneKind,
    ZoneSpec,
};

/// Number of pages in the zone.
pub const PAGES: u64 = 64;

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

/// Hooks that know which CPU a thread of the model is.
struct Stage;

impl Platform for Stage {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn pause(&self) {
        thread::yield_now();
    }
}

type Y<'y> = Yard<'y, Bare<Lock, Stage, Linux612>>;

/// The actions of one thread as a CPU.
type Part = fn(&Y<'_>);

fn on(cpu: u32) {
    CPU.with(|c| c.set(cpu));
}

/// Runs a model on a yard for three CPUs. `before` prepares the yard, then the `parts` run
/// concurrently, each as a CPU, then `after` runs. At the end everything must be free, and every
/// counter and list must agree.
fn at_once(before: Part, parts: &'static [(u32, Part)], after: Part) {
    roomy(move || model(before, parts, after)).join().expect("it ends");
}

fn model(before: Part, parts: &[(u32, Part)], after: Part) {
    HELD.take();
    let readers_only = READERS_ONLY.take();
    on(0);
    let span = Pfn(0)..Pfn(PAGES);
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &[NodeId(0); 3],
        distances: &[],
        knobs: Knobs { huge_pages: false, min_free_kbytes: 16, ..Knobs::default() },
    };
    let mut maps = OwnedStorage::new(&layout).expect("it can be");
    let yard: Y<'_> = Yard::new(&layout, maps.storage(), Stage).expect("it can be");
    before(&yard);
    staged(|| {
        let (others, mine) = (&parts[1..], parts[0]);
        let others: Vec<_> = others.iter().map(|&(cpu, part)| spawn(&yard, cpu, part)).collect();
        on(mine.0);
        // A thread must not outlive the yard.
        let done = catch_unwind(AssertUnwindSafe(|| mine.1(&yard)));
        let joined: Vec<_> = others.into_iter().map(thread::JoinHandle::join).collect();
        done.unwrap_or_else(|e| resume_unwind(e));
        joined.into_iter().for_each(|j| j.expect("it ends"));
    });
    if readers_only {
        return;
    }
    on(0);
    after(&yard);
    yard.drain_all(None);
    let info = yard.zone_info(ZoneKind::Normal).expect("there is one");
    assert_eq!((info.free_exact, info.cached), (PAGES, 0), "a page or a count is lost");
    if let Err(e) = yard.validate() {
        panic!("{e}");
    }
}

fn spawn(yard: &Y<'_>, cpu: u32, part: Part) -> thread::JoinHandle<()> {
    let yard: *const Y<'_> = yard;
    // SAFETY: the caller waits for the thread before the yard is dropped; only a lifetime changes.
    let yard: &'static Y<'static> = unsafe { &*yard.cast() };
    roomy(move || {
        on(cpu);
        part(yard);
    })
}

/// Spawns a thread with a larger stack than loom's default.
fn roomy(body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    // The size is in words.
    thread::Builder::new().stack_size(1 << 15).spawn(body).expect("loom makes it")
}

std::thread_local! {
    // Belongs to the thread that runs the model: the blocks that its threads have allocated.
    static HELD: RefCell<Vec<(Pfn, Order)>> = const { RefCell::new(Vec::new()) };
    // Whether only the values read by the model's threads are checked.
    static READERS_ONLY: Cell<bool> = const { Cell::new(false) };
    // Pages above the low mark before the model's threads began, and the sum of the per-CPU deltas.
    static START: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

/// Allocates a block, to be freed later.
fn take(y: &Y<'_>, order: Order) {
    let pfn = y.alloc(order, Gfp::KERNEL).expect("there is a block");
    HELD.with_borrow_mut(|held| held.push((pfn, order)));
}

/// Frees all allocated blocks.
fn give(y: &Y<'_>) {
    while let Some((pfn, order)) = HELD.with_borrow_mut(Vec::pop) {
        y.free(pfn, order).expect("it is in use");
    }
}

/// Allocates and frees a block. The request may fail while another CPU splits or merges the last
/// block: the watermarks are checked without the lock (§3.7).
fn borrow(y: &Y<'_>, order: Order) {
    if let Ok(pfn) = y.alloc(order, Gfp::KERNEL) {
        y.free(pfn, order).expect("it is in use");
    }
}

/// Puts a page on a CPU's list, which the list's counter must include.
fn cached(y: &Y<'_>) {
    borrow(y, Order::ZERO);
}

/// An order that no per-CPU list holds: its pages are counted in the delta, which is folded.
const LARGE: Order = match Order::new(4) {
    Some(order) => order,
    None => Order::ZERO,
};

/// Drains CPU 0's lists.
fn empty(y: &Y<'_>) {
    // Planted bug: does not wait for the lock of the lists.
    skip(1);
    y.drain_cpu(CpuId(0), None);
}

/// A CPU allocates a page from its list while another one drains its lists.
pub fn drain_and_take(planted: Planted) {
    plant(planted);
    at_once(cached, &[(0, |y| take(y, Order::ZERO)), (1, empty)], give);
}

/// A CPU frees a page to its list while another one drains its lists.
pub fn drain_and_give(planted: Planted) {
    plant(planted);
    fn before(y: &Y<'_>) {
        cached(y);
        take(y, Order::ZERO);
    }
    at_once(before, &[(0, give), (1, empty)], give);
}

/// A CPU allocates and frees a page while two others drain its lists, one of them all lists.
pub fn drain_by_two(planted: Planted) {
    plant(planted);
    at_once(cached, &[(0, cached), (1, empty), (2, |y| y.drain_all(None))], |_| ());
}

/// Gives CPU 1 a page on its list and a nonzero delta.
fn at_work(y: &Y<'_>) {
    on(1);
    cached(y);
}

/// Takes CPU 1 offline.
fn gone(y: &Y<'_>) {
    // Planted bug: does not wait for these locks: settings, limits, the lists twice, the zone.
    skip(5);
    assert!(y.cpu_dead(CpuId(1)));
}

/// A CPU goes offline while another one drains its lists.
pub fn offline_and_drain(planted: Planted) {
    plant(planted);
    at_once(at_work, &[(0, gone), (2, |y| y.drain_cpu(CpuId(1), None))], |_| ());
}

/// A CPU goes offline while another one allocates a block and folds its own delta.
pub fn offline_and_take(planted: Planted) {
    plant(planted);
    at_once(at_work, &[(0, gone), (2, |y| take(y, LARGE))], give);
}

/// Runs CPU 1's tick.
fn tick(y: &Y<'_>) {
    // Planted bug: does not wait for the zone lock.
    skip(1);
    y.tick(CpuId(1));
}

/// A CPU's tick folds its delta while another CPU's requests fold theirs.
pub fn fold(planted: Planted) {
    plant(planted);
    at_once(at_work, &[(0, |y| take(y, LARGE)), (1, tick)], give);
}

/// Two CPUs allocate and free blocks and fold their deltas each time, while a third one's tick does
/// the same.
pub fn fold_by_three(planted: Planted) {
    plant(planted);
    at_once(at_work, &[(0, |y| borrow(y, LARGE)), (2, |y| borrow(y, LARGE)), (1, tick)], |_| ());
}

/// A thread that reads the counters without a lock is off by at most the pages in flight.
pub fn read(planted: Planted) {
    plant(planted);
    at_once(start, &[(0, |y| take(y, LARGE)), (1, |y| take(y, LARGE)), (2, look)], give);
}

/// Like [`read`], but the reader folds CPU 1's delta first.
///
/// Planted: it does so without the zone lock, and counts the delta twice if CPU 1 folds it at the
/// same time. The reader must notice that.
pub fn fold_and_read(planted: Planted) {
    plant(planted);
    READERS_ONLY.set(planted != Planted::No);
    fn before(y: &Y<'_>) {
        at_work(y);
        start(y);
    }
    fn one(y: &Y<'_>) {
        // The request may fail, as in `borrow`.
        if let Ok(pfn) = y.alloc(LARGE, Gfp::KERNEL) {
            HELD.with_borrow_mut(|held| held.push((pfn, LARGE)));
        }
    }
    fn fold_and_look(y: &Y<'_>) {
        tick(y);
        look(y);
    }
    at_once(before, &[(0, one), (1, one), (2, fold_and_look)], give);
}

/// Returns the free counter minus the low mark.
fn above(y: &Y<'_>) -> i64 {
    y.above_low(ZoneKind::Normal).expect("there is such a zone")
}

fn start(y: &Y<'_>) {
    let info = y.zone_info(ZoneKind::Normal).expect("there is one");
    let part = info.free_exact as i64 - info.free as i64;
    START.set((above(y), part));
}

/// Reads the counter while two CPUs allocate a block each.
fn look(y: &Y<'_>) {
    let n = i64::from(LARGE.pages());
    let (start, part) = START.get();
    let off = above(y) - start;
    assert!((part - 2 * n..=0).contains(&off), "the counter is off by {off}");
}
