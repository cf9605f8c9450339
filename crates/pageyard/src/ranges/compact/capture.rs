//! A compacting request takes its block as soon as it has merged, before another request can (spec
//! §7.7).
//!
//! Only blocks that the compaction itself frees can be captured, so ordinary frees need no check.

use crate::base::frame::{Kind, State};
use crate::base::units::{MigrateType, Order, PAGEBLOCK_ORDER};
use crate::embedder::config::Config;
use crate::embedder::events::Event;
use crate::embedder::hooks::Observer;
use crate::zone::area::End;
use crate::zone::at::Locked;

/// The block that a compacting request waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) order: Order,
    pub(super) migrate_type: MigrateType,
}

impl Wish {
    /// Returns whether a block of this order, freed under this type, fulfils the wish.
    fn is_met_by(self, order: u8, t: MigrateType) -> bool {
        order == self.order.get()
            && !matches!(t, MigrateType::Cma | MigrateType::Isolate)
            // Otherwise unmovable pages would spread over movable blocks.
            && (order >= PAGEBLOCK_ORDER
                || t != MigrateType::Movable
                || self.migrate_type == MigrateType::Movable)
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Frees a held block to its pageblocks' lists, in pieces of at most a pageblock. If a wish is
    /// met on the way, allocates that block and returns its index.
    #[inline(always)]
    pub(super) fn free_held(&self, idx: u32, order: u8, wish: &mut Option<Wish>) -> Option<u32> {
        let step = order.min(PAGEBLOCK_ORDER);
        let mut got = None;
        for piece in 0..1u32 << (order - step) {
            got = got.or(self.free_piece(idx.wrapping_add(piece << step), step, wish));
        }
        got
    }

    /// Like [`free_held`](Self::free_held), for a block of at most a pageblock.
    #[inline(always)]
    pub(super) fn free_piece(&self, idx: u32, order: u8, wish: &mut Option<Wish>) -> Option<u32> {
        self.zone.counters.pages_returned.add(1 << order);
        if self.zone.map.is_tainted(idx, order) {
            // A frame of it failed while it was held.
            self.free_around(idx, order);
            return None;
        }
        self.free_or_capture(idx, order, wish)
    }

    #[inline(never)]
    fn free_or_capture(&self, idx: u32, order: u8, wish: &mut Option<Wish>) -> Option<u32> {
        let t = self.zone.map.block_type(idx);
        self.account(1 << order, t);
        self.check_type(idx, t);
        self.zone.map.frame(idx).set_state(State::TAIL);
        let mut got = None;
        self.merge_unless(idx, order, t, End::Head, |idx, order| {
            let met = wish.is_some_and(|w| w.is_met_by(order, t));
            if met {
                got = Some(idx);
            }
            met
        });
        let idx = got?;
        let wanted = wish.take()?;
        let order = wanted.order;
        self.account(-(order.pages() as i32), t);
        let state = State::new(Kind::Allocated, order.get(), wanted.migrate_type);
        self.zone.map.frame(idx).set_allocated(state);
        self.zone.counters.pages_taken.add(order.pages().into());
        self.slot.counters.direct_allocs.add(order.get(), wanted.migrate_type);
        if t != wanted.migrate_type {
            self.zone.counters.mismatches.add(1);
            self.hooks.event(
                self.cpu,
                Event::Fallback {
                    pfn: self.zone.pfn(idx),
                    order,
                    found: order,
                    migrate_type: wanted.migrate_type,
                    from: t,
                    claimed: false,
                },
            );
        }
        Some(idx)
    }
}
