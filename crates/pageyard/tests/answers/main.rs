//! The core's answers, call by call. A program apart from `all`, which takes minutes to build: mutants are tried again
//! with these tests alone.

mod actor;
#[path = "../all/common/mod.rs"]
mod common;
mod compaction;
mod pinned;
mod requests;
mod scenario;
