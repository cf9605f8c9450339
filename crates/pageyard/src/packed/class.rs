//! Classes: the orders and types of blocks that magazines keep.

use crate::base::units::{CACHED_TYPES, COSTLY_ORDER, PAGEBLOCK_ORDER};

/// Orders that magazines keep: 0 to 3, and whole pageblocks.
const CACHED_ORDERS: usize = COSTLY_ORDER as usize + 2;

/// Classes of blocks: one for each kept order and type.
pub(crate) const CLASSES: usize = CACHED_ORDERS * CACHED_TYPES;

/// Returns whether magazines keep blocks of this order.
#[inline(always)]
pub(crate) const fn is_kept(order: u8) -> bool {
    order <= COSTLY_ORDER || order == PAGEBLOCK_ORDER
}

#[inline(always)]
const fn order_index(order: u8) -> usize {
    if order == PAGEBLOCK_ORDER { CACHED_ORDERS - 1 } else { order as usize }
}

/// Returns the class of a kept order and type.
#[inline(always)]
pub(crate) const fn class_of(order: u8, t: usize) -> usize {
    order_index(order) * CACHED_TYPES + t
}

/// Returns the order of a class.
pub(crate) const fn order_of(class: usize) -> u8 {
    let index = class / CACHED_TYPES;
    if index + 1 == CACHED_ORDERS { PAGEBLOCK_ORDER } else { index as u8 }
}

/// Returns how many blocks a magazine of a kept order holds. Network buffers, of order 3, come and go by
/// windows of hundreds of pages: two magazines of 1 MiB hold such a window, so it stays in its CPU's caches.
#[inline(always)]
pub(crate) const fn capacity(order: u8) -> u32 {
    match order {
        0 | 1 => 64,
        2 | 3 => 32,
        _ => 2,
    }
}

/// Returns the pages of a full magazine of a class.
pub(crate) const fn pages_of(class: usize) -> u32 {
    capacity(order_of(class)) << order_of(class)
}
