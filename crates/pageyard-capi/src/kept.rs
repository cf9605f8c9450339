//! Handles that C holds. They are checked at each use, and their memory is never freed, so a stale
//! handle is still recognized.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use pageyard_capi_core::status::{PAGEYARD_ERR_HANDLE, pageyard_status};

/// What a kind of handle contains.
pub(crate) trait Contents: Sized + 'static {
    /// The word that a handle of this kind begins with.
    const MAGIC: u64;
    /// Returns the list of ended handles, which keeps them reachable for leak checkers.
    fn ended() -> &'static AtomicPtr<Kept<Self>>;
}

/// What a handle points to. The magic word comes first: of a pointer that is not a handle, only that word is read.
#[repr(C)]
pub(crate) struct Kept<T> {
    magic: AtomicU64,
    contents: UnsafeCell<Option<T>>,
    /// The handle that ended before this one.
    before: AtomicPtr<Kept<T>>,
}

impl<T: Contents> Kept<T> {
    pub(crate) fn new(contents: T) -> *mut Self {
        const { assert!(offset_of!(Self, magic) == 0) };
        Box::into_raw(Box::new(Kept {
            magic: AtomicU64::new(T::MAGIC),
            contents: UnsafeCell::new(Some(contents)),
            before: AtomicPtr::default(),
        }))
    }

    /// Returns what a pointer refers to.
    ///
    /// # Errors
    /// Fails if the pointer is detectably not a handle of this kind, or has ended.
    ///
    /// # Safety
    /// The pointer must be null, misaligned, or point to readable memory.
    #[inline]
    pub(crate) unsafe fn check<'h>(handle: *const Self) -> Result<&'h Self, pageyard_status> {
        if handle.is_null() || !handle.is_aligned() {
            return Err(PAGEYARD_ERR_HANDLE);
        }
        // SAFETY: the caller guarantees that it is readable; an atomic accepts any bytes
        // (`misuse_is_an_error`).
        if unsafe { &(*handle).magic }.load(Ordering::Relaxed) != T::MAGIC {
            return Err(PAGEYARD_ERR_HANDLE);
        }
        // SAFETY: the word identifies a handle, which is never freed (`misuse_is_an_error`).
        Ok(unsafe { &*handle })
    }

    /// Returns the contents of a handle.
    ///
    /// # Errors
    /// As [`check`](Kept::check).
    ///
    /// # Safety
    /// As for [`check`](Kept::check). The handle must not be ended as long as the contents are used.
    #[inline]
    pub(crate) unsafe fn get<'h>(handle: *const Self) -> Result<&'h T, pageyard_status> {
        // SAFETY: guaranteed by the caller.
        let own = unsafe { Self::check(handle) }?;
        // SAFETY: the caller guarantees that it is not being ended.
        unsafe { &*own.contents.get() }.as_ref().ok_or(PAGEYARD_ERR_HANDLE)
    }

    /// Ends a handle and returns its contents. If several threads end it, only one succeeds.
    ///
    /// # Errors
    /// As [`check`](Kept::check).
    ///
    /// # Safety
    /// As for [`check`](Kept::check). No other thread may use the contents.
    pub(crate) unsafe fn end(handle: *mut Self) -> Result<T, pageyard_status> {
        // SAFETY: guaranteed by the caller.
        let own = unsafe { Self::check(handle) }?;
        if own.magic.swap(0, Ordering::AcqRel) != T::MAGIC {
            return Err(PAGEYARD_ERR_HANDLE);
        }
        let keep = |before| {
            own.before.store(before, Ordering::Relaxed);
            Some(handle)
        };
        let _ = T::ended().fetch_update(Ordering::Release, Ordering::Relaxed, keep);
        // SAFETY: only one call wins the swap of the word, and the caller guarantees that nothing
        // else uses the contents.
        unsafe { &mut *own.contents.get() }.take().ok_or(PAGEYARD_ERR_HANDLE)
    }
}
