//! The memory of a region: what it needs, and how an embedder provides it.

use core::fmt;

use lock_api::RawMutex;

use crate::base::frame::{Kind, State};
#[cfg(feature = "alloc")]
use crate::base::heap::NoRoom;
use crate::base::shared::AtomicU8;
use crate::base::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::base::units::{CACHED_TYPES, MAX_ORDER, MigrateType, Order, PAGEBLOCK_PAGES, Pfn};
use crate::packed::blocks::{Blocks, Words};
use crate::packed::class::CLASSES;
use crate::packed::cpu::PerCpu;
use crate::packed::domain::{Domain, NEAR_EMPTY, near_limit};
use crate::packed::label::Label;
use crate::packed::planted::{Bug, planted};
use crate::packed::route::Route;
use crate::packed::set::IndexWord;
use crate::packed::stack::{Link, MAX_MAGAZINES, MOST, Magazine};

/// The state of one frame of a region. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::FrameState;
///
/// static PART: [FrameState; 128] = [const { FrameState::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct FrameState(AtomicU8);

// The byte: a value below LEAVING; or, for the head of an allocated block, ALLOCATED, PFMEMALLOC, the
// type and the order; or, for one on its way from its owner, the same without ALLOCATED and with the
// order plus LEAVING.
impl FrameState {
    /// Never added.
    const ABSENT: u8 = 0;
    /// Free, or inside a block.
    const FREE: u8 = 1;
    /// Memory in use from the start.
    const RESERVED: u8 = 2;
    /// Faulty and out of use.
    const FAULTY: u8 = 3;
    /// Reserved memory or a hole: snapshots do not tell which.
    const LEFT_OUT: u8 = 4;
    /// Added to the order in bits 0 to 3 of a block that is on its way from its owner.
    const LEAVING: u8 = 5;
    const ALLOCATED: u8 = 0x80;
    /// The block came from the last reserves.
    const PFMEMALLOC: u8 = 0x40;
    /// The request's type.
    const TYPE: u8 = 0x30;
    /// The bits that a free compares.
    const CHECKED: u8 = 0x8f;

    /// Returns the state of a frame that was not added.
    pub const fn new() -> Self {
        FrameState(AtomicU8::new(FrameState::ABSENT))
    }

    #[inline(always)]
    pub(crate) fn set_allocated(&self, order: u8, t: usize) {
        self.0.store(FrameState::ALLOCATED | (t as u8) << 4 | order, Release);
    }

    /// Ends the allocation if the frame is the head of a block of this order. Returns the type. Of
    /// several callers one succeeds, unless `OWNED`: then the caller is alone.
    #[inline(always)]
    pub(crate) fn begin_free<const OWNED: bool>(&self, order: u8) -> Option<usize> {
        let seen = self.end_allocation::<OWNED>(order, |_| FrameState::FREE)?;
        Some(usize::from(seen >> 4 & 3))
    }

    /// Changes the state if the frame is the head of a block in use of this order. Returns what it
    /// was. `OWNED` as in [`begin_free`](Self::begin_free).
    #[inline(always)]
    fn end_allocation<const OWNED: bool>(&self, order: u8, to: impl Fn(u8) -> u8) -> Option<u8> {
        let is = |seen: u8| seen & FrameState::CHECKED == FrameState::ALLOCATED | order;
        if OWNED || planted(Bug::NoExchange) {
            let seen = self.0.load(Relaxed);
            is(seen).then(|| self.0.store(to(seen), Relaxed))?;
            return Some(seen);
        }
        // Another thread may change the block's type meanwhile, as `set_movable` does.
        self.0.fetch_update(Acquire, Relaxed, |seen| is(seen).then(|| to(seen))).ok()
    }

    /// Begins a free that may still be rolled back. Returns whether it did. Of several callers one
    /// succeeds, unless `OWNED`: then the caller is alone.
    #[inline(always)]
    pub(crate) fn begin_leaving<const OWNED: bool>(&self, order: u8) -> bool {
        let leaving = |seen: u8| (seen & !FrameState::ALLOCATED).wrapping_add(FrameState::LEAVING);
        self.end_allocation::<OWNED>(order, leaving).is_some()
    }

    /// Completes [`begin_leaving`](Self::begin_leaving). Returns the type.
    #[inline(always)]
    pub(crate) fn finish_leaving(&self) -> usize {
        let seen = self.0.load(Relaxed);
        self.0.store(FrameState::FREE, Relaxed);
        usize::from(seen >> 4 & 3)
    }

    /// Rolls back [`begin_leaving`](Self::begin_leaving), if it is not complete: the block belongs to
    /// its owner again.
    pub(crate) fn stay(&self) {
        let seen = self.0.load(Relaxed);
        if seen & FrameState::ALLOCATED == 0 && seen & 15 >= FrameState::LEAVING {
            self.0.store(FrameState::ALLOCATED | (seen - FrameState::LEAVING), Release);
        }
    }

    /// Sets whether a block in use of this order is movable: of type movable, or else unmovable if it
    /// was movable. Returns whether there is such a block.
    pub(crate) fn set_movable(&self, order: u8, movable: bool) -> bool {
        let change = |seen: u8| {
            let t = match (movable, type_of(seen)) {
                (true, _) => MigrateType::Movable,
                (false, MigrateType::Movable) => MigrateType::Unmovable,
                (false, t) => t,
            };
            let is = seen & FrameState::CHECKED == FrameState::ALLOCATED | order;
            is.then_some(seen & !FrameState::TYPE | (t as u8) << 4)
        };
        self.0.fetch_update(Relaxed, Relaxed, change).is_ok()
    }

    /// Returns what one look at the frame says, as the exact engine describes frames. A frame that is
    /// not the head of a block in use is a tail or reserved; a block is movable if its type is.
    pub(crate) fn state(&self) -> State {
        let seen = self.0.load(Relaxed);
        let (order, t) = (seen & 15, type_of(seen));
        match seen {
            FrameState::ABSENT | FrameState::LEFT_OUT => State::RESERVED,
            FrameState::RESERVED => State::RESERVED_MEMORY,
            FrameState::FREE => State::TAIL,
            FrameState::FAULTY => State::new(Kind::Poisoned, 0, MigrateType::Unmovable),
            _ if seen & FrameState::ALLOCATED != 0 => {
                State::new(Kind::Allocated, order, t).with_movable(t == MigrateType::Movable)
            }
            _ => {
                let order = order.saturating_sub(FrameState::LEAVING).min(MAX_ORDER);
                State::new(Kind::BeingFreed, order, t).with_movable(t == MigrateType::Movable)
            }
        }
    }

    /// Marks a block of this order as one from the last reserves.
    pub(crate) fn set_pfmemalloc(&self, order: u8) {
        let seen = self.0.load(Relaxed);
        if seen & FrameState::CHECKED == FrameState::ALLOCATED | order {
            // Fails only if the caller freed the block meanwhile.
            let marked = seen | FrameState::PFMEMALLOC;
            _ = self.0.compare_exchange(seen, marked, Relaxed, Relaxed);
        }
    }

    pub(crate) fn is_pfmemalloc(&self) -> bool {
        let both = FrameState::ALLOCATED | FrameState::PFMEMALLOC;
        self.0.load(Relaxed) & both == both
    }

    pub(crate) fn begin_add(&self, reserved: bool) -> bool {
        let from = if reserved { FrameState::RESERVED } else { FrameState::ABSENT };
        self.0.compare_exchange(from, FrameState::FREE, Relaxed, Relaxed).is_ok()
    }

    pub(crate) fn roll_back_add(&self, reserved: bool) {
        let to = if reserved { FrameState::RESERVED } else { FrameState::ABSENT };
        self.0.store(to, Relaxed);
    }

    /// Marks a frame that was not added as memory in use from the start.
    pub(crate) fn reserve(&self) {
        let (from, to) = (FrameState::ABSENT, FrameState::RESERVED);
        _ = self.0.compare_exchange(from, to, Relaxed, Relaxed);
    }

    /// Marks a frame that was not added as one that a snapshot left out.
    pub(crate) fn leave_out(&self) {
        let (from, to) = (FrameState::ABSENT, FrameState::LEFT_OUT);
        _ = self.0.compare_exchange(from, to, Relaxed, Relaxed);
    }

    /// Returns whether the frame is memory, in use from the start or added, or may be.
    pub(crate) fn is_memory(&self) -> bool {
        self.0.load(Relaxed) != FrameState::ABSENT
    }

    /// Returns whether the frame was not added.
    pub(crate) fn is_absent(&self) -> bool {
        let seen = self.0.load(Relaxed);
        matches!(seen, FrameState::ABSENT | FrameState::RESERVED | FrameState::LEFT_OUT)
    }

    /// Puts a frame in no block out of use.
    pub(crate) fn set_faulty(&self) {
        self.0.store(FrameState::FAULTY, SeqCst);
    }

    /// Makes a frame that is out of use free. Of several callers one succeeds.
    pub(crate) fn end_faulty(&self) -> bool {
        self.0.compare_exchange(FrameState::FAULTY, FrameState::FREE, SeqCst, SeqCst).is_ok()
    }

    pub(crate) fn is_faulty(&self) -> bool {
        self.0.load(SeqCst) == FrameState::FAULTY
    }

    pub(crate) fn clear(&self) {
        self.0.store(FrameState::ABSENT, Relaxed);
    }

    /// Returns the order of the block whose head the frame is.
    pub(crate) fn allocated(&self) -> Option<Order> {
        let seen = self.0.load(Relaxed);
        let is = seen & FrameState::ALLOCATED != 0;
        if is { Order::new(seen & 15) } else { None }
    }
}

const fn type_of(seen: u8) -> MigrateType {
    MigrateType::from_bits((seen as u32) >> 4 & 3)
}

impl Default for FrameState {
    fn default() -> Self {
        FrameState::new()
    }
}

/// Why a region cannot be created.
///
/// ```
/// use pageyard::Pfn;
/// use pageyard::packed::{Needs, RegionError};
///
/// assert_eq!(Needs::of(Pfn(0), 0, 1, 1), Err(RegionError::Frames));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionError {
    /// No frames, more than 2^31, or some beyond the last frame number.
    Frames,
    /// No CPU, or no CPU per cache domain.
    NoCpu,
    /// Too many CPUs for the number of magazines that a region can name.
    TooManyCpus,
    /// A part of the storage does not have the size that [`Needs`] states.
    Storage {
        /// Which part.
        part: &'static str,
        /// Its size in elements.
        given: usize,
        /// The size it needs.
        needed: usize,
    },
    /// The storage serves another region.
    InUse,
    /// The heap has no room for a part of the storage (feature `alloc`).
    NoMemory {
        /// Which part.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
    },
}

#[cfg(feature = "alloc")]
impl From<NoRoom> for RegionError {
    fn from(NoRoom { what, bytes }: NoRoom) -> Self {
        RegionError::NoMemory { what, bytes }
    }
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Frames => {
                f.write_str("a region has 1 to 2^31 frames, none of them beyond 2^64")
            }
            RegionError::NoCpu => f.write_str("a region needs at least one CPU per cache domain"),
            RegionError::TooManyCpus => f.write_str("the region has too many CPUs"),
            RegionError::Storage { part, given, needed } => {
                write!(f, "storage has {given} elements for {part}; the region needs {needed}")
            }
            RegionError::InUse => f.write_str("the storage serves another region"),
            RegionError::NoMemory { what, bytes } => {
                write!(f, "{what}: the heap has no room for {bytes} bytes")
            }
        }
    }
}

impl core::error::Error for RegionError {}

/// CPUs of a yard with neighbouring numbers that share a depot: as many as share a cache on most
/// machines.
pub(crate) const CPUS_PER_DOMAIN: u32 = 8;

/// How many elements each part of a region's [`Storage`] has.
///
/// ```
/// use pageyard::Pfn;
/// use pageyard::packed::Needs;
///
/// // 64 GiB for 16 CPUs, 8 of which share a cache: at most one and a half bytes a frame.
/// let frames = 1 << 24;
/// let needs = Needs::of(Pfn(0), frames, 16, 8)?;
/// assert!(needs.bytes::<spin::Mutex<()>>() <= frames as usize * 3 / 2);
/// # Ok::<(), pageyard::packed::RegionError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// One state per frame.
    pub states: usize,
    /// Words, marks of faulty frames, labels and routes: one per pageblock.
    pub blocks: usize,
    /// Words of the index.
    pub index: usize,
    /// Magazines and their links.
    pub magazines: usize,
    /// One part per CPU.
    pub cpus: usize,
    /// One per cache domain, and one for all of them.
    pub domains: usize,
    /// Pages that the node's depot may hold: one in 76.
    pub depot_pages: u32,
}

impl Needs {
    /// The needs of an allocator on the exact engine: none.
    pub const NONE: Needs =
        Needs { states: 0, blocks: 0, index: 0, magazines: 0, cpus: 0, domains: 0, depot_pages: 0 };

    /// Returns the needs of two zones or regions together. Saturates: their number is the caller's.
    pub const fn and(self, other: Needs) -> Needs {
        Needs {
            states: self.states.saturating_add(other.states),
            blocks: self.blocks.saturating_add(other.blocks),
            index: self.index.saturating_add(other.index),
            magazines: self.magazines.saturating_add(other.magazines),
            cpus: self.cpus.saturating_add(other.cpus),
            domains: self.domains.saturating_add(other.domains),
            depot_pages: self.depot_pages.saturating_add(other.depot_pages),
        }
    }

    /// Returns the needs of a region of `frames` frames from `first` on, for `cpus` CPUs of which
    /// `cpus_per_domain` share a cache.
    ///
    /// # Errors
    /// [`RegionError`] if the numbers are out of range.
    pub const fn of(
        first: Pfn,
        frames: u32,
        cpus: u32,
        cpus_per_domain: u32,
    ) -> Result<Needs, RegionError> {
        let end = first.0.checked_add(frames as u64);
        if frames == 0 || frames > 1 << 31 || end.is_none() {
            return Err(RegionError::Frames);
        }
        if cpus == 0 || cpus_per_domain == 0 {
            return Err(RegionError::NoCpu);
        }
        let blocks = (Needs::before(first) + frames).div_ceil(PAGEBLOCK_PAGES) as usize;
        let domains = cpus.div_ceil(cpus_per_domain) as usize;
        let (depot_pages, most) = (frames / 76, (MOST - 1) * 32);
        let depot_pages = if depot_pages < most { depot_pages } else { most };
        let (mut near, mut class) = (0, 0);
        while class < CLASSES {
            near += near_limit(class) as u64;
            class += 1;
        }
        // Each CPU has two per class; each domain's depot is full of full ones and has some empty
        // ones; the node's depot holds at most one for 32 pages.
        let magazines = cpus as u64 * (CLASSES as u64 * 2 + 1)
            + domains as u64 * (near + NEAR_EMPTY as u64)
            + (depot_pages / 32) as u64;
        if magazines >= MAX_MAGAZINES as u64 {
            return Err(RegionError::TooManyCpus);
        }
        Ok(Needs {
            states: blocks * PAGEBLOCK_PAGES as usize,
            blocks,
            index: Blocks::index_words(blocks),
            magazines: magazines as usize,
            cpus: cpus as usize,
            domains: domains + 1,
            depot_pages,
        })
    }

    /// Returns the needs of a yard's zone. A yard's storage is that of its zones [together](Self::and).
    ///
    /// ```
    /// use pageyard::Pfn;
    /// use pageyard::packed::{FrameState, Needs, RegionError};
    ///
    /// const fn of(zone: Result<Needs, RegionError>) -> Needs {
    ///     match zone {
    ///         Ok(needs) => needs,
    ///         Err(_) => panic!("a zone's size is out of range"),
    ///     }
    /// }
    /// // DMA32 and Normal, for four CPUs.
    /// const NEEDS: Needs =
    ///     of(Needs::of_zone(Pfn(0x1000), 0x7000, 4)).and(of(Needs::of_zone(Pfn(0x10_0000), 0x8000, 4)));
    /// static STATES: [FrameState; NEEDS.states] = [const { FrameState::new() }; NEEDS.states];
    /// assert_eq!(STATES.len(), 0xf000);
    /// ```
    ///
    /// # Errors
    /// [`RegionError`] if the numbers are out of range.
    pub const fn of_zone(first: Pfn, frames: u32, cpus: u32) -> Result<Needs, RegionError> {
        Needs::of(first, frames, cpus, CPUS_PER_DOMAIN)
    }

    /// Returns the frames between the largest block's start and `first`.
    pub(crate) const fn before(first: Pfn) -> u32 {
        (first.0 % (1 << MAX_ORDER)) as u32
    }

    /// Returns the bytes of all parts together, for locks of type `R`; the largest number if they are more.
    pub const fn bytes<R: RawMutex>(&self) -> usize {
        let block = 2 * size_of::<Words>() + size_of::<Label>() + size_of::<Route>();
        let magazine = size_of::<Magazine>() + size_of::<Link>();
        self.states
            .saturating_add(self.blocks.saturating_mul(block))
            .saturating_add(self.index.saturating_mul(size_of::<IndexWord>()))
            .saturating_add(self.magazines.saturating_mul(magazine))
            .saturating_add(self.cpus.saturating_mul(size_of::<PerCpu<R>>()))
            .saturating_add(self.domains.saturating_mul(size_of::<Domain>()))
    }
}

/// The memory of a region, provided by the embedder: arrays of new elements, as many as [`Needs`]
/// states.
///
/// ```
/// use pageyard::packed::*;
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// // 4 MiB for one CPU, without a heap. `Needs::of` states the sizes.
/// static STATES: [FrameState; 1024] = [const { FrameState::new() }; 1024];
/// static WORDS: [Words; 2] = [const { Words::new() }; 2];
/// static FAULTY: [Words; 2] = [const { Words::new() }; 2];
/// static LABELS: [Label; 2] = [const { Label::new() }; 2];
/// static ROUTES: [Route; 2] = [const { Route::new() }; 2];
/// static INDEX: [IndexWord; 100] = [const { IndexWord::new() }; 100];
/// static MAGAZINES: [Magazine; 99] = [const { Magazine::new() }; 99];
/// static LINKS: [Link; 99] = [const { Link::new() }; 99];
/// static CPUS: [PerCpu<spin::Mutex<()>>; 1] = [const { PerCpu::new() }; 1];
/// static DOMAINS: [Domain; 2] = [const { Domain::new() }; 2];
///
/// let storage = Storage {
///     states: &STATES,
///     words: &WORDS,
///     faulty: &FAULTY,
///     labels: &LABELS,
///     routes: &ROUTES,
///     index: &INDEX,
///     magazines: &MAGAZINES,
///     links: &LINKS,
///     cpus: &CPUS,
///     domains: &DOMAINS,
/// };
/// let region = Region::new(Pfn(0), 1024, 1, storage)?;
/// region.add(Pfn(0)..Pfn(1024))?;
/// assert!(region.alloc(CpuId(0), Order::HUGE, MigrateType::Movable).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Storage<'a, R: RawMutex> {
    /// States of frames.
    pub states: &'a [FrameState],
    /// Bits of free frames.
    pub words: &'a [Words],
    /// Bits of faulty frames.
    pub faulty: &'a [Words],
    /// Types and places of pageblocks.
    pub labels: &'a [Label],
    /// Where frees go.
    pub routes: &'a [Route],
    /// The index of pageblocks.
    pub index: &'a [IndexWord],
    /// Magazines.
    pub magazines: &'a [Magazine],
    /// The links of magazines.
    pub links: &'a [Link],
    /// The CPUs' parts.
    pub cpus: &'a [PerCpu<R>],
    /// The cache domains' parts.
    pub domains: &'a [Domain],
}

/// What a yard's zones need together. Nothing on the exact engine, and without the feature `packed`.
///
/// ```
/// use pageyard::packed::{Needs, YardNeeds};
///
/// assert_eq!(YardNeeds::NONE.get(), Needs::NONE);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct YardNeeds(#[cfg(feature = "packed")] Needs, #[cfg(not(feature = "packed"))] ());

impl YardNeeds {
    /// Nothing.
    pub const NONE: YardNeeds = YardNeeds(
        #[cfg(feature = "packed")]
        Needs::NONE,
        #[cfg(not(feature = "packed"))]
        (),
    );

    /// Returns the numbers of elements.
    pub const fn get(&self) -> Needs {
        #[cfg(feature = "packed")]
        return self.0;
        #[cfg(not(feature = "packed"))]
        Needs::NONE
    }

    /// Adds the needs of a zone.
    #[cfg_attr(not(feature = "packed"), allow(unused_variables))]
    pub(crate) fn add(&mut self, needs: Needs) {
        #[cfg(feature = "packed")]
        {
            self.0 = self.0.and(needs);
        }
    }
}

/// The [`Storage`] of a yard's zones together, one after the other. Empty for the exact engine; takes
/// no room without the feature `packed`.
///
/// ```
/// use pageyard::packed::{Storage, YardStorage};
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// let none: YardStorage<'_, Lock> = Storage::EMPTY.into();
/// ```
#[derive(Debug)]
pub struct YardStorage<'a, R: RawMutex>(
    #[cfg(feature = "packed")] Storage<'a, R>,
    #[cfg(not(feature = "packed"))] core::marker::PhantomData<Storage<'a, R>>,
);

impl<'a, R: RawMutex> YardStorage<'a, R> {
    /// Storage of a yard on the exact engine: none.
    pub const EMPTY: YardStorage<'a, R> = YardStorage(
        #[cfg(feature = "packed")]
        Storage::EMPTY,
        #[cfg(not(feature = "packed"))]
        core::marker::PhantomData,
    );

    pub(crate) fn into_parts(self) -> Storage<'a, R> {
        #[cfg(feature = "packed")]
        return self.0;
        #[cfg(not(feature = "packed"))]
        Storage::EMPTY
    }
}

impl<'a, R: RawMutex> From<Storage<'a, R>> for YardStorage<'a, R> {
    #[cfg_attr(not(feature = "packed"), allow(unused_variables))]
    fn from(storage: Storage<'a, R>) -> Self {
        YardStorage(
            #[cfg(feature = "packed")]
            storage,
            #[cfg(not(feature = "packed"))]
            core::marker::PhantomData,
        )
    }
}

impl<'a, R: RawMutex> Storage<'a, R> {
    /// No storage.
    pub const EMPTY: Storage<'a, R> = Storage {
        states: &[],
        words: &[],
        faulty: &[],
        labels: &[],
        routes: &[],
        index: &[],
        magazines: &[],
        links: &[],
        cpus: &[],
        domains: &[],
    };

    /// Splits off the storage of one region. Parts that are too short yield what they have.
    pub(crate) fn split_off(&mut self, needs: &Needs) -> Self {
        fn part<'a, T>(all: &mut &'a [T], n: usize) -> &'a [T] {
            let (own, rest) = all.split_at(n.min(all.len()));
            *all = rest;
            own
        }
        Storage {
            states: part(&mut self.states, needs.states),
            words: part(&mut self.words, needs.blocks),
            faulty: part(&mut self.faulty, needs.blocks),
            labels: part(&mut self.labels, needs.blocks),
            routes: part(&mut self.routes, needs.blocks),
            index: part(&mut self.index, needs.index),
            magazines: part(&mut self.magazines, needs.magazines),
            links: part(&mut self.links, needs.magazines),
            cpus: part(&mut self.cpus, needs.cpus),
            domains: part(&mut self.domains, needs.domains),
        }
    }

    /// Makes all elements as new. Returns false, having changed nothing, if a CPU's lock is held.
    pub(crate) fn clear(&self) -> bool {
        if self.cpus.iter().any(|part| part.own.try_lock().is_none()) {
            return false;
        }
        self.states.iter().for_each(FrameState::clear);
        self.words.iter().chain(self.faulty).for_each(Words::clear);
        self.labels.iter().for_each(Label::clear);
        self.routes.iter().for_each(Route::clear);
        self.index.iter().for_each(IndexWord::clear);
        self.domains.iter().for_each(Domain::clear);
        self.cpus.iter().for_each(PerCpu::clear);
        true
    }

    /// Returns the first part that is shorter than `needs` states: its name, what is needed, what
    /// is given.
    pub(crate) fn shortage(&self, needs: &Needs) -> Option<(&'static str, usize, usize)> {
        let short = |(_, given, needed): &(_, usize, usize)| given < needed;
        let (part, given, needed) = self.parts(needs).into_iter().find(short)?;
        Some((part, needed, given))
    }

    fn parts(&self, needs: &Needs) -> [(&'static str, usize, usize); 10] {
        [
            ("states", self.states.len(), needs.states),
            ("words", self.words.len(), needs.blocks),
            ("marks of faulty frames", self.faulty.len(), needs.blocks),
            ("labels", self.labels.len(), needs.blocks),
            ("routes", self.routes.len(), needs.blocks),
            ("index words", self.index.len(), needs.index),
            ("magazines", self.magazines.len(), needs.magazines),
            ("links", self.links.len(), needs.magazines),
            ("CPU parts", self.cpus.len(), needs.cpus),
            ("domains", self.domains.len(), needs.domains),
        ]
    }

    pub(crate) fn check(&self, needs: &Needs) -> Result<(), RegionError> {
        match self.parts(needs).into_iter().find(|(_, given, needed)| given != needed) {
            None => Ok(()),
            Some((part, given, needed)) => Err(RegionError::Storage { part, given, needed }),
        }
    }
}

const _: () = assert!(CACHED_TYPES <= 4, "a frame's state has two bits for the type");

#[cfg(all(test, feature = "alloc"))]
mod tests;
