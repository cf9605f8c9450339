//! Storage for an allocator's maps: one mapping, which takes memory as it is written.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use lock_api::RawMutex;
use pageyard::policy::Engine;
use pageyard::{InitError, Knobs, Layout, NodeId, Pfn, Storage, ZoneSpec};

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
    engine: Engine,
    parts: NonNull<LayoutParts>,
    memory: Mapping,
    locks: PhantomData<R>,
}

// SAFETY: the pointer owns what it points to, as a box would, and the mapping holds locks, atomics,
// and references to each other.
unsafe impl<R: RawMutex + Send + Sync> Send for Maps<R> {}
// SAFETY: as above.
unsafe impl<R: RawMutex + Send + Sync> Sync for Maps<R> {}

impl<R: RawMutex> fmt::Debug for Maps<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maps").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl<R: RawMutex> Maps<R> {
    /// Allocates the maps of a layout on one of the engines.
    pub(crate) fn new(engine: Engine, parts: LayoutParts) -> Result<io::Result<Self>, InitError> {
        let room = parts.layout().needs_on::<R>(engine)?.metadata::<R>()?;
        Ok(Mapping::new(room.size() + room.align(), true).map(|memory| {
            // Maps are accessed all over, between accesses to all of memory.
            memory.prefer_huge_pages();
            let parts = NonNull::from(Box::leak(Box::new(parts)));
            Maps { engine, parts, memory, locks: PhantomData }
        }))
    }

    /// Returns the size of the maps in bytes, whether or not they take memory yet.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Returns the layout and the storage for an allocator.
    ///
    /// # Errors
    /// [`InitError`] if the layout is invalid.
    ///
    /// # Safety
    /// Called once. The allocator, and everything borrowed from it, is dropped before this.
    pub(crate) unsafe fn storage(
        &self,
    ) -> Result<(Layout<'static>, Storage<'static, R>), InitError> {
        let start = self.memory.start().as_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: the mapping is of this length, and nothing else uses it: this is called once.
        // `'static` is longer than its lifetime, and that of the layout; the caller ensures that
        // the borrowers are dropped in time (`a_raw_yard_works_by_frame_number`, which drops a yard
        // and builds another on its region, and the sanitizers).
        let (layout, memory) = unsafe {
            let memory = slice::from_raw_parts_mut(start, self.memory.bytes());
            ((*self.parts.as_ptr()).layout(), memory)
        };
        let storage = match self.engine {
            // SAFETY: a new mapping is all zero (`a_deferred_yard_grows_on_request`).
            Engine::Exact => unsafe { pageyard_carve::carve_initialized(&layout, memory)? },
            Engine::Packed => pageyard_carve::carve_on(Engine::Packed, &layout, memory)?,
        };
        Ok((layout, storage))
    }
}

impl<R: RawMutex> Drop for Maps<R> {
    fn drop(&mut self) {
        // SAFETY: this is from a box, and its borrower is gone (`storage`).
        drop(unsafe { Box::from_raw(self.parts.as_ptr()) });
    }
}
