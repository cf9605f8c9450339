//! The free blocks of a recording by order and type, as the buddy system would merge its free
//! pages.

use pageyard::{BlockCounts, MigrateType};

use super::pages::{BLOCK, LARGEST, Pages, Use};

/// Free blocks of all zones.
#[derive(Debug)]
pub(super) struct FreeBlocks {
    zones: Vec<BlockCounts>,
    /// By pair of pageblocks: the free blocks that are counted in `zones`.
    pairs: Vec<Pair>,
}

/// The free blocks of two pageblocks, by order, and the types of the two.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    zone: usize,
    types: [u8; 2],
    blocks: [[u16; 11]; 2],
}

impl FreeBlocks {
    /// Counts the free blocks of all pages.
    pub(super) fn new(pages: &Pages) -> FreeBlocks {
        FreeBlocks {
            zones: vec![BlockCounts::default(); pages.zones()],
            pairs: vec![Pair::default(); pages.pairs()],
        }
    }

    /// Counts again where pages or types changed.
    pub(super) fn refresh(
        &mut self,
        changed: impl Iterator<Item = u32>,
        pages: &Pages,
        type_of: impl Fn(u32) -> MigrateType,
    ) {
        for number in changed {
            let old = self.pairs[number as usize];
            self.add(&old, -1);
            let new = count(number as usize, pages, &type_of);
            self.add(&new, 1);
            self.pairs[number as usize] = new;
        }
    }

    fn add(&mut self, pair: &Pair, sign: i64) {
        let Some(counts) = self.zones.get_mut(pair.zone) else { return };
        for (t, blocks) in pair.types.iter().zip(&pair.blocks) {
            for (order, n) in blocks.iter().enumerate() {
                let sum = &mut counts.0[order][usize::from(*t)];
                *sum = sum.saturating_add_signed(i64::from(*n) * sign);
            }
        }
    }

    /// Returns a zone's free blocks.
    pub(super) fn zone(&self, zone: usize) -> BlockCounts {
        self.zones[zone]
    }
}

/// Counts the free blocks of a pair.
fn count(number: usize, pages: &Pages, type_of: &impl Fn(u32) -> MigrateType) -> Pair {
    // The lowest pair may lack its first frames.
    let (skipped, frames) = pages.pair(number);
    let mut free = [false; LARGEST];
    for (free, page) in free[skipped..].iter_mut().zip(pages.within(frames.clone())) {
        *free = page.used == Use::Free;
    }
    let at = |half: usize| {
        let frame = frames.start + (half * BLOCK).saturating_sub(skipped);
        frame.min(frames.end.saturating_sub(1)) as u32
    };
    let types = [at(0), at(1)].map(|frame| type_of(frame) as u8);
    let mut blocks = [[0; 11]; 2];
    let mut i = 0;
    while i < LARGEST {
        if !free[i] {
            i += 1;
            continue;
        }
        let most = if types[0] == types[1] { 10 } else { 9 };
        let mut order = 0;
        while order < most
            && i.is_multiple_of(2 << order)
            && free[i + (1 << order)..i + (2 << order)].iter().all(|f| *f)
        {
            order += 1;
        }
        blocks[i / BLOCK][order] += 1;
        i += 1 << order;
    }
    let zone = pages.zone_of(frames.start as u32).unwrap_or(usize::MAX);
    Pair { zone, types, blocks }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{Machine, MachineOptions};
    use super::super::pages::Page;
    use super::super::plan::Origin;
    use super::super::start::Start;
    use super::*;

    #[test]
    fn counts_follow_pages_and_types() {
        let options =
            MachineOptions { memory: Some(8 << 20), cpus: Some(1), ..MachineOptions::default() };
        let machine = Machine::new(&Default::default(), &options, None, || Ok((0, 1))).unwrap();
        let mut pages = Pages::new(&machine, &Start::all_in_use(&machine), 0);
        let mut counts = FreeBlocks::new(&pages);
        let page = |used| Page { since: 0, origin: Origin::default(), used };
        let blocks = |counts: &FreeBlocks| {
            let of = counts.zone(0);
            let some = |(order, row): (usize, &[u64; 6])| {
                let row = row.iter().enumerate().filter(|(_, n)| **n > 0);
                row.map(move |(t, n)| (order, t, *n)).collect::<Vec<_>>()
            };
            of.0.iter().enumerate().flat_map(some).collect::<Vec<_>>()
        };
        let movable = |_: u32| MigrateType::Movable;
        // 1024 aligned frames of one type are one block; of two types, two.
        pages.set(1024, 10, page(Use::Free));
        counts.refresh(pages.take_changed(), &pages, movable);
        assert_eq!(blocks(&counts), [(10, 1, 1)]);
        pages.touch(1024);
        counts.refresh(pages.take_changed(), &pages, |frame| match frame {
            1536.. => MigrateType::Unmovable,
            _ => MigrateType::Movable,
        });
        assert_eq!(blocks(&counts), [(9, 0, 1), (9, 1, 1)]);
        // One page taken from the middle leaves all smaller orders.
        pages.touch(1024);
        pages.set(1025, 0, page(Use::Requested));
        counts.refresh(pages.take_changed(), &pages, movable);
        let mut want: Vec<_> = (0..10).map(|order| (order, 1, 1)).collect();
        assert_eq!(blocks(&counts), want);
        // Pages on lists are not free, and nothing is counted twice.
        pages.set(1025, 0, page(Use::Listed));
        counts.refresh(pages.take_changed(), &pages, movable);
        assert_eq!(blocks(&counts), want);
        pages.set(1025, 0, page(Use::Free));
        counts.refresh(pages.take_changed(), &pages, movable);
        want = vec![(10, 1, 1)];
        assert_eq!(blocks(&counts), want);
    }
}
