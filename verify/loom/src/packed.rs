//! The protocols of the packed engine: words and labels, labels and the index, whole pageblocks,
//! stacks of magazines, states of frames.
//!
//! The whole engine runs, through its public functions. A model's preparation and its final checks
//! run outside loom.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use loom::thread;
use pageyard_loom_atomics::{Lock, Planted, plant, plant_bug, staged};
use pageyard_loom_core::packed::{Link, ModelStack, OwnedStorage, Region, Stack};
use pageyard_loom_core::{CpuId, MigrateType, Order, Pfn};

type R<'a> = Region<'a, Lock>;
type Block = (Pfn, u8);
type Shelf<'a> = (Stack, &'a [Link]);

/// A bug of the engine, by its number in `packed/planted.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Bug {
    /// No bug.
    No,
    NoSecondLook,
    NoRecount,
    NoPutCheck,
    HalfPair,
    NoReleaseCount,
    NoRollback,
    NoTag,
    NoExchange,
    BareReturn,
    NoOwnership,
    LateRoute,
    NoRecheck,
    NoTakingBack,
}

/// A thread's actions on its CPU.
type Part = fn(&R<'_>, CpuId);

std::thread_local! {
    // Belongs to the thread that runs the model: the blocks in use, from which a model frees.
    static HELD: RefCell<Vec<Block>> = const { RefCell::new(Vec::new()) };
}

fn o(order: u8) -> Order {
    Order::new(order).expect("an order")
}

const TYPE: MigrateType = MigrateType::Movable;

/// Allocates a block if possible. It is freed at the end.
fn take(region: &R<'_>, cpu: CpuId, order: u8) -> Option<Pfn> {
    let pfn = region.alloc(cpu, o(order), TYPE)?;
    HELD.with_borrow_mut(|held| {
        let end = |(pfn, order): &Block| pfn.0 + (1 << order);
        let mine = (pfn, order);
        let apart = held.iter().all(|b| end(b) <= pfn.0 || end(&mine) <= b.0.0);
        assert!(apart, "a frame has two owners");
        held.push(mine);
    });
    Some(pfn)
}

/// Frees the block in use that starts at this frame.
fn give(region: &R<'_>, cpu: CpuId, frame: u64) {
    let block = HELD.with_borrow_mut(|held| {
        let at = held.iter().position(|(pfn, _)| pfn.0 == frame).expect("it is in use");
        held.swap_remove(at)
    });
    region.free(cpu, block.0, o(block.1)).expect("it is in use");
}

/// Runs a model on a region of some pageblocks for three CPUs: `before`, then the parts
/// concurrently, each on its CPU, then `after`. At the end everything is freed and every pageblock
/// must be whole.
fn model<const N: usize>(bug: Bug, blocks: u32, before: Part, parts: [Part; N], after: Part) {
    plant(Planted::No);
    plant_bug(bug as u32);
    HELD.take();
    let body = move || {
        let storage = OwnedStorage::<Lock>::new(blocks * 512, 3, 3).expect("a size");
        let region = storage.region(Pfn(0)).expect("it is new");
        region.add(Pfn(0)..Pfn(u64::from(blocks) * 512)).expect("its frames");
        before(&region, CpuId(0));
        staged(|| {
            let others: Vec<_> = parts
                .iter()
                .enumerate()
                .skip(1)
                .map(|(n, &part)| spawn(&region, n, part))
                .collect();
            // A thread must not outlive the region.
            let done = catch_unwind(AssertUnwindSafe(|| parts[0](&region, CpuId(0))));
            let joined: Vec<_> = others.into_iter().map(thread::JoinHandle::join).collect();
            done.unwrap_or_else(|e| resume_unwind(e));
            joined.into_iter().for_each(|j| j.expect("it ends"));
        });
        plant_bug(0);
        if let Err(e) = region.validate() {
            panic!("after the parts: {e}");
        }
        after(&region, CpuId(0));
        while let Some((pfn, order)) = HELD.with_borrow_mut(Vec::pop) {
            region.free(CpuId(0), pfn, o(order)).expect("it is in use");
        }
        region.drain_all();
        if let Err(e) = region.validate() {
            panic!("at the end: {e}");
        }
        assert_eq!(region.whole_blocks(), u64::from(blocks), "a frame is lost");
        plant_bug(bug as u32);
    };
    roomy(body).join().expect("it ends");
}

fn spawn(region: &R<'_>, number: usize, part: Part) -> thread::JoinHandle<()> {
    let region: *const R<'_> = region;
    // SAFETY: the caller waits for the thread before the region is dropped; only a lifetime changes.
    let region: &'static R<'static> = unsafe { &*region.cast() };
    roomy(move || part(region, CpuId(number as u32)))
}

/// Spawns a thread with a larger stack than loom's default.
fn roomy(body: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    roomy_value(body)
}

fn roomy_value<T: Send + 'static>(
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    // The size is in words.
    thread::Builder::new().stack_size(1 << 15).spawn(body).expect("loom makes it")
}

/// Allocates all memory as blocks of order 6, one word each.
fn all_words(region: &R<'_>, cpu: CpuId) {
    while take(region, cpu, 6).is_some() {}
}

/// Allocates all memory as words, then frees those from `from` on.
fn free_words(region: &R<'_>, cpu: CpuId, from: u64) {
    all_words(region, cpu);
    (from..8).for_each(|word| give(region, cpu, word * 64));
}

fn nothing(_: &R<'_>, _: CpuId) {}

/// The last two words of a pageblock are freed concurrently: it becomes whole exactly once.
pub fn last_two_words(bug: Bug) {
    let before: Part = |r, c| free_words(r, c, 2);
    model(bug, 1, before, [|r, c| give(r, c, 0), |r, c| give(r, c, 64)], |r, _| {
        assert_eq!(r.whole_blocks(), 1, "no free made it whole");
    });
}

/// A free while another CPU claims the pageblock, refills from it and releases it.
pub fn free_and_adopt(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
    };
    let adopt: Part = |r, c| {
        take(r, c, 3);
        r.drain(c);
    };
    model(bug, 1, before, [|r, c| give(r, c, 64), adopt], nothing);
}

/// A free into the word from which another CPU allocates a block.
pub fn free_and_take(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
        take(r, c, 5);
        take(r, c, 4);
        take(r, c, 4);
        give(r, c, 48);
    };
    let direct: Part = |r, c| _ = take(r, c, 4);
    model(bug, 1, before, [|r, c| give(r, c, 32), direct], nothing);
}

/// Two CPUs allocate overlapping blocks of two orders: one of them returns the frames it cannot
/// use.
pub fn overlap(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
        take(r, c, 5);
    };
    let large: Part = |r, c| _ = take(r, c, 5);
    let small: Part = |r, c| _ = take(r, c, 4);
    model(bug, 1, before, [large, small], nothing);
}

/// The same, while a third CPU frees into the word.
pub fn overlap_and_free(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
        take(r, c, 5);
    };
    let large: Part = |r, c| _ = take(r, c, 5);
    let small: Part = |r, c| _ = take(r, c, 4);
    model(bug, 1, before, [|r, c| give(r, c, 0), large, small], nothing);
}

/// The last free makes the pageblock whole while another CPU takes a word of it.
pub fn seal_and_thief(bug: Bug) {
    let before: Part = |r, c| free_words(r, c, 1);
    let thief: Part = |r, c| _ = take(r, c, 6);
    model(bug, 1, before, [|r, c| give(r, c, 0), thief], nothing);
}

/// A CPU allocates the last free block of a pageblock while another one frees the next block.
pub fn empty_and_free(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
    };
    let direct: Part = |r, c| _ = take(r, c, 6);
    model(bug, 1, before, [direct, |r, c| give(r, c, 64)], nothing);
}

/// A request that looks at all pageblocks while a word of one becomes free: the next request finds it.
pub fn search_and_free(bug: Bug) {
    // Not by `all_words`, whose last request searches already.
    let before: Part = |r, c| (0..8).for_each(|_| _ = take(r, c, 6));
    let search: Part = |r, c| _ = take(r, c, 6);
    model(bug, 1, before, [search, |r, c| give(r, c, 64)], nothing);
}

/// A pageblock moves between buckets while frees and an allocation change its free frames.
pub fn move_in_index(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
    };
    let direct: Part = |r, c| _ = take(r, c, 6);
    model(bug, 1, before, [|r, c| give(r, c, 64), direct, |r, c| give(r, c, 128)], nothing);
}

/// A pageblock is isolated and un-isolated while a block of it is freed.
pub fn isolate_and_free(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
    };
    let isolate: Part = |r, _| {
        if r.isolate(Pfn(0)).is_ok() {
            r.unisolate(Pfn(0)).expect("it is isolated");
        }
    };
    model(bug, 1, before, [|r, c| give(r, c, 64), isolate], nothing);
}

/// The last free of a pageblock while it is isolated and un-isolated.
pub fn isolate_and_seal(bug: Bug) {
    let before: Part = |r, c| free_words(r, c, 1);
    let isolate: Part = |r, _| {
        if r.isolate(Pfn(0)).is_ok() {
            r.unisolate(Pfn(0)).expect("it is isolated");
        }
    };
    model(bug, 1, before, [|r, c| give(r, c, 0), isolate], |r, _| {
        assert_eq!(r.whole_blocks(), 1, "no free made it whole");
    });
}

/// A whole pageblock is isolated while another CPU claims it.
pub fn isolate_and_claim(bug: Bug) {
    let isolate: Part = |r, _| {
        if r.isolate(Pfn(0)).is_ok() {
            r.unisolate(Pfn(0)).expect("it is isolated");
        }
    };
    model(bug, 1, nothing, [isolate, |r, c| _ = take(r, c, 9)], nothing);
}

/// Two CPUs allocate and free the only whole pageblock.
pub fn claim_and_free(bug: Bug) {
    let both: Part = |r, c| {
        if let Some(pfn) = take(r, c, 9) {
            give(r, c, pfn.0);
            r.drain(c);
        }
    };
    model(bug, 1, nothing, [both, both], nothing);
}

/// A block of order 10 is allocated while another CPU claims one of its pageblocks.
pub fn pair_and_half(bug: Bug) {
    let pair: Part = |r, c| _ = take(r, c, 10);
    let half: Part = |r, c| _ = take(r, c, 9);
    model(bug, 2, nothing, [pair, half], nothing);
}

/// The pageblock becomes whole and is allocated as 2 MiB while the other of the last two frees
/// still looks at it.
pub fn seal_claim_and_late_look(bug: Bug) {
    let before: Part = |r, c| free_words(r, c, 2);
    let claim: Part = |r, c| {
        if let Some(pfn) = take(r, c, 9) {
            give(r, c, pfn.0);
            r.drain(c);
        }
    };
    model(bug, 1, before, [|r, c| give(r, c, 0), |r, c| give(r, c, 64), claim], |r, _| {
        assert_eq!(r.whole_blocks(), 1, "no free made it whole");
    });
}

/// A thread pops two magazines of a stack, then pushes another one and the first one, while a
/// second thread pops one: the head and the count are unchanged, but the successor is not.
pub fn stack(bug: Bug) {
    plant(Planted::No);
    plant_bug(bug as u32);
    let body = || {
        let links = [const { Link::new() }; 4];
        let stack = Shelf::with_links(&links);
        let two = |stack: &Shelf<'_>| {
            let (first, second) = (stack.pop(), stack.pop());
            stack.push(3);
            first.into_iter().for_each(|n| stack.push(n));
            second
        };
        let mut got = vec![];
        staged(|| {
            // Inside the stage, so that with that bug these pushes have no tag either.
            (0..3).for_each(|n| stack.push(n));
            let shared: *const Shelf<'_> = &raw const stack;
            // SAFETY: the thread is joined below; only a lifetime changes.
            let shared: &'static Shelf<'static> = unsafe { &*shared.cast() };
            let other = roomy_value(move || two(shared));
            got.extend(stack.pop());
            got.extend(other.join().expect("it ends"));
        });
        got.extend(std::iter::from_fn(|| stack.pop()).take(5));
        got.sort_unstable();
        assert_eq!(got, [0, 1, 2, 3], "a magazine is lost or has two owners");
    };
    roomy(body).join().expect("it ends");
}

/// Two CPUs free one block: exactly one succeeds.
pub fn free_twice(bug: Bug) {
    let free: Part = |r, c| {
        if r.free(c, Pfn(0), o(6)).is_ok() {
            HELD.with_borrow_mut(|held| {
                let at = held.iter().position(|(pfn, _)| pfn.0 == 0);
                held.swap_remove(at.expect("two frees succeeded"));
            });
        }
    };
    model(bug, 1, all_words, [free, free], nothing);
}

/// Isolation ends on one CPU while it begins on another, with some frames free.
pub fn isolate_and_end(bug: Bug) {
    let before: Part = |r, c| {
        all_words(r, c);
        give(r, c, 0);
    };
    model(
        bug,
        1,
        before,
        [|r, _| _ = r.isolate(Pfn(0)), |r, _| _ = r.unisolate(Pfn(0))],
        |r, _| {
            _ = r.unisolate(Pfn(0));
        },
    );
}

/// The same for a whole pageblock.
pub fn isolate_whole_and_end(bug: Bug) {
    let (begin, end): (Part, Part) = (|r, _| _ = r.isolate(Pfn(0)), |r, _| _ = r.unisolate(Pfn(0)));
    model(bug, 1, nothing, [begin, end], |r, _| _ = r.unisolate(Pfn(0)));
}

/// A free moves the pageblock in the index while it is isolated. Later frees must stay in the
/// pageblock.
pub fn isolate_and_move(bug: Bug) {
    let before: Part = |r, c| {
        // Word 0 as single pages, whose frees may go to magazines.
        (0..64).for_each(|_| _ = take(r, c, 0));
        all_words(r, c);
        give(r, c, 64);
        r.drain_all();
    };
    model(bug, 1, before, [|r, c| give(r, c, 128), |r, _| _ = r.isolate(Pfn(0))], |r, c| {
        if r.isolate(Pfn(0)).is_ok() {
            r.unisolate(Pfn(0)).expect("it is isolated");
            return;
        }
        r.drain_all();
        give(r, c, 5);
        let got = r.alloc(c, o(0), TYPE);
        assert_eq!(got, None, "a frame of an isolated pageblock");
        r.unisolate(Pfn(0)).expect("it is isolated");
    });
}

std::thread_local! {
    // Free frames of the pageblock, as seen after it was isolated.
    static SEEN: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
}

/// Free frames of an isolated pageblock stay free.
pub fn isolate_and_take(bug: Bug) {
    let before: Part = |r, c| {
        SEEN.set(None);
        all_words(r, c);
        give(r, c, 0);
    };
    let isolate: Part = |r, _| {
        if r.isolate(Pfn(0)).is_ok() {
            SEEN.set(r.free_in_block(Pfn(0)));
        }
    };
    model(bug, 1, before, [isolate, |r, c| _ = take(r, c, 6)], |r, _| {
        if let Some(seen) = SEEN.get() {
            let now = r.free_in_block(Pfn(0)).expect("a frame of the region");
            assert!(now >= seen, "frames were taken after the isolation");
            _ = r.unisolate(Pfn(0));
        }
    });
}
