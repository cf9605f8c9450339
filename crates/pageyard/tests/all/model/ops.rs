//! Random machines and what is asked of them. Numbers choose among what is there at the time.

use pageyard::{Gfp, KNOBS, MigrateType, SECTION_PAGES, ZoneKind};
use proptest::prelude::*;

use super::world::{MOODS, Mood};
use crate::common::Machine;

/// One step.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Alloc { order: u8, gfp: usize, node: Option<u16>, n: u8 },
    AllocWithin { order: u8, gfp: usize, mask: u64 },
    Free { pick: usize, n: u8, how: u8 },
    FreeBatch { pick: usize, n: u8 },
    BadFree { pfn: u64, order: u8 },
    Split { pick: usize, into: u8 },
    SetMovable { pick: usize, n: u8, movable: bool },
    Bulk { gfp: usize, n: u8, node: Option<u16> },
    AllocAt { pfn: u64, order: u8, gfp: usize },
    AllocWith { order: u8, gfp: usize, align: u8, below: Option<u64> },
    Contig { pfn: u64, pages: u16, t: usize, block: bool },
    ContigPages { pages: u16, align: u8, t: usize },
    Isolate { pfn: u64, pages: u16, t: usize },
    Unisolate { pick: usize, t: usize },
    Cma { block: u64 },
    Online { section: u64 },
    Offline { section: u64 },
    Cpu(u32),
    CpuUp(u32),
    CpuDead(u32),
    OnDeadCpu(usize),
    Tick(u32),
    DrainCpu(u32),
    DrainAll,
    Poison { pfn: u64 },
    Unpoison { pick: usize },
    Compact,
    Unreserve { t: usize },
    Relocate(Mood),
    Reclaim(Mood),
    Knob { which: usize, value: u64 },
}

/// The flags that requests carry.
pub(super) const GFPS: [Gfp; 15] = [
    Gfp::KERNEL,
    Gfp::KERNEL,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::ATOMIC,
    Gfp::NOWAIT,
    Gfp::empty(),
    Gfp::empty().union(Gfp::NOMEMALLOC),
    Gfp::ATOMIC.union(Gfp::MEMALLOC),
    Gfp::KERNEL.union(Gfp::DMA),
    Gfp::KERNEL.union(Gfp::DMA32),
    Gfp::KERNEL.union(Gfp::THISNODE),
    Gfp::KERNEL.union(Gfp::NORETRY),
    Gfp::KERNEL.union(Gfp::NOFAIL),
];

/// Types that ranges get.
pub(super) const TYPES: [MigrateType; 4] =
    [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::Cma];

/// Machines of one to three nodes, with holes, odd edges, and sections that may come.
pub(super) fn machine() -> impl Strategy<Value = Machine> {
    let shape = prop_oneof![
        4 => Just(Machine::normal(8192)),
        1 => Just(Machine::normal(1000)),
        3 => (1u64..1500, 1u64..1500).prop_map(|(a, b)| Machine::new()
            .span(ZoneKind::Normal, 4096 + a..16384 - b)
            .usable(4096 + a..9000)
            .usable(10000..16384 - b)
            .reserved(8000..8005)
            .reserved(12001..12333)),
        3 => Just(Machine::new()
            .zone(ZoneKind::Dma, 0..2048)
            .zone(ZoneKind::Dma32, 2048..6656)
            .zone(ZoneKind::Normal, 6656..12288)
            .zone(ZoneKind::Movable, 12288..16384)
            .reserved(1..17)),
        // Two nodes, of which one has CPUs; three, of which one has no memory.
        3 => Just(Machine::new()
            .zone_on(0, ZoneKind::Normal, 0..6144)
            .zone_on(1, ZoneKind::Normal, 6144..12288)
            .zone_on(1, ZoneKind::Movable, 12288..14336)
            .distances(&[10, 20, 20, 10])),
        2 => Just(Machine::new()
            .zone_on(0, ZoneKind::Dma32, 0..4096)
            .zone_on(0, ZoneKind::Normal, 4096..8192)
            .zone_on(2, ZoneKind::Normal, 8192..12288)
            .distances(&[10, 20, 30, 20, 10, 20, 30, 20, 10])),
        // Sections: one there, one that may come, a movable zone that is empty at first.
        2 => Just(Machine::new()
            .span(ZoneKind::Normal, 0..2 * SECTION_PAGES)
            .usable(0..SECTION_PAGES)
            .span(ZoneKind::Movable, 2 * SECTION_PAGES..3 * SECTION_PAGES)),
    ];
    let cpus = prop::sample::select(vec![vec![0u16], vec![0, 0], vec![0, 0, 1]]);
    (shape, cpus, any::<bool>()).prop_map(|(m, cpus, huge_pages)| {
        let nodes = m.zones.iter().map(|z| z.node.0 + 1).max().unwrap_or(1);
        let cpus: Vec<u16> = cpus.iter().map(|&n| n.min(nodes - 1)).collect();
        m.cpus(&cpus).knobs(|k| k.huge_pages = huge_pages)
    })
}

fn order() -> impl Strategy<Value = u8> {
    prop::sample::select(&[0u8, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 8, 9, 10][..])
}

fn gfp() -> impl Strategy<Value = usize> {
    0..GFPS.len()
}

fn node() -> impl Strategy<Value = Option<u16>> {
    prop::option::weighted(0.3, 0..4u16)
}

fn mood() -> impl Strategy<Value = Mood> {
    prop::sample::select(&MOODS[..])
}

/// Any step, requests and frees most often.
pub(super) fn op() -> impl Strategy<Value = Op> {
    let any_pfn = any::<u64>;
    let pick = any::<usize>;
    let requests = prop_oneof![
        12 => (order(), gfp(), node(), any::<u8>())
            .prop_map(|(order, gfp, node, n)| Op::Alloc { order, gfp, node, n }),
        2 => (order(), gfp(), 0..8u64)
            .prop_map(|(order, gfp, mask)| Op::AllocWithin { order, gfp, mask }),
        10 => (pick(), any::<u8>(), 0..3u8).prop_map(|(pick, n, how)| Op::Free { pick, n, how }),
        2 => (pick(), any::<u8>()).prop_map(|(pick, n)| Op::FreeBatch { pick, n }),
        2 => (any_pfn(), order()).prop_map(|(pfn, order)| Op::BadFree { pfn, order }),
        2 => (pick(), order()).prop_map(|(pick, into)| Op::Split { pick, into }),
        4 => (pick(), any::<u8>(), any::<bool>())
            .prop_map(|(pick, n, movable)| Op::SetMovable { pick, n, movable }),
        3 => (gfp(), any::<u8>(), node()).prop_map(|(gfp, n, node)| Op::Bulk { gfp, n, node }),
        3 => (any_pfn(), order(), gfp())
            .prop_map(|(pfn, order, gfp)| Op::AllocAt { pfn, order, gfp }),
        2 => (order(), gfp(), 0..13u8, prop::option::of(any_pfn()))
            .prop_map(|(order, gfp, align, below)| Op::AllocWith { order, gfp, align, below }),
    ];
    let ranges = prop_oneof![
        3 => (any_pfn(), 1..2500u16, 0..TYPES.len(), any::<bool>())
            .prop_map(|(pfn, pages, t, block)| Op::Contig { pfn, pages, t, block }),
        1 => (1..2500u16, 0..12u8, 0..TYPES.len())
            .prop_map(|(pages, align, t)| Op::ContigPages { pages, align, t }),
        2 => (any_pfn(), 1..2500u16, 0..TYPES.len())
            .prop_map(|(pfn, pages, t)| Op::Isolate { pfn, pages, t }),
        2 => (pick(), 0..TYPES.len()).prop_map(|(pick, t)| Op::Unisolate { pick, t }),
        1 => any_pfn().prop_map(|block| Op::Cma { block }),
        2 => (0..3u64).prop_map(|section| Op::Online { section }),
        2 => (0..3u64).prop_map(|section| Op::Offline { section }),
        2 => any_pfn().prop_map(|pfn| Op::Poison { pfn }),
        1 => pick().prop_map(|pick| Op::Unpoison { pick }),
    ];
    let upkeep = prop_oneof![
        4 => any::<u32>().prop_map(Op::Cpu),
        1 => any::<u32>().prop_map(Op::CpuUp),
        1 => any::<u32>().prop_map(Op::CpuDead),
        1 => gfp().prop_map(Op::OnDeadCpu),
        3 => any::<u32>().prop_map(Op::Tick),
        1 => any::<u32>().prop_map(Op::DrainCpu),
        1 => Just(Op::DrainAll),
        1 => Just(Op::Compact),
        1 => (0..3usize).prop_map(|t| Op::Unreserve { t }),
        2 => mood().prop_map(Op::Relocate),
        2 => mood().prop_map(Op::Reclaim),
        3 => (0..KNOBS.len(), prop_oneof![0..20u64, 0..30_000u64, any::<u64>()])
            .prop_map(|(which, value)| Op::Knob { which, value }),
    ];
    prop_oneof![6 => requests, 2 => ranges, 2 => upkeep]
}
