//! The system under Miri, in place of libc where a file selects it. Mappings are allocations,
//! advice that changes contents changes them, and a barrier on all threads is a fence (as is its
//! other side, in [`sync`](crate::sync)).

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;

pub(crate) use libc::*;

/// Number of CPUs that the functions below report; Miri itself runs one thread at a time.
const CPUS: c_int = 2;

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 4096).expect("a mapping's size")
}

/// Allocates zeroed memory. Files cannot be mapped.
pub(crate) unsafe fn mmap(
    _: *mut c_void,
    bytes: usize,
    _: c_int,
    _: c_int,
    file: c_int,
    _: off_t,
) -> *mut c_void {
    if file >= 0 || bytes == 0 {
        return MAP_FAILED;
    }
    // SAFETY: the size is not 0.
    let start = unsafe { alloc_zeroed(layout(bytes)) };
    if start.is_null() { MAP_FAILED } else { start.cast() }
}

/// # Safety
/// The arguments are the whole of one mapping.
pub(crate) unsafe fn munmap(start: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: `mmap` allocated it with this layout.
    unsafe { dealloc(start.cast(), layout(bytes)) };
    0
}

pub(crate) unsafe fn mprotect(_: *mut c_void, _: usize, _: c_int) -> c_int {
    0
}

/// # Safety
/// The memory is mapped, and unused if the advice discards it.
pub(crate) unsafe fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if [MADV_DONTNEED, MADV_FREE, MADV_REMOVE].contains(&advice) {
        // SAFETY: as the caller guarantees. The system may write the zeros at any time.
        unsafe { start.write_bytes(0, bytes) };
    }
    0
}

/// # Safety
/// `seen` has a byte for each page.
pub(crate) unsafe fn mincore(_: *mut c_void, bytes: usize, seen: *mut c_uchar) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { seen.write_bytes(1, bytes / 4096) };
    0
}

/// Returns any CPU, because a thread may move at any time.
pub(crate) unsafe fn sched_getcpu() -> c_int {
    use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
    static NEXT: AtomicI32 = AtomicI32::new(0);
    NEXT.fetch_add(1, Relaxed) % CPUS
}

/// Does nothing: Miri has no `fork`.
pub(crate) unsafe fn pthread_atfork(
    _: Option<unsafe extern "C" fn()>,
    _: Option<unsafe extern "C" fn()>,
    _: Option<unsafe extern "C" fn()>,
) -> c_int {
    0
}
