//! The traits of `x86_64`: page tables in memory of a yard, walked by that crate's own mapper.

use std::collections::BTreeSet;
use std::ptr;

use pageyard::{Bare, Gfp, Order, Yard, ZoneKind};
use pageyard_adapters::Frames;
use x86_64::VirtAddr;
use x86_64::structures::paging::mapper::CleanUp;
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageTable, PageTableFlags,
    PhysFrame, Size1GiB, Size2MiB, Size4KiB, Translate,
};

use crate::physical;

type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
const BASE: u64 = 1 << 32;
const BYTES: usize = 32 << 20;

fn yard() -> Y {
    Yard::from_memory_map(std::slice::from_ref(&(BASE..BASE + BYTES as u64)), &[], 1, ()).unwrap()
}

fn free_pages(yard: &Y) -> u64 {
    yard.drain_all(None);
    yard.validate().unwrap();
    yard.zone_info(ZoneKind::Normal).unwrap().free_exact
}

#[test]
fn page_tables_are_built_from_frames_and_torn_down() {
    let (yard, offset) = (yard(), physical(BASE, BYTES));
    let all = free_pages(&yard);
    let mut frames = Frames::new(&yard, Gfp::KERNEL);
    let at = |frame: PhysFrame| -> *mut PageTable {
        let address = offset.wrapping_add(frame.start_address().as_u64() as usize);
        ptr::with_exposed_provenance_mut(address)
    };
    let top: PhysFrame = frames.allocate_frame().unwrap();
    // SAFETY: this test owns the frame, which is in mapped memory.
    let table = unsafe {
        at(top).write(PageTable::new());
        &mut *at(top)
    };
    // SAFETY: all frames of the yard are mapped at this offset.
    let mut mapper = unsafe { OffsetPageTable::new(table, VirtAddr::new(offset as u64)) };
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    // Spread over many tables: pages 16 MiB and 512 GiB apart.
    let pages: Vec<Page<Size4KiB>> = (0..600u64)
        .map(|n| (n % 3) << 39 | n << 24 | (n % 7) << 12)
        .map(|address| Page::containing_address(VirtAddr::new(address)))
        .collect();
    let mut owned = BTreeSet::new();
    for &page in &pages {
        let frame = frames.allocate_frame().unwrap();
        assert!(owned.insert(frame), "{frame:?} has two owners");
        // SAFETY: this test owns the frame, which is in mapped memory. A second owner's table would
        // be overwritten.
        unsafe { at(frame).cast::<[u64; 512]>().write([!0; 512]) };
        // SAFETY: no CPU uses these tables.
        unsafe { mapper.map_to(page, frame, flags, &mut frames) }.unwrap().ignore();
    }
    for &page in &pages {
        let frame = mapper.translate_page(page).unwrap();
        assert!(owned.contains(&frame));
        assert_eq!(mapper.translate_addr(page.start_address()), Some(frame.start_address()));
    }
    assert!(all - free_pages(&yard) > 600 * 2, "a table for nearly every page");
    for page in pages {
        let (frame, flush) = mapper.unmap(page).unwrap();
        flush.ignore();
        assert!(owned.remove(&frame));
        // SAFETY: nothing uses the frame any more.
        unsafe { frames.deallocate_frame(frame) };
    }
    // SAFETY: no CPU uses these tables.
    unsafe {
        mapper.clean_up(&mut frames);
        frames.deallocate_frame(top);
    }
    assert_eq!((free_pages(&yard), frames.refused()), (all, 0));
}

#[test]
fn large_frames_are_aligned_and_a_wrong_free_is_counted() {
    let yard = yard();
    let all = free_pages(&yard);
    let mut frames = Frames::new(&yard, Gfp::KERNEL);
    let large: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
    assert!(large.start_address().is_aligned(2u64 << 20));
    assert_eq!(free_pages(&yard), all - 512);
    assert_eq!(FrameAllocator::<Size1GiB>::allocate_frame(&mut frames), None);
    let inside = PhysFrame::<Size4KiB>::containing_address(large.start_address());
    // SAFETY: nothing uses the frames; the second and the third free are refused.
    unsafe {
        frames.deallocate_frame(inside);
        frames.deallocate_frame(large);
        frames.deallocate_frame(large);
    }
    assert_eq!((free_pages(&yard), frames.refused()), (all, 2));
    // Allocate every frame.
    while FrameAllocator::<Size2MiB>::allocate_frame(&mut frames).is_some() {}
    while yard.alloc(Order::ZERO, Gfp::NOWAIT).is_ok() {}
    assert_eq!(FrameAllocator::<Size4KiB>::allocate_frame(&mut frames), None);
}
