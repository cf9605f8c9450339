//! The handle of a yard on the caller's memory.

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

/// An allocator on the caller's memory. Functions check handles. They return PAGEYARD_ERR_HANDLE
/// for a handle that is null, misaligned, or of a destroyed yard whose room has not been written
/// since. A pointer to anything else is not reliably detected: it is read, which faults if it is
/// not mapped.
pub struct pageyard_core(Body);

/// The magic word comes first: of a pointer that is not a handle, only the word is read.
#[repr(C)]
struct Body {
    magic: AtomicU64,
    yard: ManuallyDrop<CoreYard>,
}

impl pageyard_core {
    /// Returns storage that is not a handle yet. A constant, because it is copied to its place; a
    /// value would be built on the stack first.
    pub(crate) const fn unmade() -> Self {
        let yard = ManuallyDrop::new(Yard::without_memory(CPlatform(pageyard_platform::none())));
        pageyard_core(Body { magic: AtomicU64::new(0), yard })
    }

    /// Initializes the yard and makes this a valid handle.
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

    /// Invalidates the handle. The yard consists of atomics and the caller's memory, so nothing is
    /// dropped.
    pub(crate) fn end(&self) {
        self.0.magic.store(0, Ordering::Relaxed);
    }
}

const _: () = assert!(offset_of!(pageyard_core, 0) == 0 && offset_of!(Body, magic) == 0);

/// Returns the yard of a handle.
///
/// # Errors
/// Fails if the pointer is detectably not a handle.
///
/// # Safety
/// The pointer must be null, misaligned, or point to readable memory. If that holds a yard, the
/// yard must not be destroyed meanwhile.
#[inline]
pub unsafe fn of<'h>(handle: *const pageyard_core) -> Result<&'h CoreYard, pageyard_status> {
    if handle.is_null() || !handle.is_aligned() {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: the caller guarantees that it is readable, and it is aligned. An atomic accepts any
    // bytes (`misuse_is_an_error` faults without the checks above).
    if unsafe { &(*handle).0.magic }.load(Ordering::Relaxed) != MAGIC {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: the word is written last and cleared first, so there is a yard (a stale handle in
    // `misuse_is_an_error`).
    Ok(unsafe { &(*handle).0.yard })
}
