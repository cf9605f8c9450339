//! The core's answers, call by call. This program is separate from `all`, which takes minutes to
//! build: mutants are retried with these tests alone.

mod actor;
#[path = "../all/common/mod.rs"]
mod common;
mod common_case;
mod compaction;
mod packed_compaction;
mod pinned;
mod requests;
mod scenario;
