//! The caller's description of its memory, and the size of the maps.

use core::alloc::Layout as Bytes;
use core::mem::offset_of;
use core::ops::Range;
use core::slice;

use pageyard::policy::{Engine, Rules};
use pageyard::{Knobs, Layout, MAX_ORDER, Needs, NodeId, PAGEBLOCK_PAGES, Pfn, ZoneKind, ZoneSpec};

use crate::engine::engine;
use crate::handle::pageyard_core;
use crate::knobs::pageyard_knobs;
use crate::lock::CLock;
use crate::sized::{self, Growing};
use crate::status::{PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_LAYOUT, pageyard_status, status};

/// A range of frames from `start` up to, but not including, `end`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_range {
    /// First frame.
    pub start: u64,
    /// One past the last frame.
    pub end: u64,
}

/// One zone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_zone {
    /// Its frames, holes included.
    pub span: pageyard_range,
    /// Its node, from 0 to 63.
    pub node: u32,
    /// One of the PAGEYARD_ZONE numbers.
    pub kind: u32,
}

/// Description of a machine's memory. Set the structure to zero, then set `struct_size` to
/// sizeof(struct pageyard_layout), `version` to PAGEYARD_VERSION, and the fields that apply.
///
/// Owner: all arrays stay the caller's; pageyard_core_create copies what it needs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_layout {
    /// sizeof(struct pageyard_layout).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// At least one zone, in any order. No two overlap, or have the same kind and node.
    pub zones: *const pageyard_zone,
    /// Number of zones.
    pub zone_count: usize,
    /// Ranges that contain memory, in any order. No two overlap; all lie in zones.
    pub usable: *const pageyard_range,
    /// Number of usable ranges.
    pub usable_count: usize,
    /// Ranges that are already in use. They stay so until pageyard_core_release.
    pub reserved: *const pageyard_range,
    /// Number of reserved ranges.
    pub reserved_count: usize,
    /// The node of each CPU, indexed by CPU number. At least one entry.
    pub cpus: *const u16,
    /// Number of CPUs.
    pub cpu_count: usize,
    /// Distances between nodes as a matrix, row by row: 10 from a node to itself, more to others.
    /// Null: all other nodes are equally far.
    pub distances: *const u8,
    /// Number of distances: the square of the number of nodes, or 0.
    pub distance_count: usize,
    /// The initial settings, as pageyard_core_knobs fills them in. Null: the defaults.
    pub knobs: *const pageyard_knobs,
    /// One of the PAGEYARD_ENGINE numbers. 0: PAGEYARD_ENGINE_LINUX612.
    pub engine: u64,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer, no entries or the first
// engine.
unsafe impl Growing for pageyard_layout {
    // `knobs` and `engine` were added after the first version.
    const LEAST: usize = offset_of!(pageyard_layout, knobs);
}

/// Returns whether there may be an array of this many entries at an address.
fn is_array<T>(from: *const T, count: usize) -> bool {
    let bytes = count.checked_mul(size_of::<T>());
    bytes.is_some_and(|bytes| bytes <= isize::MAX as usize) && !from.is_null() && from.is_aligned()
}

/// # Safety
/// `from` must be null or point to `count` entries, unless `count` is 0.
pub(crate) unsafe fn entries<'l, T>(
    from: *const T,
    count: usize,
) -> Result<&'l [T], pageyard_status> {
    if count == 0 {
        return Ok(&[]);
    }
    if !is_array(from, count) {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: the caller guarantees `count` entries. Alignment and size are checked above
    // (`invalid_and_extreme_numbers_are_errors_or_served`, counts of SIZE_MAX).
    Ok(unsafe { slice::from_raw_parts(from, count) })
}

/// # Safety
/// `from` must be null or point to `count` entries that nothing else uses meanwhile, unless `count` is 0.
pub(crate) unsafe fn entries_mut<'l, T>(
    from: *mut T,
    count: usize,
) -> Result<&'l mut [T], pageyard_status> {
    if count == 0 {
        return Ok(&mut []);
    }
    if !is_array(from, count) {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: as in `entries`; the caller guarantees that they are its own.
    Ok(unsafe { slice::from_raw_parts_mut(from, count) })
}

/// The arrays of a layout.
pub(crate) struct Parts<'l> {
    pub(crate) zones: &'l [pageyard_zone],
    pub(crate) usable: &'l [pageyard_range],
    pub(crate) reserved: &'l [pageyard_range],
    pub(crate) cpus: &'l [u16],
    pub(crate) distances: &'l [u8],
    /// Null or valid.
    pub(crate) knobs: *const pageyard_knobs,
    /// One of the PAGEYARD_ENGINE numbers, or an unknown one.
    pub(crate) engine: u64,
}

impl Parts<'_> {
    /// Not inlined: the caller's structure would take stack below everything that `create` does.
    ///
    /// # Safety
    /// The pointer must be null or point to a layout that satisfies its field comments.
    #[inline(never)]
    pub(crate) unsafe fn read(layout: *const pageyard_layout) -> Result<Self, pageyard_status> {
        // SAFETY: guaranteed by the caller, here and below.
        let l = unsafe { sized::read(layout) }?;
        // SAFETY: see above.
        unsafe {
            Ok(Parts {
                zones: entries(l.zones, l.zone_count)?,
                usable: entries(l.usable, l.usable_count)?,
                reserved: entries(l.reserved, l.reserved_count)?,
                cpus: entries(l.cpus, l.cpu_count)?,
                distances: entries(l.distances, l.distance_count)?,
                knobs: l.knobs,
                engine: l.engine,
            })
        }
    }
}

pub(crate) fn range(r: &pageyard_range) -> Range<Pfn> {
    Pfn(r.start)..Pfn(r.end)
}

pub(crate) fn zone_spec(z: &pageyard_zone) -> Result<ZoneSpec, pageyard_status> {
    let kind = ZoneKind::ALL.get(z.kind as usize).copied().ok_or(PAGEYARD_ERR_ARGUMENT)?;
    let node = u16::try_from(z.node).map_err(|_| PAGEYARD_ERR_ARGUMENT)?;
    Ok(ZoneSpec { kind, node: NodeId(node), span: range(&z.span) })
}

/// Size of the room that a layout needs, from an address that is a multiple of [`ALIGN`].
/// `create.rs` carves the room in the same order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) bytes: usize,
}

/// Alignment of the room's start.
pub(crate) const ALIGN: usize = 128;

impl Plan {
    /// Computes the size for a layout. Checks only that zones end after they begin and that sizes
    /// do not overflow; the core validates the rest.
    pub(crate) fn of(engine: Engine, parts: &Parts<'_>) -> Result<Plan, pageyard_status> {
        let ranges = parts.usable.len().checked_add(parts.reserved.len());
        let ranges = ranges.ok_or(PAGEYARD_ERR_LAYOUT)?;
        Self::new(engine, parts.zones, ranges, parts.cpus, parts.distances.len())
    }

    /// Like [`of`](Self::of), from the numbers of ranges and distances.
    pub(crate) fn new(
        engine: Engine,
        zones: &[pageyard_zone],
        ranges: usize,
        cpus: &[u16],
        distances: usize,
    ) -> Result<Plan, pageyard_status> {
        let (mut needs, mut last_node) = (Needs::NONE, 0u64);
        for zone in zones {
            // Maps begin at a multiple of the largest block.
            let base = zone.span.start & !((1 << MAX_ORDER) - 1);
            let own = zone.span.end.checked_sub(base).ok_or(PAGEYARD_ERR_LAYOUT)?;
            let own = usize::try_from(own).map_err(|_| PAGEYARD_ERR_LAYOUT)?;
            last_node = last_node.max(zone.node.into());
            if engine == Engine::Packed {
                // What is out of range here `create` names.
                _ = needs.add_packed(&range(&zone.span), cpus.len());
                continue;
            }
            needs.frames = needs.frames.checked_add(own).ok_or(PAGEYARD_ERR_LAYOUT)?;
            needs.blocks += own.div_ceil(PAGEBLOCK_PAGES as usize);
        }
        for &node in cpus {
            last_node = last_node.max(node.into());
        }
        needs.nodes = (last_node as usize + 1).max(distances.isqrt());
        (needs.zones, needs.cpu_zones) = (zones.len(), cpus.len());
        needs.slots = zones.len().checked_mul(cpus.len()).ok_or(PAGEYARD_ERR_LAYOUT)?;
        Self::for_needs(ranges, &needs).ok_or(PAGEYARD_ERR_LAYOUT)
    }

    fn for_needs(ranges: usize, needs: &Needs) -> Option<Plan> {
        const { assert!(align_of::<pageyard_core>() <= ALIGN) };
        let after = |sum: Bytes, part: Bytes| Some(sum.extend(part).ok()?.0);
        let sum = Bytes::new::<pageyard_core>();
        let sum = after(sum, Bytes::new::<Rules>())?;
        // The layout, converted to the core's types.
        let sum = after(sum, Bytes::array::<ZoneSpec>(needs.zones).ok()?)?;
        let sum = after(sum, Bytes::array::<Range<Pfn>>(ranges).ok()?)?;
        let sum = after(sum, Bytes::array::<NodeId>(needs.cpu_zones).ok()?)?;
        let maps = needs.metadata::<CLock>().ok()?;
        if maps.align() > ALIGN {
            return None;
        }
        let sum = after(sum, maps)?;
        // The room may begin at any address.
        let bytes = sum.size().checked_add(ALIGN - 1)?;
        (bytes <= isize::MAX as usize).then_some(Plan { bytes })
    }
}

/// Computes how many bytes of room a yard with this layout needs: 16 per frame, or 1.3 with
/// PAGEYARD_ENGINE_PACKED, and some more per zone, CPU and range. If the room itself is one of the reserved ranges, the layout must contain
/// that range, with any bounds, before this call.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, also for an unknown engine; PAGEYARD_ERR_ENGINE;
/// PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT for zones that end before they begin or exceed the
/// address space. pageyard_core_create validates the rest of the
/// layout.
///
/// Threads: any. Owner: everything stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_room(
    layout: *const pageyard_layout,
    bytes: *mut usize,
) -> pageyard_status {
    // SAFETY: the header requires a valid layout and a writable result.
    status(unsafe { Parts::read(layout) }.and_then(|parts| {
        let plan = Plan::of(engine(parts.engine)?, &parts)?;
        // SAFETY: as above.
        unsafe { sized::answer(bytes, plan.bytes) }
    }))
}

/// Builds a layout of the core from converted arrays.
pub(crate) fn layout<'l>(
    specs: &'l [ZoneSpec],
    usable: &'l [Range<Pfn>],
    reserved: &'l [Range<Pfn>],
    cpus: &'l [NodeId],
    distances: &'l [u8],
) -> Layout<'l> {
    Layout { zones: specs, usable, reserved, cpus, distances, knobs: Knobs::default() }
}
