//! Room for an allocator's maps on the heap.

use pageyard::{CpuSlot, Frame, InitError, Layout, Needs, Pageblock, Storage, Zone};

/// The lock of the lab's allocators.
pub type Lock = spin::mutex::SpinMutex<()>;

/// Heap memory for the maps of one allocator.
///
/// An allocator borrows its maps, and its zones borrow from them in turn; so the zones and slots
/// are a caller's local variables:
///
/// ```
/// # use pageyard::{Knobs, Layout, NodeId, Pfn, Yard, ZoneKind, ZoneSpec};
/// # use pageyard_lab::{Lock, Memory};
/// # let span = Pfn(0)..Pfn(4096);
/// # let layout = Layout {
/// #     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
/// #     usable: &[span], reserved: &[], cpus: &[NodeId(0)], knobs: Knobs::default(),
/// # };
/// let memory = Memory::for_layout(&layout)?;
/// let (mut zones, mut slots) = (memory.zones(), memory.slots());
/// let storage = memory.storage(&mut zones, &mut slots);
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

    /// Room for the zones.
    pub fn zones<'a>(&self) -> Vec<Zone<'a, Lock>> {
        (0..self.needs.zones).map(|_| Zone::new()).collect()
    }

    /// Room for the CPU slots.
    pub fn slots(&self) -> Vec<CpuSlot<Lock>> {
        (0..self.needs.slots).map(|_| CpuSlot::new()).collect()
    }

    /// All of it, to be handed over.
    pub fn storage<'a>(
        &'a self,
        zones: &'a mut [Zone<'a, Lock>],
        slots: &'a mut [CpuSlot<Lock>],
    ) -> Storage<'a, Lock> {
        Storage { frames: &self.frames, blocks: &self.blocks, zones, slots }
    }
}
