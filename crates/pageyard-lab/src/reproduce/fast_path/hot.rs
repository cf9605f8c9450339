//! What is counted: the hot paths of the core, with and without each idea. Order and flags are opaque to
//! the compiler, as they were in a kernel whose allocator is a function of its own; otherwise they would
//! be constants here, and nothing would be left of how they are looked up.

use std::cell::Cell;
use std::hint::black_box;

use pageyard::policy::{
    FlagsAgain, Linux612, OnePath, PageChecked, StaticPolicy, TypeAgain, ZoneByBranches,
};
use pageyard::{
    CpuId, Gfp, InitError, Knobs, Layout, Link, NodeId, Order, PageFlags, PageState, Pfn, Platform,
    Report, Yard, ZoneKind, ZoneSpec,
};

use crate::{Lock, Memory};

/// Frames of the allocator: 1 GiB.
const FRAMES: u64 = 1 << 18;
/// The first of them.
const FIRST: u64 = 1 << 20;
const CPUS: usize = 2;
/// Requests as page faults make them.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// The core as it is, or without an idea.
pub(super) struct Variant {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Its row.
    pub(super) row: &'static str,
    pub(super) exercise: fn(Pattern, usize, usize) -> Result<(), InitError>,
}

/// Today's core first, then one idea less at a time, then none.
pub(super) const VARIANTS: [Variant; 7] = [
    Variant { name: "today", row: "today's core", exercise: exercise::<Linux612> },
    Variant { name: "branches", row: "zone by branches", exercise: exercise::<ZoneByBranches> },
    Variant {
        name: "flags-again",
        row: "flags, list asked again",
        exercise: exercise::<FlagsAgain>,
    },
    Variant { name: "one-path", row: "no path apart", exercise: exercise::<OnePath> },
    Variant { name: "type-again", row: "type read again", exercise: exercise::<TypeAgain> },
    Variant { name: "checks", row: "checks in the path", exercise: exercise::<PageChecked> },
    Variant {
        name: "none",
        row: "none of the ideas",
        exercise: exercise::<ZoneByBranches<FlagsAgain<OnePath<TypeAgain<PageChecked>>>>>,
    },
];

/// What is done again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pattern {
    /// A page is allocated and freed at once.
    Pair,
    /// The same with a block of order 3.
    Pair32,
    /// Single pages, one after the other, all kept.
    Alloc,
    /// Single pages freed in the order of their allocation.
    FreeInOrder,
}

/// Named as in `docs/performance.md`.
pub(super) const PATTERNS: [(&str, Pattern); 4] = [
    ("pair-4k", Pattern::Pair),
    ("pair-32k", Pattern::Pair32),
    ("alloc-64k", Pattern::Alloc),
    ("free-in-order", Pattern::FreeInOrder),
];

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// A page as a kernel describes it, in a cache line of its own.
#[repr(align(64))]
struct Page {
    flags: u32,
    mapcount: i32,
    refcount: u32,
    mapping: usize,
    owner: usize,
    head: usize,
}

/// A platform that knows its CPU and, where pages are checked, all pages.
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

    fn report(&self, report: Report) {
        panic!("all pages are in order: {report}");
    }
}

type Core<'y, P> = Yard<'y, Lock, Pages, P>;

/// On an allocator that has done the pattern with `size` operations before: `n` operations more, at
/// most `size`.
fn exercise<P: StaticPolicy>(pattern: Pattern, size: usize, n: usize) -> Result<(), InitError> {
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
            pairs::<P, 0>(&yard, size);
            pairs::<P, 0>(&yard, n);
        }
        Pattern::Pair32 => {
            pairs::<P, 3>(&yard, size);
            pairs::<P, 3>(&yard, n);
        }
        Pattern::Alloc => {
            allocs(&yard, &mut held);
            frees(&yard, &held);
            allocs(&yard, &mut held[..n]);
        }
        Pattern::FreeInOrder => {
            allocs(&yard, &mut held);
            frees(&yard, &held);
            allocs(&yard, &mut held);
            frees(&yard, &held[..n]);
        }
    }
    Ok(())
}

#[inline(never)]
fn pairs<P: StaticPolicy, const ORDER: u8>(yard: &Core<'_, P>, n: usize) {
    for _ in 0..n {
        let block = black_box(take(yard, ORDER));
        give(yard, block, ORDER);
    }
}

#[inline(never)]
fn allocs<P: StaticPolicy>(yard: &Core<'_, P>, held: &mut [Pfn]) {
    for slot in held {
        *slot = take(yard, 0);
    }
}

#[inline(never)]
fn frees<P: StaticPolicy>(yard: &Core<'_, P>, held: &[Pfn]) {
    for &block in held {
        give(yard, block, 0);
    }
}

#[inline(always)]
fn take<P: StaticPolicy>(yard: &Core<'_, P>, order: u8) -> Pfn {
    let order = black_box(Order::new(order).expect("an order"));
    yard.alloc(order, black_box(GFP)).expect("most of the memory is free")
}

#[inline(always)]
fn give<P: StaticPolicy>(yard: &Core<'_, P>, block: Pfn, order: u8) {
    let order = black_box(Order::new(order).expect("an order"));
    yard.free(block, order).expect("an allocated block");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_does_every_pattern() {
        for variant in &VARIANTS {
            for (_, pattern) in PATTERNS {
                (variant.exercise)(pattern, 600, 500).unwrap();
            }
        }
    }
}
