//! Versioned structures from C, which begin with their size and version.

use core::mem::{MaybeUninit, size_of};
use core::ptr;

use crate::flags::PAGEYARD_VERSION;
use crate::status::{PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, pageyard_status};

/// A structure that later versions may extend at its end.
///
/// # Safety
/// It begins with its size and version, 32 bits each, and is at least `LEAST` bytes long. All zero
/// bytes are a valid value, in which a zero field means "not set".
pub unsafe trait Growing: Copy {
    /// Length in the first version of the interface: the end of what was its last field then. It does not
    /// change when the structure grows.
    const LEAST: usize;
}

/// Reads a structure whose caller may know more or fewer fields. Fields that the caller does not
/// know are zero; fields that this library does not know must be zero.
///
/// # Safety
/// The pointer must be null or point to a structure of the size in its first field.
pub unsafe fn read<T: Growing>(from: *const T) -> Result<T, pageyard_status> {
    let mut own = MaybeUninit::<T>::uninit();
    // SAFETY: guaranteed by the caller. On success the value is written.
    unsafe {
        read_to(from, own.as_mut_ptr())?;
        Ok(own.assume_init())
    }
}

/// Like [`read`], but writes the structure to its place, which saves stack.
///
/// # Safety
/// As for [`read`]; `to` must be writable.
pub unsafe fn read_to<T: Growing>(from: *const T, to: *mut T) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { check(from) }?;
    // SAFETY: both are at least this long, and one is ours. The rest is zero, which is a valid value
    // (`Growing`; `an_older_caller_leaves_the_rest_zero`).
    unsafe {
        let bytes = size.min(size_of::<T>());
        to.write_bytes(0, 1);
        ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes);
    }
    Ok(())
}

/// Checks the first two fields of a structure. Returns the size.
///
/// # Safety
/// The pointer must be null or point to these two fields.
#[inline(always)]
unsafe fn size_of_head<T: Growing>(from: *const T) -> Result<usize, pageyard_status> {
    if from.is_null() || !from.is_aligned() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: guaranteed by the caller (`wrong_sizes_and_versions_are_refused` has nothing after
    // them).
    let [size, version] = unsafe { from.cast::<[u32; 2]>().read() };
    let size = size as usize;
    // A bound on the size, which may be garbage.
    if version != PAGEYARD_VERSION || size < T::LEAST || size > 16 * size_of::<T>() {
        return Err(PAGEYARD_ERR_VERSION);
    }
    Ok(size)
}

/// Checks the size and version of a structure, and that fields that this library does not know are zero.
/// Returns the size. For a structure that is used where it lies, only fields of its first version may
/// be used then.
///
/// # Safety
/// As for [`read`].
#[inline(always)]
pub(crate) unsafe fn check<T: Growing>(from: *const T) -> Result<usize, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { size_of_head(from) }?;
    for at in size_of::<T>()..size {
        // SAFETY: within the size that the caller stated
        // (`a_newer_caller_may_not_ask_for_what_is_unknown`).
        if unsafe { from.cast::<u8>().add(at).read() } != 0 {
            return Err(PAGEYARD_ERR_VERSION);
        }
    }
    Ok(size)
}

/// Writes a structure for a caller that may know more or fewer fields. Writes as much as the
/// caller's size allows, keeps the caller's size and version, and zeroes fields that this library
/// does not know.
///
/// # Safety
/// The pointer must be null or point to a writable structure of the size in its first field.
pub unsafe fn write<T: Growing>(to: *mut T, value: &T) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller.
    let size = unsafe { size_of_head(to) }?;
    let (head, own) = (size_of::<[u32; 2]>(), size_of::<T>().min(size));
    // SAFETY: within both structures. They cannot overlap, because one is ours and one the caller's
    // (`an_answer_fits_its_reader`).
    unsafe {
        let from = ptr::from_ref(value).cast::<u8>().add(head);
        ptr::copy_nonoverlapping(from, to.cast::<u8>().add(head), own - head);
        ptr::write_bytes(to.cast::<u8>().add(own), 0, size - own);
    }
    Ok(())
}

/// Stores a result, or fails if the pointer is null.
///
/// # Safety
/// The pointer must be null or writable.
#[inline]
pub unsafe fn answer<T>(to: *mut T, value: T) -> Result<(), pageyard_status> {
    if to.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: the caller guarantees that it is writable. The write is unaligned because a C caller
    // may pass a misaligned pointer (`misuse_is_an_error` passes an odd address).
    unsafe { to.write_unaligned(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Old {
        size: u32,
        version: u32,
        a: u64,
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct New {
        size: u32,
        version: u32,
        a: u64,
        b: u64,
    }

    // SAFETY: the size and version are followed by numbers only.
    unsafe impl Growing for Old {
        const LEAST: usize = 16;
    }
    // SAFETY: as above.
    unsafe impl Growing for New {
        const LEAST: usize = 16;
    }

    #[test]
    fn an_older_caller_leaves_the_rest_zero() {
        let old = Old { size: 16, version: 1, a: 7 };
        // SAFETY: the structure has the size that it states.
        let new = unsafe { read::<New>((&raw const old).cast()) }.unwrap();
        assert_eq!((new.a, new.b), (7, 0));
    }

    #[test]
    fn a_newer_caller_may_not_ask_for_what_is_unknown() {
        let mut new = New { size: 24, version: 1, a: 7, b: 0 };
        // SAFETY: the structure has the size that it states.
        let old = || unsafe { read::<Old>((&raw const new).cast()) };
        assert_eq!(old().unwrap().a, 7);
        new.b = 1;
        // SAFETY: the structure has the size that it states.
        assert_eq!(unsafe { read::<Old>((&raw const new).cast()) }, Err(PAGEYARD_ERR_VERSION));
    }

    #[test]
    fn wrong_sizes_and_versions_are_refused() {
        for (size, version) in [(8, 1), (0, 1), (16, 0), (16, 2), (1 << 20, 1)] {
            let old = Old { size, version, a: 0 };
            // SAFETY: refused before anything after the two fields is read.
            assert_eq!(unsafe { read::<Old>(&raw const old) }, Err(PAGEYARD_ERR_VERSION));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read::<Old>(ptr::null()) }, Err(PAGEYARD_ERR_ARGUMENT));
    }

    #[test]
    fn an_answer_fits_its_reader() {
        let value = New { size: 0, version: 0, a: 3, b: 4 };
        let mut room = [Old { size: 16, version: 1, a: 0 }, Old { size: 9, version: 9, a: 9 }];
        // SAFETY: the structure has the size that it states.
        unsafe { write::<New>(room.as_mut_ptr().cast(), &value) }.unwrap();
        assert_eq!(room[0], Old { size: 16, version: 1, a: 3 });
        assert_eq!(room[1].a, 9, "nothing behind it is touched");
        let mut wide = New { size: 24, version: 1, a: 0, b: 9 };
        // SAFETY: the structure has the size that it states.
        unsafe { write::<Old>((&raw mut wide).cast(), &Old { size: 0, version: 0, a: 5 }) }
            .unwrap();
        assert_eq!(wide, New { size: 24, version: 1, a: 5, b: 0 });
    }
}
