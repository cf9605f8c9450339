//! The models: what the threads do, and what must hold then.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::thread;
use pageyard::{Order, ZoneKind};

use crate::busy::BusyFlag;
use crate::handshake::with_claimed;
use crate::magazine::{KINDS, Kind, Magazine, ROOM, Ready};
use crate::near_mark::{NEAR_MARK, NearMark};
use crate::roster::{Limits, Roster};
use crate::seqlock::{HEAD, length, publish, snapshot};
use crate::sync::{
    AtomicI64, AtomicU32, AtomicU64, Ordering, build_guards_eagerly, leave_out_fences,
};
use crate::wake_flag::WakeFlag;
use crate::wakeups::Wakeups;

/// Whether a model contains its bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// The unchanged product.
    No,
    /// The bug that the model's documentation names.
    Yes,
}

impl Planted {
    fn is(self) -> bool {
        self == Planted::Yes
    }
}

/// Runs `body` under all executions with at most `preemptions` preemptions, or without a bound if
/// that is `None`. `LOOM_MAX_PREEMPTIONS` overrides it. Returns the number of executions.
pub fn all(preemptions: Option<usize>, body: impl Fn() + Sync + Send + 'static) -> u64 {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = model.preemption_bound.or(preemptions);
    model.max_branches = 10_000;
    let count = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = count.clone();
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    count.load(Ordering::Relaxed)
}

const KIND: Kind = Kind::Movable;
const PAGE: usize = 4096;

/// Pages whose contents only one thread may use at a time. Loom reports concurrent use.
struct Pages([UnsafeCell<u32>; 3]);

impl Pages {
    fn block(n: usize) -> NonNull<u8> {
        NonNull::new(ptr::without_provenance_mut((n + 1) * PAGE)).expect("not at 0")
    }

    /// Writes to a block; the caller must own it. Returns the block's number.
    fn used(&self, block: Ready) -> usize {
        let n = block.start().as_ptr().addr() / PAGE - 1;
        // SAFETY: the block is the caller's; loom panics if another thread uses it.
        self.0[n].with_mut(|page| unsafe { *page += 1 });
        n
    }
}

// SAFETY: loom checks every access.
unsafe impl Sync for Pages {}
// SAFETY: as above.
unsafe impl Send for Pages {}

/// Number of executions in which a magazine was emptied a second time and held blocks again.
pub static AGAIN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The owner of a magazine pops and pushes blocks while another thread empties it, twice if
/// `twice`. Every block must have exactly one owner.
///
/// Planted: the emptying thread does not wait for the barrier.
pub fn magazine(planted: Planted, twice: bool) {
    let pages = Arc::new(Pages(std::array::from_fn(|_| UnsafeCell::new(0))));
    let magazine = Arc::new(Magazine::new(1));
    magazine.set_near(PAGE, 3 * PAGE);
    magazine.set_limit(KIND, 3);
    for n in 0..2 {
        assert!(magazine.push(KIND, Pages::block(n)));
    }
    let owner = {
        let (pages, magazine) = (pages.clone(), magazine.clone());
        thread::spawn(move || {
            let mut mine = vec![2];
            if let Some(block) = magazine.pop(KIND) {
                mine.push(pages.used(block));
            }
            // Push a block that this thread wrote to.
            pages.used(Ready::new(Pages::block(2), false));
            if magazine.push(KIND, Pages::block(2)) {
                mine.remove(0);
            }
            if let Some(block) = magazine.pop(KIND) {
                mine.push(pages.used(block));
            }
            mine
        })
    };
    let mut taken = Vec::new();
    for round in 0..1 + u32::from(twice) {
        if round > 0 {
            // Loom's bound on preemptions excludes more executions than documented.
            thread::yield_now();
        }
        let barrier = || {
            if !planted.is() {
                loom::sync::atomic::fence(SeqCst);
            }
            true
        };
        with_claimed(
            &[&*magazine],
            |m| m.pages() > 0,
            barrier,
            |m| {
                let mut all = [None; ROOM];
                let n = m.take_all(KIND, &mut all);
                if round > 0 && n > 0 {
                    AGAIN.fetch_add(1, Ordering::Relaxed);
                }
                taken.extend(all[..n].iter().flatten().map(|&b| pages.used(b)));
            },
        );
    }
    let mut all = owner.join().expect("it ends");
    all.append(&mut taken);
    while let Some(block) = magazine.pop(KIND) {
        all.push(pages.used(block));
    }
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2], "every block once");
}

/// The former version of `Magazine::fill`, run by the owner while its limit changes. It read the
/// limit to count the blocks that fit, and again for each block.
fn fill_rereading_limit(m: &Magazine, blocks: &[Option<Ready>]) -> usize {
    let room = u64::from(m.limit(KIND)).saturating_sub(m.pages());
    let n = blocks.len().min(room as usize);
    blocks[..n].iter().rev().flatten().take_while(|b| m.push(KIND, b.start())).count()
}

/// The former version of `Roster::press`. It set the flag before it took the lock.
fn press_as_it_was(roster: &Roster) {
    roster.pressed.swap(true, Ordering::Relaxed);
    roster.list().iter().for_each(|m| m.set_limit(KIND, 0));
}

/// The barrier that all threads pass while magazines are emptied.
fn barrier() -> bool {
    loom::sync::atomic::fence(SeqCst);
    true
}

/// Creates a yard's roster: at most two threads, with room for [`LIMIT`] blocks each.
fn roster() -> Roster {
    Roster::new(Limits { blocks: [LIMIT; KINDS], threads: 2 })
}

const LIMIT: u32 = 2;

fn join(roster: &Roster, thread: u32) -> Arc<Magazine> {
    let magazine = Arc::new(Magazine::new(thread));
    magazine.set_near(PAGE, 3 * PAGE);
    assert!(roster.join(&magazine), "there is room for it");
    magazine
}

/// Checks that every limit is 0 under pressure, and [`LIMIT`] otherwise.
fn check_limits(roster: &Roster) {
    let allowed = if roster.is_pressed() { 0 } else { LIMIT };
    let list = roster.list();
    assert!(list.iter().all(|m| m.limit(KIND) == allowed), "a limit of another state");
}

/// The owner of a magazine fills it, then pops and pushes a block, while its limit drops to 0 and
/// returns, and while another thread empties the magazine. Every block must have one owner, and
/// none may be leaked.
///
/// Planted: [`fill_rereading_limit`].
pub fn fill(planted: Planted) {
    let pages = Arc::new(Pages(std::array::from_fn(|_| UnsafeCell::new(0))));
    let roster = Arc::new(roster());
    let magazine = join(&roster, 1);
    let owner = {
        let (pages, magazine) = (pages.clone(), magazine.clone());
        thread::spawn(move || {
            let fetched = [0, 1].map(|n| Some(Ready::new(Pages::block(n), false)));
            let kept = if planted.is() {
                fill_rereading_limit(&magazine, &fetched)
            } else {
                magazine.fill(KIND, &fetched)
            };
            // The rest is freed to the allocator.
            let rest = fetched[kept..].iter().flatten();
            let mut mine: Vec<_> = rest.map(|&b| pages.used(b)).collect();
            if let Some(block) = magazine.pop(KIND) {
                let n = pages.used(block);
                if !magazine.push(KIND, block.start()) {
                    mine.push(n);
                }
            }
            mine
        })
    };
    let mut all = Vec::new();
    let mut take = |m: &Magazine| {
        let mut taken = [None; ROOM];
        let n = m.take_all(KIND, &mut taken);
        all.extend(taken[..n].iter().flatten().map(|&b| pages.used(b)));
    };
    roster.press(barrier, &mut take);
    assert!(!roster.relax(|| i64::MAX), "there is room");
    all.extend(owner.join().expect("it ends"));
    all.extend(std::iter::from_fn(|| magazine.pop(KIND)).map(|b| pages.used(b)));
    all.sort_unstable();
    assert_eq!(all, [0, 1], "a block is lost, or has two owners");
    check_limits(&roster);
}

/// Memory pressure begins and ends while one thread gets its magazine and another thread ends.
/// Limits and flag must agree.
///
/// Planted: [`press_as_it_was`].
pub fn press(planted: Planted) {
    let roster = Arc::new(roster());
    let first = join(&roster, 1);
    roster.press(barrier, |_| ());
    let presser = {
        let roster = roster.clone();
        thread::spawn(move || {
            if planted.is() {
                press_as_it_was(&roster);
            } else {
                roster.press(barrier, |_| ());
            }
        })
    };
    let other = {
        let roster = roster.clone();
        thread::spawn(move || {
            roster.leave(&first, || ());
            join(&roster, 2);
        })
    };
    roster.relax(|| i64::MAX);
    presser.join().expect("it ends");
    other.join().expect("it ends");
    check_limits(&roster);
    assert!(!roster.relax(|| i64::MAX), "there is room");
    check_limits(&roster);
}

/// One thread writes two texts while another copies. The copy must hold nothing or one whole text.
///
/// Planted: fences have no effect.
pub fn page(planted: Planted) {
    leave_out_fences(planted.is());
    let texts = [[1u8; 16].to_vec(), [2u8; 9].to_vec()];
    let words: Arc<[AtomicU64]> = (0..HEAD + 2).map(|_| AtomicU64::new(0)).collect();
    let writer = {
        let (texts, words) = (texts.clone(), words.clone());
        thread::spawn(move || texts.iter().for_each(|t| publish(&words, t)))
    };
    // Models a system call that copies in an unspecified order.
    let copy = |at: usize, to: &mut [u8]| {
        for (word, bytes) in words[at / 8..].iter().zip(to.chunks_mut(8)) {
            let n = bytes.len();
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..n]);
        }
        Ok::<(), ()>(())
    };
    let seen = snapshot(copy, |head| Ok(length(head) as usize)).expect("it copies");
    if let Some(text) = seen {
        assert!(texts.contains(&text), "half of a text: {text:?}");
    }
    writer.join().expect("it ends");
    let last = snapshot(copy, |head| Ok(length(head) as usize)).expect("it copies");
    assert_eq!(last.as_ref(), Some(&texts[1]));
}

/// Creates `Wakeups` without a request, with all of its atomics registered with loom.
fn unasked() -> Arc<Wakeups> {
    let wakeups = Arc::new(Wakeups::new());
    assert!(!wakeups.is_asked() && !wakeups.is_at_work() && !wakeups.is_hopeless());
    wakeups
}

/// A thread requests background reclaim while that is about to sleep. Reclaim must be woken or see
/// the request itself.
///
/// Planted: fences have no effect.
pub fn lie_down(planted: Planted) {
    leave_out_fences(planted.is());
    let wakeups = unasked();
    wakeups.at_work.store(true, Ordering::Relaxed);
    let woken = Arc::new(AtomicBool::new(false));
    let asker = {
        let (wakeups, woken) = (wakeups.clone(), woken.clone());
        thread::spawn(move || {
            wakeups.merge(Order::HUGE, ZoneKind::Normal);
            if !wakeups.is_at_work() {
                woken.store(true, SeqCst);
            }
        })
    };
    let served = wakeups.take().is_some();
    let asleep = wakeups.lie_down();
    asker.join().expect("it ends");
    assert!(served || !asleep || woken.load(SeqCst), "asleep without a wake-up");
}

/// One thread raises a zone's free counter, another lowers it, a third raises the mark. At the end
/// the counter is below the mark, and requests must read it.
///
/// Planted: fences have no effect.
pub fn near_mark(planted: Planted) {
    struct Words(AtomicU32, AtomicI64, [AtomicI64; 1]);
    impl Words {
        fn view(&self) -> NearMark<'_> {
            NearMark { flags: &self.0, counter: &self.1, marks: &self.2 }
        }

        fn add(&self, pages: i64) {
            let free = self.1.fetch_add(pages, Ordering::Relaxed) + pages;
            self.view().note_counter(free);
        }
    }
    leave_out_fences(planted.is());
    let words =
        Arc::new(Words(AtomicU32::new(NEAR_MARK), AtomicI64::new(2_000), [AtomicI64::new(50)]));
    assert!(words.view().is_right());
    let others = [3_000, -4_945].map(|pages| {
        let words = words.clone();
        thread::spawn(move || words.add(pages))
    });
    words.2[0].store(60, Ordering::Relaxed);
    words.view().note_marks();
    others.into_iter().for_each(|t| t.join().expect("it ends"));
    assert!(words.view().is_right(), "requests do not see the mark");
}

/// Two threads make requests, and background reclaim takes them both during and after that. It must
/// receive each order together with a zone at least as high as the request's.
///
/// Planted: order and zone are published one after the other.
pub fn asked(planted: Planted) {
    let wakeups = unasked();
    let wants = [(Order::HUGE, ZoneKind::Normal), (Order::ZERO, ZoneKind::Movable)];
    let askers = wants.map(|(order, highest)| {
        let wakeups = wakeups.clone();
        thread::spawn(move || {
            if planted.is() {
                wakeups.merge(order, ZoneKind::Dma);
                wakeups.merge(Order::ZERO, highest);
            } else {
                wakeups.merge(order, highest);
            }
        })
    });
    let mut told: Vec<_> = wakeups.take().into_iter().collect();
    askers.into_iter().for_each(|a| a.join().expect("it ends"));
    told.extend(wakeups.take());
    for (order, highest) in wants {
        let heard = told.iter().any(|&(o, h)| o >= order && h >= highest);
        assert!(heard, "lost wake-up of {order:?} up to {highest:?}: {told:?}");
    }
}

/// Two threads try to take a busy flag twice each, also while the other one holds it, and use data
/// that only the holder may use.
///
/// Planted: a failed attempt builds the guard and drops it, which releases the other thread's flag.
/// The second attempt detects it: with one attempt each, a flag released under its holder is not
/// taken again.
pub fn turn(planted: Planted) {
    build_guards_eagerly(planted.is());
    struct Shared(BusyFlag, UnsafeCell<u32>);
    // SAFETY: loom checks every access.
    unsafe impl Sync for Shared {}
    // SAFETY: as above.
    unsafe impl Send for Shared {}
    let shared = Arc::new(Shared(BusyFlag::new(), UnsafeCell::new(0)));
    assert!(shared.0.try_take().is_some(), "it is free");
    let part = || {
        let shared = shared.clone();
        move || {
            for _ in 0..2 {
                if let Some(_held) = shared.0.try_take() {
                    // SAFETY: the holder of the flag is alone; loom panics if it is not.
                    shared.1.with_mut(|n| unsafe { *n += 1 });
                    thread::yield_now();
                    // SAFETY: as above.
                    shared.1.with_mut(|n| unsafe { *n += 1 });
                }
            }
        }
    };
    let other = thread::spawn(part());
    part()();
    other.join().expect("it ends");
    assert!(shared.0.try_take().is_some(), "it is free at the end");
}

/// Two threads publish work and signal. A third one waits twice, and once more if the event is
/// readable at the end. It must see all work, and a later signal must still reach the event. The
/// eventfd is modelled as a relaxed counter, so only the flag orders the work.
///
/// Planted: the flag is cleared before the event is read.
pub fn signal(planted: Planted) {
    struct Shared {
        flag: WakeFlag,
        event: AtomicU64,
        work: AtomicU64,
    }
    impl Shared {
        fn signal(&self) {
            self.flag.signal(|| {
                self.event.fetch_add(1, Ordering::Relaxed);
                true
            });
        }

        fn is_readable(&self) -> bool {
            self.event.load(Ordering::Relaxed) > 0
        }

        fn wait(&self, planted: Planted) -> u64 {
            let read = || _ = self.event.swap(0, Ordering::Relaxed);
            if planted.is() {
                self.flag.take(|| ());
                read();
            } else {
                self.flag.take(read);
            }
            self.work.load(Ordering::Relaxed)
        }
    }
    let shared = Arc::new(Shared {
        flag: WakeFlag::default(),
        event: AtomicU64::new(0),
        work: AtomicU64::new(0),
    });
    let ringers = [1, 2].map(|bit| {
        let shared = shared.clone();
        thread::spawn(move || {
            shared.work.fetch_or(bit, Ordering::Relaxed);
            shared.signal();
        })
    });
    let mut seen = 0;
    for _ in 0..2 {
        if shared.is_readable() {
            seen = shared.wait(planted);
        }
        thread::yield_now();
    }
    ringers.into_iter().for_each(|r| r.join().expect("it ends"));
    if shared.is_readable() {
        seen = shared.wait(planted);
    }
    assert_eq!(seen, 3, "asleep after a lost signal");
    shared.signal();
    assert!(shared.is_readable(), "a later signal is suppressed");
}
