//! Single pages by address.

use core::ffi::c_void;

use pageyard::{Config, NodeChoice, Order, Pfn, Yard};

use crate::flags::{
    self, PAGEYARD_DIRECT_RECLAIM, PAGEYARD_KERNEL, PAGEYARD_NOWARN, PAGEYARD_PAGE_SIZE,
};
#[cfg(feature = "packed")]
use crate::handle::PackedYard;
use crate::handle::{CoreYard, HookedYard, of, pageyard_core};
use crate::platform::CPlatform;
use crate::request;
use crate::status::{PAGEYARD_ERR_MISALIGNED, PAGEYARD_OK, pageyard_status};

/// Requests of [`pageyard_page`].
const PAGE_FLAGS: u32 = PAGEYARD_KERNEL & !PAGEYARD_DIRECT_RECLAIM | PAGEYARD_NOWARN;

/// Allocates one page on the platform's current CPU and returns its address in the platform's
/// `direct_map`, or null if there is no free page or the handle is invalid. As a request with
/// PAGEYARD_KERNEL, but never reclaims or sleeps, and does not report a failure. The page keeps its
/// old contents. A page whose address is null is left to pageyard_core_alloc.
///
/// Errors: as pageyard_core_alloc; the answer is null. pageyard_core_alloc says which.
///
/// Threads: any, and interrupt handlers if the lock functions disable interrupts. Owner: the caller
/// owns the page until pageyard_page_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_page(yard: *const pageyard_core) -> *mut c_void {
    // SAFETY: the header requires a valid handle.
    match unsafe { of(yard) } {
        Ok(CoreYard::Plain(yard)) => page(yard, yard.hooks()),
        Ok(CoreYard::Hooked(yard)) => page_apart(yard),
        #[cfg(feature = "packed")]
        Ok(CoreYard::Packed(yard)) => page_on_packed(yard),
        Err(_) => core::ptr::null_mut(),
    }
}

// Not inlined, so that a yard takes no stack for those of another type (as by `on_yard`).

#[inline(never)]
fn page_apart(yard: &HookedYard) -> *mut c_void {
    let mut pfn = 0;
    // SAFETY: the result is writable.
    match unsafe { request::allocate_apart(yard, 0, PAGE_FLAGS, &mut pfn) } {
        PAGEYARD_OK => placed(yard, &yard.hooks().platform, Pfn(pfn)),
        _ => core::ptr::null_mut(),
    }
}

#[cfg(feature = "packed")]
#[inline(never)]
fn page_on_packed(yard: &PackedYard) -> *mut c_void {
    page(yard, yard.hooks())
}

/// The common case, with order, flags and engine as constants.
#[inline(always)]
fn page<C: Config>(yard: &Yard<'_, C>, platform: &CPlatform) -> *mut c_void {
    match yard.alloc_ready(NodeChoice::LOCAL, Order::ZERO, flags::gfp(PAGE_FLAGS)) {
        Some(block) => placed(yard, platform, block),
        None => page_rest(yard, platform),
    }
}

/// The rest of [`page`].
#[cold]
#[inline(never)]
fn page_rest<C: Config>(yard: &Yard<'_, C>, platform: &CPlatform) -> *mut c_void {
    match yard.alloc_rest(NodeChoice::LOCAL, Order::ZERO, flags::gfp(PAGE_FLAGS)) {
        Ok(block) => placed(yard, platform, block),
        Err(_) => core::ptr::null_mut(),
    }
}

/// Returns the address of a page.
#[inline(always)]
fn placed<C: Config>(yard: &Yard<'_, C>, platform: &CPlatform, block: Pfn) -> *mut c_void {
    let address = platform.direct_map().wrapping_byte_add(block.address() as usize);
    if address.is_null() { other_than(yard, platform, block) } else { address }
}

/// Allocates another page in place of the one at address 0, which a yard of pageyard_core_create has
/// if the layout does not reserve it.
#[cold]
#[inline(never)]
fn other_than<C: Config>(yard: &Yard<'_, C>, platform: &CPlatform, block: Pfn) -> *mut c_void {
    let other = yard.alloc_rest(NodeChoice::LOCAL, Order::ZERO, flags::gfp(PAGE_FLAGS));
    // Not before the request: it would get the page that was freed last.
    give_back(yard, block);
    match other {
        Ok(other) => platform.direct_map().wrapping_byte_add(other.address() as usize),
        Err(_) => core::ptr::null_mut(),
    }
}

// Not inlined, so that the request in `other_than` has no stack of the free below it.
#[inline(never)]
fn give_back<C: Config>(yard: &Yard<'_, C>, block: Pfn) {
    _ = yard.free(block, Order::ZERO);
}

/// Frees a page that pageyard_page returned, or one of pageyard_core_alloc by its address in the
/// `direct_map`. Does nothing if the address is null.
///
/// Errors: as pageyard_core_free; PAGEYARD_ERR_MISALIGNED for an address inside a page.
///
/// Threads: as pageyard_page. Owner: the library owns the page again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_page_free(
    yard: *const pageyard_core,
    page: *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    match unsafe { of(yard) } {
        Ok(CoreYard::Plain(yard)) => free(yard, yard.hooks(), page),
        Ok(CoreYard::Hooked(yard)) => free_apart(yard, page),
        #[cfg(feature = "packed")]
        Ok(CoreYard::Packed(yard)) => free_on_packed(yard, page),
        Err(status) => status,
    }
}

#[inline(never)]
fn free_apart(yard: &HookedYard, page: *mut c_void) -> pageyard_status {
    free(yard, &yard.hooks().platform, page)
}

#[cfg(feature = "packed")]
#[inline(never)]
fn free_on_packed(yard: &PackedYard, page: *mut c_void) -> pageyard_status {
    free(yard, yard.hooks(), page)
}

#[inline(always)]
fn free<C: Config>(yard: &Yard<'_, C>, platform: &CPlatform, page: *mut c_void) -> pageyard_status {
    if page.is_null() {
        return PAGEYARD_OK;
    }
    let physical = page.addr().wrapping_sub(platform.direct_map().addr()) as u64;
    if !physical.is_multiple_of(PAGEYARD_PAGE_SIZE.into()) {
        return PAGEYARD_ERR_MISALIGNED;
    }
    request::free(yard, Pfn::containing(physical), Order::ZERO)
}
