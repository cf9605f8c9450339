//! The hot paths that callgrind counts: the core's own, and the same with the work that each idea
//! saves. The core has only the fast form, so a variant does the extra work around the core's
//! calls. Order and flags are opaque to the compiler: with constants, it would compute their
//! look-ups at compile time.

use std::cell::Cell;
use std::hint::black_box;

use pageyard::policy::{Linux612, PageChecked, StaticPolicy};
use pageyard::{
    CpuId, Defences, Gfp, Hooked, InitError, Knobs, Layout, Link, NodeChoice, NodeId, Observer,
    Order, PageFlags, PageState, Pfn, Platform, Reclaim, Report, Yard, ZoneKind, ZoneSpec,
};

use crate::{Lock, Memory};

/// Frames of the allocator: 1 GiB.
const FRAMES: u64 = 1 << 18;
/// The first frame.
const FIRST: u64 = 1 << 20;
const CPUS: usize = 2;
/// Flags of the requests, as for page faults.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// The core as it is, or without one of the ideas.
pub(super) struct Variant {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// The label of its row.
    pub(super) row: &'static str,
    pub(super) exercise: fn(Pattern, usize, usize) -> Result<(), InitError>,
}

/// Today's core first, then the work of one idea at a time, then all of it.
pub(super) const VARIANTS: [Variant; 8] = [
    Variant { name: "today", row: "today's core", exercise: exercise::<Linux612, Today> },
    Variant { name: "table", row: "+ zone by the table", exercise: exercise::<Linux612, Table> },
    Variant {
        name: "branches",
        row: "+ zone by branches",
        exercise: exercise::<Linux612, Branches>,
    },
    Variant {
        name: "flags-again",
        row: "+ flags looked up again",
        exercise: exercise::<Linux612, FlagsAgain>,
    },
    Variant { name: "one-path", row: "no fast path", exercise: exercise::<Linux612, OnePath> },
    Variant {
        name: "type-again",
        row: "+ type read again",
        exercise: exercise::<Linux612, TypeAgain>,
    },
    Variant { name: "checks", row: "+ checks", exercise: exercise::<PageChecked, Today> },
    Variant { name: "none", row: "none of the ideas", exercise: exercise::<PageChecked, Before> },
];

/// The extra work around a request and a free, and which of the core's paths they take.
trait Variation {
    /// Whether requests and frees have a fast path for the common case.
    const FAST_PATH: bool = true;

    /// Runs before a request: the look-ups in addition to the core's own.
    #[inline(always)]
    fn before_alloc(gfp: Gfp) {
        let _ = gfp;
    }

    /// Runs before a free: the reads in addition to the core's own.
    #[inline(always)]
    fn before_free<P: StaticPolicy>(yard: &Core<'_, P>, block: Pfn) {
        let _ = (yard, block);
    }
}

struct Today;
impl Variation for Today {}

struct Table;
impl Variation for Table {
    #[inline(always)]
    fn before_alloc(gfp: Gfp) {
        black_box(black_box(gfp).highest_zone());
    }
}

struct Branches;
impl Variation for Branches {
    #[inline(always)]
    fn before_alloc(gfp: Gfp) {
        black_box(by_branches(black_box(gfp)));
    }
}

/// Derives the zone for the watermark and the type for the list from the flags a second time.
struct FlagsAgain;
impl Variation for FlagsAgain {
    #[inline(always)]
    fn before_alloc(gfp: Gfp) {
        black_box(black_box(gfp).highest_zone());
        black_box(black_box(gfp).migrate_type());
    }
}

struct OnePath;
impl Variation for OnePath {
    const FAST_PATH: bool = false;
}

/// Reads the type of the pageblock a second time for the list.
struct TypeAgain;
impl Variation for TypeAgain {
    #[inline(always)]
    fn before_free<P: StaticPolicy>(yard: &Core<'_, P>, block: Pfn) {
        black_box(yard.block_type(black_box(block)));
    }
}

/// Without any of the ideas: every look-up of the flags uses branches.
struct Before;
impl Variation for Before {
    const FAST_PATH: bool = false;

    #[inline(always)]
    fn before_alloc(gfp: Gfp) {
        black_box(by_branches(black_box(gfp)));
        black_box(by_branches(black_box(gfp)));
        black_box(black_box(gfp).migrate_type());
    }

    #[inline(always)]
    fn before_free<P: StaticPolicy>(yard: &Core<'_, P>, block: Pfn) {
        TypeAgain::before_free(yard, block);
    }
}

/// Finds the highest zone by one test after the other, as before the table existed. Contradictory
/// flags need a separate test, which the table includes.
#[inline(always)]
fn by_branches(gfp: Gfp) -> Option<ZoneKind> {
    let zones = gfp.bits() & (Gfp::DMA | Gfp::HIGHMEM | Gfp::DMA32).bits();
    if zones & zones.wrapping_sub(1) != 0 {
        return None;
    }
    if gfp.contains(Gfp::DMA) {
        return Some(ZoneKind::Dma);
    }
    if gfp.contains(Gfp::DMA32) {
        return Some(ZoneKind::Dma32);
    }
    if gfp.contains(Gfp::HIGHMEM | Gfp::MOVABLE) {
        return Some(ZoneKind::Movable);
    }
    Some(ZoneKind::Normal)
}

/// The repeated operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    /// Allocates a page and frees it at once.
    Pair,
    /// Allocates a block of order 3 and frees it at once.
    Pair32,
    /// Allocates single pages one after the other and keeps all of them.
    Alloc,
    /// Frees single pages in the order of their allocation.
    FreeInOrder,
}

/// Patterns with their names in `docs/performance.md`.
pub(super) const PATTERNS: [(&str, Pattern); 4] = [
    ("pair-4k", Pattern::Pair),
    ("alloc-64k", Pattern::Alloc),
    ("pair-32k", Pattern::Pair32),
    ("free-in-order", Pattern::FreeInOrder),
];

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// A page descriptor as a kernel has it, in its own cache line.
#[repr(align(64))]
struct Page {
    flags: u32,
    mapcount: i32,
    refcount: u32,
    mapping: usize,
    owner: usize,
    head: usize,
}

/// A platform that knows its CPU and, if pages are checked, all page descriptors.
struct Pages(Vec<Page>);

impl Pages {
    fn new(n: u64) -> Pages {
        let page = |_| Page { flags: 0, mapcount: -1, refcount: 0, mapping: 0, owner: 0, head: 0 };
        Pages((0..n).map(page).collect())
    }
}

impl Platform for Pages {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Reclaim for Pages {}

impl Observer for Pages {
    fn report(&self, report: Report) {
        panic!("all pages are in order: {report}");
    }
}

impl Defences for Pages {
    #[inline(always)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        let p = &self.0[(pfn.0 - FIRST) as usize];
        PageState {
            mapcount: p.mapcount,
            mapping: p.mapping != 0,
            refcount: p.refcount,
            charged: p.owner != 0,
            flags: PageFlags::from_bits_retain(p.flags),
            link: if p.head == 0 { Link::Single } else { Link::Tail(Pfn(p.head as u64)) },
        }
    }
}

type Core<'y, P> = Yard<'y, Hooked<Lock, Pages, P>>;

/// Runs `n` operations of the pattern, at most `size`, on an allocator that has already done `size`
/// operations.
fn exercise<P: StaticPolicy, W: Variation>(
    pattern: Pattern,
    size: usize,
    n: usize,
) -> Result<(), InitError> {
    let span = Pfn(FIRST)..Pfn(FIRST + FRAMES);
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &[NodeId(0); CPUS],
        distances: &[],
        knobs: Knobs::default(),
    };
    let memory = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let checked = P::RULES.safety.checks_pages();
    let pages = Pages::new(if checked { FRAMES } else { 0 });
    let yard: Core<'_, P> = Yard::new(&layout, memory.storage(&mut rooms), pages)?;
    CPU.set(black_box(0));
    let mut held = vec![Pfn(u64::MAX); size];
    let n = n.min(size);
    match pattern {
        Pattern::Pair => {
            pairs::<P, W, 0>(&yard, size);
            pairs::<P, W, 0>(&yard, n);
        }
        Pattern::Pair32 => {
            pairs::<P, W, 3>(&yard, size);
            pairs::<P, W, 3>(&yard, n);
        }
        Pattern::Alloc => {
            allocs::<P, W>(&yard, &mut held);
            frees::<P, W>(&yard, &held);
            allocs::<P, W>(&yard, &mut held[..n]);
        }
        Pattern::FreeInOrder => {
            allocs::<P, W>(&yard, &mut held);
            frees::<P, W>(&yard, &held);
            allocs::<P, W>(&yard, &mut held);
            frees::<P, W>(&yard, &held[..n]);
        }
    }
    Ok(())
}

#[inline(never)]
fn pairs<P: StaticPolicy, W: Variation, const ORDER: u8>(yard: &Core<'_, P>, n: usize) {
    for _ in 0..n {
        let block = black_box(alloc::<P, W>(yard, ORDER));
        free::<P, W>(yard, block, ORDER);
    }
}

#[inline(never)]
fn allocs<P: StaticPolicy, W: Variation>(yard: &Core<'_, P>, held: &mut [Pfn]) {
    for slot in held {
        *slot = alloc::<P, W>(yard, 0);
    }
}

#[inline(never)]
fn frees<P: StaticPolicy, W: Variation>(yard: &Core<'_, P>, held: &[Pfn]) {
    for &block in held {
        free::<P, W>(yard, block, 0);
    }
}

#[inline(always)]
fn alloc<P: StaticPolicy, W: Variation>(yard: &Core<'_, P>, order: u8) -> Pfn {
    let order = black_box(Order::new(order).expect("an order"));
    let gfp = black_box(GFP);
    W::before_alloc(gfp);
    let block = if W::FAST_PATH {
        yard.alloc(order, gfp)
    } else {
        yard.alloc_rest(NodeChoice::LOCAL, order, gfp)
    };
    block.expect("most of the memory is free")
}

#[inline(always)]
fn free<P: StaticPolicy, W: Variation>(yard: &Core<'_, P>, block: Pfn, order: u8) {
    let order = black_box(Order::new(order).expect("an order"));
    W::before_free(yard, block);
    let freed = if W::FAST_PATH { yard.free(block, order) } else { yard.free_rest(block, order) };
    freed.expect("an allocated block");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_and_table_find_the_same_zone() {
        for bits in 0..32 {
            let gfp = Gfp::from_bits_retain(bits);
            assert_eq!(by_branches(gfp), gfp.highest_zone(), "{bits:#x}");
        }
    }

    #[test]
    fn every_variant_runs_every_pattern() {
        for variant in &VARIANTS {
            for (_, pattern) in PATTERNS {
                (variant.exercise)(pattern, 600, 500).unwrap();
            }
        }
    }
}
