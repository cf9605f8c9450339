//! A map of all frames, one byte each.

/// Use of every frame at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PfnMap {
    frames: Vec<u8>,
}

impl PfnMap {
    /// In a free block of the buddy allocator.
    pub const FREE: u8 = 1 << 0;
    /// A hole: there is no page.
    pub const NO_PAGE: u8 = 1 << 1;
    /// On an LRU list.
    pub const LRU: u8 = 1 << 2;
    /// Anonymous memory.
    pub const ANON: u8 = 1 << 3;
    /// Slab.
    pub const SLAB: u8 = 1 << 4;
    /// Part of a compound page.
    pub const COMPOUND: u8 = 1 << 5;
    /// Page table.
    pub const PAGE_TABLE: u8 = 1 << 6;
    /// Mapped by a process.
    pub const MAPPED: u8 = 1 << 7;

    /// Creates a map from these bytes, the first of which is frame 0. Any bytes are valid.
    pub fn new(frames: Vec<u8>) -> Self {
        PfnMap { frames }
    }

    /// Returns the bits of a frame; [`PfnMap::NO_PAGE`] for a frame beyond the map.
    pub fn get(&self, pfn: u64) -> u8 {
        let at = usize::try_from(pfn).unwrap_or(usize::MAX);
        self.frames.get(at).copied().unwrap_or(Self::NO_PAGE)
    }

    /// Returns whether a frame was in a free block.
    pub fn is_free(&self, pfn: u64) -> bool {
        self.get(pfn) & Self::FREE != 0
    }

    /// Returns the bits of all frames, from frame 0.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether the map has no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}
