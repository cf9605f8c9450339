//! The frame allocator traits of the crate `x86_64`.

use core::fmt;

use pageyard::{Config, Gfp, Order, Pfn, Yard};
use x86_64::PhysAddr;
use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PageSize, PhysFrame};

/// A yard as `FrameAllocator` and `FrameDeallocator`, for frames of 4 KiB and 2 MiB. There are no blocks
/// of 1 GiB: such requests fail.
///
/// ```
/// use pageyard::{Bare, Gfp, Yard};
/// use pageyard_adapters::Frames;
/// use x86_64::structures::paging::{FrameAllocator, FrameDeallocator, PhysFrame, Size2MiB};
/// type Lock = spin::mutex::SpinMutex<()>;
///
/// let memory = [0x1_0000_0000..0x1_0400_0000];
/// let yard: Yard<'_, Bare<Lock, ()>> = Yard::from_memory_map(&memory, &[], 1, ())?;
/// let mut frames = Frames::new(&yard, Gfp::KERNEL);
/// let frame: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
/// // SAFETY: nothing uses the frame.
/// unsafe { frames.deallocate_frame(frame) };
/// assert_eq!(frames.refused(), 0);
/// # Ok::<(), pageyard::InitError>(())
/// ```
pub struct Frames<'y, 'a, C: Config> {
    yard: &'y Yard<'a, C>,
    gfp: Gfp,
    refused: u64,
}

impl<'y, 'a, C: Config> Frames<'y, 'a, C> {
    /// Wraps a yard. All requests have these flags.
    pub const fn new(yard: &'y Yard<'a, C>, gfp: Gfp) -> Self {
        Frames { yard, gfp, refused: 0 }
    }

    /// Returns how many frames were not freed because they were free already, or not allocated as one
    /// frame of that size. The trait has no error for it.
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

impl<C: Config> fmt::Debug for Frames<'_, '_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("gfp", &self.gfp).field("refused", &self.refused).finish()
    }
}

/// Returns the order of a page size; `None` above the largest block.
fn order<S: PageSize>() -> Option<Order> {
    Order::new(u8::try_from((S::SIZE / pageyard::PAGE_SIZE).trailing_zeros()).ok()?)
}

// SAFETY: a yard hands out a block once until it is freed, aligned to its size
// (`page_tables_are_built_from_frames_and_torn_down` finds two owners of a frame).
unsafe impl<S: PageSize, C: Config> FrameAllocator<S> for Frames<'_, '_, C> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        let order = order::<S>()?;
        let pfn = self.yard.alloc(order, self.gfp).ok()?;
        let frame = PhysAddr::try_new(pfn.address()).ok();
        let frame = frame.and_then(|address| PhysFrame::from_start_address(address).ok());
        if frame.is_none() {
            // Above 2^52, which no page table can name.
            _ = self.yard.free(pfn, order);
        }
        frame
    }
}

impl<S: PageSize, C: Config> FrameDeallocator<S> for Frames<'_, '_, C> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let pfn = Pfn::containing(frame.start_address().as_u64());
        let freed = order::<S>().is_some_and(|order| self.yard.free(pfn, order).is_ok());
        self.refused = self.refused.saturating_add(u64::from(!freed));
    }
}
