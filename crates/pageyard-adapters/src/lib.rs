//! [Pageyard](pageyard) behind what other crates for kernels define. Each feature is one crate's:
//!
//! | feature | from | gives |
//! |---|---|---|
//! | `x86_64` | `x86_64` | `Frames`: `FrameAllocator` and `FrameDeallocator` of a yard |
//! | `bootloader` | `bootloader_api` | `bootloader::usable` |
//! | `multiboot2` | `multiboot2` | `multiboot2::usable`, `multiboot2::acpi` |
//! | `limine` | `limine` | `limine::usable`, `limine::reclaimable` |
//! | `uefi` | `uefi-raw`, which `uefi` re-exports | `uefi::usable`, `uefi::reclaimable` |
//! | `heap` | `talc` | `KernelHeap`: a `GlobalAlloc` of a yard's pages |
//!
//! None is on by default, and none needs a heap. Memory maps become iterators over ranges of physical
//! addresses; [`collect`] writes them to the slices that `pageyard_carve::MemoryMap` takes.
//!
//! ```
//! use pageyard_adapters::collect;
//!
//! let mut room = [const { 0..0 }; 4];
//! let ranges = collect([0..0x9_f000, 0x10_0000..0x20_0000, 0x20_0000..0x30_0000].into_iter(), &mut room)?;
//! assert_eq!(ranges, [0..0x9_f000, 0x10_0000..0x30_0000]);
//! # Ok::<(), pageyard_adapters::TooManyRanges>(())
//! ```

#![no_std]
#![allow(unsafe_code)] // traits that are unsafe to implement
#![deny(unsafe_op_in_unsafe_fn)]

use core::fmt;
use core::ops::Range;

/// Compiles the examples of docs/adapters.md.
#[cfg(all(doctest, feature = "bootloader", feature = "heap", feature = "x86_64"))]
#[doc = include_str!("../../../docs/adapters.md")]
struct Adapters;

#[cfg(feature = "x86_64")]
mod frames;
#[cfg(feature = "heap")]
mod heap;

#[cfg(feature = "bootloader")]
pub mod bootloader;
#[cfg(feature = "limine")]
pub mod limine;
#[cfg(feature = "multiboot2")]
pub mod multiboot2;
#[cfg(feature = "uefi")]
pub mod uefi;

#[cfg(feature = "x86_64")]
pub use frames::Frames;
#[cfg(feature = "heap")]
pub use heap::{DirectMapped, KernelHeap, PageAlloc, Pages};

/// A memory map has more ranges than there is room for.
///
/// ```
/// let mut room = [const { 0..0 }; 1];
/// let two = [0..1, 4..5].into_iter();
/// assert_eq!(pageyard_adapters::collect(two, &mut room), Err(pageyard_adapters::TooManyRanges));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyRanges;

impl fmt::Display for TooManyRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory map has more ranges than there is room for")
    }
}

impl core::error::Error for TooManyRanges {}

/// Writes ranges to a slice. A range that adjoins the one before it extends it; empty ranges are left
/// out.
///
/// # Errors
/// [`TooManyRanges`] if the slice is too short.
pub fn collect(
    ranges: impl Iterator<Item = Range<u64>>,
    to: &mut [Range<u64>],
) -> Result<&[Range<u64>], TooManyRanges> {
    let mut len = 0usize;
    for range in ranges.filter(|r| r.start < r.end) {
        if let Some(last) = len.checked_sub(1).and_then(|last| to.get_mut(last))
            && last.end == range.start
        {
            last.end = range.end;
            continue;
        }
        *to.get_mut(len).ok_or(TooManyRanges)? = range;
        len += 1;
    }
    Ok(to.get(..len).unwrap_or(&[]))
}
