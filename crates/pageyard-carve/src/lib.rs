//! Divides one region of memory into the maps of a [`pageyard`] allocator.
//!
//! The core has no `unsafe` code, so it cannot place its maps in raw bytes. This crate does:
//! [`carve`] turns a region of [`Layout::metadata`] bytes into a [`Storage`]. [`Carver`] places
//! other values in the same region. It needs no heap and has no reachable panic.
//!
//! ```
//! use core::mem::MaybeUninit;
//! use pageyard::{Bare, Gfp, Knobs, Layout, NodeId, Order, Pfn, Yard, ZoneKind, ZoneSpec};
//!
//! type Lock = spin::mutex::SpinMutex<()>;
//!
//! let span = Pfn(0x100000)..Pfn(0x104000);
//! let layout = Layout {
//!     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
//!     usable: &[span],
//!     reserved: &[],
//!     cpus: &[NodeId(0)],
//!     distances: &[],
//!     knobs: Knobs::default(),
//! };
//! let needed = layout.metadata::<Lock>()?;
//! // Memory of any origin. One byte less than an alignment more, since it begins anywhere.
//! let mut region = vec![MaybeUninit::uninit(); needed.size() + needed.align() - 1];
//! let maps = pageyard_carve::carve(&layout, &mut region)?;
//! let yard: Yard<'_, Bare<Lock, ()>> = Yard::new(&layout, maps, ())?;
//! let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
//! yard.free(page, Order::ZERO)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![no_std]
#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod free_memory;
mod memory_map;

pub use free_memory::FreeMemory;
pub use memory_map::MemoryMap;

use core::fmt;
use core::mem::{self, MaybeUninit};
use core::ptr;
use core::slice;

use lock_api::RawMutex;
use pageyard::packed::YardStorage;
use pageyard::policy::Engine;
use pageyard::{
    CpuZones, Frame, InitError, Layout, Needs, Node, Pageblock, PerCpu, Storage, Zone, packed,
};

/// Compiles the examples of docs/embedding.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

/// Divides `region` into the maps of an allocator with this layout, and initializes all of them.
/// The region may be uninitialized.
///
/// The region is borrowed for the allocator's lifetime. It may start at any address: bytes before
/// the first aligned address are skipped. Bytes that the maps do not need stay unused.
///
/// Writes 16 bytes for each frame; [`carve_initialized`] avoids that pass.
///
/// # Errors
/// [`InitError`] if the layout is invalid. [`TooSmall`](InitError::TooSmall) if the region is too
/// small, with the number of bytes needed from its start address.
pub fn carve<'a, R: RawMutex>(
    layout: &Layout<'_>,
    region: &'a mut [MaybeUninit<u8>],
) -> Result<Storage<'a, R>, InitError> {
    divide(Engine::Exact, layout, region, exact_maps, |_, _| Some(YardStorage::EMPTY))
}

fn exact_maps<'a>(carver: &mut Carver<'a>, needs: &Needs) -> Option<Maps<'a>> {
    let frames = carver.slice(needs.frames, |_| Frame::new())?;
    Some((frames, carver.slice(needs.blocks, |_| Pageblock::new())?))
}

/// Like [`carve`], for an allocator on either engine.
///
/// ```
/// use core::mem::MaybeUninit;
/// use pageyard::policy::{Engine, Packed};
/// use pageyard::{Bare, Gfp, Knobs, Layout, NodeId, Order, Pfn, Yard, ZoneKind, ZoneSpec};
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// let span = Pfn(0)..Pfn(0x4000);
/// let layout = Layout {
///     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
///     usable: &[span],
///     reserved: &[],
///     cpus: &[NodeId(0)],
///     distances: &[],
///     knobs: Knobs::DEFAULT,
/// };
/// let mut region = vec![MaybeUninit::uninit(); 256 << 10];
/// let storage = pageyard_carve::carve_on(Engine::Packed, &layout, &mut region)?;
/// let yard: Yard<'_, Bare<Lock, (), Packed>> = Yard::new(&layout, storage, ())?;
/// assert!(yard.alloc(Order::HUGE, Gfp::KERNEL).is_ok());
/// # Ok::<(), pageyard::InitError>(())
/// ```
///
/// # Errors
/// As [`carve`].
pub fn carve_on<'a, R: RawMutex>(
    engine: Engine,
    layout: &Layout<'_>,
    region: &'a mut [MaybeUninit<u8>],
) -> Result<Storage<'a, R>, InitError> {
    divide(engine, layout, region, exact_maps, |carver, needs| {
        Some(region_storage(carver, needs)?.into())
    })
}

/// Like [`carve`], but does not initialize frame descriptors and pageblock entries. This saves a
/// pass over them: [`Yard::new`](pageyard::Yard::new) writes them anyway.
///
/// For [`Yard::deferred`](pageyard::Yard::deferred), the bytes must also be zero, as fresh memory
/// from an operating system is.
///
/// # Errors
/// As [`carve`].
///
/// # Safety
/// Every byte of the region must be initialized, to any value, for example by an operating system
/// or by code in another language.
pub unsafe fn carve_initialized<'a, R: RawMutex>(
    layout: &Layout<'_>,
    region: &'a mut [MaybeUninit<u8>],
) -> Result<Storage<'a, R>, InitError> {
    let maps = |carver: &mut Carver<'a>, needs: &Needs| -> Option<Maps<'a>> {
        // SAFETY: the caller guarantees that the bytes are initialized. Both types are atomic
        // integers and padding (their documentation guarantees that zero bytes are valid), so any
        // bytes are a valid value (`maps_work_on_uninitialised_memory` fails under Miri if
        // the region was not written).
        unsafe {
            let frames = carver.take::<Frame>(needs.frames)?;
            let blocks = carver.take::<Pageblock>(needs.blocks)?;
            Some((initialized(frames), initialized(blocks)))
        }
    };
    divide(Engine::Exact, layout, region, maps, |_, _| Some(YardStorage::EMPTY))
}

type Maps<'a> = (&'a [Frame], &'a [Pageblock]);

// Outlined: its locals should not lie below what the caller does with the storage.
#[inline(never)]
fn divide<'a, R: RawMutex>(
    engine: Engine,
    layout: &Layout<'_>,
    region: &'a mut [MaybeUninit<u8>],
    maps: impl FnOnce(&mut Carver<'a>, &Needs) -> Option<Maps<'a>>,
    packed: impl FnOnce(&mut Carver<'a>, &packed::Needs) -> Option<YardStorage<'a, R>>,
) -> Result<Storage<'a, R>, InitError> {
    let needs = layout.needs_on::<R>(engine)?;
    let metadata = needs.metadata::<R>()?;
    let given = region.len();
    // Not `align_offset`: it panics unless the compiler sees that an alignment is a power of two.
    let padding = region.as_ptr().addr().wrapping_neg() & (metadata.align() - 1);
    let needed = padding.saturating_add(metadata.size());
    let too_small = InitError::TooSmall { what: "bytes for its maps", needed, given };
    if given < needed {
        return Err(too_small);
    }
    let mut carver = Carver::new(region);
    // The order must match `Needs::metadata`.
    let storage = || {
        let zones = carver.slice(needs.zones, |_| const { Zone::new() })?;
        let slots = carver.slice(needs.slots, |_| const { PerCpu::new() })?;
        let cpu_zones = carver.slice(needs.cpu_zones, |_| const { CpuZones::new() })?;
        let nodes = carver.slice(needs.nodes, |_| const { Node::new() })?;
        let (frames, blocks) = maps(&mut carver, &needs)?;
        let packed = packed(&mut carver, &needs.packed.get())?;
        Some(Storage { frames, blocks, zones, slots, nodes, cpu_zones, packed })
    };
    storage().ok_or(too_small)
}

/// Carves the storage of a packed region, for an embedder that uses the engine without zones.
/// Returns `None` if the rest of the region is too small.
///
/// Each of the ten slices is aligned, so the carver needs up to 128 bytes for each beyond
/// [`Needs::bytes`](packed::Needs::bytes).
///
/// ```
/// use core::mem::MaybeUninit;
/// use pageyard::packed::{Needs, Region};
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
/// use pageyard_carve::{Carver, region_storage};
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// let needs = Needs::of(Pfn(0), 1 << 16, 1, 1)?;
/// let mut memory = vec![MaybeUninit::uninit(); needs.bytes::<Lock>() + 10 * 128];
/// let storage = region_storage::<Lock>(&mut Carver::new(&mut memory), &needs).unwrap();
/// let region = Region::new(Pfn(0), 1 << 16, 1, storage)?;
/// region.add(Pfn(0)..Pfn(1 << 16))?;
/// assert!(region.alloc(CpuId(0), Order::HUGE, MigrateType::Movable).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn region_storage<'a, R: RawMutex>(
    carver: &mut Carver<'a>,
    needs: &packed::Needs,
) -> Option<packed::Storage<'a, R>> {
    // The order must match `Needs::metadata`.
    let cpus = carver.slice(needs.cpus, |_| const { packed::PerCpu::new() })?;
    let domains = carver.slice(needs.domains, |_| const { packed::Domain::new() })?;
    let magazines = carver.slice(needs.magazines, |_| const { packed::Magazine::new() })?;
    let words = carver.slice(needs.blocks, |_| packed::Words::new())?;
    let faulty = carver.slice(needs.blocks, |_| packed::Words::new())?;
    let index = carver.slice(needs.index, |_| packed::IndexWord::new())?;
    let labels = carver.slice(needs.blocks, |_| packed::Label::new())?;
    let links = carver.slice(needs.magazines, |_| packed::Link::new())?;
    let routes = carver.slice(needs.blocks, |_| packed::Route::new())?;
    let states = carver.slice(needs.states, |_| packed::FrameState::new())?;
    Some(packed::Storage {
        states,
        words,
        faulty,
        labels,
        routes,
        index,
        magazines,
        links,
        cpus,
        domains,
    })
}

/// Places values in a region of memory, one slice after another.
///
/// ```
/// use core::mem::MaybeUninit;
/// use pageyard_carve::Carver;
///
/// let mut region = [MaybeUninit::uninit(); 64];
/// let mut carver = Carver::new(&mut region);
/// let squares: &mut [u64] = carver.slice(4, |i| (i * i) as u64).unwrap();
/// let name: &mut [u8] = carver.slice(3, |i| b"abc"[i]).unwrap();
/// assert_eq!((&*squares, &*name), (&[0, 1, 4, 9][..], &b"abc"[..]));
/// assert!(carver.slice(100, |_| 0u8).is_none());
/// ```
pub struct Carver<'a> {
    rest: &'a mut [MaybeUninit<u8>],
}

impl<'a> Carver<'a> {
    /// Creates a carver at the start of the region.
    pub fn new(region: &'a mut [MaybeUninit<u8>]) -> Self {
        Carver { rest: region }
    }

    /// Skips to the next address that is a multiple of `align`, a power of two. Returns `false`,
    /// and skips nothing, if the rest of the region has no such address or `align` is not a power
    /// of two.
    pub fn align_to(&mut self, align: usize) -> bool {
        if !align.is_power_of_two() {
            return false;
        }
        let skip = self.rest.as_ptr().align_offset(align);
        self.split(skip).is_some()
    }

    /// Carves `n` values, each created by `new` from its index. The values are never dropped: when
    /// the borrow of the region ends, they are bytes again. Returns `None`, and carves nothing, if
    /// the rest of the region is too small.
    pub fn slice<T>(&mut self, n: usize, mut new: impl FnMut(usize) -> T) -> Option<&'a mut [T]> {
        let own = self.take::<T>(n)?;
        for (i, slot) in own.iter_mut().enumerate() {
            // Written in place: an iterator of values would put each on the stack first, and a zone
            // takes several KiB (`core_functions_stay_within_the_documented_stack`).
            slot.write(new(i));
        }
        // SAFETY: the loop wrote each of the `n` slots
        // (`carving_ignores_previous_contents_and_padding` reads them under Miri).
        Some(unsafe { initialized(own) })
    }

    /// Returns the rest of the region.
    pub fn into_rest(self) -> &'a mut [MaybeUninit<u8>] {
        self.rest
    }

    /// Splits off the first `n` bytes of the rest.
    fn split(&mut self, n: usize) -> Option<&'a mut [MaybeUninit<u8>]> {
        if n > self.rest.len() {
            return None;
        }
        let (own, rest) = mem::take(&mut self.rest).split_at_mut_checked(n)?;
        self.rest = rest;
        Some(own)
    }

    /// Splits off aligned room for `n` values.
    fn take<T>(&mut self, n: usize) -> Option<&'a mut [MaybeUninit<T>]> {
        let bytes = n.checked_mul(size_of::<T>())?;
        let skip = self.rest.as_ptr().align_offset(align_of::<T>());
        let own = self.split(skip.checked_add(bytes)?)?.get_mut(skip..)?;
        // SAFETY: `own` is borrowed exclusively for `'a` and has the bytes of `n` values. `skip`
        // makes its start a multiple of their alignment, and a `MaybeUninit` may hold any bytes
        // (`values_are_aligned_for_every_region_start` and `slices_do_not_overlap` detect a
        // wrong alignment or length, at the latest under Miri).
        Some(unsafe { slice::from_raw_parts_mut(own.as_mut_ptr().cast(), n) })
    }
}

impl fmt::Debug for Carver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carver").field("rest", &self.rest.len()).finish()
    }
}

/// # Safety
/// All entries must be initialized.
unsafe fn initialized<T>(entries: &mut [MaybeUninit<T>]) -> &mut [T] {
    // SAFETY: the caller guarantees initialized entries, and both slices have the same
    // representation (`carving_ignores_previous_contents_and_padding`,
    // `maps_work_on_uninitialised_memory`).
    unsafe { &mut *(ptr::from_mut(entries) as *mut [T]) }
}
