//! Carving regions of various sizes, alignments and contents. Small enough for Miri
//! (`scripts/miri.sh`).

#![allow(unsafe_code)]
#![allow(clippy::single_range_in_vec_init, clippy::cloned_ref_to_slice_refs)] // lists of ranges

use std::mem::MaybeUninit;

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{
    Bare, CpuId, Gfp, InitError, Knobs, Layout, NodeId, Order, Pfn, Platform, ReleaseError,
    Storage, Yard, ZoneKind, ZoneSpec,
};
use pageyard_carve::{Carver, MemoryMap, carve, carve_initialized};

type Lock = spin::mutex::SpinMutex<()>;
type Y<'a> = Yard<'a, Bare<Lock, Two>>;

/// How many previous contents of a region are tried. Miri takes ten seconds for each.
const CONTENTS: usize = if cfg!(miri) { 1 } else { 2 };

/// Hooks for two CPUs; all calls come from the first.
struct Two;

impl Platform for Two {
    const DEFERS: bool = true;

    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}

/// Two zones on two nodes, two CPUs. The first zone starts inside a block of the largest order.
fn with_layout<T>(f: impl FnOnce(&Layout<'_>) -> T) -> T {
    let zone = |kind, node, span: std::ops::Range<u64>| ZoneSpec {
        kind,
        node: NodeId(node),
        span: Pfn(span.start)..Pfn(span.end),
    };
    f(&Layout {
        zones: &[zone(ZoneKind::Normal, 0, 1000..1100), zone(ZoneKind::Normal, 1, 2048..2111)],
        usable: &[Pfn(1000)..Pfn(1100), Pfn(2048)..Pfn(2111)],
        reserved: &[Pfn(1050)..Pfn(1051)],
        cpus: &[NodeId(0), NodeId(1)],
        distances: &[],
        knobs: Knobs { min_free_kbytes: 16, ..Knobs::default() },
    })
}

/// Writes all bytes in one call; byte by byte is slow under Miri.
fn fill(bytes: &mut [MaybeUninit<u8>], byte: u8) {
    // SAFETY: covers exactly a mutably borrowed slice.
    unsafe { bytes.as_mut_ptr().write_bytes(byte, bytes.len()) };
}

/// Returns a buffer for the layout's maps, the index of its first aligned byte, and the size of the
/// maps. The buffer has one more alignment of room, so that the region may start at any offset.
fn region(layout: &Layout<'_>, with: Option<u8>) -> (Box<[MaybeUninit<u8>]>, usize, usize) {
    let metadata = layout.metadata::<Lock>().unwrap();
    let mut bytes = Box::new_uninit_slice(metadata.size() + 2 * metadata.align());
    if let Some(byte) = with {
        fill(&mut bytes, byte);
    }
    let aligned = bytes.as_ptr().align_offset(metadata.align());
    (bytes, aligned, metadata.size())
}

/// Allocates and frees every page, and checks that no page is allocated twice.
fn use_up(y: &Y<'_>) {
    let rights = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
    // Miri takes minutes for all pages and for a validation of all descriptors.
    let most = if cfg!(miri) { 5 } else { usize::MAX };
    let all = std::iter::from_fn(|| y.alloc(Order::ZERO, rights).ok());
    let mut pages: Vec<Pfn> = all.take(most).collect();
    assert_eq!(pages.len(), most.min(100 - 1 + 63));
    pages.sort();
    assert!(pages.windows(2).all(|two| two[0] < two[1]), "a page has two owners");
    for page in pages {
        y.free(page, Order::ZERO).unwrap();
    }
    if !cfg!(miri) {
        y.drain_all(None);
        assert_eq!(y.validate(), Ok(()));
    }
}

#[test]
fn carving_ignores_previous_contents_and_padding() {
    with_layout(|layout| {
        for with in [None, Some(0xff)].into_iter().take(CONTENTS) {
            let (mut bytes, aligned, size) = region(layout, with);
            let maps = carve(layout, &mut bytes[aligned..aligned + size]).unwrap();
            use_up(&Y::new(layout, maps, Two).unwrap());
            // The region is no longer borrowed and serves the next allocator.
            fill(&mut bytes, 1);
        }
    });
}

#[test]
fn maps_work_on_uninitialised_memory() {
    with_layout(|layout| {
        for with in [0x5a, 0].into_iter().take(CONTENTS) {
            let (mut bytes, aligned, _) = region(layout, Some(with));
            // SAFETY: all bytes were written.
            let maps = unsafe { carve_initialized(layout, &mut bytes[aligned..]) }.unwrap();
            use_up(&Y::new(layout, maps, Two).unwrap());
        }
        let (mut bytes, aligned, _) = region(layout, Some(0));
        // SAFETY: as above.
        let maps = unsafe { carve_initialized(layout, &mut bytes[aligned..]) }.unwrap();
        let y = Y::deferred(layout, maps, Two).unwrap();
        assert!(y.finish_deferred());
        use_up(&y);
    });
}

#[test]
fn a_region_one_byte_short_is_rejected_at_every_alignment() {
    with_layout(|layout| {
        let (mut bytes, aligned, size) = region(layout, None);
        for offset in [0, 1, 2, 63, 64, 127] {
            let skip = (128 - offset) % 128;
            let from = aligned + offset;
            let enough: Result<Storage<'_, Lock>, _> =
                carve(layout, &mut bytes[from..from + skip + size]);
            assert!(enough.is_ok(), "offset {offset}");
            let given = skip + size - 1;
            let short = carve::<Lock>(layout, &mut bytes[from..from + given]).unwrap_err();
            let InitError::TooSmall { needed, given: found, .. } = short else { panic!("{short}") };
            assert_eq!((needed, found), (skip + size, given), "offset {offset}");
            let sentence =
                format!("room for {given} bytes for its maps, but the layout requires {needed}");
            assert_eq!(short.to_string(), sentence);
        }
        let none = carve::<Lock>(layout, &mut []).unwrap_err();
        assert!(matches!(none, InitError::TooSmall { given: 0, .. }), "{none}");
        let wrong = Layout { cpus: &[], ..*layout };
        assert_eq!(carve::<Lock>(&wrong, &mut bytes).unwrap_err(), InitError::NoCpus);
    });
}

/// The size that the core computes equals the size that carving uses, to the byte.
#[test]
fn metadata_is_the_size_that_carving_uses() {
    with_layout(|layout| {
        let (mut bytes, aligned, size) = region(layout, None);
        let start = bytes[aligned..].as_ptr() as usize;
        let maps = carve::<Lock>(layout, &mut bytes[aligned..]).unwrap();
        let end = maps.blocks.as_ptr_range().end as usize;
        assert_eq!((end - start).next_multiple_of(128), size);
        let needs = layout.needs::<Lock>().unwrap();
        let (zones, slots) = (maps.zones.len(), maps.slots.len());
        let (nodes, cpu_zones) = (maps.nodes.len(), maps.cpu_zones.len());
        assert_eq!((maps.frames.len(), maps.blocks.len()), (needs.frames, needs.blocks));
        assert_eq!((zones, slots, nodes, cpu_zones), (2, 4, 2, 2));
    });
}

#[test]
fn values_are_aligned_for_every_region_start() {
    #[repr(align(32))]
    struct Wide(u8);
    let mut bytes = [MaybeUninit::<u8>::uninit(); 256];
    for offset in 0..64 {
        let mut carver = Carver::new(&mut bytes[offset..]);
        let odd = carver.slice(3, |i| i as u8).unwrap();
        let wide = carver.slice(2, |i| Wide(i as u8 + 7)).unwrap();
        assert_eq!(wide.as_ptr() as usize % 32, 0, "offset {offset}");
        assert_eq!((odd, wide[0].0, wide[1].0), (&mut [0, 1, 2][..], 7, 8));
        assert!(carver.align_to(16));
        assert_eq!(carver.into_rest().as_ptr() as usize % 16, 0);
    }
}

#[test]
fn slices_do_not_overlap() {
    let mut bytes = [MaybeUninit::<u8>::uninit(); 64];
    let mut carver = Carver::new(&mut bytes);
    let first = carver.slice(8, |_| 1u8).unwrap();
    let second = carver.slice(4, |_| 2u32).unwrap();
    assert!(carver.slice(65, |_| 3u8).is_none(), "too many");
    assert!(carver.slice(usize::MAX, |_| 3u64).is_none(), "more than an address space");
    first.fill(4);
    assert_eq!((first, second), (&mut [4; 8][..], &mut [2; 4][..]));
    let mut carver = Carver::new(&mut bytes);
    assert!(!carver.align_to(0) && !carver.align_to(3), "no power of two");
    assert_eq!(carver.slice(1000, |_| ()).map(|units| units.len()), Some(1000));
    assert_eq!(carver.slice(64, |_| 5u8).map(|all| all.len()), Some(64), "nothing was skipped");
    assert!(carver.slice(1, |_| 6u8).is_none(), "full");
    assert_eq!(carver.slice(0, |_| 6u8).map(|none| none.len()), Some(0));
}

/// Fake physical memory: `bytes` of it, at physical address `at`. Leaked, since a yard keeps it.
fn physical(at: u64, bytes: usize) -> *mut u8 {
    let memory = Box::leak(vec![0xa5u8; bytes + 4096].into_boxed_slice());
    let aligned = memory.as_ptr().align_offset(4096);
    memory.as_mut_ptr().wrapping_add(aligned).wrapping_sub(at as usize)
}

/// The maps are placed as high as possible below 4 GiB, outside reserved ranges, and every other
/// free page can be allocated.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn maps_lie_in_free_memory() {
    lie_in_free_memory::<Linux612>();
}

/// As for the exact engine: a policy names its engine.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn maps_of_the_packed_engine_lie_in_free_memory() {
    lie_in_free_memory::<Packed>();
}

fn lie_in_free_memory<P: StaticPolicy>() {
    const MIB: u64 = 1 << 20;
    let (base, end) = (8 * MIB, 40 * MIB);
    let map = MemoryMap {
        // Overlapping and adjoining, with a hole, in any order.
        usable: &[
            20 * MIB..end - 5,
            base..10 * MIB,
            9 * MIB..18 * MIB,
            5..4000,
            20 * MIB..21 * MIB,
        ],
        reserved: &[base..base + 1, 38 * MIB + 1..end, 60 * MIB..61 * MIB],
        cpus: 2,
        knobs: Knobs::small(),
        direct_map: physical(base, (end - base) as usize),
    };
    let mut y: Yard<'static, Bare<Lock, Two, P>> = Yard::without_memory(pageyard::Parts::new(Two));
    // SAFETY: the memory is leaked, and only this yard uses it.
    let maps = unsafe { map.init(&mut y) }.unwrap();
    assert_eq!((maps.end, maps.start % 4096), (38 * MIB, 0), "below the reserved range");
    let zones: Vec<ZoneKind> = y.zone_ids().map(|z| z.kind).collect();
    assert_eq!(zones, [ZoneKind::Dma32, ZoneKind::Dma]);
    assert_eq!(y.validate(), Ok(()));
    let rights = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
    let mut pages: Vec<Pfn> = std::iter::from_fn(|| y.alloc(Order::ZERO, rights).ok()).collect();
    let taken = (maps.end - maps.start) / 4096;
    assert_eq!(pages.len() as u64, (10 << 8) - 1 + (18 << 8) - taken);
    pages.sort();
    assert!(pages.windows(2).all(|two| two[0] < two[1]), "a page has two owners");
    for &page in &pages {
        assert!(!maps.contains(&page.address()), "{page} holds maps");
        // SAFETY: the page has this test as its only owner, and lies in the leaked buffer.
        unsafe { map.direct_map.wrapping_add(page.address() as usize).write_bytes(0xff, 4096) };
    }
    pages.into_iter().for_each(|p| y.free(p, Order::ZERO).unwrap());
    y.drain_all(None);
    assert_eq!(y.validate(), Ok(()), "what is written to pages does not reach the maps");
    // Boot memory can be released, but never that of the maps.
    let own = Pfn::containing(maps.start)..Pfn::containing(maps.end);
    assert_eq!(y.release(own.clone()), Err(ReleaseError::Hole(own.start)));
    // SAFETY: refused before any memory is accessed.
    let again = unsafe { map.init(&mut y) }.unwrap_err();
    assert_eq!(again, InitError::HasMemory);
    assert_eq!(y.validate(), Ok(()));
    y.release(Pfn::containing(base)..Pfn(Pfn::containing(base).0 + 1)).unwrap();
}

#[test]
fn invalid_memory_maps_are_rejected_before_anything_is_written() {
    let init = |usable: &[std::ops::Range<u64>], reserved: &[std::ops::Range<u64>], cpus| {
        let direct_map = std::ptr::null_mut();
        let map = MemoryMap { usable, reserved, cpus, knobs: Knobs::DEFAULT, direct_map };
        let mut y: Yard<'static, Bare<Lock, Two>> = Yard::without_memory(pageyard::Parts::new(Two));
        // SAFETY: refused before any memory is accessed.
        unsafe { map.init(&mut y) }.unwrap_err()
    };
    let backward = std::ops::Range { start: 9, end: 8 };
    let some = [0..1 << 20];
    assert_eq!(init(&[], &[], 1), InitError::NoZones);
    assert_eq!(init(&[1..8000], &[], 1), InitError::NoZones);
    assert_eq!(init(&[backward.clone()], &[], 1), InitError::EmptyRange(0));
    assert_eq!(init(&some, &[backward], 1), InitError::BadReserved(0));
    assert_eq!(init(&some, &[], 0), InitError::NoCpus);
    assert!(matches!(init(&some, &[], 1025), InitError::TooSmall { what: "CPUs", .. }));
    // The error names the largest free run: page 0 is none of it, as its address here is 0.
    for (reserved, largest) in [(8192..1 << 20, 4096), (8192..(1 << 20) - 3 * 4096, 3 * 4096)] {
        let full = init(&some, &[reserved], 1);
        let InitError::TooSmall { what, needed, given } = full else { panic!("{full}") };
        assert_eq!((what, given), ("bytes of free memory in one piece", largest));
        assert!(needed > given);
    }
}
