//! Accesses of the packed engine to memory that CPUs share, for a simulator that prices cache lines
//! (feature `lines`, which needs `std`).
//!
//! Each thread has a hook. It is called before each access to an atomic of the packed engine, and
//! to the free counter of a zone on that engine. [`Yard::for_each_shared`](crate::Yard::for_each_shared)
//! names the memory at an address.
//!
//! ```
//! use core::cell::Cell;
//! use pageyard::lines::{Access, set_hook};
//! use pageyard::packed::OwnedStorage;
//! use pageyard::{CpuId, MigrateType, Order, Pfn};
//!
//! thread_local! { static UPDATES: Cell<u32> = const { Cell::new(0) } }
//!
//! let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
//! let region = storage.region(Pfn(0))?;
//! region.add(Pfn(0)..Pfn(4096))?;
//! let before = set_hook(Some(|_, access| {
//!     UPDATES.set(UPDATES.get() + u32::from(access == Access::Update));
//! }));
//! let page = region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).expect("plenty");
//! set_hook(before);
//! assert!(UPDATES.get() > 0, "a refill exchanges a word");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

extern crate std;

use core::cell::Cell;
use core::ops::Range;

use crate::base::units::ZoneId;

/// A kind of access.
///
/// ```
/// use pageyard::lines::Access;
///
/// assert!(Access::Update.writes() && !Access::Fetch.writes());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Load,
    /// A load whose value is not used: it brings the line near.
    Fetch,
    /// A store.
    Store,
    /// A read-modify-write operation, whether or not it succeeds.
    Update,
}

impl Access {
    /// Returns whether the CPU needs the line for itself.
    pub const fn writes(self) -> bool {
        matches!(self, Access::Store | Access::Update)
    }
}

/// The purpose of memory that CPUs share.
///
/// ```
/// use pageyard::lines::Part;
///
/// assert_ne!(Part::Words, Part::Labels);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// States of frames; elements of one byte.
    States,
    /// Bits of free frames; an element is a pageblock.
    Words,
    /// Types and places of pageblocks.
    Labels,
    /// Where frees to pageblocks go.
    Routes,
    /// The index. An element is a set: two of whole pageblocks, then one for each type and each of
    /// eight buckets.
    Index,
    /// Magazines.
    Magazines,
    /// The links of magazines.
    Links,
    /// CPUs' parts, without what their locks protect: the pageblocks that a CPU refills from.
    Cpus,
    /// Heads of the stacks of full magazines of a cache domain; an element is a class.
    Depots,
    /// Head of the stack of empty magazines of a cache domain; an element is a domain.
    Empties,
    /// Heads of the stacks of full magazines of the node; an element is a class.
    NodeDepot,
    /// Head of the stack of empty magazines of the node.
    NodeEmpties,
    /// The counts of sparse pageblocks; an element is a domain.
    Sparse,
    /// Parts of the free counter, and turns of the CPUs whose ticks trim a depot; an element is a
    /// domain.
    Upkeep,
    /// The levels, which every free reads.
    Levels,
    /// Pages that the node's depot holds.
    DepotPages,
    /// The number of isolated pageblocks, which each visit to a depot reads.
    Isolated,
    /// Pages that depots returned.
    Returned,
    /// Pages that moved without a CPU's part.
    Loose,
    /// The zone's free counter.
    FreeCounter,
}

/// Memory of one purpose.
///
/// ```
/// use pageyard::lines::{Part, Shared};
/// use pageyard::{NodeId, ZoneId, ZoneKind};
///
/// let zone = ZoneId { node: NodeId(0), kind: ZoneKind::Normal };
/// let words = Shared { zone, part: Part::Words, bytes: 0x1000..0x2000, element: 64, first: 0 };
/// assert_eq!(words.element_at(0x1040), Some(1));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shared {
    /// The zone.
    pub zone: ZoneId,
    /// The purpose.
    pub part: Part,
    /// The addresses.
    pub bytes: Range<usize>,
    /// Bytes of an element.
    pub element: usize,
    /// The number of the first element.
    pub first: usize,
}

impl Shared {
    /// Returns the number of the element at an address.
    pub fn element_at(&self, address: usize) -> Option<usize> {
        let within = address.checked_sub(self.bytes.start).filter(|_| address < self.bytes.end)?;
        Some(within.checked_div(self.element)?.wrapping_add(self.first))
    }
}

/// Receives the address and the kind of an access, before the access.
pub type Hook = fn(usize, Access);

std::thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// Sets this thread's hook. Returns the previous one.
pub fn set_hook(hook: Option<Hook>) -> Option<Hook> {
    HOOK.replace(hook)
}

/// Reports an access of this thread.
#[inline]
pub(crate) fn report<T>(at: &T, access: Access) {
    if let Some(hook) = HOOK.get() {
        hook(core::ptr::from_ref(at).addr(), access);
    }
}

/// Memory of a region: [`Shared`] without the zone.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) part: Part,
    pub(crate) bytes: Range<usize>,
    pub(crate) element: usize,
    pub(crate) first: usize,
}

impl Piece {
    /// Returns the memory of a slice.
    pub(crate) fn of<T>(part: Part, all: &[T]) -> Piece {
        Piece { part, bytes: addresses(all), element: size_of::<T>(), first: 0 }
    }

    /// Returns the memory of one value, as the element of this number.
    pub(crate) fn one<T>(part: Part, value: &T, number: usize) -> Piece {
        Piece { part, bytes: addresses(value), element: size_of::<T>(), first: number }
    }
}

/// Returns the addresses of a value.
fn addresses<T: ?Sized>(of: &T) -> Range<usize> {
    let start = core::ptr::from_ref(of).cast::<u8>().addr();
    start..start.wrapping_add(size_of_val(of))
}
