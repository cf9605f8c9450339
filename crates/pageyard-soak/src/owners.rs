//! The shadow map: the owner of each page of a yard.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::found::Found;
use crate::owner::{Names, Owner};

/// The owner of each page. A thread enters an owner after it has allocated a page, and removes it
/// before it frees the page.
///
/// The exchanges are relaxed: only the yard orders a free before the next allocation.
pub(crate) struct Owners {
    first: u64,
    /// The numbers of the owners.
    pages: Box<[AtomicU64]>,
    names: Names,
}

impl Owners {
    pub(crate) fn new(frames: Range<u64>, names: Names) -> Owners {
        let pages =
            (frames.start..frames.end).map(|_| AtomicU64::new(Owner::FREE.number())).collect();
        Owners { first: frames.start, pages, names }
    }

    /// Returns the frame numbers of all pages.
    pub(crate) fn frames(&self) -> Range<u64> {
        self.first..self.first + self.pages.len() as u64
    }

    fn owner(&self, number: u64) -> Owner {
        Owner::from_number(number, self.names)
    }

    /// Replaces the owner `was` of a page. Fails with the owner if that is another one, which
    /// remains: otherwise that owner's next operation would be reported, perhaps before this one.
    fn replace(&self, frame: u64, was: Owner, owner: Owner) -> Result<(), Owner> {
        let page = &self.pages[(frame - self.first) as usize];
        let replaced = page.compare_exchange(was.number(), owner.number(), Relaxed, Relaxed);
        replaced.map(drop).map_err(|number| self.owner(number))
    }

    /// Enters the owner of allocated pages.
    pub(crate) fn acquire(&self, frames: Range<u64>, to: Owner) -> Result<(), Found> {
        for frame in frames {
            let replaced = self.replace(frame, Owner::FREE, to);
            replaced.map_err(|owner| Found::HandedOut { frame, owner, to })?;
        }
        Ok(())
    }

    /// Removes the owner of pages that are about to be freed.
    pub(crate) fn release(&self, frames: Range<u64>, by: Owner) -> Result<(), Found> {
        for frame in frames {
            let replaced = self.replace(frame, by, Owner::FREE);
            replaced.map_err(|owner| Found::NotOwner { frame, owner, by })?;
        }
        Ok(())
    }

    /// Changes the owner of pages that are not allocated. If `change` returns `None` for an owner,
    /// the page is in use.
    fn change(
        &self,
        frames: Range<u64>,
        to: Owner,
        change: impl Fn(Owner) -> Option<Owner>,
    ) -> Result<(), Found> {
        for frame in frames {
            let page = &self.pages[(frame - self.first) as usize];
            let changed =
                page.fetch_update(Relaxed, Relaxed, |n| change(self.owner(n)).map(Owner::number));
            changed.map_err(|n| Found::HandedOut { frame, owner: self.owner(n), to })?;
        }
        Ok(())
    }

    /// Records that a section is offline. Its poisoned frames remain poisoned.
    pub(crate) fn offline(&self, frames: Range<u64>) -> Result<(), Found> {
        self.change(frames, Owner::OFFLINE, |owner| match owner {
            Owner::FREE => Some(Owner::OFFLINE),
            Owner::POISONED => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Records that a section is about to go online. A frame that was unpoisoned meanwhile is
    /// already entered as free.
    pub(crate) fn online(&self, frames: Range<u64>) -> Result<(), Found> {
        self.change(frames, Owner::FREE, |owner| match owner {
            Owner::OFFLINE | Owner::FREE => Some(Owner::FREE),
            Owner::POISONED => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Records that a free frame is out of use. Its section may have gone offline since.
    pub(crate) fn poison(&self, frame: u64) -> Result<(), Found> {
        self.change(frame..frame + 1, Owner::POISONED, |owner| match owner {
            Owner::FREE | Owner::OFFLINE => Some(Owner::POISONED),
            _ => None,
        })
    }

    /// Records that a poisoned frame is about to be unpoisoned.
    pub(crate) fn unpoison(&self, frame: u64) -> Result<(), Found> {
        self.release(frame..frame + 1, Owner::POISONED)
    }

    /// Returns the first page that is neither free nor poisoned, and its owner.
    pub(crate) fn first_owned(&self) -> Option<(u64, Owner)> {
        let owners = self.pages.iter().map(|owner| self.owner(owner.load(Relaxed)));
        let owned = |&(_, owner): &(u64, Owner)| ![Owner::FREE, Owner::POISONED].contains(&owner);
        self.frames().zip(owners).find(owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names = &["alloc", "alloc_on"];

    #[test]
    fn a_page_has_one_owner_at_a_time() {
        let owners = Owners::new(100..200, NAMES);
        let (a, b) = (Owner::new(1, 0, 7, NAMES), Owner::new(2, 1, 7, NAMES));
        assert_eq!(owners.acquire(110..120, a), Ok(()));
        assert_eq!(
            owners.acquire(119..130, b),
            Err(Found::HandedOut { frame: 119, owner: a, to: b })
        );
        assert_eq!(owners.first_owned(), Some((110, a)));
        assert_eq!(
            owners.release(110..111, b),
            Err(Found::NotOwner { frame: 110, owner: a, by: b })
        );
        // Neither failure took the pages from their owner.
        assert_eq!(owners.release(110..111, a), Ok(()));
        let free = Found::NotOwner { frame: 120, owner: Owner::FREE, by: a };
        assert_eq!(owners.release(111..121, a), Err(free));
        assert_eq!(owners.first_owned(), None);
    }

    #[test]
    fn a_used_page_cannot_be_offlined() {
        let (a, in_use) = (Owner::new(1, 0, 7, NAMES), |to| Found::HandedOut {
            frame: 110,
            owner: Owner::new(1, 0, 7, NAMES),
            to,
        });
        let owners = Owners::new(100..200, NAMES);
        assert_eq!(owners.acquire(110..111, a), Ok(()));
        assert_eq!(owners.offline(110..120), Err(in_use(Owner::OFFLINE)));
        assert_eq!(owners.online(110..120), Err(in_use(Owner::FREE)));
        assert_eq!(owners.poison(110), Err(in_use(Owner::POISONED)));
    }

    #[test]
    fn an_offline_page_cannot_be_allocated() {
        let a = Owner::new(1, 0, 7, NAMES);
        let owners = Owners::new(100..200, NAMES);
        assert_eq!(owners.poison(115), Ok(()));
        assert_eq!(owners.offline(110..120), Ok(()));
        // Poisoned just before its section went offline.
        assert_eq!(owners.poison(116), Ok(()));
        let gone = |frame, owner| Err(Found::HandedOut { frame, owner, to: a });
        assert_eq!(owners.acquire(112..113, a), gone(112, Owner::OFFLINE));
        assert_eq!(owners.acquire(115..116, a), gone(115, Owner::POISONED));
        assert_eq!(owners.unpoison(116), Ok(()));
        assert_eq!(owners.online(110..120), Ok(()));
        assert_eq!(owners.acquire(110..115, a), Ok(()));
        assert_eq!(owners.acquire(116..120, a), Ok(()));
        assert_eq!(owners.acquire(115..116, a), gone(115, Owner::POISONED));
    }

    #[test]
    fn an_owner_is_named_by_thread_item_and_operation() {
        assert_eq!(Owner::new(3, 0, 9, NAMES).to_string(), "thread 3 (item 9, by alloc)");
        assert_eq!(Owner::FREE.to_string(), "the yard");
    }
}
