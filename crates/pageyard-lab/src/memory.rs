//! Heap memory for the lab's allocators.

/// The lock type of the lab's allocators.
pub type Lock = spin::mutex::SpinMutex<()>;

/// Heap memory for the maps of one allocator.
///
/// An allocator borrows its maps, and its zones borrow from them in turn. So the caller keeps the
/// zones and the allocator's other storage in a local variable:
///
/// ```
/// # use pageyard::{Bare, Knobs, Layout, NodeId, Pfn, Yard, ZoneKind, ZoneSpec};
/// # use pageyard_lab::{Lock, Memory};
/// # let span = Pfn(0)..Pfn(4096);
/// # let layout = Layout {
/// #     zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
/// #     usable: &[span], reserved: &[], cpus: &[NodeId(0)], distances: &[], knobs: Knobs::default(),
/// # };
/// let memory = Memory::for_layout(&layout)?;
/// let mut rooms = memory.rooms();
/// let storage = memory.storage(&mut rooms);
/// let yard: Yard<'_, Bare<Lock, ()>> = Yard::new(&layout, storage, ())?;
/// # Ok::<(), pageyard::InitError>(())
/// ```
pub type Memory = pageyard_machine::Memory<Lock>;
