//! What the caller supplies: a table of functions.

use core::ffi::c_void;

use pageyard::{
    CpuId, Defences, Gfp, NodeId, Observer, Oom, Order, Pfn, Platform, Reclaim, ReclaimJob,
    Relocation, ZoneId, ZoneKind,
};

use crate::flags::PAGEYARD_VERSION;
use crate::lock::pageyard_lock;
use crate::sized::Growing;

/// What `relocate` answers: contents and owner are at the new place.
pub const PAGEYARD_MOVED: i32 = 0;
/// What `relocate` answers: not now, somebody is using it.
pub const PAGEYARD_MOVE_BUSY: i32 = 1;
/// What `relocate` answers: it cannot move, or has no owner any more.
pub const PAGEYARD_MOVE_REFUSED: i32 = 2;

/// Memory to be freed for a request that could not be served.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_reclaim_job {
    /// How many pages to free.
    pub pages: u64,
    /// The nodes whose memory would help, a bit for each.
    pub allowed: u64,
    /// The flags of the request.
    pub flags: u32,
    /// Its order.
    pub order: u32,
    /// The node where memory is wanted most.
    pub node: u32,
    /// Zones up to this one (PAGEYARD_ZONE numbers) would help.
    pub highest_zone: u32,
    /// 12 at first, then down to 1: how hard to look.
    pub priority: u32,
    /// Whether pages may be written back or swapped out: 0 or 1.
    pub may_write: u32,
}

/// The machine under a yard: functions of the caller's. Set everything to zero, then `struct_size`
/// to sizeof(struct pageyard_platform), `version` to PAGEYARD_VERSION, and what there is. Every
/// function may be missing (null).
///
/// Owner: pageyard_core_create copies the table; what `context` points to must live as long as the
/// yard.
///
/// Threads: functions are called on the thread or CPU that calls the library, any number at once.
/// `cpu`, `now`, `lock`, `try_lock` and `unlock` may be called with locks held and must not call the
/// library; the others are called without any lock, may sleep and may make requests. No function may
/// leave by an exception or longjmp.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_platform {
    /// sizeof(struct pageyard_platform).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Handed to every function but the lock functions.
    pub context: *mut c_void,
    /// The CPU that executes the caller, from 0, below the layout's `cpu_count`. It need not stay
    /// there. Missing: 0.
    pub cpu: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Nanoseconds since any start. Missing: 0 always; then nothing that waits for time to pass does
    /// (reports of failures are not held back, background compaction does not look by itself).
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// A pause of about a tick: another thread is dealing with the shortage. Missing: a processor's
    /// hint that it spins.
    pub pause: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Waits for a lock and takes it. All three lock functions are there, or none: then a spin lock
    /// is used. A program has one kind of lock: all yards give the same three. Where requests are
    /// also made by interrupt handlers, lock and try_lock turn interrupts off and unlock restores
    /// them.
    pub lock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock)>,
    /// Takes a lock if nobody holds it; whether it did: not 0. Never waits.
    pub try_lock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock) -> i32>,
    /// Gives a lock back. Called by the holder.
    pub unlock: Option<unsafe extern "C" fn(lock: *mut pageyard_lock)>,
    /// Zeroes a block that a request with PAGEYARD_ZERO is about to get. Missing: blocks are handed
    /// out as they are.
    pub zero: Option<unsafe extern "C" fn(context: *mut c_void, pfn: u64, order: u32)>,
    /// A number that tells the calling task from others, so that a reclaim that asks for memory
    /// itself is known by it. Missing: the CPU's.
    pub task: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// Frees memory; how many pages it freed. Requests it makes may use all reserves. Missing: 0.
    pub reclaim:
        Option<unsafe extern "C" fn(context: *mut c_void, job: *const pageyard_reclaim_job) -> u64>,
    /// How many pages of a zone `reclaim` could still free. Missing: 0, so that `reclaim` is not
    /// tried again when it freed too little.
    pub reclaimable:
        Option<unsafe extern "C" fn(context: *mut c_void, node: u32, zone: u32) -> u64>,
    /// Nothing could be reclaimed: make somebody give up memory; not 0 where somebody does. One
    /// call at a time. Missing: 0.
    pub out_of_memory:
        Option<unsafe extern "C" fn(context: *mut c_void, job: *const pageyard_reclaim_job) -> i32>,
    /// A request with PAGEYARD_NOFAIL has failed `tries` times. Waits for memory; not 0: try again.
    /// Missing: 0, and the request fails.
    pub keep_trying:
        Option<unsafe extern "C" fn(context: *mut c_void, order: u32, tries: u32) -> i32>,
    /// Moves a block that pageyard_core_set_movable was told of: copies it and makes its owner the
    /// owner of `to`, or refuses; PAGEYARD_MOVED and its kin. The owner may have given the block
    /// back a moment ago: look it up under the owner's own lock. After PAGEYARD_MOVED nobody
    /// touches or frees `from`. Missing: refused.
    pub relocate:
        Option<unsafe extern "C" fn(context: *mut c_void, from: u64, to: u64, order: u32) -> i32>,
    /// Background reclaim of a node has work: free memory fell below a watermark for requests of
    /// this order that may use zones up to `highest_zone`.
    pub wake_reclaim: Option<
        unsafe extern "C" fn(context: *mut c_void, node: u32, order: u32, highest_zone: u32),
    >,
    /// Background compaction of a node has work: call pageyard_core_compact_background.
    pub wake_compaction: Option<unsafe extern "C" fn(context: *mut c_void, node: u32)>,
    /// A request failed that did not ask for silence; at most one call in ten seconds of `now`.
    pub warn: Option<unsafe extern "C" fn(context: *mut c_void, order: u32, flags: u32)>,
}

// SAFETY: it begins with the two fields; zero is null, a missing function, or no context.
unsafe impl Growing for pageyard_platform {
    const LEAST: usize = size_of::<pageyard_platform>();
}

impl pageyard_platform {
    /// A table without functions.
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
        }
    }
}

/// A yard's platform: what the table says, or what the core does without.
#[derive(Debug)]
pub struct CPlatform(pub(crate) pageyard_platform);

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

// In all calls below: the function is the caller's, called as the table's comments promise, with the
// context that came with it and pointers that live until it returns.
impl Platform for CPlatform {
    const DEFERS: bool = false;

    #[inline]
    fn cpu(&self) -> CpuId {
        // SAFETY: see above.
        CpuId(self.0.cpu.map_or(0, |cpu| unsafe { cpu(self.0.context) }))
    }

    fn now(&self) -> u64 {
        // SAFETY: see above.
        self.0.now.map_or(0, |now| unsafe { now(self.0.context) })
    }

    #[inline]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        if gfp.contains(Gfp::ZERO)
            && let Some(zero) = self.0.zero
        {
            // SAFETY: see above.
            unsafe { zero(self.0.context, pfn.0, order.get().into()) }
        }
    }

    fn pause(&self) {
        match self.0.pause {
            // SAFETY: see above.
            Some(pause) => unsafe { pause(self.0.context) },
            None => core::hint::spin_loop(),
        }
    }
}

impl Reclaim for CPlatform {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let Some(relocate) = self.0.relocate else { return Relocation::Refused };
        // SAFETY: see above.
        match unsafe { relocate(self.0.context, from.0, to.0, order.get().into()) } {
            PAGEYARD_MOVED => Relocation::Moved,
            PAGEYARD_MOVE_BUSY => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }

    fn task(&self) -> Option<u64> {
        // SAFETY: see above.
        self.0.task.map(|task| unsafe { task(self.0.context) })
    }

    fn reclaim(&self, j: &ReclaimJob) -> u64 {
        // SAFETY: see above.
        self.0.reclaim.map_or(0, |reclaim| unsafe { reclaim(self.0.context, &job(j)) })
    }

    fn reclaimable(&self, zone: ZoneId) -> u64 {
        let Some(reclaimable) = self.0.reclaimable else { return 0 };
        // SAFETY: see above.
        unsafe { reclaimable(self.0.context, zone.node.0.into(), zone.kind as u32) }
    }

    fn out_of_memory(&self, j: &ReclaimJob) -> Oom {
        let Some(out_of_memory) = self.0.out_of_memory else { return Oom::Nothing };
        // SAFETY: see above.
        match unsafe { out_of_memory(self.0.context, &job(j)) } {
            0 => Oom::Nothing,
            _ => Oom::Progress,
        }
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let Some(keep_trying) = self.0.keep_trying else { return false };
        // SAFETY: see above.
        unsafe { keep_trying(self.0.context, order.get().into(), tries) != 0 }
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest: ZoneKind) {
        if let Some(wake) = self.0.wake_reclaim {
            // SAFETY: see above.
            unsafe { wake(self.0.context, node.0.into(), order.get().into(), highest as u32) }
        }
    }

    fn wake_compaction(&self, node: NodeId) {
        if let Some(wake) = self.0.wake_compaction {
            // SAFETY: see above.
            unsafe { wake(self.0.context, node.0.into()) }
        }
    }
}

impl Observer for CPlatform {
    fn warn(&self, order: Order, gfp: Gfp) {
        if let Some(warn) = self.0.warn {
            // SAFETY: see above.
            unsafe { warn(self.0.context, order.get().into(), gfp.bits()) }
        }
    }
}

impl Defences for CPlatform {}
