//! Room for an allocator's maps.

use pageyard::{CpuSlot, Frame, Home, InitError, Layout, Needs, Node, Pageblock, Storage, Zone};

use crate::lock::SimLock;
use crate::raw;

/// Heap memory for the maps of one allocator. Descriptors take no real memory until they are
/// written.
///
/// An allocator borrows its maps, and its zones borrow from them in turn; so the zones and what
/// else it keeps ([`rooms`](Memory::rooms)) are a caller's local variable.
#[derive(Debug)]
pub struct Memory {
    needs: Needs,
    frames: Box<[Frame]>,
    blocks: Vec<Pageblock>,
}

fn some<T>(n: usize, new: impl Fn() -> T) -> Vec<T> {
    (0..n).map(|_| new()).collect()
}

impl Memory {
    /// Room for the layout's maps.
    ///
    /// # Errors
    /// What is wrong with the layout.
    pub fn for_layout(layout: &Layout<'_>) -> Result<Memory, InitError> {
        let needs = layout.needs::<SimLock>()?;
        let blocks = some(needs.blocks, Pageblock::new);
        Ok(Memory { frames: raw::zeroed_frames(needs.frames), blocks, needs })
    }

    /// Bytes of all maps, whether they take real memory yet or not.
    pub fn bytes(&self) -> usize {
        self.needs.bytes
    }

    /// Room for all that is not a map.
    pub fn rooms<'a>(&self) -> Rooms<'a> {
        Rooms {
            zones: some(self.needs.zones, Zone::new),
            slots: some(self.needs.slots, CpuSlot::new),
            nodes: some(self.needs.nodes, Node::new),
            homes: some(self.needs.homes, Home::new),
        }
    }

    /// All of it, to be handed over.
    pub fn storage<'a>(&'a self, rooms: &'a mut Rooms<'a>) -> Storage<'a, SimLock> {
        Storage {
            frames: &self.frames,
            blocks: &self.blocks,
            zones: &mut rooms.zones,
            slots: &mut rooms.slots,
            nodes: &mut rooms.nodes,
            homes: &mut rooms.homes,
        }
    }
}

/// Heap memory for an allocator's zones, nodes and CPUs ([`Memory::rooms`]).
#[derive(Debug)]
pub struct Rooms<'a> {
    zones: Vec<Zone<'a, SimLock>>,
    slots: Vec<CpuSlot<SimLock>>,
    nodes: Vec<Node<'a, SimLock>>,
    homes: Vec<Home<'a, SimLock>>,
}
