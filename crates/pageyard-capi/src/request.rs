//! Requests by address.

use std::ffi::c_void;

use ::pageyard::policy::Policy;
use ::pageyard::{FreeError, Gfp, Order, PAGE_SIZE, Pfn};
use pageyard_capi_core::flags;
use pageyard_capi_core::request::{alloc_bulk, free_bulk, node};
use pageyard_capi_core::status::{PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_WRONG_ORDER, pageyard_status};
use pageyard_host::{Block, HostYard};

use crate::argument::{self, answer, named, of_alloc, of_free, required, wrong};
use crate::handle::{here, of, pageyard, with_yard};
use crate::last_error::{self, done};

/// Passes a block to the caller of the library.
fn address_of<P: Policy>(block: Block<'_, P>) -> *mut c_void {
    let address = block.as_ptr();
    block.into_raw();
    address.as_ptr().cast()
}

/// Frees a block; to the thread cache, if the yard has one. Its kind is that of an allocated block
/// of this order, which is checked first.
///
/// # Safety
/// As for [`HostYard::free_raw`]. With a thread cache, the block is not free.
unsafe fn free<P: Policy>(
    yard: &HostYard<P>,
    pfn: Pfn,
    order: Order,
    thread_cache: bool,
) -> Result<(), FreeError> {
    if !thread_cache || !yard.is_here() {
        // SAFETY: guaranteed by the caller.
        return unsafe { yard.free_raw(pfn, order) };
    }
    // SAFETY: guaranteed by the caller. This fails unless such a block is allocated: then it is its
    // caller's, who gives it up.
    unsafe {
        yard.core().set_movable(pfn, order, false)?;
        drop(yard.from_raw(pfn, order));
    }
    Ok(())
}

/// Allocates a block of 2^order pages, aligned to its size, and stores its address in `block`. The
/// block is readable and writable. It keeps its old contents, unless `flags` contains
/// PAGEYARD_ZERO. The usual value of `flags` is PAGEYARD_KERNEL.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a
/// null `block`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS. `block` is not written then.
///
/// Threads: any, but not signal handlers. Owner: the caller owns the block until pageyard_free,
/// which any thread may call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_alloc(
    yard: *const pageyard,
    order: u32,
    flags: u32,
    block: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        let order = argument::order("order", order)?;
        required("block", block)?;
        let gfp = flags::gfp(flags);
        let got = with_yard!(inner, |yard| yard.alloc(order, gfp).map(address_of))
            .map_err(|e| of_alloc(gfp, e))?;
        inner.declare_not_movable(got, order, gfp);
        // SAFETY: as above.
        unsafe { answer("block", block, got) }
    }))
}

/// Like pageyard_alloc, but prefers a node, given by the system's number. With PAGEYARD_THISNODE in
/// `flags`, only that node is used.
///
/// Errors: as pageyard_alloc; PAGEYARD_ERR_NODE if there is no such node.
///
/// Threads, owner: as pageyard_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_alloc_on(
    yard: *const pageyard,
    node: u32,
    order: u32,
    flags: u32,
    block: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        let (node, order) = (
            self::node(node).map_err(|e| named(format_args!("node: {node}"), e))?,
            argument::order("order", order)?,
        );
        required("block", block)?;
        let gfp = flags::gfp(flags);
        let got = with_yard!(inner, |yard| yard.alloc_on(node, order, gfp).map(address_of))
            .map_err(|e| of_alloc(gfp, e))?;
        inner.declare_not_movable(got, order, gfp);
        // SAFETY: as above.
        unsafe { answer("block", block, got) }
    }))
}

/// Frees a block. `order` must be the order at which it was allocated. A null `block` is ignored.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT. For an invalid block: PAGEYARD_ERR_FOREIGN,
/// PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED, PAGEYARD_ERR_WRONG_ORDER,
/// PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
///
/// Threads: any, but not signal handlers. If several threads free the same block at once, only one
/// call returns PAGEYARD_OK. With PAGEYARD_THREAD_CACHE, a block that is freed twice is not detected. Owner: the library owns the block again; its memory must not be
/// accessed any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_free(
    yard: *const pageyard,
    block: *mut c_void,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { of(yard) }.and_then(|inner| {
        let order = argument::order("order", order)?;
        if block.is_null() {
            return Ok(());
        }
        let pfn = inner.frame_of("block", block)?;
        // SAFETY: the header requires a block that the caller owns; any other is refused.
        with_yard!(inner, |yard| unsafe { free(yard, pfn, order, inner.thread_cache) })
            .map_err(|e| of_free(block, e))
    }))
}

/// Allocates up to `count` single pages, passing each with its index to `put`. Returns the number of
/// pages allocated.
fn bulk<P: Policy>(
    yard: &HostYard<P>,
    gfp: Gfp,
    count: usize,
    put: impl Fn(usize, Pfn),
) -> Result<usize, pageyard_status> {
    let mut n = 0;
    while n < count {
        // SAFETY: nothing is freed, split or moved.
        n += alloc_bulk(unsafe { yard.core() }, gfp, count - n, |i, pfn| put(n + i, pfn))?;
        if n < count {
            // Memory is short. A request for one page also takes what threads keep.
            let Ok(block) = yard.alloc(Order::ZERO, gfp) else { break };
            put(n, block.into_raw().0);
            n += 1;
        }
    }
    Ok(n)
}

/// Allocates up to `count` single pages in one call, which is cheaper than one call per page.
/// Stores the addresses in `pages` and their number in `got`. Allocating fewer pages than
/// requested, or none, is not an error.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS.
///
/// Threads, owner: as pageyard_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_alloc_bulk(
    yard: *const pageyard,
    flags: u32,
    pages: *mut *mut c_void,
    count: usize,
    got: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, `count` writable entries and a writable result.
    done(unsafe { here(yard) }.and_then(|inner| {
        required("got", got)?;
        if count > 0 {
            required("pages", pages)?;
        }
        let put = |i: usize, pfn: Pfn| {
            let address = inner.address(pfn).map_or(std::ptr::null_mut(), |a| a.as_ptr());
            // SAFETY: as above; `put` is called only with indices below `count`.
            unsafe { pages.add(i).write_unaligned(address) };
        };
        let gfp = flags::gfp(flags);
        let n = with_yard!(inner, |yard| bulk(yard, gfp, count, put))
            .map_err(|e| named(format_args!("flags: {flags:#x}"), e))?;
        for i in 0..n {
            // SAFETY: `put` has written the first `n` entries.
            inner.declare_not_movable(unsafe { pages.add(i).read_unaligned() }, Order::ZERO, gfp);
        }
        // SAFETY: as above.
        unsafe { answer("got", got, n) }
    }))
}

/// Frees `count` blocks of one order, which is cheaper than one call per block. Stops at the first
/// invalid block. If `done` is not null, it receives the number of blocks freed; after an error
/// that is the index of the invalid block. That block and all later ones are unchanged. PAGEYARD_ERR_HANDLE
/// and PAGEYARD_ERR_ARGUMENT leave `done` unwritten: nothing is freed then.
///
/// Errors: as pageyard_free; a null block is PAGEYARD_ERR_FOREIGN.
///
/// Threads, owner: as pageyard_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_free_bulk(
    yard: *const pageyard,
    blocks: *const *mut c_void,
    count: usize,
    order: u32,
    done: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, `count` blocks and a writable result.
    last_error::done(unsafe { here(yard) }.and_then(|inner| {
        let order = argument::order("order", order)?;
        if count > 0 {
            required("blocks", blocks)?;
        }
        // SAFETY: as above; `get` is called only with indices below `count`.
        let get = |i: usize| inner.frame(unsafe { blocks.add(i).read_unaligned() });
        // SAFETY: while a block of this interface is allocated, no Rust `Block` owns it.
        let (n, freed) = with_yard!(inner, |y| free_bulk(unsafe { y.core() }, order, count, get));
        if !done.is_null() {
            // SAFETY: as above.
            unsafe { answer("done", done, n) }?;
        }
        freed.map_err(|e| named(format_args!("blocks[{n}]"), e))
    }))
}

/// Splits an allocated block into blocks of the smaller order `into`. Each is freed separately.
///
/// Errors: as pageyard_free; PAGEYARD_ERR_WRONG_ORDER if `into` is larger than `order`.
///
/// Threads: the block's owner. Owner: the caller owns the parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_split(
    yard: *const pageyard,
    block: *mut c_void,
    order: u32,
    into: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.and_then(|inner| {
        let (order, into) = (argument::order("order", order)?, argument::order("into", into)?);
        if into > order {
            return Err(wrong(
                PAGEYARD_ERR_WRONG_ORDER,
                format_args!("into: {into}; expected 0 to {order}, the block's order"),
            ));
        }
        let pfn = inner.frame_of("block", block)?;
        // SAFETY: as in `pageyard_free_bulk`.
        with_yard!(inner, |y| unsafe { y.core() }.split(pfn, order, into))
            .map_err(|e| of_free(block, e))
    }))
}

/// Stores the frame number of the page that contains an address in `pfn`. Frames are numbered in
/// the order of their addresses, as on a machine whose memory begins at 4 GiB. Blocks are aligned
/// both by address and by frame number.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for an address outside
/// this yard's memory.
///
/// Threads: any. Owner: no ownership changes; the page need not be allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_pfn(
    yard: *const pageyard,
    address: *const c_void,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        let page = address.map_addr(|a| a & !(PAGE_SIZE as usize - 1));
        let frame = inner.frame_of("address", page)?;
        // SAFETY: as above.
        unsafe { answer("pfn", pfn, frame.0) }
    }))
}

/// Stores the address of a frame in `address`.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for a frame outside
/// this yard's memory.
///
/// Threads: any. Owner: no ownership changes; the page need not be allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_address(
    yard: *const pageyard,
    pfn: u64,
    address: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe { of(yard) }.and_then(|inner| {
        let found = inner
            .address(Pfn(pfn))
            .ok_or_else(|| named(format_args!("pfn: {pfn:#x}"), PAGEYARD_ERR_FOREIGN))?;
        // SAFETY: as above.
        unsafe { answer("address", address, found.as_ptr()) }
    }))
}
