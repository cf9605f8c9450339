//! Copied into the build by pageyard-mutants: selects a mutant.
//!
//! Does not allocate, lock, or make system calls after the start of the program, because allocators
//! and system-call filters are under test.
#![allow(unsafe_code)]

use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

/// No mutant is selected; the mutants that are reached are recorded.
const REACH: u32 = u32::MAX;
const NONE: u32 = u32::MAX - 1;

static CHOSEN: AtomicU32 = AtomicU32::new(NONE);
/// One byte per mutant, in a file that the runner reads.
static REACHED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Returns whether the mutant is the selected one.
#[inline]
pub fn mutant(number: u32) -> bool {
    let chosen = CHOSEN.load(Relaxed);
    if chosen == REACH {
        // SAFETY: the mapping has a byte per mutant and lives as long as the process.
        unsafe { REACHED.load(Relaxed).add(number as usize).write_volatile(1) };
    }
    chosen == number
}

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn atoi(text: *const c_char) -> c_int;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn mmap(
        address: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn close(file: c_int) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    const READ_WRITE: c_int = 2;
    const READ_WRITE_PAGES: c_int = 3;
    const SHARED: c_int = 1;
    // SAFETY: nothing changes the environment before `main`. A file that cannot be mapped ends the
    // process.
    unsafe {
        let path = getenv(c"PAGEYARD_REACH".as_ptr());
        if !path.is_null() {
            let file = open(path, READ_WRITE);
            let table = mmap(null_mut(), LENGTH, READ_WRITE_PAGES, SHARED, file, 0);
            assert!(table as isize != -1, "PAGEYARD_REACH names no file of the right size");
            close(file);
            REACHED.store(table.cast(), Relaxed);
            CHOSEN.store(REACH, Relaxed);
            return;
        }
        let number = getenv(c"PAGEYARD_MUTANT".as_ptr());
        if !number.is_null() {
            CHOSEN.store(atoi(number) as u32, Relaxed);
        }
    }
}

