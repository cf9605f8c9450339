//! The failures that a soak can find.

use serde::Serialize;

use crate::owner::Owner;

/// A failure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// An allocated page belongs to another owner.
    #[error("page {frame:#x} was allocated to {to} while owned by {owner}")]
    HandedOut {
        /// Its frame number.
        frame: u64,
        /// Its current owner.
        owner: Owner,
        /// The owner that it was allocated to.
        to: Owner,
    },
    /// A page is freed by another owner than its own.
    #[error("page {frame:#x} was freed by {by} while owned by {owner}")]
    NotOwner {
        /// Its frame number.
        frame: u64,
        /// Its current owner.
        owner: Owner,
        /// The owner that frees it.
        by: Owner,
    },
    /// A page does not carry its owner's pattern.
    #[error(
        "page {frame:#x} of {owner} contains {found:#x} at byte {at}, expected {expected:#x}: its \
         contents were overwritten"
    )]
    Pattern {
        /// Its frame number.
        frame: u64,
        /// Its owner.
        owner: Owner,
        /// The byte offset in the page.
        at: usize,
        /// The expected value.
        expected: u64,
        /// The value found.
        found: u64,
    },
    /// A page that was requested as zero is not zero.
    #[error("page {frame:#x} was requested zeroed by {owner} and is not zero")]
    NotZero {
        /// Its frame number.
        frame: u64,
        /// Its owner.
        owner: Owner,
    },
    /// A yard is not empty although everything was freed.
    #[error(
        "yard {yard} is not empty after everything was freed: {used} pages in use, {free} of \
         {managed} free, {poisoned} poisoned, {front} in thread caches; first owner: {owner}"
    )]
    NotEmpty {
        /// Index of the yard in the phase.
        yard: usize,
        /// Pages in use.
        used: u64,
        /// Free pages.
        free: u64,
        /// Pages of the yard that are online.
        managed: u64,
        /// Pages out of use.
        poisoned: u64,
        /// Pages in thread caches.
        front: u64,
        /// The first page that has an owner, and that owner.
        owner: String,
    },
    /// An operation that must succeed failed, or an invariant does not hold.
    #[error("{0}")]
    Wrong(String),
    /// A child after a fork obtained memory, hung or crashed.
    #[error("a child after a fork {0}")]
    Child(String),
    /// A thread makes no progress.
    #[error("thread {thread} makes no progress; its last operation is {operation}")]
    Stuck {
        /// The thread's role.
        thread: String,
        /// The name of a row of the operation table.
        operation: &'static str,
    },
}

/// Receives the result of an operation.
pub(crate) trait Report: Sync {
    fn report(&self, done: Result<(), Found>);
}
