//! Memory maps of `limine`.

use core::ops::Range;

use limine::memory_map::{Entry, EntryType};

fn ranges<'m>(
    entries: &'m [&'m Entry],
    kinds: &'static [EntryType],
) -> impl Iterator<Item = Range<u64>> + Clone + 'm {
    let all = entries.iter().filter(|e| kinds.contains(&e.entry_type));
    all.map(|e| e.base..e.base.saturating_add(e.length))
}

/// Iterates over the memory that the kernel may use: the entries of a `MemoryMapResponse`.
///
/// ```
/// use limine::memory_map::{Entry, EntryType};
/// use pageyard_adapters::limine as maps;
///
/// let entries = [
///     &Entry { base: 0x1000, length: 0x9_e000, entry_type: EntryType::USABLE },
///     &Entry { base: 0x10_0000, length: 0x1000, entry_type: EntryType::BOOTLOADER_RECLAIMABLE },
/// ];
/// assert!(maps::usable(&entries).eq([0x1000..0x9_f000]));
/// assert!(maps::reclaimable(&entries).eq([0x10_0000..0x10_1000]));
/// ```
pub fn usable<'m>(entries: &'m [&'m Entry]) -> impl Iterator<Item = Range<u64>> + Clone + 'm {
    ranges(entries, &[EntryType::USABLE])
}

/// Iterates over memory of the boot loader and ACPI's tables. Pass it as usable and as reserved, and
/// release it once no response is used any more, and the kernel runs on its own stack and page tables.
pub fn reclaimable<'m>(entries: &'m [&'m Entry]) -> impl Iterator<Item = Range<u64>> + Clone + 'm {
    ranges(entries, &[EntryType::BOOTLOADER_RECLAIMABLE, EntryType::ACPI_RECLAIMABLE])
}
