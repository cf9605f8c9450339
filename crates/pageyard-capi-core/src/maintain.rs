//! Maintenance: ticks, drains, background compaction, CPU and memory hotplug, release of boot memory,
//! validation.

use core::ffi::c_char;

use pageyard::{Config, CpuId, Pfn, Yard};

use crate::handle::{of, on_yard, pageyard_core};
use crate::request::node;
use crate::sized::answer;
use crate::status::{
    PAGEYARD_ERR_CPU, PAGEYARD_ERR_INVALID, PAGEYARD_ERR_NODE, of_hotplug, of_release,
    pageyard_status,
};
use crate::text::{self, Buffer};

/// Returns the CPU if it is online.
fn online<C: Config>(yard: &Yard<'_, C>, cpu: u32) -> Result<CpuId, pageyard_status> {
    Some(CpuId(cpu)).filter(|&cpu| yard.is_up(cpu)).ok_or(PAGEYARD_ERR_CPU)
}

/// Runs one tick of the statistics worker for a CPU: folds its counters and shrinks its idle lists.
/// Call it about once a second for every CPU that is not idle, on that CPU or while that CPU makes
/// no requests.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or offline.
///
/// Threads: one at a time per CPU. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_tick(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, cpu: u32| {
        yard.tick(online(yard, cpu)?);
        Ok(())
    })
}

/// Folds a CPU's parts of the zones' counters, without the rest of a tick. Call it when a CPU stops its
/// tick because it is idle, so that what other CPUs read is exact, on that CPU or while that CPU makes no
/// requests.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or offline.
///
/// Threads: one at a time per CPU. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_fold(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, cpu: u32| {
        yard.fold(online(yard, cpu)?);
        Ok(())
    })
}

/// Drains the per-CPU lists of all CPUs to the zones, where blocks merge. Returns at once if
/// another thread is already draining.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any, but not interrupt handlers. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_drain(yard: *const pageyard_core) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard| {
        yard.drain_all(None);
        Ok(())
    })
}

/// Runs one step of background compaction of a node. `sleep_ns` receives the longest time to sleep
/// before the next step, in nanoseconds. UINT64_MAX means: until the `wake_compaction` hook is
/// called.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_NODE.
///
/// Threads: one at a time per node. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_compact_background(
    yard: *const pageyard_core,
    node: u32,
    sleep_ns: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard, node: u32, sleep_ns: *mut u64| {
        let node = self::node(node)?;
        if usize::from(node.0) >= yard.nodes() {
            return Err(PAGEYARD_ERR_NODE);
        }
        // SAFETY: as above. Writing first checks the pointer before any work is done.
        unsafe { answer(sleep_ns, u64::MAX) }?;
        let step = yard.compact_background(node);
        // SAFETY: as above.
        unsafe { answer(sleep_ns, step.sleep.unwrap_or(u64::MAX)) }
    })
}

/// Reports free blocks to the `report_free` hook, if a report is due: two seconds of `now` after the
/// first of the blocks became free. `sleep_ns` receives the time to wait before the next call, in
/// nanoseconds. UINT64_MAX means that there is nothing to report; ask again after a second or so.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT.
///
/// Threads: any that may sleep, one at a time. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_report_free(
    yard: *const pageyard_core,
    sleep_ns: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard, sleep_ns: *mut u64| {
        // SAFETY: as above. Writing first checks the pointer before any work is done.
        unsafe { answer(sleep_ns, u64::MAX) }?;
        let next = yard.report_free_blocks();
        // SAFETY: as above.
        unsafe { answer(sleep_ns, next.unwrap_or(u64::MAX)) }
    })
}

/// Compacts all zones, as far as blocks can be moved.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any that may sleep. Owner: changes only for blocks that the `relocate` hook moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_compact(yard: *const pageyard_core) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard| {
        yard.compact_all();
        Ok(())
    })
}

/// Brings a CPU of the layout online.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or already online.
///
/// Threads: any, before that CPU makes requests. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_cpu_up(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, cpu: u32| if yard.cpu_up(CpuId(cpu)) {
        Ok(())
    } else {
        Err(PAGEYARD_ERR_CPU)
    })
}

/// Takes a CPU offline and drains its lists to the zones. Requests on that CPU are refused until it
/// is online again.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or already offline.
///
/// Threads: must be called on another CPU, with no request in progress on the CPU that goes
/// offline. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_cpu_dead(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, cpu: u32| {
        if yard.cpu_dead(CpuId(cpu)) { Ok(()) } else { Err(PAGEYARD_ERR_CPU) }
    })
}

/// Brings memory online: whole sections (128 MiB) of a zone's span, none of which is online. All of
/// it becomes free.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY.
///
/// Threads: any that may sleep. Owner: the library owns the frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_online(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, start: u64, end: u64| yard
        .online(Pfn(start)..Pfn(end))
        .map_err(of_hotplug))
}

/// Frees memory that the layout reserved, such as an initial ramdisk or the sections of an image that
/// only its start needs. Every frame from `start` up to, but not including, `end` must be in a usable
/// and in a reserved range of the layout, and not released before. Watermarks and limits follow. If
/// `why` is not null, it receives a sentence that names the first frame at fault, at most `why_size`
/// bytes with its terminating zero, or an empty text.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_FOREIGN for a frame outside the zones,
/// PAGEYARD_ERR_NOT_RESERVED, PAGEYARD_ERR_DOUBLE_FREE for a frame that was released before (on the
/// packed engine PAGEYARD_ERR_NOT_RESERVED),
/// PAGEYARD_ERR_RANGE if the range is empty, contains a hole, or a hook of a hotplug function calls
/// this. Nothing has changed then.
///
/// Threads: any that may sleep. Owner: the library owns the frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_release(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
    why: *mut c_char,
    why_size: usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and writable text.
    on_yard!(unsafe { of(yard) }, |yard,
                                   start: u64,
                                   end: u64,
                                   why: *mut c_char,
                                   why_size: usize| {
        let released = yard.release(Pfn(start)..Pfn(end));
        let say = |out: &mut Buffer| released.or_else(|e| e.write_to(out));
        // SAFETY: as above.
        unsafe { text::explain(why, why_size, say) };
        released.map_err(of_release)
    })
}

/// Checks every invariant of the yard in one pass over its lists and one over its frames. For
/// debugging and tests: it takes milliseconds for each GiB. If `why` is not null, it receives a
/// sentence that names the first invariant that does not hold, its zone and its frame, at most
/// `why_size` bytes with its terminating zero, or an
/// empty text.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_INVALID if an invariant does not hold.
///
/// Threads: no other thread may be inside the yard during the call, and no hook may call this. It
/// changes nothing. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_validate(
    yard: *const pageyard_core,
    why: *mut c_char,
    why_size: usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and writable text.
    on_yard!(unsafe { of(yard) }, |yard, why: *mut c_char, why_size: usize| {
        let valid = yard.validate();
        let say = |out: &mut Buffer| valid.or_else(|e| e.write_to(out));
        // SAFETY: as above.
        unsafe { text::explain(why, why_size, say) };
        valid.map_err(|_| PAGEYARD_ERR_INVALID)
    })
}

/// Takes memory offline: whole sections of a zone. Blocks in use there are migrated through the
/// `relocate` hook.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY. All
/// of the memory then stays online.
///
/// Threads: any that may sleep. Owner: the caller owns the frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_offline(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, start: u64, end: u64| yard
        .offline(Pfn(start)..Pfn(end))
        .map_err(of_hotplug))
}
