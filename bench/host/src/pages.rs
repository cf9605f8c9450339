//! The interface of every contestant.

use std::ptr::NonNull;

/// A source of pages.
pub trait Pages: Sync + 'static {
    /// An allocated block.
    type Block: Send;
    fn take<const ORDER: u8>(&self) -> Self::Block;
    fn start(block: &Self::Block) -> NonNull<u8>;
    fn give<const ORDER: u8>(&self, block: Self::Block);
    /// How often a lock shared by all threads was taken, if that is counted.
    fn shared_locks(&self) -> Option<u64> {
        None
    }
}
