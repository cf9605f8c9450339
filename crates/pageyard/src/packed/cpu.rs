//! One CPU's frames: magazines by order and type, a run of one word, and a pending word that
//! collects frees to the zone.

use lock_api::{Mutex, RawMutex};

use crate::base::shared::{AtomicBool, AtomicU32};
use crate::base::sync::Ordering::{Acquire, Relaxed, Release};
use crate::base::units::CACHED_TYPES;
use crate::packed::class::{CLASSES, order_of};
use crate::packed::domain::Backoff;

/// No word or pageblock.
pub(crate) const NONE: u32 = u32::MAX;

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
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(4096))?;
/// region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).expect("plenty");
/// let counts = region.counts(CpuId(0)).expect("no other thread runs");
/// assert_eq!((counts.refills, counts.taken, counts.claims), (1, 64, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    /// Those among them that changed their type.
    pub relabels: u64,
}

/// Pageblocks of no type or of another type that served requests, as [`CpuCounts`] counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mixing {
    pub(crate) claims: u64,
    pub(crate) steals: u64,
    pub(crate) relabels: u64,
}

impl Mixing {
    pub(crate) fn between(before: &CpuCounts, after: &CpuCounts) -> Mixing {
        Mixing {
            claims: after.claims.wrapping_sub(before.claims),
            steals: after.steals.wrapping_sub(before.steals),
            relabels: after.relabels.wrapping_sub(before.relabels),
        }
    }

    pub(crate) fn and(self, other: Mixing) -> Mixing {
        Mixing {
            claims: self.claims.wrapping_add(other.claims),
            steals: self.steals.wrapping_add(other.steals),
            relabels: self.relabels.wrapping_add(other.relabels),
        }
    }
}

/// Where an operation runs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
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
    /// `returned` less `taken` and what is pending, when the zone counted last.
    pub(crate) settled: i64,
    /// Pages that went out of use when they were freed, since the zone counted last.
    pub(crate) lost: u32,
    /// Visits to the node's depot.
    pub(crate) backoff: Backoff,
    /// Requests may use the CPU's magazines: the CPU is online, and the zone's are not disabled.
    pub(crate) is_enabled: bool,
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
                relabels: 0,
            },
            settled: 0,
            lost: 0,
            backoff: Backoff::NONE,
            is_enabled: true,
        }
    }

    /// Returns whether a region uses this part: it has two magazines for each class then.
    pub(crate) fn is_in_use(&self) -> bool {
        self.slots[0].loaded != self.slots[0].previous
    }

    pub(crate) fn at(&self) -> Place {
        Place { cpu: self.number, domain: self.domain as usize }
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
///
/// ```
/// use pageyard::packed::PerCpu;
///
/// static CPUS: [PerCpu<spin::Mutex<()>>; 4] = [const { PerCpu::new() }; 4];
/// assert_eq!(CPUS.len(), 4);
/// ```
#[derive(Debug)]
#[repr(align(128))]
pub struct PerCpu<R: RawMutex> {
    /// Held for each request, or by a pinned CPU's owner all the time.
    pub(crate) own: Mutex<R, Cpu>,
    pub(crate) shared: Shared,
}

/// What other CPUs read and write.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Shared {
    /// The pageblocks that the CPU refills from, by type; single pages apart from larger blocks.
    /// Written by the owner; others take from them when nothing else is left.
    pub(crate) current: [[AtomicU32; 2]; CACHED_TYPES],
    /// Another CPU asked the owner to drain.
    pub(crate) drain: AtomicBool,
}

impl Shared {
    const fn new() -> Self {
        Shared {
            current: [const { [const { AtomicU32::new(NONE) }; 2] }; CACHED_TYPES],
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

    pub(crate) fn clear(&self) {
        if let Some(mut own) = self.own.try_lock() {
            *own = Cpu::new();
        }
        self.shared.current().for_each(|block| block.store(NONE, Relaxed));
        self.shared.drain.store(false, Relaxed);
    }
}

impl<R: RawMutex> Default for PerCpu<R> {
    fn default() -> Self {
        PerCpu::new()
    }
}
