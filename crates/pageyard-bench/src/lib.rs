//! What is measured ([`patterns`]) and who takes part ([`contestants`]).
//!
//! Two programs use it: the bench `compare` times all contestants in one run, and the binary
//! `instructions` runs one pattern of one contestant under callgrind for `scripts/instructions.sh`.
//! The pages that are handed out are never touched: what is measured is the allocators alone.

pub mod contestants;
pub mod patterns;
pub mod safety;

use std::cell::Cell;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// The CPU that this thread stands for; 0 at first. All contestants that ask get it from here.
#[inline(always)]
pub fn cpu() -> u32 {
    CPU.get()
}

/// This thread stands for that CPU from now on.
pub fn set_cpu(cpu: u32) {
    CPU.set(cpu);
}
