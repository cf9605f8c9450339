//! Handles memory exhaustion like any other error: prints a message, leaves no partial file behind,
//! and exits with code 2. The standard library would abort.
//!
//! The memory use of commands is bounded (docs/limits.md); this is for limits of the system
//! (`ulimit -v`).
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::output;

/// The command line, for the message when nothing can be allocated any more.
static COMMAND: OnceLock<String> = OnceLock::new();

/// Stores the command line.
pub(crate) fn named(command: String) {
    let _ = COMMAND.set(command);
}

/// The system's allocator, except that it ends the program when it is out of memory.
pub(crate) struct OrEnd;

// SAFETY: every call is passed to the system allocator with the caller's arguments. A null pointer
// is never returned, which the contract allows.
unsafe impl GlobalAlloc for OrEnd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract is the same.
        some(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        some(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the block came from the system's allocator.
        some(unsafe { System.realloc(ptr, layout, size) }, size)
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[inline(always)]
fn some(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() { end(size) } else { block }
}

/// Prints how much memory was requested, and ends the program. Allocates nothing.
#[cold]
fn end(size: usize) -> ! {
    static ENDING: AtomicBool = AtomicBool::new(false);
    if !ENDING.swap(true, Ordering::Relaxed) {
        let command = COMMAND.get().map_or("pageyard", String::as_str);
        let mut text = [0; 4096];
        let room = text.len();
        let mut rest = &mut text[..];
        // A command that is too long is truncated.
        let _ = write!(rest, "pageyard: out of memory: cannot allocate {size} bytes; ");
        let _ = write!(rest, "raise the memory limit (ulimit -v) or reduce the input: {command}");
        let used = room - rest.len();
        let _ = std::io::stderr().write_all(&text[..used.min(room - 1)]);
        let _ = std::io::stderr().write_all(b"\n");
        output::drop_unfinished_if_free();
    }
    std::process::exit(2)
}
