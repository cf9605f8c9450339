//! Pageblocks, step by step: what one step does while other CPUs are between two of theirs.

use core::cell::Cell;

use super::put::SAMPLE;
use super::*;
use crate::base::units::{Order, PAGEBLOCK_PAGES, Pfn};
use crate::packed::{AddError, OwnedStorage};

type Storage = OwnedStorage<spin::Mutex<()>>;

const M: MigrateType = MigrateType::Movable;
const U: MigrateType = MigrateType::Unmovable;

/// Memory of this many pageblocks, for one CPU.
fn storage(blocks: u32) -> Storage {
    Storage::new(blocks * PAGEBLOCK_PAGES, 1, 1).unwrap()
}

#[test]
fn a_sampled_frame_or_a_full_word_updates_the_bucket() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    let sampled = |word: u32| SAMPLE << (word % 16);
    let bucket_after = |word: u32, mask: u64| {
        blocks.put(word, mask, 0);
        (blocks.free_in(0), blocks.place(0).0)
    };
    assert_eq!(bucket_after(0, !0), (64, 1));
    assert_eq!(bucket_after(1, sampled(1)), (68, 2));
    // These leave the bucket as it is, which is too low after the second one.
    assert_eq!(bucket_after(2, !sampled(2)), (128, 2));
    assert_eq!(bucket_after(3, !sampled(3)), (188, 2));
    assert_eq!(bucket_after(1, !sampled(1)), (248, 4), "a full word");
}

#[test]
fn an_entry_is_removed_unless_the_label_confirms_it() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    blocks.put(0, 1, 0);
    for (t, bucket) in [(M, 1), (M, 2), (U, 1)] {
        let set = blocks.partial(t, bucket);
        set.insert(0);
        blocks.remove_stale(0, t, bucket);
        assert_eq!(set.contains(0), (t, bucket) == (M, 1), "{t:?} {bucket}");
    }
}

#[test]
fn words_are_taken_if_all_are_full_and_else_stay() {
    let storage = storage(1);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    let words = [!0, !0, !1, !0].map(AtomicU64::new);
    let values = || words.each_ref().map(|w| w.load(SeqCst));
    // A search that ended while some of them were taken found nothing.
    blocks.notes.end(&blocks.notes.begin(6), false);
    assert!(!blocks.take_full(&words) && !blocks.notes.is_missing(6));
    assert_eq!(values(), [!0, !0, !1, !0]);
    words[2].store(!0, SeqCst);
    assert!(blocks.take_full(&words));
    assert_eq!(values(), [0; 4]);
}

/// Found by a review: a search that lost a block to another CPU went on to the next pageblock.
#[test]
fn a_block_lost_to_another_cpu_leads_to_the_next_one() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    blocks.put(8, 0xffff_ffff, 0);
    let lost = Cell::new(0);
    let take = || {
        let taken = blocks.take_direct(1, 4, 0);
        // Of what this one takes first, another CPU is the owner.
        if lost.replace(lost.get() + 1) == 0 { None } else { taken }
    };
    assert_eq!((blocks.take_while_there(1, 4, take), lost.get()), (Some(512 + 16), 2));
    assert_eq!((blocks.take_while_there(1, 4, take), lost.get()), (None, 3));
}

#[test]
fn a_block_taken_while_its_pageblock_is_isolated_goes_back() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    for order in [0u8, 6, 7] {
        (8..12).for_each(|word| blocks.put(word, !0, 0));
        let looks = Cell::new(0);
        let until_taken = |_| looks.replace(looks.get() + 1) == 0;
        assert_eq!(blocks.take_where(1, order, 0, until_taken), None, "{order}");
        assert_eq!((looks.get(), blocks.free_in(1)), (2, 256), "{order}");
        blocks.numbered_words(1).for_each(|word| _ = blocks.take(word, 6, 1, 0));
    }
}

#[test]
fn of_blocks_that_another_cpu_took_a_part_of_the_rest_is_free() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    // Pairs at frames 0, 2 and 4 of word 1 in the second pageblock; another CPU took frame 3.
    let heads = blocks.keep_complete(9, 0b11_0111, 0b01_0101, 1, 0);
    assert_eq!(heads, 0b01_0001);
    assert!(blocks.is_set(9 * 64 + 2) && blocks.free_in(1) == 1);
    assert!(blocks.partial(M, 1).contains(1), "the pageblock is in the index");
    // All of them, and none.
    assert_eq!(blocks.keep_complete(10, 0b1111, 0b0101, 1, 0), 0b0101);
    assert_eq!(blocks.keep_complete(10, 0, 0b0101, 1, 0), 0);
    assert_eq!(blocks.free_in(1), 1);
}

#[test]
fn a_pageblock_that_is_free_again_after_a_failed_take_becomes_whole() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    // Another CPU put back what it had taken, and left the rest to this one.
    blocks.words_of(1).iter().for_each(|w| w.store(!0, SeqCst));
    blocks.after_take(1, 0);
    assert!(blocks.whole().contains(1) && blocks.free_in(1) == 0);
}

#[test]
fn a_refused_block_leaves_its_pageblocks_as_they_were() {
    let storage = storage(4);
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(3 * 512)).unwrap();
    let refused = region.add_allocated(Pfn(1024), Order::MAX, M);
    assert_eq!(refused, Err(AddError::Isolated(Pfn(1024))));
    assert_eq!(region.blocks.place(2), (0, false, false));
    assert_eq!(region.blocks.block_type(2), M);
    region.add(Pfn(1024)..Pfn(1536)).unwrap();
    assert_eq!(region.whole_blocks(), 1);
}

#[test]
fn memory_added_to_an_isolated_pageblock_is_free_in_it() {
    let storage = storage(16);
    let region = storage.region(Pfn(0)).unwrap();
    region.isolate(Pfn(9 * 512)).unwrap();
    region.add(region.frames()).unwrap();
    assert_eq!((region.blocks.free_in(9), region.whole_blocks()), (512, 15));
    assert_eq!((region.double_frees(), region.free_frames()), (0, 16 * 512));
}

#[test]
fn pages_that_were_counted_twice_are_counted_again() {
    let storage = storage(2);
    let blocks = &storage.region(Pfn(0)).unwrap().blocks;
    blocks.put(8, !0, 0);
    blocks.list_set_apart(1, MigrateType::Cma);
    assert_eq!(blocks.free_in_set_apart(), (0, 64));
    // As where a page is freed while the pageblock is being listed.
    blocks.free_set_apart.add(MigrateType::Cma, 1);
    blocks.free_set_apart.add(MigrateType::HighAtomic, 2);
    blocks.recount_set_apart();
    assert_eq!(blocks.free_in_set_apart(), (0, 64));
}
