//! What [`Yard::validate`](crate::Yard::validate) finds.

use core::fmt;

use crate::base::units::{CpuId, MigrateType, Order, Pfn, ZoneId};

/// The first broken invariant that [`Yard::validate`](crate::Yard::validate) came upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// In which zone.
    pub zone: ZoneId,
    /// At which frame, where it is one frame's.
    pub frame: Option<Pfn>,
    /// What is wrong.
    pub broken: Broken,
}

/// An invariant that does not hold. The frame is [`Invalid::frame`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Broken {
    /// The frame is head of a block of an order that there is not.
    Order(u8),
    /// The block at the frame is not aligned to its size.
    Misaligned(Order),
    /// The block at the frame reaches over the end of the zone.
    Outside(Order),
    /// The frame lies inside a block, and says that it is something itself: it is in two places.
    Overlap {
        /// The head of the block.
        head: Pfn,
    },
    /// The frame says that it lies inside a block, and is in none: it is lost.
    Lost,
    /// The block at the frame is between two places, though nobody is at work.
    Held,
    /// The block at the frame is on its way from its owner to a list, and nobody frees it.
    BeingFreed,
    /// There is a block at the frame, in a pageblock without memory.
    Absent,
    /// The free block at the frame is on the list of another type than a pageblock of it has (§4.8).
    Label {
        /// The list's type.
        list: MigrateType,
        /// The pageblock's.
        block: MigrateType,
    },
    /// The block at the frame and its buddy are both free, or the one free and the other one its
    /// guard, and have not merged (§1.7).
    Unmerged(Order),
    /// The frame is poisoned, but free or on a per-CPU list; or out of use as poisoned, but not
    /// poisoned (§11.3).
    Poison,
    /// The pageblock that begins at the frame does not say rightly whether a poisoned frame in it is
    /// in use.
    Taint,
    /// The free block at the frame bears the mark of reported ones, which its order never gets.
    Reported(Order),
    /// The frame is on a list, but is not the head of a free or cached block that belongs there.
    Misplaced {
        /// The order of the list's blocks.
        order: Order,
    },
    /// The frame is on a list; its link to the one before is not the way back, or the list is a
    /// ring.
    Link,
    /// The frame is the last one of its list, which says that another one is.
    End,
    /// The block at the frame says that it is free or cached, and is on no list.
    Unlisted(Order),
    /// A list of the CPU is in use that its policy does not have, or a list of a CPU that is down.
    UnusedList(CpuId),
    /// The CPU's part of the free counter is above its threshold, and above what any can be (§9.2).
    Threshold(CpuId),
    /// The watermarks do not ascend (§3.2).
    Watermarks,
    /// What requests compare the free counter with does not follow from watermarks, boost, reserves
    /// and withheld pages (§3.7).
    Ample,
    /// A counter does not say what is there.
    Count {
        /// Which one.
        of: Tally,
        /// What it says.
        says: i64,
        /// How many there are.
        is: i64,
    },
}

/// A counter that [`Yard::validate`](crate::Yard::validate) compares with what it counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tally {
    /// Free pages with the CPUs' parts, isolated ones left out.
    Free,
    /// Free pages of the highatomic reserve.
    FreeHighatomic,
    /// Free pages of CMA blocks.
    FreeCma,
    /// Pages that the allocator manages.
    Managed,
    /// Free blocks of an order.
    Blocks(Order),
    /// Blocks on the free list of an order and a type; what is counted says so of itself.
    Listed(Order, MigrateType),
    /// Pages on a CPU's lists.
    Cached(CpuId),
    /// Blocks on all CPUs' lists; what is counted says so of itself.
    AllCached,
    /// Pages that are guards (§11.6).
    Guards,
    /// Pages that are out of use as bad (§11.2).
    Bad,
    /// Frames that are out of use as poisoned (§11.3).
    Poisoned,
    /// Free pages that were reported (§9.9).
    Reported,
    /// Isolated pageblocks (§4.11).
    Isolated,
    /// Pages in highatomic pageblocks, at least: those that a contiguous range or an isolation has
    /// made pageblocks of another type stay counted, as in the kernel (§3.8, §4.11).
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
            Broken::Ample => f.write_str("the quick watermark is not what follows from the others"),
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
