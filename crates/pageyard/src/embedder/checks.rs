//! What the checks of single pages look at (spec §11.1). The allocator's own descriptor says who
//! has a page; everything else that a page is to its users lies with the embedder, who describes
//! it in these terms.

use core::fmt;

use crate::base::units::Pfn;

bitflags::bitflags! {
    /// What users of a page have marked it with. The bits are this library's own; those from
    /// [`OTHER`](PageFlags::OTHER) up are the embedder's.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct PageFlags: u32 {
        /// Somebody works on it.
        const LOCKED = 1 << 0;
        /// On a reclaim list.
        const LRU = 1 << 1;
        /// On the active one.
        const ACTIVE = 1 << 2;
        /// A file system keeps something with it.
        const PRIVATE = 1 << 3;
        /// A second such mark.
        const PRIVATE_2 = 1 << 4;
        /// Being written out.
        const WRITEBACK = 1 << 5;
        /// Not the allocator's.
        const RESERVED = 1 << 6;
        /// Kept from reclaim.
        const UNEVICTABLE = 1 << 7;
        /// Locked in memory by its user.
        const MLOCKED = 1 << 8;
        /// Changed since it was read.
        const DIRTY = 1 << 9;
        /// Holds what it is to hold.
        const UPTODATE = 1 << 10;
        /// Used lately.
        const REFERENCED = 1 << 11;
        /// Its memory is faulty.
        const HWPOISON = 1 << 12;
        /// The first bit that means nothing to the allocator, and must be clear in a new page.
        const OTHER = 1 << 16;

        // All others are the embedder's too.
        const _ = !0;
    }
}

impl PageFlags {
    /// Those that a page must have lost when it is freed (§11.1).
    pub const CLEAR_AT_FREE: PageFlags = PageFlags::LRU
        .union(PageFlags::LOCKED)
        .union(PageFlags::PRIVATE)
        .union(PageFlags::PRIVATE_2)
        .union(PageFlags::WRITEBACK)
        .union(PageFlags::RESERVED)
        .union(PageFlags::ACTIVE)
        .union(PageFlags::UNEVICTABLE)
        .union(PageFlags::MLOCKED);
    /// Those that a page must not have when it is handed out: all but `HWPOISON`, which says
    /// itself what is wrong.
    pub const CLEAR_AT_ALLOC: PageFlags = PageFlags::all().difference(PageFlags::HWPOISON);
}

/// How a page belongs to a block that is used as one unit (a compound page).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    /// To none.
    #[default]
    Single,
    /// It is the first page of one.
    Head,
    /// It belongs to the one that begins there.
    Tail(Pfn),
}

/// What a page is to its users, as the embedder tells
/// ([`Defences::page_state`](crate::Defences::page_state)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageState {
    /// Mappings of it less one: -1 is mapped nowhere.
    pub mapcount: i32,
    /// It belongs to a file or to anonymous memory. For a tail: the mark that tails have in that
    /// place is gone.
    pub mapping: bool,
    /// How many hold it.
    pub refcount: u32,
    /// A memory control group pays for it.
    pub charged: bool,
    /// Its marks.
    pub flags: PageFlags,
    /// Whether it is part of something larger.
    pub link: Link,
}

impl PageState {
    /// As a page must be when nobody uses it.
    pub const UNUSED: PageState = PageState {
        mapcount: -1,
        mapping: false,
        refcount: 0,
        charged: false,
        flags: PageFlags::empty(),
        link: Link::Single,
    };

    /// What is wrong with a page that is freed.
    #[inline]
    pub const fn wrong_at_free(&self) -> Option<BadPage> {
        if self.fits_free() { None } else { Some(self.which(PageFlags::CLEAR_AT_FREE)) }
    }

    /// Whether nothing is wrong with a page that is freed.
    #[inline(always)]
    pub(crate) const fn fits_free(&self) -> bool {
        !self.is_odd(PageFlags::CLEAR_AT_FREE)
    }

    /// Whether nothing is wrong with a page that is about to be handed out.
    #[inline(always)]
    pub(crate) const fn fits_alloc(&self) -> bool {
        !(self.is_odd(PageFlags::all()) | !matches!(self.link, Link::Single))
    }

    /// What is wrong with a page that is about to be handed out.
    #[inline]
    pub const fn wrong_at_alloc(&self) -> Option<BadPage> {
        if self.fits_alloc() {
            None
        } else if self.flags.contains(PageFlags::HWPOISON) {
            // Nobody's mistake, whatever else it has.
            Some(BadPage::HwPoison)
        } else if self.is_odd(PageFlags::CLEAR_AT_ALLOC) {
            Some(self.which(PageFlags::CLEAR_AT_ALLOC))
        } else {
            Some(BadPage::TailLink)
        }
    }

    /// What is wrong with a page of a compound block, other than its first, when that is freed.
    #[inline]
    pub fn wrong_in_compound(&self, head: Pfn) -> Option<BadPage> {
        if self.link != Link::Tail(head) {
            Some(BadPage::TailLink)
        } else if self.mapping {
            Some(BadPage::TailMapping)
        } else {
            self.wrong_at_free()
        }
    }

    /// Nearly always nothing is wrong: all is put together without a branch between.
    #[inline(always)]
    const fn is_odd(&self, flags: PageFlags) -> bool {
        let bits = !self.mapcount as u32 | self.refcount | self.flags.bits() & flags.bits();
        (bits != 0) | self.mapping | self.charged
    }

    #[cold]
    #[inline(never)]
    const fn which(&self, flags: PageFlags) -> BadPage {
        if self.mapcount != -1 {
            BadPage::MapCount(self.mapcount)
        } else if self.mapping {
            BadPage::Mapping
        } else if self.refcount != 0 {
            BadPage::RefCount(self.refcount)
        } else if self.charged {
            BadPage::Charged
        } else {
            BadPage::Flags(self.flags.intersection(flags))
        }
    }
}

/// What is wrong with a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPage {
    /// It is mapped; the count is one less than there are mappings.
    MapCount(i32),
    /// It belongs to a file or to anonymous memory.
    Mapping,
    /// So many hold it.
    RefCount(u32),
    /// A memory control group pays for it.
    Charged,
    /// It has these marks, which it must not have.
    Flags(PageFlags),
    /// It is not linked to the head of its compound block, or is linked while in none.
    TailLink,
    /// A tail of a compound block has lost its mark.
    TailMapping,
    /// Its memory is faulty: left out without a report.
    HwPoison,
}

impl fmt::Display for BadPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPage::MapCount(n) => write!(f, "nonzero mapcount {n}"),
            BadPage::Mapping => f.write_str("non-null mapping"),
            BadPage::RefCount(n) => write!(f, "nonzero reference count {n}"),
            BadPage::Charged => f.write_str("still charged to a control group"),
            BadPage::Flags(flags) => write!(f, "flags {:#x} set", flags.bits()),
            BadPage::TailLink => f.write_str("link to the head of a compound block is wrong"),
            BadPage::TailMapping => f.write_str("mapping mark of a tail page is gone"),
            BadPage::HwPoison => f.write_str("memory is faulty"),
        }
    }
}
