//! Memory for an allocator's maps, on a simulated machine or elsewhere.

use std::marker::PhantomData;

use lock_api::RawMutex;
use pageyard::policy::Engine;
use pageyard::{Frame, InitError, Layout, Needs, OwnedStorage, Pageblock, Storage};

use crate::lock::SimLock;
use crate::raw;

/// Heap memory for the maps of one allocator. Descriptors take no real memory until they are
/// written.
///
/// An allocator borrows its maps, and its zones borrow from them in turn. The zones and the other
/// parts ([`rooms`](Memory::rooms)) are therefore a local variable of the caller.
#[derive(Debug)]
pub struct Memory<R = SimLock> {
    needs: Needs,
    frames: Box<[Frame]>,
    blocks: Vec<Pageblock>,
    lock: PhantomData<R>,
}

impl<R: RawMutex> Memory<R> {
    /// Allocates memory for the layout's maps, on the exact engine.
    ///
    /// # Errors
    /// Fails if the layout is invalid.
    pub fn for_layout(layout: &Layout<'_>) -> Result<Self, InitError> {
        Self::for_layout_on(Engine::Exact, layout)
    }

    /// Allocates memory for the layout's maps, on this engine. Those of the packed engine are among
    /// the [`rooms`](Memory::rooms).
    ///
    /// # Errors
    /// Fails if the layout is invalid.
    pub fn for_layout_on(engine: Engine, layout: &Layout<'_>) -> Result<Self, InitError> {
        let needs = layout.needs_on::<R>(engine)?;
        let blocks = (0..needs.blocks).map(|_| Pageblock::new()).collect();
        Ok(Memory { frames: raw::zeroed_frames(needs.frames), blocks, needs, lock: PhantomData })
    }

    /// Returns the size of all maps in bytes, whether or not they take real memory yet.
    pub fn bytes(&self) -> usize {
        self.needs.bytes
    }

    /// Allocates memory for everything that is not a map.
    pub fn rooms<'a>(&self) -> Rooms<'a, R> {
        let needs = Needs { frames: 0, blocks: 0, ..self.needs };
        Rooms(OwnedStorage::for_needs(&needs).expect("the heap holds zones and CPUs"))
    }

    /// Returns all of it as the storage of an allocator.
    pub fn storage<'a>(&'a self, rooms: &'a mut Rooms<'a, R>) -> Storage<'a, R> {
        Storage { frames: &self.frames, blocks: &self.blocks, ..rooms.0.storage() }
    }
}

/// Heap memory for an allocator's zones, nodes and CPUs ([`Memory::rooms`]).
#[derive(Debug)]
pub struct Rooms<'a, R: RawMutex = SimLock>(OwnedStorage<'a, R>);
