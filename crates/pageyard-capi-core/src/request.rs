//! Requests by frame number.

use pageyard::{Config, Gfp, NodeChoice, NodeId, Order, Pfn, Yard};

use crate::flags;
use crate::handle::{CoreYard, of, pageyard_core};
use crate::sized::answer;
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_NODE, of_alloc, of_contig, of_free, pageyard_status, status,
};

/// Allocates a block of 2^order pages, aligned to its size; its first frame is put to `pfn`. Contents
/// are what they were, unless PAGEYARD_ZERO asks for zeros and there is a `zero` hook.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a null
/// `pfn`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
///
/// Threads: any; with lock functions that turn interrupts off, interrupt handlers too (flags without
/// PAGEYARD_DIRECT_RECLAIM). Owner: the block is the caller's until pageyard_core_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc(
    yard: *const pageyard_core,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    unsafe { allocate(yard, None, order, flags, pfn) }
}

/// A request, preferably of a node, whose answer goes to `pfn`.
///
/// # Safety
/// As [`of`]; and `pfn` is null or may be written.
#[inline(always)]
unsafe fn allocate(
    yard: *const pageyard_core,
    node: Option<u32>,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: by the caller's word; and so below.
    let yard = match unsafe { of(yard) } {
        Ok(yard) => yard,
        Err(status) => return status,
    };
    let node = match node.map(self::node).transpose() {
        Ok(node) => node,
        Err(status) => return status,
    };
    let Ok(order) = flags::order(order) else { return PAGEYARD_ERR_ARGUMENT };
    if pfn.is_null() {
        return PAGEYARD_ERR_ARGUMENT;
    }
    let gfp = flags::gfp(flags);
    let ready = match node {
        None => yard.alloc_ready(NodeChoice::LOCAL, order, gfp),
        Some(node) => ready_on(yard, node, order, gfp),
    };
    match ready {
        // SAFETY: see above.
        Some(block) => status(unsafe { answer(pfn, block.0) }),
        // SAFETY: see above.
        None => unsafe { allocate_slowly(yard, node, order, gfp, pfn) },
    }
}

/// The common case on a node. Out of line: the compiler would keep what it hands to functions in the
/// caller's frame, and that below the rest.
#[inline(never)]
fn ready_on(yard: &CoreYard, node: NodeId, order: Order, gfp: Gfp) -> Option<Pfn> {
    yard.alloc_ready(node.into(), order, gfp)
}

/// What is not the common case. Called last, with nothing to be done behind it: so the compiler has
/// it take the common case's place on the stack.
///
/// # Safety
/// `pfn` may be written.
#[cold]
#[inline(never)]
unsafe fn allocate_slowly(
    yard: &CoreYard,
    node: Option<NodeId>,
    order: Order,
    gfp: Gfp,
    pfn: *mut u64,
) -> pageyard_status {
    let nodes = node.map_or(NodeChoice::LOCAL, NodeChoice::from);
    match yard.alloc_rest(nodes, order, gfp) {
        // SAFETY: by the caller's word.
        Ok(block) => status(unsafe { answer(pfn, block.0) }),
        Err(e) => of_alloc(e),
    }
}

/// Allocates a block as pageyard_core_alloc does, preferably of a node; with PAGEYARD_THISNODE, of no
/// other.
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
    // SAFETY: the header asks for a handle and a place for the answer.
    unsafe { allocate(yard, Some(node), order, flags, pfn) }
}

/// A node from C.
pub fn node(node: u32) -> Result<NodeId, pageyard_status> {
    u16::try_from(node).map(NodeId).map_err(|_| PAGEYARD_ERR_NODE)
}

/// Gives a block back, of the order at which it was allocated.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_CPU; what is wrong with the block:
/// PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_RESERVED, PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED,
/// PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
///
/// Threads: as pageyard_core_alloc; of those that free the same block at once, one is told
/// PAGEYARD_OK. Owner: the block is the library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }
            .and_then(|yard| yard.free(Pfn(pfn), flags::order(order)?).map_err(of_free)),
    )
}

/// Allocates up to `count` single pages at once, cheaper than one by one; their frames are put to
/// `pfns`, how many there are to `got`: fewer than asked for, even none, is no error.
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
    // SAFETY: the header asks for a handle, so many places, and one for the answer.
    match unsafe { bulk_ready(yard, flags, pfns, count, got) } {
        Ok(status) => status,
        // SAFETY: as above.
        Err(yard) => unsafe { bulk_one(yard, flags, pfns, got) },
    }
}

/// The pages that can be had at once. `Err`: none, and one is to be tried by [`bulk_one`].
///
/// # Safety
/// As [`pageyard_core_alloc_bulk`].
#[inline(never)]
unsafe fn bulk_ready<'y>(
    yard: *const pageyard_core,
    flags: u32,
    pfns: *mut u64,
    count: usize,
    got: *mut usize,
) -> Result<pageyard_status, &'y CoreYard> {
    // SAFETY: by the caller's word; and so below.
    let yard = match unsafe { of(yard) } {
        Ok(yard) => yard,
        Err(status) => return Ok(status),
    };
    if got.is_null() || pfns.is_null() && count > 0 {
        return Ok(PAGEYARD_ERR_ARGUMENT);
    }
    let mut n = 0;
    let mut each = |pfn: Pfn| {
        // SAFETY: as above; no more than `count` are told.
        unsafe { pfns.add(n).write_unaligned(pfn.0) };
        n += 1;
    };
    match yard.alloc_bulk_ready(NodeChoice::LOCAL, count, flags::gfp(flags), &mut each) {
        // SAFETY: as above.
        Ok(Some(n)) => Ok(status(unsafe { answer(got, n) })),
        Ok(None) => Err(yard),
        Err(e) => Ok(of_alloc(e)),
    }
}

/// One page where none could be had at once. Called last, as [`allocate_slowly`] is.
///
/// # Safety
/// As [`pageyard_core_alloc_bulk`]; `count` is not 0.
#[cold]
#[inline(never)]
unsafe fn bulk_one(
    yard: &CoreYard,
    flags: u32,
    pfns: *mut u64,
    got: *mut usize,
) -> pageyard_status {
    let block = yard.alloc_rest(NodeChoice::LOCAL, Order::ZERO, flags::gfp(flags)).ok();
    if let Some(block) = block {
        // SAFETY: by the caller's word.
        unsafe { pfns.write_unaligned(block.0) };
    }
    // SAFETY: as above.
    status(unsafe { answer(got, usize::from(block.is_some())) })
}

/// Up to `count` single pages, each told with its number. How many.
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

/// Gives `count` blocks of one order back, cheaper than one by one. `done`, where it is not null, is
/// set to how many were given back: at an error, the block at that position is the one at fault, and
/// it and all after it are as they were.
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
    // SAFETY: the header asks for a handle, so many frames, and a place for the answer.
    status(unsafe { of(yard) }.and_then(|yard| {
        let order = flags::order(order)?;
        if pfns.is_null() && count > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: as above; no more than `count` are asked for.
        let get = |i: usize| Ok(Pfn(unsafe { pfns.add(i).read_unaligned() }));
        let (n, freed) = free_bulk(yard, order, count, get);
        if !done.is_null() {
            // SAFETY: as above.
            unsafe { answer(done, n) }?;
        }
        freed
    }))
}

/// Gives back blocks, asked for by number, as far as the first one at fault. How many, and what is
/// wrong with that one.
pub fn free_bulk<C: Config>(
    yard: &Yard<'_, C>,
    order: Order,
    count: usize,
    get: impl Fn(usize) -> Result<Pfn, pageyard_status>,
) -> (usize, Result<(), pageyard_status>) {
    /// As many as the stack has room for: half of what the core prepares at once.
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
                // Those before it are in order.
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

/// Turns an allocated block into blocks of the smaller order `into`, each to be freed on its own.
///
/// Errors: as pageyard_core_free; PAGEYARD_ERR_WRONG_ORDER where `into` is larger than `order`.
///
/// Threads: the block's owner. Owner: the parts are the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_split(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
    into: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.and_then(|yard| {
        let (order, into) = (flags::order(order)?, flags::order(into)?);
        yard.split(Pfn(pfn), order, into).map_err(of_free)
    }))
}

/// Says whether the owner of an allocated block can move it: whether the `relocate` hook may be asked
/// to. `movable` is 0 or 1.
///
/// Errors: as pageyard_core_free.
///
/// Threads: the block's owner. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_set_movable(
    yard: *const pageyard_core,
    pfn: u64,
    order: u32,
    movable: i32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.and_then(|yard| {
        yard.set_movable(Pfn(pfn), flags::order(order)?, movable != 0).map_err(of_free)
    }))
}

/// Allocates exactly the frames from `start` to one before `end`, as single pages of a type
/// (PAGEYARD_TYPE numbers) or, with PAGEYARD_COMP, as one block. What is in use there and movable is
/// moved away by the `relocate` hook.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY,
/// PAGEYARD_ERR_NO_MEMORY. Nothing is taken then, though blocks may have moved.
///
/// Threads: any that may sleep. Owner: the frames are the caller's until pageyard_core_free_contig.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_contig(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
    page_type: u32,
    flags: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.and_then(|yard| {
        let t = flags::migrate_type(page_type)?;
        yard.alloc_contig(Pfn(start)..Pfn(end), t, flags::gfp(flags)).map_err(of_contig)
    }))
}

/// Allocates `pages` single pages beside each other, more than a block may have where need be, wherever
/// they can be had; the first frame is a multiple of `align`, a power of two, and is put to `pfn`.
/// Otherwise as pageyard_core_alloc_contig.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE for no pages or an `align` that
/// is no power of two; PAGEYARD_ERR_NO_MEMORY. Nothing is taken then, though blocks may have moved.
///
/// Threads: any that may sleep. Owner: the frames are the caller's until pageyard_core_free_contig.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_contig_pages(
    yard: *const pageyard_core,
    pages: u64,
    align: u64,
    page_type: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|yard| {
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
    }))
}

/// Gives back the frames from `start` to one before `end`, all of them single pages, or the one block
/// that they are.
///
/// Errors: as pageyard_core_free, for the first frame at fault.
///
/// Threads: any. Owner: the frames are the library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_free_contig(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }
            .and_then(|yard| yard.free_contig(Pfn(start)..Pfn(end)).map_err(|e| of_free(e.error))),
    )
}
