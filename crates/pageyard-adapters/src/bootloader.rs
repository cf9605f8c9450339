//! Memory maps of `bootloader_api`.

use core::ops::Range;

use bootloader_api::info::{MemoryRegion, MemoryRegionKind};

/// Iterates over the memory that the kernel may use.
///
/// ```
/// use bootloader_api::info::{MemoryRegion, MemoryRegionKind::{Bootloader, Usable}};
/// use pageyard_adapters::bootloader;
///
/// // The field `memory_regions` of a kernel's `BootInfo`.
/// let regions = [
///     MemoryRegion { start: 0, end: 0x1000, kind: Bootloader },
///     MemoryRegion { start: 0x1000, end: 0x9_f000, kind: Usable },
/// ];
/// assert!(bootloader::usable(&regions).eq([0x1000..0x9_f000]));
/// ```
pub fn usable(regions: &[MemoryRegion]) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
    regions.iter().filter(|r| r.kind == MemoryRegionKind::Usable).map(|r| r.start..r.end)
}
