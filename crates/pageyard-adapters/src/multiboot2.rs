//! Memory maps of `multiboot2`.

use core::ops::Range;

use multiboot2::{MemoryArea, MemoryAreaType};

fn of(areas: &[MemoryArea], kind: MemoryAreaType) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
    let all = areas.iter().filter(move |a| a.typ() == kind);
    all.map(|a| a.start_address()..a.start_address().saturating_add(a.size()))
}

/// Iterates over the memory that the kernel may use: the areas of a `MemoryMapTag`. The kernel's image,
/// its modules and the boot information lie in it, and must be reserved.
///
/// ```
/// use multiboot2::{MemoryArea, MemoryAreaType};
/// use pageyard_adapters::multiboot2 as maps;
///
/// let areas = [
///     MemoryArea::new(0, 0x9_f000, MemoryAreaType::Available),
///     MemoryArea::new(0x7fe_0000, 0x1000, MemoryAreaType::AcpiAvailable),
/// ];
/// assert!(maps::usable(&areas).eq([0..0x9_f000]));
/// assert!(maps::acpi(&areas).eq([0x7fe_0000..0x7fe_1000]));
/// ```
pub fn usable(areas: &[MemoryArea]) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
    of(areas, MemoryAreaType::Available)
}

/// Iterates over ACPI's tables. Pass them as usable and as reserved, and release them once they have
/// been read.
pub fn acpi(areas: &[MemoryArea]) -> impl Iterator<Item = Range<u64>> + Clone + '_ {
    of(areas, MemoryAreaType::AcpiAvailable)
}
