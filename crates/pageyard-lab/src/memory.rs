//! Room for the lab's allocators on the heap.

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
/// let yard: Yard<'_, Hooked<Lock, ()>> = Yard::new(&layout, storage, ())?;
/// # Ok::<(), pageyard::InitError>(())
/// ```
pub type Memory = pageyard_machine::Memory<Lock>;
