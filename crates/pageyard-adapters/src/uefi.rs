//! Memory maps of UEFI, after `ExitBootServices`. The crate `uefi` re-exports the types.

use core::ops::Range;

use uefi_raw::table::boot::{MemoryDescriptor, MemoryType};

fn ranges<'m>(
    map: impl Iterator<Item = &'m MemoryDescriptor> + Clone,
    kinds: &'static [MemoryType],
) -> impl Iterator<Item = Range<u64>> + Clone {
    map.filter(|d| kinds.contains(&d.ty)).map(|d| {
        let bytes = d.page_count.saturating_mul(pageyard::PAGE_SIZE);
        d.phys_start..d.phys_start.saturating_add(bytes)
    })
}

/// Iterates over the memory that the kernel may use: free memory, and that of the boot services, which
/// have ended. The stack and the page tables of the loader may lie in the latter; reserve them.
///
/// ```
/// use pageyard_adapters::uefi as maps;
/// use uefi_raw::table::boot::{MemoryAttribute, MemoryDescriptor, MemoryType};
///
/// // `MemoryMap::entries` of the crate `uefi`.
/// let at = |ty, phys_start, page_count| MemoryDescriptor {
///     ty, phys_start, page_count, padding: 0, virt_start: 0, att: MemoryAttribute::empty(),
/// };
/// let map = [
///     at(MemoryType::BOOT_SERVICES_DATA, 0, 1),
///     at(MemoryType::RESERVED, 0x1000, 1),
///     at(MemoryType::LOADER_DATA, 0x2000, 2),
///     at(MemoryType::CONVENTIONAL, 0x10_0000, 256),
/// ];
/// assert!(maps::usable(map.iter()).eq([0..0x1000, 0x10_0000..0x20_0000]));
/// assert!(maps::reclaimable(map.iter()).eq([0x2000..0x4000]));
/// ```
pub fn usable<'m>(
    map: impl Iterator<Item = &'m MemoryDescriptor> + Clone,
) -> impl Iterator<Item = Range<u64>> + Clone {
    const KINDS: &[MemoryType] =
        &[MemoryType::CONVENTIONAL, MemoryType::BOOT_SERVICES_CODE, MemoryType::BOOT_SERVICES_DATA];
    ranges(map, KINDS)
}

/// Iterates over memory of the loader, which may hold the kernel's own image, and ACPI's tables. Pass it
/// as usable and as reserved, and release the parts that are not needed any more.
pub fn reclaimable<'m>(
    map: impl Iterator<Item = &'m MemoryDescriptor> + Clone,
) -> impl Iterator<Item = Range<u64>> + Clone {
    const KINDS: &[MemoryType] =
        &[MemoryType::LOADER_CODE, MemoryType::LOADER_DATA, MemoryType::ACPI_RECLAIM];
    ranges(map, KINDS)
}
