//! Depots: full and empty magazines that pass between the CPUs of a cache domain, and between
//! domains through the node's depot.

use core::num::NonZeroU32;

#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed};
use crate::packed::class::{CLASSES, pages_of};
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
const UNCOUNTED: u32 = u32::MAX;

/// Full magazines of a class that a domain's depot holds.
pub(crate) const NEAR: u32 = 8;

/// The same for pageblocks: a magazine of two is 4 MiB.
pub(crate) const NEAR_HUGE: u32 = 2;

/// Empty magazines that a domain's depot holds.
const NEAR_EMPTY: u32 = 8;

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
    const fn new() -> Self {
        Stack {
            head: AtomicU64::new(Head::EMPTY.0),
            least: AtomicU32::new(0),
            due: AtomicU32::new(0),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        Head(self.head.load(Relaxed)).count()
    }

    /// Pushes a magazine unless the stack holds `limit` of them. Returns whether it did. A stack
    /// without a limit ([`UNCOUNTED`]) need not count right.
    fn push(&self, links: &[Link], index: u32, limit: u32) -> bool {
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

    fn pop(&self, links: &[Link]) -> Option<u32> {
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
    fn push_once(&self, links: &[Link], index: u32, limit: u32) -> Result<bool, Contended> {
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
    fn pop_once(&self, links: &[Link]) -> Result<Option<u32>, Contended> {
        let head = Head(self.head.load(Acquire));
        let index = head.index();
        let Some(next) = links.get(index as usize).map(|link| link.0.load(Relaxed)) else {
            return Ok(None);
        };
        let new = head.successor(next, head.count().saturating_sub(1));
        let popped = self.head.compare_exchange(head.0, new.0, AcqRel, Relaxed);
        popped.map(|_| Some(index)).map_err(|_| Contended)
    }

    fn note_least(&self) {
        let left = self.len();
        if left < self.least.load(Relaxed) {
            self.least.store(left, Relaxed);
        }
    }

    /// Returns how many magazines to return to the zone, at most `most`: a part of those that were
    /// not needed since the last call. Starts the next interval.
    fn surplus(&self, most: u32) -> u32 {
        let (n, least) = (self.len(), self.least.load(Relaxed));
        let drop = least.min(n).div_ceil(DECAY).min(most);
        store_new(&self.least, least, n - drop);
        drop
    }

    /// Sets how many magazines are due.
    fn set_due(&self, due: u32) {
        store_new(&self.due, self.due.load(Relaxed), due);
    }

    /// Takes one of the magazines that are due. Returns whether there was one.
    fn take_due(&self) -> bool {
        self.due.fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1)).is_ok()
    }
}

/// Stores a value that differs from the one before. Most stacks are empty, and a tick looks at all of
/// them: their lines stay in its cache if no tick writes them.
fn store_new(to: &AtomicU32, before: u32, now: u32) {
    if before != now {
        to.store(now, Relaxed);
    }
}

/// Another CPU changed a stack meanwhile.
struct Contended;

/// Most visits to the node's depot that a CPU leaves out after one that was contended.
const MOST_LEFT_OUT: u16 = 1 << 10;

/// Keeps a CPU from the node's depot while other CPUs contend for it: the zone, which CPUs share
/// less, serves the CPU meanwhile. Each contended visit doubles how many are left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    /// Visits to leave out.
    left: u16,
    /// Visits that were left out the last time.
    last: u16,
}

impl Backoff {
    pub(crate) const NONE: Backoff = Backoff { left: 0, last: 0 };

    /// Returns whether to visit the node's depot now.
    fn goes(&mut self) -> bool {
        let goes = self.left == 0;
        self.left = self.left.saturating_sub(1);
        goes
    }

    /// Records the outcome of a visit.
    fn note<T>(&mut self, outcome: Result<T, Contended>) -> Option<T> {
        match outcome {
            Ok(done) => {
                self.last /= 2;
                Some(done)
            }
            Err(Contended) => {
                self.last = (self.last * 2).clamp(8, MOST_LEFT_OUT);
                self.left = self.last;
                None
            }
        }
    }
}

/// In each interval of ticks, one in `DECAY` of the magazines that were not needed returns to the zone.
const DECAY: u32 = 32;

/// Magazines that one tick of a CPU returns to zones at most, so that the request which it interrupts
/// waits for no more than that many words of each.
pub(crate) const TICK_MAGAZINES: u32 = 2;

/// What the CPUs of a cache domain share, or all CPUs of the region (the last one). The embedder
/// provides the memory.
///
/// ```
/// use pageyard::packed::Domain;
///
/// static PART: [Domain; 128] = [const { Domain::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct Domain {
    full: [Stack; CLASSES],
    empty: Stack,
    /// Sparse pageblocks by type, as this domain's CPUs counted them.
    pub(crate) sparse: Counts,
    upkeep: Upkeep,
}

/// A domain's part of the zone's free counter, and whose turn it is to trim a depot. On a line of
/// its own.
#[derive(Debug)]
#[repr(align(128))]
struct Upkeep {
    /// The CPUs that ticked in this interval, or of the node's depot the domains: a bit for each,
    /// modulo 32.
    ticked: AtomicU32,
    /// Of the node's depot: the classes that have magazines due.
    due: AtomicU32,
    /// Free pages that the domain's CPUs have counted and the zone has not.
    part: AtomicI64,
}

impl Upkeep {
    const fn new() -> Self {
        Upkeep { ticked: AtomicU32::new(0), due: AtomicU32::new(0), part: AtomicI64::new(0) }
    }

    /// Records a tick. Returns whether it begins an interval, as the first tick of all does, and
    /// each that comes from a member that has ticked in this interval. So one member trims the depot
    /// however many of them are idle.
    fn begins_interval(&self, member: usize) -> bool {
        let bit = 1u32 << (member % 32);
        let seen = self.ticked.fetch_or(bit, Relaxed);
        let begins = seen == 0 || seen & bit != 0;
        if begins && seen != bit {
            self.ticked.store(bit, Relaxed);
        }
        begins
    }
}

/// Counters on a line of their own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Counts([AtomicI32; 8]);

impl Counts {
    pub(crate) fn get(&self, i: usize) -> Option<&AtomicI32> {
        self.0.get(i)
    }
}

impl Domain {
    /// Returns a domain without magazines.
    pub const fn new() -> Self {
        Domain {
            full: [const { Stack::new() }; CLASSES],
            empty: Stack::new(),
            sparse: Counts([const { AtomicI32::new(0) }; 8]),
            upkeep: Upkeep::new(),
        }
    }

    pub(crate) fn clear(&self) {
        for stack in self.full.iter().chain([&self.empty]) {
            stack.head.store(Head::EMPTY.0, Relaxed);
            stack.least.store(0, Relaxed);
            stack.due.store(0, Relaxed);
        }
        self.upkeep.ticked.store(0, Relaxed);
        self.upkeep.due.store(0, Relaxed);
        self.upkeep.part.store(0, Relaxed);
        self.sparse.0.iter().for_each(|n| n.store(0, Relaxed));
    }

    /// Returns the pages of its full magazines.
    pub(crate) fn pages(&self) -> u64 {
        let full = self.full.iter().enumerate();
        full.map(|(class, stack)| u64::from(stack.len()) * u64::from(pages_of(class))).sum()
    }
}

impl Default for Domain {
    fn default() -> Self {
        Domain::new()
    }
}

/// What a CPU's tick found in the depots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticked {
    /// The CPU trims its domain's depot, and that or the node's has pages left.
    pub(crate) keeps: bool,
    /// Of all CPUs of the region, this one began the interval.
    pub(crate) leads: bool,
}

/// The depots of a region.
#[derive(Debug)]
pub(crate) struct Depots<'a> {
    /// One for each cache domain, then the node's.
    domains: &'a [Domain],
    links: &'a [Link],
    cpus_per_domain: NonZeroU32,
    /// Pages that the node's depot may hold.
    budget: u32,
    /// Pages that it holds.
    held: Counts,
    /// Pages that went from depots to the zone.
    returned: AtomicU64,
    /// Pageblocks that are isolated. While there are any, no magazine enters or leaves a depot: a
    /// frame of theirs would pass from a CPU that is not drained yet to one that is.
    isolated: AtomicU32,
}

impl<'a> Depots<'a> {
    pub(crate) fn new(
        domains: &'a [Domain],
        links: &'a [Link],
        cpus_per_domain: NonZeroU32,
        budget: u32,
    ) -> Self {
        let held = Counts([const { AtomicI32::new(0) }; 8]);
        let returned = AtomicU64::new(0);
        let isolated = AtomicU32::new(0);
        Depots { domains, links, cpus_per_domain, budget, held, returned, isolated }
    }

    /// Returns the number of a CPU's domain.
    #[inline]
    pub(crate) fn domain_of(&self, cpu: u32) -> usize {
        (cpu / self.cpus_per_domain) as usize
    }

    fn node(&self) -> Option<&'a Domain> {
        self.domains.last()
    }

    fn held(&self) -> Option<&AtomicI32> {
        self.held.get(0)
    }

    fn add_held(&self, pages: i32) {
        if let Some(held) = self.held() {
            held.fetch_add(pages, Relaxed);
        }
    }

    /// Returns the number of CPUs that share a domain.
    pub(crate) fn cpus_per_domain(&self) -> NonZeroU32 {
        self.cpus_per_domain
    }

    /// Adds pages to a domain's part of the free counter. Returns the pages that the zone's counter
    /// takes over: those of the part, if it is above `limit` now.
    pub(crate) fn add_part(&self, domain: usize, pages: i64, limit: u32) -> i64 {
        let Some(Domain { upkeep, .. }) = self.domains.get(domain) else { return pages };
        let part = upkeep.part.fetch_add(pages, Relaxed).wrapping_add(pages);
        if part.unsigned_abs() > limit.into() { upkeep.part.swap(0, Relaxed) } else { 0 }
    }

    /// Returns a domain's part of the free counter, which the zone's counter takes over.
    pub(crate) fn take_part(&self, domain: usize) -> i64 {
        let Some(Domain { upkeep, .. }) = self.domains.get(domain) else { return 0 };
        if upkeep.part.load(Relaxed) == 0 { 0 } else { upkeep.part.swap(0, Relaxed) }
    }

    /// Empties all domains' parts of the free counter.
    pub(crate) fn forget_parts(&self) {
        self.domains.iter().for_each(|d| d.upkeep.part.store(0, Relaxed));
    }

    /// Returns the domains' parts of the free counter together.
    pub(crate) fn parts(&self) -> i64 {
        self.domains.iter().map(|d| d.upkeep.part.load(Relaxed)).fold(0, i64::wrapping_add)
    }

    /// Returns the pages of all full magazines.
    pub(crate) fn pages(&self) -> u64 {
        self.domains.iter().map(Domain::pages).sum()
    }

    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Returns whether the node's depot may hold `pages` more.
    fn has_room(&self, pages: i32) -> bool {
        let held = self.held().map_or(i32::MAX, |h| h.load(Relaxed));
        held.saturating_add(pages) <= self.budget as i32
    }

    /// Closes the depots for an isolated pageblock. It takes effect on a CPU that is drained
    /// afterwards, through that CPU's lock.
    pub(crate) fn close(&self) {
        self.isolated.fetch_add(1, Relaxed);
    }

    /// Undoes one [`close`](Self::close).
    pub(crate) fn open(&self) {
        self.isolated.fetch_sub(1, Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.isolated.load(Relaxed) != 0
    }

    /// Exchanges an empty magazine for a full one of the domain's depot, or else the node's.
    pub(crate) fn full_for_empty(
        &self,
        domain: usize,
        class: usize,
        empty: u32,
        backoff: &mut Backoff,
    ) -> Option<u32> {
        if self.is_closed() {
            return None;
        }
        let near = self.domains.get(domain)?;
        let stack = near.full.get(class)?;
        let full = match stack.pop(self.links) {
            Some(full) => {
                stack.note_least();
                full
            }
            None => {
                let stack = self.node()?.full.get(class)?;
                if !backoff.goes() {
                    return None;
                }
                let full = backoff.note(stack.pop_once(self.links))??;
                stack.note_least();
                self.add_held(-(pages_of(class) as i32));
                full
            }
        };
        self.add_empty(near, empty);
        Some(full)
    }

    /// Exchanges a full magazine for an empty one. `None` if no depot has room.
    pub(crate) fn empty_for_full(
        &self,
        domain: usize,
        class: usize,
        full: u32,
        backoff: &mut Backoff,
    ) -> Option<u32> {
        if self.is_closed() {
            return None;
        }
        let near = self.domains.get(domain)?;
        let node = self.node()?;
        let limit = near_limit(class);
        let pages = pages_of(class) as i32;
        let has_near = near.full.get(class)?.len() < limit;
        if !(has_near || backoff.goes() && self.has_room(pages)) {
            return None;
        }
        let empty = match near.empty.pop(self.links) {
            Some(empty) => empty,
            None if has_near && !backoff.goes() => return None,
            None => backoff.note(node.empty.pop_once(self.links))??,
        };
        if near.full.get(class)?.push(self.links, full, limit) {
            return Some(empty);
        }
        // Counted before the push, so that concurrent calls do not exceed the budget together.
        self.add_held(pages);
        if self.has_room(0)
            && backoff.note(node.full.get(class)?.push_once(self.links, full, MOST)) == Some(true)
        {
            return Some(empty);
        }
        self.add_held(-pages);
        self.add_empty(near, empty);
        None
    }

    pub(crate) fn add_empty(&self, near: &Domain, empty: u32) {
        if !near.empty.push(self.links, empty, NEAR_EMPTY)
            && let Some(node) = self.node()
        {
            node.empty.push(self.links, empty, UNCOUNTED);
        }
    }

    /// Puts an empty magazine into the node's depot.
    pub(crate) fn add_spare(&self, empty: u32) {
        if let Some(node) = self.node() {
            node.empty.push(self.links, empty, UNCOUNTED);
        }
    }

    /// Takes full magazines out of the depots: all of them, or with `surplus` a part of those that
    /// no CPU needed since the last call. Passes each to `spill`, then reuses it.
    pub(crate) fn trim(&self, surplus: bool, mut spill: impl FnMut(u32, usize)) {
        for (number, domain) in self.domains.iter().enumerate() {
            let is_node = number + 1 == self.domains.len();
            for (class, stack) in domain.full.iter().enumerate() {
                let mut left = if surplus { stack.surplus(MOST) } else { MOST };
                while left > 0 && self.spill_one(stack, class, is_node, &mut spill) {
                    left -= 1;
                }
            }
        }
    }

    /// Passes a full magazine of a stack to `spill`, then reuses it. Returns whether there was one.
    fn spill_one(
        &self,
        stack: &Stack,
        class: usize,
        is_node: bool,
        spill: &mut impl FnMut(u32, usize),
    ) -> bool {
        let Some(full) = stack.pop(self.links) else { return false };
        if is_node {
            self.add_held(-(pages_of(class) as i32));
        }
        self.returned.fetch_add(pages_of(class).into(), Relaxed);
        spill(full, class);
        self.add_spare(full);
        true
    }

    /// Trims as [`trim`](Self::trim) does with `surplus`, but for one CPU's tick: in each interval
    /// one CPU of a domain trims the domain's depot. One of these decides how many magazines are due
    /// from the node's depot; the ticks of all CPUs return them. `most` is what is left of
    /// [`TICK_MAGAZINES`].
    pub(crate) fn tick(
        &self,
        cpu: u32,
        most: &mut u32,
        mut spill: impl FnMut(u32, usize),
    ) -> Ticked {
        let mut ticked = Ticked::default();
        let number = self.domain_of(cpu);
        let (Some(domain), Some(node)) = (self.domains.get(number), self.node()) else {
            return ticked;
        };
        if domain.upkeep.begins_interval((cpu % self.cpus_per_domain) as usize) {
            for (class, stack) in domain.full.iter().enumerate() {
                for _ in 0..stack.surplus(*most) {
                    *most -= u32::from(self.spill_one(stack, class, false, &mut spill));
                }
            }
            ticked.leads = node.upkeep.begins_interval(number);
            ticked.keeps = domain.pages() > 0 || self.held().is_some_and(|h| h.load(Relaxed) > 0);
        }
        if ticked.leads {
            let mut classes = 0;
            for (class, stack) in node.full.iter().enumerate() {
                let due = stack.surplus(MOST);
                stack.set_due(due);
                classes |= u32::from(due > 0) << class;
            }
            store_new(&node.upkeep.due, node.upkeep.due.load(Relaxed), classes);
        }
        while *most > 0
            && let classes = node.upkeep.due.load(Relaxed)
            && let Some(stack) = node.full.get(classes.trailing_zeros() as usize)
        {
            let class = classes.trailing_zeros() as usize;
            if stack.take_due() && self.spill_one(stack, class, true, &mut spill) {
                *most -= 1;
            } else {
                node.upkeep.due.fetch_and(!(1 << class), Relaxed);
            }
        }
        ticked
    }

    /// Calls `each` with the full magazines and their class. For a check while nothing else runs.
    pub(crate) fn for_each_full(&self, mut each: impl FnMut(u32, usize)) {
        for domain in self.domains {
            for (class, stack) in domain.full.iter().enumerate() {
                let mut at = Head(stack.head.load(Relaxed)).index();
                while let Some(link) = self.links.get(at as usize) {
                    each(at, class);
                    at = link.0.load(Relaxed);
                }
            }
        }
    }
}

#[cfg(feature = "lines")]
impl Depots<'_> {
    /// Calls `each` with the memory that CPUs share.
    pub(crate) fn for_each_shared(&self, each: &mut dyn FnMut(Piece)) {
        for (number, domain) in self.domains.iter().enumerate() {
            let is_node = number + 1 == self.domains.len();
            let (full, empty) = match is_node {
                false => (Part::Depots, Part::Empties),
                true => (Part::NodeDepot, Part::NodeEmpties),
            };
            each(Piece::of(full, &domain.full));
            each(Piece::one(empty, &domain.empty, number));
            each(Piece::one(Part::Sparse, &domain.sparse, number));
            each(Piece::one(Part::Upkeep, &domain.upkeep, number));
        }
        each(Piece::of(Part::Links, self.links));
        each(Piece::one(Part::DepotPages, &self.held, 0));
        each(Piece::one(Part::Isolated, &self.isolated, 0));
        each(Piece::one(Part::Returned, &self.returned, 0));
    }
}

/// Returns how many full magazines of a class a domain's depot holds.
pub(crate) const fn near_limit(class: usize) -> u32 {
    if pages_of(class) >= 1024 { NEAR_HUGE } else { NEAR }
}

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
