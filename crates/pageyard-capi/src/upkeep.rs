//! What happens beside requests: who can do with less memory, who is told that it is short, limits,
//! and the file that a yard's memory is.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ::pageyard::{PAGE_SIZE, ReclaimJob};
use pageyard_capi_core::sized::{self, Growing, answer};
use pageyard_capi_core::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_OPTION,
    PAGEYARD_ERR_SYSTEM, pageyard_status, status,
};
use pageyard_host::{Limits, PressureEvent, Registration, Shrinker};

use crate::handle::{here, of, pageyard};
use crate::last_error;

/// Memory is not short.
pub const PAGEYARD_CALM: u32 = 0;
/// Caches had better shrink: use is above the soft limit, free memory below a LOW mark, the system
/// stalls, or the control group comes near its limits.
pub const PAGEYARD_MODERATE: u32 = 1;
/// Ordinary requests fail or are about to.
pub const PAGEYARD_CRITICAL: u32 = 2;

/// Somebody who keeps pages that can be had again: a cache, a buffer pool.
///
/// Owner: what `context` points to stays the caller's, and lives until pageyard_unregister has
/// returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_shrinker {
    /// sizeof(struct pageyard_shrinker).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// What both functions are given.
    pub context: *mut c_void,
    /// How many pages it could give up, about. Null: nobody knows, many.
    pub count: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Gives up about so many pages, by giving blocks back to the yard; returns how many it was.
    /// Called by the yard's thread, and by threads whose request (one with PAGEYARD_KERNEL) cannot be
    /// served: so it tries locks that its users may hold while they allocate, and does not wait for
    /// them. Its own requests never lead to another call.
    pub shrink: Option<unsafe extern "C" fn(context: *mut c_void, pages: u64) -> u64>,
}

// SAFETY: it begins with the two fields; zero is null, or no function.
unsafe impl Growing for pageyard_shrinker {
    const LEAST: usize = size_of::<pageyard_shrinker>();
}

/// What a yard's memory is like, and what was done about it ever since. All in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_upkeep {
    /// sizeof(struct pageyard_upkeep).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL, when the yard's thread last looked.
    pub level: u32,
    /// 1 where the yard's thread is at work.
    pub worker: u32,
    /// In use: handed out, or out of use.
    pub used: u64,
    /// Backed by the system, as far as the allocator knows.
    pub resident: u64,
    /// To stay backed at the moment.
    pub target: u64,
    /// The limits; UINT64_MAX where there is none.
    pub hard_limit: u64,
    /// See `hard_limit`.
    pub soft_limit: u64,
    /// Given back to the system.
    pub given_back: u64,
    /// Of these, fetched again.
    pub fetched: u64,
    /// Freed by shrinkers in the background.
    pub shrunk: u64,
    /// Freed by shrinkers on behalf of requests.
    pub shrunk_directly: u64,
}

// SAFETY: it begins with the two fields; the rest is numbers.
unsafe impl Growing for pageyard_upkeep {
    const LEAST: usize = size_of::<pageyard_upkeep>();
}

/// Something that is registered with a yard. Checked as the handle of a yard is, also after its end.
pub struct pageyard_registration(Body);

/// The word comes first, as in a yard's handle.
#[repr(C)]
struct Body {
    magic: AtomicU64,
    /// With the process that it was made in.
    inner: UnsafeCell<Option<(Arc<Gate>, Registration, u32)>>,
    /// The registration ended before this one.
    before: AtomicPtr<pageyard_registration>,
}

const _: () = assert!(offset_of!(pageyard_registration, 0) == 0 && offset_of!(Body, magic) == 0);

const MAGIC: u64 = u64::from_le_bytes(*b"pageyrdR");

/// Registrations that were ended; kept as destroyed yards are.
static ENDED: AtomicPtr<pageyard_registration> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// This thread is in a caller's function.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether a caller's functions may still be called. Held open while one is.
#[derive(Debug)]
struct Gate(RwLock<bool>);

impl Gate {
    fn pass<T>(&self, call: impl FnOnce() -> T) -> Option<T> {
        let open = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return None;
        }
        let was = INSIDE.replace(true);
        let answer = call();
        INSIDE.set(was);
        Some(answer)
    }

    /// Returns when no call is on its way any more.
    fn close(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// A caller's shrinker.
struct Called(pageyard_shrinker, Arc<Gate>);

// SAFETY: the header says which threads call the functions.
unsafe impl Send for Called {}
// SAFETY: as above.
unsafe impl Sync for Called {}

impl Shrinker for Called {
    fn count(&self) -> u64 {
        let Called(own, gate) = self;
        let ask = |count: unsafe extern "C" fn(*mut c_void) -> u64| {
            // SAFETY: the caller's function with the caller's context, which lives: the gate is open.
            gate.pass(|| unsafe { count(own.context) })
        };
        own.count.map_or(Some(u64::MAX), ask).unwrap_or(0)
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        let Called(own, gate) = self;
        let ask = |shrink: unsafe extern "C" fn(*mut c_void, u64) -> u64| {
            // SAFETY: as above.
            gate.pass(|| unsafe { shrink(own.context, job.pages) })
        };
        own.shrink.and_then(ask).unwrap_or(0)
    }
}

/// A caller's listener.
struct Told(unsafe extern "C" fn(*mut c_void, u32, u32), *mut c_void, Arc<Gate>);

// SAFETY: the header says which thread calls it.
unsafe impl Send for Told {}
// SAFETY: as above.
unsafe impl Sync for Told {}

impl Told {
    fn tell(&self, event: &PressureEvent) {
        let Told(told, context, gate) = self;
        // SAFETY: the caller's function with the caller's context, which lives: the gate is open.
        gate.pass(|| unsafe { told(*context, event.level as u32, event.before as u32) });
    }
}

/// # Safety
/// The pointer is null or to a place for the answer.
unsafe fn registered(
    to: *mut *mut pageyard_registration,
    register: impl FnOnce(Arc<Gate>) -> Registration,
) -> Result<(), pageyard_status> {
    if to.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    let gate = Arc::new(Gate(RwLock::new(true)));
    let registration = register(gate.clone());
    let handle = Box::new(pageyard_registration(Body {
        magic: AtomicU64::new(MAGIC),
        inner: UnsafeCell::new(Some((gate, registration, std::process::id()))),
        before: AtomicPtr::default(),
    }));
    // SAFETY: by the caller's word.
    unsafe { answer(to, Box::into_raw(handle)) }
}

/// Registers somebody who can do with fewer pages: asked in the background when a node's free memory
/// falls below the LOW mark or use rises above the soft limit, and by requests that are not served
/// otherwise. The structure is copied.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a shrinker without `shrink`;
/// PAGEYARD_ERR_VERSION.
///
/// Threads: any. Owner: the registration is the caller's until pageyard_unregister.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_register_shrinker(
    yard: *const pageyard,
    shrinker: *const pageyard_shrinker,
    registration: *mut *mut pageyard_registration,
) -> pageyard_status {
    // SAFETY: the header asks for a handle, a structure of its size, and a place for the answer.
    status(unsafe {
        here(yard).and_then(|inner| {
            let own = sized::read(shrinker)?;
            own.shrink.ok_or(PAGEYARD_ERR_ARGUMENT)?;
            registered(registration, |gate| inner.yard.register_shrinker(Called(own, gate)))
        })
    })
}

/// Registers a function that is told when memory becomes short or is not short any more: the level now
/// and the one before, PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL. Called by the yard's
/// thread, without any lock of the yard's: it may use the yard.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer other than `context`.
///
/// Threads: any. Owner: the registration is the caller's until pageyard_unregister; what `context`
/// points to stays the caller's, and lives until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_on_pressure(
    yard: *const pageyard,
    told: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, before: u32)>,
    context: *mut c_void,
    registration: *mut *mut pageyard_registration,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe {
        here(yard).and_then(|inner| {
            let told = told.ok_or(PAGEYARD_ERR_ARGUMENT)?;
            registered(registration, |gate| {
                let told = Told(told, context, gate);
                inner.yard.on_pressure(move |event| told.tell(event))
            })
        })
    })
}

/// Ends a registration. When this returns, its functions are not running on any thread, and are not
/// called any more. A yard may be destroyed before or after. The registration is known as ended for as
/// long as the program runs; that takes some dozen bytes.
///
/// Errors: PAGEYARD_ERR_HANDLE, also for one that was ended already; PAGEYARD_ERR_BUSY from within a
/// registered function, which this would wait for; nothing has changed then.
///
/// Threads: any, but one that holds no lock that the functions wait for. Owner: the registration is
/// gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_unregister(
    registration: *mut pageyard_registration,
) -> pageyard_status {
    if registration.is_null() || !registration.is_aligned() {
        return PAGEYARD_ERR_HANDLE;
    }
    // SAFETY: by the header's word it may be read; an atomic may be any bytes.
    let magic = unsafe { &(*registration).0.magic };
    if magic.load(Ordering::Relaxed) != MAGIC {
        return PAGEYARD_ERR_HANDLE;
    }
    if INSIDE.get() {
        return PAGEYARD_ERR_BUSY;
    }
    if magic.swap(0, Ordering::AcqRel) != MAGIC {
        return PAGEYARD_ERR_HANDLE;
    }
    // SAFETY: what had the word is one of `registered`, and no other call has seen the word with it.
    let own = unsafe { &(*registration).0 };
    // SAFETY: as above.
    if let Some((gate, registration, process)) = unsafe { &mut *own.inner.get() }.take() {
        drop(registration);
        // In a child after a fork nothing is called, and who is on the way there never arrives.
        if process == std::process::id() {
            gate.close();
        }
    }
    let keep = |before| {
        own.before.store(before, Ordering::Relaxed);
        Some(registration)
    };
    let _ = ENDED.fetch_update(Ordering::Release, Ordering::Relaxed, keep);
    status(Ok(()))
}

/// Sets the limits, in pages; UINT64_MAX: none. Above the hard limit nothing is handed out; above the
/// soft one shrinkers are asked for what is over. Where more is in use than the hard limit allows,
/// every request fails until enough was given back.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_OPTION for limits that cannot be: pageyard_last_error says
/// why, and nothing has changed.
///
/// Threads: any, but not a registered function. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_limits(
    yard: *const pageyard,
    hard: u64,
    soft: u64,
) -> pageyard_status {
    let some = |limit| (limit != u64::MAX).then_some(limit);
    // SAFETY: the header asks for a handle.
    status(unsafe { here(yard) }.and_then(|inner| {
        let limits = Limits { hard: some(hard), soft: some(soft) };
        inner.yard.set_limits(limits).map(drop).map_err(|e| {
            last_error::set(&e);
            PAGEYARD_ERR_OPTION
        })
    }))
}

/// Fills in how short memory is, and what was done about it.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose first
/// two fields are not set.
///
/// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_upkeep(
    yard: *const pageyard,
    upkeep: *mut pageyard_upkeep,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a structure of its size.
    status(unsafe { here(yard) }.and_then(|inner| {
        let (s, limits) = (inner.yard.status(), inner.yard.limits());
        let all = pageyard_upkeep {
            level: s.level as u32,
            worker: s.worker.into(),
            used: s.used,
            resident: s.resident,
            target: s.target,
            hard_limit: limits.hard.unwrap_or(u64::MAX),
            soft_limit: limits.soft.unwrap_or(u64::MAX),
            given_back: s.given_back,
            fetched: s.fetched,
            shrunk: s.shrunk,
            shrunk_directly: s.shrunk_directly,
            ..pageyard_upkeep::default()
        };
        // SAFETY: as above.
        unsafe { sized::write(upkeep, &all) }
    }))
}

/// Puts the descriptor of the file that the yard's memory is to `file`, for another process to map: a
/// yard made with PAGEYARD_MEMFD. A block lies pageyard_offset bytes behind its beginning.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM where the memory is not a
/// file.
///
/// Threads: any. Owner: the descriptor stays the yard's; who sends it duplicates it by that. Whoever
/// maps the file leaves alone what is not handed out to him: free pages are emptied at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_file(yard: *const pageyard, file: *mut c_int) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer, and says what others may do.
    status(unsafe {
        of(yard).and_then(|inner| {
            let fd = inner.yard.fd().ok_or_else(|| {
                last_error::set(&"the yard's memory is not a file (to fix: flag PAGEYARD_MEMFD)");
                PAGEYARD_ERR_SYSTEM
            })?;
            answer(file, fd.as_raw_fd())
        })
    })
}

/// Puts how many bytes behind the beginning of the yard's file a page lies to `offset`.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_MISALIGNED.
///
/// Threads: any. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_offset(
    yard: *const pageyard,
    page: *const c_void,
    offset: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe {
        of(yard).and_then(|inner| answer(offset, inner.frame_number(page)? * PAGE_SIZE))
    })
}
