//! The recorded per-CPU lists. They are doubly linked through tables indexed by frame, so any page
//! leaves its list in constant time.

/// Number of lists of one CPU in one zone (spec §5.2).
pub(super) const LISTS: usize = pageyard::PCP_LISTS;

const NONE: u32 = u32::MAX;

/// Returns whether blocks of this order are kept on per-CPU lists (spec §5.2).
#[inline(always)]
pub(super) const fn is_cached(order: u8) -> bool {
    order <= 3 || order == 9
}

/// Returns the list of an order and a type. Types other than the first three share MOVABLE's lists.
#[inline(always)]
pub(super) const fn list_index(order: u8, migratetype: u8) -> usize {
    let t = if migratetype >= 3 { 1 } else { migratetype };
    if order <= 3 { 3 * order as usize + t as usize } else { 12 + (t == 1) as usize }
}

/// Returns the order of a list's blocks.
#[inline(always)]
pub(super) const fn list_order(list: usize) -> u8 {
    if list < 12 { (list / 3) as u8 } else { 9 }
}

/// Returns the type of a list's blocks.
#[inline(always)]
pub(super) const fn list_type(list: usize) -> u8 {
    if list < 12 { (list % 3) as u8 } else { (list - 12) as u8 }
}

/// All lists. A list's number is CPU slot times [`LISTS`] plus the list's index.
pub(super) struct Lists {
    links: Vec<[u32; 2]>,
    /// Per frame: the list that it is on, plus one.
    at: Vec<u32>,
    ends: Vec<[u32; 2]>,
}

impl Lists {
    pub(super) fn new(frames: usize, slots: usize) -> Lists {
        Lists {
            links: vec![[0; 2]; frames],
            at: vec![0; frames],
            ends: vec![[NONE; 2]; slots * LISTS],
        }
    }

    /// Returns the list that a frame is on.
    #[inline(always)]
    pub(super) fn list_of(&self, frame: u32) -> Option<usize> {
        (self.at[frame as usize] as usize).checked_sub(1)
    }

    #[inline(always)]
    pub(super) fn is_empty(&self, list: usize) -> bool {
        self.ends[list][0] == NONE
    }

    /// Adds a frame that is on no list at the head (`end` 0) or tail (`end` 1).
    #[inline(always)]
    fn push(&mut self, list: usize, frame: u32, end: usize) {
        debug_assert!(self.list_of(frame).is_none());
        let old = self.ends[list][end];
        self.links[frame as usize][end] = NONE;
        self.links[frame as usize][1 - end] = old;
        if old == NONE {
            self.ends[list][1 - end] = frame;
        } else {
            self.links[old as usize][end] = frame;
        }
        self.ends[list][end] = frame;
        self.at[frame as usize] = list as u32 + 1;
    }

    pub(super) fn push_front(&mut self, list: usize, frame: u32) {
        self.push(list, frame, 0);
    }

    pub(super) fn push_back(&mut self, list: usize, frame: u32) {
        self.push(list, frame, 1);
    }

    /// Removes a frame from its list.
    #[inline(always)]
    pub(super) fn remove(&mut self, frame: u32) {
        let Some(list) = self.list_of(frame) else { return };
        let [before, after] = self.links[frame as usize];
        match before {
            NONE => self.ends[list][0] = after,
            b => self.links[b as usize][1] = after,
        }
        match after {
            NONE => self.ends[list][1] = before,
            a => self.links[a as usize][0] = before,
        }
        self.at[frame as usize] = 0;
    }

    /// Returns the frame at the head.
    #[inline(always)]
    pub(super) fn head(&self, list: usize) -> Option<u32> {
        Some(self.ends[list][0]).filter(|&f| f != NONE)
    }

    /// Returns whether a frame is among the first `n` of its list.
    pub(super) fn is_near_head(&self, list: usize, frame: u32, n: usize) -> bool {
        let mut at = self.ends[list][0];
        for _ in 0..n {
            if at == frame {
                return true;
            }
            if at == NONE {
                return false;
            }
            at = self.links[at as usize][1];
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(l: &Lists, list: usize) -> Vec<u32> {
        let mut out = Vec::new();
        let mut at = l.head(list);
        while let Some(f) = at {
            out.push(f);
            at = Some(l.links[f as usize][1]).filter(|&f| f != NONE);
        }
        out
    }

    #[test]
    fn pages_can_be_removed_anywhere() {
        let mut l = Lists::new(10, 2);
        for f in [3, 4, 5] {
            l.push_back(20, f);
        }
        l.push_front(20, 9);
        assert_eq!(content(&l, 20), [9, 3, 4, 5]);
        l.remove(4);
        assert_eq!((content(&l, 20), l.list_of(4), l.list_of(5)), (vec![9, 3, 5], None, Some(20)));
        assert!(l.is_near_head(20, 5, 3) && !l.is_near_head(20, 5, 2));
        for f in [9, 5, 3] {
            l.remove(f);
        }
        assert!(l.is_empty(20) && l.head(20).is_none());
    }

    #[test]
    fn s5_2_lists_are_numbered_by_order_and_type() {
        assert_eq!((list_index(0, 0), list_index(2, 1), list_index(3, 2)), (0, 7, 11));
        assert_eq!((list_index(9, 0), list_index(9, 1), list_index(9, 2)), (12, 13, 12));
        assert_eq!(list_index(1, 4), list_index(1, 1), "CMA pages share MOVABLE's");
        for list in 0..LISTS {
            assert_eq!(list_index(list_order(list), list_type(list)), list);
        }
    }
}
