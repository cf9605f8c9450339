//! The pageblocks: bits of free frames, the index of pageblocks by type and fullness, and the
//! protocols between CPUs that change them. Lock-free.
//!
//! Operations on words, labels and the index are `SeqCst`: "write mine, then read yours" must not
//! miss on both sides. Every protocol here has a model in `verify/loom/src/packed.rs`.

#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{self, AtomicU32, AtomicU64};
use crate::base::sync::{
    Ordering::{Relaxed, Release, SeqCst},
    fence,
};
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, TYPES};
use crate::packed::bits::{self, WORDS};
use crate::packed::domain::Domain;
use crate::packed::free_set_apart::FreeSetApart;
use crate::packed::label::{BUCKETS, Label, Meta, bucket_of};
use crate::packed::notes::Notes;
use crate::packed::planted::{Bug, fence_for_loom, planted};
use crate::packed::route::{ALWAYS_TO_ZONE, Route, Routes};
use crate::packed::set::{BlockSet, IndexWord, ones, words_of_set};
use crate::packed::whole::WholeSet;

/// One bit in sixteen of a word. A free that sets one of them counts its pageblock's free frames
/// again; the others leave the pageblock's bucket as it is.
const SAMPLE: u64 = 0x0001_0001_0001_0001;

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

    /// Frees frames of one word.
    #[inline]
    pub(crate) fn put(&self, word: u32, mask: u64, domain: usize) {
        let Some(w) = self.word(word) else { return };
        // The frames are the caller's, so none of their bits is set: the sum is an `or` that
        // returns the old value in one instruction.
        let old = w.fetch_add(mask, SeqCst);
        fence_for_loom();
        if old & mask != 0 {
            return self.undo_put(word, mask, old, domain);
        }
        if self.notes.any() {
            return self.put_noted(word, mask, old, domain);
        }
        self.note_put(word, mask, old, domain);
    }

    /// A call of its own at the end, so that a put saves no registers.
    #[cold]
    #[inline(never)]
    fn put_noted(&self, word: u32, mask: u64, old: u64, domain: usize) {
        if self.has_set_apart() {
            self.note_set_apart(word / WORDS as u32, mask.count_ones().into());
        }
        self.notes.note_free_in(old | mask);
        self.note_put(word, mask, old, domain);
    }

    /// Notes that frames of a word were freed of which `old` were free before.
    #[inline(always)]
    fn note_put(&self, word: u32, mask: u64, old: u64, domain: usize) {
        let new = old | mask;
        if old == 0 && planted(Bug::NoPutCheck) {
            return;
        }
        let sampled = mask & (SAMPLE << (word % 16)) != 0;
        if old == 0 || new == !0 || sampled {
            self.after_put(word / WORDS as u32, new, sampled, domain);
        }
    }

    /// Undoes a put of frames that were free already: a caller broke the contract of
    /// `free_owned`. The other frames become free.
    #[cold]
    #[inline(never)]
    fn undo_put(&self, word: u32, mask: u64, old: u64, domain: usize) {
        if let Some(w) = self.word(word) {
            w.fetch_sub(mask, SeqCst);
        }
        // The sum may have hidden free frames from a search.
        self.notes.note_free(8);
        self.double_frees.fetch_add((old & mask).count_ones().into(), Relaxed);
        if mask & !old != 0 {
            self.put(word, mask & !old, domain);
        }
    }

    /// Updates a pageblock's place after frames were freed.
    #[cold]
    #[inline(never)]
    fn after_put(&self, block: u32, new: u64, sampled: bool, domain: usize) {
        if new == !0 && self.try_seal(block, domain) {
            return;
        }
        // Read after the word was written: if a thread emptied the word and did not index the
        // pageblock, this bucket says so.
        let bucket = self.meta(block).bucket();
        if !sampled && bucket != 0 && new != !0 {
            return;
        }
        let want = bucket_of(self.free_in(block)).max(1);
        if bucket != want {
            self.reindex(block, want, domain);
        }
    }

    /// Frees a block of order 6 or more within one pageblock, or whole pageblocks.
    pub(crate) fn put_large(&self, frame: u32, order: u8, domain: usize) {
        if order < PAGEBLOCK_ORDER {
            return self.put_words(frame / 64, 1 << (order - 6), domain);
        }
        for i in 0..1u32 << (order - PAGEBLOCK_ORDER) {
            let block = frame / PAGEBLOCK_PAGES + i;
            if self.deactivate_isolated(block) || self.is_set_apart(block) {
                self.put_words(block * WORDS as u32, WORDS as u32, domain);
            } else {
                self.whole().insert(block);
            }
        }
    }

    /// Frees all frames of `n` words.
    fn put_words(&self, first: u32, n: u32, domain: usize) {
        (first..first + n).for_each(|word| self.put(word, !0, domain));
    }

    /// Moves a pageblock to a bucket, 0 for a pageblock without free frames.
    #[inline(never)]
    fn reindex(&self, block: u32, want: u32, domain: usize) {
        let Some(label) = self.label(block) else { return };
        let mut want = want;
        loop {
            let mut meta = Meta(label.load(SeqCst));
            loop {
                if meta.bucket() == want || meta.is_taken() {
                    return;
                }
                let new = meta.with_bucket(want);
                match label.compare_exchange(meta.0, new.0, SeqCst, SeqCst) {
                    Ok(_) => break,
                    Err(now) => meta = Meta(now),
                }
            }
            fence_for_loom();
            let (t, was) = (meta.migrate_type(), meta.bucket());
            self.routes.set(block, want as u8);
            if !self.is_open(block) && !planted(Bug::LateRoute) {
                // Isolated, and perhaps set apart, since the exchange: its route may have been set before.
                self.routes.set(block, ALWAYS_TO_ZONE);
            }
            self.routes.note_sparse(t, was, want, domain);
            if want != 0 {
                self.partial(t, want).insert(block);
            }
            if was != 0 {
                self.remove_stale(block, t, was);
            }
            if want != 0 {
                return;
            }
            // Frames that were freed meanwhile saw the old bucket and did not index the pageblock.
            let free = self.free_in(block);
            if free == 0 || planted(Bug::NoRecount) {
                return;
            }
            want = bucket_of(free);
        }
    }

    /// Removes an entry of the index that the label does not confirm. Looks at the label again
    /// afterwards: the pageblock may have come back to this bucket meanwhile.
    pub(crate) fn remove_stale(&self, block: u32, t: MigrateType, bucket: u32) {
        self.partial(t, bucket).remove(block);
        fence_for_loom();
        let meta = self.meta(block);
        let again = meta.migrate_type() == t && meta.bucket() == bucket;
        if again && !planted(Bug::NoSecondLook) {
            self.partial(t, bucket).insert(block);
        }
    }

    /// Makes a pageblock whole if all its frames are free. Returns whether the attempt took
    /// charge of the pageblock: then its place in the index is up to date.
    #[inline]
    fn try_seal(&self, block: u32, domain: usize) -> bool {
        let adopted = self.adopt_full(block, domain);
        if adopted && !self.seal(block) {
            self.release(block, domain);
        }
        adopted
    }

    /// Makes a pageblock active if all its frames are free. Returns whether it did.
    #[inline]
    fn adopt_full(&self, block: u32, domain: usize) -> bool {
        if self.words_of(block).iter().any(|w| w.load(SeqCst) != !0) {
            return false;
        }
        self.adopt(block, self.meta(block).migrate_type(), domain)
    }

    /// Takes the frames of an active pageblock and makes it whole. Returns false, with nothing taken,
    /// if another CPU took frames meanwhile.
    #[inline(never)]
    fn seal(&self, block: u32) -> bool {
        if !self.take_full(self.words_of(block)) {
            return false;
        }
        self.whole().insert(block);
        true
    }

    /// Makes a pageblock of type `t` active: no other CPU refills from it, and it is in no index.
    /// Returns whether it did.
    pub(crate) fn adopt(&self, block: u32, t: MigrateType, domain: usize) -> bool {
        let Some(label) = self.label(block) else { return false };
        let mut meta = Meta(label.load(SeqCst));
        loop {
            if meta.is_taken() || meta.migrate_type() != t {
                return false;
            }
            let new = meta.with_bucket(0).0 | Meta::ACTIVE;
            match label.compare_exchange(meta.0, new, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => meta = Meta(now),
            }
        }
        self.unlist(block, meta, 0, domain);
        true
    }

    /// Updates hints and index for a pageblock whose label has just lost its bucket.
    pub(super) fn unlist(&self, block: u32, was: Meta, route: u8, domain: usize) {
        let (t, bucket) = (was.migrate_type(), was.bucket());
        self.routes.set(block, route);
        self.routes.note_sparse(t, bucket, 0, domain);
        if bucket != 0 {
            self.remove_stale(block, t, bucket);
        }
    }

    /// Ends [`adopt`](Self::adopt): the pageblock becomes whole or gets its place in the index. A loop,
    /// because in each turn other CPUs may take frames and free them again; as a recursion it would
    /// take stack without a bound.
    pub(crate) fn release(&self, block: u32, domain: usize) {
        let Some(label) = self.label(block) else { return };
        loop {
            label.fetch_and(!Meta::ACTIVE, SeqCst);
            fence_for_loom();
            match self.free_in(block) {
                _ if planted(Bug::NoReleaseCount) => return,
                0 => return,
                PAGEBLOCK_PAGES => {
                    if !self.adopt_full(block, domain) {
                        // Another CPU has the pageblock, or took frames of it while it was this
                        // one's: then it did not index it.
                        return self.reindex(block, bucket_of(self.free_in(block)), domain);
                    }
                    if self.seal(block) {
                        return;
                    }
                }
                free => return self.reindex(block, bucket_of(free), domain),
            }
        }
    }

    /// Changes the type of a pageblock that the caller has active.
    pub(crate) fn relabel(&self, block: u32, from: MigrateType, to: MigrateType) {
        if let Some(label) = self.label(block) {
            // The type is `from`, so that the sum changes no other bits.
            label.fetch_add((to as u32).wrapping_sub(from as u32), SeqCst);
        }
    }

    /// Takes a whole pageblock, the first at or after `from`. It is active, and its frames are the
    /// caller's.
    pub(crate) fn claim(&self, from: u32) -> Option<u32> {
        loop {
            let block = self.whole().find(from)?;
            if self.claim_at(block, 1) {
                return Some(block);
            }
        }
    }

    /// Takes a whole pageblock that [`claim`](Self::claim) may miss: while another CPU adds the first of a
    /// word, the summary does not say so yet. Pairs are found without the summary anyway.
    pub(crate) fn claim_unsummarized(&self, order: u8) -> Option<u32> {
        if order != PAGEBLOCK_ORDER {
            return None;
        }
        let whole = self.whole();
        let mut all = whole.fresh.members().chain(whole.reported.members());
        all.find(|&block| self.claim_at(block, 1))
    }

    /// Takes `n` neighbouring whole pageblocks, all or none.
    pub(crate) fn claim_at(&self, block: u32, n: u32) -> bool {
        let bits = ((1u64 << n) - 1) << (block % 64);
        let claimed = self.whole().remove_all(block as usize / 64, bits);
        let reported = claimed.unwrap_or(0);
        if reported > 0 {
            self.retaken.fetch_add(reported.into(), Relaxed);
        }
        claimed.is_some()
    }

    /// Takes two whole pageblocks that are a block of order 10.
    pub(crate) fn claim_pair(&self) -> Option<u32> {
        let whole = self.whole();
        for (i, bits) in whole.words().enumerate() {
            for head in ones(bits::run_heads(bits, 1)) {
                let block = i as u32 * 64 + head;
                if planted(Bug::HalfPair) && whole.remove(block) {
                    whole.remove(block + 1);
                    return Some(block);
                }
                // Both or none: a pageblock of half a pair must not be lost.
                if self.claim_at(block, 2) {
                    return Some(block);
                }
            }
        }
        None
    }

    /// Gives the frames of a claimed pageblock the form of bits. It stays active.
    pub(crate) fn open(&self, block: u32, t: MigrateType) {
        if let Some(label) = self.label(block) {
            label.store(Meta::of(t, 0).0 | Meta::ACTIVE, SeqCst);
        }
        self.routes.set(block, 0);
        for w in self.words_of(block) {
            w.store(!0, Release);
        }
        // The stores alone might come after the look at the notes.
        fence(SeqCst);
        self.notes.note_free(8);
    }

    /// Marks a pageblock none of whose frames is free as allocated as a whole, isolated or not.
    pub(crate) fn activate_as_whole(&self, block: u32) {
        if let Some(label) = self.label(block) {
            label.fetch_or(Meta::ACTIVE, SeqCst);
        }
    }

    /// Marks a pageblock none of whose frames is free as one operation's, or allocated as a whole.
    /// Returns false for an isolated one.
    pub(crate) fn activate(&self, block: u32) -> bool {
        let Some(label) = self.label(block) else { return false };
        let mut meta = Meta(label.load(SeqCst));
        loop {
            if meta.is_isolated() {
                return false;
            }
            match label.compare_exchange(meta.0, meta.0 | Meta::ACTIVE, SeqCst, SeqCst) {
                Ok(_) => return true,
                Err(now) => meta = Meta(now),
            }
        }
    }

    /// Undoes [`activate`](Self::activate).
    pub(crate) fn deactivate(&self, block: u32) {
        if let Some(label) = self.label(block) {
            label.fetch_and(!Meta::ACTIVE, SeqCst);
        }
    }

    /// Ends the allocation of a pageblock as a whole: its frames will be freed one by one, as those
    /// of a pageblock of type `t`. One that is isolated or set apart stays as it is otherwise.
    pub(crate) fn break_up(&self, block: u32, t: MigrateType) {
        let Some(label) = self.label(block) else { return };
        if self.deactivate_isolated(block) || self.is_set_apart(block) {
            return;
        }
        // The route first: isolation sets it as soon as the pageblock is no longer active. Of a pageblock
        // that is neither isolated nor set apart, the caller's block is all, so it stays so.
        self.routes.set(block, 0);
        label.store(Meta::of(t, 0).0, SeqCst);
    }

    /// Sets the type of a pageblock in no index. Returns false for any other one.
    pub(crate) fn set_type(&self, block: u32, t: MigrateType) -> bool {
        let Some(label) = self.label(block) else { return false };
        let meta = Meta(label.load(SeqCst));
        let free = meta.bucket() != 0 || meta.is_taken() || self.free_in(block) != 0;
        let new = Meta::of(t, 0);
        !free && label.compare_exchange(meta.0, new.0, SeqCst, SeqCst).is_ok()
    }

    /// Frees a pageblock whose frames are all the caller's and that is not active: it becomes whole,
    /// or bits if it is isolated.
    pub(crate) fn add_whole(&self, block: u32, domain: usize) {
        if self.activate(block) {
            self.whole().insert(block);
        } else {
            self.put_words(block * WORDS as u32, WORDS as u32, domain);
        }
    }

    /// Takes up to `want` blocks of an order up to 6 from a word, which comes with its number. Returns
    /// their heads. The pageblock need not be active.
    #[inline]
    pub(crate) fn take(
        &self,
        (word, w): (u32, &AtomicU64),
        order: u8,
        want: u32,
        domain: usize,
    ) -> u64 {
        let bits = w.load(Relaxed);
        if bits == 0 {
            return 0;
        }
        if order == 0 && want >= 64 {
            return w.swap(0, SeqCst);
        }
        let mut heads = bits::run_heads(bits, order);
        if heads == 0 {
            return 0;
        }
        if order < 6 {
            // Blocks first that are no half of a free block of twice the size.
            let larger = bits::run_heads(bits, order + 1);
            let single = heads & !(larger | larger << (1 << order));
            if single != 0 {
                heads = single;
            }
        }
        let heads = bits::lowest(heads, want);
        let mask = bits::fill_runs(heads, order);
        let got = w.fetch_and(!mask, SeqCst) & mask;
        if self.has_set_apart() {
            self.note_set_apart(word / WORDS as u32, -i64::from(got.count_ones()));
        }
        if got == mask {
            return heads;
        }
        self.keep_complete(word, got, heads, order, domain)
    }

    /// Returns those of the blocks with these heads that are complete in what was `got` of them:
    /// another CPU took the other frames.
    #[cold]
    #[inline(never)]
    fn keep_complete(&self, word: u32, got: u64, heads: u64, order: u8, domain: usize) -> u64 {
        // The rest of incomplete blocks goes back the ordinary way: the pageblock may have left the
        // index meanwhile.
        let complete = bits::run_heads(got, order) & heads;
        let back = got & !bits::fill_runs(complete, order);
        if planted(Bug::BareReturn) {
            _ = self.word(word).map(|w| w.fetch_or(back, SeqCst));
        } else if back != 0 {
            self.put(word, back, domain);
        }
        complete
    }

    /// Takes one block of an order up to 8 from a pageblock that need not be active, and updates
    /// the pageblock's place.
    pub(crate) fn take_direct(&self, block: u32, order: u8, domain: usize) -> Option<u32> {
        self.take_where(block, order, domain, Meta::is_open)
    }

    /// Like [`take_direct`](Self::take_direct), from a pageblock whose label meets a condition.
    #[inline(always)]
    pub(super) fn take_where(
        &self,
        block: u32,
        order: u8,
        domain: usize,
        may_take: impl Fn(Meta) -> bool,
    ) -> Option<u32> {
        fence_for_loom();
        if !may_take(self.meta(block)) {
            return None;
        }
        let frame = if order <= 6 {
            self.numbered_words(block).find_map(|(word, w)| {
                let head = self.take((word, w), order, 1, domain);
                (head != 0).then(|| word * 64 + head.trailing_zeros())
            })
        } else {
            self.take_words(block, order, domain)
        };
        let frame = frame?;
        fence_for_loom();
        if !may_take(self.meta(block)) && !planted(Bug::NoRecheck) {
            // Isolated since the first look: what was free then stays free.
            self.put_back(frame, order, domain);
            return None;
        }
        self.after_take(block, domain);
        Some(frame)
    }

    /// Frees a block of any order.
    pub(crate) fn put_back(&self, frame: u32, order: u8, domain: usize) {
        match order {
            0..6 => self.put(frame / 64, bits::block_mask(frame, order), domain),
            _ => self.put_large(frame, order, domain),
        }
    }

    /// Takes 2 or 4 neighbouring words, all of their frames or none.
    fn take_words(&self, block: u32, order: u8, domain: usize) -> Option<u32> {
        let n = 1usize << (order - 6);
        for (part, words) in self.words_of(block).chunks(n).enumerate() {
            if words.iter().any(|w| w.load(Relaxed) != !0) {
                continue;
            }
            if !self.take_all_of(block, words) {
                // Without these frames the pageblock may have left the index.
                self.after_take(block, domain);
                continue;
            }
            return Some(block * PAGEBLOCK_PAGES + (part * n) as u32 * 64);
        }
        None
    }

    /// Takes all frames of these words of a pageblock, or none.
    pub(super) fn take_all_of(&self, block: u32, words: &[AtomicU64]) -> bool {
        let taken = self.take_full(words);
        if taken && self.has_set_apart() {
            self.note_set_apart(block, -(words.len() as i64 * 64));
        }
        taken
    }

    /// Takes all frames of these words, or none.
    fn take_full(&self, words: &[AtomicU64]) -> bool {
        for (i, w) in words.iter().enumerate() {
            if w.compare_exchange(!0, 0, SeqCst, SeqCst).is_err() {
                let restored = if planted(Bug::NoRollback) { 0 } else { i };
                for taken in words.iter().take(restored) {
                    taken.fetch_or(!0, SeqCst);
                }
                if restored > 0 {
                    self.notes.note_free(8);
                }
                return false;
            }
        }
        true
    }

    /// Updates the place of a pageblock that lost frames while it was not active.
    pub(crate) fn after_take(&self, block: u32, domain: usize) {
        fence_for_loom();
        let free = self.free_in(block);
        if free == PAGEBLOCK_PAGES && self.try_seal(block, domain) {
            return;
        }
        let want = bucket_of(free);
        if self.meta(block).bucket() != want {
            self.reindex(block, want, domain);
        }
    }

    /// Returns whether a pageblock has an aligned free run of an order up to 6.
    pub(crate) fn has_run(&self, block: u32, order: u8) -> bool {
        bits::has_run(self.words_now(block), order)
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
