//! Frames as both engines describe them.

use lock_api::RawMutex;

use crate::base::frame::{Kind, State};
use crate::base::units::{MAX_ORDER, block_end, block_start};
use crate::packed::FrameState;
use crate::zone::state::Zone;

impl<R: RawMutex> Zone<'_, R> {
    /// Returns a frame's state. On the packed engine, a frame that is not the head of a block in use
    /// is a tail or reserved, and a block is movable if its type is.
    #[inline]
    pub(crate) fn state(&self, idx: u32) -> State {
        match self.region() {
            None => self.map.frame(idx).state(),
            Some(region) => region.state(idx).map_or(State::RESERVED, FrameState::state),
        }
    }

    /// Returns the block that contains a frame: the index and the state of its head. `None` if no
    /// head is found. The state of a block in use may change at any moment. The packed engine has
    /// no heads of free blocks.
    pub(crate) fn block_over(&self, idx: u32) -> Option<(u32, State)> {
        if !self.is_packed() {
            return self.map.block_over(idx);
        }
        // Only the nearest head below can contain the frame.
        let (order, head, state) = (0..=MAX_ORDER)
            .map(|order| (order, idx & !((1u32 << order) - 1)))
            .map(|(order, head)| (order, head, self.state(head)))
            .find(|(_, _, state)| state.kind() != Kind::Tail)?;
        let reaches = state.kind() != Kind::Reserved && state.order() >= order;
        reaches.then_some((head, state))
    }

    /// Returns whether no frame of a pageblock is memory.
    pub(crate) fn block_is_absent(&self, idx: u32) -> bool {
        let Some(region) = self.region() else { return self.map.block_is_absent(idx) };
        (block_start(idx)..block_end(idx)).all(|i| region.state(i).is_none_or(|s| !s.is_memory()))
    }
}
