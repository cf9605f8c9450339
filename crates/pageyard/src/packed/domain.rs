//! Depots: full and empty magazines that pass between the CPUs of a cache domain, and between
//! domains through the node's depot.

use core::num::NonZeroU32;

#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, OwnLine};
use crate::base::sync::Ordering::Relaxed;
use crate::packed::class::{CLASSES, pages_of};
use crate::packed::stack::{Contended, Link, MOST, Stack, UNCOUNTED, store_new};

/// Pages of each class that a domain's depot holds in full magazines, if these are not fewer than two.
const NEAR_PAGES: u32 = 512;

/// Empty magazines that a domain's depot holds.
pub(super) const NEAR_EMPTY: u32 = 8;

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

/// Magazines that one tick of a CPU returns to zones at most: the request that it interrupts waits for
/// them.
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

/// Words of bits for members that ticked: enough for the domains of 1,024 CPUs, 8 each.
const TICKED: usize = 4;

/// A domain's part of the zone's free counter, and whose turn it is to trim a depot. On a line of
/// its own.
#[derive(Debug)]
#[repr(align(128))]
struct Upkeep {
    /// The CPUs that ticked in this interval, or of the node's depot the domains: a bit for each,
    /// modulo 128.
    ticked: [AtomicU32; TICKED],
    /// Of the node's depot: the classes that have magazines due.
    due: AtomicU32,
    /// Free pages that the domain's CPUs have counted and the zone has not.
    part: AtomicI64,
}

impl Upkeep {
    const fn new() -> Self {
        let ticked = [const { AtomicU32::new(0) }; TICKED];
        Upkeep { ticked, due: AtomicU32::new(0), part: AtomicI64::new(0) }
    }

    /// Records a tick of one of `members`. Returns whether it begins an interval, as the first tick of
    /// all does, and each that comes from a member that has ticked in this interval. So one member
    /// trims the depot however many of them are idle.
    fn begins_interval(&self, member: usize, members: usize) -> bool {
        let (at, bit) = (member / 32 % TICKED, 1u32 << (member % 32));
        let Some(word) = self.ticked.get(at) else { return false };
        let others = || {
            let words = self.ticked.iter().enumerate().take(members.div_ceil(32));
            words.filter(|(n, _)| *n != at).map(|(_, word)| word)
        };
        let seen = word.fetch_or(bit, Relaxed);
        let is_first = seen == 0 && others().all(|word| word.load(Relaxed) == 0);
        let begins = is_first || seen & bit != 0;
        if begins && seen != bit {
            others().for_each(|word| word.store(0, Relaxed));
            word.store(bit, Relaxed);
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
        self.full.iter().chain([&self.empty]).for_each(Stack::clear);
        self.upkeep.ticked.iter().for_each(|word| word.store(0, Relaxed));
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
    held: OwnLine<AtomicI32>,
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
        let held = OwnLine(AtomicI32::new(0));
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

    fn add_held(&self, pages: i32) {
        self.held.fetch_add(pages, Relaxed);
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

    /// Returns whether a CPU of this domain finds a full magazine.
    pub(crate) fn has_full(&self, domain: usize, class: usize) -> bool {
        let full = |domain: &Domain| domain.full.get(class).is_some_and(|stack| stack.len() > 0);
        !self.is_closed()
            && (self.domains.get(domain).is_some_and(full) || self.node().is_some_and(full))
    }

    /// Returns whether any depot has a full magazine of these classes.
    pub(crate) fn has_any_full(&self, classes: impl Iterator<Item = usize> + Clone) -> bool {
        let full = |d: &Domain| classes.clone().any(|c| d.full.get(c).is_some_and(|s| s.len() > 0));
        self.domains.iter().any(full)
    }

    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Relaxed)
    }

    /// Returns whether the node's depot may hold `pages` more.
    fn has_room(&self, pages: i32) -> bool {
        self.held.load(Relaxed).saturating_add(pages) <= self.budget as i32
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
        if !near.empty.push(self.links, empty, NEAR_EMPTY) {
            self.add_spare(empty);
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

    /// Takes the full magazines out of one domain's depot and passes each to `spill`.
    pub(crate) fn empty_domain(&self, number: usize, mut spill: impl FnMut(u32, usize)) {
        let stacks = self.domains.get(number).into_iter().flat_map(|d| d.full.iter().enumerate());
        for (class, stack) in stacks {
            while self.spill_one(stack, class, false, &mut spill) {}
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
        let cpus = self.cpus_per_domain.get();
        if domain.upkeep.begins_interval((cpu % cpus) as usize, cpus as usize) {
            for (class, stack) in domain.full.iter().enumerate() {
                // Asking for none would begin another interval without it.
                if *most == 0 {
                    break;
                }
                for _ in 0..stack.surplus(*most) {
                    *most -= u32::from(self.spill_one(stack, class, false, &mut spill));
                }
            }
            let domains = self.domains.len().saturating_sub(1);
            ticked.leads = node.upkeep.begins_interval(number, domains);
            ticked.keeps = domain.pages() > 0 || self.held.load(Relaxed) > 0;
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
                stack.for_each(self.links, |magazine| each(magazine, class));
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
    match NEAR_PAGES.checked_div(pages_of(class)) {
        Some(most) if most > 2 => most,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
