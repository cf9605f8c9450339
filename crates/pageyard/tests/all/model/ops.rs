//! Random machines and operations. Numbers choose among the blocks and frames that exist at the
//! time.

use pageyard::{Gfp, KNOBS, MigrateType, PAGEBLOCK_PAGES, SECTION_PAGES, ZoneKind};
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

/// Machines of one to three nodes, with holes, odd edges, and sections that can go online.
pub(super) fn machine() -> impl Strategy<Value = Machine> {
    let fixed = |which| Just(shape(which, 1, 0, 0));
    let shape = prop_oneof![
        4 => fixed(0),
        1 => fixed(1),
        3 => (1u64..1500, 1u64..1500).prop_map(|(a, b)| shape(2, 1, a, b)),
        3 => fixed(3),
        3 => fixed(4),
        2 => fixed(5),
        2 => fixed(6),
    ];
    let cpus = prop::sample::select(&CPUS[..]);
    (shape, cpus, any::<bool>()).prop_map(|(m, cpus, huge_pages)| with_cpus(m, cpus, huge_pages))
}

/// The nodes of each CPU.
const CPUS: [&[u16]; 3] = [&[0], &[0, 0], &[0, 0, 1]];
/// Kinds of machine.
const SHAPES: u8 = 7;

/// One kind of machine, its zones divided by `scale`. `a` and `b` move the edges of the one with holes.
fn shape(which: u8, scale: u64, a: u64, b: u64) -> Machine {
    let at = |frame: u64| frame / scale;
    // Two zones must not share a pageblock.
    let edge = |frame: u64| at(frame) & !(PAGEBLOCK_PAGES as u64 - 1);
    match which {
        0 => Machine::normal(at(8192)),
        1 => Machine::normal(1000),
        2 => Machine::new()
            .span(ZoneKind::Normal, at(4096 + a)..at(16384 - b))
            .usable(at(4096 + a)..at(9000))
            .usable(at(10000)..at(16384 - b))
            .reserved(at(8000)..at(8000) + 5)
            .reserved(at(12001)..at(12333)),
        3 => Machine::new()
            .zone(ZoneKind::Dma, 0..edge(2048))
            .zone(ZoneKind::Dma32, edge(2048)..edge(6656))
            .zone(ZoneKind::Normal, edge(6656)..edge(12288))
            .zone(ZoneKind::Movable, edge(12288)..edge(16384))
            .reserved(1..17),
        // Two nodes, one with CPUs; or three nodes, one without memory.
        4 => Machine::new()
            .zone_on(0, ZoneKind::Normal, 0..edge(6144))
            .zone_on(1, ZoneKind::Normal, edge(6144)..edge(12288))
            .zone_on(1, ZoneKind::Movable, edge(12288)..edge(14336))
            .distances(&[10, 20, 20, 10]),
        5 => Machine::new()
            .zone_on(0, ZoneKind::Dma32, 0..edge(4096))
            .zone_on(0, ZoneKind::Normal, edge(4096)..edge(8192))
            .zone_on(2, ZoneKind::Normal, edge(8192)..edge(12288))
            .distances(&[10, 20, 30, 20, 10, 20, 30, 20, 10]),
        // Sections: one present, one that can be onlined, and a movable zone that is empty at
        // first.
        _ => Machine::new()
            .span(ZoneKind::Normal, 0..2 * SECTION_PAGES)
            .usable(0..SECTION_PAGES)
            .span(ZoneKind::Movable, 2 * SECTION_PAGES..3 * SECTION_PAGES),
    }
}

fn with_cpus(machine: Machine, cpus: &[u16], huge_pages: bool) -> Machine {
    let nodes = machine.zones.iter().map(|z| z.node.0 + 1).max().unwrap_or(1);
    let cpus: Vec<u16> = cpus.iter().map(|&n| n.min(nodes - 1)).collect();
    machine.cpus(&cpus).knobs(|k| k.huge_pages = huge_pages)
}

/// Bytes of a machine and of one step in a fuzzer's input.
pub(super) const STEP: usize = 8;

/// Decodes a machine: its kind, its scale, its CPUs, and its edges. Most machines are small, because the
/// cost of a case grows with its frames.
pub(super) fn machine_of(&[_, which, scale, cpus, a0, a1, b0, b1]: &[u8; STEP]) -> Machine {
    // A machine with sections has twenty times as many frames as the others.
    let which = if which == u8::MAX { SHAPES - 1 } else { which % (SHAPES - 1) };
    let scale = [4, 2, 2, 2, 4, 2, 2, 1][usize::from(scale % 8)];
    let edge = |bytes| 1 + u64::from(u16::from_le_bytes(bytes)) % 1499;
    let machine = shape(which, scale, edge([a0, a1]), edge([b0, b1]));
    with_cpus(machine, CPUS[usize::from(cpus >> 1) % CPUS.len()], cpus & 1 == 1)
}

/// Decodes a step: its kind, three small numbers, a large one. Weights are close to those of
/// [`op`]. A changed byte changes one argument, so that a fuzzer's mutations are small steps.
pub(super) fn op_of(&[kind, a, b, c, x @ ..]: &[u8; STEP]) -> Op {
    let x = u32::from_le_bytes(x);
    let (pick, pfn) = (x as usize, u64::from(x));
    let order = ORDERS[usize::from(a) % ORDERS.len()];
    let gfp = usize::from(b) % GFPS.len();
    let t = usize::from(b) % TYPES.len();
    let node = (x % 10 < 3).then_some((x / 10 % 4) as u16);
    let pages = 1 + (u16::from(a) | u16::from(c) << 8) % 2499;
    let mood = MOODS[usize::from(a) % MOODS.len()];
    match kind {
        0..44 => Op::Alloc { order, gfp, node, n: c },
        44..51 => Op::AllocWithin { order, gfp, mask: pfn % 8 },
        51..88 => Op::Free { pick, n: c, how: a % 3 },
        88..95 => Op::FreeBatch { pick, n: c },
        95..102 => Op::BadFree { pfn, order },
        102..109 => Op::Split { pick, into: order },
        109..124 => Op::SetMovable { pick, n: c, movable: a & 1 == 1 },
        124..135 => Op::Bulk { gfp, n: c, node },
        135..146 => Op::AllocAt { pfn, order, gfp },
        146..153 => Op::AllocWith { order, gfp, align: c % 13, below: (c >= 128).then_some(pfn) },
        153..163 => Op::Contig { pfn, pages, t, block: b >= 128 },
        163..166 => Op::ContigPages { pages, align: (x % 12) as u8, t },
        166..172 => Op::Isolate { pfn, pages, t },
        172..179 => Op::Unisolate { pick, t },
        179..182 => Op::Cma { block: pfn },
        182..188 => Op::Online { section: pfn % 3 },
        188..194 => Op::Offline { section: pfn % 3 },
        194..201 => Op::Poison { pfn },
        201..204 => Op::Unpoison { pick },
        204..213 => Op::Cpu(x),
        213..215 => Op::CpuUp(x),
        215..218 => Op::CpuDead(x),
        218..220 => Op::OnDeadCpu(gfp),
        220..227 => Op::Tick(x),
        227..229 => Op::DrainCpu(x),
        229..231 => Op::DrainAll,
        231..234 => Op::Compact,
        234..236 => Op::Unreserve { t: usize::from(b) % 3 },
        236..241 => Op::Relocate(mood),
        241..247 => Op::Reclaim(mood),
        247.. => Op::Knob { which: usize::from(a) % KNOBS.len(), value: pfn << (c % 33) },
    }
}

/// The orders of steps, small ones most often.
const ORDERS: [u8; 15] = [0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 8, 9, 10];

fn order() -> impl Strategy<Value = u8> {
    prop::sample::select(&ORDERS[..])
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
