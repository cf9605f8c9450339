//! Making a yard on memory of the caller's, and ending it.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use pageyard::{InitError, Layout, NodeId, Pfn, Storage, ZoneSpec};
use pageyard_carve::{Carver, carve_initialized};

use crate::handle::{self, pageyard_core};
use crate::hooks::{CPlatform, pageyard_platform};
use crate::layout::{self, ALIGN, Parts, Plan, pageyard_layout};
use crate::lock::{self, CLock};
use crate::sized::{self, answer};
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_LAYOUT, PAGEYARD_ERR_ROOM, pageyard_status, status,
};
use crate::text;

/// The arrays of a layout in the core's terms, and the handle before them.
type Described = (
    &'static mut pageyard_core,
    &'static [ZoneSpec],
    (&'static [Range<Pfn>], &'static [Range<Pfn>]),
    &'static [NodeId],
);

/// Writes them to the room, in the order of [`Plan`]. Apart from [`build`], whose stack is deep.
#[inline(never)]
fn describe(carver: &mut Carver<'static>, parts: &Parts<'_>) -> Option<Described> {
    let nothing =
        || ZoneSpec { kind: pageyard::ZoneKind::Normal, node: NodeId(0), span: Pfn(0)..Pfn(0) };
    let [handle] = carver.slice(1, |_| const { pageyard_core::unmade() })? else { return None };
    let specs = carver.slice(parts.zones.len(), |i| {
        parts.zones.get(i).and_then(|z| layout::zone_spec(z).ok()).unwrap_or_else(nothing)
    })?;
    let ranges = carver.slice(parts.usable.len().checked_add(parts.reserved.len())?, |i| {
        let all = || parts.usable.iter().chain(parts.reserved);
        all().nth(i).map_or(Pfn(0)..Pfn(0), layout::range)
    })?;
    let cpus = carver
        .slice(parts.cpus.len(), |i| NodeId(parts.cpus.get(i).copied().unwrap_or_default()))?;
    let (usable, reserved) = ranges.split_at_checked(parts.usable.len())?;
    Some((handle, specs, (usable, reserved), cpus))
}

/// # Safety
/// Every byte of the room has some value, as memory of a program in C has.
unsafe fn build(
    parts: &Parts<'_>,
    room: &'static mut [MaybeUninit<u8>],
    table: pageyard_platform,
    why: impl Fn(InitError),
) -> Result<*mut pageyard_core, pageyard_status> {
    for zone in parts.zones {
        layout::zone_spec(zone)?;
    }
    let mut carver = Carver::new(room);
    if !carver.align_to(ALIGN) {
        return Err(PAGEYARD_ERR_ROOM);
    }
    let described = describe(&mut carver, parts).ok_or(PAGEYARD_ERR_ROOM)?;
    let (handle, specs, (usable, reserved), cpus) = described;
    let layout: Layout<'_> = layout::layout(specs, usable, reserved, cpus, parts.distances);
    let refused = |e: InitError| {
        why(e);
        PAGEYARD_ERR_LAYOUT
    };
    layout.needs::<CLock>().map_err(refused)?;
    lock::decide(table.lock, table.try_lock, table.unlock)?;
    // SAFETY: by the caller's word the bytes have values; what they are does not matter
    // (`core_level_from_both_libraries` begins with room that is full of garbage).
    let storage: Storage<'static, CLock> =
        unsafe { carve_initialized(&layout, carver.into_rest()) }.map_err(refused)?;
    handle.init(CPlatform(table), &layout, storage).map_err(refused)?;
    Ok(handle)
}

/// Makes a yard in which every usable frame that is not reserved is free.
///
/// `room` is memory for its maps, of at least as many `bytes` as pageyard_core_room says, anywhere,
/// holding anything; it must not be memory that the yard hands out, unless the layout reserves that.
/// `platform` may be null: one CPU, spin locks, no hooks. `why`, where it is not null, is filled with
/// a sentence of at most `why_size` bytes, its ending zero included, that says what is wrong with the
/// layout; empty where that is not the error.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT; PAGEYARD_ERR_ROOM;
/// PAGEYARD_ERR_LOCKS. The room may then have been written to.
///
/// Threads: any; the yard may be used by others once this has returned, and they know that.
///
/// Owner: the room is the library's until pageyard_core_destroy; everything else stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_create(
    layout: *const pageyard_layout,
    platform: *const pageyard_platform,
    room: *mut c_void,
    bytes: usize,
    yard: *mut *mut pageyard_core,
    why: *mut c_char,
    why_size: usize,
) -> pageyard_status {
    // SAFETY: the header asks for all of it to be what it is called.
    status(unsafe { create(layout, platform, room, bytes, yard, (why, why_size)) })
}

/// # Safety
/// As the header says.
unsafe fn create(
    layout: *const pageyard_layout,
    platform: *const pageyard_platform,
    room: *mut c_void,
    bytes: usize,
    yard: *mut *mut pageyard_core,
    (why, why_size): (*mut c_char, usize),
) -> Result<(), pageyard_status> {
    let say = |error: Option<InitError>| {
        if !why.is_null() {
            // SAFETY: see below. A sentence that does not fit is cut.
            let _ = unsafe {
                text::put(why, why_size, core::ptr::null_mut(), |out| {
                    error.map_or(Ok(()), |e| e.write_to(out)).map_err(|_| PAGEYARD_ERR_LAYOUT)
                })
            };
        }
    };
    say(None);
    if room.is_null() || yard.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: by the caller's word the pointers are what they are called.
    unsafe {
        let parts = Parts::read(layout)?;
        let table =
            if platform.is_null() { pageyard_platform::none() } else { sized::read(platform)? };
        let plan = Plan::of(&parts)?;
        if bytes < plan.bytes {
            return Err(PAGEYARD_ERR_ROOM);
        }
        // No more of the room than is needed: the caller's number may exceed an address space.
        let room = slice::from_raw_parts_mut(room.cast(), plan.bytes);
        let handle = build(&parts, room, table, |e| say(Some(e)))?;
        answer(yard, handle)
    }
}

/// Ends a yard. Frames that it had handed out stay in whoever's hands they are.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: nobody else uses the yard, or does afterwards. Owner: the room is the caller's again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_destroy(yard: *mut pageyard_core) -> pageyard_status {
    // SAFETY: the header asks for a handle that nobody else uses.
    status(unsafe { handle::of(yard) }.map(|_| {
        // SAFETY: as above.
        unsafe { &*yard }.end();
    }))
}
