//! What was done.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard_host::Status;
use serde::Serialize;

use crate::held::Found;

/// How much was done, so far or in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Blocks of every order that were handed out one by one.
    pub blocks: u64,
    /// Single pages that were handed out in bulk.
    pub bulk_pages: u64,
    /// Blocks that may be moved.
    pub movables: u64,
    /// Contiguous ranges.
    pub ranges: u64,
    /// Requests that were refused: there was not so much.
    pub refused: u64,
    /// Pages handed out in all.
    pub pages: u64,
    /// Looks at pages that somebody holds: the patterns were theirs.
    pub checked: u64,
    /// Of the pages handed out, those that were to be zero, and were.
    pub zeros: u64,
    /// Things given back by another thread than the one that got them.
    pub passed_on: u64,
    /// Threads that ended with pages of their own kept ready.
    pub threads_ended: u64,
    /// Times that everybody stood still, and all of the allocator was checked.
    pub validated: u64,
    /// Settings changed.
    pub settings: u64,
    /// Limits changed.
    pub limits: u64,
    /// Sections of memory that went and came back, and that were in use and stayed.
    pub sections: u64,
    /// See `sections`.
    pub sections_kept: u64,
    /// Pages whose memory became faulty for a while.
    pub faulty: u64,
    /// Compactions of everything.
    pub compactions: u64,
    /// Blocks that compaction moved.
    pub moved: u64,
    /// Pages given up by a cache.
    pub shrunk: u64,
    /// Pages given back to the system.
    pub given_back: u64,
    /// Of these, fetched again.
    pub fetched: u64,
}

/// How it went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where random choices started.
    pub seed: u64,
    /// Threads that allocated.
    pub threads: usize,
    /// Bytes of memory.
    pub size: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was done.
    pub counts: Counts,
    /// What was wrong; it ended there.
    pub found: Option<Found>,
}

macro_rules! tallies {
    ($($name:ident)*) => {
        /// [`Counts`] that threads add to.
        #[derive(Debug, Default)]
        pub(crate) struct Tally { $(pub(crate) $name: AtomicU64),* }

        impl Tally {
            pub(crate) fn counts(&self, status: &Status) -> Counts {
                Counts {
                    $($name: self.$name.load(Relaxed),)*
                    moved: status.moved,
                    shrunk: status.shrunk + status.shrunk_directly,
                    given_back: status.given_back,
                    fetched: status.fetched,
                }
            }
        }
    };
}

tallies! {
    blocks bulk_pages movables ranges refused pages checked zeros passed_on threads_ended validated
    settings limits sections sections_kept faulty compactions
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
