//! Page-frame allocators from crates.io, as `pageyard-bench` makes them, each with the lock or the
//! caches that its documentation recommends. They return frame numbers and own no
//! memory, so patterns that write to pages leave them out.

use std::ptr::NonNull;

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use pageyard_bench::contestants::{Contestant, FRAMES};
use spin::mutex::SpinMutex;

use crate::pages::Pages;

/// An allocator that manages frames by number.
pub struct Frames<C>(pub C);

/// A block's number, never 0.
pub struct Number(NonNull<u8>);

// SAFETY: it is only a number.
unsafe impl Send for Number {}

impl<C: Contestant + 'static> Pages for Frames<C> {
    type Block = Number;

    #[inline(always)]
    fn take<const ORDER: u8>(&self) -> Number {
        let number = std::ptr::without_provenance_mut(self.0.alloc(ORDER) + 1);
        Number(NonNull::new(number).expect("one above a number"))
    }

    #[inline(always)]
    fn start(block: &Number) -> NonNull<u8> {
        block.0
    }

    #[inline(always)]
    fn give<const ORDER: u8>(&self, block: Number) {
        self.0.free(block.0.addr().get() - 1, ORDER);
    }
}

/// `bitmap-allocator`: a tree of bits under a spin lock, as kernels use it.
pub struct Bitmap(SpinMutex<Box<BitAlloc1M>>);

impl Contestant for Bitmap {
    const NAME: &'static str = "bitmap-allocator";

    fn new() -> Self {
        let mut bits = Box::new(BitAlloc1M::DEFAULT);
        bits.insert(0..FRAMES);
        Bitmap(SpinMutex::new(bits))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        let mut bits = self.0.lock();
        let found = match order {
            0 => bits.alloc(),
            _ => bits.alloc_contiguous(None, 1 << order, order.into()),
        };
        found.expect("free memory")
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        let mut bits = self.0.lock();
        let done = match order {
            0 => bits.dealloc(block),
            _ => bits.dealloc_contiguous(block, 1 << order),
        };
        assert!(done, "the block was allocated");
    }
}
