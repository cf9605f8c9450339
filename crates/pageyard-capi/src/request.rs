//! Requests by address.

use std::ffi::c_void;

use ::pageyard::{PAGE_SIZE, Pfn};
use pageyard_capi_core::flags;
use pageyard_capi_core::request::{alloc_bulk, free_bulk, node};
use pageyard_capi_core::sized::answer;
use pageyard_capi_core::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN, of_alloc, of_free, pageyard_status, status,
};

use crate::handle::{here, of, pageyard};

/// Allocates a block of 2^order pages, aligned to its size, and puts its address to `block`. It is
/// readable and writable; its contents are what was there before, or zeros with PAGEYARD_ZERO in
/// `flags`. PAGEYARD_KERNEL is what to give for flags where nothing else is meant.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a null
/// `block`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS. `block` is not written then.
///
/// Threads: any; not signal handlers. Owner: the block is the caller's until pageyard_free, on whatever
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_alloc(
    yard: *const pageyard,
    order: u32,
    flags: u32,
    block: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|inner| {
        let order = flags::order(order)?;
        if block.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let got = inner.yard.alloc(order, flags::gfp(flags)).map_err(of_alloc)?;
        let address = got.as_ptr();
        got.into_raw();
        // SAFETY: as above.
        unsafe { answer(block, address.as_ptr().cast()) }
    }))
}

/// Allocates a block as pageyard_alloc does, preferably of a node, by the system's number; with
/// PAGEYARD_THISNODE in `flags`, of no other.
///
/// Errors: as pageyard_alloc; PAGEYARD_ERR_NODE where there is no such node.
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
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|inner| {
        let (node, order) = (self::node(node)?, flags::order(order)?);
        if block.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let got = inner.yard.alloc_on(node, order, flags::gfp(flags)).map_err(of_alloc)?;
        let address = got.as_ptr();
        got.into_raw();
        // SAFETY: as above.
        unsafe { answer(block, address.as_ptr().cast()) }
    }))
}

/// Gives a block back, of the order at which it was allocated. Null is given back by doing nothing.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; what is wrong with the block: PAGEYARD_ERR_FOREIGN,
/// PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED, PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD,
/// PAGEYARD_ERR_OUT_OF_USE.
///
/// Threads: any; not signal handlers. Of those that free the same block at once, one is told
/// PAGEYARD_OK. Owner: the block is the library's; nobody uses its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_free(
    yard: *const pageyard,
    block: *mut c_void,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.and_then(|inner| {
        let order = flags::order(order)?;
        if block.is_null() {
            return Ok(());
        }
        let pfn = inner.frame(block)?;
        // SAFETY: the header asks for a block of the caller's; another one is refused.
        unsafe { inner.yard.free_raw(pfn, order) }.map_err(of_free)
    }))
}

/// Allocates up to `count` single pages at once, cheaper than one by one. Their addresses are put to
/// `pages`, how many there are to `got`: fewer than asked for, even none, is no error.
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
    // SAFETY: the header asks for a handle, so many places, and one for the answer.
    status(unsafe { here(yard) }.and_then(|inner| {
        if got.is_null() || pages.is_null() && count > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let put = |i: usize, pfn: Pfn| {
            let address = inner.address(pfn).map_or(std::ptr::null_mut(), |a| a.as_ptr());
            // SAFETY: as above; no more than `count` are told.
            unsafe { pages.add(i).write_unaligned(address) };
        };
        // SAFETY: nothing is given back, split or moved.
        let core = unsafe { inner.yard.core() };
        let n = alloc_bulk(core, flags::gfp(flags), count, put)?;
        // SAFETY: as above.
        unsafe { answer(got, n) }
    }))
}

/// Gives `count` blocks of one order back, cheaper than one by one. `done`, where it is not null, is
/// set to how many were given back: at an error, the block at that position is the one at fault, and
/// it and all after it are as they were.
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
    // SAFETY: the header asks for a handle, so many blocks, and a place for the answer.
    status(unsafe { here(yard) }.and_then(|inner| {
        let order = flags::order(order)?;
        if blocks.is_null() && count > 0 {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: as above; no more than `count` are asked for.
        let get = |i: usize| inner.frame(unsafe { blocks.add(i).read_unaligned() });
        // SAFETY: blocks of this interface are never a `Block`'s of Rust while they are handed out.
        let core = unsafe { inner.yard.core() };
        let (n, freed) = free_bulk(core, order, count, get);
        if !done.is_null() {
            // SAFETY: as above.
            unsafe { answer(done, n) }?;
        }
        freed
    }))
}

/// Turns an allocated block into blocks of the smaller order `into`, each to be freed on its own.
///
/// Errors: as pageyard_free; PAGEYARD_ERR_WRONG_ORDER where `into` is larger than `order`.
///
/// Threads: the block's owner. Owner: the parts are the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_split(
    yard: *const pageyard,
    block: *mut c_void,
    order: u32,
    into: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { here(yard) }.and_then(|inner| {
        let (order, into) = (flags::order(order)?, flags::order(into)?);
        let pfn = inner.frame(block)?;
        // SAFETY: as in `pageyard_free_bulk`.
        unsafe { inner.yard.core() }.split(pfn, order, into).map_err(of_free)
    }))
}

/// The frame number of the page that holds an address. Frames are numbered as in a machine whose
/// memory begins at 4 GiB, in the order of their addresses; blocks are aligned by either.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for an address that is not of
/// this yard's memory.
///
/// Threads: any. Owner: nothing changes hands; the page need not be allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_pfn(
    yard: *const pageyard,
    address: *const c_void,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|inner| {
        let page = address.map_addr(|a| a & !(PAGE_SIZE as usize - 1));
        let frame = inner.frame(page)?;
        // SAFETY: as above.
        unsafe { answer(pfn, frame.0) }
    }))
}

/// The address of a frame.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for a frame that is not of this
/// yard's.
///
/// Threads: any. Owner: nothing changes hands; the page need not be allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_address(
    yard: *const pageyard,
    pfn: u64,
    address: *mut *mut c_void,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|inner| {
        let found = inner.address(Pfn(pfn)).ok_or(PAGEYARD_ERR_FOREIGN)?;
        // SAFETY: as above.
        unsafe { answer(address, found.as_ptr()) }
    }))
}
