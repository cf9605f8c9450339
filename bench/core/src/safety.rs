//! Pageyard with checks and defences (spec §11), to measure their cost against the same patterns
//! without them.

// Fills and inspects the managed memory.
#![allow(unsafe_code)]

use std::slice;

use pageyard::poison::{self, Corruption};
use pageyard::policy::{InitOnAlloc, PageChecked, Poisoned};
use pageyard::{
    CpuId, Defences, Gfp, Link, Observer, Order, PageFlags, PageState, Pfn, Platform, Reclaim,
    Report,
};

use crate::contestants::{Embedder, FIRST, FRAMES, Ours, PAGE, Region, Visitor};

/// A page descriptor like a kernel's, on its own cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Page {
    flags: u32,
    mapcount: i32,
    refcount: u32,
    mapping: usize,
    owner: usize,
    head: usize,
}

/// Descriptors of all pages; none is bad.
#[derive(Debug)]
struct Pages(Vec<Page>);

impl Pages {
    fn new() -> Self {
        let page = || Page { flags: 0, mapcount: -1, refcount: 0, mapping: 0, owner: 0, head: 0 };
        Pages((0..FRAMES).map(|_| page()).collect())
    }

    #[inline(always)]
    fn state(&self, pfn: Pfn) -> PageState {
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

/// Checks every page when it is allocated and freed.
#[derive(Debug)]
pub struct Checking(Pages);

impl Embedder for Checking {
    const NAME: &'static str = "pageyard-checks";

    fn new() -> Self {
        Checking(Pages::new())
    }
}

impl Platform for Checking {
    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(crate::cpu())
    }
}

impl Reclaim for Checking {}

impl Observer for Checking {
    fn report(&self, report: Report) {
        panic!("all pages are in order: {report}");
    }
}

impl Defences for Checking {
    #[inline(always)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        self.0.state(pfn)
    }
}

/// Page descriptors and memory, for policies that fill pages.
#[derive(Debug)]
struct Memory {
    pages: Pages,
    region: Region,
}

impl Memory {
    fn new() -> Self {
        Memory { pages: Pages::new(), region: Region::new(FRAMES * PAGE) }
    }

    #[inline(always)]
    fn with<T>(&self, pfn: Pfn, order: Order, f: impl FnOnce(&mut [u8]) -> T) -> T {
        let at = self.region.address() + (pfn.0 - FIRST) as usize * PAGE;
        let bytes = order.pages() as usize * PAGE;
        // SAFETY: the block lies in the region, whose provenance was exposed. During this call the
        // block belongs to the allocator alone, so there are no other references into it.
        f(unsafe { slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(at), bytes) })
    }
}

/// Declares hooks with memory.
macro_rules! with_memory {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(Memory);

        impl Embedder for $name {
            const NAME: &'static str = $text;

            fn new() -> Self {
                $name(Memory::new())
            }
        }

        impl Platform for $name {
            #[inline(always)]
            fn cpu(&self) -> CpuId {
                CpuId(crate::cpu())
            }

            #[inline(always)]
            fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
                if gfp.contains(Gfp::ZERO) {
                    self.0.with(pfn, order, |bytes| bytes.fill(0));
                }
            }
        }

        impl Reclaim for $name {}

        impl Observer for $name {
            fn report(&self, report: Report) {
                panic!("all pages are in order: {report}");
            }
        }

        impl Defences for $name {
            #[inline(always)]
            fn page_state(&self, pfn: Pfn) -> PageState {
                self.0.pages.state(pfn)
            }

            fn poison(&self, pfn: Pfn, order: Order) {
                self.0.with(pfn, order, poison::fill);
            }

            fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
                self.0.with(pfn, order, |bytes| poison::inspect(bytes))
            }
        }
    )*};
}

with_memory! {
    /// Zeroes memory when it is allocated.
    Zeroing = "pageyard-init-on-alloc";
    /// Fills free memory with a pattern.
    Poisoning = "pageyard-poison";
}

/// Visits the contestants with checks and defences.
pub fn each(visitor: &mut impl Visitor) {
    visitor.visit::<Ours<Checking, PageChecked>>();
    visitor.visit::<Ours<Zeroing, InitOnAlloc>>();
    visitor.visit::<Ours<Poisoning, Poisoned>>();
}
