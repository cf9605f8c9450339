//! The invariants of pageblocks that CPUs own (`zone/owned.rs`).

use lock_api::RawMutex;

use super::Look;
use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CpuId, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::inspect::validate_error::{Broken, Invalid};
use crate::pcp::pageset::{LISTS, list_index};

impl<R: RawMutex> Look<'_, '_, R> {
    pub(super) fn owners(&self) -> Result<(), Invalid> {
        let zone = self.zone;
        let mut listed = 0u32;
        for (cpu, slot) in (0..).map(CpuId).zip(zone.cpus) {
            let pageset = slot.pageset.lock();
            for index in 0..LISTS {
                for idx in pageset.list(index).iter(&zone.map) {
                    let state = zone.map.frame(idx).state();
                    let right = list_index(state.order(), state.migrate_type()) == index
                        && zone.owner(idx).is_none_or(|owner| owner == cpu);
                    self.ensure(!state.is_at_owner() || right, Some(idx), Broken::Owner)?;
                }
            }
            let _lock = zone.lock.lock();
            for t in MigrateType::ALL {
                for block in zone.own_blocks(slot, t) {
                    let right = zone.owner(block) == Some(cpu) && zone.map.block_type(block) == t;
                    self.ensure(right, Some(block), Broken::Owner)?;
                    listed = listed.saturating_add(1);
                }
            }
        }
        for block in (0..zone.map.len()).step_by(PAGEBLOCK_PAGES as usize) {
            let listed_here = zone.is_listed_by_owner(block);
            listed = listed.wrapping_sub(listed_here.into());
            let Some(owner) = zone.owner(block) else {
                self.ensure(!listed_here, Some(block), Broken::Owner)?;
                continue;
            };
            let over = zone.map.block_over(block);
            let whole = over.is_some_and(|(_, state)| {
                state.kind() == Kind::Free && state.order() >= PAGEBLOCK_ORDER
            });
            let part = zone.map.run(block, PAGEBLOCK_PAGES).iter();
            let part = part.map(|f| f.state()).any(|s| s.kind() == Kind::Free);
            let right = !whole
                && zone.map.block_type(block).is_mergeable()
                && (!part || listed_here)
                && zone.slot(owner).is_some_and(|slot| slot.up.load(Relaxed));
            self.ensure(right, Some(block), Broken::Owner)?;
        }
        // Every link is on a list.
        self.ensure(listed == 0, None, Broken::Owner)
    }
}
