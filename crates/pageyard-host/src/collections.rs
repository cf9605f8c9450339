//! A yard as the allocator of individual collections (`allocator-api2`).

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use pageyard::Gfp;
use pageyard::policy::{Packed, Policy};

use crate::global::order_for;
use crate::yard::HostYard;

/// An allocator that serves sizes from a page up to 4 MiB from a yard, and all others from `F`.
/// Sizes are rounded up to a power of two of pages, and collections learn the actual size.
///
/// Memory that the fallback returns for a page or more must not lie in the same yard. Such an
/// address would be taken for a block of the yard, so it is freed to `F` again, and the request
/// fails.
///
/// ```
/// use allocator_api2::alloc::Global;
/// use allocator_api2::vec::Vec;
/// use pageyard_host::{Builder, InYard};
///
/// let yard = Builder::new(64 << 20).build()?;
/// let mut rows: Vec<u64, _> = Vec::with_capacity_in(3000, InYard::new(&yard, Global));
/// rows.extend(0..3000);
/// assert!(yard.holds(rows.as_ptr().cast()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct InYard<'y, F, P: Policy = Packed> {
    yard: &'y HostYard<P>,
    fallback: F,
}

impl<'y, F, P: Policy> InYard<'y, F, P> {
    /// Creates the allocator. `fallback` serves small requests, and those for which the yard has no
    /// memory.
    pub fn new(yard: &'y HostYard<P>, fallback: F) -> Self {
        InYard { yard, fallback }
    }
}

impl<F: Clone, P: Policy> Clone for InYard<'_, F, P> {
    fn clone(&self) -> Self {
        InYard { yard: self.yard, fallback: self.fallback.clone() }
    }
}

impl<F, P: Policy> fmt::Debug for InYard<'_, F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InYard").field("yard", self.yard).finish_non_exhaustive()
    }
}

// SAFETY: a block of the yard is as large as returned and aligned to its own size, which is at
// least the alignment. It stays in place when this allocator moves, until it is freed to this
// allocator or a clone, which share the yard (`collections_can_use_their_own_yard`). Any other
// address is the fallback's. That includes an address in the yard with a layout of less than a
// page. Its size is returned as no larger than requested, so that it is freed with such a layout
// (`yard_pages_are_never_freed_to_the_fallback`).
unsafe impl<F: Allocator, P: Policy> Allocator for InYard<'_, F, P> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = order_for(layout).and_then(|order| {
            let start = self.yard.alloc_ptr(order, Gfp::KERNEL | Gfp::NOWARN | Gfp::NORETRY)?;
            Some(NonNull::slice_from_raw_parts(start, 4096 << order.get()))
        });
        let fallback = || {
            let block = self.fallback.allocate(layout)?;
            let start = block.cast::<u8>();
            if !self.yard.holds(start.as_ptr()) {
                return Ok(block);
            }
            if order_for(layout).is_none() {
                return Ok(NonNull::slice_from_raw_parts(start, layout.size()));
            }
            // SAFETY: the fallback allocated it for this layout, and nothing uses it yet
            // (`yard_pages_are_never_freed_to_the_fallback`).
            unsafe { self.fallback.deallocate(start, layout) };
            Err(AllocError)
        };
        block.map_or_else(fallback, Ok)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match order_for(layout).filter(|_| self.yard.holds(start.as_ptr())) {
            // SAFETY: the block is the yard's, of this order: any layout that fits the block gives
            // the same order. It is no longer used (`collections_can_use_their_own_yard`).
            Some(order) => unsafe { self.yard.free_ptr(start, order, Gfp::KERNEL) },
            // SAFETY: as the caller guarantees.
            None => unsafe { self.fallback.deallocate(start, layout) },
        }
    }
}
