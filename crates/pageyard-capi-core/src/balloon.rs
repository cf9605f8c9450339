//! Blocks that are lent to a hypervisor until it acknowledges their return.

use core::mem::offset_of;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Release};

use pageyard::{Balloon, Lent, Pfn};

use crate::flags;
use crate::handle::{of, on_yard, pageyard_core};
use crate::layout::entries_mut;
use crate::sized::{self, Growing, answer};
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_FULL, PAGEYARD_ERR_NO_MEMORY,
    of_balloon, pageyard_status, status,
};

/// Place of a block in a balloon. Set it to zero; then it is the library's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_lent {
    /// First frame.
    pub pfn: u64,
    /// 0: no block; 1: lent; 2: asked back.
    pub phase: u64,
}

// The core keeps the blocks in the caller's array. It documents the two words, of which any bits are
// valid.
const _: () = assert!(
    size_of::<pageyard_lent>() == size_of::<Lent>()
        && align_of::<pageyard_lent>() == align_of::<Lent>()
);

/// Blocks of one order that are lent to a hypervisor. Set the structure and the entries of `lent` to
/// zero, then set `struct_size` to sizeof(struct pageyard_balloon), `version` to PAGEYARD_VERSION,
/// `lent`, `room` and `order`.
///
/// 1. pageyard_core_balloon_lend takes a free block out of the yard. The caller unmaps it and releases
///    it to the hypervisor.
/// 2. pageyard_core_balloon_ask names a block that is wanted back. The caller asks the hypervisor to map
///    it again.
/// 3. pageyard_core_balloon_acknowledge frees it once the hypervisor has answered.
///
/// A block that is not acknowledged stays out of the yard, also if the balloon is given up. `relocate` must
/// refuse blocks of a balloon.
///
/// Threads: one at a time for a balloon. A hook that calls again with the balloon gets PAGEYARD_ERR_BUSY.
/// Owner: structure and array stay the caller's, who changes neither while the balloon has blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_balloon {
    /// sizeof(struct pageyard_balloon).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Room for blocks.
    pub lent: *mut pageyard_lent,
    /// Number of entries of `lent`.
    pub room: usize,
    /// The order of all blocks.
    pub order: u32,
    /// The library's: 1 during a call with this balloon.
    pub busy: u32,
}

// SAFETY: the two fields are followed by numbers and a pointer, of which zero is null.
unsafe impl Growing for pageyard_balloon {
    const LEAST: usize = offset_of!(Self, busy) + size_of::<u32>();
}

/// Calls a function with the balloon of a structure, and with the number of pages for which it has room.
///
/// # Safety
/// The pointer must be null or point to a structure as its comment says, of the size in its first
/// field, that nothing else uses meanwhile.
#[inline(always)]
unsafe fn with<T>(
    balloon: *mut pageyard_balloon,
    act: impl FnOnce(&mut Balloon<'_>, u64) -> Result<T, pageyard_status>,
) -> Result<T, pageyard_status> {
    // SAFETY: guaranteed by the caller.
    unsafe { sized::check(balloon) }?;
    // SAFETY: within the structure, as checked; used as an atomic only. Claimed before anything is read: a
    // hook or an interrupt handler that calls again with this balloon is refused before a reference to its
    // blocks is made.
    let busy = unsafe { AtomicU32::from_ptr(&raw mut (*balloon).busy) };
    if busy.swap(1, Acquire) != 0 {
        return Err(PAGEYARD_ERR_BUSY);
    }
    // SAFETY: as above. The layout of the blocks is asserted above, and any bits are valid.
    let done = unsafe {
        let (lent, room) = ((*balloon).lent, (*balloon).room);
        flags::order((*balloon).order).and_then(|order| {
            let mut resumed = Balloon::resume(entries_mut(lent.cast::<Lent>(), room)?, order);
            act(&mut resumed, (room as u64) << order.get())
        })
    };
    busy.store(0, Release);
    done
}

/// Takes a free block out of the yard, without reclaim, and stores its first frame in `pfn`.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY;
/// PAGEYARD_ERR_FULL; PAGEYARD_ERR_NO_MEMORY if no block is free that a request with these flags may use, or a zone would
/// fall to its low watermark, or for flags that contradict each other or an unknown CPU.
///
/// Threads: any; one at a time for a balloon. Interrupt handlers may call it if the lock functions
/// disable interrupts. Owner: the balloon owns the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_balloon_lend(
    yard: *const pageyard_core,
    balloon: *mut pageyard_balloon,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard,
                                   balloon: *mut pageyard_balloon,
                                   flags: u32,
                                   pfn: *mut u64| {
        if pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let lend = |balloon: &mut Balloon<'_>, room| match balloon.lend(yard, flags::gfp(flags)) {
            // SAFETY: the header requires a writable result.
            Some(block) => unsafe { answer(pfn, block.0) },
            None if balloon.pages() == room => Err(PAGEYARD_ERR_FULL),
            None => Err(PAGEYARD_ERR_NO_MEMORY),
        };
        // SAFETY: the header requires a valid balloon that no other thread uses.
        unsafe { with(balloon, lend) }
    })
}

/// Chooses a block to get back from the hypervisor, and stores its first frame in `pfn`. Stores
/// UINT64_MAX if there is none that was not asked for.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY.
///
/// Threads: any, also interrupt handlers; one at a time for a balloon. Owner: no ownership changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_balloon_ask(
    balloon: *mut pageyard_balloon,
    pfn: *mut u64,
) -> pageyard_status {
    if pfn.is_null() {
        return PAGEYARD_ERR_ARGUMENT;
    }
    // SAFETY: the header requires a valid balloon that no other thread uses, and a writable result.
    status(unsafe {
        with(balloon, |balloon, _| answer(pfn, balloon.ask().map_or(u64::MAX, |p| p.0)))
    })
}

/// Frees a block that the hypervisor has mapped again.
///
/// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_CPU,
/// PAGEYARD_ERR_BUSY; PAGEYARD_ERR_NOT_LENT for a block that is not in the balloon; PAGEYARD_ERR_PHASE for one that
/// pageyard_core_balloon_ask has not named since it was lent. As pageyard_core_free if another caller
/// has freed it: it leaves the balloon.
///
/// Threads: as pageyard_core_balloon_lend. Owner: the library owns the block again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_balloon_acknowledge(
    yard: *const pageyard_core,
    balloon: *mut pageyard_balloon,
    pfn: u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle.
    on_yard!(unsafe { of(yard) }, |yard, balloon: *mut pageyard_balloon, pfn: u64| {
        // SAFETY: the header requires a valid balloon that no other thread uses.
        unsafe { with(balloon, |b, _| b.acknowledge(yard, Pfn(pfn)).map_err(of_balloon)) }
    })
}
