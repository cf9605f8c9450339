//! Whole pageblocks: claims them, gives them the form of bits, and marks those that are allocated as
//! a whole.

use super::Blocks;
use crate::base::sync::{
    Ordering::{Relaxed, Release, SeqCst},
    fence,
};
use crate::base::units::{MigrateType, PAGEBLOCK_ORDER};
use crate::packed::bits::{self, WORDS};
use crate::packed::label::Meta;
use crate::packed::planted::{Bug, planted};
use crate::packed::set::ones;

impl Blocks<'_> {
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
}
