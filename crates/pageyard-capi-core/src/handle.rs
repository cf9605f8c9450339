//! The handle of a yard on memory of the caller's.

use core::mem::{ManuallyDrop, offset_of};
use core::sync::atomic::{AtomicU64, Ordering};

use pageyard::policy::Linux612;
use pageyard::{Hooked, InitError, Layout, Storage, Yard};

use crate::hooks::{CPlatform, pageyard_platform};
use crate::lock::CLock;
use crate::status::{PAGEYARD_ERR_HANDLE, pageyard_status};

/// The allocator behind a handle.
pub type CoreYard = Yard<'static, Hooked<CLock, CPlatform, Linux612>>;

const MAGIC: u64 = u64::from_le_bytes(*b"pageyrd1");

/// An allocator on the caller's memory. Handles are checked: one that is null, misaligned, or of a
/// yard that was destroyed and whose room has not been written since is answered with
/// PAGEYARD_ERR_HANDLE. A pointer to anything else is not told apart from a handle for sure: it is
/// read, which faults where no memory is.
pub struct pageyard_core(Body);

/// The word comes first: of a pointer to something else no more is read.
#[repr(C)]
struct Body {
    magic: AtomicU64,
    yard: ManuallyDrop<CoreYard>,
}

impl pageyard_core {
    /// No handle yet. A constant is copied to its place; a value would be made on the stack first.
    pub(crate) const fn unmade() -> Self {
        let yard = ManuallyDrop::new(Yard::without_memory(CPlatform(pageyard_platform::none())));
        pageyard_core(Body { magic: AtomicU64::new(0), yard })
    }

    /// Makes the yard; from now on this is a handle.
    pub(crate) fn init(
        &mut self,
        platform: CPlatform,
        layout: &Layout<'_>,
        storage: Storage<'static, CLock>,
    ) -> Result<(), InitError> {
        *self.0.yard.hooks_mut() = platform;
        self.0.yard.init(layout, storage)?;
        self.0.magic.store(MAGIC, Ordering::Relaxed);
        Ok(())
    }

    /// This is a handle no more. The yard is atomics and the caller's memory: there is nothing to be given up.
    pub(crate) fn end(&self) {
        self.0.magic.store(0, Ordering::Relaxed);
    }
}

const _: () = assert!(offset_of!(pageyard_core, 0) == 0 && offset_of!(Body, magic) == 0);

/// The yard of a handle.
///
/// # Errors
/// It is none, as far as that can be seen.
///
/// # Safety
/// The pointer is null, misaligned, or to memory that may be read; if that holds a yard, it is not
/// destroyed meanwhile.
#[inline]
pub unsafe fn of<'h>(handle: *const pageyard_core) -> Result<&'h CoreYard, pageyard_status> {
    if handle.is_null() || !handle.is_aligned() {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: by the caller's word it may be read, and it is aligned; an atomic may be any bytes
    // (`misuse_is_an_error` faults without the checks above).
    if unsafe { &(*handle).0.magic }.load(Ordering::Relaxed) != MAGIC {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: the word is written last and taken away first, so there is a yard (a stale handle in
    // `misuse_is_an_error`).
    Ok(unsafe { &(*handle).0.yard })
}
