//! The results of [`Yard::validate`](crate::Yard::validate).

use core::fmt::{self, Write};

use crate::base::put::put;
use crate::base::units::{CpuId, MigrateType, Order, Pfn, ZoneId};
use crate::packed;

/// The first broken invariant found by [`Yard::validate`](crate::Yard::validate).
///
/// ```
/// # use pageyard::{Bare, Platform, Yard};
/// # struct Machine;
/// # impl Platform for Machine {}
/// # type Lock = spin::mutex::SpinMutex<()>;
/// # type Y = Yard<'static, Bare<Lock, Machine>>;
/// let yard: Y = Yard::from_memory_map(&[1 << 32..(1 << 32) + (64 << 20)], &[], 1, Machine)?;
/// if let Err(invalid) = yard.validate() {
///     panic!("{invalid}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// The zone.
    pub zone: ZoneId,
    /// The frame, if the invariant concerns a single one.
    pub frame: Option<Pfn>,
    /// What is wrong.
    pub broken: Broken,
}

/// A broken invariant. The frame is [`Invalid::frame`].
///
/// ```
/// use pageyard::{Broken, Invalid, NodeId, Tally, ZoneId, ZoneKind};
///
/// let zone = ZoneId { node: NodeId(0), kind: ZoneKind::Normal };
/// let broken = Broken::Count { of: Tally::Free, says: 5, is: 7 };
/// let invalid = Invalid { zone, frame: None, broken };
/// assert!(invalid.to_string().contains('7'));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Broken {
    /// The frame is the head of a block whose order does not exist.
    Order(u8),
    /// The block at the frame is not aligned to its size.
    Misaligned(Order),
    /// The block at the frame extends beyond the end of the zone.
    Outside(Order),
    /// The frame lies inside a block, but its state claims another role: it is in two places.
    Overlap {
        /// The head of the block.
        head: Pfn,
    },
    /// The frame's state claims that it lies inside a block, but no block contains it: it is
    /// leaked.
    Lost,
    /// The block at the frame is held, though no thread is working on it.
    Held,
    /// The block at the frame is being freed, but no thread frees it.
    BeingFreed,
    /// There is a block at the frame, but its pageblock has no memory.
    Absent,
    /// The free block at the frame is on the list of another type than that of its pageblock
    /// (§4.8).
    Label {
        /// The list's type.
        list: MigrateType,
        /// The pageblock's type.
        block: MigrateType,
    },
    /// The block at the frame and its buddy have not merged, although both are free, or one is free
    /// and the other one is its guard (§1.7).
    Unmerged(Order),
    /// The frame is poisoned, but free or on a per-CPU list; or it is out of use as poisoned, but
    /// not poisoned (§11.3).
    Poison,
    /// The pageblock that begins at the frame has the wrong taint: it does not match whether a
    /// poisoned frame in it is in use.
    Taint,
    /// The owner of the pageblock at the frame contradicts the pageblock's state, its blocks on
    /// per-CPU lists, or the owner's list of pageblocks with free parts
    /// ([`OwnedBlocks`](crate::policy::OwnedBlocks)).
    Owner,
    /// The free block at the frame is marked as reported, but its order is never reported.
    Reported(Order),
    /// The frame is on a list, but is not the head of a free or cached block that belongs there.
    Misplaced {
        /// The order of the list's blocks.
        order: Order,
    },
    /// The frame is on a list, but its link to the previous frame is wrong, or the list is a ring.
    Link,
    /// The frame is the last one of its list, but the list names another one.
    End,
    /// The block at the frame is marked free or cached, but is on no list.
    Unlisted(Order),
    /// A list of the CPU is in use, although the policy has no such list or the CPU is offline.
    UnusedList(CpuId),
    /// The CPU's delta of the free counter exceeds its threshold and the largest possible threshold
    /// (§9.2).
    Threshold(CpuId),
    /// The watermarks are not in ascending order (§3.2).
    Watermarks,
    /// The cached watermark, which requests compare with the free counter, does not follow from
    /// watermarks, boost, reserves and withheld pages (§3.7).
    CachedMark,
    /// The packed engine's own check failed.
    Packed(packed::Broken),
    /// A counter does not match what it counts.
    Count {
        /// The counter.
        of: Tally,
        /// The counter's value.
        says: i64,
        /// The counted value.
        is: i64,
    },
}

/// A counter that [`Yard::validate`](crate::Yard::validate) compares with what it counts.
///
/// ```
/// use pageyard::{Broken, Tally};
///
/// let broken = Broken::Count { of: Tally::Free, says: 5, is: 7 };
/// assert!(matches!(broken, Broken::Count { of: Tally::Free, .. }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tally {
    /// Free pages including the per-CPU deltas, without isolated ones.
    Free,
    /// Free pages of the highatomic reserve.
    FreeHighatomic,
    /// Free pages of CMA blocks.
    FreeCma,
    /// Pages managed by the allocator.
    Managed,
    /// Free blocks of an order.
    Blocks(Order),
    /// Blocks on the free list of an order and type; the counted value follows the blocks' own
    /// states.
    Listed(Order, MigrateType),
    /// Pages on a CPU's lists.
    Cached(CpuId),
    /// Blocks on all CPUs' lists; the counted value follows the blocks' own states.
    AllCached,
    /// Pages that are guards (§11.6).
    Guards,
    /// Pages out of use as bad (§11.2).
    Bad,
    /// Frames out of use as poisoned (§11.3).
    Poisoned,
    /// Free pages that were reported (§9.9).
    Reported,
    /// Isolated pageblocks (§4.11).
    Isolated,
    /// Pages in highatomic pageblocks; the counter must not be lower. Pageblocks that a contiguous
    /// range or an isolation has given another type stay counted, as in the kernel (§3.8, §4.11).
    ReservedHighatomic,
}

impl Tally {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            Tally::Free => put!(out, "free pages"),
            Tally::FreeHighatomic => put!(out, "free highatomic pages"),
            Tally::FreeCma => put!(out, "free CMA pages"),
            Tally::Managed => put!(out, "managed pages"),
            Tally::Blocks(o) => put!(out, "free blocks of order ", o.get()),
            Tally::Listed(o, t) => {
                put!(out, "blocks on the free list of order ", o.get(), ", ", t.name())
            }
            Tally::Cached(c) => put!(out, "pages on the lists of CPU ", c.0),
            Tally::AllCached => put!(out, "blocks on all per-CPU lists"),
            Tally::Guards => put!(out, "guard pages"),
            Tally::Bad => put!(out, "bad pages"),
            Tally::Poisoned => put!(out, "poisoned frames out of use"),
            Tally::Reported => put!(out, "reported pages"),
            Tally::Isolated => put!(out, "isolated pageblocks"),
            Tally::ReservedHighatomic => put!(out, "pages in highatomic pageblocks"),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl Broken {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            Broken::Order(n) => put!(out, "head of a block of order ", n),
            Broken::Misaligned(o) => put!(out, "not aligned to its order ", o.get()),
            Broken::Outside(o) => {
                put!(out, "of order ", o.get(), ", reaches over the end of the zone")
            }
            Broken::Overlap { head } => put!(out, "also inside the block at ", head),
            Broken::Lost => put!(out, "in no block"),
            Broken::Held => put!(out, "held, though no thread is working on it"),
            Broken::BeingFreed => {
                put!(out, "being freed, though no thread is freeing it")
            }
            Broken::Absent => put!(out, "in a pageblock without memory"),
            Broken::Label { list, block } => {
                put!(out, "on the list of type ", list.name())?;
                put!(out, " in a pageblock of type ", block.name())
            }
            Broken::Unmerged(o) => put!(out, "not merged with its buddy of order ", o.get()),
            Broken::Poison => {
                put!(out, "poisoned, but free or on a list; or good, but out of use as poisoned")
            }
            Broken::Taint => put!(out, "its pageblock is wrong about poisoned frames"),
            Broken::Owner => put!(out, "its pageblock is wrong about its owner"),
            Broken::Reported(o) => put!(out, "reported, though of order ", o.get()),
            Broken::Misplaced { order } => {
                put!(out, "on a list of order ", order.get(), ", but not of it")
            }
            Broken::Link => put!(out, "linked to another frame than the one before"),
            Broken::End => put!(out, "last of its list, which names another one"),
            Broken::Unlisted(o) => {
                put!(out, "free or cached at order ", o.get(), ", but on no list")
            }
            Broken::UnusedList(c) => put!(out, "a list of CPU ", c.0, " that is not in use"),
            Broken::Threshold(c) => {
                put!(out, "the part of CPU ", c.0, " in the free counter is above its threshold")
            }
            Broken::Watermarks => put!(out, "the watermarks do not ascend"),
            Broken::CachedMark => {
                put!(out, "the cached watermark is not what follows from the others")
            }
            Broken::Packed(ref broken) => broken.write_to(out),
            Broken::Count { of, says, is } => {
                of.write_to(out)?;
                put!(out, ": the counter says ", says, ", but there are ", is)
            }
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl Invalid {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        put!(out, self.zone.kind.name(), " of node ", self.zone.node.0, ": ")?;
        if let Some(pfn) = self.frame {
            put!(out, "frame ", pfn, ": ")?;
        }
        self.broken.write_to(out)
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl core::error::Error for Invalid {}
