//! What runs beside requests: ticks, drains, background compaction, CPUs and memory that come and go.

use pageyard::{CpuId, Pfn};

use crate::handle::{of, pageyard_core};
use crate::request::node;
use crate::sized::answer;
use crate::status::{PAGEYARD_ERR_CPU, PAGEYARD_ERR_NODE, of_hotplug, pageyard_status, status};

/// One tick of the statistics worker: folds a CPU's counters and lets its idle lists shrink. To be
/// called about once a second for every CPU that is not idle, on that CPU or while it makes no
/// requests.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it is down.
///
/// Threads: one at a time for a CPU. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_tick(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.and_then(|yard| {
        if !yard.is_up(CpuId(cpu)) {
            return Err(PAGEYARD_ERR_CPU);
        }
        yard.tick(CpuId(cpu));
        Ok(())
    }))
}

/// Gives everything on the per-CPU lists of all CPUs back to the zones, where it merges. While
/// another thread does the same, this returns at once.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_drain(yard: *const pageyard_core) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.map(|yard| yard.drain_all(None)))
}

/// One step of background compaction of a node. `sleep_ns` is set to how long to sleep before the
/// next step, at most; UINT64_MAX: until the `wake_compaction` hook says so.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_NODE.
///
/// Threads: one at a time for a node. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_compact_background(
    yard: *const pageyard_core,
    node: u32,
    sleep_ns: *mut u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle and a place for the answer.
    status(unsafe { of(yard) }.and_then(|yard| {
        let node = self::node(node)?;
        if usize::from(node.0) >= yard.nodes() {
            return Err(PAGEYARD_ERR_NODE);
        }
        // SAFETY: as above; whether there is a place is seen before anything is done.
        unsafe { answer(sleep_ns, u64::MAX) }?;
        let step = yard.compact_background(node);
        // SAFETY: as above.
        unsafe { answer(sleep_ns, step.sleep.unwrap_or(u64::MAX)) }
    }))
}

/// Compacts all zones, as far as blocks can be moved.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: any that may sleep. Owner: nothing changes hands but what the `relocate` hook moves.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_compact(yard: *const pageyard_core) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(unsafe { of(yard) }.map(|yard| yard.compact_all()))
}

/// A CPU of the layout that was down is about to run.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it was up.
///
/// Threads: any; before that CPU makes requests. Owner: nothing changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_cpu_up(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }
            .and_then(|yard| if yard.cpu_up(CpuId(cpu)) { Ok(()) } else { Err(PAGEYARD_ERR_CPU) }),
    )
}

/// A CPU runs no more: its lists go back to the zones. Until it is up again, requests in its name are
/// refused.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it was down.
///
/// Threads: another CPU; nothing may be under way in the name of the one that goes. Owner: nothing
/// changes hands.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_cpu_dead(
    yard: *const pageyard_core,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }.and_then(|yard| {
            if yard.cpu_dead(CpuId(cpu)) { Ok(()) } else { Err(PAGEYARD_ERR_CPU) }
        }),
    )
}

/// Memory has come: whole sections (128 MiB) of a zone's span, none of which was there. All of it
/// becomes free.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY.
///
/// Threads: any that may sleep. Owner: the frames are the library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_online(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }.and_then(|yard| yard.online(Pfn(start)..Pfn(end)).map_err(of_hotplug)),
    )
}

/// Memory is to go: whole sections of a zone. What is in use there is moved away by the `relocate`
/// hook.
///
/// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY. All of
/// the memory is still there then.
///
/// Threads: any that may sleep. Owner: the frames are the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_offline(
    yard: *const pageyard_core,
    start: u64,
    end: u64,
) -> pageyard_status {
    // SAFETY: the header asks for a handle.
    status(
        unsafe { of(yard) }.and_then(|yard| yard.offline(Pfn(start)..Pfn(end)).map_err(of_hotplug)),
    )
}
