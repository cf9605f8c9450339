//! A kernel's start in one call, from a boot loader's memory map.

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use pageyard::policy::Engine;
use pageyard::{NodeId, Pfn, ZoneKind, ZoneSpec, put};
use pageyard_carve::{Carver, FreeMemory};

use crate::cpu;
use crate::create::{build, check_functions};
use crate::engine;
use crate::flags::PAGEYARD_PAGE_SIZE;
use crate::handle::pageyard_core;
use crate::knobs;
use crate::layout::{self, Parts, Plan, pageyard_range, pageyard_zone};
use crate::maintain::pageyard_core_cpu_dead;
use crate::platform::pageyard_platform;
use crate::sized::{self, answer};
use crate::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_CPU, PAGEYARD_ERR_LAYOUT, PAGEYARD_ERR_ROOM,
    PAGEYARD_ERR_VERSION, PAGEYARD_OK, pageyard_status, status,
};
use crate::text;

/// Kind of a memory range: the kernel may use it.
pub const PAGEYARD_MEMORY_USABLE: u32 = 1;
/// Kind of a memory range: tables of ACPI, which the kernel may use once it has read them.
pub const PAGEYARD_MEMORY_ACPI: u32 = 3;

/// The largest number of CPUs that pageyard_kernel_init takes.
pub const PAGEYARD_MOST_CPUS: u32 = 1024;

/// A range of physical memory as a boot loader reports it. The maps of PVH and Multiboot 2, whose
/// entries have 24 bytes, are arrays of this structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_memory {
    /// Physical address of the first byte.
    pub start: u64,
    /// Size in bytes. May be 0.
    pub size: u64,
    /// Numbered as in an e820 map: PAGEYARD_MEMORY_USABLE, PAGEYARD_MEMORY_ACPI. All other numbers
    /// mean that the range is in use.
    pub kind: u32,
    /// Ignored.
    pub reserved: u32,
}

/// A range of physical addresses from `start` up to, but not including, `end`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_addresses {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

static NODES: [u16; PAGEYARD_MOST_CPUS as usize] = [0; PAGEYARD_MOST_CPUS as usize];

/// What is wrong with the arguments.
#[derive(Clone, Copy)]
enum Wrong {
    Lists,
    Platform,
    Engine(u64, pageyard_status),
    Cpus(u32),
    Cpu(u32, u32),
    Range(usize),
    Reserved(usize),
    NothingUsable,
    NoRoom(u64),
}

impl Wrong {
    fn status(self) -> pageyard_status {
        match self {
            Wrong::Lists | Wrong::Cpus(_) => PAGEYARD_ERR_ARGUMENT,
            Wrong::Platform => PAGEYARD_ERR_VERSION,
            Wrong::Engine(_, status) => status,
            Wrong::Cpu(..) => PAGEYARD_ERR_CPU,
            Wrong::NoRoom(_) => PAGEYARD_ERR_ROOM,
            Wrong::Range(_) | Wrong::Reserved(_) | Wrong::NothingUsable => PAGEYARD_ERR_LAYOUT,
        }
    }

    fn write_to(self, out: &mut text::Buffer) -> core::fmt::Result {
        match self {
            Wrong::Lists => put!(out, "a list of ranges, or the place for the yard, is null"),
            Wrong::Platform => {
                put!(out, "the platform's struct_size, version or flags are unknown")
            }
            Wrong::Engine(n, status) => engine::write_refusal(n, status, out),
            Wrong::Cpus(n) => put!(out, n, " CPUs; expected 1 to ", PAGEYARD_MOST_CPUS),
            Wrong::Cpu(cpu, n) => {
                put!(out, "the platform's cpu returned ", cpu, "; expected a number below ", n)
            }
            Wrong::Range(i) => put!(out, "memory range ", i, " ends above 2^64"),
            Wrong::Reserved(i) => put!(out, "reserved range ", i, " ends before it starts"),
            Wrong::NothingUsable => {
                put!(out, "no memory range has a whole page that is usable and mapped")
            }
            Wrong::NoRoom(bytes) => {
                put!(out, "no free memory range has room for ", bytes, " bytes of maps")
            }
        }
    }
}

/// What a kernel starts from.
#[derive(Clone, Copy)]
struct Start<'s> {
    ranges: &'s [pageyard_memory],
    reserved: &'s [pageyard_addresses],
    direct_map: *mut c_void,
    /// Physical addresses that are mapped.
    mapped: u64,
    engine: Engine,
}

impl<'s> Start<'s> {
    fn check(&self) -> Result<(), Wrong> {
        let beyond =
            |r: &pageyard_memory| is_memory(r.kind) && r.start.checked_add(r.size).is_none();
        if let Some(i) = self.ranges.iter().position(beyond) {
            return Err(Wrong::Range(i));
        }
        if let Some(i) = self.reserved.iter().position(|r| r.start > r.end) {
            return Err(Wrong::Reserved(i));
        }
        Ok(())
    }

    fn entries(self) -> impl Iterator<Item = (u32, Range<u64>)> + Clone + 's {
        self.ranges.iter().map(|r| (r.kind, r.start..r.start.saturating_add(r.size)))
    }

    /// Memory, as far as it is mapped. ACPI tables are memory that is reserved: they can be released.
    fn usable(self) -> impl Iterator<Item = Range<u64>> + Clone + 's {
        let mapped = self.mapped;
        self.entries().filter(|e| is_memory(e.0)).map(move |e| e.1.start..e.1.end.min(mapped))
    }

    /// What the caller reserves, entries that are not free, and the page whose address would be null.
    fn reserved(self) -> impl Iterator<Item = Range<u64>> + Clone + 's {
        let null = (self.direct_map.addr() as u64).wrapping_neg();
        let own = self.reserved.iter().map(|r| r.start..r.end);
        let others = self.entries().filter(|e| e.0 != PAGEYARD_MEMORY_USABLE).map(|e| e.1);
        own.chain(others).chain(core::iter::once(null..null.saturating_add(1)))
    }

    fn memory(
        self,
    ) -> FreeMemory<
        impl Iterator<Item = Range<u64>> + Clone + 's,
        impl Iterator<Item = Range<u64>> + Clone + 's,
    > {
        FreeMemory::new(self.usable(), self.reserved())
    }
}

fn is_memory(kind: u32) -> bool {
    kind == PAGEYARD_MEMORY_USABLE || kind == PAGEYARD_MEMORY_ACPI
}

fn frames(r: Range<Pfn>) -> pageyard_range {
    pageyard_range { start: r.start.0, end: r.end.0 }
}

/// Writes the zones of the memory in C's types. Separate from its caller to bound the depth of the
/// stack, as is everything below that is not inlined.
#[inline(never)]
fn zones<'z>(start: &Start<'_>, to: &'z mut [pageyard_zone; 3]) -> &'z [pageyard_zone] {
    let nothing = || ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: Pfn(0)..Pfn(0) };
    let mut specs = [nothing(), nothing(), nothing()];
    let specs = start.memory().zones(&mut specs);
    for (to, spec) in to.iter_mut().zip(specs) {
        *to = pageyard_zone { span: frames(spec.span.clone()), node: 0, kind: spec.kind as u32 };
    }
    to.get(..specs.len()).unwrap_or(&[])
}

/// Chooses the place of the yard's maps: returns its first frame and its size in bytes.
#[inline(never)]
fn place(start: &Start<'_>, zones: &[pageyard_zone], cpus: &[u16]) -> Result<(Pfn, usize), Wrong> {
    let usable = start.ranges.len().saturating_add(1);
    let lists = usable.saturating_add(start.memory().reserved().count());
    // Too large a number fails below.
    let maps = Plan::new(start.engine, zones, lists, cpus, 0).map_or(usize::MAX, |plan| plan.bytes);
    let bytes = lists.saturating_mul(size_of::<pageyard_range>()).saturating_add(maps);
    let page = u64::from(PAGEYARD_PAGE_SIZE);
    let own = start.memory().place((bytes as u64).div_ceil(page), start.direct_map.addr());
    let own = own.filter(|own| usize::try_from(own.end.address()).is_ok());
    own.map(|own| (own.start, bytes)).ok_or(Wrong::NoRoom(bytes as u64))
}

/// The yard's ranges, written to its memory.
type Lists = (&'static [pageyard_range], &'static [pageyard_range]);

/// Writes usable frames, without those of the maps (`own`), and reserved ones.
#[inline(never)]
fn write_lists(start: &Start<'_>, own: Range<Pfn>, carver: &mut Carver<'static>) -> Option<Lists> {
    let nothing = || Pfn(0)..Pfn(0);
    let memory = start.memory();
    let mut parts = memory.runs_without(own.clone());
    let n = memory.runs_without(own).count();
    let usable = carver.slice(n, |_| frames(parts.next().unwrap_or_else(nothing)))?;
    let mut used = memory.reserved();
    let n = memory.reserved().count();
    let reserved = carver.slice(n, |_| frames(used.next().unwrap_or_else(nothing)))?;
    Some((usable, reserved))
}

/// Creates a kernel's yard from a memory map. The yard has one node, with a zone each below 16 MiB,
/// below 4 GiB and above. Its maps are placed in free memory and are not part of the yard. All CPUs
/// are offline but the caller's; each other calls pageyard_core_cpu_up when it starts.
///
/// `ranges` is the memory map, in any order. Ranges may overlap: a page is usable if a usable range
/// contains it and no range of another kind touches it. `reserved` is what is in use besides: the
/// kernel's image, its boot stack and page tables, an initial ramdisk. pageyard_core_release frees it
/// later, as it frees ACPI tables. The lists may lie in reserved memory only. `platform` may be null:
/// one to one map of all memory, one CPU that calls, spin locks. Its `direct_map` and `mapped` say where
/// memory is mapped, its `engine` which engine the yard runs on. The settings are those of PAGEYARD_KNOBS_SMALL if it has no `reclaim`. If `why`
/// is not null, it receives a sentence that says what is wrong, at most `why_size` bytes with its
/// terminating zero, or an empty text.
///
/// Errors: PAGEYARD_ERR_ARGUMENT for a null list or yard, an invalid number of CPUs, engine or flag,
/// invalid hooks, or a function of the platform that this core is built without; PAGEYARD_ERR_ENGINE, PAGEYARD_ERR_NOT_ON_PACKED; PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT for an invalid range or without any usable
/// memory; PAGEYARD_ERR_ROOM if no free memory has room for the maps; PAGEYARD_ERR_CPU for an invalid
/// answer of `cpu`; PAGEYARD_ERR_LOCKS. Free memory may then have been written to.
///
/// Threads: one, before other CPUs start. Owner: the library owns all memory that is usable and not
/// reserved, except for pages that it allocates; lists and platform stay the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_kernel_init(
    ranges: *const pageyard_memory,
    range_count: usize,
    reserved: *const pageyard_addresses,
    reserved_count: usize,
    cpus: u32,
    platform: *const pageyard_platform,
    yard: *mut *mut pageyard_core,
    why: *mut c_char,
    why_size: usize,
) -> pageyard_status {
    // SAFETY: the header requires valid pointers, here and below.
    unsafe { text::explain(why, why_size, |_| Ok(())) };
    let mut table = pageyard_platform::none();
    // SAFETY: see above.
    let read = unsafe {
        read(ranges, range_count, reserved, reserved_count, cpus, platform, yard, &mut table)
    };
    // SAFETY: see above.
    let made = read.and_then(|start| unsafe { init(&start, cpus, &table, yard, (why, why_size)) });
    match made {
        Ok(done) => done,
        Err(wrong) => {
            // SAFETY: see above.
            unsafe { text::explain(why, why_size, |out| wrong.write_to(out)) };
            wrong.status()
        }
    }
}

/// Reads and checks the arguments.
///
/// # Safety
/// As the header says.
#[expect(clippy::too_many_arguments, reason = "those of the function in C")]
unsafe fn read<'s>(
    ranges: *const pageyard_memory,
    range_count: usize,
    reserved: *const pageyard_addresses,
    reserved_count: usize,
    cpus: u32,
    platform: *const pageyard_platform,
    yard: *mut *mut pageyard_core,
    table: &mut pageyard_platform,
) -> Result<Start<'s>, Wrong> {
    if yard.is_null() {
        return Err(Wrong::Lists);
    }
    // SAFETY: guaranteed by the caller, here and below.
    let ranges = unsafe { layout::entries(ranges, range_count) }.map_err(|_| Wrong::Lists)?;
    // SAFETY: see above.
    let reserved =
        unsafe { layout::entries(reserved, reserved_count) }.map_err(|_| Wrong::Lists)?;
    if !platform.is_null() {
        // SAFETY: see above.
        unsafe { sized::read_to(platform, table) }.map_err(|_| Wrong::Platform)?;
    }
    if cpus == 0 || cpus > PAGEYARD_MOST_CPUS {
        return Err(Wrong::Cpus(cpus));
    }
    let mapped = if table.mapped == 0 { u64::MAX } else { table.mapped };
    let engine =
        engine::engine(table.engine).map_err(|status| Wrong::Engine(table.engine, status))?;
    let start = Start { ranges, reserved, direct_map: table.direct_map, mapped, engine };
    start.check()?;
    Ok(start)
}

/// # Safety
/// As the header says of memory, platform and pointers.
unsafe fn init(
    start: &Start<'_>,
    cpus: u32,
    table: &pageyard_platform,
    yard: *mut *mut pageyard_core,
    why: (*mut c_char, usize),
) -> Result<pageyard_status, Wrong> {
    // Before any of the platform's functions is called, and before memory is written.
    // SAFETY: guaranteed by the caller.
    if let Err(status) = unsafe { check_functions(table, why) } {
        return Ok(status);
    }
    let this = cpu::number(table.cpu, table.context);
    if this >= cpus {
        return Err(Wrong::Cpu(this, cpus));
    }
    let mut specs = [pageyard_zone { span: frames(Pfn(0)..Pfn(0)), node: 0, kind: 0 }; 3];
    let zones = zones(start, &mut specs);
    if zones.is_empty() {
        return Err(Wrong::NothingUsable);
    }
    let nodes = NODES.get(..cpus as usize).unwrap_or(&NODES);
    let (first, bytes) = place(start, zones, nodes)?;
    let end = Pfn((first.address() + bytes as u64).div_ceil(PAGEYARD_PAGE_SIZE.into()));
    let at = start.direct_map.wrapping_byte_add(first.address() as usize).cast();
    // SAFETY: the caller guarantees that free memory is mapped here and not used otherwise. The place
    // is free and this long (`kernel.c` fills all pages of the yard, then validates the maps).
    let room: &'static mut [MaybeUninit<u8>] = unsafe { slice::from_raw_parts_mut(at, bytes) };
    let mut carver = Carver::new(room);
    let lists = write_lists(start, first..end, &mut carver);
    let (usable, reserved) = lists.ok_or(Wrong::NoRoom(bytes as u64))?;
    let small = table.reclaim.is_none();
    let knobs = if small { &raw const knobs::SMALL } else { core::ptr::null() };
    let parts =
        Parts { zones, usable, reserved, cpus: nodes, distances: &[], knobs, engine: table.engine };
    // SAFETY: the caller guarantees a valid platform, and bytes that are initialized, as all memory of
    // a machine is.
    let handle = match unsafe { build(start.engine, &parts, carver.into_rest(), table, why) } {
        Ok(handle) => handle,
        Err(status) => return Ok(status),
    };
    for cpu in (0..cpus).filter(|&cpu| cpu != this) {
        // SAFETY: just created.
        let down = unsafe { pageyard_core_cpu_dead(handle, cpu) };
        if down != PAGEYARD_OK {
            return Ok(down);
        }
    }
    // SAFETY: checked not to be null; the caller guarantees that it is writable.
    Ok(status(unsafe { answer(yard, handle) }))
}
