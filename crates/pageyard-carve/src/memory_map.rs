//! An allocator from a firmware memory map, without a heap: its maps lie in the free memory itself.

use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use pageyard::policy::{Engine, Policy};
use pageyard::{
    Config, InitError, Knobs, Layout, NodeId, PAGE_SIZE, Pfn, Yard, ZoneKind, ZoneSpec,
};

use crate::{Carver, FreeMemory, carve, carve_on};

/// The largest number of CPUs.
const MOST_CPUS: usize = 1024;
static NODES: [NodeId; MOST_CPUS] = [NodeId(0); MOST_CPUS];

/// A machine's memory as firmware reports it, and where it is mapped.
///
/// Ranges are physical addresses in bytes, in any order; they may overlap or adjoin. Usable ranges
/// are rounded inward to whole pages, reserved ranges outward.
///
/// ```
/// use pageyard::{Bare, Gfp, Knobs, Order, Parts, Yard};
/// use pageyard_carve::MemoryMap;
/// type Lock = spin::mutex::SpinMutex<()>;
///
/// // 8 MiB at physical address 1 MiB, in a buffer of this program.
/// let memory = Box::leak(vec![0u64; 1 << 20].into_boxed_slice()).as_mut_ptr();
/// let map = MemoryMap {
///     usable: &[0x10_0000..0x90_0000],
///     reserved: &[0x10_0000..0x20_0000],
///     cpus: 1,
///     knobs: Knobs::small(),
///     direct_map: memory.wrapping_byte_sub(0x10_0000).cast(),
/// };
/// let mut yard: Yard<'static, Bare<Lock, ()>> = Yard::without_memory(Parts::new(()));
/// // SAFETY: the buffer is leaked, and nothing else uses it.
/// let maps = unsafe { map.init(&mut yard) }?;
/// println!("the maps take {} bytes at {:#x}", maps.end - maps.start, maps.start);
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryMap<'m> {
    /// Memory, free unless it is reserved.
    pub usable: &'m [Range<u64>],
    /// Memory in use: the program's own image, firmware tables, an initial ramdisk.
    /// [`Yard::release`] frees it later.
    pub reserved: &'m [Range<u64>],
    /// The number of CPUs, at most 1024. See [`Yard::cpu_dead`] for CPUs that start later.
    pub cpus: u32,
    /// The initial settings.
    pub knobs: Knobs,
    /// The virtual address of physical address 0; null where memory is mapped one to one. Need not
    /// be a valid address itself.
    pub direct_map: *mut u8,
}

impl MemoryMap<'_> {
    /// Gives an allocator on either engine this memory (§8.1), as one node with up to three zones: DMA
    /// below 16 MiB, DMA32 below 4 GiB, Normal above. Its maps are placed in the highest free run below 4 GiB that
    /// is large enough, or above if there is none, and are not part of the allocator's memory.
    /// Returns their physical addresses.
    ///
    /// # Errors
    /// [`InitError`]; the allocator is unchanged. Range numbers are indices of the arguments.
    /// [`TooSmall`](InitError::TooSmall) if no free run has room for the maps,
    /// [`HasMemory`](InitError::HasMemory) if the allocator was given memory before.
    ///
    /// # Safety
    /// The memory that is usable and not reserved must be mapped, readable and writable, from
    /// `direct_map` for as long as the program runs, and nothing else may access it unless the
    /// allocator has handed it out.
    pub unsafe fn init<C: Config<Lock: 'static>>(
        &self,
        yard: &mut Yard<'static, C>,
    ) -> Result<Range<u64>, InitError> {
        self.check()?;
        if yard.zones() > 0 {
            return Err(InitError::HasMemory);
        }
        let memory = self.memory();
        let nothing = || ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: Pfn(0)..Pfn(0) };
        let mut specs = [nothing(), nothing(), nothing()];
        let zones = memory.zones(&mut specs);
        let cpus = NODES.get(..self.cpus as usize).unwrap_or(&NODES);
        let described =
            Layout { zones, usable: &[], reserved: &[], cpus, distances: &[], knobs: self.knobs };
        let engine = yard.policy().rules().engine;
        let needed = described.needs_on::<C::Lock>(engine)?.metadata::<C::Lock>()?;
        let lists = self.usable.len() + self.reserved.len() + 1;
        let lists =
            lists.saturating_mul(size_of::<Range<Pfn>>()).saturating_add(2 * PAGE_SIZE as usize);
        let bytes = needed.size().saturating_add(needed.align()).saturating_add(lists);
        let pages = bytes.div_ceil(PAGE_SIZE as usize) as u64;
        let place = |pages| {
            let own = memory.place(pages, self.direct_map.addr())?;
            usize::try_from(own.end.address()).is_ok().then_some(own)
        };
        let too_small = || {
            let given = (largest(pages, |n| place(n).is_some()) * PAGE_SIZE) as usize;
            InitError::TooSmall { what: "bytes of free memory in one piece", needed: bytes, given }
        };
        let own = place(pages).ok_or_else(too_small)?;
        let addresses = own.start.address()..own.end.address();
        let start = self.direct_map.wrapping_add(addresses.start as usize).cast();
        // SAFETY: the caller guarantees that free memory is mapped here and not used otherwise. The
        // run is free and its bytes are within it (`maps_lie_in_free_memory`).
        let region: &'static mut [MaybeUninit<u8>] =
            unsafe { slice::from_raw_parts_mut(start, (pages * PAGE_SIZE) as usize) };
        let mut carver = Carver::new(region);
        // The maps are no memory of the yard's, or `release` could free them.
        let around = || memory.runs_without(own.clone());
        let mut parts = around();
        let nothing = Pfn(0)..Pfn(0);
        let usable =
            carver.slice(around().count(), |_| parts.next().unwrap_or_else(|| nothing.clone()));
        let mut used = memory.reserved();
        let reserved =
            carver.slice(self.reserved.len(), |_| used.next().unwrap_or_else(|| nothing.clone()));
        let (Some(usable), Some(reserved)) = (usable, reserved) else {
            return Err(too_small());
        };
        let layout = Layout { usable, reserved, ..described };
        let region = carver.into_rest();
        // Without the code of the other engine where the policy is known to be of one.
        let storage = match <C::Policy as Policy>::ENGINE {
            Some(Engine::Exact) => carve(&layout, region),
            _ => carve_on(engine, &layout, region),
        };
        yard.init(&layout, storage?)?;
        Ok(addresses)
    }

    fn check(&self) -> Result<(), InitError> {
        if let Some(i) = self.usable.iter().position(|r| r.start > r.end) {
            return Err(InitError::EmptyRange(i));
        }
        if let Some(i) = self.reserved.iter().position(|r| r.start > r.end) {
            return Err(InitError::BadReserved(i));
        }
        if self.cpus as usize > MOST_CPUS {
            let (needed, given) = (self.cpus as usize, MOST_CPUS);
            return Err(InitError::TooSmall { what: "CPUs", needed, given });
        }
        Ok(())
    }

    fn memory(
        &self,
    ) -> FreeMemory<
        impl Iterator<Item = Range<u64>> + Clone + '_,
        impl Iterator<Item = Range<u64>> + Clone + '_,
    > {
        FreeMemory::new(self.usable.iter().cloned(), self.reserved.iter().cloned())
    }
}

/// Returns the largest number below `end` for which there is a place.
fn largest(end: u64, has_place: impl Fn(u64) -> bool) -> u64 {
    let (mut fits, mut end) = (0, end);
    while end - fits > 1 {
        let middle = fits.midpoint(end);
        if has_place(middle) { fits = middle } else { end = middle }
    }
    fits
}
