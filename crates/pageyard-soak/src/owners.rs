//! The shadow map: the owner of each page of a yard.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Serialize, Serializer};

use crate::found::Found;
use crate::ways::TABLE;

/// The owner of a page: an item of one thread, or a state of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner(u64);

/// Bits of an item's number, and of the row of the table that got it.
const SERIAL: u32 = 40;
const ROW: u32 = 8;

impl Owner {
    /// The yard's.
    pub const FREE: Owner = Owner(0);
    /// Taken out of the yard with its section.
    pub(crate) const OFFLINE: Owner = Owner(u64::MAX);
    /// Out of use, with faulty memory.
    pub(crate) const POISONED: Owner = Owner(u64::MAX - 1);

    /// An item that a thread got by a row of the table. Threads count from 1.
    pub(crate) fn new(thread: u64, row: usize, serial: u64) -> Owner {
        let serial = serial & ((1 << SERIAL) - 1);
        Owner(thread << (SERIAL + ROW) | (row as u64) << SERIAL | serial)
    }

    /// What distinguishes its pattern from those of other owners.
    pub(crate) fn token(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = (self.0 >> SERIAL) as usize & ((1 << ROW) - 1);
        match *self {
            Owner::FREE => f.write_str("the yard"),
            Owner::OFFLINE => f.write_str("an offline section"),
            Owner::POISONED => f.write_str("the poisoned frames"),
            Owner(n) => {
                let (thread, serial) = (n >> (SERIAL + ROW), n & ((1 << SERIAL) - 1));
                write!(f, "thread {thread} (item {serial}, by {})", TABLE[row].name)
            }
        }
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// The owner of each page. An owner enters itself after it has got a page and leaves before it gives
/// the page back.
///
/// The exchanges are relaxed: the yard alone orders a return before the next hand-out.
pub(crate) struct Owners {
    first: u64,
    pages: Box<[AtomicU64]>,
}

impl Owners {
    pub(crate) fn new(frames: Range<u64>) -> Owners {
        let pages = (frames.start..frames.end).map(|_| AtomicU64::new(Owner::FREE.0)).collect();
        Owners { first: frames.start, pages }
    }

    /// Frame numbers of all pages.
    pub(crate) fn frames(&self) -> Range<u64> {
        self.first..self.first + self.pages.len() as u64
    }

    fn swap(&self, frame: u64, owner: Owner) -> Owner {
        Owner(self.pages[(frame - self.first) as usize].swap(owner.0, Relaxed))
    }

    /// Enters the owner of pages that were handed out.
    pub(crate) fn take(&self, frames: Range<u64>, to: Owner) -> Result<(), Found> {
        for frame in frames {
            let owner = self.swap(frame, to);
            if owner != Owner::FREE {
                return Err(Found::HandedOut { frame, owner, to });
            }
        }
        Ok(())
    }

    /// Removes the owner of pages that are about to be given back.
    pub(crate) fn give(&self, frames: Range<u64>, by: Owner) -> Result<(), Found> {
        for frame in frames {
            let owner = self.swap(frame, Owner::FREE);
            if owner != by {
                return Err(Found::NotOwner { frame, owner, by });
            }
        }
        Ok(())
    }

    /// Changes the owner of pages that are not handed out. Where `change` has no answer for an
    /// owner, the page is in use.
    fn change(
        &self,
        frames: Range<u64>,
        to: Owner,
        change: impl Fn(Owner) -> Option<Owner>,
    ) -> Result<(), Found> {
        for frame in frames {
            let page = &self.pages[(frame - self.first) as usize];
            let changed = page.fetch_update(Relaxed, Relaxed, |n| Some(change(Owner(n))?.0));
            changed.map_err(|n| Found::HandedOut { frame, owner: Owner(n), to })?;
        }
        Ok(())
    }

    /// Notes that a section is offline. Its poisoned frames remain poisoned.
    pub(crate) fn offline(&self, frames: Range<u64>) -> Result<(), Found> {
        self.change(frames, Owner::OFFLINE, |owner| match owner {
            Owner::FREE => Some(Owner::OFFLINE),
            Owner::POISONED => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Notes that a section is about to come back. A frame that was unpoisoned meanwhile is entered
    /// as free already.
    pub(crate) fn online(&self, frames: Range<u64>) -> Result<(), Found> {
        self.change(frames, Owner::FREE, |owner| match owner {
            Owner::OFFLINE | Owner::FREE => Some(Owner::FREE),
            Owner::POISONED => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Notes that a free frame is out of use. Its section may have gone offline since.
    pub(crate) fn poison(&self, frame: u64) -> Result<(), Found> {
        self.change(frame..frame + 1, Owner::POISONED, |owner| match owner {
            Owner::FREE | Owner::OFFLINE => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Notes that a poisoned frame is about to come back.
    pub(crate) fn unpoison(&self, frame: u64) -> Result<(), Found> {
        self.give(frame..frame + 1, Owner::POISONED)
    }

    /// The first page that is neither free nor poisoned, and its owner.
    pub(crate) fn first_owned(&self) -> Option<(u64, Owner)> {
        let owners = self.pages.iter().map(|owner| Owner(owner.load(Relaxed)));
        let owned = |&(_, owner): &(u64, Owner)| ![Owner::FREE, Owner::POISONED].contains(&owner);
        self.frames().zip(owners).find(owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_owner_at_a_time() {
        let owners = Owners::new(100..200);
        let (a, b) = (Owner::new(1, 0, 7), Owner::new(2, 1, 7));
        assert_eq!(owners.take(110..120, a), Ok(()));
        assert_eq!(owners.take(119..130, b), Err(Found::HandedOut { frame: 119, owner: a, to: b }));
        let owners = Owners::new(100..200);
        assert_eq!(owners.take(110..120, a), Ok(()));
        assert_eq!(owners.first_owned(), Some((110, a)));
        assert_eq!(owners.give(110..111, b), Err(Found::NotOwner { frame: 110, owner: a, by: b }));
        let free = Found::NotOwner { frame: 120, owner: Owner::FREE, by: a };
        assert_eq!(owners.give(111..121, a), Err(free));
        assert_eq!(owners.first_owned(), None);
    }

    #[test]
    fn a_page_that_is_in_use_cannot_go() {
        let (a, in_use) = (Owner::new(1, 0, 7), |to| Found::HandedOut {
            frame: 110,
            owner: Owner::new(1, 0, 7),
            to,
        });
        let owners = Owners::new(100..200);
        assert_eq!(owners.take(110..111, a), Ok(()));
        assert_eq!(owners.offline(110..120), Err(in_use(Owner::OFFLINE)));
        assert_eq!(owners.online(110..120), Err(in_use(Owner::FREE)));
        assert_eq!(owners.poison(110), Err(in_use(Owner::POISONED)));
    }

    #[test]
    fn a_page_that_is_gone_cannot_be_handed_out() {
        let a = Owner::new(1, 0, 7);
        let owners = Owners::new(100..200);
        assert_eq!(owners.poison(115), Ok(()));
        assert_eq!(owners.offline(110..120), Ok(()));
        // Poisoned just before its section went.
        assert_eq!(owners.poison(116), Ok(()));
        let gone = |frame, owner| Err(Found::HandedOut { frame, owner, to: a });
        assert_eq!(owners.take(112..113, a), gone(112, Owner::OFFLINE));
        assert_eq!(owners.take(115..116, a), gone(115, Owner::POISONED));
        let owners = Owners::new(100..200);
        assert_eq!([owners.poison(115), owners.poison(116)], [Ok(()), Ok(())]);
        assert_eq!(owners.offline(110..120), Ok(()));
        assert_eq!(owners.unpoison(116), Ok(()));
        assert_eq!(owners.online(110..120), Ok(()));
        assert_eq!(owners.take(110..115, a), Ok(()));
        assert_eq!(owners.take(116..120, a), Ok(()));
        assert_eq!(owners.take(115..116, a), gone(115, Owner::POISONED));
    }

    #[test]
    fn an_owner_is_named_by_thread_item_and_way() {
        assert_eq!(Owner::new(3, 0, 9).to_string(), "thread 3 (item 9, by alloc)");
        assert_eq!(Owner::FREE.to_string(), "the yard");
    }
}
