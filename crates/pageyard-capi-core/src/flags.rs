//! Request flags, page types and zone kinds for both headers.

use pageyard::{Gfp, MigrateType, Order, ZoneKind};

use crate::status::{PAGEYARD_ERR_ARGUMENT, pageyard_status};

/// Version of the interface: the value of a structure's `version` field.
pub const PAGEYARD_VERSION: u32 = 1;
/// Bytes per page.
pub const PAGEYARD_PAGE_SIZE: u32 = 4096;
/// The highest order of a block: 2^10 pages, 4 MiB.
pub const PAGEYARD_MAX_ORDER: u32 = 10;

/// Allocate from the DMA zone.
pub const PAGEYARD_DMA: u32 = 1 << 0;
/// Allocate from the DMA32 zone.
pub const PAGEYARD_DMA32: u32 = 1 << 2;
/// The pages are movable. With PAGEYARD_HIGHMEM, the movable zone may be used too.
pub const PAGEYARD_MOVABLE: u32 = 1 << 3;
/// High memory may be used.
pub const PAGEYARD_HIGHMEM: u32 = 1 << 1;
/// The pages are reclaimable.
pub const PAGEYARD_RECLAIMABLE: u32 = 1 << 4;
/// Urgent: may allocate below the minimum watermark.
pub const PAGEYARD_HIGH: u32 = 1 << 5;
/// Reclaim may start I/O.
pub const PAGEYARD_IO: u32 = 1 << 6;
/// Reclaim may call into file systems.
pub const PAGEYARD_FS: u32 = 1 << 7;
/// Return zeroed pages.
pub const PAGEYARD_ZERO: u32 = 1 << 8;
/// May reclaim directly, and so may sleep.
pub const PAGEYARD_DIRECT_RECLAIM: u32 = 1 << 10;
/// May wake the background reclaimer.
pub const PAGEYARD_KSWAPD_RECLAIM: u32 = 1 << 11;
/// Do not report a failure.
pub const PAGEYARD_NOWARN: u32 = 1 << 13;
/// Retry hard, but fail if that does not help.
pub const PAGEYARD_RETRY_MAYFAIL: u32 = 1 << 14;
/// Do not fail as long as the `keep_trying` hook returns nonzero.
pub const PAGEYARD_NOFAIL: u32 = 1 << 15;
/// Do not retry hard; fail early.
pub const PAGEYARD_NORETRY: u32 = 1 << 16;
/// May use all reserves: the caller is freeing memory.
pub const PAGEYARD_MEMALLOC: u32 = 1 << 17;
/// Compound: the block is treated as one unit.
pub const PAGEYARD_COMP: u32 = 1 << 18;
/// Never use reserves, whatever the context of the caller.
pub const PAGEYARD_NOMEMALLOC: u32 = 1 << 19;
/// Restrict the request to the caller's set of nodes.
pub const PAGEYARD_HARDWALL: u32 = 1 << 20;
/// Restrict the request to the preferred node.
pub const PAGEYARD_THISNODE: u32 = 1 << 21;
/// Ordinary memory: may reclaim, start I/O and call into file systems. The usual choice.
pub const PAGEYARD_KERNEL: u32 =
    PAGEYARD_DIRECT_RECLAIM | PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_IO | PAGEYARD_FS;
/// For interrupt handlers and other atomic contexts: must not sleep, may use reserves.
pub const PAGEYARD_ATOMIC: u32 = PAGEYARD_HIGH | PAGEYARD_KSWAPD_RECLAIM;
/// Must not sleep and tolerates failure.
pub const PAGEYARD_NOWAIT: u32 = PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_NOWARN;
/// Memory that its owner can move, from any zone.
pub const PAGEYARD_HIGHUSER_MOVABLE: u32 =
    PAGEYARD_KERNEL | PAGEYARD_HARDWALL | PAGEYARD_HIGHMEM | PAGEYARD_MOVABLE;

/// The pages cannot be moved.
pub const PAGEYARD_TYPE_UNMOVABLE: u32 = 0;
/// The owner of the pages can switch to another frame.
pub const PAGEYARD_TYPE_MOVABLE: u32 = 1;
/// The pages cannot be moved but can be reclaimed.
pub const PAGEYARD_TYPE_RECLAIMABLE: u32 = 2;

/// Addresses that the oldest devices can reach.
pub const PAGEYARD_ZONE_DMA: u32 = 0;
/// Addresses that 32-bit devices can reach.
pub const PAGEYARD_ZONE_DMA32: u32 = 1;
/// All other memory.
pub const PAGEYARD_ZONE_NORMAL: u32 = 2;
/// Memory for movable pages only.
pub const PAGEYARD_ZONE_MOVABLE: u32 = 3;
/// Device memory; requests never allocate from it.
pub const PAGEYARD_ZONE_DEVICE: u32 = 4;

const _: () = {
    assert!(PAGEYARD_PAGE_SIZE as u64 == pageyard::PAGE_SIZE);
    assert!(PAGEYARD_MAX_ORDER == pageyard::MAX_ORDER as u32);
    assert!(PAGEYARD_DMA == Gfp::DMA.bits() && PAGEYARD_DMA32 == Gfp::DMA32.bits());
    assert!(PAGEYARD_MOVABLE == Gfp::MOVABLE.bits() && PAGEYARD_HIGHMEM == Gfp::HIGHMEM.bits());
    assert!(PAGEYARD_RECLAIMABLE == Gfp::RECLAIMABLE.bits());
    assert!(PAGEYARD_HIGH == Gfp::HIGH.bits() && PAGEYARD_IO == Gfp::IO.bits());
    assert!(PAGEYARD_FS == Gfp::FS.bits() && PAGEYARD_ZERO == Gfp::ZERO.bits());
    assert!(PAGEYARD_DIRECT_RECLAIM == Gfp::DIRECT_RECLAIM.bits());
    assert!(PAGEYARD_KSWAPD_RECLAIM == Gfp::KSWAPD_RECLAIM.bits());
    assert!(PAGEYARD_NOWARN == Gfp::NOWARN.bits() && PAGEYARD_NOFAIL == Gfp::NOFAIL.bits());
    assert!(PAGEYARD_RETRY_MAYFAIL == Gfp::RETRY_MAYFAIL.bits());
    assert!(PAGEYARD_NORETRY == Gfp::NORETRY.bits() && PAGEYARD_MEMALLOC == Gfp::MEMALLOC.bits());
    assert!(PAGEYARD_COMP == Gfp::COMP.bits() && PAGEYARD_NOMEMALLOC == Gfp::NOMEMALLOC.bits());
    assert!(PAGEYARD_THISNODE == Gfp::THISNODE.bits() && PAGEYARD_KERNEL == Gfp::KERNEL.bits());
    assert!(PAGEYARD_ATOMIC == Gfp::ATOMIC.bits() && PAGEYARD_NOWAIT == Gfp::NOWAIT.bits());
    assert!(PAGEYARD_HARDWALL == Gfp::HARDWALL.bits());
    assert!(PAGEYARD_HIGHUSER_MOVABLE == Gfp::HIGHUSER_MOVABLE.bits());
    assert!(PAGEYARD_TYPE_UNMOVABLE == MigrateType::Unmovable as u32);
    assert!(PAGEYARD_TYPE_MOVABLE == MigrateType::Movable as u32);
    assert!(PAGEYARD_TYPE_RECLAIMABLE == MigrateType::Reclaimable as u32);
    assert!(PAGEYARD_ZONE_DMA == ZoneKind::Dma as u32);
    assert!(PAGEYARD_ZONE_DMA32 == ZoneKind::Dma32 as u32);
    assert!(PAGEYARD_ZONE_NORMAL == ZoneKind::Normal as u32);
    assert!(PAGEYARD_ZONE_MOVABLE == ZoneKind::Movable as u32);
    assert!(PAGEYARD_ZONE_DEVICE == ZoneKind::Device as u32);
};

/// Converts an order from C.
#[inline]
pub fn order(order: u32) -> Result<Order, pageyard_status> {
    u8::try_from(order).ok().and_then(Order::new).ok_or(PAGEYARD_ERR_ARGUMENT)
}

/// Converts flags from C. Flags that the core does not know pass through.
#[inline]
pub fn gfp(flags: u32) -> Gfp {
    Gfp::from_bits_retain(flags)
}

pub(crate) fn migrate_type(t: u32) -> Result<MigrateType, pageyard_status> {
    match t {
        PAGEYARD_TYPE_UNMOVABLE => Ok(MigrateType::Unmovable),
        PAGEYARD_TYPE_MOVABLE => Ok(MigrateType::Movable),
        PAGEYARD_TYPE_RECLAIMABLE => Ok(MigrateType::Reclaimable),
        _ => Err(PAGEYARD_ERR_ARGUMENT),
    }
}
