//! Requests by frame number.

use core::mem::offset_of;
use core::ops::Range;

use pageyard::{Config, ContigCursor, Defences, Gfp, NodeChoice, NodeId, Order, Pfn, Yard};

use crate::flags;
#[cfg(feature = "packed")]
use crate::handle::PackedYard;
use crate::handle::{CoreYard, HookedYard, PlainYard, of, on_yard, pageyard_core};
use crate::layout::{entries_mut, pageyard_range, range};
use crate::sized::answer;
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_NODE, PAGEYARD_ERR_RANGE,
    PAGEYARD_OK, of_alloc, of_contig, of_free, of_scatter, pageyard_status, status,
};

/// Allocates a block of 2^order pages, aligned to its size, and stores its first frame in `pfn`.
/// The block keeps its old contents unless PAGEYARD_ZERO is set and there is a `zero` hook.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a
/// null `pfn`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
///
/// Threads: any. Interrupt handlers may call it without PAGEYARD_DIRECT_RECLAIM if the lock
/// functions disable interrupts. Owner: the caller owns the block until pageyard_core_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc(
    yard: *const pageyard_core,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    match unsafe { of(yard) } {
        // SAFETY: as above.
        Ok(CoreYard::Plain(yard)) => unsafe { allocate_here(yard, order, flags, pfn) },
        // SAFETY: as above.
        Ok(CoreYard::Hooked(yard)) => unsafe { allocate_apart(yard, order, flags, pfn) },
        #[cfg(feature = "packed")]
        // SAFETY: as above.
        Ok(CoreYard::Packed(yard)) => unsafe { allocate_on_packed(yard, order, flags, pfn) },
        Err(status) => status,
    }
}

/// As by [`on_yard`], but only here the fast path is inlined.
///
/// # Safety
/// `pfn` must be null or writable.
#[inline(never)]
unsafe fn allocate_here(
    yard: &PlainYard,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    let ready = |order, gfp| yard.alloc_ready(NodeChoice::LOCAL, order, gfp);
    // SAFETY: guaranteed by the caller.
    unsafe { allocate(yard, None, (order, flags), ready, pfn) }
}

/// As [`allocate_here`].
///
/// # Safety
/// `pfn` must be null or writable.
#[cfg(feature = "packed")]
#[inline(never)]
unsafe fn allocate_on_packed(
    yard: &PackedYard,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    let ready = |order, gfp| yard.alloc_ready(NodeChoice::LOCAL, order, gfp);
    // SAFETY: guaranteed by the caller.
    unsafe { allocate(yard, None, (order, flags), ready, pfn) }
}

/// As [`allocate_here`].
///
/// # Safety
/// `pfn` must be null or writable.
#[inline(never)]
pub(crate) unsafe fn allocate_apart(
    yard: &HookedYard,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    /// Not inlined, like [`ready_on`].
    #[inline(never)]
    fn ready(yard: &HookedYard, order: Order, gfp: Gfp) -> Option<Pfn> {
        yard.alloc_ready(NodeChoice::LOCAL, order, gfp)
    }
    // SAFETY: guaranteed by the caller.
    unsafe { allocate(yard, None, (order, flags), |order, gfp| ready(yard, order, gfp), pfn) }
}

/// Allocates a block, preferably from `node`, and stores its first frame in `pfn`. `ready` is the fast
/// path.
///
/// # Safety
/// `pfn` must be null or writable.
#[inline(always)]
unsafe fn allocate<C: Config>(
    yard: &Yard<'_, C>,
    node: Option<NodeId>,
    (order, flags): (u32, u32),
    ready: impl FnOnce(Order, Gfp) -> Option<Pfn>,
    pfn: *mut u64,
) -> pageyard_status {
    let Ok(order) = flags::order(order) else { return PAGEYARD_ERR_ARGUMENT };
    if pfn.is_null() {
        return PAGEYARD_ERR_ARGUMENT;
    }
    let gfp = flags::gfp(flags);
    if yard.hooks().fail(order, gfp) {
        return PAGEYARD_ERR_NO_MEMORY;
    }
    match ready(order, gfp) {
        // SAFETY: guaranteed by the caller.
        Some(block) => status(unsafe { answer(pfn, block.0) }),
        // SAFETY: guaranteed by the caller.
        None => unsafe { allocate_slowly(yard, node, order, gfp, pfn) },
    }
}

/// Fast path of a request with a preferred node. Not inlined: otherwise the compiler keeps the
/// arguments of callees in the caller's frame, which deepens the stack.
#[inline(never)]
fn ready_on<C: Config>(yard: &Yard<'_, C>, node: NodeId, order: Order, gfp: Gfp) -> Option<Pfn> {
    yard.alloc_ready(node.into(), order, gfp)
}

/// Slow path. It is the last call of its caller, so the compiler turns it into a tail call that
/// reuses the fast path's stack frame.
///
/// # Safety
/// `pfn` must be writable.
#[cold]
#[inline(never)]
unsafe fn allocate_slowly<C: Config>(
    yard: &Yard<'_, C>,
    node: Option<NodeId>,
    order: Order,
    gfp: Gfp,
    pfn: *mut u64,
) -> pageyard_status {
    let nodes = node.map_or(NodeChoice::LOCAL, NodeChoice::from);
    match yard.alloc_rest(nodes, order, gfp) {
        // SAFETY: guaranteed by the caller.
        Ok(block) => status(unsafe { answer(pfn, block.0) }),
        Err(e) => of_alloc(e),
    }
}

/// Like pageyard_core_alloc, but prefers a node. With PAGEYARD_THISNODE, only that node is used.
///
/// Errors: as pageyard_core_alloc; PAGEYARD_ERR_NODE.
///
/// Threads, owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_on(
    yard: *const pageyard_core,
    node: u32,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard, node: u32, order: u32, flags: u32, pfn: *mut u64| {
        let node = match self::node(node) {
            Ok(node) => node,
            Err(status) => return status,
        };
        let ready = |order, gfp| ready_on(yard, node, order, gfp);
        // SAFETY: as above.
        unsafe { allocate(yard, Some(node), (order, flags), ready, pfn) }
    })
}

/// Converts a node number from C.
pub fn node(node: u32) -> Result<NodeId, pageyard_status> {
    u16::try_from(node).map(NodeId).map_err(|_| PAGEYARD_ERR_NODE)
}

/// Frees a block. `order` must be the order at which it was allocated.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_CPU. For an invalid block:
/// PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_RESERVED, PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED,
/// PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
///
/// Threads: as pageyard_core_alloc. If several threads free the same block at once, only one call
/// returns PAGEYARD_OK. Owner: the library owns the block again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, pfn: u64, order: u32| {
        match flags::order(order) {
            Ok(order) => free(yard, Pfn(pfn), order),
            Err(status) => status,
        }
    })
}

/// Frees a block. The rest after the fast path is the last call of its caller, like [`allocate_slowly`].
#[inline(always)]
pub(crate) fn free<C: Config>(yard: &Yard<'_, C>, block: Pfn, order: Order) -> pageyard_status {
    #[cold]
    #[inline(never)]
    fn rest<C: Config>(yard: &Yard<'_, C>, block: Pfn, order: Order) -> pageyard_status {
        status(yard.free(block, order).map_err(of_free))
    }
    match yard.free_ready(block, order) {
        Some(()) => PAGEYARD_OK,
        None => rest(yard, block, order),
    }
}

/// Allocates up to `count` single pages in one call, on the exact engine cheaper than one call per page.
/// Stores the frames in `pfns` and their number in `got`. Allocating fewer pages than requested, or
/// none, is not an error.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
///
/// Threads, owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_bulk(
    yard: *const pageyard_core,
    flags: u32,
    pfns: *mut u64,
    count: usize,
    got: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, `count` writable entries and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   flags: u32,
                                   pfns: *mut u64,
                                   count: usize,
                                   got: *mut usize| {
        // SAFETY: as above, here and below.
        match unsafe { bulk_ready(yard, flags, pfns, count, got) } {
            Some(status) => status,
            // SAFETY: see above.
            None => unsafe { bulk_one(yard, flags, pfns, got) },
        }
    })
}

/// Allocates the pages that the fast path can supply. Returns `None` if there are none; the caller
/// then tries a single page with [`bulk_one`].
///
/// # Safety
/// As for [`pageyard_core_alloc_bulk`].
#[inline(never)]
unsafe fn bulk_ready<C: Config>(
    yard: &Yard<'_, C>,
    flags: u32,
    pfns: *mut u64,
    count: usize,
    got: *mut usize,
) -> Option<pageyard_status> {
    if got.is_null() || pfns.is_null() && count > 0 {
        return Some(PAGEYARD_ERR_ARGUMENT);
    }
    let mut n = 0;
    let mut each = |pfn: Pfn| {
        // SAFETY: guaranteed by the caller; `each` is called at most `count` times.
        unsafe { pfns.add(n).write_unaligned(pfn.0) };
        n += 1;
    };
    match yard.alloc_bulk_ready(NodeChoice::LOCAL, count, flags::gfp(flags), &mut each) {
        // SAFETY: as above.
        Ok(Some(n)) => Some(status(unsafe { answer(got, n) })),
        Ok(None) => None,
        Err(e) => Some(of_alloc(e)),
    }
}

/// Allocates one page through the slow path. The last call of its caller, like [`allocate_slowly`].
///
/// # Safety
/// As for [`pageyard_core_alloc_bulk`]. `count` must not be 0.
#[cold]
#[inline(never)]
unsafe fn bulk_one<C: Config>(
    yard: &Yard<'_, C>,
    flags: u32,
    pfns: *mut u64,
    got: *mut usize,
) -> pageyard_status {
    let block = yard.alloc_rest(NodeChoice::LOCAL, Order::ZERO, flags::gfp(flags)).ok();
    if let Some(block) = block {
        // SAFETY: guaranteed by the caller.
        unsafe { pfns.write_unaligned(block.0) };
    }
    // SAFETY: as above.
    status(unsafe { answer(got, usize::from(block.is_some())) })
}

/// Allocates up to `count` single pages, passing each with its index to `put`. Returns the number
/// of pages allocated.
pub fn alloc_bulk<C: Config>(
    yard: &Yard<'_, C>,
    gfp: Gfp,
    count: usize,
    put: impl Fn(usize, Pfn),
) -> Result<usize, pageyard_status> {
    let mut n = 0;
    let each = |pfn| {
        put(n, pfn);
        n += 1;
    };
    yard.alloc_bulk_each(count, gfp, each).map_err(of_alloc)?;
    Ok(n)
}

/// Frees `count` blocks of one order, which is cheaper than one call per block. Stops at the first
/// invalid block. If `done` is not null, it receives the number of blocks freed; after an error
/// that is the index of the invalid block. That block and all later ones are unchanged. PAGEYARD_ERR_HANDLE
/// and PAGEYARD_ERR_ARGUMENT leave `done` unwritten: nothing is freed then.
///
/// Errors: as pageyard_core_free.
///
/// Threads, owner: as pageyard_core_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free_bulk(
    yard: *const pageyard_core,
    pfns: *const u64,
    count: usize,
    order: u32,
    done: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, `count` frames and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   pfns: *const u64,
                                   count: usize,
                                   order: u32,
                                   done: *mut usize| {
        let order = flags::order(order)?;
        if pfns.is_null() && count > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: as above; `get` is called only with indices below `count`.
        let get = |i: usize| Ok(Pfn(unsafe { pfns.add(i).read_unaligned() }));
        let (n, freed) = free_bulk(yard, order, count, get);
        if !done.is_null() {
            // SAFETY: as above.
            unsafe { answer(done, n) }?;
        }
        freed
    })
}

/// Frees the blocks that `get` returns by index, up to the first invalid one. Returns the number of
/// blocks freed, and the error of the invalid block.
pub fn free_bulk<C: Config>(
    yard: &Yard<'_, C>,
    order: Order,
    count: usize,
    get: impl Fn(usize) -> Result<Pfn, pageyard_status>,
) -> (usize, Result<(), pageyard_status>) {
    /// Limited by the stack: half of what the core prepares at once.
    const GROUP: usize = 15;
    let mut done = 0;
    while done < count {
        let mut group = [Pfn(0); GROUP];
        let wanted = GROUP.min(count - done);
        let (mut ready, mut fault) = (0, Ok(()));
        for (i, place) in group.iter_mut().enumerate().take(wanted) {
            match get(done + i) {
                Ok(pfn) => *place = pfn,
                Err(status) => {
                    fault = Err(status);
                    break;
                }
            }
            ready += 1;
        }
        let blocks = group.get(..ready).unwrap_or(&[]);
        match yard.free_batch_of(order, blocks) {
            Ok(()) => done += ready,
            Err(e) => {
                // The blocks before it are valid.
                let before = blocks.get(..e.index).unwrap_or(&[]);
                let freed =
                    yard.free_batch_of(order, before).map_or_else(|e| e.index, |()| before.len());
                return (done + freed, Err(of_free(e.error)));
            }
        }
        if fault.is_err() {
            return (done, fault);
        }
    }
    (done, Ok(()))
}

/// Splits an allocated block into blocks of the smaller order `into`. Each is freed separately.
///
/// Errors: as pageyard_core_free; PAGEYARD_ERR_WRONG_ORDER if `into` is larger than `order`.
///
/// Threads: the block's owner. Owner: the caller owns the parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_split(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
    into: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, pfn: u64, order: u32, into: u32| {
        let (order, into) = (flags::order(order)?, flags::order(into)?);
        yard.split(Pfn(pfn), order, into).map_err(of_free)
    })
}

/// Sets whether an allocated block is movable (`movable` is 0 or 1). The library may pass a movable
/// block to the `relocate` hook.
///
/// Errors: as pageyard_core_free.
///
/// Threads: the block's owner. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_set_movable(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
    movable: i32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, pfn: u64, order: u32, movable: i32| {
        yard.set_movable(Pfn(pfn), flags::order(order)?, movable != 0).map_err(of_free)
    })
}

/// Allocates exactly the frames from `start` up to, but not including, `end`. They become single
/// pages of the type `page_type` (a PAGEYARD_TYPE number) or, with PAGEYARD_COMP, one block.
/// Movable blocks in the range are migrated through the `relocate` hook.
///
/// With PAGEYARD_COMP, the range must be exactly one block: 2^order pages, aligned to their size, at most
/// the largest order, and not part of a larger free block once it is vacated. The packed engine does not
/// require the last. On the exact engine a range below 2 MiB whose neighbours are free is therefore
/// PAGEYARD_ERR_RANGE; pageyard_core_alloc serves such an order.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY,
/// PAGEYARD_ERR_NO_MEMORY. Nothing is allocated then, but blocks may have been migrated.
///
/// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_contig(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
    page_type: u32,
    flags: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, start: u64, end: u64, page_type: u32, flags: u32| {
        let t = flags::migrate_type(page_type)?;
        yard.alloc_contig(Pfn(start)..Pfn(end), t, flags::gfp(flags)).map_err(of_contig)
    })
}

/// Allocates `pages` contiguous single pages from anywhere in the yard; they may exceed the largest
/// block. The first frame is a multiple of `align`, a power of two, and is stored in `pfn`.
/// Otherwise like pageyard_core_alloc_contig.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE if `pages` is 0 or
/// `align` is not a power of two; PAGEYARD_ERR_NO_MEMORY. Nothing is allocated then, but blocks may
/// have been migrated.
///
/// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_contig_pages(
    yard: *const pageyard_core,
    pages: u64,
    align: u64,
    page_type: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   pages: u64,
                                   align: u64,
                                   page_type: u32,
                                   flags: u32,
                                   pfn: *mut u64| {
        let t = flags::migrate_type(page_type)?;
        if pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let everywhere = Pfn(0)..Pfn(u64::MAX);
        let first = yard
            .alloc_contig_pages(pages, align, everywhere, t, flags::gfp(flags))
            .map_err(of_contig)?;
        // SAFETY: as above.
        unsafe { answer(pfn, first.0) }
    })
}

/// Where searches of pageyard_core_alloc_contig_pages_from continue. Set it to zero; then the fields are
/// the library's. Keep one for each range in which you search, such as a zone. Any number of threads
/// may share it.
#[repr(C)]
#[derive(Debug)]
pub struct pageyard_cursor {
    /// The frame at which the next search begins: a hint.
    pub next: u64,
    /// Pageblocks that searches with this cursor have looked at.
    pub looks: u64,
}

// A caller's cursor is used where it lies. The core documents the order of the two words.
const _: () = assert!(size_of::<pageyard_cursor>() == size_of::<ContigCursor>());

/// Like pageyard_core_alloc_contig_pages, but searches only `within` (null: the whole yard), and begins
/// behind the range that the last call with this cursor found. What lies before it is searched only if
/// there is no place behind. For embedders that allocate such ranges often.
///
/// Errors: as pageyard_core_alloc_contig_pages.
///
/// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig. The
/// cursor stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_contig_pages_from(
    yard: *const pageyard_core,
    cursor: *mut pageyard_cursor,
    pages: u64,
    align: u64,
    within: *const pageyard_range,
    page_type: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    let (size, kind) = ((pages, align), (page_type, flags));
    // SAFETY: the header requires a valid handle, cursor and range, and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   cursor: *mut pageyard_cursor,
                                   size: (u64, u64),
                                   within: *const pageyard_range,
                                   kind: (u32, u32),
                                   pfn: *mut u64| {
        let t = flags::migrate_type(kind.0)?;
        let cursor = cursor.cast::<ContigCursor>();
        if cursor.is_null() || !cursor.is_aligned() || pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: two words of the same size, as asserted above, and aligned, which may hold any
        // bits. The caller does not write them meanwhile, and other threads use them as atomics.
        let cursor = unsafe { &*cursor };
        let within = match within.is_null() {
            true => Pfn(0)..Pfn(u64::MAX),
            // SAFETY: as above, of a caller's range.
            false => range(&unsafe { within.read_unaligned() }),
        };
        let first = yard
            .alloc_contig_pages_from(cursor, size.0, size.1, within, t, flags::gfp(kind.1))
            .map_err(of_contig)?;
        // SAFETY: as above.
        unsafe { answer(pfn, first.0) }
    })
}

// The core writes ranges to the caller's array.
const _: () = assert!(
    size_of::<pageyard_range>() == size_of::<Range<Pfn>>()
        && align_of::<pageyard_range>() == align_of::<Range<Pfn>>()
        && size_of::<Pfn>() == size_of::<u64>()
        && offset_of!(pageyard_range, start) == offset_of!(Range<Pfn>, start)
        && offset_of!(pageyard_range, end) == offset_of!(Range<Pfn>, end)
);

/// Allocates `pages` single pages in as few contiguous ranges as possible: as one range, else as blocks
/// that are as large as possible, down to single frames. Stores the ranges in `ranges`, which has
/// `count` entries, and their number in `got`. Larger blocks are taken only if they are free; requests
/// for single pages reclaim, compact or fail. One range of more than the largest block is migrated
/// together if PAGEYARD_DIRECT_RECLAIM is set. PAGEYARD_COMP is ignored.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FULL if the memory found lies in
/// more than `count` ranges; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU. Nothing is
/// allocated then, and the contents of `ranges` are unspecified.
///
/// Threads: as pageyard_core_alloc. Owner: the caller owns the pages. Each range is freed by
/// pageyard_core_free_contig, or each page by pageyard_core_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_range_or_scatter(
    yard: *const pageyard_core,
    pages: u64,
    flags: u32,
    ranges: *mut pageyard_range,
    count: usize,
    got: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, `count` writable entries and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   pages: u64,
                                   flags: u32,
                                   ranges: *mut pageyard_range,
                                   count: usize,
                                   got: *mut usize| {
        if got.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // No more ranges than pages.
        let count = count.min(usize::try_from(pages).unwrap_or(usize::MAX));
        // SAFETY: the caller guarantees `count` entries, whose layout is asserted above. Any bits are
        // valid, and the core reads only entries that it has written.
        let ranges = unsafe { entries_mut(ranges.cast::<Range<Pfn>>(), count) }?;
        let n =
            yard.alloc_range_or_scatter(pages, flags::gfp(flags), ranges).map_err(of_scatter)?;
        // SAFETY: as above.
        unsafe { answer(got, n) }
    })
}

/// Frees the frames from `start` up to, but not including, `end`. They must all be single pages, or
/// form exactly one block. An empty range is no error.
///
/// Errors: as pageyard_core_free, for the first invalid frame; PAGEYARD_ERR_RANGE if the range ends before
/// it begins.
///
/// Threads: any, but not interrupt handlers. Owner: the library owns the frames again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free_contig(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, start: u64, end: u64| {
        if end < start {
            return Err(PAGEYARD_ERR_RANGE);
        }
        yard.free_contig(Pfn(start)..Pfn(end)).map_err(|e| of_free(e.error))
    })
}
