//! Maintenance outside requests: shrinkers, pressure notifications, limits, and the file behind a
//! yard's memory.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use ::pageyard::{PAGE_SIZE, ReclaimJob, Relocation};
use pageyard_capi_core::platform::{PAGEYARD_MOVE_BUSY, PAGEYARD_MOVED};
use pageyard_capi_core::sized::Growing;
use pageyard_capi_core::status::{
    PAGEYARD_ERR_BUSY, PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM, pageyard_status,
};
use pageyard_host::{Limits, Moving, PressureEvent, Registration, Relocator, Shrinker};

use crate::argument::{self, answer, null, required};
use crate::gate::{self, Gate};
use crate::handle::{here, of, pageyard, with_yard};
use crate::kept::{Contents, Kept};
use crate::last_error::{self, done};

/// Memory is not short.
pub const PAGEYARD_CALM: u32 = 0;
/// Caches should shrink: use is above the soft limit, free memory is below a low watermark, the
/// system stalls, or the control group approaches its limits.
pub const PAGEYARD_MODERATE: u32 = 1;
/// Ordinary requests fail, or are about to fail.
pub const PAGEYARD_CRITICAL: u32 = 2;

/// A shrinker: callbacks of a user of pages that it can free under memory pressure, such as a cache
/// or a buffer pool.
///
/// Owner: what `context` points to stays the caller's and must live until pageyard_unregister has
/// returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_shrinker {
    /// sizeof(struct pageyard_shrinker).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Passed to both functions.
    pub context: *mut c_void,
    /// Returns about how many pages could be freed. Null: unknown, treated as many.
    pub count: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Frees about `pages` pages by freeing blocks to the yard, and returns the number freed. It is
    /// called by the yard's thread, and by threads whose PAGEYARD_KERNEL request cannot be served.
    /// It must only try-lock locks that its users may hold while they allocate. Its own requests
    /// never call a shrinker of this yard. Its requests of another yard may call that yard's
    /// shrinkers, from within this function.
    pub shrink: Option<unsafe extern "C" fn(context: *mut c_void, pages: u64) -> u64>,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer or no function.
unsafe impl Growing for pageyard_shrinker {
    const LEAST: usize = offset_of!(Self, shrink) + size_of::<usize>();
}

/// State of a yard's memory, and totals of its maintenance since creation. All figures are in
/// pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_upkeep {
    /// sizeof(struct pageyard_upkeep).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL, at the last check of the yard's
    /// thread.
    pub level: u32,
    /// 1 if the yard's thread is running.
    pub worker: u32,
    /// Pages in use: allocated, or out of use.
    pub used: u64,
    /// Pages backed by the system, as far as the allocator knows.
    pub resident: u64,
    /// Current target for the number of backed pages.
    pub target: u64,
    /// Hard limit; UINT64_MAX if there is none.
    pub hard_limit: u64,
    /// Soft limit; UINT64_MAX if there is none.
    pub soft_limit: u64,
    /// Pages returned to the system.
    pub given_back: u64,
    /// Returned pages that were later backed again.
    pub fetched: u64,
    /// Pages freed by shrinkers in the background.
    pub shrunk: u64,
    /// Pages freed by shrinkers on behalf of requests.
    pub shrunk_directly: u64,
}

// SAFETY: the structure begins with the two fields; the rest is numbers.
unsafe impl Growing for pageyard_upkeep {
    const LEAST: usize = offset_of!(Self, shrunk_directly) + size_of::<u64>();
}

/// A relocator: a callback of an owner of blocks that it can move, which compaction and contiguous
/// ranges call.
///
/// Owner: what `context` points to stays the caller's and must live until pageyard_unregister has
/// returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_relocator {
    /// sizeof(struct pageyard_relocator).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Passed to the function.
    pub context: *mut c_void,
    /// Moves the block of 2^order pages at `from` to `to`, which is free memory of the same size: copies
    /// the bytes and makes its owner use `to`. Returns PAGEYARD_MOVED; PAGEYARD_MOVE_BUSY to be asked
    /// again; PAGEYARD_MOVE_REFUSED if the block is not the caller's, also if it is of another order by
    /// now. The owner may just have freed the block, so look it up under the owner's own lock, which
    /// must only be try-locked if its users may hold it while they allocate. After PAGEYARD_MOVED,
    /// nothing may access or free `from`.
    pub relocate: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            from: *mut c_void,
            to: *mut c_void,
            order: u32,
        ) -> i32,
    >,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer or no function.
unsafe impl Growing for pageyard_relocator {
    const LEAST: usize = offset_of!(Self, relocate) + size_of::<usize>();
}

/// A registered shrinker, relocator or pressure callback. Checked like the handle of a yard, also after it has
/// ended.
pub struct pageyard_registration(
    #[expect(dead_code, reason = "accessed as `Kept`")] Kept<Registered>,
);

/// Contents of a registration.
struct Registered {
    gate: Arc<Gate>,
    registration: Registration,
    /// Id of the process that created it.
    process: u32,
}

impl Contents for Registered {
    const MAGIC: u64 = u64::from_le_bytes(*b"pageyrdR");

    fn ended() -> &'static AtomicPtr<Kept<Registered>> {
        static ENDED: AtomicPtr<Kept<Registered>> = AtomicPtr::new(std::ptr::null_mut());
        &ENDED
    }
}

/// A shrinker of the caller.
struct Called(pageyard_shrinker, Arc<Gate>);

// SAFETY: the header states which threads call the functions.
unsafe impl Send for Called {}
// SAFETY: as above.
unsafe impl Sync for Called {}

impl Shrinker for Called {
    fn count(&self) -> u64 {
        let Called(own, gate) = self;
        let ask = |count: unsafe extern "C" fn(*mut c_void) -> u64| {
            // SAFETY: the caller's function with its context, which is live because the gate is
            // open.
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

/// A relocator of the caller.
struct Relocated(pageyard_relocator, Arc<Gate>);

// SAFETY: the header states which threads call the function.
unsafe impl Send for Relocated {}
// SAFETY: as above.
unsafe impl Sync for Relocated {}

// SAFETY: the header requires of the function what the trait does.
unsafe impl Relocator for Relocated {
    fn relocate(&self, block: &Moving) -> Relocation {
        let Relocated(own, gate) = self;
        let (from, to) = (block.old().as_ptr().cast(), block.new_place().as_ptr().cast());
        let order = block.order().get().into();
        let ask = |f: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u32) -> i32| {
            // SAFETY: the caller's function with its context, which is live because the gate is
            // open.
            gate.pass(|| unsafe { f(own.context, from, to, order) })
        };
        match own.relocate.and_then(ask) {
            Some(PAGEYARD_MOVED) => Relocation::Moved,
            Some(PAGEYARD_MOVE_BUSY) => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }
}

/// A pressure callback of the caller.
struct Told(unsafe extern "C" fn(*mut c_void, u32, u32), *mut c_void, Arc<Gate>);

// SAFETY: the header states which thread calls it.
unsafe impl Send for Told {}
// SAFETY: as above.
unsafe impl Sync for Told {}

impl Told {
    fn tell(&self, event: &PressureEvent) {
        let Told(told, context, gate) = self;
        // SAFETY: the caller's function with its context, which is live because the gate is open.
        gate.pass(|| unsafe { told(*context, event.level as u32, event.before as u32) });
    }
}

/// Passes a registration to the caller of the library.
///
/// # Safety
/// The pointer must be null or writable.
pub(crate) unsafe fn registered(
    to: *mut *mut pageyard_registration,
    register: impl FnOnce(Arc<Gate>) -> Registration,
) -> Result<(), pageyard_status> {
    required("registration", to)?;
    let gate = Arc::new(Gate::open());
    let registration = register(gate.clone());
    let handle = Kept::new(Registered { gate, registration, process: std::process::id() });
    // SAFETY: guaranteed by the caller.
    unsafe { answer("registration", to, handle.cast()) }
}

/// Registers a shrinker. The library calls it in the background when a node's free memory falls
/// below the low watermark or use exceeds the soft limit. It also calls it on behalf of requests
/// that cannot be served otherwise. The structure is copied.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a shrinker without
/// `shrink`; PAGEYARD_ERR_VERSION.
///
/// Threads: any. Owner: the caller owns the registration until pageyard_unregister.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_register_shrinker(
    yard: *const pageyard,
    shrinker: *const pageyard_shrinker,
    registration: *mut *mut pageyard_registration,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, a structure of the stated size and a writable
    // result.
    done(unsafe {
        here(yard).and_then(|inner| {
            let own = argument::read("shrinker", shrinker)?;
            own.shrink.ok_or_else(|| null("shrinker->shrink"))?;
            registered(registration, |gate| {
                with_yard!(inner, |yard| yard.register_shrinker(Called(own, gate)))
            })
        })
    })
}

/// Registers a relocator for blocks that pageyard_set_movable has marked. The yard's thread calls it,
/// pageyard_compact, and requests that need a large block or a range. The structure is copied. Requests
/// that it makes never lead to reclaim or compaction. A yard with PAGEYARD_PINNED never calls it.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a relocator without
/// `relocate`; PAGEYARD_ERR_VERSION.
///
/// Threads: any. Owner: the caller owns the registration until pageyard_unregister.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_register_relocator(
    yard: *const pageyard,
    relocator: *const pageyard_relocator,
    registration: *mut *mut pageyard_registration,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle, a structure of the stated size and a writable
    // result.
    done(unsafe {
        here(yard).and_then(|inner| {
            let own = argument::read("relocator", relocator)?;
            own.relocate.ok_or_else(|| null("relocator->relocate"))?;
            registered(registration, |gate| {
                with_yard!(inner, |yard| yard.register_relocator(Relocated(own, gate)))
            })
        })
    })
}

/// Registers a function that is called when the pressure level changes. It receives the new and the
/// previous level: PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL. The yard's thread calls
/// it without any lock of the yard held, so it may use the yard.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer other than `context`.
///
/// Threads: any. Owner: the caller owns the registration until pageyard_unregister; what `context`
/// points to stays the caller's and must live until then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_on_pressure(
    yard: *const pageyard,
    told: Option<unsafe extern "C" fn(context: *mut c_void, level: u32, before: u32)>,
    context: *mut c_void,
    registration: *mut *mut pageyard_registration,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe {
        here(yard).and_then(|inner| {
            let told = told.ok_or_else(|| null("told"))?;
            registered(registration, |gate| {
                let told = Told(told, context, gate);
                with_yard!(inner, |yard| yard.on_pressure(move |event| told.tell(event)))
            })
        })
    })
}

/// Ends a registration. When this function returns, the registered functions are not running on any
/// thread and will not be called again. The yard may be destroyed before or after. The library
/// remembers the ended registration until the program exits, which takes a few dozen bytes.
///
/// Errors: PAGEYARD_ERR_HANDLE, also if the registration has already ended; PAGEYARD_ERR_BUSY if
/// called from a registered function, because this call would wait for it. Nothing changes then.
///
/// Threads: any that holds no lock that the registered functions wait for. Any number of threads may
/// call this at once, also where the functions make requests of each other's yards. Owner: the
/// registration no longer exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_unregister(
    registration: *mut pageyard_registration,
) -> pageyard_status {
    let handle: *mut Kept<Registered> = registration.cast();
    // SAFETY: the header requires a registration.
    done(unsafe { Kept::check(handle) }.and_then(|_| {
        if gate::is_in_callback() {
            return Err(PAGEYARD_ERR_BUSY);
        }
        // SAFETY: as above; only this function uses the contents.
        let Registered { gate, registration, process } = unsafe { Kept::end(handle) }?;
        drop(registration);
        // After a fork, the child calls no functions, and calls that were in progress never finish.
        if process == std::process::id() {
            gate.close();
        }
        Ok(())
    }))
}

/// Sets the limits, in pages. UINT64_MAX means no limit; a soft limit of 0 pages is a limit (in
/// pageyard_options 0 means none). The hard limit is at least 4 MiB for each of the yard's nodes. Requests
/// that would exceed it fail; above the soft limit, the yard's thread calls shrinkers for the excess. If
/// more than the hard limit is already in use, the thread, or pageyard_tick, takes what is freed. Until
/// that is enough, a request succeeds only if it finds freed pages before the limit takes them.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_OPTION for invalid limits. pageyard_last_error
/// describes the problem, and nothing changes.
///
/// Threads: any, but not from a registered function. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_limits(
    yard: *const pageyard,
    hard: u64,
    soft: u64,
) -> pageyard_status {
    let some = |limit| (limit != u64::MAX).then_some(limit);
    // SAFETY: the header requires a valid handle.
    done(unsafe { here(yard) }.and_then(|inner| {
        let limits = Limits { hard: some(hard), soft: some(soft) };
        with_yard!(inner, |yard| yard.set_limits(limits)).map(drop).map_err(|e| {
            last_error::set(&e);
            PAGEYARD_ERR_OPTION
        })
    }))
}

/// Like pageyard_set_limits, in bytes, which are rounded down to whole pages: a yard never uses more
/// than the bytes given. UINT64_MAX means no limit. The reserves are within the hard limit:
/// pageyard_get_usable says what it leaves.
///
/// Errors: as pageyard_set_limits.
///
/// Threads: any, but not from a registered function. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_set_limits_bytes(
    yard: *const pageyard,
    hard: u64,
    soft: u64,
) -> pageyard_status {
    let pages = |limit| if limit == u64::MAX { limit } else { limit / PAGE_SIZE };
    // SAFETY: the header requires the same of both functions.
    unsafe { pageyard_set_limits(yard, pages(hard), pages(soft)) }
}

/// Fills in the state of memory pressure and the totals of maintenance.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
/// of the structure are not set.
///
/// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
/// caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_get_upkeep(
    yard: *const pageyard,
    upkeep: *mut pageyard_upkeep,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a structure of the stated size.
    done(unsafe { here(yard) }.and_then(|inner| {
        let (s, limits) = with_yard!(inner, |yard| (yard.status(), yard.limits()));
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
        unsafe { argument::write("upkeep", upkeep, &all) }
    }))
}

/// Stores the descriptor of the file behind the yard's memory in `file`, for another process to
/// map. The yard must have been created with PAGEYARD_MEMFD. pageyard_offset returns the offset of
/// a block in the file.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM if the memory is not
/// backed by a file.
///
/// Threads: any. Owner: the descriptor stays the yard's; sending it to another process duplicates
/// it. A process that maps the file must access only blocks that it was given: free pages may be
/// discarded at any time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_file(yard: *const pageyard, file: *mut c_int) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result, and states what other
    // processes may access.
    done(unsafe {
        of(yard).and_then(|inner| {
            let fd = with_yard!(inner, |yard| yard.fd()).ok_or_else(|| {
                last_error::set(&"the yard's memory is not a file (to fix: flag PAGEYARD_MEMFD)");
                PAGEYARD_ERR_SYSTEM
            })?;
            answer("file", file, fd.as_raw_fd())
        })
    })
}

/// Stores the offset of a page in the yard's file, in bytes, in `offset`.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN,
/// PAGEYARD_ERR_MISALIGNED.
///
/// Threads: any. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_offset(
    yard: *const pageyard,
    page: *const c_void,
    offset: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    done(unsafe {
        of(yard).and_then(|inner| {
            let frame = inner.frame_number(inner.frame_of("page", page)?);
            answer("offset", offset, frame * PAGE_SIZE)
        })
    })
}
