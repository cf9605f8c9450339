//! The memory maps of four boot loaders describe one machine, and all give the same allocator.

use std::ops::Range;

use ::limine::memory_map::{Entry, EntryType};
use ::multiboot2::{MemoryArea, MemoryAreaType};
use bootloader_api::info::{MemoryRegion, MemoryRegionKind, MemoryRegions};
use pageyard_adapters::{TooManyRanges, bootloader, collect, limine, multiboot2, uefi};
use pageyard_carve::FreeMemory;
use uefi_raw::table::boot::{MemoryAttribute, MemoryDescriptor, MemoryType};

/// Usable memory with a hole, in two adjoining parts; memory to be reclaimed; memory in use.
const USABLE: [Range<u64>; 3] = [0x1000..0x9_f000, 0x10_0000..0x50_0000, 0x50_0000..0x80_0000];
const LATER: Range<u64> = 0x80_0000..0x80_4000;
const USED: Range<u64> = 0xf_0000..0x10_0000;

fn merged() -> [Range<u64>; 2] {
    [0x1000..0x9_f000, 0x10_0000..0x80_0000]
}

fn check(usable: impl Iterator<Item = Range<u64>> + Clone) {
    assert!(usable.clone().eq(USABLE));
    let mut room = [const { 0..0 }; 2];
    assert_eq!(collect(usable.clone(), &mut room), Ok(&merged()[..]));
    assert_eq!(collect(usable.clone(), &mut room[..1]), Err(TooManyRanges));
    // Maps without an array pass the iterator itself.
    let memory = FreeMemory::new(usable, [LATER].into_iter());
    assert_eq!(memory.runs().count(), 2);
}

#[test]
fn bootloader_api_regions() {
    let region = |r: Range<u64>, kind| MemoryRegion { start: r.start, end: r.end, kind };
    let mut all = USABLE.map(|r| region(r, MemoryRegionKind::Usable)).to_vec();
    all.insert(1, region(USED, MemoryRegionKind::UnknownBios(2)));
    all.push(region(LATER, MemoryRegionKind::Bootloader));
    let regions: MemoryRegions = all.leak().into();
    check(bootloader::usable(&regions));
}

#[test]
fn multiboot2_areas() {
    let area = |r: Range<u64>, kind| MemoryArea::new(r.start, r.end - r.start, kind);
    let mut all = USABLE.map(|r| area(r, MemoryAreaType::Available)).to_vec();
    all.insert(1, area(USED, MemoryAreaType::Reserved));
    all.push(area(LATER, MemoryAreaType::AcpiAvailable));
    check(multiboot2::usable(&all));
    assert!(multiboot2::acpi(&all).eq([LATER]));
    let beyond = [MemoryArea::new(u64::MAX - 1, 9, MemoryAreaType::Available)];
    assert!(multiboot2::usable(&beyond).eq(std::iter::once(u64::MAX - 1..u64::MAX)));
}

#[test]
fn limine_entries() {
    let entry =
        |r: Range<u64>, entry_type| Entry { base: r.start, length: r.end - r.start, entry_type };
    let mut all = USABLE.map(|r| entry(r, EntryType::USABLE)).to_vec();
    all.insert(1, entry(USED, EntryType::EXECUTABLE_AND_MODULES));
    all.push(entry(LATER, EntryType::BOOTLOADER_RECLAIMABLE));
    let entries: Vec<&Entry> = all.iter().collect();
    check(limine::usable(&entries));
    assert!(limine::reclaimable(&entries).eq([LATER]));
}

#[test]
fn uefi_descriptors() {
    let at = |r: Range<u64>, ty| MemoryDescriptor {
        ty,
        phys_start: r.start,
        page_count: (r.end - r.start) / 4096,
        padding: 0,
        virt_start: 0,
        att: MemoryAttribute::empty(),
    };
    let [low, loader, free] = USABLE;
    let map = [
        at(low, MemoryType::BOOT_SERVICES_CODE),
        at(USED, MemoryType::RUNTIME_SERVICES_DATA),
        at(loader, MemoryType::BOOT_SERVICES_DATA),
        at(free, MemoryType::CONVENTIONAL),
        at(LATER, MemoryType::LOADER_CODE),
    ];
    check(uefi::usable(map.iter()));
    assert!(uefi::reclaimable(map.iter()).eq([LATER]));
}
