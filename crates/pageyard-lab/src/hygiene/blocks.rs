//! Ownership of blocks. An owner holds a handle, because compaction may move the block.

use std::cell::RefCell;

use pageyard::{Order, Pfn, Relocation};

/// Handle of a block that the workload owns, independent of the block's current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(u32);

/// All blocks of the workload.
#[derive(Debug)]
pub(super) struct Blocks(RefCell<Table>);

#[derive(Debug)]
struct Table {
    base: Pfn,
    /// Positions and orders by handle.
    blocks: Vec<(Pfn, Order)>,
    vacant: Vec<Block>,
    /// By frame, from `base`: the block that begins at that frame.
    owners: Vec<Option<Block>>,
}

impl Blocks {
    /// Creates a table for `pages` frames from `base`.
    pub(super) fn new(base: Pfn, pages: u64) -> Blocks {
        let owners = vec![None; pages as usize];
        Blocks(RefCell::new(Table { base, blocks: Vec::new(), vacant: Vec::new(), owners }))
    }

    /// Registers an allocated block.
    pub(super) fn enter(&self, pfn: Pfn, order: Order) -> Block {
        let t = &mut *self.0.borrow_mut();
        let block = t.vacant.pop().unwrap_or(Block(t.blocks.len() as u32));
        match t.blocks.get_mut(block.0 as usize) {
            Some(place) => *place = (pfn, order),
            None => t.blocks.push((pfn, order)),
        }
        *t.owner(pfn) = Some(block);
        block
    }

    /// Returns the position of a block that is about to be freed, and invalidates its handle.
    pub(super) fn remove(&self, block: Block) -> (Pfn, Order) {
        let t = &mut *self.0.borrow_mut();
        let (pfn, order) = t.blocks[block.0 as usize];
        *t.owner(pfn) = None;
        t.vacant.push(block);
        (pfn, order)
    }

    /// Implements [`Reclaim::relocate`](pageyard::Reclaim::relocate).
    pub(super) fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let t = &mut *self.0.borrow_mut();
        let Some(block) = *t.owner(from) else { return Relocation::Refused };
        let place = &mut t.blocks[block.0 as usize];
        if *place != (from, order) {
            return Relocation::Refused;
        }
        *place = (to, order);
        *t.owner(from) = None;
        *t.owner(to) = Some(block);
        Relocation::Moved
    }
}

impl Table {
    fn owner(&mut self, pfn: Pfn) -> &mut Option<Block> {
        &mut self.owners[(pfn.0 - self.base.0) as usize]
    }
}
