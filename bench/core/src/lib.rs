//! Benchmark patterns ([`patterns`]) and the allocators under comparison ([`contestants`]).
//!
//! Two programs use this crate: the bench `compare` times all contestants in one run, and the
//! binary `instructions` runs one pattern of one contestant under callgrind for
//! `scripts/instructions.sh`. Allocated pages are never touched, so the results cover only the
//! allocators.

pub mod compare;
pub mod contestants;
pub mod field;
pub mod packed;
pub mod patterns;
pub mod safety;

use std::cell::Cell;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Returns the CPU that this thread simulates; initially 0. All contestants read it here.
#[inline(always)]
pub fn cpu() -> u32 {
    CPU.get()
}

/// Sets the CPU that this thread simulates.
pub fn set_cpu(cpu: u32) {
    CPU.set(cpu);
}
