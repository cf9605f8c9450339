//! Parts of a free that give a result of their own only between two threads, or to no caller.

use super::*;
use crate::base::gfp::Gfp;
use crate::embedder::config::Bare;

type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;

/// A yard with a DMA zone of 15 MiB and a NORMAL zone of 64 MiB.
fn yard() -> Y {
    Y::from_memory_map(&[0x10_0000..0x100_0000, 0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap()
}

#[test]
fn s11_8_a_block_freed_and_allocated_again_meanwhile_is_a_double_free() {
    let y = yard();
    let page = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    let (zone, idx) = y.owned(page, Order::ZERO).unwrap();
    // As the free finds it that lost the exchange.
    assert_eq!(zone.why_not_free(idx, Order::ZERO), FreeError::DoubleFree);
}

#[test]
fn blocks_of_other_zones_are_freed_in_the_common_case_too() {
    let y = yard();
    let page = y.alloc(Order::ZERO, Gfp::KERNEL | Gfp::DMA).unwrap();
    assert_eq!(y.free_ready(page, Order::ZERO), None);
    assert_eq!(y.free_elsewhere::<false>(page, 0), Some(()));
    assert_eq!(y.free(page, Order::ZERO), Err(FreeError::DoubleFree));
    assert_eq!(y.validate(), Ok(()));
}
