//! Reporting free memory in two phases, for hypervisors that take memory away and give it back by a
//! request of their own: what they have not given back stays out of the allocator.
//!
//! [`Yard::report_free_blocks`] suits hypervisors that populate memory when it is touched. The spec
//! does not define the type in this file.

use core::fmt;

use crate::allocator::yard::Yard;
use crate::base::free_error::FreeError;
use crate::base::gfp::Gfp;
use crate::base::units::{Order, Pfn};
use crate::embedder::config::Config;

/// Where a block of a [`Balloon`] is on its way.
///
/// ```
/// use pageyard::{Balloon, Lent, Order};
///
/// let mut room = [Lent::NONE; 16];
/// let balloon = Balloon::new(&mut room, Order::HUGE);
/// assert_eq!(balloon.pages(), 0);
/// ```
///
/// Two words, of which any bits are valid; all zero is no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Lent {
    pfn: Pfn,
    phase: Phase,
}

impl Lent {
    /// No block: what the room of a balloon holds at first.
    pub const NONE: Lent = Lent { pfn: Pfn(0), phase: Phase::NONE };

    fn is_none(&self) -> bool {
        ![Phase::LENT, Phase::ASKED].contains(&self.phase)
    }
}

/// Whether the hypervisor was asked for the block. A number, because room that a caller wrote to is
/// then still valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(transparent)]
struct Phase(u64);

impl Phase {
    const NONE: Phase = Phase(0);
    const LENT: Phase = Phase(1);
    const ASKED: Phase = Phase(2);
}

/// Why a block did not return from a [`Balloon`].
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let mut room = [Lent::NONE; 16];
/// let mut balloon = Balloon::new(&mut room, Order::HUGE);
/// let block = balloon.lend(&yard, Gfp::HIGHUSER_MOVABLE).unwrap();
/// assert_eq!(balloon.acknowledge(&yard, block), Err(BalloonError::NotAsked(block)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BalloonError {
    /// The block is not in the balloon.
    Unknown(Pfn),
    /// [`ask`](Balloon::ask) has not named the block since it was lent.
    NotAsked(Pfn),
    /// The block could not be freed. Except on an unknown CPU, another caller has freed it, and it has
    /// left the balloon.
    Free(FreeError),
}

impl fmt::Display for BalloonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BalloonError::Unknown(p) => write!(f, "the block at {p} is not in the balloon"),
            BalloonError::NotAsked(p) => write!(f, "the block at {p} was not asked back"),
            BalloonError::Free(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for BalloonError {}

/// Blocks of one order that are lent to a hypervisor, in memory of the caller's.
///
/// 1. [`lend`](Self::lend) takes a free block out of the allocator. The embedder unmaps it and releases it
///    to the hypervisor.
/// 2. [`ask`](Self::ask) names a block that is wanted back. The embedder asks the hypervisor to map it
///    again.
/// 3. [`acknowledge`](Self::acknowledge) frees it once the hypervisor has answered.
///
/// A block that is not acknowledged stays out of the allocator, as does one whose balloon is dropped or
/// forgotten.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let mut room = [Lent::NONE; 16];
/// let mut balloon = Balloon::new(&mut room, Order::HUGE);
///
/// while let Some(block) = balloon.lend(&yard, Gfp::HIGHUSER_MOVABLE) {
///     // Unmap the block and release it to the hypervisor.
/// }
/// assert_eq!(balloon.pages(), 16 * 512);
/// // Memory is short.
/// let block = balloon.ask().unwrap();
/// // Ask the hypervisor for it. When it has answered:
/// balloon.acknowledge(&yard, block)?;
/// # Ok::<(), BalloonError>(())
/// ```
#[derive(Debug)]
#[must_use = "the blocks of a balloon stay out of the allocator until they are acknowledged"]
pub struct Balloon<'s> {
    lent: &'s mut [Lent],
    order: Order,
}

impl<'s> Balloon<'s> {
    /// Creates an empty balloon for as many blocks of an order as the slice has entries, which are
    /// overwritten.
    pub fn new(room: &'s mut [Lent], order: Order) -> Self {
        room.fill(Lent::NONE);
        Self::resume(room, order)
    }

    /// Continues with a balloon whose room the caller kept, with the blocks in it.
    pub const fn resume(room: &'s mut [Lent], order: Order) -> Self {
        Balloon { lent: room, order }
    }

    /// Takes a free block out of the allocator, without reclaim. `None` if the balloon is full, no block
    /// is free, or a zone would fall to its LOW watermark.
    ///
    /// The block cannot move. With movable flags it may lie in a CMA area, which cannot have it until it
    /// is acknowledged.
    pub fn lend<C: Config>(&mut self, yard: &Yard<'_, C>, gfp: Gfp) -> Option<Pfn> {
        let slot = self.lent.iter_mut().find(|slot| slot.is_none())?;
        let effort = Gfp::DIRECT_RECLAIM
            | Gfp::KSWAPD_RECLAIM
            | Gfp::NOFAIL
            | Gfp::RETRY_MAYFAIL
            | Gfp::HIGH
            | Gfp::MEMALLOC
            | Gfp::ZERO;
        let gfp = (gfp - effort) | Gfp::NORETRY | Gfp::NOWARN | Gfp::NOMEMALLOC;
        let pfn = yard.alloc(self.order, gfp).ok()?;
        let spare = yard.zone_of(pfn).and_then(|zone| yard.above_low(zone));
        // Before the free, which calls hooks: if one panics, the block is lent and not lost.
        *slot = Lent { pfn, phase: Phase::LENT };
        // Nor is one that cannot be freed, on a CPU that went offline.
        if spare.is_some_and(|pages| pages > 0) || yard.free(pfn, self.order).is_err() {
            // On the packed engine a movable request makes a movable block, and this one cannot move.
            _ = yard.set_movable(pfn, self.order, false);
            return Some(pfn);
        }
        *slot = Lent::NONE;
        None
    }

    /// Chooses a block to get back from the hypervisor. `None` if there is none that was not asked for.
    pub fn ask(&mut self) -> Option<Pfn> {
        let slot = self.lent.iter_mut().find(|slot| slot.phase == Phase::LENT)?;
        slot.phase = Phase::ASKED;
        Some(slot.pfn)
    }

    /// Frees a block that the hypervisor has mapped again.
    ///
    /// # Errors
    /// [`BalloonError`]. A block that is unknown, or was not asked for, stays where it is.
    pub fn acknowledge<C: Config>(
        &mut self,
        yard: &Yard<'_, C>,
        pfn: Pfn,
    ) -> Result<(), BalloonError> {
        let of = |slot: &&mut Lent| !slot.is_none() && slot.pfn == pfn;
        let slot = self.lent.iter_mut().find(of).ok_or(BalloonError::Unknown(pfn))?;
        if slot.phase != Phase::ASKED {
            return Err(BalloonError::NotAsked(pfn));
        }
        let freed = yard.free(pfn, self.order);
        if !matches!(freed, Err(FreeError::UnknownCpu(_))) {
            *slot = Lent::NONE;
        }
        freed.map_err(BalloonError::Free)
    }

    /// Returns the number of pages in the balloon.
    pub fn pages(&self) -> u64 {
        let blocks = self.lent.iter().filter(|slot| !slot.is_none()).count();
        blocks as u64 * u64::from(self.order.pages())
    }
}
