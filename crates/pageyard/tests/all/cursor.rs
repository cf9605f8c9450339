//! Contiguous ranges from a cursor: repeated searches do not revisit the frames before it.

use crate::common;

use common::{Machine, Y, frames, o};
use pageyard::{ContigCursor, ContigError, Gfp, MigrateType, Pfn};

const GFP: Gfp = Gfp::KERNEL;
const MOVABLE: MigrateType = MigrateType::Movable;
/// Pageblocks of the machine, and of a range.
const BLOCKS: u64 = 512;
const SIZE: u64 = 8;

fn range(y: &Y<'_>, cursor: &ContigCursor) -> Result<u64, ContigError> {
    let all = frames(0..BLOCKS * 512);
    y.alloc_contig_pages_from(cursor, SIZE * 512, 512, all, MOVABLE, GFP).map(|pfn| pfn.0 / 512)
}

/// An unmovable page in each pageblock of the first half.
fn machine_with_a_full_half(f: impl for<'y> FnOnce(&Y<'y>)) {
    Machine::normal(BLOCKS * 512).run(|y: &Y<'_>| {
        (0..BLOCKS / 2).for_each(|b| y.alloc_at(Pfn(b * 512 + 7), o(0), GFP).unwrap());
        f(y);
        y.validate().unwrap();
    });
}

#[test]
fn searches_continue_behind_the_last_range() {
    machine_with_a_full_half(|y| {
        let cursor = ContigCursor::new();
        let places: Vec<u64> = (0..16).map(|_| range(y, &cursor).unwrap()).collect();
        let expect: Vec<u64> = (0..16).map(|n| BLOCKS / 2 + n * SIZE).collect();
        assert_eq!(places, expect);
        // The full half costs one pageblock per candidate, each range its own pageblocks.
        let full = BLOCKS / 2 / SIZE;
        assert_eq!(cursor.pageblocks_looked_at(), full + 16 * SIZE);
        // With a new cursor, the search starts in the full half and passes the ranges in use.
        let forgetful = ContigCursor::new();
        range(y, &forgetful).unwrap();
        assert_eq!(forgetful.pageblocks_looked_at(), full + 16 + SIZE);
    });
}

/// If a candidate's last pageblock has an obstacle, its other pageblocks are not examined.
#[test]
fn pageblocks_before_an_obstacle_are_skipped() {
    Machine::normal(BLOCKS * 512).run(|y: &Y<'_>| {
        let obstacles = (SIZE - 1..BLOCKS - SIZE).step_by(SIZE as usize);
        let n = obstacles.clone().count() as u64;
        obstacles.for_each(|b| y.alloc_at(Pfn(b * 512 + 500), o(0), GFP).unwrap());
        let cursor = ContigCursor::new();
        assert_eq!(range(y, &cursor), Ok(BLOCKS - SIZE));
        assert_eq!(cursor.pageblocks_looked_at(), n + SIZE);
    });
}

#[test]
fn a_search_returns_to_what_was_freed_before_the_cursor() {
    machine_with_a_full_half(|y| {
        let cursor = ContigCursor::new();
        let all: Vec<u64> = std::iter::from_fn(|| range(y, &cursor).ok()).collect();
        assert_eq!(all.len() as u64, BLOCKS / 2 / SIZE);
        assert_eq!(range(y, &cursor), Err(ContigError::NoPlace));
        let freed = all[5] * 512;
        y.free_contig(frames(freed..freed + SIZE * 512)).unwrap();
        assert_eq!(range(y, &cursor), Ok(all[5]));
        // Frees a range across the cursor, which is now behind `all[5]`.
        let across = (all[5] + SIZE / 2) * 512;
        y.free_contig(frames(across..across + SIZE * 512)).unwrap();
        assert_eq!(range(y, &cursor), Ok(all[5] + SIZE / 2));
    });
}

#[test]
fn errors_are_those_of_a_search_without_a_cursor() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let cursor = ContigCursor::new();
        for (pages, align, within, t) in [
            (1, 3, 0..8192, MOVABLE),
            (0, 1, 0..8192, MOVABLE),
            (1, 1, std::ops::Range { start: 9, end: 5 }, MOVABLE),
            (9, 1, 0..8192, MigrateType::HighAtomic),
            (9000, 1, 0..8192, MOVABLE),
        ] {
            let with =
                y.alloc_contig_pages_from(&cursor, pages, align, frames(within.clone()), t, GFP);
            let without = y.alloc_contig_pages(pages, align, frames(within), t, GFP);
            assert_eq!(with.unwrap_err(), without.unwrap_err(), "{pages} {align} {t}");
        }
    });
}
