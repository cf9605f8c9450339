//! The heap on pages of a yard.

use std::alloc::{GlobalAlloc, Layout};
use std::slice;

use pageyard::{Bare, Gfp, Order, Yard, ZoneKind};
use pageyard_adapters::{DirectMapped, KernelHeap, PageAlloc};

use crate::physical;

type Lock = spin::mutex::SpinMutex<()>;
type Y = Yard<'static, Bare<Lock, ()>>;
type Heap = KernelHeap<Lock, DirectMapped<Bare<Lock, ()>>>;

const BASE: u64 = 1 << 32;
const BYTES: usize = 64 << 20;

/// Defines a heap and its yard. The function that names the yard has no state, so each test has its
/// own static.
macro_rules! heap {
    () => {{
        static YARD: spin::Once<Y> = spin::Once::new();
        let offset = physical(BASE, BYTES);
        // SAFETY: the yard's memory is mapped there, and only this test uses it.
        let heap: Heap = KernelHeap::new(unsafe { DirectMapped::new(|| YARD.get(), offset) });
        let yard = || {
            let memory = [BASE..BASE + BYTES as u64];
            YARD.call_once(|| Yard::from_memory_map(&memory, &[], 1, ()).unwrap())
        };
        (heap, yard)
    }};
}

fn used(yard: &Y) -> u64 {
    yard.drain_all(None);
    yard.validate().unwrap();
    let zone = yard.zone_info(ZoneKind::Normal).unwrap();
    zone.managed - zone.free_exact
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// Each block is filled by its owner, and still is when it is freed.
#[test]
fn threads_own_what_they_allocate() {
    let (heap, yard) = heap!();
    let yard = yard();
    std::thread::scope(|s| {
        for me in 1..=3u8 {
            let heap = &heap;
            s.spawn(move || {
                let mut random = u64::from(me).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mut held: Vec<(*mut u8, Layout, u8)> = Vec::new();
                for round in 0..4000u32 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Sizes up to 128 KiB, small ones more often; every alignment up to 8 KiB.
                    let size = 1 + (random >> 8) as usize % (1 << ((random >> 32) % 18));
                    let layout = layout(size, 1 << ((random >> 40) % 14));
                    let tag = (round as u8).wrapping_mul(4) | me;
                    // SAFETY: the size is not 0; the block is written within its size.
                    unsafe {
                        let block = heap.alloc(layout);
                        assert!(!block.is_null() && block.addr().is_multiple_of(layout.align()));
                        block.write_bytes(tag, size);
                        held.push((block, layout, tag));
                    }
                    if held.len() > 100 || round > 3900 {
                        let at = (random >> 20) as usize % held.len();
                        free(heap, held.swap_remove(at));
                    }
                }
                held.into_iter().for_each(|block| free(heap, block));
            });
        }
    });
    assert!(used(yard) <= 16, "{} pages are left: more than one chunk", used(yard));
}

fn free(heap: &Heap, (block, layout, tag): (*mut u8, Layout, u8)) {
    // SAFETY: the caller owns the block, which has this layout.
    unsafe {
        let bytes = std::slice::from_raw_parts(block, layout.size());
        assert!(bytes.iter().all(|&b| b == tag), "{block:?} has two owners");
        heap.dealloc(block, layout);
    }
}

#[test]
fn empty_chunks_return_to_the_yard() {
    let (heap, yard) = heap!();
    let yard = yard();
    // SAFETY: the layout has a size, and each block is freed once.
    unsafe {
        let blocks: Vec<_> = (0..5000).map(|_| heap.alloc(layout(500, 8))).collect();
        assert!(used(yard) > 5000 * 500 / 4096, "{} pages", used(yard));
        blocks.into_iter().for_each(|block| heap.dealloc(block, layout(500, 8)));
        assert!(used(yard) <= 16, "{} pages are left: more than one chunk", used(yard));
        // Large blocks come from the yard: rounded up to a block, and freed at once.
        let before = used(yard);
        for (size, pages) in [(16 << 10 | 1, 8), (1 << 20, 256), (4 << 20, 1024)] {
            let block = heap.alloc(layout(size, 4096));
            assert_eq!(used(yard), before + pages, "{size} bytes");
            heap.dealloc(block, layout(size, 4096));
            assert_eq!(used(yard), before);
        }
        assert!(heap.alloc(layout((4 << 20) + 1, 8)).is_null(), "above the largest block");
        for align in [32 << 10, 1 << 20, 4 << 20] {
            let blocks = [heap.alloc(layout(8, align)), heap.alloc(layout(8, align))];
            assert!(blocks.iter().all(|b| !b.is_null() && b.addr().is_multiple_of(align)));
            blocks.into_iter().for_each(|block| heap.dealloc(block, layout(8, align)));
        }
        assert_eq!(used(yard), before);
    }
}

#[test]
fn requests_fail_without_a_yard_and_without_memory() {
    let (heap, yard) = heap!();
    // SAFETY: the layouts have sizes.
    unsafe {
        assert!(heap.alloc(layout(8, 8)).is_null() && heap.alloc(layout(1 << 20, 8)).is_null());
        let yard = yard();
        let block = heap.alloc(layout(8, 8));
        assert!(!block.is_null(), "there is a yard now");
        while yard.alloc(Order::ZERO, Gfp::NOWAIT).is_ok() {}
        assert!(heap.alloc(layout(12 << 10, 8)).is_null() || used(yard) > 0);
        let full = (0..10).find(|_| heap.alloc(layout(12 << 10, 8)).is_null());
        assert!(full.is_some(), "the chunk is used up, and there is no memory for another");
        heap.dealloc(block, layout(8, 8));
    }
}

/// The block at address 0 serves no request, but others do, and it is not lost.
#[test]
fn a_block_at_address_0_is_left_out() {
    static YARD: spin::Once<Y> = spin::Once::new();
    let memory = BASE..BASE + BYTES as u64;
    let yard =
        YARD.call_once(|| Yard::from_memory_map(slice::from_ref(&memory), &[], 1, ()).unwrap());
    let direct_map = 0usize.wrapping_sub(BASE as usize);
    // SAFETY: nothing is mapped there, and this test accesses no block.
    let pages: PageAlloc<DirectMapped<Bare<Lock, ()>>> =
        PageAlloc::new(unsafe { DirectMapped::new(|| YARD.get(), direct_map) });
    for order in [10, 4, 0] {
        let order = Order::new(order).unwrap();
        let own: Vec<_> = std::iter::from_fn(|| yard.alloc(order, Gfp::NOWAIT).ok()).collect();
        own.iter().for_each(|&pfn| yard.free(pfn, order).unwrap());
        let layout = layout(order.pages() as usize * 4096, 4096);
        // SAFETY: the layout has a size, and each block is freed once.
        unsafe {
            let next = || Some(pages.alloc(layout)).filter(|block| !block.is_null());
            let blocks: Vec<_> = std::iter::from_fn(next).collect();
            assert!(blocks.len() + 1 >= own.len(), "{} of {}", blocks.len(), own.len());
            blocks.into_iter().for_each(|block| pages.dealloc(block, layout));
        }
        assert_eq!(used(yard), 0, "order {order}");
    }
}
