//! The per-CPU lists of one zone and one CPU (spec §5.1, §5.2).

use crate::base::list::List;
use crate::base::units::{CACHED_TYPES, COSTLY_ORDER, MigrateType, PAGEBLOCK_ORDER};
use crate::embedder::policy::{PcpRules, Rules};
use crate::pcp::tuning::{Room, Tuning};

/// Number of lists in a pageset: three types of orders 0 to 3, and two of order 9 (§5.2).
pub const LISTS: usize = 14;

/// One CPU's lists of one zone. Requests only try its lock (§5.6).
#[derive(Debug)]
pub(crate) struct Pageset {
    /// Changed through [`tune`](Pageset::tune), except for changes that cannot affect `room`.
    pub(crate) tuning: Tuning,
    /// Bounds for the common case of a free, derived from `tuning`.
    pub(crate) room: Room,
    // A power of two, so an index masked to four bits is in range.
    pub(crate) lists: [List; Pageset::LISTS_THERE],
}

impl Pageset {
    /// Number of lists allocated, more than any policy uses.
    pub(crate) const LISTS_THERE: usize = 16;

    pub(crate) const fn new() -> Self {
        Pageset {
            tuning: Tuning::new(),
            room: Room { pages: 0, free_count: 0 },
            lists: [const { List::new() }; Pageset::LISTS_THERE],
        }
    }

    /// Changes the tuning and recomputes `room`.
    pub(crate) fn tune<T>(&mut self, rules: &PcpRules, change: impl FnOnce(&mut Tuning) -> T) -> T {
        let answer = change(&mut self.tuning);
        self.room = self.tuning.room(rules);
        answer
    }

    #[inline]
    pub(crate) fn list(&self, index: usize) -> &List {
        &self.lists[index & 15]
    }

    /// Records a request that reaches the lists (§5.7).
    #[inline(always)]
    pub(crate) fn note_alloc(&mut self, rules: &Rules) {
        self.tuning.note_alloc(&rules.pcp);
    }
}

/// Returns whether blocks of this order are kept on per-CPU lists (§5.2).
#[inline]
pub(crate) const fn is_cached_order(rules: &Rules, order: u8) -> bool {
    if rules.high_order_lists {
        order <= COSTLY_ORDER || order == PAGEBLOCK_ORDER
    } else {
        order == 0
    }
}

/// Returns the list for an order and a type (§5.2). Types other than the three list types use
/// MOVABLE's list.
#[inline]
pub(crate) const fn list_index(order: u8, t: MigrateType) -> usize {
    let t = if t.is_mergeable() { t } else { MigrateType::Movable };
    if order <= COSTLY_ORDER {
        order as usize * CACHED_TYPES + t as usize
    } else if matches!(t, MigrateType::Movable) {
        13
    } else {
        12
    }
}

/// Returns the order of the blocks on a list.
#[inline]
pub(crate) const fn list_order(index: usize) -> u8 {
    if index < 12 { (index / CACHED_TYPES) as u8 } else { PAGEBLOCK_ORDER }
}

/// Returns the type of the blocks on a list. The list of non-movable huge blocks contains two
/// types.
pub(crate) const fn list_type(index: usize) -> MigrateType {
    match index {
        12 => MigrateType::Unmovable,
        13 => MigrateType::Movable,
        _ => MigrateType::from_bits((index % CACHED_TYPES) as u32),
    }
}

/// Returns how many lists a policy uses, for iteration over all of them.
pub(crate) const fn lists_used(rules: &Rules) -> usize {
    if rules.high_order_lists { LISTS } else { CACHED_TYPES }
}

#[inline]
pub(crate) const fn next_list(rules: &Rules, index: usize) -> usize {
    if index + 1 >= lists_used(rules) { 0 } else { index + 1 }
}
