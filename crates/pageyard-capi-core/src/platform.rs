//! The platform: the table of functions that the caller supplies.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{
    CpuId, Defences, Gfp, NodeId, Observer, Oom, Order, Pfn, Platform, Reclaim, ReclaimJob,
    Relocation, ZoneId, ZoneKind,
};

use crate::cpu;
use crate::engine::PAGEYARD_ENGINE_LINUX612;
use crate::flags::PAGEYARD_VERSION;
use crate::hooks::pageyard_hooks;
use crate::lock::pageyard_lock;
use crate::sized::Growing;

/// Result of `relocate`: the contents and the owner are at the new place.
pub const PAGEYARD_MOVED: i32 = 0;
/// Result of `relocate`: the block is in use now; a later attempt may succeed.
pub const PAGEYARD_MOVE_BUSY: i32 = 1;
/// Result of `relocate`: the block cannot be moved, or has no owner any more.
pub const PAGEYARD_MOVE_REFUSED: i32 = 2;

/// A request that is about to fail drains the per-CPU lists of all CPUs and tries once more. For
/// kernels that do not reclaim: without it, pages on the lists of other CPUs are out of reach. Linux
/// does so only after reclaim has freed pages.
pub const PAGEYARD_DRAIN_ON_FAILURE: u64 = 1;

/// A reclaim request, made when an allocation could not be served.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_reclaim_job {
    /// Number of pages to free.
    pub pages: u64,
    /// Nodes whose memory is useful, one bit per node.
    pub allowed: u64,
    /// Flags of the failed request.
    pub flags: u32,
    /// Order of the failed request.
    pub order: u32,
    /// Preferred node of the request.
    pub node: u32,
    /// Highest useful zone (a PAGEYARD_ZONE number). Lower zones are useful too.
    pub highest_zone: u32,
    /// Scan priority, from 12 (first pass) down to 1 (most aggressive).
    pub priority: u32,
    /// Whether pages may be written back or swapped out: 0 or 1.
    pub may_write: u32,
}

/// The platform of a yard: functions that the caller supplies. Set the structure to zero, then set
/// `struct_size` to sizeof(struct pageyard_platform), `version` to PAGEYARD_VERSION, and the
/// functions you have. Every function is optional (null).
///
/// Owner: pageyard_core_create copies the table. What `context` points to must live as long as the
/// yard.
///
/// Threads: functions are called on the thread or CPU that calls the library, any number at once.
/// `cpu`, `now`, `lock`, `try_lock` and `unlock` may be called with locks held and must not call
/// the library. The others are called without locks held, may sleep and may make requests. Requests
/// made by `reclaim`, `reclaimable`, `out_of_memory` and `relocate` call none of these four again,
/// and requests made by `wake_reclaim` and `wake_compaction` call neither of these two. Requests
/// made by `zero`, `task`, `pause` and `keep_trying` may call the same function again, which must
/// end that. No function may exit through an exception or longjmp.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_platform {
    /// sizeof(struct pageyard_platform).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Passed to every function except the lock functions.
    pub context: *mut c_void,
    /// Returns the CPU that runs the caller, from 0 up to the layout's `cpu_count` - 1. The caller
    /// may migrate afterwards. If null: always 0. Must be null in a core that was installed with
    /// `--cpu-at`, which finds the number itself.
    pub cpu: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Returns nanoseconds since an arbitrary start. If null: always 0, and everything that waits
    /// for time to pass is disabled: limits on reports never expire, and background compaction does
    /// not start by itself.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Pauses for about one tick while another thread handles the shortage. If null: a spin-loop
    /// hint.
    pub pause: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Acquires a lock, waiting if necessary. Supply all three lock functions or none; without them
    /// a spin lock is used. All yards of a program must use the same three functions. If interrupt
    /// handlers make requests too, lock and try_lock must disable interrupts and unlock must
    /// restore them. In a core that was installed with `--interrupt-lock` the spin lock does so, and
    /// all three must be null.
    pub lock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock)>,
    /// Acquires a lock if it is free, and returns nonzero if it did. Never waits.
    pub try_lock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock) -> i32>,
    /// Releases a lock. Called by the holder.
    pub unlock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock)>,
    /// Zeroes a block for a request with PAGEYARD_ZERO before the request returns. If null: blocks
    /// are returned with their old contents.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, pfn: u64, order: u32)>,
    /// Returns a number that identifies the calling task. It lets the library recognize requests
    /// made from within `reclaim`. UINT64_MAX and the number before it may count as one task. If null:
    /// the CPU number.
    pub task: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Frees memory and returns the number of pages freed. Requests made by this function may use
    /// all reserves. If null: 0.
    pub reclaim:
        Option<unsafe extern "C" fn(context: *mut c_void, job: *const pageyard_reclaim_job) -> u64>,
    /// Returns how many pages of a zone `reclaim` could still free. If null: 0, so `reclaim` is not
    /// retried when it frees too little.
    pub reclaimable:
        Option<unsafe extern "C" fn(context: *mut c_void, node: u32, zone: u32) -> u64>,
    /// Called when nothing could be reclaimed: force some user to release memory. Returns nonzero
    /// if one does. One call at a time. If null: 0.
    pub out_of_memory:
        Option<unsafe extern "C" fn(context: *mut c_void, job: *const pageyard_reclaim_job) -> i32>,
    /// Called when a request with PAGEYARD_NOFAIL has failed `tries` times. Waits for memory;
    /// returns nonzero to retry. If null: 0, and the request fails.
    pub keep_trying:
        Option<unsafe extern "C" fn(context: *mut c_void, order: u32, tries: u32) -> i32>,
    /// Migrates a block that was marked with pageyard_core_set_movable or, in a core with `--packed`, was
    /// requested with PAGEYARD_MOVABLE: copies it from `from` to
    /// `to` and makes its owner use `to`, or refuses. Returns PAGEYARD_MOVED, PAGEYARD_MOVE_BUSY or
    /// PAGEYARD_MOVE_REFUSED. The owner may have just freed the block, so look it up under the
    /// owner's own lock. After PAGEYARD_MOVED, nothing may access or free `from`. If null: refused. Must
    /// be null in a core that was installed with `--without-relocate`, in which requests do not compact.
    pub relocate:
        Option<unsafe extern "C" fn(context: *mut c_void, from: u64, to: u64, order: u32) -> i32>,
    /// Wakes background reclaim of a node. Free memory fell below a watermark for requests of this
    /// order that may use zones up to `highest_zone`. Called repeatedly while that lasts. A task that
    /// is in this function or in `wake_compaction` causes no further calls of either; with more than
    /// eight such tasks, other tasks cause none.
    pub wake_reclaim: Option<
        unsafe extern "C" fn(context: *mut c_void, node: u32, order: u32, highest_zone: u32),
    >,
    /// Wakes background compaction of a node: have pageyard_core_compact_background called.
    pub wake_compaction: Option<unsafe extern "C" fn(context: *mut c_void, node: u32)>,
    /// Reports that a request without PAGEYARD_NOWARN failed. At most one call per ten seconds of
    /// `now`; if `now` is null, one call in total.
    pub warn: Option<unsafe extern "C" fn(context: *mut c_void, order: u32, flags: u32)>,
    /// Events, defences and reports of free memory. If null: none.
    pub hooks: *const pageyard_hooks,
    /// PAGEYARD_DRAIN_ON_FAILURE, or 0.
    pub flags: u64,
    /// For pageyard_kernel_init and pageyard_page: the virtual address at which physical address 0 is
    /// mapped, and all memory after it. Need not be a valid address itself. If null: memory is mapped
    /// one to one.
    pub direct_map: *mut c_void,
    /// For pageyard_kernel_init: memory from this physical address on is not mapped, and is left out.
    /// If 0: all memory is mapped.
    pub mapped: u64,
    /// For pageyard_kernel_init: one of the PAGEYARD_ENGINE numbers. 0: PAGEYARD_ENGINE_LINUX612.
    /// pageyard_core_create takes the engine from the layout; this field is then 0 or the same.
    pub engine: u64,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer, a missing function or
// no context.
unsafe impl Growing for pageyard_platform {
    // `hooks` was added after the first version.
    const LEAST: usize = offset_of!(pageyard_platform, hooks);
}

impl pageyard_platform {
    /// Returns a table without functions.
    pub(crate) const fn none() -> Self {
        pageyard_platform {
            struct_size: size_of::<Self>() as u32,
            version: PAGEYARD_VERSION,
            context: core::ptr::null_mut(),
            cpu: None,
            now: None,
            pause: None,
            lock: None,
            try_lock: None,
            unlock: None,
            zero: None,
            task: None,
            reclaim: None,
            reclaimable: None,
            out_of_memory: None,
            keep_trying: None,
            relocate: None,
            wake_reclaim: None,
            wake_compaction: None,
            warn: None,
            hooks: core::ptr::null(),
            flags: 0,
            direct_map: core::ptr::null_mut(),
            mapped: 0,
            engine: PAGEYARD_ENGINE_LINUX612,
        }
    }

    /// Returns the names of functions that must be null in this build and are not.
    pub(crate) fn unwanted(&self) -> Option<&'static str> {
        let locks = self.lock.is_some() || self.try_lock.is_some() || self.unlock.is_some();
        match () {
            () if cfg!(feature = "interrupt-lock") && locks => Some("lock, try_lock and unlock"),
            () if cfg!(feature = "cpu-in-gs") && self.cpu.is_some() => Some("cpu"),
            () if cfg!(feature = "without-relocate") && self.relocate.is_some() => Some("relocate"),
            () => None,
        }
    }
}

/// Number of tasks that may be inside a wake function.
const WAKERS: usize = 8;

/// Hooks that call the table's functions, with defaults for missing ones.
#[derive(Debug)]
pub struct CPlatform {
    table: pageyard_platform,
    /// The tasks that are inside a wake function, inverted; 0: none.
    wakers: [AtomicU64; WAKERS],
}

impl CPlatform {
    pub(crate) const fn new(table: pageyard_platform) -> Self {
        CPlatform { table, wakers: [const { AtomicU64::new(0) }; WAKERS] }
    }

    /// Returns the virtual address of physical address 0.
    pub(crate) fn direct_map(&self) -> *mut c_void {
        self.table.direct_map
    }

    /// Sets the table.
    pub(crate) fn set(&mut self, table: &pageyard_platform) {
        self.table = *table;
    }

    /// Calls a wake function, unless this task is inside one already: the function may make requests,
    /// which would wake without end.
    fn wake(&self, call: impl FnOnce()) {
        // 0 means none, so the two highest numbers count as one task.
        let me = (!self.task().unwrap_or_else(|| self.cpu().0.into())).max(1);
        // Only this task stores its own number, so program order suffices.
        if self.wakers.iter().any(|w| w.load(Relaxed) == me) {
            return;
        }
        let claim = |w: &&AtomicU64| w.compare_exchange(0, me, Relaxed, Relaxed).is_ok();
        if let Some(waker) = self.wakers.iter().find(claim) {
            call();
            waker.store(0, Relaxed);
        }
    }
}

fn job(job: &ReclaimJob) -> pageyard_reclaim_job {
    pageyard_reclaim_job {
        pages: job.pages,
        allowed: job.allowed.0,
        flags: job.gfp.bits(),
        order: job.order.get().into(),
        node: job.node.0.into(),
        highest_zone: job.highest as u32,
        priority: job.priority.into(),
        may_write: (job.may_write || job.may_swap).into(),
    }
}

// In all calls below, the function is the caller's and is called as the table's comments promise:
// with the context of the same table, and with pointers that live until it returns.
impl Platform for CPlatform {
    const DEFERS: bool = false;

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(cpu::number(self.table.cpu, self.table.context))
    }

    fn now(&self) -> u64 {
        // SAFETY: see above.
        self.table.now.map_or(0, |now| unsafe { now(self.table.context) })
    }

    #[inline]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        if gfp.contains(Gfp::ZERO)
            && let Some(zero) = self.table.zero
        {
            // SAFETY: see above.
            unsafe { zero(self.table.context, pfn.0, order.get().into()) }
        }
    }

    #[inline]
    fn drain_on_failure(&self) -> bool {
        self.table.flags & PAGEYARD_DRAIN_ON_FAILURE != 0
    }

    fn pause(&self) {
        match self.table.pause {
            // SAFETY: see above.
            Some(pause) => unsafe { pause(self.table.context) },
            None => core::hint::spin_loop(),
        }
    }
}

impl Reclaim for CPlatform {
    const RELOCATES: bool = cfg!(not(feature = "without-relocate"));

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let Some(relocate) = self.table.relocate else { return Relocation::Refused };
        // SAFETY: see above.
        match unsafe { relocate(self.table.context, from.0, to.0, order.get().into()) } {
            PAGEYARD_MOVED => Relocation::Moved,
            PAGEYARD_MOVE_BUSY => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }

    fn task(&self) -> Option<u64> {
        // SAFETY: see above.
        self.table.task.map(|task| unsafe { task(self.table.context) })
    }

    fn reclaim(&self, j: &ReclaimJob) -> u64 {
        // SAFETY: see above.
        self.table.reclaim.map_or(0, |reclaim| unsafe { reclaim(self.table.context, &job(j)) })
    }

    fn reclaimable(&self, zone: ZoneId) -> u64 {
        let Some(reclaimable) = self.table.reclaimable else { return 0 };
        // SAFETY: see above.
        unsafe { reclaimable(self.table.context, zone.node.0.into(), zone.kind as u32) }
    }

    fn out_of_memory(&self, j: &ReclaimJob) -> Oom {
        let Some(out_of_memory) = self.table.out_of_memory else { return Oom::Nothing };
        // SAFETY: see above.
        match unsafe { out_of_memory(self.table.context, &job(j)) } {
            0 => Oom::Nothing,
            _ => Oom::Progress,
        }
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let Some(keep_trying) = self.table.keep_trying else { return false };
        // SAFETY: see above.
        unsafe { keep_trying(self.table.context, order.get().into(), tries) != 0 }
    }

    #[inline(never)]
    fn wake_reclaim(&self, node: NodeId, order: Order, highest: ZoneKind) {
        if let Some(wake) = self.table.wake_reclaim {
            let (node, order) = (node.0.into(), order.get().into());
            // SAFETY: see above.
            self.wake(|| unsafe { wake(self.table.context, node, order, highest as u32) });
        }
    }

    #[inline(never)]
    fn wake_compaction(&self, node: NodeId) {
        if let Some(wake) = self.table.wake_compaction {
            // SAFETY: see above.
            self.wake(|| unsafe { wake(self.table.context, node.0.into()) });
        }
    }
}

impl Observer for CPlatform {
    fn warn(&self, order: Order, gfp: Gfp) {
        if let Some(warn) = self.table.warn {
            // SAFETY: see above.
            unsafe { warn(self.table.context, order.get().into(), gfp.bits()) }
        }
    }
}

impl Defences for CPlatform {}
