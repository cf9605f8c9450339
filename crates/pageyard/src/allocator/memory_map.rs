//! Creates an allocator from a firmware memory map in one call (feature `alloc`).

use core::ops::Range;

use crate::allocator::init_error::InitError;
use crate::allocator::knobs::Knobs;
use crate::allocator::layout::{Layout, ZoneSpec};
use crate::allocator::owned_storage::OwnedStorage;
use crate::allocator::yard::Yard;
use crate::base::heap::reserve;
use crate::base::units::{NodeId, PAGE_SIZE, Pfn, ZoneKind};
use crate::embedder::config::Config;
use crate::embedder::policy::StaticPolicy;
use crate::zone::state::PerCpu;
use heap::vec::Vec;

/// The zones of a node by address, as on x86-64 (§1.2): each kind with its end frame.
const ZONES: [(ZoneKind, Pfn); 3] = [
    (ZoneKind::Dma, Pfn::containing(16 << 20)),
    (ZoneKind::Dma32, Pfn::containing(4 << 30)),
    (ZoneKind::Normal, Pfn(u64::MAX / PAGE_SIZE + 1)),
];

impl<C: Config<Lock: 'static, Policy: StaticPolicy>> Yard<'static, C> {
    /// Creates an allocator from a memory map. Every whole page of `usable` that does not overlap
    /// `reserved` is free (§8.1). Needs feature `alloc`.
    ///
    /// - `usable`: memory, as ranges of physical addresses in bytes, in any order. Ranges may
    ///   overlap or adjoin. Only whole pages of a range are used.
    /// - `reserved`: memory already in use, in the same form: the program's own image and heap,
    ///   firmware tables. A page with any reserved byte is not free.
    /// - `cpus`: the number of CPUs. [`Platform::cpu`](crate::Platform::cpu) must return smaller
    ///   numbers.
    ///
    /// The memory becomes one node with up to three zones, as on x86-64 (§1.2): DMA below 16 MiB,
    /// DMA32 below 4 GiB, Normal above. Each zone spans its first to its last usable page. Its maps
    /// take 16 bytes per page of that span, holes included. The settings are [`Knobs::default`].
    /// For several nodes, other zones or other settings, use a [`Layout`].
    ///
    /// The maps come from the heap and **are never freed**: the allocator borrows them until the
    /// program ends, which makes it `'static`. If the allocator must be dropped, use
    /// [`OwnedStorage`] and [`Yard::new`] instead.
    ///
    /// # Errors
    /// [`InitError`]; nothing stays allocated. Range numbers are indices of the arguments.
    /// [`EmptyRange`](InitError::EmptyRange) or [`BadReserved`](InitError::BadReserved) if a range
    /// ends before it starts, [`NoZones`](InitError::NoZones) if no range holds a whole page,
    /// [`NoCpus`](InitError::NoCpus) if `cpus` is 0, [`NoMemory`](InitError::NoMemory) if the heap
    /// has no room for the maps.
    ///
    /// ```
    /// use pageyard::{Bare, Gfp, Order, Yard};
    ///
    /// type Lock = spin::mutex::SpinMutex<()>;
    ///
    /// let yard: Yard<'_, Bare<Lock, ()>> = Yard::from_memory_map(
    ///     &[0x0..0x9_fc00, 0x10_0000..0x400_0000],
    ///     &[0x0..0x1000, 0x20_0000..0x8a_1234], // the first page, the kernel's image
    ///     1,
    ///     (),
    /// )?;
    /// assert_eq!(yard.zones(), 2); // DMA below 16 MiB, DMA32 above
    /// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
    /// yard.free(page, Order::ZERO)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_memory_map(
        usable: &[Range<u64>],
        reserved: &[Range<u64>],
        cpus: u32,
        hooks: impl Into<C::Hooks>,
    ) -> Result<Self, InitError> {
        // Reject an invalid policy before anything is leaked.
        InitError::check(&C::Policy::POLICY)?;
        let usable = merged(&whole_pages(usable)?)?;
        let reserved = touched_pages(reserved)?;
        // Reject more CPUs than there is memory for before writing an entry for each.
        drop(reserve::<PerCpu<C::Lock>>("CPU slots", cpus as usize)?);
        let mut nodes: Vec<NodeId> = reserve("CPUs", cpus as usize)?;
        nodes.resize(cpus as usize, NodeId(0));
        let mut zones: Vec<ZoneSpec> = reserve("zones", ZONES.len())?;
        zones.extend(zones_by_address(&usable));
        let layout = Layout {
            zones: &zones,
            usable: &usable,
            reserved: &reserved,
            cpus: &nodes,
            distances: &[],
            knobs: Knobs::DEFAULT,
        };
        let needs = layout.needs_on::<C::Lock>(C::Policy::RULES.engine)?;
        Yard::new(&layout, OwnedStorage::for_needs(&needs)?.leak(), hooks)
    }
}

/// Returns the whole pages of each range, rounded inward. Ranges without a whole page are omitted.
fn whole_pages(ranges: &[Range<u64>]) -> Result<Vec<Range<Pfn>>, InitError> {
    let mut pages = reserve("usable ranges", ranges.len())?;
    for (i, r) in ranges.iter().enumerate() {
        if r.start > r.end {
            return Err(InitError::EmptyRange(i));
        }
        let whole = Pfn(r.start.div_ceil(PAGE_SIZE))..Pfn::containing(r.end);
        if !whole.is_empty() {
            pages.push(whole);
        }
    }
    Ok(pages)
}

/// Returns the pages that each range touches, rounded outward.
fn touched_pages(ranges: &[Range<u64>]) -> Result<Vec<Range<Pfn>>, InitError> {
    let mut pages = reserve("reserved ranges", ranges.len())?;
    for (i, r) in ranges.iter().enumerate() {
        if r.start > r.end {
            return Err(InitError::BadReserved(i));
        }
        if !r.is_empty() {
            pages.push(Pfn::containing(r.start)..Pfn(r.end.div_ceil(PAGE_SIZE)));
        }
    }
    Ok(pages)
}

/// Merges ranges into disjoint ones, in ascending order.
fn merged(ranges: &[Range<Pfn>]) -> Result<Vec<Range<Pfn>>, InitError> {
    let mut runs: Vec<Range<Pfn>> = reserve("usable ranges", ranges.len())?;
    let mut done = Pfn(0);
    while let Some(first) = ranges.iter().filter(|r| r.end > done).min_by_key(|r| r.start) {
        let mut run = first.clone();
        while let Some(next) = ranges.iter().find(|r| r.start <= run.end && r.end > run.end) {
            run.end = next.end;
        }
        done = run.end;
        // Each run contains at least one range not in any other run, so the vector has room.
        runs.push(run);
    }
    Ok(runs)
}

fn zones_by_address(usable: &[Range<Pfn>]) -> impl Iterator<Item = ZoneSpec> {
    let mut from = Pfn(0);
    ZONES.into_iter().filter_map(move |(kind, to)| {
        let own = from..to;
        from = to;
        let parts = || usable.iter().filter(|r| r.start < own.end && r.end > own.start);
        let start = parts().map(|r| r.start).min()?.max(own.start);
        let end = parts().map(|r| r.end).max()?.min(own.end);
        Some(ZoneSpec { kind, node: NodeId(0), span: start..end })
    })
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // the lists hold ranges
mod tests {
    extern crate std;

    use super::*;

    use crate::base::gfp::Gfp;
    use crate::base::units::{CpuId, Order};
    use core::iter::from_fn;

    type Lock = spin::mutex::SpinMutex<()>;
    type Y = Yard<'static, crate::embedder::config::Hooked<Lock, ()>>;

    const MIB: u64 = 1 << 20;

    fn yard(usable: &[Range<u64>], reserved: &[Range<u64>]) -> Result<Y, InitError> {
        Y::from_memory_map(usable, reserved, 1, ())
    }

    fn frames(all: &[Range<u64>]) -> Vec<Range<Pfn>> {
        all.iter().map(|r| Pfn(r.start)..Pfn(r.end)).collect()
    }

    #[test]
    fn zones_follow_from_addresses() {
        let zones = |usable: &[Range<u64>]| -> Vec<_> {
            let of = |z: ZoneSpec| (z.kind, z.span.start.address(), z.span.end.address());
            zones_by_address(&whole_pages(usable).unwrap()).map(of).collect()
        };
        use ZoneKind::{Dma, Dma32, Normal};
        assert_eq!(zones(&[0..1]), []);
        assert_eq!(zones(&[4096..16 * MIB]), [(Dma, 4096, 16 * MIB)]);
        assert_eq!(zones(&[16 * MIB..17 * MIB]), [(Dma32, 16 * MIB, 17 * MIB)]);
        assert_eq!(zones(&[4096 * MIB..4097 * MIB]), [(Normal, 4096 * MIB, 4097 * MIB)]);
        // One range across all three zones, then holes at both boundaries.
        let (low, high) = (4096 * MIB - 4096, 4096 * MIB + 4096);
        assert_eq!(
            zones(&[15 * MIB..high]),
            [(Dma, 15 * MIB, 16 * MIB), (Dma32, 16 * MIB, 4096 * MIB), (Normal, 4096 * MIB, high)]
        );
        assert_eq!(
            zones(&[5000 * MIB..5001 * MIB, 0..MIB, 20 * MIB..low, 8 * MIB..9 * MIB]),
            [(Dma, 0, 9 * MIB), (Dma32, 20 * MIB, low), (Normal, 5000 * MIB, 5001 * MIB)]
        );
    }

    #[test]
    fn usable_ranges_round_inward_and_reserved_ranges_outward() {
        assert_eq!(
            whole_pages(&[1..8192, 8191..12289, 4096..4096]).unwrap(),
            frames(&[1..2, 2..3])
        );
        assert_eq!(touched_pages(&[4095..4097, 8192..8192]).unwrap(), frames(&[0..2]));
        let last = u64::MAX / PAGE_SIZE;
        assert_eq!(whole_pages(&[0..u64::MAX]).unwrap(), frames(&[0..last]));
        assert_eq!(touched_pages(&[u64::MAX - 1..u64::MAX]).unwrap(), frames(&[last..last + 1]));
        // The last page is not usable: its end has no address.
        assert_eq!(whole_pages(&[u64::MAX - 4095..u64::MAX]).unwrap(), []);
    }

    #[test]
    fn usable_ranges_may_overlap_and_adjoin() {
        let of = |ranges: &[Range<u64>]| merged(&frames(ranges)).unwrap();
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[5..7, 1..3]), frames(&[1..3, 5..7]));
        assert_eq!(of(&[3..5, 1..3, 4..9, 2..4]), frames(&[1..9]));
        assert_eq!(of(&[1..9, 2..3, 1..9, 20..21]), frames(&[1..9, 20..21]));
    }

    #[test]
    fn every_whole_unreserved_page_is_free() {
        // 639 KiB and 15 MiB. In use: the first page, and three pages touched in the middle.
        let usable = [MIB..16 * MIB, 0..0x9_fc00, 2 * MIB..3 * MIB];
        let y = yard(&usable, &[0..1, 4 * MIB + 10..4 * MIB + 10_000]).unwrap();
        let info = y.zone_info(ZoneKind::Dma).unwrap();
        let present = 15 * 256 + 0x9f;
        assert_eq!((info.present, info.managed), (present, present - 1 - 3));
        assert_eq!((y.zones(), y.nodes(), y.cpus()), (1, 1, 1));
        assert_eq!((y.node_of(CpuId(0)), y.node_of(CpuId(1))), (Some(NodeId(0)), None));
        let rights = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::DMA | Gfp::NOWARN;
        let all: Vec<Pfn> = from_fn(|| y.alloc(Order::ZERO, rights).ok()).collect();
        assert_eq!(all.len() as u64, info.managed);
        let reserved = |p: &Pfn| p.0 == 0 || (1024..1027).contains(&p.0);
        assert!(!all.iter().any(reserved), "a reserved page was allocated");
        for page in all {
            y.free(page, Order::ZERO).unwrap();
        }
        assert_eq!(y.validate(), Ok(()));
    }

    #[test]
    fn invalid_memory_maps_are_rejected() {
        let backward = [Range { start: 2, end: 1 }];
        let refused =
            |usable: &[_], reserved: &[_]| yard(usable, reserved).map(|_| ()).unwrap_err();
        assert_eq!(refused(&[], &[]), InitError::NoZones);
        assert_eq!(refused(&[1..8191], &[]), InitError::NoZones);
        assert_eq!(refused(&backward, &[]), InitError::EmptyRange(0));
        assert_eq!(refused(&[0..MIB], &backward), InitError::BadReserved(0));
        assert_eq!(refused(&[0..u64::MAX], &[]), InitError::ZoneTooLarge(2));
        let none = Y::from_memory_map(&[0..MIB], &[], 0, ()).map(|_| ());
        assert_eq!(none.unwrap_err(), InitError::NoCpus);
        let many = Y::from_memory_map(&[0..MIB], &[], u32::MAX, ()).map(|_| ());
        let bytes = u32::MAX as usize * size_of::<PerCpu<Lock>>();
        assert_eq!(many.unwrap_err(), InitError::NoMemory { what: "CPU slots", bytes });
    }

    #[test]
    fn a_full_heap_is_an_error_that_names_the_map() {
        use crate::allocator::layout::Needs;
        let least = Needs {
            frames: 1,
            blocks: 1,
            zones: 1,
            slots: 1,
            nodes: 1,
            cpu_zones: 1,
            ..Needs::NONE
        };
        type Enlarge = fn(&mut Needs);
        let large: [(&str, Enlarge); 6] = [
            ("frame descriptors", |n| n.frames = usize::MAX),
            ("pageblock entries", |n| n.blocks = usize::MAX),
            ("zones", |n| n.zones = usize::MAX),
            ("CPU slots", |n| n.slots = usize::MAX / 4096),
            ("nodes", |n| n.nodes = usize::MAX),
            ("CPU zones", |n| n.cpu_zones = usize::MAX),
        ];
        for (name, enlarge) in large {
            let mut needs = least;
            enlarge(&mut needs);
            match OwnedStorage::<Lock>::for_needs(&needs) {
                Err(InitError::NoMemory { what, bytes }) => {
                    assert_eq!(what, name);
                    assert!(bytes > isize::MAX as usize / 4096, "{what}: {bytes}");
                }
                other => panic!("{name}: {other:?}"),
            }
        }
        let error = InitError::NoMemory { what: "zones", bytes: 1280 };
        assert_eq!(std::format!("{error}"), "zones: the heap has no room for 1280 bytes");
    }
}
