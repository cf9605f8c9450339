//! The pageblocks: bits of free frames, and the index of pageblocks by type and fullness. Frees set
//! bits ([`put`]), requests clear them ([`take`]), both move the pageblock in the [`index`], and whole
//! pageblocks are [claimed](claim). Lock-free.
//!
//! Operations on words, labels and the index are `SeqCst`: "write mine, then read yours" must not
//! miss on both sides. Every protocol here has a model in `verify/loom/src/packed.rs`.

mod claim;
mod index;
mod put;
mod take;

#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{self, AtomicU32, AtomicU64};
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, TYPES};
use crate::packed::bits::{self, WORDS};
use crate::packed::domain::Domain;
use crate::packed::free_set_apart::FreeSetApart;
use crate::packed::label::{BUCKETS, Label, Meta};
use crate::packed::notes::Notes;
use crate::packed::planted::fence_for_loom;
use crate::packed::route::{Route, Routes};
use crate::packed::set::{BlockSet, IndexWord, words_of_set};
use crate::packed::whole::WholeSet;

/// The free frames of a pageblock, or its faulty ones: one bit each, in one cache line. The embedder
/// provides the memory.
///
/// ```
/// use pageyard::packed::Words;
///
/// static PART: [Words; 128] = [const { Words::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
#[repr(align(64))]
pub struct Words([AtomicU64; WORDS]);

impl Words {
    /// Returns a pageblock without free frames.
    pub const fn new() -> Self {
        Words([const { AtomicU64::new(0) }; WORDS])
    }

    pub(crate) fn clear(&self) {
        self.0.iter().for_each(|w| w.store(0, Relaxed));
    }

    pub(super) fn word(&self, i: usize) -> Option<&AtomicU64> {
        self.0.get(i)
    }
}

impl Default for Words {
    fn default() -> Self {
        Words::new()
    }
}

/// All pageblocks of a region.
#[derive(Debug)]
pub(crate) struct Blocks<'a> {
    words: &'a [Words],
    /// Marks of faulty frames.
    pub(super) faulty: &'a [Words],
    labels: &'a [Label],
    pub(super) routes: Routes<'a>,
    index: &'a [IndexWord],
    /// Words of one set of the index.
    stride: usize,
    /// Frames that were freed although they were free.
    double_frees: AtomicU64,
    /// Reported pageblocks that requests took since the start.
    retaken: AtomicU64,
    pub(super) notes: Notes,
    /// Where the last search of all pageblocks for a block of each order found one.
    pub(super) found_at: [AtomicU32; PAGEBLOCK_ORDER as usize],
    /// Free pages of the pageblocks that are set apart.
    pub(super) free_set_apart: FreeSetApart,
    /// Faulty frames that are out of use.
    pub(super) out_of_use: AtomicU64,
}

impl<'a> Blocks<'a> {
    /// Returns how many words the index of `blocks` pageblocks takes: the sets of whole pageblocks,
    /// and one for each type and bucket.
    pub(crate) const fn index_words(blocks: usize) -> usize {
        WholeSet::words_for(blocks) + words_of_set(blocks) * TYPES * BUCKETS as usize
    }

    pub(crate) fn new(
        words: &'a [Words],
        faulty: &'a [Words],
        labels: &'a [Label],
        routes: &'a [Route],
        index: &'a [IndexWord],
        domains: &'a [Domain],
    ) -> Self {
        Blocks {
            words,
            faulty,
            labels,
            routes: Routes::new(routes, domains),
            index,
            stride: words_of_set(words.len()),
            double_frees: AtomicU64::new(0),
            retaken: AtomicU64::new(0),
            notes: Notes::new(),
            found_at: [const { AtomicU32::new(0) }; PAGEBLOCK_ORDER as usize],
            free_set_apart: FreeSetApart::new(),
            out_of_use: AtomicU64::new(0),
        }
    }

    pub(crate) fn double_frees(&self) -> u64 {
        self.double_frees.load(Relaxed)
    }

    /// Returns how many reported pageblocks requests have taken.
    pub(crate) fn retaken(&self) -> u64 {
        self.retaken.load(Relaxed)
    }

    pub(crate) fn len(&self) -> u32 {
        self.words.len() as u32
    }

    pub(crate) fn whole(&self) -> WholeSet<'a> {
        let memory = self.index.get(..2 * self.stride);
        WholeSet::new(memory.unwrap_or(&[]), self.words.len())
    }

    /// The pageblocks of one type and bucket (1 to [`BUCKETS`]).
    pub(crate) fn partial(&self, t: MigrateType, bucket: u32) -> BlockSet<'a> {
        let which = 1 + t as usize * BUCKETS as usize + bucket as usize;
        let memory = self.index.get(which * self.stride..(which + 1) * self.stride);
        BlockSet::new(memory.unwrap_or(&[]), self.words.len())
    }

    #[inline(always)]
    pub(crate) fn words_of(&self, block: u32) -> &'a [AtomicU64] {
        self.words.get(block as usize).map_or(&[], |w| &w.0)
    }

    /// Returns the words of a pageblock, each with its number in the region.
    #[inline(always)]
    pub(crate) fn numbered_words(&self, block: u32) -> impl Iterator<Item = (u32, &'a AtomicU64)> {
        (block * WORDS as u32..).zip(self.words_of(block))
    }

    /// Returns which frames of a pageblock are free.
    pub(super) fn words_now(&self, block: u32) -> [u64; WORDS] {
        let words = self.words.get(block as usize);
        words.map_or([0; WORDS], |w| w.0.each_ref().map(|w| w.load(Relaxed)))
    }

    /// Returns which frames of a word are free.
    pub(super) fn word_now(&self, word: u32) -> u64 {
        self.word(word).map_or(0, |w| w.load(Relaxed))
    }

    /// The word with the frames from `64 * word` on.
    fn word(&self, word: u32) -> Option<&'a AtomicU64> {
        self.words.get(word as usize / WORDS)?.0.get(word as usize % WORDS)
    }

    #[inline]
    pub(super) fn label(&self, block: u32) -> Option<&'a AtomicU32> {
        Some(self.labels.get(block as usize)?.word())
    }

    #[inline]
    pub(super) fn meta(&self, block: u32) -> Meta {
        Meta(self.label(block).map_or(Meta::ISOLATED, |label| label.load(SeqCst)))
    }

    /// Reads a word, so that its line is in the cache soon.
    #[inline]
    pub(crate) fn touch(&self, word: u32) {
        if let Some(w) = self.word(word) {
            shared::fetch(w, Relaxed);
        }
    }

    /// Returns whether a frame is free as a bit.
    pub(crate) fn is_set(&self, frame: u32) -> bool {
        self.word(frame / 64).is_some_and(|w| w.load(SeqCst) >> (frame % 64) & 1 != 0)
    }

    /// Counts the free frames of a pageblock.
    pub(crate) fn free_in(&self, block: u32) -> u32 {
        let words = self.words_of(block);
        bits::count(core::array::from_fn(|i| words.get(i).map_or(0, |w| w.load(SeqCst))))
    }

    pub(crate) fn block_type(&self, block: u32) -> MigrateType {
        self.meta(block).migrate_type()
    }

    /// Returns whether a pageblock is whole, allocated as one, set apart, or one that a CPU refills from.
    pub(crate) fn is_active(&self, block: u32) -> bool {
        self.meta(block).0 & Meta::ACTIVE != 0
    }

    #[inline]
    pub(crate) fn is_isolated(&self, block: u32) -> bool {
        // After what the caller wrote.
        fence_for_loom();
        self.meta(block).is_isolated()
    }

    /// Returns whether every request of a suitable type may take frames from a pageblock.
    pub(crate) fn is_open(&self, block: u32) -> bool {
        // After what the caller wrote.
        fence_for_loom();
        self.meta(block).is_open()
    }

    /// Returns a pageblock's place for a check while nothing else runs: bucket, active, isolated.
    pub(crate) fn place(&self, block: u32) -> (u32, bool, bool) {
        let meta = self.meta(block);
        (meta.bucket(), meta.0 & Meta::ACTIVE != 0, meta.is_isolated())
    }
}

#[cfg(feature = "lines")]
impl Blocks<'_> {
    /// Calls `each` with the memory that CPUs share.
    pub(crate) fn for_each_shared(&self, each: &mut dyn FnMut(Piece)) {
        each(Piece::of(Part::Words, self.words));
        each(Piece::of(Part::Labels, self.labels));
        let index = Piece::of(Part::Index, self.index);
        each(Piece { element: index.element * self.stride, ..index });
        self.routes.for_each_shared(each);
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests;
