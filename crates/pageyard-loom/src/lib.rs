//! The small protocols of pageyard under every interleaving and every reordering that Rust's memory
//! model allows, as far as loom follows it.
//!
//! The product's own files are compiled here once more: what they take from `crate::sync` is loom's.
//! Nothing is copied, and the product knows nothing of it.
//!
//! What has no lock stands in files of its own, and runs as it is ([`models`]). The core's protocols
//! under locks run in the whole core ([`yard`]), whose atomics are made in constants:
//! `atomics` lets them be plain values until threads begin.
//!
//! Each `models` function runs in `loom::model`; with [`Planted`], it has a bug that loom must find.
#![allow(dead_code, unreachable_pub)] // files made for other crates
#![allow(unsafe_code)] // of theirs

#[path = "../../pageyard/src/base/busy.rs"]
mod busy;
#[path = "../../pageyard/src/base/wakeups.rs"]
mod wakeups;

#[path = "../../pageyard-host/src/handshake.rs"]
mod handshake;
#[path = "../../pageyard-host/src/magazine.rs"]
mod magazine;
#[path = "../../pageyard-host/src/roster.rs"]
mod roster;
#[path = "../../pageyard-host/src/seqlock.rs"]
mod seqlock;
#[path = "../../pageyard-host/src/wake_flag.rs"]
mod wake_flag;

/// What the core's files find in `crate::base`.
mod base {
    pub(crate) use crate::sync;

    pub(crate) mod units {
        pub(crate) use pageyard::{Order, ZoneKind};
    }
}

pub mod models;
mod sync;
pub mod yard;

pub use models::Planted;
