//! A yard as the allocator of single collections (`allocator-api2`).

use std::alloc::Layout;
use std::fmt;
use std::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use pageyard::Gfp;
use pageyard::policy::{Linux612, Policy};

use crate::global::order_for;
use crate::yard::HostYard;

/// An allocator of pages and more, up to 4 MiB, from a yard, and of all else from `F`. A size is
/// rounded up to a power of two of pages, and a collection is told how much it has.
///
/// What the fallback serves for a page or more must not lie in the same yard's memory, as an address
/// there is taken for a block of the yard's: such memory is given back to `F`, and the request fails.
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
pub struct InYard<'y, F, P: Policy = Linux612> {
    yard: &'y HostYard<P>,
    fallback: F,
}

impl<'y, F, P: Policy> InYard<'y, F, P> {
    /// With what small requests, and those for which the yard has no memory, are served from.
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

// SAFETY: a block of the yard is as large as is said and aligned to its own size, which is no less
// than the alignment; it stays where it is, whoever moves this, until it comes back, to this or a
// clone, which have the same yard (`collections_of_a_yard_of_their_own`). Any other address is the
// fallback's; so is one in the yard whose layout is less than a page, and it is told to be no larger
// than was asked for, so that it comes back as such a layout
// (`pages_of_the_yard_are_not_taken_from_the_fallback`).
unsafe impl<F: Allocator, P: Policy> Allocator for InYard<'_, F, P> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = order_for(layout).and_then(|order| {
            let start = self.yard.take(order, Gfp::KERNEL | Gfp::NOWARN | Gfp::NORETRY)?;
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
            // SAFETY: it is the fallback's, of this layout, and used by no one yet
            // (`pages_of_the_yard_are_not_taken_from_the_fallback`).
            unsafe { self.fallback.deallocate(start, layout) };
            Err(AllocError)
        };
        block.map_or_else(fallback, Ok)
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match order_for(layout).filter(|_| self.yard.holds(start.as_ptr())) {
            // SAFETY: it is the yard's, of this order: any layout that fits the block says the
            // same. It is unused from now on (`collections_of_a_yard_of_their_own`).
            Some(order) => unsafe { self.yard.give(start, order, Gfp::KERNEL) },
            // SAFETY: the caller's word.
            None => unsafe { self.fallback.deallocate(start, layout) },
        }
    }
}
