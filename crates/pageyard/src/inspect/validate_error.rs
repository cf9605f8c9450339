//! The results of [`Yard::validate`](crate::Yard::validate).

use core::fmt;

use crate::base::units::{CpuId, MigrateType, Order, Pfn, ZoneId};

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

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tally::Free => f.write_str("free pages"),
            Tally::FreeHighatomic => f.write_str("free highatomic pages"),
            Tally::FreeCma => f.write_str("free CMA pages"),
            Tally::Managed => f.write_str("managed pages"),
            Tally::Blocks(o) => write!(f, "free blocks of order {o}"),
            Tally::Listed(o, t) => write!(f, "blocks on the free list of order {o}, {t}"),
            Tally::Cached(c) => write!(f, "pages on the lists of CPU {}", c.0),
            Tally::AllCached => f.write_str("blocks on all per-CPU lists"),
            Tally::Guards => f.write_str("guard pages"),
            Tally::Bad => f.write_str("bad pages"),
            Tally::Poisoned => f.write_str("poisoned frames out of use"),
            Tally::Reported => f.write_str("reported pages"),
            Tally::Isolated => f.write_str("isolated pageblocks"),
            Tally::ReservedHighatomic => f.write_str("pages in highatomic pageblocks"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Order(n) => write!(f, "head of a block of order {n}"),
            Broken::Misaligned(o) => write!(f, "not aligned to its order {o}"),
            Broken::Outside(o) => write!(f, "of order {o}, reaches over the end of the zone"),
            Broken::Overlap { head } => write!(f, "also inside the block at {head}"),
            Broken::Lost => f.write_str("in no block"),
            Broken::Held => f.write_str("held, though nobody is at work"),
            Broken::BeingFreed => {
                f.write_str("on its way from its owner, though nobody is at work")
            }
            Broken::Absent => f.write_str("in a pageblock without memory"),
            Broken::Label { list, block } => {
                write!(f, "on the list of type {list} in a pageblock of type {block}")
            }
            Broken::Unmerged(o) => write!(f, "not merged with its buddy of order {o}"),
            Broken::Poison => f.write_str("poisoned and in use, or good and out of use"),
            Broken::Taint => f.write_str("its pageblock is wrong about poisoned frames"),
            Broken::Reported(o) => write!(f, "reported, though of order {o}"),
            Broken::Misplaced { order } => write!(f, "on a list of order {order}, but not of it"),
            Broken::Link => f.write_str("linked to another frame than the one before"),
            Broken::End => f.write_str("last of its list, which names another one"),
            Broken::Unlisted(o) => write!(f, "free or cached at order {o}, but on no list"),
            Broken::UnusedList(c) => write!(f, "a list of CPU {} that is not in use", c.0),
            Broken::Threshold(c) => {
                write!(f, "the part of CPU {} in the free counter is above its threshold", c.0)
            }
            Broken::Watermarks => f.write_str("the watermarks do not ascend"),
            Broken::CachedMark => {
                f.write_str("the quick watermark is not what follows from the others")
            }
            Broken::Count { of, says, is } => write!(f, "{of}: counted {says}, there are {is}"),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.zone)?;
        if let Some(pfn) = self.frame {
            write!(f, "frame {pfn}: ")?;
        }
        self.broken.fmt(f)
    }
}

impl core::error::Error for Invalid {}
