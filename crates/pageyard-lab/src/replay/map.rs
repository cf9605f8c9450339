//! The map from recorded blocks to the allocated blocks that replace them.

use std::collections::{HashMap, VecDeque};

use super::machine::Machine;
use super::start::{LIVE, ORDER};

const NONE: u32 = 0;
const FAILED: u32 = u32::MAX;

/// By the recorded block's first frame: the allocated block's first frame plus one, and its order.
pub(super) struct FrameMap {
    ours: Vec<u32>,
    orders: Vec<u8>,
    /// By order: allocated blocks whose recorded blocks compaction moved to unknown frames.
    moved: [VecDeque<u32>; 11],
}

/// The allocated block for a recorded block that is freed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// The first frame of the allocated block.
    Block(u32),
    /// None, because the request failed in this run.
    Failed,
    /// None, because the block is unknown.
    Unknown,
}

impl FrameMap {
    /// Creates the map. Blocks in use at the start map to themselves.
    pub(super) fn new(frames: &[u8]) -> FrameMap {
        let own = |(i, f): (usize, &u8)| if f & LIVE != 0 { i as u32 + 1 } else { NONE };
        FrameMap {
            ours: frames.iter().enumerate().map(own).collect(),
            orders: frames.iter().map(|f| f & ORDER).collect(),
            moved: Default::default(),
        }
    }

    /// Keeps an allocated block whose recorded block was moved to an unknown frame.
    pub(super) fn keep_moved(&mut self, ours: u32, order: u8) {
        self.moved[usize::from(order)].push_back(ours);
    }

    /// Removes the block of an order that is [kept](Self::keep_moved) for the longest. It stands for a
    /// recorded block that is freed at a frame where none was allocated.
    pub(super) fn take_moved(&mut self, order: u8) -> Option<u32> {
        self.moved[usize::from(order)].pop_front()
    }

    /// Follows allocated blocks that were moved, by their frames before and after.
    pub(super) fn relocate(&mut self, moves: &HashMap<u32, u32>) {
        if moves.is_empty() {
            return;
        }
        let kept = self.moved.iter_mut().flatten();
        kept.for_each(|ours| *ours = moves.get(ours).copied().unwrap_or(*ours));
        for ours in self.ours.iter_mut().filter(|ours| **ours != NONE && **ours != FAILED) {
            if let Some(to) = moves.get(&(*ours - 1)) {
                *ours = to + 1;
            }
        }
    }

    /// Maps a recorded block to an allocated one. Returns the previous block, if any.
    #[inline(always)]
    pub(super) fn put(&mut self, recorded: u32, ours: u32, order: u8) -> Option<(u32, u8)> {
        let at = recorded as usize;
        let old = std::mem::replace(&mut self.ours[at], ours + 1);
        let old_order = std::mem::replace(&mut self.orders[at], order);
        (old != NONE && old != FAILED).then(|| (old - 1, old_order))
    }

    /// Notes that the request for the recorded block failed. Returns the previous block, if any.
    pub(super) fn put_failed(&mut self, recorded: u32) -> Option<(u32, u8)> {
        let at = recorded as usize;
        let old = std::mem::replace(&mut self.ours[at], FAILED);
        (old != NONE && old != FAILED).then(|| (old - 1, self.orders[at]))
    }

    /// Returns the blocks in use: recorded block, allocated block, order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (u32, u32, u8)> {
        let both = self.ours.iter().zip(&self.orders).zip(0..);
        both.filter(|((ours, _), _)| **ours != NONE && **ours != FAILED)
            .map(|((ours, order), recorded)| (recorded, ours - 1, *order))
    }

    /// Removes the mapping of a recorded block that is freed. If the block is part of a larger one,
    /// calls `split(ours, from, into)` to halve the allocated block until it fits.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        machine: &Machine,
        recorded: u32,
        order: u8,
        split: impl FnMut(u32, u8, u8),
    ) -> Taken {
        let at = recorded as usize;
        match self.ours[at] {
            NONE => self.take_part(machine, recorded, order, split),
            FAILED => {
                self.ours[at] = NONE;
                Taken::Failed
            }
            ours if self.orders[at] == order => {
                self.ours[at] = NONE;
                Taken::Block(ours - 1)
            }
            _ => self.take_part(machine, recorded, order, split),
        }
    }

    #[cold]
    fn take_part(
        &mut self,
        machine: &Machine,
        recorded: u32,
        order: u8,
        mut split: impl FnMut(u32, u8, u8),
    ) -> Taken {
        for k in order..=10 {
            let Some(mut head) = machine.align_down(recorded, k) else { break };
            let (ours, mut o) = (self.ours[head as usize], self.orders[head as usize]);
            if ours == NONE || ours == FAILED || o <= order || head + (1 << o) <= recorded {
                continue;
            }
            let mut ours = ours - 1;
            self.ours[head as usize] = NONE;
            while o > order {
                split(ours, o, o - 1);
                o -= 1;
                let half = 1 << o;
                if recorded >= head + half {
                    self.put(head, ours, o);
                    (head, ours) = (head + half, ours + half);
                } else {
                    self.put(head + half, ours + half, o);
                }
            }
            return Taken::Block(ours);
        }
        Taken::Unknown
    }
}
