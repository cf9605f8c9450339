//! Magazines, and lock-free stacks of them.

use crate::base::shared::{AtomicU32, AtomicU64};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::packed::planted::{Bug, planted};

/// Entries of a magazine.
pub(crate) const ENTRIES: usize = 64;

/// No magazine: the end of a stack.
const NIL: u32 = (1 << 24) - 1;

/// Most magazines of a region.
pub(crate) const MAX_MAGAZINES: u32 = NIL;

/// Most magazines that a stack counts.
pub(crate) const MOST: u32 = (1 << 12) - 1;

/// The limit of a stack without one.
pub(super) const UNCOUNTED: u32 = u32::MAX;

/// In each interval of ticks, one in `DECAY` of the magazines that were not needed returns to the zone.
const DECAY: u32 = 32;

/// An array of frames. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::Magazine;
///
/// static PART: [Magazine; 128] = [const { Magazine::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
#[repr(align(64))]
pub struct Magazine(pub(crate) [AtomicU32; ENTRIES]);

impl Magazine {
    /// Returns an empty magazine.
    pub const fn new() -> Self {
        Magazine([const { AtomicU32::new(0) }; ENTRIES])
    }
}

impl Default for Magazine {
    fn default() -> Self {
        Magazine::new()
    }
}

/// A magazine's successor in a stack. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::Link;
///
/// static PART: [Link; 128] = [const { Link::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct Link(AtomicU32);

impl Link {
    /// Returns a link to nothing.
    pub const fn new() -> Self {
        Link(AtomicU32::new(NIL))
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}

/// The head of a stack: tag 28 bits, count 12, index 24. The tag changes with every push and pop,
/// so that an exchange fails if the magazine was popped and pushed again meanwhile.
#[derive(Clone, Copy)]
struct Head(u64);

impl Head {
    const EMPTY: Head = Head(NIL as u64);

    fn index(self) -> u32 {
        self.0 as u32 & NIL
    }

    fn count(self) -> u32 {
        (self.0 >> 24) as u32 & MOST
    }

    fn successor(self, index: u32, count: u32) -> Head {
        let tag = if planted(Bug::NoTag) { 0 } else { (self.0 >> 36).wrapping_add(1) };
        Head(tag << 36 | u64::from(count & MOST) << 24 | u64::from(index & NIL))
    }
}

/// A stack of magazines (Treiber), on a line of its own.
#[derive(Debug)]
#[repr(align(128))]
#[allow(unreachable_pub)] // for the models
pub struct Stack {
    head: AtomicU64,
    /// The fewest magazines since the last tick: those were not needed.
    least: AtomicU32,
    /// Of the node's depot: magazines that ticks have yet to return to the zone.
    due: AtomicU32,
}

impl Stack {
    pub(super) const fn new() -> Self {
        Stack {
            head: AtomicU64::new(Head::EMPTY.0),
            least: AtomicU32::new(0),
            due: AtomicU32::new(0),
        }
    }

    pub(super) fn clear(&self) {
        self.head.store(Head::EMPTY.0, Relaxed);
        self.least.store(0, Relaxed);
        self.due.store(0, Relaxed);
    }

    /// Calls `each` with the magazines. For a check while nothing else runs.
    pub(super) fn for_each(&self, links: &[Link], mut each: impl FnMut(u32)) {
        let mut at = Head(self.head.load(Relaxed)).index();
        while let Some(link) = links.get(at as usize) {
            each(at);
            at = link.0.load(Relaxed);
        }
    }

    pub(crate) fn len(&self) -> u32 {
        Head(self.head.load(Relaxed)).count()
    }

    /// Pushes a magazine unless the stack holds `limit` of them. Returns whether it did. A stack
    /// without a limit ([`UNCOUNTED`]) need not count right.
    pub(super) fn push(&self, links: &[Link], index: u32, limit: u32) -> bool {
        let Some(link) = links.get(index as usize) else { return false };
        let mut head = Head(self.head.load(Relaxed));
        loop {
            if head.count() >= limit {
                return false;
            }
            link.0.store(head.index(), Relaxed);
            let new = head.successor(index, (head.count() + 1).min(MOST));
            match self.head.compare_exchange_weak(head.0, new.0, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => head = Head(now),
            }
        }
    }

    pub(super) fn pop(&self, links: &[Link]) -> Option<u32> {
        let mut head = Head(self.head.load(Acquire));
        loop {
            let index = head.index();
            let next = links.get(index as usize)?.0.load(Relaxed);
            let new = head.successor(next, head.count().saturating_sub(1));
            match self.head.compare_exchange_weak(head.0, new.0, AcqRel, Acquire) {
                Ok(_) => return Some(index),
                Err(now) => head = Head(now),
            }
        }
    }

    /// Like [`push`](Self::push), but in one attempt.
    pub(super) fn push_once(
        &self,
        links: &[Link],
        index: u32,
        limit: u32,
    ) -> Result<bool, Contended> {
        let Some(link) = links.get(index as usize) else { return Ok(false) };
        let head = Head(self.head.load(Relaxed));
        if head.count() >= limit {
            return Ok(false);
        }
        link.0.store(head.index(), Relaxed);
        let new = head.successor(index, (head.count() + 1).min(MOST));
        let pushed = self.head.compare_exchange(head.0, new.0, AcqRel, Relaxed);
        pushed.map(|_| true).map_err(|_| Contended)
    }

    /// Like [`pop`](Self::pop), but in one attempt.
    pub(super) fn pop_once(&self, links: &[Link]) -> Result<Option<u32>, Contended> {
        let head = Head(self.head.load(Acquire));
        let index = head.index();
        let Some(next) = links.get(index as usize).map(|link| link.0.load(Relaxed)) else {
            return Ok(None);
        };
        let new = head.successor(next, head.count().saturating_sub(1));
        let popped = self.head.compare_exchange(head.0, new.0, AcqRel, Relaxed);
        popped.map(|_| Some(index)).map_err(|_| Contended)
    }

    pub(super) fn note_least(&self) {
        let left = self.len();
        if left < self.least.load(Relaxed) {
            self.least.store(left, Relaxed);
        }
    }

    /// Returns how many magazines to return to the zone, at most `most`: a part of those that were
    /// not needed since the last call. Starts the next interval.
    pub(super) fn surplus(&self, most: u32) -> u32 {
        let (n, least) = (self.len(), self.least.load(Relaxed));
        let drop = least.min(n).div_ceil(DECAY).min(most);
        store_new(&self.least, least, n - drop);
        drop
    }

    /// Sets how many magazines are due.
    pub(super) fn set_due(&self, due: u32) {
        store_new(&self.due, self.due.load(Relaxed), due);
    }

    /// Takes one of the magazines that are due. Returns whether there was one.
    pub(super) fn take_due(&self) -> bool {
        self.due.fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1)).is_ok()
    }
}

/// Stores a value that differs from the one before. Most stacks are empty, and a tick looks at all of
/// them: their lines stay in its cache if no tick writes them.
pub(super) fn store_new(to: &AtomicU32, before: u32, now: u32) {
    if before != now {
        to.store(now, Relaxed);
    }
}

/// Another CPU changed a stack meanwhile.
pub(super) struct Contended;

/// A stack, as the models of `verify/loom` see it.
#[cfg(pageyard_loom)]
pub trait ModelStack<'a>: Sized {
    /// Returns an empty stack.
    fn with_links(links: &'a [Link]) -> Self;
    /// Pushes a magazine.
    fn push(&self, index: u32);
    /// Pops a magazine.
    fn pop(&self) -> Option<u32>;
}

#[cfg(pageyard_loom)]
impl<'a> ModelStack<'a> for (Stack, &'a [Link]) {
    fn with_links(links: &'a [Link]) -> Self {
        (Stack::new(), links)
    }

    fn push(&self, index: u32) {
        assert!(self.0.push(self.1, index, MOST));
    }

    fn pop(&self) -> Option<u32> {
        self.0.pop(self.1)
    }
}

#[cfg(test)]
mod tests;
