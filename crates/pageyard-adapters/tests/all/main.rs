//! Tests every adapter against the published crate that defines its trait or memory map.
//!
//!     cargo test -p pageyard-adapters --all-features

#![allow(unsafe_code)]

#[cfg(feature = "heap")]
mod heap;
#[cfg(all(feature = "bootloader", feature = "limine", feature = "multiboot2", feature = "uefi"))]
mod maps;
#[cfg(feature = "x86_64")]
mod page_tables;

/// Memory of this program as physical memory from `base` up. Returns the address of physical
/// address 0.
#[cfg(any(feature = "x86_64", feature = "heap"))]
fn physical(base: u64, bytes: usize) -> usize {
    const BLOCK: usize = 4 << 20;
    let memory = vec![0xa5u8; bytes + BLOCK].leak();
    let start = memory.as_mut_ptr().expose_provenance().next_multiple_of(BLOCK);
    start.wrapping_sub(base as usize)
}
