//! A yard as the program's allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use pageyard::policy::{Linux612, Policy};
use pageyard::{Gfp, MAX_ORDER, Order, PAGE_SIZE};

use crate::held::allocating;
use crate::yard::HostYard;

/// What an allocator asks for: it can live without, so nobody waits for long.
const GFP: Gfp = Gfp::KERNEL.union(Gfp::NOWARN).union(Gfp::NORETRY);

/// The smallest block for a layout of a page or more; `None` for less, and for more than the
/// largest block.
#[inline]
pub(crate) fn order_for(layout: Layout) -> Option<Order> {
    let page = PAGE_SIZE as usize;
    let bytes = layout.size().max(layout.align());
    if layout.size() < page || bytes > page << MAX_ORDER {
        return None;
    }
    Order::new(bytes.div_ceil(page).next_power_of_two().trailing_zeros() as u8)
}

/// An allocator of pages and more, up to 4 MiB, from a yard, and of all else from `F`: for
/// `#[global_allocator]`.
///
/// A size is rounded up to a power of two of pages. Until a yard is [installed](PageAlloc::install),
/// while it has no memory, and in a child after a fork, everything is `F`'s.
///
/// What the fallback serves for a page or more must not lie in the yard's memory, as a given address
/// there is taken for a block of the yard's: such memory is given back to `F`, and the request fails.
/// This is seen once the yard is installed, so `F` must not have handed out any of it before.
///
/// It allocates nothing for a request of its own. What the yard needs when a thread first uses it
/// (a list and the thread's part of the front cache, some KiB) it asks of the program's allocator,
/// this one: small parts come from `F`, large ones from the yard past the front cache, without a
/// lock that is held.
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
pub struct PageAlloc<F, P: Policy + 'static = Linux612> {
    yard: OnceLock<&'static HostYard<P>>,
    fallback: F,
}

impl<F, P: Policy> fmt::Debug for PageAlloc<F, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageAlloc").field("yard", &self.yard.get()).finish_non_exhaustive()
    }
}

impl<F, P: Policy + 'static> PageAlloc<F, P> {
    /// With what small requests, and all before there is a yard, are served from.
    pub const fn new(fallback: F) -> Self {
        PageAlloc { yard: OnceLock::new(), fallback }
    }

    /// From now on, pages come from this yard, for good.
    ///
    /// # Errors
    /// The yard, where there is one already.
    pub fn install(&self, yard: &'static HostYard<P>) -> Result<(), &'static HostYard<P>> {
        self.yard.set(yard)
    }

    /// Whether an address is of the yard's memory.
    pub fn is_of_yard(&self, address: *const u8) -> bool {
        self.yard.get().is_some_and(|yard| yard.holds(address))
    }

    #[inline]
    fn take(&self, layout: Layout, gfp: Gfp) -> Option<NonNull<u8>> {
        let _ends = allocating();
        let order = order_for(layout)?;
        let yard = self.yard.get()?;
        no_unwind(|| yard.take(order, gfp))
    }

    /// Memory of the fallback's for this layout, unless it would be taken for the yard's when it comes
    /// back: then null, and the fallback has it again.
    ///
    /// # Safety
    /// The fallback has just handed it out for the layout, or it is null.
    unsafe fn told_apart(&self, start: *mut u8, layout: Layout) -> *mut u8
    where
        F: GlobalAlloc,
    {
        if order_for(layout).is_none() || !self.is_of_yard(start) {
            return start;
        }
        // SAFETY: it is the fallback's, of this layout, and used by no one yet
        // (`pages_of_the_yard_are_not_taken_from_the_fallback`).
        unsafe { self.fallback.dealloc(start, layout) };
        ptr::null_mut()
    }

    /// The yard and the order of a block that came from it.
    #[inline]
    fn origin(&self, start: *mut u8, layout: Layout) -> Option<(&'static HostYard<P>, Order)> {
        let _ends = allocating();
        let yard = *self.yard.get()?;
        if yard.holds(start) { Some((yard, order_for(layout)?)) } else { None }
    }
}

/// Ends the process where a panic would go on from here.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // The panic hook has said why.
        std::process::abort()
    }
}

/// Calls what must not unwind: callers of an allocator are compiled as if nothing did. What embedders
/// registered with the yard does not get here with a panic (`callback.rs`); a defect would.
#[inline(always)]
fn no_unwind<T>(call: impl FnOnce() -> T) -> T {
    let bomb = Bomb;
    let answer = call();
    std::mem::forget(bomb);
    answer
}

// SAFETY: a block of the yard is as large as the layout and aligned to its own size, which is no
// less than the alignment; it is the caller's alone until it comes back
// (`the_smallest_block_that_is_large_and_aligned_enough`, `a_program_runs_on_it`). An address inside
// the yard's memory whose layout is a block's came from the yard, with that order (`told_apart`,
// `pages_of_the_yard_are_not_taken_from_the_fallback`); any other is the fallback's, which keeps the
// contract itself. No method unwinds (`a_panic_does_not_leave_an_allocation`).
unsafe impl<F: GlobalAlloc, P: Policy + Send + Sync + 'static> GlobalAlloc for PageAlloc<F, P> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.take(layout, GFP) {
            Some(start) => start.as_ptr(),
            // SAFETY: the caller's word.
            None => unsafe { self.told_apart(self.fallback.alloc(layout), layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.take(layout, GFP | Gfp::ZERO) {
            Some(start) => start.as_ptr(),
            // SAFETY: the caller's word.
            None => unsafe { self.told_apart(self.fallback.alloc_zeroed(layout), layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        match (self.origin(start, layout), NonNull::new(start)) {
            // SAFETY: it is the yard's, of this order, and unused from now on, by the caller's word
            // (`a_program_runs_on_it`, tests/nested.rs).
            (Some((yard, order)), Some(start)) => no_unwind(|| unsafe {
                yard.give(start, order, GFP);
            }),
            // SAFETY: the caller's word.
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
            // SAFETY: the caller's word; it is the fallback's and stays there.
            return unsafe { self.fallback.realloc(start, layout, size) };
        }
        // SAFETY: the new block is another one, both are as large as is copied, and the old one is
        // given back with its own layout (`a_program_runs_on_it`, whose vectors grow and shrink).
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
    fn a_panic_does_not_leave_an_allocation() {
        assert_eq!(no_unwind(|| 7), 7);
        let test = "global::tests::a_panic_does_not_leave_an_allocation";
        crate::aborts::aborts(test, "planted", || no_unwind(|| panic!("planted")));
    }

    #[test]
    fn the_smallest_block_that_is_large_and_aligned_enough() {
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
