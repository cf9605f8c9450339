//! One CPU's frames: magazines by order and type, a run of one word, and a pending word that
//! collects frees to the zone.

use lock_api::{Mutex, MutexGuard, RawMutex};

use crate::base::sync::Ordering::{Acquire, Relaxed, Release};
use crate::base::sync::{AtomicBool, AtomicU32};
use crate::base::units::{COSTLY_ORDER, CpuId, MigrateType, Order, PAGEBLOCK_ORDER, Pfn};
use crate::packed::blocks::KEPT_TYPES;
use crate::packed::region::Region;
use crate::request::free::FreeError;

/// Orders that magazines keep: 0 to 3, and whole pageblocks.
const KEPT_ORDERS: usize = COSTLY_ORDER as usize + 2;

/// Classes of blocks: one for each kept order and type.
pub(crate) const CLASSES: usize = KEPT_ORDERS * KEPT_TYPES;

/// Blocks that a magazine of each kept order holds.
const CAPACITY: [u32; KEPT_ORDERS] = [64, 32, 16, 8, 2];

/// No word or pageblock.
pub(crate) const NONE: u32 = u32::MAX;

/// Returns whether magazines keep blocks of this order.
#[inline(always)]
pub(crate) const fn is_kept(order: u8) -> bool {
    order <= COSTLY_ORDER || order == PAGEBLOCK_ORDER
}

#[inline(always)]
const fn order_index(order: u8) -> usize {
    if order == PAGEBLOCK_ORDER { KEPT_ORDERS - 1 } else { order as usize }
}

/// Returns the class of a kept order and type.
#[inline(always)]
pub(crate) const fn class_of(order: u8, t: usize) -> usize {
    order_index(order) * KEPT_TYPES + t
}

/// Returns the order of a class.
pub(crate) const fn order_of(class: usize) -> u8 {
    let index = class / KEPT_TYPES;
    if index + 1 == KEPT_ORDERS { PAGEBLOCK_ORDER } else { index as u8 }
}

/// Returns how many blocks a magazine of an order holds.
#[inline(always)]
pub(crate) const fn capacity(order: u8) -> u32 {
    CAPACITY[order_index(order) % KEPT_ORDERS]
}

/// Returns the pages of a full magazine of a class.
pub(crate) const fn pages_of(class: usize) -> u32 {
    capacity(order_of(class)) << order_of(class)
}

/// The blocks of one class, in one cache line. Blocks are allocated from the loaded magazine, then
/// from the run.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// Blocks in the loaded magazine.
    pub(crate) count: u32,
    /// The loaded magazine. Partly full.
    pub(crate) loaded: u32,
    /// The other magazine: full or empty, or what was loaded when the two were exchanged.
    pub(crate) previous: u32,
    /// Blocks in the other magazine.
    pub(crate) previous_count: u32,
    /// First frame of the run's word.
    pub(crate) run_base: u32,
    /// Frees that do not look for room because a depot had none.
    pub(crate) skip: u32,
    /// Heads of the run's blocks, relative to `run_base`.
    pub(crate) run: u64,
}

impl Slot {
    const fn new() -> Self {
        Slot { count: 0, loaded: 0, previous: 0, previous_count: 0, run_base: 0, skip: 0, run: 0 }
    }

    /// Returns the blocks of the slot.
    pub(crate) fn blocks(&self) -> u32 {
        self.count + self.previous_count + self.run.count_ones()
    }
}

/// What one CPU did since the region was created. Counts leave out blocks of orders that magazines
/// do not keep, and requests that found the CPU's lock held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuCounts {
    /// Requests that took frames from the zone.
    pub refills: u64,
    /// Pages taken from the zone.
    pub taken: u64,
    /// Pages returned to the zone.
    pub returned: u64,
    /// Pages taken from depots.
    pub depot_out: u64,
    /// Pages put into depots.
    pub depot_in: u64,
    /// Whole pageblocks that became one type's.
    pub claims: u64,
    /// Pageblocks of another type that served a request.
    pub steals: u64,
}

/// Where an operation runs.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) cpu: u32,
    pub(crate) domain: usize,
}

/// The state that the CPU's owner has to itself.
#[derive(Debug)]
pub(crate) struct Cpu {
    // A power of two, so an index masked to four bits is in range.
    pub(crate) slots: [Slot; 16],
    /// The CPU's number.
    pub(crate) number: u32,
    /// The cache domain whose depot it uses.
    pub(crate) domain: u32,
    /// The word that collects frees to the zone; [`NONE`] if it has none.
    pub(crate) pending_word: u32,
    pub(crate) pending: u64,
    pub(crate) counts: CpuCounts,
}

impl Cpu {
    const fn new() -> Self {
        Cpu {
            slots: [const { Slot::new() }; 16],
            number: 0,
            domain: 0,
            pending_word: NONE,
            pending: 0,
            counts: CpuCounts {
                refills: 0,
                taken: 0,
                returned: 0,
                depot_out: 0,
                depot_in: 0,
                claims: 0,
                steals: 0,
            },
        }
    }

    pub(crate) fn at(&self) -> At {
        At { cpu: self.number, domain: self.domain as usize }
    }

    #[inline(always)]
    pub(crate) fn slot(&mut self, class: usize) -> &mut Slot {
        &mut self.slots[class & 15]
    }

    /// Returns the pages that the CPU keeps, outside depots.
    pub(crate) fn pages(&self) -> u64 {
        let slots = self.slots.iter().take(CLASSES).enumerate();
        let kept: u64 = slots.map(|(c, s)| u64::from(s.blocks()) << order_of(c)).sum();
        kept + u64::from(self.pending.count_ones())
    }
}

/// One CPU's part of a region. The embedder provides the memory.
#[derive(Debug)]
#[repr(align(128))]
pub struct PerCpu<R: RawMutex> {
    /// Held for each request, or by [`Pinned`] all the time.
    pub(crate) own: Mutex<R, Cpu>,
    pub(crate) shared: Shared,
}

/// What other CPUs read and write.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    /// The pageblocks that the CPU refills from, by type; single pages apart from larger blocks.
    /// Written by the owner; others take from them when nothing else is left.
    pub(crate) current: [[AtomicU32; 2]; KEPT_TYPES],
    /// Another CPU asked the owner to drain.
    pub(crate) drain: AtomicBool,
}

impl Shared {
    const fn new() -> Self {
        Shared {
            current: [const { [const { AtomicU32::new(NONE) }; 2] }; KEPT_TYPES],
            drain: AtomicBool::new(false),
        }
    }

    pub(crate) fn current(&self) -> impl Iterator<Item = &AtomicU32> {
        self.current.iter().flatten()
    }

    pub(crate) fn request_drain(&self) {
        self.drain.store(true, Release);
    }

    pub(crate) fn take_request(&self) -> bool {
        self.drain.load(Relaxed) && self.drain.swap(false, Acquire)
    }
}

impl<R: RawMutex> PerCpu<R> {
    /// Returns a part that no region uses yet.
    pub const fn new() -> Self {
        PerCpu { own: Mutex::new(Cpu::new()), shared: Shared::new() }
    }
}

impl<R: RawMutex> Default for PerCpu<R> {
    fn default() -> Self {
        PerCpu::new()
    }
}

/// A CPU that one owner has for longer than a request: it takes no lock per request.
///
/// The owner is whatever cannot run twice on the CPU: a kernel with preemption disabled, a thread
/// that stands for a CPU. Other CPUs cannot drain a pinned CPU. [`Region::drain`] asks its owner
/// instead, who drains at its next refill or [`poll`](Pinned::poll). Requests for the CPU by number
/// go to the zone meanwhile.
///
/// Dropping it gives up the CPU; its frames stay in its magazines.
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 16, 2, 2)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(1 << 16))?;
///
/// let mut cpu = region.pin(CpuId(0)).expect("nobody else has this CPU");
/// let page = cpu.alloc(Order::ZERO, MigrateType::Movable).expect("memory is plentiful");
/// cpu.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pinned<'r, 'a, R: RawMutex> {
    region: &'r Region<'a, R>,
    guard: MutexGuard<'r, R, Cpu>,
}

impl<'r, 'a, R: RawMutex> Pinned<'r, 'a, R> {
    pub(crate) fn new(region: &'r Region<'a, R>, guard: MutexGuard<'r, R, Cpu>) -> Self {
        Pinned { region, guard }
    }

    /// Returns the CPU's number.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.guard.number)
    }

    /// Allocates a block; see [`Region::alloc`].
    #[inline(always)]
    pub fn alloc(&mut self, order: Order, t: MigrateType) -> Option<Pfn> {
        self.region.alloc_on(&mut self.guard, order, t)
    }

    /// Frees a block; see [`Region::free`].
    ///
    /// # Errors
    /// As [`Region::free`].
    #[inline(always)]
    pub fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.region.free_on::<false>(&mut self.guard, pfn, order)
    }

    /// Frees a block that no other thread can free concurrently; see [`Region::free_owned`].
    ///
    /// # Errors
    /// As [`Region::free`].
    #[inline(always)]
    pub fn free_owned(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.region.free_on::<true>(&mut self.guard, pfn, order)
    }

    /// Drains the CPU if another CPU asked for it. Call it from a tick. Returns whether it drained.
    pub fn poll(&mut self) -> bool {
        self.region.poll(&mut self.guard)
    }

    /// Returns all of the CPU's frames to the zone.
    pub fn drain(&mut self) {
        self.region.drain_cpu(&mut self.guard);
    }
}

impl<R: RawMutex> core::fmt::Debug for Pinned<'_, '_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pinned").field("cpu", &self.guard.number).finish_non_exhaustive()
    }
}
