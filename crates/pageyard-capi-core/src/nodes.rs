//! Requests that spread over nodes.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pageyard::{Interleave, NodeMask};

use crate::flags;
use crate::handle::{of, on_yard, pageyard_core};
use crate::sized::answer;
use crate::status::{PAGEYARD_ERR_ARGUMENT, of_alloc, pageyard_status};

/// Like pageyard_core_alloc, but begins at the next node in turn, and goes on to the nearest node that
/// can serve the request. `nodes` has bit N set for node N; without any bit the node is the CPU's own.
/// `turn` counts the requests. Set it to zero; any number of threads may share it.
///
/// Errors: as pageyard_core_alloc_on.
///
/// Threads, owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_interleaved(
    yard: *const pageyard_core,
    nodes: u64,
    turn: *mut u32,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    let kind = (order, flags);
    // SAFETY: the header requires a valid handle, a writable turn and a writable result.
    on_yard!(unsafe { of(yard) }, |yard,
                                   nodes: u64,
                                   turn: *mut u32,
                                   kind: (u32, u32),
                                   pfn: *mut u64| {
        let order = flags::order(kind.0)?;
        if turn.is_null() || !turn.is_aligned() || pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        // SAFETY: as above, and aligned. The caller does not write the word meanwhile, and other
        // threads use it as an atomic.
        let turn = unsafe { AtomicU32::from_ptr(turn) };
        let turns = Interleave::new(next(NodeMask(nodes), turn));
        let block = yard.alloc_interleaved(&turns, order, flags::gfp(kind.1)).map_err(of_alloc)?;
        // SAFETY: as above.
        unsafe { answer(pfn, block.0) }
    })
}

/// Returns the node whose turn it is as a set, which is empty if `nodes` is.
fn next(nodes: NodeMask, turn: &AtomicU32) -> NodeMask {
    let Some(place) = turn.fetch_add(1, Relaxed).checked_rem(nodes.0.count_ones()) else {
        return NodeMask::NONE;
    };
    nodes.iter().nth(place as usize).map_or(NodeMask::NONE, NodeMask::only)
}

/// Like pageyard_core_alloc, but prefers a set of nodes, of which the nearest comes first: without
/// direct reclaim on these, else on any node with all means that the flags allow. `nodes` has bit N set
/// for node N.
///
/// Errors: as pageyard_core_alloc_on.
///
/// Threads, owner: as pageyard_core_alloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_alloc_preferring(
    yard: *const pageyard_core,
    nodes: u64,
    order: u32,
    flags: u32,
    pfn: *mut u64,
) -> pageyard_status {
    // SAFETY: the header requires a valid handle and a writable result.
    on_yard!(unsafe { of(yard) }, |yard, nodes: u64, order: u32, flags: u32, pfn: *mut u64| {
        let order = flags::order(order)?;
        if pfn.is_null() {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let block =
            yard.alloc_preferring(NodeMask(nodes), order, flags::gfp(flags)).map_err(of_alloc)?;
        // SAFETY: as above.
        unsafe { answer(pfn, block.0) }
    })
}
