//! The C interface of the core: `pageyard_core.h`.
//!
//! For kernels, hypervisors and unikernels in C: memory for the maps, locks, the current CPU and the
//! clock come from the caller, by a table of functions. No heap, no libc, no thread-local storage.
//! `scripts/install-capi.sh` makes a static library of it that links without any of them. The host's
//! C interface, `pageyard-capi`, is built on the same types.
//!
//! Everything here is named as C sees it. The headers are made from these sources, so the comments
//! speak to authors of C: what, errors, threads, who owns what.

#![no_std]
#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // C's names
#![allow(clippy::missing_safety_doc)] // the header says what a caller has to ensure
#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
extern crate std;

pub mod create;
pub mod flags;
pub mod handle;
pub mod hooks;
pub mod layout;
pub mod lock;
pub mod maintain;
#[cfg(feature = "freestanding")]
mod panic;
pub mod request;
pub mod sized;
pub mod stats;
pub mod status;
pub mod text;
