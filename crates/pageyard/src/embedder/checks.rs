//! The page state that the checks of single pages examine (spec §11.1). The allocator's own
//! descriptor only records who holds a page. The embedder keeps all other state of a page and
//! describes it in these terms.

use core::fmt;

use crate::base::units::Pfn;

bitflags::bitflags! {
    /// Marks that users of a page have set. The bits are this library's own; those from
    /// [`OTHER`](PageFlags::OTHER) up belong to the embedder.
    ///
    /// ```
    /// use pageyard::{PageFlags, PageState};
    ///
    /// // A dirty page may be freed, but must be clean when it is allocated again.
    /// let dirty = PageState { flags: PageFlags::DIRTY, ..PageState::UNUSED };
    /// assert!(dirty.wrong_at_free().is_none() && dirty.wrong_at_alloc().is_some());
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct PageFlags: u32 {
        /// Locked by a user that works on it.
        const LOCKED = 1 << 0;
        /// On a reclaim list.
        const LRU = 1 << 1;
        /// On the active reclaim list.
        const ACTIVE = 1 << 2;
        /// A file system keeps private data with it.
        const PRIVATE = 1 << 3;
        /// A second mark of that kind.
        const PRIVATE_2 = 1 << 4;
        /// Being written out.
        const WRITEBACK = 1 << 5;
        /// Not managed by the allocator.
        const RESERVED = 1 << 6;
        /// Excluded from reclaim.
        const UNEVICTABLE = 1 << 7;
        /// Locked in memory by its user.
        const MLOCKED = 1 << 8;
        /// Changed since it was read.
        const DIRTY = 1 << 9;
        /// Its contents are valid.
        const UPTODATE = 1 << 10;
        /// Used recently.
        const REFERENCED = 1 << 11;
        /// Its memory is faulty.
        const HWPOISON = 1 << 12;
        /// The first bit without a meaning to the allocator. It must be clear in a new page.
        const OTHER = 1 << 16;

        // All other bits belong to the embedder too.
        const _ = !0;
    }
}

impl PageFlags {
    /// Flags that must be clear when a page is freed (§11.1).
    pub const CLEAR_AT_FREE: PageFlags = PageFlags::LRU
        .union(PageFlags::LOCKED)
        .union(PageFlags::PRIVATE)
        .union(PageFlags::PRIVATE_2)
        .union(PageFlags::WRITEBACK)
        .union(PageFlags::RESERVED)
        .union(PageFlags::ACTIVE)
        .union(PageFlags::UNEVICTABLE)
        .union(PageFlags::MLOCKED);
    /// Flags that must be clear when a page is allocated: all except `HWPOISON`, for which there
    /// is [`BadPage::HwPoison`].
    pub const CLEAR_AT_ALLOC: PageFlags = PageFlags::all().difference(PageFlags::HWPOISON);
}

/// A page's relation to a block that is used as one unit (a compound page).
///
/// ```
/// use pageyard::{Link, PageState, Pfn};
///
/// let tail = PageState { link: Link::Tail(Pfn(64)), ..PageState::UNUSED };
/// assert!(tail.wrong_in_compound(Pfn(64)).is_none());
/// assert!(tail.wrong_in_compound(Pfn(32)).is_some());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Link {
    /// The page is in no such block.
    #[default]
    Single,
    /// The page is the first of such a block.
    Head,
    /// The page belongs to the block that starts at this frame.
    Tail(Pfn),
}

/// The state of a page as the embedder reports it
/// ([`Defences::page_state`](crate::Defences::page_state)).
///
/// ```
/// use pageyard::PageState;
///
/// let mapped = PageState { mapcount: 0, ..PageState::UNUSED };
/// assert!(mapped.wrong_at_free().is_some());
/// assert!(PageState::UNUSED.wrong_at_free().is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageState {
    /// Number of mappings minus one: -1 means unmapped.
    pub mapcount: i32,
    /// The page belongs to a file or to anonymous memory. For a tail: the mark that tails have in
    /// this place is missing.
    pub mapping: bool,
    /// Number of references.
    pub refcount: u32,
    /// The page is charged to a memory control group.
    pub charged: bool,
    /// The page's flags.
    pub flags: PageFlags,
    /// Whether the page is part of a compound block.
    pub link: Link,
}

impl PageState {
    /// The state of a page that is not in use.
    pub const UNUSED: PageState = PageState {
        mapcount: -1,
        mapping: false,
        refcount: 0,
        charged: false,
        flags: PageFlags::empty(),
        link: Link::Single,
    };

    /// Returns what is wrong with a page that is freed, or `None`.
    #[inline]
    pub const fn wrong_at_free(&self) -> Option<BadPage> {
        if self.fits_free() { None } else { Some(self.which(PageFlags::CLEAR_AT_FREE)) }
    }

    /// Returns whether a page that is freed passes the checks.
    #[inline(always)]
    pub(crate) const fn fits_free(&self) -> bool {
        !self.is_odd(PageFlags::CLEAR_AT_FREE)
    }

    /// Returns whether a page that is about to be allocated passes the checks.
    #[inline(always)]
    pub(crate) const fn fits_alloc(&self) -> bool {
        !(self.is_odd(PageFlags::all()) | !matches!(self.link, Link::Single))
    }

    /// Returns what is wrong with a page that is about to be allocated, or `None`.
    #[inline]
    pub const fn wrong_at_alloc(&self) -> Option<BadPage> {
        if self.fits_alloc() {
            None
        } else if self.flags.contains(PageFlags::HWPOISON) {
            // Faulty memory is not a caller's mistake, whatever else is wrong with the page.
            Some(BadPage::HwPoison)
        } else if self.is_odd(PageFlags::CLEAR_AT_ALLOC) {
            Some(self.which(PageFlags::CLEAR_AT_ALLOC))
        } else {
            Some(BadPage::TailLink)
        }
    }

    /// Returns what is wrong with a freed page of a compound block other than its head, or `None`.
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

    /// Usually nothing is wrong, so all conditions are combined without a branch.
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
///
/// ```
/// use pageyard::{BadPage, PageState};
///
/// let shared = PageState { refcount: 2, ..PageState::UNUSED };
/// assert_eq!(shared.wrong_at_free(), Some(BadPage::RefCount(2)));
/// println!("{}", BadPage::RefCount(2)); // nonzero reference count 2
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadPage {
    /// The page is mapped. The count is one less than the number of mappings.
    MapCount(i32),
    /// The page belongs to a file or to anonymous memory.
    Mapping,
    /// The page has this many references.
    RefCount(u32),
    /// The page is charged to a memory control group.
    Charged,
    /// The page has these flags, which must be clear.
    Flags(PageFlags),
    /// The page is not linked to the head of its compound block, or is linked although it is in
    /// none.
    TailLink,
    /// The mark of a tail of a compound block is missing.
    TailMapping,
    /// The page's memory is faulty. It is put out of use without a report.
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
            BadPage::TailMapping => f.write_str("mapping mark of a tail page is missing"),
            BadPage::HwPoison => f.write_str("memory is poisoned"),
        }
    }
}
