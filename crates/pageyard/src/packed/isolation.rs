//! Isolated pageblocks: nothing is allocated from them, and what is freed stays in them.

use core::fmt;

use lock_api::RawMutex;

use crate::base::sync::Ordering::SeqCst;
use crate::base::units::{MigrateType, PAGEBLOCK_PAGES, Pfn};
use crate::packed::blocks::Blocks;
use crate::packed::label::Meta;
use crate::packed::planted::{Bug, planted};
use crate::packed::region::Region;
use crate::packed::route::ALWAYS_TO_ZONE;

/// Why a pageblock was not isolated, or its isolation not ended. Nothing has changed.
///
/// ```
/// use pageyard::packed::{IsolateError, OwnedStorage};
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(4096))?;
/// let page = region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).expect("plenty");
/// assert_eq!(region.isolate(page), Err(IsolateError::Busy), "the CPU refills from there");
/// region.drain_all();
/// region.isolate(page)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsolateError {
    /// The frame lies outside the region.
    Foreign,
    /// The pageblock is isolated already.
    Isolated,
    /// The pageblock is not isolated.
    NotIsolated,
    /// A CPU refills from the pageblock, until it is drained; or it is allocated as a whole.
    Busy,
}

impl fmt::Display for IsolateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IsolateError::Foreign => "the frame lies outside the region",
            IsolateError::Isolated => "the pageblock is isolated already",
            IsolateError::NotIsolated => "the pageblock is not isolated",
            IsolateError::Busy => {
                "a CPU refills from the pageblock, or it is one allocated block: drain the CPUs, or free it"
            }
        })
    }
}

impl core::error::Error for IsolateError {}

impl<R: RawMutex> Region<'_, R> {
    /// Stops allocation from the pageblock of a frame. What is freed stays in the pageblock.
    ///
    /// Frames of the pageblock that CPUs and depots keep are allocated until they are
    /// [drained](Region::drain_all).
    ///
    /// # Errors
    /// [`IsolateError`].
    pub fn isolate(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let block = self.index_of(pfn).ok_or(IsolateError::Foreign)? / PAGEBLOCK_PAGES;
        self.depots.close();
        if self.blocks.isolate(block) {
            return Ok(());
        }
        self.depots.open();
        let isolated = self.blocks.is_isolated(block);
        Err(if isolated { IsolateError::Isolated } else { IsolateError::Busy })
    }

    /// Ends [`isolate`](Region::isolate).
    ///
    /// # Errors
    /// [`IsolateError`].
    pub fn unisolate(&self, pfn: Pfn) -> Result<(), IsolateError> {
        let block = self.index_of(pfn).ok_or(IsolateError::Foreign)? / PAGEBLOCK_PAGES;
        if !self.blocks.unisolate(block, None) {
            return Err(IsolateError::NotIsolated);
        }
        self.depots.open();
        Ok(())
    }

    /// Isolates a pageblock, as [`isolate`](Region::isolate), and counts its free pages as taken.
    /// The caller serialises this with [`unisolate_block`](Self::unisolate_block).
    pub(crate) fn isolate_block(&self, block: u32) -> bool {
        self.depots.close();
        let done = self.blocks.isolate(block);
        if done {
            let free = self.blocks.free_in(block);
            self.blocks.add_withheld(block, free);
            self.note_loose(-i64::from(free));
        } else {
            self.depots.open();
        }
        done
    }

    /// Ends [`isolate_block`](Self::isolate_block): the pages counted as taken are free again. The
    /// pageblock gets type `t`.
    pub(crate) fn unisolate_block(&self, block: u32, t: MigrateType) -> bool {
        let withheld = self.blocks.withheld(block);
        let done = self.blocks.unisolate(block, Some(t));
        if done {
            self.depots.open();
            self.note_loose(withheld.into());
        }
        done
    }

    /// Counts the pages that isolation counted as taken again, because the pageblock's frames were
    /// taken meanwhile. It stays isolated.
    pub(crate) fn count_again(&self, block: u32) {
        self.note_loose(self.blocks.withheld(block).into());
        self.blocks.set_withheld(block, 0);
        // Nothing of it is in a magazine: its memory is gone.
        self.depots.open();
    }

    /// Returns how many more pages are free in isolated pageblocks than when they were isolated.
    pub(crate) fn freed_into_isolated(&self) -> i64 {
        let isolated = (0..self.blocks.len()).filter(|&block| self.blocks.is_isolated(block));
        let freed = isolated.map(|block| {
            i64::from(self.blocks.free_in(block)) - i64::from(self.blocks.withheld(block))
        });
        freed.sum()
    }

    /// Returns the pages that isolated pageblocks withhold from the zone's counter.
    pub(crate) fn withheld_pages(&self) -> u64 {
        (0..self.blocks.len()).map(|block| u64::from(self.blocks.withheld(block))).sum()
    }
}

/// The domain in which isolations count pageblocks: they are rare, and have no CPU.
const COUNTING_DOMAIN: usize = 0;

impl Blocks<'_> {
    /// Stops allocation from a pageblock; frames that are freed stay there. Returns false if the
    /// pageblock is isolated or active: a CPU that refills from it must be drained first.
    pub(crate) fn isolate(&self, block: u32) -> bool {
        let Some(label) = self.label(block) else { return false };
        let mut meta = Meta(label.load(SeqCst));
        loop {
            if meta.is_isolated() {
                return false;
            }
            if meta.is_set_apart() {
                // The type stays, and says so until the isolation ends.
                let new = meta.0 & !Meta::ACTIVE | Meta::ISOLATED;
                match label.compare_exchange(meta.0, new, SeqCst, SeqCst) {
                    Ok(_) => {
                        self.unlist_set_apart(block, meta.migrate_type());
                        self.routes.set(block, ALWAYS_TO_ZONE);
                    }
                    Err(now) => {
                        meta = Meta(now);
                        continue;
                    }
                }
                return true;
            }
            if meta.0 & Meta::ACTIVE != 0 {
                if !self.whole().remove(block) && !planted(Bug::NoOwnership) {
                    return false;
                }
                // The bit gave the pageblock and its frames to this call. The label comes last:
                // another CPU may end the isolation as soon as it sees it.
                for w in self.words_of(block) {
                    w.store(!0, SeqCst);
                }
                self.routes.set(block, ALWAYS_TO_ZONE);
                label.store(meta.migrate_type() as u32 | Meta::ISOLATED, SeqCst);
                return true;
            }
            let new = meta.with_bucket(0).0 | Meta::ISOLATED;
            match label.compare_exchange(meta.0, new, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => meta = Meta(now),
            }
        }
        self.unlist(block, meta, ALWAYS_TO_ZONE, COUNTING_DOMAIN);
        true
    }

    /// Ends [`isolate`](Self::isolate). The pageblock gets type `to`, or keeps its own; a CMA or
    /// highatomic type sets it apart. One that is allocated as a whole meanwhile stays so. Returns false,
    /// with nothing changed, if the pageblock is not isolated.
    pub(crate) fn unisolate(&self, block: u32, to: Option<MigrateType>) -> bool {
        let Some(label) = self.label(block) else { return false };
        let mut meta = Meta(label.load(SeqCst));
        loop {
            if !meta.is_isolated() {
                return false;
            }
            let t = to.unwrap_or(meta.migrate_type());
            // Active until its place is known, as any other pageblock that changes hands.
            let new = Meta::of(t, 0).0 | Meta::ACTIVE;
            match label.compare_exchange(meta.0, new, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(now) => meta = Meta(now),
            }
        }
        let t = to.unwrap_or(meta.migrate_type());
        if t.is_set_apart() {
            self.list_set_apart(block, t);
            return true;
        }
        // Its words did not count before.
        self.notes.note_free(8);
        self.routes.set(block, 0);
        if meta.0 & Meta::ACTIVE == 0 {
            self.release(block, COUNTING_DOMAIN);
        }
        true
    }

    /// Ends the allocation of an isolated pageblock as a whole: it stays isolated, and its frames will
    /// be bits. Returns false, with nothing changed, for one that is not isolated.
    pub(super) fn deactivate_isolated(&self, block: u32) -> bool {
        let Some(label) = self.label(block) else { return false };
        let change = |now| Meta(now).is_isolated().then_some(now & !Meta::ACTIVE);
        label.fetch_update(SeqCst, SeqCst, change).is_ok()
    }

    /// Notes free pages of an isolated pageblock that the zone does not count, besides those noted
    /// before.
    pub(crate) fn add_withheld(&self, block: u32, pages: u32) {
        if let Some(label) = self.label(block) {
            label.fetch_add(pages << Meta::WITHHELD.trailing_zeros(), SeqCst);
        }
    }

    /// Sets how many free pages of an isolated pageblock the zone does not count.
    pub(crate) fn set_withheld(&self, block: u32, pages: u32) {
        if let Some(label) = self.label(block) {
            let withheld = pages << Meta::WITHHELD.trailing_zeros();
            _ = label.fetch_update(SeqCst, SeqCst, |now| Some(now & !Meta::WITHHELD | withheld));
        }
    }

    /// Returns how many free pages of a pageblock the zone does not count.
    pub(crate) fn withheld(&self, block: u32) -> u32 {
        let meta = self.meta(block);
        if meta.is_isolated() {
            (meta.0 & Meta::WITHHELD) >> Meta::WITHHELD.trailing_zeros()
        } else {
            0
        }
    }

    /// Notes that compaction isolated a pageblock.
    pub(crate) fn set_compacted(&self, block: u32) {
        if let Some(label) = self.label(block) {
            label.fetch_or(Meta::COMPACTED, SeqCst);
        }
    }

    /// Returns whether a pageblock is isolated, by compaction.
    pub(crate) fn is_compacted(&self, block: u32) -> bool {
        let both = Meta::ISOLATED | Meta::COMPACTED;
        self.meta(block).0 & both == both
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::packed::OwnedStorage;

    #[test]
    fn pages_counted_as_taken_count_again_and_the_pageblock_stays_isolated() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(4000)).unwrap();
        region.take_loose();
        let t = MigrateType::Movable;
        for (block, pages) in [(3, 512), (7, 4000 % 512)] {
            assert!(region.isolate_block(block) && !region.isolate_block(block));
            region.blocks.set_compacted(block);
            let withheld = (region.blocks.withheld(block), region.withheld_pages());
            assert_eq!(
                (withheld, region.loose_pages()),
                ((pages, pages.into()), -i64::from(pages))
            );
            region.count_again(block);
            assert_eq!((region.withheld_pages(), region.take_loose()), (0, 0));
            assert!(region.blocks.is_compacted(block));
            assert_eq!((region.blocks.block_type(block), region.blocks.free_in(block)), (t, pages));
        }
    }
}
