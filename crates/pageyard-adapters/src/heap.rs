//! A heap for kernels: `talc` on pages of a yard.

use core::alloc::{GlobalAlloc, Layout};
use core::fmt;
use core::ptr;

use lock_api::RawMutex;
use pageyard::{Config, Gfp, Order, PAGE_SIZE, Pfn, Yard};
use talc::TalcLock;
use talc::source::GlobalAllocSource;

/// Bytes that the heap takes from the yard at once for small requests.
const CHUNK: usize = 16 * PAGE_SIZE as usize;
/// Requests of more bytes get whole pages.
const LARGEST: usize = CHUNK / 4;

/// Memory in blocks of pages, by address.
///
/// # Safety
/// [`alloc`](Self::alloc) returns null, or 2^order pages, aligned to their size, that nothing else uses
/// until [`free`](Self::free).
pub unsafe trait Pages: fmt::Debug + Send + Sync {
    /// Allocates a block, or returns null.
    fn alloc(&self, order: Order) -> *mut u8;

    /// Frees a block.
    ///
    /// # Safety
    /// The block must have been allocated with this order, and must not be used any more.
    unsafe fn free(&self, block: *mut u8, order: Order);
}

/// Pages of a yard in a direct map.
///
/// ```
/// use pageyard::{Bare, Yard};
/// use pageyard_adapters::{DirectMapped, KernelHeap};
/// type Lock = spin::mutex::SpinMutex<()>;
/// type Kernel = Yard<'static, Bare<Lock, ()>>;
///
/// static YARD: spin::Once<Kernel> = spin::Once::new();
/// // In a kernel: #[global_allocator]
/// static HEAP: KernelHeap<Lock, DirectMapped<Bare<Lock, ()>>> =
///     // SAFETY: all of the yard's memory is mapped there.
///     KernelHeap::new(unsafe { DirectMapped::new(|| YARD.get(), 0xffff_8880_0000_0000) });
/// # // Before the yard exists, requests fail.
/// # use core::alloc::{GlobalAlloc, Layout};
/// # // SAFETY: the layout has a size.
/// # assert!(unsafe { HEAP.alloc(Layout::new::<u64>()) }.is_null());
/// ```
pub struct DirectMapped<C: Config + 'static> {
    yard: fn() -> Option<&'static Yard<'static, C>>,
    direct_map: usize,
}

impl<C: Config> DirectMapped<C> {
    /// Takes pages from a yard, once there is one. `direct_map` is the virtual address of physical
    /// address 0. A block at virtual address 0 serves no request.
    ///
    /// # Safety
    /// All memory of the yard is mapped from `direct_map` on, readable and writable, and nothing but its
    /// owners accesses allocated blocks. `direct_map` is a multiple of 4 MiB, so that blocks are aligned. `yard` always returns the same yard, once it returns one. The
    /// yard's hooks do not use the heap.
    pub const unsafe fn new(
        yard: fn() -> Option<&'static Yard<'static, C>>,
        direct_map: usize,
    ) -> Self {
        DirectMapped { yard, direct_map }
    }
}

impl<C: Config> fmt::Debug for DirectMapped<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectMapped").field("direct_map", &self.direct_map).finish()
    }
}

// SAFETY: a yard hands out a block once until it is freed, aligned to its size, and the memory is mapped
// (`DirectMapped::new`; `threads_own_what_they_allocate` finds two owners of a byte).
unsafe impl<C: Config> Pages for DirectMapped<C> {
    fn alloc(&self, order: Order) -> *mut u8 {
        let gfp = (Gfp::KERNEL - Gfp::DIRECT_RECLAIM) | Gfp::NOWARN;
        let Some(yard) = (self.yard)() else { return ptr::null_mut() };
        let address = |pfn: Pfn| {
            ptr::with_exposed_provenance_mut(self.direct_map.wrapping_add(pfn.address() as usize))
        };
        let Ok(pfn) = yard.alloc(order, gfp) else { return ptr::null_mut() };
        let block: *mut u8 = address(pfn);
        if !block.is_null() {
            return block;
        }
        // Freed only after the request for another one, which would get it again.
        let other = yard.alloc(order, gfp);
        _ = yard.free(pfn, order);
        other.map_or(ptr::null_mut(), address)
    }

    unsafe fn free(&self, block: *mut u8, order: Order) {
        let physical = block.expose_provenance().wrapping_sub(self.direct_map);
        if let Some(yard) = (self.yard)() {
            // An error means a block that is not the caller's: it stays as it is.
            _ = yard.free(Pfn::containing(physical as u64), order);
        }
    }
}

/// A `GlobalAlloc` that serves every request with a block of whole pages, up to 4 MiB.
///
/// ```
/// use core::alloc::{GlobalAlloc, Layout};
/// use pageyard::{Bare, Yard};
/// use pageyard_adapters::{DirectMapped, PageAlloc};
///
/// type Pages = DirectMapped<Bare<spin::mutex::SpinMutex<()>, ()>>;
/// // SAFETY: there is no yard, and so no memory.
/// let pages: PageAlloc<Pages> = PageAlloc::new(unsafe { DirectMapped::new(|| None, 0) });
/// // SAFETY: the layout has a size.
/// assert!(unsafe { pages.alloc(Layout::new::<[u8; 8192]>()) }.is_null());
/// ```
#[derive(Debug)]
pub struct PageAlloc<P>(P);

impl<P: Pages> PageAlloc<P> {
    /// Wraps a source of pages.
    pub const fn new(pages: P) -> Self {
        PageAlloc(pages)
    }
}

/// Returns the order of the block for a layout.
fn order(layout: Layout) -> Option<Order> {
    let bytes = layout.size().max(layout.align()).max(PAGE_SIZE as usize);
    let pages = bytes.checked_next_power_of_two()? / PAGE_SIZE as usize;
    Order::new(u8::try_from(pages.trailing_zeros()).ok()?)
}

// SAFETY: a block is at least as large, and aligned, as the layout says, and its owner's alone
// (`threads_own_what_they_allocate`).
unsafe impl<P: Pages> GlobalAlloc for PageAlloc<P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        order(layout).map_or(ptr::null_mut(), |order| self.0.alloc(order))
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(order) = order(layout) {
            // SAFETY: the caller passes the layout with which the block was allocated.
            unsafe { self.0.free(block, order) };
        }
    }
}

/// A heap on pages of a yard: frames and heap as one dependency. Requests up to 16 KiB come from `talc`
/// in chunks of 64 KiB, which go back to the yard when they are empty; larger ones, up to 4 MiB, are
/// blocks of the yard.
///
/// `R` is the kernel's lock. Where interrupt handlers allocate, it disables interrupts. Requests do not
/// reclaim: they fail when no page is free.
///
/// See [`DirectMapped`] for an example.
pub struct KernelHeap<R: RawMutex, P: Pages> {
    small: TalcLock<R, GlobalAllocSource<PageAlloc<P>>>,
    large: PageAlloc<P>,
}

impl<R: RawMutex, P: Pages + Copy> KernelHeap<R, P> {
    /// Creates an empty heap.
    pub const fn new(pages: P) -> Self {
        let source = GlobalAllocSource::with_block_size(PageAlloc::new(pages), CHUNK);
        KernelHeap { small: TalcLock::new(source), large: PageAlloc::new(pages) }
    }
}

impl<R: RawMutex, P: Pages> fmt::Debug for KernelHeap<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelHeap").field("pages", &self.large).finish()
    }
}

fn is_large(layout: Layout) -> bool {
    layout.size() > LARGEST || layout.align() > LARGEST
}

// SAFETY: both parts are allocators, and the layout decides which of them serves a request and takes it
// back (`threads_own_what_they_allocate`, `empty_chunks_return_to_the_yard`).
unsafe impl<R: RawMutex, P: Pages> GlobalAlloc for KernelHeap<R, P> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a layout with a size.
        unsafe {
            if is_large(layout) { self.large.alloc(layout) } else { self.small.alloc(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a block of this allocator with its layout.
        unsafe {
            if is_large(layout) {
                self.large.dealloc(block, layout);
            } else {
                self.small.dealloc(block, layout);
            }
        }
    }
}

impl<C: Config> Clone for DirectMapped<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C: Config> Copy for DirectMapped<C> {}
