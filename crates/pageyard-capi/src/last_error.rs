//! Message of a thread's last error.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Stores a message for the calling thread.
pub(crate) fn set(text: &impl Display) {
    let text: Vec<u8> = text.to_string().into_bytes().into_iter().filter(|&b| b != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // Fails while the thread exits. The message is not needed then.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Returns the message of this thread's last PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM or
/// PAGEYARD_ERR_KNOB. It names the option or setting. Empty if there was no such error; never null.
///
/// Threads: any; each thread has its own message. Owner: the library owns the text, which lives
/// until the thread exits or its next such error.
#[unsafe(no_mangle)]
pub extern "C" fn pageyard_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
}
