//! Frees that wait until every CPU has flushed its TLB.

use core::ffi::c_void;
use core::mem::{MaybeUninit, offset_of};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Release};

use pageyard::{CpuId, Epoch, EpochsRef, Order, Pfn, ShootdownBatch};

use crate::flags;
use crate::handle::{of, on_yard, pageyard_core};
use crate::layout::{entries, entries_mut};
use crate::sized::{self, Growing, answer};
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_CPU, of_shootdown, pageyard_status,
    status,
};

/// Which translations each CPU has flushed from its TLB. Set the structure and the words of
/// `acknowledged` to zero, then set `struct_size` to sizeof(struct pageyard_epochs), `version` to
/// PAGEYARD_VERSION, `acknowledged` and `cpu_count`. All CPUs are online then: call
/// pageyard_core_epochs_offline for each that has not started.
///
/// The thread that unmaps pages begins an epoch, then interrupts the CPUs that
/// pageyard_core_epochs_lagging names. Each calls pageyard_core_epochs_acknowledge, at the latest at its
/// next tick or context switch.
///
/// Owner: structure and words stay the caller's, who does not change them once they are in use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_epochs {
    /// sizeof(struct pageyard_epochs).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// The library's: the last epoch that began.
    pub now: u64,
    /// A word for each CPU, the library's: the last epoch that the CPU acknowledged.
    pub acknowledged: *mut u64,
    /// Number of CPUs, at least 1.
    pub cpu_count: usize,
}

// SAFETY: the size and the version come first; the other fields are numbers and a pointer, valid as zero.
unsafe impl Growing for pageyard_epochs {
    const LEAST: usize = offset_of!(Self, cpu_count) + size_of::<usize>();
}

/// A block of a batch. The library's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_shootdown_block {
    /// First frame.
    pub pfn: u64,
    /// Its order.
    pub order: u8,
    /// Not used.
    pub unused: [u8; 7],
}

/// Blocks to be freed once every CPU has flushed their translations. Set the structure to zero, then
/// set `struct_size` to sizeof(struct pageyard_shootdown), `version` to PAGEYARD_VERSION, `epochs`,
/// `blocks` and `room`.
///
/// The blocks stay allocated meanwhile and belong to the batch: only it frees them, once, and `relocate`
/// must refuse them. A batch that is given up leaves its blocks allocated: memory is lost, and never
/// handed out twice. A block that is in two batches is not noticed.
///
/// Threads: one at a time for a batch. A hook that calls again with the batch gets PAGEYARD_ERR_BUSY.
/// Owner: structure and array stay the caller's, who changes neither while the batch has blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_shootdown {
    /// sizeof(struct pageyard_shootdown).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// What the batch waits for.
    pub epochs: *mut pageyard_epochs,
    /// Room for blocks.
    pub blocks: *mut pageyard_shootdown_block,
    /// Number of entries of `blocks`.
    pub room: usize,
    /// The library's: number of blocks in the batch.
    pub count: usize,
    /// The library's: the epoch for which the batch waits. 0: none was begun.
    pub epoch: u64,
    /// The library's: 1 during a call with this batch.
    pub busy: u64,
}

// SAFETY: as for `pageyard_epochs`.
unsafe impl Growing for pageyard_shootdown {
    const LEAST: usize = offset_of!(Self, busy) + size_of::<u64>();
}

// The core keeps the blocks in the caller's array.
type Block = (Pfn, Order);
const _: () = assert!(
    size_of::<pageyard_shootdown_block>() == size_of::<Block>()
        && align_of::<pageyard_shootdown_block>() == align_of::<Block>()
        && size_of::<Pfn>() == size_of::<u64>()
        && size_of::<Order>() == size_of::<u8>()
        && offset_of!(pageyard_shootdown_block, pfn) == offset_of!(Block, 0)
        && offset_of!(pageyard_shootdown_block, order) == offset_of!(Block, 1)
);

/// Returns the epochs of a structure.
///
/// # Safety
/// The pointer must be null or point to a structure as its comment says, of the size in its first
/// field.
unsafe fn epochs_of<'e>(epochs: *mut pageyard_epochs) -> Result<EpochsRef<'e>, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { sized::check(epochs) }?;
    // SAFETY: within the structure, as checked. No reference to it is made: others change `now`.
    let (now, words, count) = unsafe {
        (&raw mut (*epochs).now, (*epochs).acknowledged.cast::<AtomicU64>(), (*epochs).cpu_count)
    };
    // Without a CPU, every epoch would have passed at once.
    if !now.cast::<AtomicU64>().is_aligned() || count == 0 {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: the caller guarantees `count` words, whose alignment `entries` checks, as that of `now` is
    // above. All are used as atomics only while the structure is in use (`needs.c`).
    unsafe { Ok(EpochsRef::new(AtomicU64::from_ptr(now), entries(words, count)?)) }
}

/// Flushes the TLB of the calling CPU, by a call of `flush` with `context`, and acknowledges all epochs
/// that had begun before. `flush` removes all translations of the CPU, global ones and those of other
/// address spaces too. It must not leave by an exception or longjmp.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_CPU if `cpu` is unknown. `flush` is
/// not called then.
///
/// Threads: on the CPU `cpu`, also in interrupt handlers. One call for a CPU does not overlap another,
/// other than by interrupting it. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_epochs_acknowledge(
    epochs: *mut pageyard_epochs,
    cpu: u32,
    flush: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid structure and function.
    status(unsafe { flushed(epochs, cpu, flush, context, false) })
}

/// Declares that a CPU that was offline is about to use translations again, and flushes its TLB, as
/// pageyard_core_epochs_acknowledge does.
///
/// Errors: as pageyard_core_epochs_acknowledge.
///
/// Threads, owner: as pageyard_core_epochs_acknowledge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_epochs_online(
    epochs: *mut pageyard_epochs,
    cpu: u32,
    flush: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
) -> pageyard_status {
    // SAFETY: the header requires a valid structure and function.
    status(unsafe { flushed(epochs, cpu, flush, context, true) })
}

/// # Safety
/// As for [`epochs_of`]; the function must be the caller's, for this context.
unsafe fn flushed(
    epochs: *mut pageyard_epochs,
    cpu: u32,
    flush: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
    comes_online: bool,
) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller.
    let epochs = unsafe { epochs_of(epochs) }?;
    let flush = flush.ok_or(PAGEYARD_ERR_ARGUMENT)?;
    // SAFETY: guaranteed by the caller.
    let flush = || unsafe { flush(context) };
    let known = match comes_online {
        true => epochs.online(CpuId(cpu), flush),
        false => epochs.acknowledge(CpuId(cpu), flush),
    };
    if known { Ok(()) } else { Err(PAGEYARD_ERR_CPU) }
}

/// Declares that a CPU uses no translations any more: no epoch waits for it.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_CPU if `cpu` is unknown.
///
/// Threads: any. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_epochs_offline(
    epochs: *mut pageyard_epochs,
    cpu: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid structure.
    status(
        unsafe { epochs_of(epochs) }.and_then(|epochs| {
            if epochs.offline(CpuId(cpu)) { Ok(()) } else { Err(PAGEYARD_ERR_CPU) }
        }),
    )
}

/// Stores in `cpu` the lowest CPU, not below `from`, that has not acknowledged the epoch: one to
/// interrupt. Stores UINT32_MAX if there is none.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION.
///
/// Threads: any, also interrupt handlers. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_epochs_lagging(
    epochs: *mut pageyard_epochs,
    epoch: u64,
    from: u32,
    cpu: *mut u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid structure and a writable result.
    status(unsafe {
        epochs_of(epochs).and_then(|epochs| {
            let lagging = epochs.lagging(Epoch::from_number(epoch)).find(|lags| lags.0 >= from);
            answer(cpu, lagging.map_or(u32::MAX, |lags| lags.0))
        })
    })
}

/// Calls a function with the batch of a structure, and stores the batch's new state.
///
/// # Safety
/// The pointer must be null or point to a structure as its comment says, of the size in its first
/// field, that nothing else uses meanwhile.
#[inline(always)]
unsafe fn with<T>(
    batch: *mut pageyard_shootdown,
    act: impl FnOnce(&mut ShootdownBatch<'_>, *mut pageyard_epochs) -> Result<T, pageyard_status>,
) -> Result<T, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { sized::check(batch) }?;
    // SAFETY: within the structure, as checked.
    let busy = unsafe { (&raw mut (*batch).busy).cast::<AtomicU64>() };
    if !busy.is_aligned() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: used as an atomic only. Claimed before anything is read: a hook or an interrupt handler that
    // calls again with this batch is refused before a reference to its blocks is made.
    let busy = unsafe { &*busy };
    if busy.swap(1, Acquire) != 0 {
        return Err(PAGEYARD_ERR_BUSY);
    }
    // SAFETY: guaranteed by the caller; the batch is claimed.
    let done = unsafe { claimed(batch, act) };
    busy.store(0, Release);
    done
}

/// # Safety
/// As for [`with`], for a batch that this call has claimed.
#[inline(always)]
unsafe fn claimed<T>(
    batch: *mut pageyard_shootdown,
    act: impl FnOnce(&mut ShootdownBatch<'_>, *mut pageyard_epochs) -> Result<T, pageyard_status>,
) -> Result<T, pageyard_status> {
    // SAFETY: within the structure, as checked.
    unsafe {
        let (epochs, blocks) = ((*batch).epochs, (*batch).blocks);
        let (room, count, epoch) = ((*batch).room, (*batch).count, (*batch).epoch);
        if count > room {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // Invalid orders, by a stray write, must not reach the core. Only orders are read: the core leaves
        // the bytes after them as they are.
        for block in entries(blocks.cast_const().cast::<MaybeUninit<_>>(), count)? {
            let block: *const pageyard_shootdown_block = block.as_ptr();
            flags::order((*block).order.into())?;
        }
        // The layout is asserted above. The core reads orders of these entries and of those that it
        // has written.
        let blocks = entries_mut(blocks.cast::<Block>(), room)?;
        let epoch = (epoch != 0).then(|| Epoch::from_number(epoch));
        let mut resumed = ShootdownBatch::resume(blocks, count, epoch);
        let done = act(&mut resumed, epochs);
        (*batch).count = resumed.len();
        (*batch).epoch = resumed.epoch().map_or(0, Epoch::number);
        done
    }
}

/// Takes a block over from its owner. `order` must be the order at which it was allocated.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY;
/// PAGEYARD_ERR_FULL; PAGEYARD_ERR_PHASE if an epoch was begun for the batch: it takes no block until it is freed. For an
/// invalid block: as pageyard_core_free. The block is still its owner's.
///
/// Threads: any, also interrupt handlers; one at a time for a batch. Owner: the batch owns the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_shootdown_add(
    yard: *const pageyard_core,
    batch: *mut pageyard_shootdown,
    pfn: u64,
    order: u32,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, batch: *mut pageyard_shootdown, pfn: u64, order: u32| {
        let order = flags::order(order)?;
        // SAFETY: the header requires a valid batch that no other thread uses.
        unsafe { with(batch, |b, _| b.add(yard, Pfn(pfn), order).map_err(of_shootdown)) }
    })
}

/// Begins the epoch for which the batch waits, and stores its number in `epoch`. The translations of all
/// blocks of the batch must have been removed before. A second call begins another one.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY. None was begun then.
///
/// Threads: any, also interrupt handlers; one at a time for a batch. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_shootdown_begin(
    batch: *mut pageyard_shootdown,
    epoch: *mut u64,
) -> pageyard_status {
    if epoch.is_null() {
        return PAGEYARD_ERR_ARGUMENT;
    }
    // SAFETY: the header requires a valid batch that no other thread uses, and a writable result.
    status(unsafe { with(batch, |b, epochs| answer(epoch, b.begin(epochs_of(epochs)?).number())) })
}

/// Frees all blocks of a batch if every CPU has acknowledged its epoch. The batch is empty then, and
/// can be used again. If `freed` is not null, it receives the number of blocks freed.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_CPU,
/// PAGEYARD_ERR_BUSY; PAGEYARD_ERR_PHASE if no epoch was begun; PAGEYARD_ERR_PENDING if a CPU has not acknowledged it. As
/// pageyard_core_free if a block was added twice, or was freed by another than the batch and has not
/// been allocated again: it leaves the batch, and another call frees the rest. No block is freed then.
///
/// Threads: any, also interrupt handlers whose lock functions disable interrupts; one at a time for a
/// batch. Owner: the library owns the blocks again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_shootdown_free(
    yard: *const pageyard_core,
    batch: *mut pageyard_shootdown,
    freed: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, batch: *mut pageyard_shootdown, freed: *mut usize| {
        // SAFETY: the header requires a valid batch that no other thread uses.
        let n = unsafe {
            with(batch, |b, epochs| b.free(yard, epochs_of(epochs)?).map_err(of_shootdown))
        }?;
        if !freed.is_null() {
            // SAFETY: the header requires a writable result.
            unsafe { answer(freed, n) }?;
        }
        Ok(())
    })
}
