//! Requests and frees of a yard in steps. Between them the yard checks, counts and reports.

use lock_api::RawMutex;

use crate::base::units::{CACHED_TYPES, MigrateType, Order};
use crate::packed::class::{class_of, is_kept};
use crate::packed::cpu::Cpu;
use crate::packed::region::Region;
use crate::packed::storage::FrameState;

impl<R: RawMutex> Region<'_, R> {
    /// Takes a block from the loaded magazine or the run, if they have one.
    #[inline(always)]
    pub(crate) fn pop_block(&self, cpu: &mut Cpu, order: u8, t: MigrateType) -> Option<u32> {
        let t = t as usize;
        if !is_kept(order) || t >= CACHED_TYPES {
            return None;
        }
        let frame = self.pop(cpu.slot(class_of(order, t)))?;
        self.state(frame)?.set_allocated(order, t);
        Some(frame)
    }

    /// Takes a block of a kept order for a CPU. Pageblocks of other types serve it if the request
    /// `mixes` types.
    pub(crate) fn take_block(
        &self,
        cpu: &mut Cpu,
        order: u8,
        t: MigrateType,
        mixes: bool,
    ) -> Option<u32> {
        if let Some(frame) = self.pop_block(cpu, order, t) {
            return Some(frame);
        }
        let t = t as usize;
        if !is_kept(order) || t >= CACHED_TYPES {
            return None;
        }
        let frame = self.alloc_slow(cpu, order, t, mixes)?;
        self.state(frame)?.set_allocated(order, t);
        Some(frame)
    }

    /// Returns whether a block of this order is allocated at a frame.
    pub(crate) fn is_allocated(&self, frame: u32, order: Order) -> bool {
        self.state(frame).and_then(FrameState::allocated) == Some(order)
    }

    /// Takes a block from its owner in a way that can be rolled back. Returns whether it did. Of several
    /// callers one succeeds, unless `OWNED`: then the caller is alone.
    #[inline(always)]
    pub(crate) fn begin_leaving<const OWNED: bool>(&self, frame: u32, order: u8) -> bool {
        self.state(frame).is_some_and(|state| state.begin_leaving::<OWNED>(order))
    }

    /// Completes [`begin_leaving`](Self::begin_leaving). Returns the block's type.
    #[inline(always)]
    pub(crate) fn finish_leaving(&self, frame: u32) -> usize {
        self.state(frame).map_or(0, FrameState::finish_leaving)
    }

    /// Rolls back [`begin_leaving`](Self::begin_leaving), if it is not complete.
    pub(crate) fn stay(&self, frame: u32) {
        if let Some(state) = self.state(frame) {
            state.stay();
        }
    }

    /// Rolls back [`begin_free`](Self::begin_free).
    pub(crate) fn roll_back_free(&self, frame: u32, order: u8, t: usize) {
        if let Some(state) = self.state(frame) {
            state.set_allocated(order, t);
        }
    }

    /// Sets whether a block in use is movable. Returns whether there is a block of this order.
    pub(crate) fn set_movable(&self, frame: u32, order: u8, movable: bool) -> bool {
        self.state(frame).is_some_and(|state| state.set_movable(order, movable))
    }

    /// Marks a block as one from the last reserves.
    pub(crate) fn set_pfmemalloc(&self, frame: u32, order: u8) {
        if let Some(state) = self.state(frame) {
            state.set_pfmemalloc(order);
        }
    }

    /// Returns whether a block is one from the last reserves.
    pub(crate) fn is_pfmemalloc(&self, frame: u32) -> bool {
        self.state(frame).is_some_and(FrameState::is_pfmemalloc)
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::base::units::{CpuId, Pfn};
    use crate::packed::OwnedStorage;

    #[test]
    fn magazines_serve_no_orders_and_types_that_they_do_not_keep() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(region.frames()).unwrap();
        let mut cpu = region.cpus[0].own.lock();
        let kept = |order: u8| matches!(order, 0..=3 | 9);
        for order in 0..=10 {
            for t in MigrateType::ALL {
                let keeps = kept(order) && (t as usize) < CACHED_TYPES;
                assert_eq!(region.take_block(&mut cpu, order, t, true).is_some(), keeps);
                // Each magazine that serves such requests has more.
                assert_eq!(region.pop_block(&mut cpu, order, t).is_some(), keeps);
            }
        }
    }

    #[test]
    fn a_free_that_is_undone_changes_nothing() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(region.frames()).unwrap();
        let order = Order::new(2).unwrap();
        let pfn = region.alloc(CpuId(0), order, MigrateType::Reclaimable).unwrap();
        let before = region.frame_state(pfn).unwrap().state();
        let (frame, t) = region.begin_free::<false>(pfn, 2).unwrap();
        assert_eq!(region.allocated(pfn), None);
        region.roll_back_free(frame, 2, t);
        assert_eq!(region.frame_state(pfn).unwrap().state(), before);
        region.free(CpuId(0), pfn, order).unwrap();
    }
}
