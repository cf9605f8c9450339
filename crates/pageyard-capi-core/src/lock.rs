//! The lock of the core in C: the caller's functions on words of the library, or a spin lock
//! without them.

use core::cell::UnsafeCell;
use core::mem::transmute;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use lock_api::{GuardSend, RawMutex};

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

type Lock = unsafe extern "C" fn(*mut pageyard_lock);
type TryLock = unsafe extern "C" fn(*mut pageyard_lock) -> i32;

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

/// One lock of a yard.
#[derive(Debug)]
pub struct CLock {
    room: UnsafeCell<pageyard_lock>,
}

// SAFETY: a lock is made to be shared; only the lock functions access its contents.
unsafe impl Sync for CLock {}
// SAFETY: as above.
unsafe impl Send for CLock {}

impl CLock {
    /// The word of the library's own spin lock.
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the storage is aligned for it and lives as long as the lock. Without functions of
        // the caller it is accessed only as an atomic.
        unsafe { AtomicU64::from_ptr(self.room.get().cast()) }
    }

    fn take(&self) -> bool {
        let word = self.word();
        word.load(Ordering::Relaxed) == 0
            && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

// SAFETY: without functions of the caller, a compare-and-exchange sets the word from 0 to 1 and the
// holder resets it, so there is one holder at a time. With them, the header requires mutual
// exclusion.
unsafe impl RawMutex for CLock {
    #[allow(clippy::declare_interior_mutable_const)] // required by `lock_api`
    const INIT: Self = CLock { room: UnsafeCell::new(pageyard_lock { words: [0; 2] }) };
    type GuardMarker = GuardSend;

    #[inline]
    fn lock(&self) {
        // SAFETY: null, or what `decide` made from a function of this type
        // (`hooks_and_callbacks_may_call_the_library` counts what is held by its own).
        let lock = unsafe { transmute::<*mut (), Option<Lock>>(LOCK.load(Ordering::Relaxed)) };
        match lock {
            // SAFETY: the caller's function, on a live lock.
            Some(lock) => unsafe { lock(self.room.get()) },
            None => {
                while !self.take() {
                    core::hint::spin_loop();
                }
            }
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let function = TRY_LOCK.load(Ordering::Relaxed);
        // SAFETY: as in `lock`.
        match unsafe { transmute::<*mut (), Option<TryLock>>(function) } {
            // SAFETY: as in `lock`.
            Some(try_lock) => unsafe { try_lock(self.room.get()) != 0 },
            None => self.take(),
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: as in `lock`.
        let unlock = unsafe { transmute::<*mut (), Option<Lock>>(UNLOCK.load(Ordering::Relaxed)) };
        match unlock {
            // SAFETY: as in `lock`; the caller of `unlock` holds the lock.
            Some(unlock) => unsafe { unlock(self.room.get()) },
            None => self.word().store(0, Ordering::Release),
        }
    }
}
