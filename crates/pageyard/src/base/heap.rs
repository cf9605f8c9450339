//! Memory from the heap, where a lack of it is an error (feature `alloc`).

use heap::vec::Vec;

/// The heap has no room for an array.
#[derive(Debug)]
pub(crate) struct NoRoom {
    pub(crate) what: &'static str,
    pub(crate) bytes: usize,
}

/// Returns an empty list with room for `n` elements.
pub(crate) fn reserve<T>(what: &'static str, n: usize) -> Result<Vec<T>, NoRoom> {
    let mut all = Vec::new();
    let bytes = n.saturating_mul(size_of::<T>());
    all.try_reserve_exact(n).map_err(|_| NoRoom { what, bytes })?;
    Ok(all)
}
