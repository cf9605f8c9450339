//! The C interface of the host runtime: `pageyard.h`. The library also contains the core's
//! interface, `pageyard_core.h`, from `pageyard-capi-core`.
//!
//! The headers in `include/` are generated from these sources, so the doc comments address C
//! programmers. `scripts/install-capi.sh` builds and installs the libraries; docs/capi.md describes
//! their use.

#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // C names
#![allow(clippy::missing_safety_doc)] // the header states what callers must ensure
#![deny(unsafe_op_in_unsafe_fn)]

mod argument;
mod gate;
pub mod handle;
mod kept;
pub mod last_error;
pub mod memory;
pub mod options;
pub mod request;
pub mod upkeep;
pub mod watch;

/// The core's interface, re-exported so that the library contains its functions.
pub use pageyard_capi_core as core_level;
