//! Storage for an allocator's maps. Descriptors and pageblocks lie in mappings of their own, which
//! take memory as it is written; the rest is on the heap.

use std::fmt;
use std::io;
use std::ptr::{self, NonNull};

use lock_api::RawMutex;
use std::ops::Range;

use pageyard::{
    CpuZones, Frame, InitError, Knobs, Layout, Needs, Node, NodeId, Pageblock, PerCpu, Pfn,
    Storage, Zone, ZoneSpec,
};

use crate::memory::Mapping;

/// The parts of a layout. An allocator with deferred initialisation keeps borrowing them.
#[derive(Debug)]
pub(crate) struct LayoutParts {
    pub(crate) zones: Box<[ZoneSpec]>,
    pub(crate) usable: Box<[Range<Pfn>]>,
    pub(crate) cpus: Box<[NodeId]>,
    pub(crate) distances: Box<[u8]>,
    pub(crate) knobs: Knobs,
}

impl LayoutParts {
    pub(crate) fn layout(&self) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &self.usable,
            reserved: &[],
            cpus: &self.cpus,
            distances: &self.distances,
            knobs: self.knobs,
        }
    }
}

/// The maps of one allocator, which borrows them as long as it lives. The owner of both must drop
/// the allocator first.
pub(crate) struct Maps<R: RawMutex + 'static> {
    needs: Needs,
    parts: NonNull<LayoutParts>,
    frames: Mapping,
    blocks: Mapping,
    zones: NonNull<[Zone<'static, R>]>,
    slots: NonNull<[PerCpu<R>]>,
    nodes: NonNull<[Node<'static, R>]>,
    cpu_zones: NonNull<[CpuZones<'static, R>]>,
}

// SAFETY: the pointers own what they point to, as boxes would: locks, atomics, and references to
// each other.
unsafe impl<R: RawMutex + Send + Sync> Send for Maps<R> {}
// SAFETY: as above.
unsafe impl<R: RawMutex + Send + Sync> Sync for Maps<R> {}

impl<R: RawMutex> fmt::Debug for Maps<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").field("needs", &self.needs).finish_non_exhaustive()
    }
}

fn leak<T>(n: usize, new: impl Fn() -> T) -> NonNull<[T]> {
    let all: Box<[T]> = (0..n).map(|_| new()).collect();
    NonNull::from(Box::leak(all))
}

/// # Safety
/// The pointer is from [`leak`], and nothing uses it any more.
unsafe fn reclaim<T>(all: NonNull<[T]>) {
    // SAFETY: as the caller guarantees.
    drop(unsafe { Box::from_raw(all.as_ptr()) });
}

/// Maps a table of entries for which all zero bytes are a valid value.
fn table<T>(n: usize) -> io::Result<Mapping> {
    let table = Mapping::new((n * size_of::<T>()).max(1), true)?;
    // Descriptors are accessed all over, between accesses to all of memory.
    table.prefer_huge_pages();
    Ok(table)
}

impl<R: RawMutex> Maps<R> {
    /// Allocates the maps of a layout.
    pub(crate) fn new(parts: LayoutParts) -> Result<io::Result<Self>, InitError> {
        let needs = parts.layout().needs::<R>()?;
        let tables = table::<Frame>(needs.frames)
            .and_then(|frames| Ok((frames, table::<Pageblock>(needs.blocks)?)));
        Ok(tables.map(|(frames, blocks)| Maps {
            frames,
            blocks,
            parts: NonNull::from(Box::leak(Box::new(parts))),
            zones: leak(needs.zones, Zone::new),
            slots: leak(needs.slots, PerCpu::new),
            nodes: leak(needs.nodes, Node::new),
            cpu_zones: leak(needs.cpu_zones, CpuZones::new),
            needs,
        }))
    }

    /// Returns the size of the mapped tables in bytes, whether or not they take memory yet.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.bytes() + self.blocks.bytes()
    }

    /// Returns the layout and the storage for an allocator.
    ///
    /// # Safety
    /// Called once. The allocator, and everything borrowed from it, is dropped before this.
    pub(crate) unsafe fn storage(&self) -> (Layout<'static>, Storage<'static, R>) {
        let Needs { frames, blocks, .. } = self.needs;
        let frames = ptr::slice_from_raw_parts(self.frames.start().as_ptr().cast(), frames);
        let blocks = ptr::slice_from_raw_parts(self.blocks.start().as_ptr().cast(), blocks);
        // SAFETY: the tables are mapped, page-aligned, of this length, and all zero, which both
        // `Frame` and `Pageblock` document as a valid value; both are atomics. The others are
        // initialised, and by the caller's guarantee nothing else uses them. `'static` is longer
        // than their lifetime; the caller ensures that they are dropped in time.
        unsafe {
            let storage = Storage {
                frames: &*frames,
                blocks: &*blocks,
                zones: &mut *self.zones.as_ptr(),
                slots: &mut *self.slots.as_ptr(),
                nodes: &mut *self.nodes.as_ptr(),
                cpu_zones: &mut *self.cpu_zones.as_ptr(),
                packed: pageyard::packed::YardStorage::EMPTY,
            };
            ((*self.parts.as_ptr()).layout(), storage)
        }
    }
}

impl<R: RawMutex> Drop for Maps<R> {
    fn drop(&mut self) {
        // SAFETY: these are from `leak`, and their borrower is gone (`storage`). `CpuZones` and
        // nodes refer to zones, and zones to slots and tables.
        unsafe {
            reclaim(self.cpu_zones);
            reclaim(self.nodes);
            reclaim(self.zones);
            reclaim(self.slots);
            drop(Box::from_raw(self.parts.as_ptr()));
        }
    }
}
