//! Creates and destroys a yard on the caller's memory.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use pageyard::policy::{Engine, Linux612, Rules, StaticPolicy};
use pageyard::put::put;
use pageyard::{InitError, Layout, NodeId, Pfn, Storage, ZoneSpec};
use pageyard_carve::{Carver, carve_initialized, carve_on};

use crate::engine::{self, PAGEYARD_ENGINE_LINUX612, PAGEYARD_ENGINE_PACKED};
use crate::handle::{self, pageyard_core};
use crate::knobs;
use crate::layout::{self, ALIGN, Parts, Plan, pageyard_layout};
use crate::lock::{self, CLock};
use crate::platform::{PAGEYARD_DRAIN_ON_FAILURE, pageyard_platform};
use crate::sized::{self, answer};
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_LAYOUT, PAGEYARD_ERR_NOT_ON_PACKED, PAGEYARD_ERR_ROOM,
    pageyard_status, status,
};
use crate::text::{self, Buffer};

/// The handle, its rules, and the arrays of a layout, converted to the core's types.
type Described = (
    &'static mut pageyard_core,
    &'static mut Rules,
    &'static [ZoneSpec],
    (&'static [Range<Pfn>], &'static [Range<Pfn>]),
    &'static [NodeId],
);

/// Writes the arrays to the room in the order of [`Plan`]. Separate from [`build`] to bound the
/// depth of the stack.
#[inline(never)]
fn describe(carver: &mut Carver<'static>, parts: &Parts<'_>) -> Option<Described> {
    let nothing =
        || ZoneSpec { kind: pageyard::ZoneKind::Normal, node: NodeId(0), span: Pfn(0)..Pfn(0) };
    let [handle] = carver.slice(1, |_| const { pageyard_core::unmade() })? else { return None };
    let [rules] = carver.slice(1, |_| Linux612::RULES)? else { return None };
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
    Some((handle, rules, specs, (usable, reserved), cpus))
}

/// # Safety
/// Every byte of the room must be initialized, as memory of a C program is. The table must satisfy its
/// field comments. `why` must be null or point to as many writable bytes as it says.
pub(crate) unsafe fn build(
    engine: Engine,
    parts: &Parts<'_>,
    room: &'static mut [MaybeUninit<u8>],
    table: &pageyard_platform,
    (why, why_size): (*mut c_char, usize),
) -> Result<*mut pageyard_core, pageyard_status> {
    for zone in parts.zones {
        layout::zone_spec(zone)?;
    }
    let mut carver = Carver::new(room);
    if !carver.align_to(ALIGN) {
        return Err(PAGEYARD_ERR_ROOM);
    }
    let described = describe(&mut carver, parts).ok_or(PAGEYARD_ERR_ROOM)?;
    let (handle, rules, specs, (usable, reserved), cpus) = described;
    let mut layout: Layout<'_> = layout::layout(specs, usable, reserved, cpus, parts.distances);
    // SAFETY: guaranteed by the caller.
    unsafe { knobs::read_to(parts.knobs, &mut layout.knobs) }?;
    let refused = |e: InitError| {
        // SAFETY: guaranteed by the caller.
        unsafe { say(why, why_size, Some(&e)) };
        PAGEYARD_ERR_LAYOUT
    };
    check(engine, &layout).map_err(refused)?;
    let hooked = !table.hooks.is_null();
    if hooked && cfg!(feature = "without-hooks") {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    if hooked {
        // SAFETY: guaranteed by the caller.
        unsafe { add_hooks(handle, table, rules, engine, (why, why_size)) }?;
    }
    if table.flags & !PAGEYARD_DRAIN_ON_FAILURE != 0 {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { check_functions(table, (why, why_size)) }?;
    lock::decide(table.lock, table.try_lock, table.unlock)?;
    // SAFETY: the caller guarantees that the bytes are initialized; their values do not matter
    // (`core_level_from_both_libraries` begins with a room full of garbage).
    let storage = unsafe { divide(engine, &layout, carver.into_rest()) }.map_err(refused)?;
    handle.init(table, (engine, hooked), &layout, storage).map_err(refused)?;
    Ok(handle)
}

/// Divides the room into the maps of a yard. Outlined like [`check`].
///
/// # Safety
/// Every byte of the room must be initialized.
#[inline(never)]
unsafe fn divide(
    engine: Engine,
    layout: &Layout<'_>,
    room: &'static mut [MaybeUninit<u8>],
) -> Result<Storage<'static, CLock>, InitError> {
    if cfg!(feature = "packed") && engine == Engine::Packed {
        carve_on(Engine::Packed, layout, room)
    } else {
        // SAFETY: guaranteed by the caller.
        unsafe { carve_initialized(layout, room) }
    }
}

/// Adds the hooks, or writes that the engine does not have what they need. Outlined like [`check`].
///
/// # Safety
/// As for [`build`].
#[inline(never)]
unsafe fn add_hooks(
    handle: &mut pageyard_core,
    table: &pageyard_platform,
    rules: &'static mut Rules,
    engine: Engine,
    (why, why_size): (*mut c_char, usize),
) -> Result<(), pageyard_status> {
    // SAFETY: guaranteed by the caller.
    let added = unsafe { handle.add_hooks(table.hooks, rules, engine) };
    if added == Err(PAGEYARD_ERR_NOT_ON_PACKED) {
        // SAFETY: guaranteed by the caller.
        unsafe { say_engine(why, why_size, PAGEYARD_ENGINE_PACKED, PAGEYARD_ERR_NOT_ON_PACKED) };
    }
    added
}

/// Returns how much of the room a yard needs, or writes that there is not enough. Outlined like
/// [`check`].
///
/// # Safety
/// As for [`say`].
#[inline(never)]
unsafe fn needed(
    engine: Engine,
    parts: &Parts<'_>,
    given: usize,
    (why, why_size): (*mut c_char, usize),
) -> Result<usize, pageyard_status> {
    let needed = Plan::of(engine, parts)?.bytes;
    if given < needed {
        let short = InitError::TooSmall { what: "bytes for its maps", needed, given };
        // SAFETY: guaranteed by the caller.
        unsafe { say(why, why_size, Some(&short)) };
        return Err(PAGEYARD_ERR_ROOM);
    }
    Ok(needed)
}

/// Checks a layout. Outlined to keep its needs off the stack below what follows.
#[inline(never)]
fn check(engine: Engine, layout: &Layout<'_>) -> Result<(), InitError> {
    layout.needs_on::<CLock>(engine).map(|_| ())
}

/// Creates a yard in which every usable frame that is not reserved is free.
///
/// `room` is memory for the yard's maps: at least as many `bytes` as pageyard_core_room returns, at
/// any address, with any contents. It must not overlap memory that the yard allocates, unless the
/// layout reserves it. `platform` may be null: one CPU, spin locks, no hooks. If `why` is not null,
/// it receives a sentence that says what is wrong with the layout, the room, the engine, or a function of
/// the platform that this core is built without, at most `why_size` bytes with its terminating zero. It is
/// empty after other errors, such as invalid hooks or flags.
///
/// Errors: PAGEYARD_ERR_ARGUMENT, also for invalid hooks, an unknown engine or unknown flags, or a
/// platform with another engine or with a function that this core is built without; PAGEYARD_ERR_VERSION; PAGEYARD_ERR_ENGINE,
/// PAGEYARD_ERR_NOT_ON_PACKED; PAGEYARD_ERR_LAYOUT; PAGEYARD_ERR_ROOM; PAGEYARD_ERR_LOCKS. The room
/// may then have been written to.
///
/// Threads: any. Other threads may use the yard once this function has returned and the handle has
/// been passed to them with proper synchronization.
///
/// Owner: the library owns the room until pageyard_core_destroy; everything else stays the
/// caller's.
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
    // SAFETY: the header requires all pointers to be valid.
    status(unsafe { create(layout, platform, room, bytes, yard, (why, why_size)) })
}

/// Writes what is wrong with the layout, or an empty text.
///
/// # Safety
/// `why` must be null or point to `why_size` writable bytes.
#[inline(never)]
unsafe fn say(why: *mut c_char, why_size: usize, error: Option<&InitError>) {
    // SAFETY: guaranteed by the caller.
    unsafe { text::explain(why, why_size, |out| error.map_or(Ok(()), |e| e.write_to(out))) }
}

/// Writes why an engine is refused.
///
/// # Safety
/// As for [`say`].
#[inline(never)]
unsafe fn say_engine(why: *mut c_char, why_size: usize, number: u64, status: pageyard_status) {
    // SAFETY: guaranteed by the caller.
    unsafe { text::explain(why, why_size, |out| engine::write_refusal(number, status, out)) };
}

/// Checks that the platform has no function that this core never calls. Writes which it has. Outlined like
/// [`check`].
///
/// # Safety
/// As for [`say`].
#[inline(never)]
pub(crate) unsafe fn check_functions(
    table: &pageyard_platform,
    (why, why_size): (*mut c_char, usize),
) -> Result<(), pageyard_status> {
    let Some(names) = table.unwanted() else { return Ok(()) };
    let write = |out: &mut Buffer| {
        put!(out, "this core was built to do without the platform's ", names, "; null is expected")
    };
    // SAFETY: guaranteed by the caller.
    unsafe { text::explain(why, why_size, write) };
    Err(PAGEYARD_ERR_ARGUMENT)
}

/// Returns the engine of a yard, which layout and platform name. Writes why it is refused.
///
/// # Safety
/// As for [`say`].
#[inline(never)]
unsafe fn chosen(
    layout: u64,
    platform: u64,
    (why, why_size): (*mut c_char, usize),
) -> Result<Engine, pageyard_status> {
    let number = if platform == PAGEYARD_ENGINE_LINUX612 { layout } else { platform };
    let chosen = engine::engine(number);
    match chosen {
        Ok(_) if number != layout => {
            let say = |out: &mut Buffer| {
                put!(out, "the platform's engine is ", number, ", the layout's ", layout)
            };
            // SAFETY: guaranteed by the caller.
            unsafe { text::explain(why, why_size, say) };
            Err(PAGEYARD_ERR_ARGUMENT)
        }
        Ok(engine) => Ok(engine),
        Err(status) => {
            // SAFETY: guaranteed by the caller.
            unsafe { say_engine(why, why_size, number, status) };
            Err(status)
        }
    }
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
    // SAFETY: the caller guarantees that the pointer is valid, here and below.
    unsafe { say(why, why_size, None) };
    if room.is_null() || yard.is_null() {
        return Err(PAGEYARD_ERR_ARGUMENT);
    }
    // SAFETY: the caller guarantees that the pointers are valid.
    unsafe {
        let parts = Parts::read(layout)?;
        let mut table = pageyard_platform::none();
        if !platform.is_null() {
            sized::read_to(platform, &mut table)?;
        }
        let engine = chosen(parts.engine, table.engine, (why, why_size))?;
        // Use only as much of the room as needed: `bytes` may exceed the address space.
        let needed = needed(engine, &parts, bytes, (why, why_size))?;
        let room = slice::from_raw_parts_mut(room.cast(), needed);
        let handle = build(engine, &parts, room, &table, (why, why_size))?;
        answer(yard, handle)
    }
}

/// Destroys a yard. Frames that were allocated from it are not affected.
///
/// Errors: PAGEYARD_ERR_HANDLE.
///
/// Threads: no other thread may use the yard during or after the call. Owner: the caller owns the
/// room again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_core_destroy(yard: *mut pageyard_core) -> pageyard_status {
    // SAFETY: the header requires a valid handle that no other thread uses.
    status(unsafe { handle::of(yard) }.map(|_| {
        // SAFETY: as above.
        unsafe { &*yard }.end();
    }))
}
