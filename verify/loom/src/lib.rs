//! Runs pageyard's small protocols under every interleaving and every reordering that Rust's memory
//! model allows, as far as loom models it.
//!
//! The product's own files are compiled again here, with loom's types in place of `crate::sync`. No
//! code is copied, and the product does not depend on loom.
//!
//! Lock-free protocols are in files of their own and run unchanged ([`models`]). The core's
//! protocols under locks run in the whole core ([`yard`]). The core creates its atomics in
//! constants, so `atomics` lets them be plain values until threads start.
//!
//! Each `models` function runs in `loom::model`. With [`Planted`], it contains a bug that loom must
//! find.
#![allow(dead_code, unreachable_pub)] // the files are written for other crates
#![allow(unsafe_code)] // in those files

#[path = "../../../crates/pageyard/src/base/busy.rs"]
mod busy;
#[path = "../../../crates/pageyard/src/base/near_mark.rs"]
mod near_mark;
#[path = "../../../crates/pageyard/src/base/wakeups.rs"]
mod wakeups;

#[path = "../../../crates/pageyard-host/src/handshake.rs"]
mod handshake;
#[path = "../../../crates/pageyard-host/src/magazine.rs"]
mod magazine;
#[path = "../../../crates/pageyard-host/src/roster.rs"]
mod roster;
#[path = "../../../crates/pageyard-host/src/seqlock.rs"]
mod seqlock;
#[path = "../../../crates/pageyard-host/src/wake_flag.rs"]
mod wake_flag;

/// The modules that the core's files import from `crate::base`.
mod base {
    pub(crate) use crate::sync;

    pub(crate) mod units {
        pub(crate) use pageyard::{Order, ZoneKind};
    }
}

pub mod models;
pub mod packed;
mod sync;
pub mod yard;

pub use models::Planted;
