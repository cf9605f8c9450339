//! The packed engine under the yard: what the exact engine's tests check by its lists, here by
//! counters and by `validate`.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use pageyard::policy::Packed;
use pageyard::*;

type Lock = spin::mutex::SpinMutex<()>;
type Y = Yard<'static, Bare<Lock, (), Packed>>;

const MIB: u64 = 1 << 20;

fn yard(mib: u64) -> Y {
    Y::from_memory_map(&[1 << 32..(1 << 32) + mib * MIB], &[], 2, ()).unwrap()
}

fn info(yard: &Y) -> ZoneInfo {
    yard.zone_info(ZoneKind::Normal).unwrap()
}

#[test]
fn all_memory_is_free_again() {
    let yard = yard(64);
    let before = info(&yard);
    assert_eq!((before.managed, before.free_exact), (64 << 8, 64 << 8));
    let mut held = Vec::new();
    for n in 0..3000u32 {
        let order = Order::new([0, 0, 0, 1, 2, 3, 4, 6, 9, 10][n as usize % 10]).unwrap();
        let gfp =
            [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL | Gfp::RECLAIMABLE][n as usize % 3];
        if let Ok(pfn) = yard.alloc(order, gfp | Gfp::NOWARN) {
            assert_eq!(pfn.0 % u64::from(order.pages()), 0);
            held.push((pfn, order));
        }
        yard.validate().unwrap();
        if n % 3 == 0 {
            let (pfn, order) = held.swap_remove(n as usize * 7 % held.len());
            yard.free(pfn, order).unwrap();
            assert_eq!(yard.free(pfn, order), Err(FreeError::DoubleFree));
        }
    }
    let pages: u64 = held.iter().map(|(_, order)| u64::from(order.pages())).sum();
    yard.drain_all(None);
    assert_eq!(info(&yard).free_exact, before.managed - pages);
    yard.free_batch(&held).unwrap();
    yard.drain_all(None);
    yard.validate().unwrap();
    let after = info(&yard);
    assert_eq!((after.free_exact, after.cached), (before.managed, 0));
    assert_eq!(yard.free_blocks(ZoneKind::Normal).unwrap()[10], 16);
    let totals = yard.zone_totals(ZoneKind::Normal).unwrap();
    assert_eq!(totals.alloc_pages, totals.free_pages);
}

/// Moves whatever it is asked to.
#[derive(Default)]
struct Mover {
    moves: std::cell::RefCell<Vec<(Pfn, Pfn)>>,
}

impl Platform for Mover {}
impl Observer for Mover {}
impl Defences for Mover {}
impl Reclaim for Mover {
    fn relocate(&self, from: Pfn, to: Pfn, _: Order) -> Relocation {
        self.moves.borrow_mut().push((from, to));
        Relocation::Moved
    }
}

#[test]
fn compaction_empties_sparse_pageblocks() {
    type Y = Yard<'static, Hooked<Lock, Mover, Packed>>;
    let usable = [1 << 32..(1 << 32) + 64 * MIB];
    let yard = Y::from_memory_map(&usable, &[], 1, Mover::default()).unwrap();
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN;
    let mut pages: Vec<Pfn> = (0..12_000).map(|_| yard.alloc(Order::ZERO, gfp).unwrap()).collect();
    // One page in eight stays, in every pageblock.
    pages.sort_unstable();
    let (mut left, go): (Vec<Pfn>, Vec<_>) = pages.iter().partition(|pfn| pfn.0 % 8 == 3);
    go.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    let huge = |yard: &Y| {
        let blocks = yard.free_blocks(ZoneKind::Normal).unwrap();
        blocks[9] + 2 * blocks[10]
    };
    let before = huge(&yard);
    yard.compact_all();
    yard.validate().unwrap();
    let moves = yard.hooks().moves.take();
    assert_eq!(yard.compact_stats().moved, moves.len() as u64);
    for (from, to) in moves {
        let place = left.iter_mut().find(|pfn| **pfn == from).expect("a page in use moved");
        *place = to;
    }
    let used = left.len() as u64;
    assert!(huge(&yard) > before + 15, "{} of {before} and more", huge(&yard));
    left.iter().for_each(|&pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.drain_all(None);
    yard.validate().unwrap();
    let free = yard.zone_info(ZoneKind::Normal).unwrap().free_exact;
    assert_eq!((free, used), (64 << 8, 1500));
}
