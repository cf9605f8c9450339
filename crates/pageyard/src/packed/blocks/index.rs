//! The place of a pageblock: in the index by type and fullness, among the whole ones, or active, which
//! makes it one CPU's.

use super::Blocks;
use crate::base::sync::Ordering::SeqCst;
use crate::base::units::{MigrateType, PAGEBLOCK_PAGES};
use crate::packed::label::{Meta, bucket_of};
use crate::packed::planted::{Bug, fence_for_loom, planted};
use crate::packed::route::ALWAYS_TO_ZONE;

impl Blocks<'_> {
    /// Updates a pageblock's place after frames were freed.
    #[cold]
    #[inline(never)]
    pub(super) fn after_put(&self, block: u32, new: u64, sampled: bool, domain: usize) {
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

    /// Updates hints and index for a pageblock whose label has just lost its bucket.
    pub(in crate::packed) fn unlist(&self, block: u32, was: Meta, route: u8, domain: usize) {
        let (t, bucket) = (was.migrate_type(), was.bucket());
        self.routes.set(block, route);
        self.routes.note_sparse(t, bucket, 0, domain);
        if bucket != 0 {
            self.remove_stale(block, t, bucket);
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
}
