//! The caller's lock functions.

use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::status::{PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_LOCKS, pageyard_status};

/// Storage of one lock, for the caller's lock functions. Initially all zero, which must mean
/// unlocked. The library may move an unlocked lock byte by byte, so it must not be linked into any
/// list then. The holder may store data in it, such as the interrupt state.
#[repr(C)]
#[derive(Debug)]
pub struct pageyard_lock {
    /// For use by the caller's lock functions.
    pub words: [u64; 2],
}

pub(crate) type Lock = unsafe extern "C" fn(*mut pageyard_lock);
pub(crate) type TryLock = unsafe extern "C" fn(*mut pageyard_lock) -> i32;

// The methods of `RawMutex` receive only the lock itself, and locks are created before a table
// could be stored in them. So the lock functions are global to the program.
static LOCK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static TRY_LOCK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
static UNLOCK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());
/// Whether the functions above are set.
static STATE: AtomicU32 = AtomicU32::new(UNDECIDED);
const UNDECIDED: u32 = 0;
const DECIDING: u32 = 1;
const DECIDED: u32 = 2;

/// Sets the lock functions for all yards of the program.
///
/// # Errors
/// Fails if only some of the functions are given, or if a yard already uses others.
pub(crate) fn decide(
    lock: Option<Lock>,
    try_lock: Option<TryLock>,
    unlock: Option<Lock>,
) -> Result<(), pageyard_status> {
    let functions = match (lock, try_lock, unlock) {
        (Some(lock), Some(try_lock), Some(unlock)) => {
            [lock as *mut (), try_lock as *mut (), unlock as *mut ()]
        }
        (None, None, None) => [ptr::null_mut(); 3],
        _ => return Err(PAGEYARD_ERR_ARGUMENT),
    };
    let places = [&LOCK, &TRY_LOCK, &UNLOCK];
    loop {
        let claim =
            STATE.compare_exchange(UNDECIDED, DECIDING, Ordering::Acquire, Ordering::Acquire);
        match claim {
            Ok(_) => {
                for (place, function) in places.into_iter().zip(functions) {
                    place.store(function, Ordering::Relaxed);
                }
                STATE.store(DECIDED, Ordering::Release);
                return Ok(());
            }
            Err(DECIDED) => {
                let same = |(place, function): (&AtomicPtr<()>, *mut ())| {
                    place.load(Ordering::Relaxed) == function
                };
                let all = places.into_iter().zip(functions).all(same);
                return if all { Ok(()) } else { Err(PAGEYARD_ERR_LOCKS) };
            }
            Err(_) => core::hint::spin_loop(),
        }
    }
}

#[inline(always)]
pub(super) fn lock() -> Option<Lock> {
    // SAFETY: null, or what `decide` made from a function of this type
    // (`hooks_and_callbacks_may_call_the_library` counts what is held by its own).
    unsafe { transmute::<*mut (), Option<Lock>>(read(&LOCK)) }
}

#[inline(always)]
pub(super) fn try_lock() -> Option<TryLock> {
    // SAFETY: as in `lock`.
    unsafe { transmute::<*mut (), Option<TryLock>>(read(&TRY_LOCK)) }
}

#[inline(always)]
pub(super) fn unlock() -> Option<Lock> {
    // SAFETY: as in `lock`.
    unsafe { transmute::<*mut (), Option<Lock>>(read(&UNLOCK)) }
}

#[inline(always)]
fn read(function: &AtomicPtr<()>) -> *mut () {
    if cfg!(feature = "interrupt-lock") {
        return ptr::null_mut();
    }
    function.load(Ordering::Relaxed)
}
