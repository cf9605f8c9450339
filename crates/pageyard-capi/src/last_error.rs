//! What the last error of a thread was, in words.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps a sentence for the calling thread.
pub(crate) fn set(text: &impl Display) {
    let text: Vec<u8> = text.to_string().into_bytes().into_iter().filter(|&b| b != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // Not while the thread ends: then nobody asks any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// What was wrong, in words, when a function last answered PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM or
/// PAGEYARD_ERR_KNOB on this thread: it names the option or setting. Empty where none did. Never null.
///
/// Threads: any, each has its own. Owner: the text is the library's, and lives until the thread ends or
/// another such error takes its place.
#[unsafe(no_mangle)]
pub extern "C" fn pageyard_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}
