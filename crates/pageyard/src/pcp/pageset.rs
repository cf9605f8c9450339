//! One CPU's lists of one zone (spec §5.1, §5.2).

use crate::base::list::List;
use crate::base::units::{COSTLY_ORDER, MigrateType, PAGEBLOCK_ORDER};
use crate::embedder::policy::{PcpRules, Rules};
use crate::pcp::tuning::{Room, Tuning};

/// How many lists a pageset has: three types of orders 0 to 3, and two of order 9 (§5.2).
pub const LISTS: usize = 14;

/// One CPU's lists of one zone. Its lock is only tried by requests (§5.6).
#[derive(Debug)]
pub(crate) struct Pageset {
    /// Changed through [`tune`](Pageset::tune), but for what cannot change `room`.
    pub(crate) tuning: Tuning,
    /// What of the tuning the common case of a free compares with; follows from it.
    pub(crate) room: Room,
    // A power of two of them, so that an index cut to four bits always fits.
    pub(crate) lists: [List; Pageset::LISTS_THERE],
}

impl Pageset {
    /// Lists that there is room for, more than any policy uses.
    pub(crate) const LISTS_THERE: usize = 16;

    pub(crate) const fn new() -> Self {
        Pageset {
            tuning: Tuning::new(),
            room: Room { pages: 0, free_count: 0 },
            lists: [const { List::new() }; Pageset::LISTS_THERE],
        }
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// Changes the tuning in any way.
    pub(crate) fn tune<T>(&mut self, rules: &PcpRules, change: impl FnOnce(&mut Tuning) -> T) -> T {
        let answer = change(&mut self.tuning);
        self.room = self.tuning.room(rules);
        answer
    }

    #[inline]
    pub(crate) fn list(&self, index: usize) -> &List {
        &self.lists[index & 15]
    }

    /// A request reaches the lists (§5.7).
    #[inline(always)]
    pub(crate) fn note_alloc(&mut self, rules: &Rules) {
        self.tuning.note_alloc(&rules.pcp);
    }
}

/// Whether blocks of this order are kept on per-CPU lists (§5.2).
#[inline]
pub(crate) const fn is_cached_order(rules: &Rules, order: u8) -> bool {
    if rules.high_order_lists {
        order <= COSTLY_ORDER || order == PAGEBLOCK_ORDER
    } else {
        order == 0
    }
}

/// The list of an order and a type (§5.2). Other types than the three share MOVABLE's.
#[inline]
pub(crate) const fn list_index(order: u8, t: MigrateType) -> usize {
    let t = if t.is_mergeable() { t } else { MigrateType::Movable };
    if order <= COSTLY_ORDER {
        order as usize * 3 + t as usize
    } else if matches!(t, MigrateType::Movable) {
        13
    } else {
        12
    }
}

/// The order of the blocks on a list.
#[inline]
pub(crate) const fn list_order(index: usize) -> u8 {
    if index < 12 { (index / 3) as u8 } else { PAGEBLOCK_ORDER }
}

/// The type of the blocks on a list; the list of huge blocks that are not movable has two.
pub(crate) const fn list_type(index: usize) -> MigrateType {
    match index {
        12 => MigrateType::Unmovable,
        13 => MigrateType::Movable,
        _ => MigrateType::from_bits((index % 3) as u32),
    }
}

/// The lists that a policy uses, for walks over all of them.
pub(crate) const fn lists_used(rules: &Rules) -> usize {
    if rules.high_order_lists { LISTS } else { 3 }
}

#[inline]
pub(crate) const fn next_list(rules: &Rules, index: usize) -> usize {
    if index + 1 >= lists_used(rules) { 0 } else { index + 1 }
}
