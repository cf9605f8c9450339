//! The handle of a yard of real memory.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::AtomicPtr;

use ::pageyard::policy::{Engine, Linux612, Packed, Policy};
use ::pageyard::{Gfp, Order, PAGE_SIZE, Pfn};
use pageyard_capi_core::status::{
    PAGEYARD_ERR_BUSY, PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_MISALIGNED,
    PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM, pageyard_status,
};
use pageyard_host::{BuildError, HostYard};

use crate::argument::{answer, required, wrong};
use crate::gate;
use crate::kept::{Contents, Kept};
use crate::last_error::{self, done};
use crate::options::{self, pageyard_options};

/// An allocator of real memory. Functions check handles. They return PAGEYARD_ERR_HANDLE for a
/// handle that is null, misaligned or destroyed, even if other yards were created since. A pointer
/// to anything else is not reliably detected: it is read, which faults if it is not mapped.
pub struct pageyard(#[expect(dead_code, reason = "accessed as `Kept`")] Kept<Inner>);

/// A yard on the engine that its options name.
#[derive(Debug)]
pub(crate) enum AnyYard {
    Exact(HostYard<Linux612>),
    Packed(HostYard<Packed>),
}

/// Evaluates an expression with the yard of a handle, on either engine.
macro_rules! with_yard {
    ($inner:expr, |$yard:ident| $body:expr) => {
        match &$inner.yard {
            $crate::handle::AnyYard::Exact($yard) => $body,
            $crate::handle::AnyYard::Packed($yard) => $body,
        }
    };
}
pub(crate) use with_yard;

/// Contents of a handle.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) yard: AnyYard,
    /// Address of the first frame, its number, and the number of frames.
    start: usize,
    first: u64,
    pages: u64,
    pub(crate) thread_cache: bool,
}

impl Contents for Inner {
    const MAGIC: u64 = u64::from_le_bytes(*b"pageyrdH");

    fn ended() -> &'static AtomicPtr<Kept<Inner>> {
        static DESTROYED: AtomicPtr<Kept<Inner>> = AtomicPtr::new(std::ptr::null_mut());
        &DESTROYED
    }
}

impl Inner {
    fn new<P: Policy>(yard: HostYard<P>, any: impl FnOnce(HostYard<P>) -> AnyYard) -> Inner {
        let first = yard.zones().filter_map(|zone| yard.zone_info(zone)).map(|z| z.start.0).min();
        // Frames are contiguous in the order of their addresses.
        let memory = yard.memory();
        let start = memory.as_ptr().expose_provenance();
        let pages = memory.len() as u64 / PAGE_SIZE;
        let thread_cache = yard.thread_cache_stats().on;
        Inner { yard: any(yard), start, first: first.unwrap_or(0), pages, thread_cache }
    }

    /// Returns the frame at an address, which must be page-aligned.
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

    /// As [`frame`](Inner::frame), for an argument of this name.
    #[inline]
    pub(crate) fn frame_of(
        &self,
        name: &str,
        block: *const c_void,
    ) -> Result<Pfn, pageyard_status> {
        self.frame(block).map_err(|e| match e {
            PAGEYARD_ERR_FOREIGN => {
                wrong(e, format_args!("{name}: {block:p} is outside this yard's memory"))
            }
            e => wrong(e, format_args!("{name}: {block:p} is not at the start of a page")),
        })
    }

    /// Returns the number of frames of this yard before one of them.
    pub(crate) fn frame_number(&self, frame: Pfn) -> u64 {
        frame.0 - self.first
    }

    /// Declares a block that was just allocated not movable. On the packed engine a block requested as
    /// movable is movable at once, and the header promises that none is. A relocator that is called
    /// before knows nothing of the block: its owner does not have it yet.
    #[inline]
    pub(crate) fn declare_not_movable(&self, block: *const c_void, order: Order, gfp: Gfp) {
        let AnyYard::Packed(yard) = &self.yard else { return };
        if !gfp.contains(Gfp::MOVABLE) {
            return;
        }
        if let Ok(pfn) = self.frame(block) {
            // SAFETY: nothing is freed, split or moved.
            _ = unsafe { yard.core() }.set_movable(pfn, order, false);
        }
    }

    /// Returns the address of a frame.
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

/// Returns the contents of a handle.
///
/// # Errors
/// Fails if the pointer is detectably not a handle.
///
/// # Safety
/// The pointer must be null, misaligned, or point to readable memory. If that holds a yard, the
/// yard must not be destroyed meanwhile.
#[inline]
pub(crate) unsafe fn of<'h>(handle: *const pageyard) -> Result<&'h Inner, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { Kept::get(handle.cast()) }
}

/// Like [`of`], but only in the process that created the yard. After a fork, the child has a copy
/// whose locks are in an arbitrary state.
///
/// # Errors
/// Fails as [`of`] does, or if the yard belongs to the parent process.
///
/// # Safety
/// As for [`of`].
pub(crate) unsafe fn here<'h>(handle: *const pageyard) -> Result<&'h Inner, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { of(handle) }.and_then(|inner| match with_yard!(inner, |yard| yard.is_here()) {
        true => Ok(inner),
        false => Err(PAGEYARD_ERR_HANDLE),
    })
}

/// Notes why a yard was not created.
fn refused(e: BuildError) -> pageyard_status {
    last_error::set(&e);
    match e {
        BuildError::System { .. } | BuildError::Topology(_) | BuildError::SystemPage(_) => {
            PAGEYARD_ERR_SYSTEM
        }
        _ => PAGEYARD_ERR_OPTION,
    }
}

/// Creates a yard with the given options and stores its handle in `yard`.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_OPTION for an invalid option;
/// PAGEYARD_ERR_SYSTEM if the system refuses memory or a thread. pageyard_last_error names the
/// option.
///
/// Threads: any. Starts a thread, unless `tick_ns` is 0. After fork, the child has a copy of the
/// yard. There, pageyard_alloc, pageyard_alloc_on and pageyard_alloc_range fail with
/// PAGEYARD_ERR_NO_MEMORY. pageyard_free, pageyard_free_range, pageyard_unregister and
/// pageyard_destroy succeed without an effect on the parent. pageyard_pfn, pageyard_address,
/// pageyard_region, pageyard_resident, pageyard_file and pageyard_offset work. All others, also
/// pageyard_alloc_bulk, pageyard_free_bulk and pageyard_split, return PAGEYARD_ERR_HANDLE.
/// PAGEYARD_MEMFD memory is shared with the child, other memory is copied.
///
/// Owner: the caller owns the handle until pageyard_destroy; the options stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_create(
    options: *const pageyard_options,
    yard: *mut *mut pageyard,
) -> pageyard_status {
    let create = || {
        required("yard", yard)?;
        // SAFETY: the header requires valid options.
        let (engine, builder) = unsafe { options::builder(options) }?;
        let inner = match engine {
            Engine::Exact => builder.build_with().map(|y| Inner::new(y, AnyYard::Exact)),
            Engine::Packed => builder.build_with().map(|y| Inner::new(y, AnyYard::Packed)),
        }
        .map_err(refused)?;
        // SAFETY: the header requires a writable result.
        unsafe { answer("yard", yard, Kept::new(inner).cast()) }
    };
    done(create())
}

/// Destroys a yard and returns its memory to the system, including blocks that are still allocated.
/// Its thread has exited when this function returns. The library remembers the destroyed handle
/// until the program exits, which takes a few hundred bytes.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_BUSY if called from a registered function of any yard,
/// because the call that runs it may use this yard. Nothing changes then.
///
/// Threads: no other thread may use the yard or its blocks during or after the call. Owner: the
/// caller owns neither the handle nor its blocks any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_destroy(yard: *mut pageyard) -> pageyard_status {
    let yard: *mut Kept<Inner> = yard.cast();
    // SAFETY: the header requires a valid handle.
    done(unsafe { Kept::check(yard) }.and_then(|_| {
        if gate::is_in_callback() {
            return Err(PAGEYARD_ERR_BUSY);
        }
        // SAFETY: the header requires a handle that no other thread uses.
        unsafe { Kept::end(yard) }.map(drop)
    }))
}
