//! What threads hold, and the patterns that say whose it is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::PAGE_SIZE;
use pageyard_host::{Block, HostYard, Movable, PageRange};
use serde::Serialize;

const PAGE: usize = PAGE_SIZE as usize;
/// Where a page bears its pattern: both ends and two places between.
const PLACES: [usize; 4] = [0, 1360, 2728, PAGE - 8];

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// A page that somebody holds bears another pattern than its holder's.
    #[error(
        "the page {page} of a {what} at frame {frame:#x} holds {found:#x} at byte {at}, not \
         {expected:#x}: somebody else has it, or wrote to it"
    )]
    Pattern {
        /// What it is part of.
        what: &'static str,
        /// The first frame of that.
        frame: u64,
        /// Which page of it.
        page: u64,
        /// Where in the page.
        at: usize,
        /// What is to be there.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// A page that was to be zero was not.
    #[error("a {what} at frame {frame:#x} was to be zero, and was not")]
    NotZero {
        /// What it is part of.
        what: &'static str,
        /// The first frame of that.
        frame: u64,
    },
    /// An invariant of the allocator does not hold.
    #[error("while everybody stood still: {0}")]
    Invalid(String),
    /// Pages are in use that nobody holds, or the other way round.
    #[error("{used} pages are in use, {held} are held and {front} kept ready by threads")]
    Count {
        /// In use to the allocator.
        used: u64,
        /// Held by the threads of this test.
        held: u64,
        /// In the front cache.
        front: u64,
    },
}

/// Pages in everybody's hands.
#[derive(Debug, Default)]
pub(crate) struct Hands(AtomicU64);

impl Hands {
    pub(crate) fn pages(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Something from the yard.
pub(crate) enum Item {
    Block(Block<'static>),
    Movable(Movable<'static>),
    Range(PageRange<'static>),
    /// Pages that came together and go together.
    Bulk(&'static HostYard, Vec<Block<'static>>),
}

/// Something that somebody holds; counted until it is dropped.
pub(crate) struct Held {
    item: Item,
    token: u64,
    pub(crate) pages: u64,
    hands: &'static Hands,
}

fn pattern(token: u64, page: usize, at: usize) -> u64 {
    (token ^ ((page as u64) << 16) ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether it is zero: all of the first pages, and the places of the others.
fn is_zero(bytes: &[u8]) -> bool {
    let all = bytes.len().min(8 * PAGE);
    bytes[..all].iter().all(|&b| b == 0)
        && bytes[all..].chunks_exact(PAGE).all(|p| PLACES.iter().all(|&at| p[at] == 0))
}

impl Item {
    fn what(&self) -> &'static str {
        match self {
            Item::Block(_) => "block",
            Item::Movable(_) => "movable block",
            Item::Range(_) => "range",
            Item::Bulk(..) => "page of many",
        }
    }

    /// Each piece: its first frame, its bytes.
    fn each(&self, look: &mut dyn FnMut(u64, &[u8])) {
        match self {
            Item::Block(b) => look(b.pfn().0, b),
            Item::Movable(m) => {
                let bytes = m.lock();
                look(bytes.pfn().0, &bytes);
            }
            Item::Range(r) => look(r.frames().start.0, r),
            Item::Bulk(_, all) => all.iter().for_each(|b| look(b.pfn().0, b)),
        }
    }

    pub(crate) fn each_mut(&mut self, change: &mut dyn FnMut(&mut [u8])) {
        match self {
            Item::Block(b) => change(b),
            Item::Movable(m) => change(&mut m.lock()),
            Item::Range(r) => change(r),
            Item::Bulk(_, all) => all.iter_mut().for_each(|b| change(b)),
        }
    }
}

impl Held {
    /// Takes something into somebody's hands: looks whether it is zero where it is to be, and marks
    /// it.
    pub(crate) fn new(
        item: Item,
        token: u64,
        to_be_zero: bool,
        hands: &'static Hands,
    ) -> Result<Held, Found> {
        let (mut pages, mut dirt) = (0, None);
        item.each(&mut |frame, bytes| {
            pages += (bytes.len() / PAGE) as u64;
            if to_be_zero && dirt.is_none() && !is_zero(bytes) {
                dirt = Some(Found::NotZero { what: item.what(), frame });
            }
        });
        hands.0.fetch_add(pages, Relaxed);
        let mut held = Held { item, token, pages, hands };
        held.mark(token);
        dirt.map_or(Ok(held), Err)
    }

    /// Bears this pattern from now on.
    pub(crate) fn mark(&mut self, token: u64) {
        self.token = token;
        let mut n = 0;
        self.item.each_mut(&mut |bytes| {
            for page in bytes.chunks_exact_mut(PAGE) {
                for at in PLACES {
                    page[at..at + 8].copy_from_slice(&pattern(token, n, at).to_le_bytes());
                }
                n += 1;
            }
        });
    }

    /// Whether it still bears its holder's pattern.
    pub(crate) fn check(&self) -> Result<(), Found> {
        let (mut n, mut wrong) = (0, None);
        self.item.each(&mut |frame, bytes| {
            for (page, words) in bytes.chunks_exact(PAGE).enumerate() {
                for at in PLACES {
                    let found = words[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
                    let expected = pattern(self.token, n, at);
                    if found != expected && wrong.is_none() {
                        let (what, page) = (self.item.what(), page as u64);
                        wrong = Some(Found::Pattern { what, frame, page, at, expected, found });
                    }
                }
                n += 1;
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    /// What another one who got one of its words would do.
    pub(crate) fn scribble(&mut self) {
        self.item.each_mut(&mut |bytes| bytes[0] = !bytes[0]);
    }

    /// Forgets it for good: nobody holds it any more, and nobody gave it back.
    pub(crate) fn lose(self) {
        self.hands.0.fetch_sub(self.pages, Relaxed);
        std::mem::forget(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.hands.0.fetch_sub(self.pages, Relaxed);
        if let Item::Bulk(yard, all) = &mut self.item {
            yard.free_bulk(all.drain(..));
        }
    }
}
