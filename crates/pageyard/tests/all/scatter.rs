//! Requests for many pages: one range if possible, else a few; all or nothing.

use crate::common;

use std::ops::Range;

use common::{Machine, Y, o};
use pageyard::{AllocError, Gfp, MigrateType, Order, Pfn, ScatterError, ZoneKind};

const NORMAL: ZoneKind = ZoneKind::Normal;
const GFP: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

fn free_pages(y: &Y<'_>) -> u64 {
    y.drain_all(None);
    y.zone_info(NORMAL).unwrap().free_exact
}

fn room(n: usize) -> Vec<Range<Pfn>> {
    vec![Pfn(0)..Pfn(0); n]
}

/// Asserts that the caller owns every page of the ranges as a single page, and frees them.
fn free_all(y: &Y<'_>, ranges: &[Range<Pfn>]) -> u64 {
    let pages = ranges.iter().map(|r| r.end.0 - r.start.0).sum();
    ranges.iter().for_each(|r| y.free_contig(r.clone()).unwrap());
    pages
}

#[test]
fn free_memory_is_one_range_of_exactly_the_pages() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        let all = free_pages(y);
        for pages in [1, 2, 3, 300, 512, 1000, 1024] {
            let mut ranges = room(2);
            assert_eq!(y.alloc_range_or_scatter(pages, GFP, &mut ranges), Ok(1), "{pages}");
            assert_eq!(free_pages(y), all - pages, "the rest of the block is free again");
            assert_eq!(free_all(y, &ranges[..1]), pages);
        }
        assert_eq!(y.alloc_range_or_scatter(0, GFP, &mut []), Ok(0));
        assert_eq!(free_pages(y), all);
        y.validate().unwrap();
    });
}

/// A request larger than the largest block empties a range by migration, but only if it may sleep.
#[test]
fn more_than_the_largest_block_is_one_range_for_a_request_that_may_sleep() {
    Machine::normal(16384).run(|y: &Y<'_>| {
        // One range of 1,536 pages starts inside a block; all other free runs are shorter than
        // 1,500.
        let used = (0..10).step_by(2).flat_map(|n| [n * 1024, n * 1024 + 1023]);
        let rest = [10 * 1024, 11 * 1024 + 511, 13 * 1024, 14 * 1024, 15 * 1024];
        used.chain(rest).for_each(|p| y.alloc_at(Pfn(p), o(0), GFP).unwrap());
        let all = free_pages(y);
        let mut ranges = room(16);
        let n = y.alloc_range_or_scatter(1500, Gfp::NOWAIT, &mut ranges).unwrap();
        assert!(n > 1, "without sleeping it gets blocks");
        assert_eq!(free_all(y, &ranges[..n]), 1500);
        assert_eq!(free_pages(y), all);
        let mut ranges = room(1);
        assert_eq!(y.alloc_range_or_scatter(1500, GFP, &mut ranges), Ok(1));
        assert_eq!(free_pages(y), all - 1500);
        free_all(y, &ranges);
        y.validate().unwrap();
    });
}

/// Blocks come in descending order, and none larger than the current one is left free.
#[test]
fn scattered_memory_comes_in_the_largest_blocks() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let mut used: Vec<Pfn> = std::iter::from_fn(|| {
            y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN).ok()
        })
        .collect();
        used.sort_unstable();
        assert_eq!(used.len(), 8192);
        // Free: a block of order 8, one of order 6, 40 single pages.
        let free =
            |p: &Pfn| (1024..1280).contains(&p.0) || (2048..2112).contains(&p.0) || p.0 % 100 == 50;
        used.iter().filter(|p| free(p)).for_each(|&p| y.free(p, Order::ZERO).unwrap());
        let before = free_pages(y);
        let gfp = GFP | Gfp::MEMALLOC;

        let mut ranges = room(10);
        let n = y.alloc_range_or_scatter(325, gfp, &mut ranges).unwrap();
        let mut sizes: Vec<u64> = ranges[..n].iter().map(|r| r.end.0 - r.start.0).collect();
        assert_eq!(sizes, [256, 64, 1, 1, 1, 1, 1], "{ranges:?}");
        assert_eq!(free_all(y, &ranges[..n]), 325);
        assert_eq!(free_pages(y), before);

        // All or nothing: too few slots, then too little memory.
        assert_eq!(
            y.alloc_range_or_scatter(325, gfp, &mut ranges[..4]),
            Err(ScatterError::TooManyRanges)
        );
        assert_eq!(free_pages(y), before);
        let mut ranges = room(1000);
        let short = Err(ScatterError::Alloc(AllocError::NoMemory));
        assert_eq!(y.alloc_range_or_scatter(before + 1, gfp, &mut ranges), short);
        assert_eq!(free_pages(y), before);
        assert_eq!(y.alloc_range_or_scatter(9, gfp, &mut []), Err(ScatterError::TooManyRanges));
        // The request takes the last page.
        let n = y.alloc_range_or_scatter(before, gfp, &mut ranges).unwrap();
        assert_eq!(free_pages(y), 0);
        assert_eq!(free_all(y, &ranges[..n]), before);
        sizes.clear();
        y.validate().unwrap();
    });
}

/// The requests for blocks use no more of the reserves than the caller allows.
#[test]
fn blocks_leave_the_reserves_alone() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        while y.alloc(Order::ZERO, GFP).is_ok() {}
        let left = free_pages(y);
        let mut ranges = room(9);
        let refused = y.alloc_range_or_scatter(64, GFP, &mut ranges);
        assert_eq!(refused, Err(ScatterError::Alloc(AllocError::NoMemory)));
        assert_eq!(free_pages(y), left);
    });
}

#[test]
fn invalid_flags_and_pages_of_a_type_are_as_in_a_request() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let mut ranges = room(2);
        let both = Gfp::MOVABLE | Gfp::RECLAIMABLE;
        let refused = y.alloc_range_or_scatter(9, GFP | both, &mut ranges);
        assert_eq!(refused.err(), y.alloc(o(0), GFP | both).err().map(ScatterError::Alloc));
        y.alloc_range_or_scatter(9, Gfp::HIGHUSER_MOVABLE | Gfp::COMP, &mut ranges).unwrap();
        assert_eq!(y.block_type(ranges[0].start), Some(MigrateType::Movable));
        y.free(ranges[0].start, Order::ZERO).unwrap();
    });
}
