//! The C interface of the core: `pageyard_core.h`.
//!
//! For kernels, hypervisors and unikernels written in C. The caller supplies a table of functions
//! for locks, the current CPU and the clock, and memory for the maps. The library uses no heap, no
//! libc and no thread-local storage. `scripts/install-capi.sh` builds a static library that links
//! without them. The host's C interface, `pageyard-capi`, uses the same types.
//!
//! Items have their C names. The headers are generated from these sources, so the doc comments
//! address C programmers: purpose, errors, threads, ownership.

#![no_std]
#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // C names
#![allow(clippy::missing_safety_doc)] // the header states what callers must ensure
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
extern crate std;

pub mod balloon;
mod cpu;
pub mod create;
pub mod engine;
pub mod events;
pub mod flags;
pub mod handle;
pub mod hooked;
pub mod hooks;
pub mod kernel;
pub mod knobs;
pub mod layout;
pub mod lock;
pub mod maintain;
pub mod nodes;
pub mod nowait;
pub mod page;
#[cfg(feature = "freestanding")]
mod panic;
pub mod place;
pub mod platform;
pub mod request;
pub mod shootdown;
pub mod sized;
pub mod stats;
pub mod status;
pub mod text;
