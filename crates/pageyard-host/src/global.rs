//! A yard as the program's global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pageyard::policy::{Packed, Policy};
use pageyard::{Gfp, MAX_ORDER, Order, PAGE_SIZE};

use crate::backing::Backing;
use crate::held::allocating;
use crate::yard::HostYard;

/// Flags of allocator requests. The fallback can serve them, so they must not wait long.
const GFP: Gfp = Gfp::KERNEL.union(Gfp::NOWARN).union(Gfp::NORETRY);

/// Returns the smallest block order for a layout of a page or more; `None` for smaller layouts and
/// for those above the largest block.
#[inline]
pub(crate) fn order_for(layout: Layout) -> Option<Order> {
    let page = PAGE_SIZE as usize;
    let bytes = layout.size().max(layout.align());
    if layout.size() < page || bytes > page << MAX_ORDER {
        return None;
    }
    Order::new(bytes.div_ceil(page).next_power_of_two().trailing_zeros() as u8)
}

/// A `#[global_allocator]` that serves sizes from a page up to 4 MiB from a yard, and all others
/// from `F`.
///
/// Sizes are rounded up to a power of two of pages. `F` serves everything until a yard is
/// [installed](PageAlloc::install), while the yard has no memory, and in a child after a fork.
///
/// Memory that the fallback returns for a page or more must not lie in the yard. Such an address
/// would be taken for a block of the yard, so it is freed to `F` again, and the request fails. The
/// check works only once the yard is installed, so `F` must not have allocated such memory earlier.
///
/// Serving a request allocates nothing else. On a thread's first use, the yard needs some KiB for a
/// list and the thread's part of the thread cache. It requests them from the program's allocator,
/// which is this one. Small parts come from `F`, large ones from the yard past the thread cache,
/// and no lock is held.
///
/// ```
/// use std::alloc::System;
/// use pageyard_host::{Builder, PageAlloc};
///
/// #[global_allocator]
/// static PAGES: PageAlloc<System> = PageAlloc::new(System);
///
/// let yard = Builder::new(256 << 20).build()?;
/// PAGES.install(Box::leak(Box::new(yard))).unwrap();
/// let large = vec![1u8; 1 << 20];
/// assert!(PAGES.is_of_yard(large.as_ptr()));
/// let small = vec![1u8; 100];
/// assert!(!PAGES.is_of_yard(small.as_ptr()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PageAlloc<F, P: Policy + 'static = Packed> {
    yard: OnceLock<&'static HostYard<P>>,
    fallback: F,
}

impl<F, P: Policy> fmt::Debug for PageAlloc<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAlloc").field("yard", &self.yard.get()).finish_non_exhaustive()
    }
}

impl<F, P: Policy + 'static> PageAlloc<F, P> {
    /// Creates an allocator without a yard. `fallback` serves small requests, and all requests
    /// until a yard is installed.
    pub const fn new(fallback: F) -> Self {
        PageAlloc { yard: OnceLock::new(), fallback }
    }

    /// Serves pages from this yard from now on. It cannot be replaced.
    ///
    /// # Errors
    /// Returns the yard if one is installed already, or if the child of a fork would not get a copy
    /// of its memory: [pinned](crate::Builder::pinned) memory reads as zeros there, and parent and
    /// child would both write to a file's ([`Backing::Memfd`], [`Backing::HugeTlb`]).
    pub fn install(&self, yard: &'static HostYard<P>) -> Result<(), &'static HostYard<P>> {
        if yard.is_pinned() || yard.raw().region().backing() != Backing::Anonymous {
            return Err(yard);
        }
        self.yard.set(yard)
    }

    /// Returns whether an address lies in the yard's memory.
    pub fn is_of_yard(&self, address: *const u8) -> bool {
        self.yard.get().is_some_and(|yard| yard.holds(address))
    }

    #[inline]
    fn take(&self, layout: Layout, gfp: Gfp) -> Option<NonNull<u8>> {
        let _ends = allocating();
        let order = order_for(layout)?;
        let yard = self.yard.get()?;
        no_unwind(|| yard.alloc_ptr(order, gfp))
    }

    /// Returns memory of the fallback, unless `dealloc` would take it for a block of the yard; then
    /// frees it to the fallback and returns null.
    ///
    /// # Safety
    /// The fallback has just allocated it for the layout, or it is null.
    unsafe fn told_apart(&self, start: *mut u8, layout: Layout) -> *mut u8
    where
        F: GlobalAlloc,
    {
        if order_for(layout).is_none() || !self.is_of_yard(start) {
            return start;
        }
        // SAFETY: the fallback allocated it for this layout, and nothing uses it yet
        // (`yard_pages_are_never_freed_to_the_fallback`).
        unsafe { self.fallback.dealloc(start, layout) };
        ptr::null_mut()
    }

    /// Returns the yard and the order of a block that came from it.
    #[inline]
    fn origin(&self, start: *mut u8, layout: Layout) -> Option<(&'static HostYard<P>, Order)> {
        let _ends = allocating();
        let yard = *self.yard.get()?;
        if yard.holds(start) { Some((yard, order_for(layout)?)) } else { None }
    }
}

/// Aborts the process if a panic unwinds past it.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // The panic hook has already reported the panic.
        std::process::abort()
    }
}

/// Calls code that must not unwind: callers of an allocator are compiled on the assumption that it
/// never does. Panics of embedders' callbacks do not reach this point (`callback.rs`); those from
/// defects would.
#[inline(always)]
fn no_unwind<T>(call: impl FnOnce() -> T) -> T {
    let bomb = Bomb;
    let answer = call();
    std::mem::forget(bomb);
    answer
}

// SAFETY: a block of the yard is at least as large as the layout. It is aligned to its own size,
// which is at least the alignment, and belongs to the caller alone until it is freed
// (`the_smallest_sufficient_block_is_chosen`, `a_program_runs_on_the_global_allocator`). An address
// inside the yard's memory with a layout of a block came from the yard with that order
// (`told_apart`, `yard_pages_are_never_freed_to_the_fallback`). Any other address is the
// fallback's, which keeps the contract itself. No method unwinds
// (`a_panic_does_not_unwind_out_of_an_allocation`).
unsafe impl<F: GlobalAlloc, P: Policy + Send + Sync + 'static> GlobalAlloc for PageAlloc<F, P> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout, GFP) {
            Some(start) => start.as_ptr(),
            // SAFETY: as the caller guarantees.
            None => unsafe { self.told_apart(self.fallback.alloc(layout), layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.take(layout, GFP | Gfp::ZERO) {
            Some(start) => start.as_ptr(),
            // SAFETY: as the caller guarantees.
            None => unsafe { self.told_apart(self.fallback.alloc_zeroed(layout), layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match (self.origin(start, layout), NonNull::new(start)) {
            // SAFETY: the block is the yard's, of this order, and by the caller's guarantee no
            // longer used (`a_program_runs_on_the_global_allocator`, tests/nested.rs).
            (Some((yard, order)), Some(start)) => no_unwind(|| unsafe {
                yard.free_ptr(start, order, GFP);
            }),
            // SAFETY: as the caller guarantees.
            _ => unsafe { self.fallback.dealloc(start, layout) },
        }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        let old = self.origin(start, layout).map(|(_, order)| order);
        if old.is_some() && old == order_for(wanted) {
            return start;
        }
        if old.is_none() && order_for(wanted).is_none() {
            // SAFETY: as the caller guarantees; the block stays in the fallback.
            return unsafe { self.fallback.realloc(start, layout, size) };
        }
        // SAFETY: the blocks do not overlap, and both are at least as large as the copy. The old
        // one is freed with its own layout (`a_program_runs_on_the_global_allocator`, whose vectors
        // grow and shrink).
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                ptr::copy_nonoverlapping(start, new, layout.size().min(size));
                self.dealloc(start, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_unwind_out_of_an_allocation() {
        assert_eq!(no_unwind(|| 7), 7);
        let test = "global::tests::a_panic_does_not_unwind_out_of_an_allocation";
        crate::aborts::aborts(test, "planted", || no_unwind(|| panic!("planted")));
    }

    #[test]
    fn the_smallest_sufficient_block_is_chosen() {
        let order =
            |size, align| order_for(Layout::from_size_align(size, align).unwrap()).map(Order::get);
        assert_eq!(order(4095, 8), None);
        assert_eq!(order(4096, 8), Some(0));
        assert_eq!(order(4097, 8), Some(1));
        assert_eq!(order(4096, 1 << 20), Some(8));
        assert_eq!(order(4 << 20, 8), Some(10));
        assert_eq!(order((4 << 20) + 1, 8), None);
        assert_eq!(order(100, 1 << 20), None);
    }
}
