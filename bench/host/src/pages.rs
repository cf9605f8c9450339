//! What every contestant does.

use std::ptr::NonNull;

/// Where pages come from.
pub trait Pages: Sync + 'static {
    /// An allocated block.
    type Block: Send;
    fn take<const ORDER: u8>(&self) -> Self::Block;
    fn start(block: &Self::Block) -> NonNull<u8>;
    fn give<const ORDER: u8>(&self, block: Self::Block);
    /// How often a lock was taken that all threads share, where that is counted.
    fn shared_locks(&self) -> Option<u64> {
        None
    }
}
