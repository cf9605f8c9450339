//! Why a free is refused (spec §11.8).

use core::fmt;

use crate::base::units::{CpuId, Order, Pfn};

/// Why a block was not freed. Nothing has changed (spec §11.8).
///
/// If several CPUs [`free`](crate::Yard::free) the same block concurrently, one succeeds and the others
/// get an error. Only [`free_owned`](crate::Yard::free_owned) and
/// [`free_batch_owned`](crate::Yard::free_batch_owned) leave such races to the caller.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO).unwrap();
/// assert_eq!(yard.free(page, Order::ZERO), Err(FreeError::DoubleFree));
/// # Ok::<(), AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeError {
    /// The frame lies in no zone.
    Foreign,
    /// The frame is a hole, or was never given to the allocator.
    Reserved,
    /// The block is already free.
    DoubleFree,
    /// The frame number is not a multiple of the order's size.
    Misaligned,
    /// The block was allocated with another order.
    WrongOrder {
        /// The order it was allocated with.
        allocated: Order,
    },
    /// The frame lies inside an allocated block, not at its head.
    NotHead {
        /// The head of the block.
        head: Pfn,
        /// The order of the block.
        allocated: Order,
    },
    /// The block has been out of use since it was freed: one of its pages was found bad (§11.2), or
    /// its memory is faulty (§11.3).
    OutOfUse,
    /// The hooks report a CPU that the layout does not name or that is offline.
    UnknownCpu(CpuId),
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::Foreign => f.write_str("the frame is in no zone of this allocator"),
            FreeError::Reserved => f.write_str("the frame is reserved and was never allocated"),
            FreeError::DoubleFree => f.write_str("the block is already free"),
            FreeError::Misaligned => {
                f.write_str("the frame number is not a multiple of the block's size")
            }
            FreeError::WrongOrder { allocated } => {
                write!(f, "the block was allocated at order {allocated}")
            }
            FreeError::NotHead { head, allocated } => {
                write!(f, "the frame is inside the block of order {allocated} at {head}")
            }
            FreeError::OutOfUse => f.write_str("the block is bad or poisoned and out of use"),
            FreeError::UnknownCpu(c) => {
                write!(f, "the platform runs on CPU {}, which is offline or not in the layout", c.0)
            }
        }
    }
}

impl core::error::Error for FreeError {}
