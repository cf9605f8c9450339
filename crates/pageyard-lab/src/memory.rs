//! Room for an allocator's maps on the heap.

use pageyard::{CpuSlot, Frame, Home, InitError, Layout, Needs, Node, Pageblock, Storage, Zone};

/// The lock of the lab's allocators.
pub type Lock = spin::mutex::SpinMutex<()>;

/// Heap memory for the maps of one allocator.
///
/// An allocator borrows its maps, and its zones borrow from them in turn; so the zones and what
/// else it keeps are a caller's local variable:
///
/// ```
/// # use pageyard::{Knobs, Layout, NodeId, Pfn, Yard, ZoneKind, ZoneSpec};
/// # use pageyard_lab::{Lock, Memory};
/// # let span = Pfn(0)..Pfn(4096);
/// # let layout = Layout {
/// #     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
/// #     usable: &[span], reserved: &[], cpus: &[NodeId(0)], distances: &[], knobs: Knobs::default(),
/// # };
/// let memory = Memory::for_layout(&layout)?;
/// let mut rooms = memory.rooms();
/// let storage = memory.storage(&mut rooms);
/// let yard: Yard<'_, Lock, ()> = Yard::new(&layout, storage, ())?;
/// # Ok::<(), pageyard::InitError>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    needs: Needs,
    frames: Vec<Frame>,
    blocks: Vec<Pageblock>,
}

impl Memory {
    /// Room for the layout's maps.
    ///
    /// # Errors
    /// What is wrong with the layout.
    pub fn for_layout(layout: &Layout<'_>) -> Result<Memory, InitError> {
        let needs = layout.needs::<Lock>()?;
        let frames = (0..needs.frames).map(|_| Frame::new()).collect();
        let blocks = (0..needs.blocks).map(|_| Pageblock::new()).collect();
        Ok(Memory { needs, frames, blocks })
    }

    /// Room for all that is not a map.
    pub fn rooms<'a>(&self) -> Rooms<'a> {
        fn some<T>(n: usize, new: impl Fn() -> T) -> Vec<T> {
            (0..n).map(|_| new()).collect()
        }
        Rooms {
            zones: some(self.needs.zones, Zone::new),
            slots: some(self.needs.slots, CpuSlot::new),
            nodes: some(self.needs.nodes, Node::new),
            homes: some(self.needs.homes, Home::new),
        }
    }

    /// All of it, to be handed over.
    pub fn storage<'a>(&'a self, rooms: &'a mut Rooms<'a>) -> Storage<'a, Lock> {
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
    zones: Vec<Zone<'a, Lock>>,
    slots: Vec<CpuSlot<Lock>>,
    nodes: Vec<Node<'a, Lock>>,
    homes: Vec<Home<'a, Lock>>,
}
