//! A yard of real memory behind a handle.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use ::pageyard::{Gfp, Order, PAGE_SIZE, Pfn};
use pageyard_capi_core::sized::answer;
use pageyard_capi_core::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_MISALIGNED,
    PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM, of_alloc, pageyard_status, status,
};
use pageyard_host::{BuildError, HostYard};

use crate::last_error;
use crate::options::{self, pageyard_options};

const MAGIC: u64 = u64::from_le_bytes(*b"pageyrdH");

/// An allocator of real memory. Handles are checked: one that is null, misaligned or was destroyed is
/// answered with PAGEYARD_ERR_HANDLE, also when other yards were made since. A pointer to anything else
/// is not told apart from a handle for sure: it is read, which faults where no memory is.
pub struct pageyard(Body);

/// The word comes first: of a pointer to something else no more is read.
#[repr(C)]
struct Body {
    magic: AtomicU64,
    inner: UnsafeCell<Option<Inner>>,
    /// The handle destroyed before this one.
    before: AtomicPtr<pageyard>,
}

const _: () = assert!(offset_of!(pageyard, 0) == 0 && offset_of!(Body, magic) == 0);

/// What is behind a handle.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) yard: HostYard,
    /// Where the first frame lies, which it is, and how many there are.
    start: usize,
    first: u64,
    pages: u64,
}

/// Handles that were destroyed. Their few bytes are kept, so that one that somebody still holds is
/// known for what it is; leak checkers find them here.
static DESTROYED: AtomicPtr<pageyard> = AtomicPtr::new(std::ptr::null_mut());

impl Inner {
    fn new(yard: HostYard) -> Result<Inner, pageyard_status> {
        let zones = || yard.zones().filter_map(|zone| yard.zone_info(zone));
        let first = zones().map(|z| z.start.0).min().unwrap_or(0);
        let pages = zones().map(|z| z.spanned).sum();
        // Frames lie in the order of their addresses; any block tells from where on.
        let block = yard.alloc(Order::ZERO, Gfp::KERNEL).map_err(of_alloc)?;
        let address = block.as_ptr().as_ptr().expose_provenance();
        let start = address - ((block.pfn().0 - first) * PAGE_SIZE) as usize;
        drop(block);
        Ok(Inner { yard, start, first, pages })
    }

    /// The frame at an address, which must be a page's.
    #[inline]
    pub(crate) fn frame(&self, address: *const c_void) -> Result<Pfn, pageyard_status> {
        let at = address.addr().wrapping_sub(self.start) as u64;
        if at / PAGE_SIZE >= self.pages {
            return Err(PAGEYARD_ERR_FOREIGN);
        }
        if !at.is_multiple_of(PAGE_SIZE) {
            return Err(PAGEYARD_ERR_MISALIGNED);
        }
        Ok(Pfn(self.first + at / PAGE_SIZE))
    }

    /// How many frames lie before the one at an address, which must be a page's.
    pub(crate) fn frame_number(&self, address: *const c_void) -> Result<u64, pageyard_status> {
        Ok(self.frame(address)?.0 - self.first)
    }

    /// Where a frame lies.
    #[inline]
    pub(crate) fn address(&self, pfn: Pfn) -> Option<NonNull<c_void>> {
        let at = pfn.0.wrapping_sub(self.first);
        if at >= self.pages {
            return None;
        }
        let address = self.start + (at * PAGE_SIZE) as usize;
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }
}

/// What is behind a handle.
///
/// # Errors
/// It is none, as far as that can be seen.
///
/// # Safety
/// The pointer is null, misaligned, or to memory that may be read; if that holds a yard, it is not
/// destroyed meanwhile.
#[inline]
pub(crate) unsafe fn of<'h>(handle: *const pageyard) -> Result<&'h Inner, pageyard_status> {
    if handle.is_null() || !handle.is_aligned() {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: by the caller's word it may be read; an atomic may be any bytes.
    if unsafe { &(*handle).0.magic }.load(Ordering::Relaxed) != MAGIC {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: what has the word is a handle, and is not being destroyed by the caller's word.
    unsafe { &*(*handle).0.inner.get() }.as_ref().ok_or(PAGEYARD_ERR_HANDLE)
}

/// The same, in the process that made it: a child after a fork has a copy, and locks in whatever state.
///
/// # Errors
/// As [`of`]; the yard is a parent's.
///
/// # Safety
/// As [`of`].
pub(crate) unsafe fn here<'h>(handle: *const pageyard) -> Result<&'h Inner, pageyard_status> {
    // SAFETY: by the caller's word.
    unsafe { of(handle) }.and_then(|inner| match inner.yard.is_here() {
        true => Ok(inner),
        false => Err(PAGEYARD_ERR_HANDLE),
    })
}

/// Makes a yard with these options, and puts its handle to `yard`.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_OPTION for an option that cannot
/// be, PAGEYARD_ERR_SYSTEM where the system refuses memory or a thread; pageyard_last_error names the
/// option.
///
/// Threads: any. Starts a thread, unless `tick_ns` is 0. In a child after fork, which has a copy, the
/// yard gives nothing (PAGEYARD_ERR_NO_MEMORY), pageyard_free, pageyard_unregister and pageyard_destroy
/// are done without effect on the parent, and what would look at the yard or change it is answered
/// with PAGEYARD_ERR_HANDLE. Memory of PAGEYARD_MEMFD is shared with the child, other memory is copied.
///
/// Owner: the handle is the caller's until pageyard_destroy; the options stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_create(
    options: *const pageyard_options,
    yard: *mut *mut pageyard,
) -> pageyard_status {
    let create = || {
        if yard.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: the header asks for options.
        let builder = unsafe { options::builder(options) }?;
        let built = builder.build().map_err(|e| {
            last_error::set(&e);
            match e {
                BuildError::System { .. } | BuildError::Topology(_) | BuildError::SystemPage(_) => {
                    PAGEYARD_ERR_SYSTEM
                }
                _ => PAGEYARD_ERR_OPTION,
            }
        })?;
        let handle = Box::new(pageyard(Body {
            magic: AtomicU64::new(MAGIC),
            inner: UnsafeCell::new(Some(Inner::new(built)?)),
            before: AtomicPtr::default(),
        }));
        // SAFETY: the header asks for a place for the answer.
        unsafe { answer(yard, Box::into_raw(handle)) }
    };
    status(create())
}

/// Ends a yard: its memory goes back to the system, whoever has blocks of it. Its thread has ended when
/// this returns. The handle is known as destroyed for as long as the program runs; that takes some
/// hundred bytes.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: nobody else uses the yard or its blocks, or does afterwards. Owner: nothing is the caller's
/// any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_destroy(yard: *mut pageyard) -> pageyard_status {
    // SAFETY: the header asks for a handle that nobody else uses.
    status(unsafe { of(yard) }.and_then(|_| {
        // SAFETY: `of` has seen a handle.
        let handle = unsafe { &(*yard).0 };
        if handle.magic.swap(0, Ordering::AcqRel) != MAGIC {
            return Err(PAGEYARD_ERR_HANDLE);
        }
        // SAFETY: by the header nobody else uses it; and no other call has seen the word with it.
        drop(unsafe { &mut *handle.inner.get() }.take());
        let keep = |before| {
            handle.before.store(before, Ordering::Relaxed);
            Some(yard)
        };
        let _ = DESTROYED.fetch_update(Ordering::Release, Ordering::Relaxed, keep);
        Ok(())
    }))
}
