//! Request flags and the numbers of types and zones, for both levels.

use pageyard::{Gfp, MigrateType, Order, ZoneKind};

use crate::status::{PAGEYARD_ERR_ARGUMENT, pageyard_status};

/// The interface's version: what a structure's `version` field is set to.
pub const PAGEYARD_VERSION: u32 = 1;
/// Bytes in a page.
pub const PAGEYARD_PAGE_SIZE: u32 = 4096;
/// The highest order of a block: 2^10 pages, 4 MiB.
pub const PAGEYARD_MAX_ORDER: u32 = 10;

/// From the DMA zone.
pub const PAGEYARD_DMA: u32 = 1 << 0;
/// From the DMA32 zone.
pub const PAGEYARD_DMA32: u32 = 1 << 2;
/// The pages can be moved. With PAGEYARD_HIGHMEM also from the movable zone.
pub const PAGEYARD_MOVABLE: u32 = 1 << 3;
/// High memory will do.
pub const PAGEYARD_HIGHMEM: u32 = 1 << 1;
/// The pages can be reclaimed.
pub const PAGEYARD_RECLAIMABLE: u32 = 1 << 4;
/// Urgent: may dip below the minimum watermark.
pub const PAGEYARD_HIGH: u32 = 1 << 5;
/// Reclaim may start I/O.
pub const PAGEYARD_IO: u32 = 1 << 6;
/// Reclaim may call into file systems.
pub const PAGEYARD_FS: u32 = 1 << 7;
/// Zeroed pages.
pub const PAGEYARD_ZERO: u32 = 1 << 8;
/// May reclaim, and so may sleep.
pub const PAGEYARD_DIRECT_RECLAIM: u32 = 1 << 10;
/// May wake the background reclaimer.
pub const PAGEYARD_KSWAPD_RECLAIM: u32 = 1 << 11;
/// Do not report a failure.
pub const PAGEYARD_NOWARN: u32 = 1 << 13;
/// Try hard, but do fail.
pub const PAGEYARD_RETRY_MAYFAIL: u32 = 1 << 14;
/// Does not fail for as long as the `keep_trying` hook says so.
pub const PAGEYARD_NOFAIL: u32 = 1 << 15;
/// Do not try hard.
pub const PAGEYARD_NORETRY: u32 = 1 << 16;
/// May use all reserves: the caller is freeing memory.
pub const PAGEYARD_MEMALLOC: u32 = 1 << 17;
/// The block is one unit.
pub const PAGEYARD_COMP: u32 = 1 << 18;
/// No reserves, whoever the caller is.
pub const PAGEYARD_NOMEMALLOC: u32 = 1 << 19;
/// Within the caller's set of nodes.
pub const PAGEYARD_HARDWALL: u32 = 1 << 20;
/// Of the preferred node only.
pub const PAGEYARD_THISNODE: u32 = 1 << 21;
/// Ordinary memory: may reclaim, start I/O and call into file systems. What to give where nothing
/// else is meant.
pub const PAGEYARD_KERNEL: u32 =
    PAGEYARD_DIRECT_RECLAIM | PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_IO | PAGEYARD_FS;
/// From interrupt handlers and the like: must not sleep, may dip into reserves.
pub const PAGEYARD_ATOMIC: u32 = PAGEYARD_HIGH | PAGEYARD_KSWAPD_RECLAIM;
/// Must not sleep, can live with a failure.
pub const PAGEYARD_NOWAIT: u32 = PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_NOWARN;
/// Memory that its owner can move, from any zone.
pub const PAGEYARD_HIGHUSER_MOVABLE: u32 =
    PAGEYARD_KERNEL | PAGEYARD_HARDWALL | PAGEYARD_HIGHMEM | PAGEYARD_MOVABLE;

/// Nobody can move these pages.
pub const PAGEYARD_TYPE_UNMOVABLE: u32 = 0;
/// Their owner can be told to use another frame.
pub const PAGEYARD_TYPE_MOVABLE: u32 = 1;
/// They cannot move but can be given up.
pub const PAGEYARD_TYPE_RECLAIMABLE: u32 = 2;

/// Addresses that the oldest devices reach.
pub const PAGEYARD_ZONE_DMA: u32 = 0;
/// Addresses that 32-bit devices reach.
pub const PAGEYARD_ZONE_DMA32: u32 = 1;
/// Everything else.
pub const PAGEYARD_ZONE_NORMAL: u32 = 2;
/// Memory that holds movable pages only.
pub const PAGEYARD_ZONE_MOVABLE: u32 = 3;
/// Memory of devices: never handed out by requests.
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

/// An order from C.
#[inline]
pub fn order(order: u32) -> Result<Order, pageyard_status> {
    u8::try_from(order).ok().and_then(Order::new).ok_or(PAGEYARD_ERR_ARGUMENT)
}

/// Flags from C; what the core does not know passes through.
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
