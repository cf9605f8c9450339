//! The C interface of the host runtime: `pageyard.h`. With it comes the core's, `pageyard_core.h`, from
//! `pageyard-capi-core`.
//!
//! The headers in `include/` are made from these sources, so the comments speak to authors of C.
//! `scripts/install-capi.sh` makes and installs the libraries; docs/capi.md says how to use them.

#![allow(unsafe_code)]
#![allow(non_camel_case_types)] // C's names
#![allow(clippy::missing_safety_doc)] // the header says what a caller has to ensure
#![deny(unsafe_op_in_unsafe_fn)]

pub mod handle;
pub mod last_error;
pub mod options;
pub mod request;
pub mod upkeep;
pub mod watch;

/// The core's interface, so that its functions are in the library too.
pub use pageyard_capi_core as core_level;
