//! Request flags, and the tables from flags to zone, type and watermark (spec §2.1–2.6).

use crate::base::units::{MigrateType, ZoneKind};

bitflags::bitflags! {
    /// Request flags, numbered as in the kernel (spec §2.1).
    ///
    /// ```
    /// use pageyard::{Gfp, MigrateType, ZoneKind};
    ///
    /// let flags = Gfp::KERNEL | Gfp::ZERO | Gfp::NOWARN;
    /// assert!(flags.contains(Gfp::DIRECT_RECLAIM));
    /// assert_eq!(flags.highest_zone(), Some(ZoneKind::Normal));
    /// assert_eq!(Gfp::HIGHUSER_MOVABLE.migrate_type(), Some(MigrateType::Movable));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct Gfp: u32 {
        /// Allocate from the DMA zone.
        const DMA = 0x1;
        /// High memory is acceptable.
        const HIGHMEM = 0x2;
        /// Allocate from the DMA32 zone.
        const DMA32 = 0x4;
        /// The pages can be moved.
        const MOVABLE = 0x8;
        /// The pages can be reclaimed.
        const RECLAIMABLE = 0x10;
        /// Urgent: may use memory below the minimum watermark.
        const HIGH = 0x20;
        /// May start I/O.
        const IO = 0x40;
        /// May call into file systems.
        const FS = 0x80;
        /// Zero the pages. The embedder's [`prepare`](crate::Platform::prepare) does it.
        const ZERO = 0x100;
        /// May reclaim, and so may sleep.
        const DIRECT_RECLAIM = 0x400;
        /// May wake the background reclaimer.
        const KSWAPD_RECLAIM = 0x800;
        /// The pages will be dirtied soon.
        const WRITE = 0x1000;
        /// Do not report a failure.
        const NOWARN = 0x2000;
        /// Retry hard, but may fail. Without it a request above order 3 fails after one round of reclaim
        /// and compaction, however much could still be reclaimed (§2.10).
        const RETRY_MAYFAIL = 0x4000;
        /// Never fail.
        const NOFAIL = 0x8000;
        /// Do not retry hard.
        const NORETRY = 0x10000;
        /// May use all reserves: the caller is freeing memory.
        const MEMALLOC = 0x20000;
        /// Compound: use the block as one unit.
        const COMP = 0x40000;
        /// Never use reserves, whatever the caller's other flags and state.
        const NOMEMALLOC = 0x80000;
        /// Allocate only from the caller's cpuset.
        const HARDWALL = 0x100000;
        /// Allocate only from this node.
        const THISNODE = 0x200000;
        /// Charge to a memory control group.
        const ACCOUNT = 0x400000;

        /// Both reclaim bits (spec §2.2).
        const RECLAIM = Self::DIRECT_RECLAIM.bits() | Self::KSWAPD_RECLAIM.bits();
        /// For interrupt handlers and similar contexts.
        const ATOMIC = Self::HIGH.bits() | Self::KSWAPD_RECLAIM.bits();
        /// Must not sleep and tolerates failure.
        const NOWAIT = Self::KSWAPD_RECLAIM.bits() | Self::NOWARN.bits();
        /// May reclaim without I/O.
        const NOIO = Self::RECLAIM.bits();
        /// May reclaim without entering file systems.
        const NOFS = Self::RECLAIM.bits() | Self::IO.bits();
        /// Ordinary kernel memory.
        const KERNEL = Self::RECLAIM.bits() | Self::IO.bits() | Self::FS.bits();
        /// Memory for user space that the kernel also uses.
        const USER = Self::KERNEL.bits() | Self::HARDWALL.bits();
        /// Memory for user space.
        const HIGHUSER = Self::USER.bits() | Self::HIGHMEM.bits();
        /// Memory for user space that can be moved.
        const HIGHUSER_MOVABLE = Self::HIGHUSER.bits() | Self::MOVABLE.bits();

        // Bits that the core does not interpret (accounting tags, for example) pass through.
        const _ = !0;
    }
}

impl Gfp {
    /// Returns the highest zone that may serve the request (spec §2.3), or `None` for an invalid
    /// combination of zone bits. Does not check whether that zone has memory.
    pub const fn highest_zone(self) -> Option<ZoneKind> {
        // One entry per value of the low four bits. MOVABLE alone is a property of the pages; only
        // together with HIGHMEM does it allow the movable zone.
        const TABLE: [Option<ZoneKind>; 16] = {
            let mut t = [None; 16];
            t[0x0] = Some(ZoneKind::Normal);
            t[0x1] = Some(ZoneKind::Dma);
            t[0x2] = Some(ZoneKind::Normal);
            t[0x4] = Some(ZoneKind::Dma32);
            t[0x8] = Some(ZoneKind::Normal);
            t[0x9] = Some(ZoneKind::Dma);
            t[0xa] = Some(ZoneKind::Movable);
            t[0xc] = Some(ZoneKind::Dma32);
            t
        };
        TABLE[(self.bits() & 0xf) as usize]
    }

    /// Returns the highest zone and the type (spec §2.3, §2.4) by one table look-up, or `None` if
    /// the flags contradict each other.
    #[inline]
    pub(crate) const fn route(self) -> Option<(ZoneKind, MigrateType)> {
        const TABLE: [Option<(ZoneKind, MigrateType)>; 32] = {
            let mut table = [None; 32];
            let mut bits = 0;
            while bits < 32 {
                let gfp = Gfp::from_bits_retain(bits as u32);
                if let (Some(zone), Some(t)) = (gfp.highest_zone(), gfp.migrate_type()) {
                    table[bits] = Some((zone, t));
                }
                bits += 1;
            }
            table
        };
        TABLE[(self.bits() & 31) as usize]
    }

    /// Returns the type of the pages (spec §2.4), or `None` if both type bits are set.
    pub const fn migrate_type(self) -> Option<MigrateType> {
        match self.bits() & (Gfp::MOVABLE.bits() | Gfp::RECLAIMABLE.bits()) {
            0 => Some(MigrateType::Unmovable),
            0x8 => Some(MigrateType::Movable),
            0x10 => Some(MigrateType::Reclaimable),
            _ => None,
        }
    }
}

bitflags::bitflags! {
    /// How far one attempt may go (spec §2.6). The two lowest bits are the watermark's index.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) struct AllocFlags: u32 {
        const WMARK = 0x3;
        const NO_WATERMARKS = 0x4;
        const OOM = 0x8;
        const NON_BLOCK = 0x10;
        const MIN_RESERVE = 0x20;
        const CPUSET = 0x40;
        const CMA = 0x80;
        const NOFRAGMENT = 0x100;
        const HIGHATOMIC = 0x200;
        /// Waits for no lock (B.2).
        const NO_WAIT = 0x400;
        const KSWAPD = 0x800;
        const RESERVES = Self::OOM.bits() | Self::NON_BLOCK.bits()
            | Self::MIN_RESERVE.bits() | Self::HIGHATOMIC.bits();
    }
}

impl AllocFlags {
    pub(crate) const WMARK_MIN: AllocFlags = AllocFlags::from_bits_retain(0);
    /// Of a free or a batch: it may wait for a lock.
    pub(crate) const WAITS: AllocFlags = AllocFlags::WMARK_MIN;
    pub(crate) const WMARK_LOW: AllocFlags = AllocFlags::from_bits_retain(1);

    /// Returns the index of the mark that is tested.
    #[inline]
    pub(crate) const fn mark(self) -> usize {
        (self.bits() & 3) as usize
    }

    /// Returns the flags that an attempt always derives from the request: its KSWAPD bit, and CMA
    /// for movable pages. None are movable where grouping is disabled, whatever `gfp` says (§2.4).
    #[inline]
    pub(crate) const fn of(gfp: Gfp, t: MigrateType) -> AllocFlags {
        let kswapd = gfp.bits() & AllocFlags::KSWAPD.bits();
        let cma = if matches!(t, MigrateType::Movable) { AllocFlags::CMA.bits() } else { 0 };
        AllocFlags::from_bits_retain(kswapd | cma)
    }

    /// Returns the flags of the slow path (spec §2.9).
    pub(crate) const fn slow(gfp: Gfp, order: u8, t: MigrateType) -> AllocFlags {
        let mut f = AllocFlags::WMARK_MIN.union(AllocFlags::of(gfp, t));
        let high = gfp.contains(Gfp::HIGH);
        if high {
            f = f.union(AllocFlags::MIN_RESERVE);
        }
        if !gfp.contains(Gfp::DIRECT_RECLAIM) && !gfp.contains(Gfp::NOMEMALLOC) {
            f = f.union(AllocFlags::NON_BLOCK);
            if order > 0 && high {
                f = f.union(AllocFlags::HIGHATOMIC);
            }
        }
        f
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_3_the_zone_flags_give_the_highest_zone() {
        let zone = |bits: u32| Gfp::from_bits_retain(bits).highest_zone();
        assert_eq!(zone(0), Some(ZoneKind::Normal));
        assert_eq!(zone(1), Some(ZoneKind::Dma));
        assert_eq!(zone(2), Some(ZoneKind::Normal));
        assert_eq!(zone(4), Some(ZoneKind::Dma32));
        assert_eq!(zone(8), Some(ZoneKind::Normal), "MOVABLE alone is not the movable zone");
        assert_eq!(zone(9), Some(ZoneKind::Dma));
        assert_eq!(zone(0xa), Some(ZoneKind::Movable));
        assert_eq!(zone(0xc), Some(ZoneKind::Dma32));
        for bad in [3, 5, 6, 7, 0xb, 0xd, 0xe, 0xf] {
            assert_eq!(zone(bad), None, "{bad:#x}");
        }
    }

    #[test]
    fn s2_4_the_mobility_flags_give_the_type() {
        assert_eq!(Gfp::KERNEL.migrate_type(), Some(MigrateType::Unmovable));
        assert_eq!(Gfp::HIGHUSER_MOVABLE.migrate_type(), Some(MigrateType::Movable));
        assert_eq!((Gfp::KERNEL | Gfp::RECLAIMABLE).migrate_type(), Some(MigrateType::Reclaimable));
        assert_eq!((Gfp::MOVABLE | Gfp::RECLAIMABLE).migrate_type(), None);
    }

    #[test]
    fn the_route_is_zone_and_type() {
        for bits in 0..64 {
            let gfp = Gfp::from_bits_retain(bits | Gfp::FS.bits());
            assert_eq!(gfp.route(), gfp.highest_zone().zip(gfp.migrate_type()), "{bits:#x}");
        }
    }

    #[test]
    fn s2_2_compounds_have_the_kernels_bits() {
        assert_eq!(Gfp::KERNEL.bits(), 0xcc0);
        assert_eq!(Gfp::ATOMIC.bits(), 0x820);
        assert_eq!(Gfp::HIGHUSER_MOVABLE.bits(), 0x100cca);
    }

    #[test]
    fn s2_9_only_high_requests_that_may_not_reclaim_are_highatomic() {
        let slow = |gfp, order| AllocFlags::slow(gfp, order, MigrateType::Unmovable);
        let f = slow(Gfp::ATOMIC, 1);
        assert!(f.contains(AllocFlags::HIGHATOMIC | AllocFlags::NON_BLOCK));
        assert!(f.contains(AllocFlags::MIN_RESERVE | AllocFlags::KSWAPD));
        assert!(!slow(Gfp::ATOMIC, 0).contains(AllocFlags::HIGHATOMIC));
        assert!(!slow(Gfp::NOWAIT, 1).contains(AllocFlags::HIGHATOMIC));
        let none = slow(Gfp::ATOMIC | Gfp::NOMEMALLOC, 1);
        assert!(!none.intersects(AllocFlags::NON_BLOCK | AllocFlags::HIGHATOMIC));
        assert!(!slow(Gfp::KERNEL, 0).contains(AllocFlags::NON_BLOCK));
    }

    #[test]
    fn s2_6_cma_is_for_the_movable_type() {
        let of = |t| AllocFlags::of(Gfp::HIGHUSER_MOVABLE, t);
        assert!(of(MigrateType::Movable).contains(AllocFlags::CMA));
        assert!(!of(MigrateType::Unmovable).contains(AllocFlags::CMA), "grouping is disabled");
    }
}
