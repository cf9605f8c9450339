//! Message of a thread's last call.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char};
use std::fmt::Display;

use pageyard_capi_core::status::{pageyard_status, pageyard_strerror, status};

/// What the message of a thread's last call is.
#[derive(Clone, Copy)]
enum Last {
    /// It succeeded.
    Nothing,
    /// The call under way has failed, and its message is in [`TEXT`].
    New,
    /// It failed, and its message is in [`TEXT`].
    Text,
    /// It failed without a message of its own.
    Status(pageyard_status),
}

thread_local! {
    // Apart from the text, because it needs no destructor, and so no check at each call.
    static LAST: Cell<Last> = const { Cell::new(Last::Nothing) };
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// Stores a message for the calling thread, whose call is about to fail.
pub(crate) fn set(text: &impl Display) {
    let text: Vec<u8> = text.to_string().into_bytes().into_iter().filter(|&b| b != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // Fails while the thread exits. Then the status' own sentence remains.
    if TEXT.try_with(|last| *last.borrow_mut() = text).is_ok() {
        LAST.set(Last::New);
    }
}

/// Ends a call: converts its result to a status, and keeps or clears the message. Every function
/// that returns a status ends by it.
#[inline]
pub(crate) fn done(result: Result<(), pageyard_status>) -> pageyard_status {
    LAST.set(match (result, LAST.get()) {
        (Ok(()), _) => Last::Nothing,
        (Err(_), Last::New) => Last::Text,
        (Err(e), _) => Last::Status(e),
    });
    status(result)
}

/// Returns a message about the calling thread's last call of a function of pageyard.h that returns a
/// status: empty if it succeeded, otherwise a sentence. It names the option, setting or argument that
/// is wrong, with its value; where there is none, it is that of pageyard_strerror. Never null.
/// Functions of pageyard_core.h change nothing.
///
/// Threads: any; each thread has its own message. Owner: the library owns the text, which lives
/// until the thread exits or its next call that fails.
#[unsafe(no_mangle)]
pub extern "C" fn pageyard_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    match LAST.get() {
        Last::Nothing => NOTHING.as_ptr(),
        Last::Status(e) => pageyard_strerror(e),
        Last::New | Last::Text => {
            TEXT.try_with(|last| last.borrow().as_ptr()).unwrap_or(NOTHING.as_ptr())
        }
    }
}
