//! Status numbers that functions return.

use core::ffi::{CStr, c_char};

use pageyard::{
    AllocError, BalloonError, ContigError, FreeError, HotplugError, ReleaseError, ScatterError,
    ShootdownError,
};

/// Result of a function: PAGEYARD_OK, or a negative PAGEYARD_ERR number. Unless a function says
/// otherwise, an error leaves everything unchanged. The meaning of a number never changes; later
/// versions may add numbers.
pub type pageyard_status = i32;

/// Success.
pub const PAGEYARD_OK: pageyard_status = 0;
/// The handle is null, misaligned or destroyed.
pub const PAGEYARD_ERR_HANDLE: pageyard_status = -1;
/// A required pointer is null, or a number is out of range.
pub const PAGEYARD_ERR_ARGUMENT: pageyard_status = -2;
/// The structure's size or version is unknown to this library, or a field that it does not know is
/// set.
pub const PAGEYARD_ERR_VERSION: pageyard_status = -3;
/// An option has an invalid value. pageyard_last_error names the option.
pub const PAGEYARD_ERR_OPTION: pageyard_status = -4;
/// The operating system refused an operation. pageyard_last_error describes it.
pub const PAGEYARD_ERR_SYSTEM: pageyard_status = -5;
/// The layout is invalid.
pub const PAGEYARD_ERR_LAYOUT: pageyard_status = -6;
/// The room is smaller than pageyard_core_room requires.
pub const PAGEYARD_ERR_ROOM: pageyard_status = -7;
/// Another yard of this program uses other lock functions. All yards must use the same.
pub const PAGEYARD_ERR_LOCKS: pageyard_status = -8;
/// The text did not fit in the buffer.
pub const PAGEYARD_ERR_BUFFER: pageyard_status = -9;
/// There is no free block that the request may use.
pub const PAGEYARD_ERR_NO_MEMORY: pageyard_status = -10;
/// The flags of the request contradict each other.
pub const PAGEYARD_ERR_FLAGS: pageyard_status = -11;
/// The calling CPU is unknown to the yard or offline.
pub const PAGEYARD_ERR_CPU: pageyard_status = -12;
/// There is no such node or zone.
pub const PAGEYARD_ERR_NODE: pageyard_status = -13;
/// This library was built without the packed engine. scripts/install-capi.sh --packed builds it in.
pub const PAGEYARD_ERR_ENGINE: pageyard_status = -14;
/// The packed engine does not have what was requested: hooks and flags that check, fill or unmap
/// memory, or guards. PAGEYARD_ENGINE_LINUX612 has them.
pub const PAGEYARD_ERR_NOT_ON_PACKED: pageyard_status = -15;
/// The caller's array has no room for another entry.
pub const PAGEYARD_ERR_FULL: pageyard_status = -16;
/// The block does not belong to this yard.
pub const PAGEYARD_ERR_FOREIGN: pageyard_status = -20;
/// The frame is a hole, or was never managed by the allocator.
pub const PAGEYARD_ERR_RESERVED: pageyard_status = -21;
/// The block is already free, or a frame of the range was already released.
pub const PAGEYARD_ERR_DOUBLE_FREE: pageyard_status = -22;
/// The address or frame number is not a multiple of the block's size.
pub const PAGEYARD_ERR_MISALIGNED: pageyard_status = -23;
/// The block was allocated at another order.
pub const PAGEYARD_ERR_WRONG_ORDER: pageyard_status = -24;
/// The frame is inside a block, not at its start.
pub const PAGEYARD_ERR_NOT_HEAD: pageyard_status = -25;
/// The block is out of use because one of its pages is bad or faulty.
pub const PAGEYARD_ERR_OUT_OF_USE: pageyard_status = -26;
/// A frame of the range was not reserved when the yard was created.
pub const PAGEYARD_ERR_NOT_RESERVED: pageyard_status = -27;
/// The range is invalid: empty, across zone boundaries, not in whole sections, or with memory that
/// is unexpectedly present or absent.
pub const PAGEYARD_ERR_RANGE: pageyard_status = -30;
/// A frame of the range is in use and cannot be migrated; pageyard_unregister or pageyard_destroy was
/// called from a registered function; or a hook or interrupt handler used the batch or balloon of the call that it
/// is in.
pub const PAGEYARD_ERR_BUSY: pageyard_status = -31;
/// A CPU has not acknowledged the epoch yet.
pub const PAGEYARD_ERR_PENDING: pageyard_status = -32;
/// The batch or the block is in another phase: the batch waits for an epoch and takes no block, none was
/// begun for it, or the block was not asked back.
pub const PAGEYARD_ERR_PHASE: pageyard_status = -33;
/// The block is not in the balloon.
pub const PAGEYARD_ERR_NOT_LENT: pageyard_status = -34;
/// There is no such setting, it cannot be read or written, or the value is not allowed.
pub const PAGEYARD_ERR_KNOB: pageyard_status = -40;
/// An invariant of the yard does not hold: a caller or a hook has corrupted it.
pub const PAGEYARD_ERR_INVALID: pageyard_status = -41;

/// Returns an English sentence for a status, without a newline. Never returns null; an unknown
/// number has a sentence too.
///
/// Threads: any. Owner: the library owns the text, which is constant and lives as long as the
/// library is loaded.
#[unsafe(no_mangle)]
pub extern "C" fn pageyard_strerror(status: pageyard_status) -> *const c_char {
    message(status).as_ptr()
}

pub(crate) fn message(status: pageyard_status) -> &'static CStr {
    match status {
        PAGEYARD_OK => c"done",
        PAGEYARD_ERR_HANDLE => c"the handle is null, misaligned, or of something destroyed",
        PAGEYARD_ERR_ARGUMENT => c"a pointer is null, or a number out of its range",
        PAGEYARD_ERR_VERSION => {
            c"a structure's size, version or fields are not those of this library's version"
        }
        PAGEYARD_ERR_OPTION => c"an option has a value that it cannot have",
        PAGEYARD_ERR_SYSTEM => c"the system refused",
        PAGEYARD_ERR_LAYOUT => c"the layout is invalid",
        PAGEYARD_ERR_ROOM => c"the room given is smaller than the layout needs",
        PAGEYARD_ERR_LOCKS => c"another yard of this program uses other lock functions",
        PAGEYARD_ERR_BUFFER => c"the text did not fit into the buffer",
        PAGEYARD_ERR_NO_MEMORY => c"no zone has a free block that the request may use",
        PAGEYARD_ERR_FLAGS => c"the request's flags contradict each other",
        PAGEYARD_ERR_CPU => {
            c"the yard does not know the CPU, or the CPU is not in the state that the call needs"
        }
        PAGEYARD_ERR_NODE => c"there is no such node or zone",
        PAGEYARD_ERR_ENGINE => {
            c"the library was built without the packed engine; install-capi.sh --packed includes it"
        }
        PAGEYARD_ERR_NOT_ON_PACKED => {
            c"the packed engine cannot check, fill, unmap or guard pages; use PAGEYARD_ENGINE_LINUX612"
        }
        PAGEYARD_ERR_FULL => c"the caller's array has no room for another entry",
        PAGEYARD_ERR_FOREIGN => c"the block is not of this yard",
        PAGEYARD_ERR_RESERVED => c"the frame is a hole, or was never given to the allocator",
        PAGEYARD_ERR_DOUBLE_FREE => c"the block is free already",
        PAGEYARD_ERR_MISALIGNED => c"the block's start is not a multiple of its size",
        PAGEYARD_ERR_WRONG_ORDER => c"the block was allocated at another order",
        PAGEYARD_ERR_NOT_HEAD => c"the frame lies inside a block, not at its start",
        PAGEYARD_ERR_OUT_OF_USE => c"the block is out of use, bad or faulty",
        PAGEYARD_ERR_NOT_RESERVED => c"a frame of the range was not reserved at the start",
        PAGEYARD_ERR_RANGE => c"the range means nothing here",
        PAGEYARD_ERR_BUSY => {
            c"in use: a frame that cannot be moved away, or a function that is running"
        }
        PAGEYARD_ERR_PENDING => c"a CPU has not acknowledged the epoch yet",
        PAGEYARD_ERR_PHASE => {
            c"the batch waits for its epoch, or has none yet, or the block was not asked back"
        }
        PAGEYARD_ERR_NOT_LENT => c"the block is not in the balloon",
        PAGEYARD_ERR_KNOB => c"no such setting, or not readable, or not to be set to this",
        PAGEYARD_ERR_INVALID => c"an invariant of the yard does not hold",
        _ => c"an unknown status",
    }
}

/// Returns the status for a failed request.
pub fn of_alloc(error: AllocError) -> pageyard_status {
    match error {
        AllocError::NoMemory => PAGEYARD_ERR_NO_MEMORY,
        AllocError::BadZone | AllocError::BadType => PAGEYARD_ERR_FLAGS,
        AllocError::UnknownCpu(_) => PAGEYARD_ERR_CPU,
        AllocError::UnknownNode(_) => PAGEYARD_ERR_NODE,
    }
}

/// Returns the status for a block that could not be freed.
pub fn of_free(error: FreeError) -> pageyard_status {
    match error {
        FreeError::Foreign => PAGEYARD_ERR_FOREIGN,
        FreeError::Reserved => PAGEYARD_ERR_RESERVED,
        FreeError::DoubleFree => PAGEYARD_ERR_DOUBLE_FREE,
        FreeError::Misaligned => PAGEYARD_ERR_MISALIGNED,
        FreeError::WrongOrder { .. } => PAGEYARD_ERR_WRONG_ORDER,
        FreeError::NotHead { .. } => PAGEYARD_ERR_NOT_HEAD,
        FreeError::OutOfUse => PAGEYARD_ERR_OUT_OF_USE,
        FreeError::UnknownCpu(_) => PAGEYARD_ERR_CPU,
    }
}

/// Returns the status for a range that could not be allocated.
pub fn of_contig(error: ContigError) -> pageyard_status {
    match error.errno() {
        -16 => PAGEYARD_ERR_BUSY,
        -12 => PAGEYARD_ERR_NO_MEMORY,
        _ => PAGEYARD_ERR_RANGE,
    }
}

/// Returns the status for pages that could not be allocated.
pub(crate) fn of_scatter(error: ScatterError) -> pageyard_status {
    match error {
        ScatterError::Alloc(e) => of_alloc(e),
        ScatterError::TooManyRanges => PAGEYARD_ERR_FULL,
    }
}

/// Returns the status for a batch that did not take or free a block.
pub(crate) fn of_shootdown(error: ShootdownError) -> pageyard_status {
    match error {
        ShootdownError::Full => PAGEYARD_ERR_FULL,
        ShootdownError::Waiting | ShootdownError::NotBegun => PAGEYARD_ERR_PHASE,
        ShootdownError::Pending => PAGEYARD_ERR_PENDING,
        ShootdownError::Free(e) => of_free(e),
        ShootdownError::Batch(e) => of_free(e.error),
    }
}

/// Returns the status for a block that did not return from a balloon.
pub(crate) fn of_balloon(error: BalloonError) -> pageyard_status {
    match error {
        BalloonError::Unknown(_) => PAGEYARD_ERR_NOT_LENT,
        BalloonError::NotAsked(_) => PAGEYARD_ERR_PHASE,
        BalloonError::Free(e) => of_free(e),
    }
}

/// Returns the status for failed memory hotplug.
pub fn of_hotplug(error: HotplugError) -> pageyard_status {
    match error {
        HotplugError::Refused(e) => of_contig(e),
        _ => PAGEYARD_ERR_RANGE,
    }
}

/// Returns the status for reserved memory that could not be released.
pub fn of_release(error: ReleaseError) -> pageyard_status {
    match error {
        ReleaseError::OutsideZone(_) => PAGEYARD_ERR_FOREIGN,
        ReleaseError::NotReserved(_) => PAGEYARD_ERR_NOT_RESERVED,
        ReleaseError::AlreadyReleased(_) => PAGEYARD_ERR_DOUBLE_FREE,
        ReleaseError::EmptyRange
        | ReleaseError::Hole(_)
        | ReleaseError::Deferred
        | ReleaseError::Nested => PAGEYARD_ERR_RANGE,
    }
}

/// The answer of a function: a status, or a result with one.
pub(crate) trait Answer {
    fn status(self) -> pageyard_status;
}

impl Answer for pageyard_status {
    #[inline(always)]
    fn status(self) -> pageyard_status {
        self
    }
}

impl Answer for Result<(), pageyard_status> {
    #[inline(always)]
    fn status(self) -> pageyard_status {
        status(self)
    }
}

/// Converts a result to a status.
pub fn status(result: Result<(), pageyard_status>) -> pageyard_status {
    match result {
        Ok(()) => PAGEYARD_OK,
        Err(status) => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_own_message() {
        let unknown = message(-1000);
        let known: std::vec::Vec<_> =
            (-100..=0).map(message).filter(|&text| text != unknown).collect();
        assert_eq!(known.len(), 32);
        let distinct: std::collections::BTreeSet<_> = known.iter().collect();
        assert_eq!(distinct.len(), known.len());
        assert_eq!(message(1), unknown);
    }
}
