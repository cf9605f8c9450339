//! What a region has free, by order and type, and what its CPUs and depots keep.

use lock_api::RawMutex;

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CACHED_TYPES, MAX_ORDER, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, TYPES,
};
use crate::packed::bits::{self, WORDS};
use crate::packed::blocks::Blocks;
use crate::packed::class::{CLASSES, capacity, order_of};
use crate::packed::cpu::Cpu;
use crate::packed::label::BUCKETS;
use crate::packed::region::Region;
use crate::packed::set::ones;
use crate::packed::stack::ENTRIES;

/// Free blocks by order.
type Orders = [u64; MAX_ORDER as usize + 1];

/// Pageblocks of one bucket, or set apart with one type, that a short search for a block looks at.
pub(super) const SHORT_SEARCH: u32 = 8;

/// Pageblocks that tell how fragmented a large zone is.
const SAMPLED: u32 = 512;

/// Bits of a pageblock's number in the place of a search, below those of the bucket.
const PLACE_BITS: u32 = 28;

/// A search for the emptiest pageblocks of a type, each found once.
pub(crate) struct Sparsest {
    migrate_type: MigrateType,
    bucket: u32,
    /// The first pageblock of the bucket that was not looked at.
    from: u32,
    /// Free pages of partly free pageblocks, less those that the pageblocks found so far need. Summed
    /// again only when it is used up.
    room: u64,
    /// More need not be summed at once.
    most_room: u64,
}

impl Sparsest {
    /// A search from the beginning, or from the [`place`](Self::place) of another of this type, unless that
    /// is behind all pageblocks of at least the bucket `least`. `most`: how many the caller seeks; no more room
    /// is summed than these need.
    pub(crate) fn new(migrate_type: MigrateType, place: u32, least: u32, most: usize) -> Self {
        let of = |place: u32| BUCKETS.saturating_sub(place >> PLACE_BITS);
        let place = if of(place) < least { 0 } else { place };
        let bucket = of(place);
        let from = place & ((1 << PLACE_BITS) - 1);
        let most_room = u64::from(PAGEBLOCK_PAGES).saturating_mul(most as u64);
        Sparsest { migrate_type, bucket, from, room: 0, most_room }
    }

    /// Where the search is, for a search that goes on there; 0 at its beginning.
    pub(crate) fn place(&self) -> u32 {
        Sparsest::place_of(self.bucket) | self.from
    }

    /// The place of a search that begins with the pageblocks of a bucket.
    pub(crate) fn place_of(bucket: u32) -> u32 {
        (BUCKETS - bucket) << PLACE_BITS
    }
}

impl Blocks<'_> {
    /// Returns whether the zone has a free block of at least this order. Without `all` this is a short
    /// search: a zone that has no whole pageblock may have a block outside its fullest pageblocks. With
    /// `all` every pageblock is searched then, which takes time in proportion to the zone, but not twice
    /// before a block becomes free.
    #[cold]
    #[inline(never)]
    pub(crate) fn has_block(&self, order: u8, all: bool) -> bool {
        let whole = self.whole();
        if order > PAGEBLOCK_ORDER {
            return whole.words().any(|bits| bits::run_heads(bits, 1) != 0);
        }
        if whole.find(0).is_some() {
            return true;
        }
        if order == PAGEBLOCK_ORDER || self.notes.is_missing(order) {
            return false;
        }
        let types = [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];
        let serves = |block| self.serves(block, order);
        let near = types.into_iter().any(|t| {
            (1..=BUCKETS).rev().any(|bucket| {
                let mut from = 0;
                (0..SHORT_SEARCH).any(|_| {
                    let found = self.partial(t, bucket).find(from);
                    from = found.map_or(0, |block| block + 1);
                    found.is_some_and(serves)
                })
            })
        });
        near || all && self.search(order, |block| serves(block).then_some(())).is_some()
    }

    /// Looks at all pageblocks for a block of an order below a pageblock's, unless the last search found
    /// none and no such block has become free since. Begins where the last one found a block, so that
    /// requests that find one each do not all look at the pageblocks before it.
    pub(crate) fn search<T>(&self, order: u8, mut at: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let last = self.found_at.get(usize::from(order))?;
        if self.notes.is_missing(order) {
            return None;
        }
        let search = self.notes.begin(order);
        let start = last.load(Relaxed);
        let mut blocks = (start..self.len()).chain(0..start);
        let found = blocks.find_map(|block| at(block).inspect(|_| last.store(block, Relaxed)));
        self.notes.end(&search, found.is_some());
        found
    }

    /// Takes a block of a pageblock by `take`, again as long as there is one: another CPU took the one
    /// that it saw, or frames of it were faulty. A [`search`](Self::search) that left the pageblock would
    /// hide the others.
    pub(crate) fn take_while_there(
        &self,
        block: u32,
        order: u8,
        mut take: impl FnMut() -> Option<u32>,
    ) -> Option<u32> {
        loop {
            let taken = take();
            if taken.is_some() || !self.serves(block, order) {
                return taken;
            }
        }
    }

    /// Returns whether a pageblock that is neither isolated nor set apart for other requests has an
    /// aligned free run of an order below that of a pageblock.
    pub(super) fn serves(&self, block: u32, order: u8) -> bool {
        self.is_open(block) && self.has_free_run(block, order)
    }

    /// Returns whether a pageblock that is not isolated has an aligned free run of an order below
    /// that of a pageblock.
    pub(super) fn has_free_run(&self, block: u32, order: u8) -> bool {
        if self.is_isolated(block) {
            return false;
        }
        if order <= 6 {
            return self.has_run(block, order);
        }
        let full: [bool; WORDS] = self.words_now(block).map(|w| w == !0);
        full.chunks(1 << (order - 6)).any(|words| words.iter().all(|&full| full))
    }

    /// Adds a pageblock's free blocks to `orders`, each as large as its neighbours allow.
    fn add_free_blocks(&self, block: u32, orders: &mut Orders) {
        let words = self.words_now(block);
        let mut full = 0u32;
        for (i, word) in words.into_iter().enumerate() {
            if word == !0 {
                full |= 1 << i;
                continue;
            }
            if word == 0 {
                continue;
            }
            let mut heads = word;
            for (order, count) in (0..6).zip(orders.iter_mut()) {
                let pairs = bits::run_heads(word, order + 1);
                *count += u64::from((heads & !(pairs | pairs << (1 << order))).count_ones());
                heads = pairs;
            }
        }
        // Words in place of frames: orders 6 to 8, and 9 for a pageblock that is not whole yet.
        let mut heads = u64::from(full);
        for (order, count) in (0..4).zip(orders.iter_mut().skip(6)) {
            let pairs = bits::run_heads(full.into(), order + 1) & 0xff;
            *count += u64::from((heads & !(pairs | pairs << (1 << order))).count_ones());
            heads = pairs;
        }
    }

    /// Returns a pageblock's type as texts show it.
    pub(crate) fn listed_type(&self, block: u32) -> MigrateType {
        let (_, _, isolated) = self.place(block);
        if isolated {
            MigrateType::Isolate
        } else if self.whole().contains(block) {
            MigrateType::Movable
        } else {
            self.block_type(block)
        }
    }
}

impl<R: RawMutex> Region<'_, R> {
    /// Returns the free blocks of the zone by order, of pageblocks of one type or of all. Whole
    /// pageblocks count as movable, as all memory does at the start. Isolated pageblocks have the
    /// type of isolated ones.
    pub(crate) fn free_blocks(&self, of: Option<MigrateType>) -> Orders {
        let mut orders = match of {
            None | Some(MigrateType::Movable) => self.whole_blocks_by_order(),
            Some(_) => [0; MAX_ORDER as usize + 1],
        };
        for block in 0..self.blocks.len() {
            if of.is_none_or(|t| t == self.blocks.listed_type(block)) {
                self.blocks.add_free_blocks(block, &mut orders);
            }
        }
        orders
    }

    /// Returns the free blocks of the zone by order, or some that are `enough`: whole pageblocks first. In a
    /// large zone it is an estimate from pageblocks all over it, unless these have few.
    pub(crate) fn about_free_blocks(&self, enough: impl Fn(&Orders) -> bool) -> Orders {
        let whole = self.whole_blocks_by_order();
        // `times`: pageblocks for which each stands.
        let count = |blocks: &mut dyn Iterator<Item = u32>, times: u32| {
            let mut orders = whole;
            for block in blocks {
                if enough(&orders) {
                    break;
                }
                let mut own = [0; MAX_ORDER as usize + 1];
                self.blocks.add_free_blocks(block, &mut own);
                orders.iter_mut().zip(own).for_each(|(sum, n)| *sum += n * u64::from(times));
            }
            orders
        };
        let len = self.blocks.len();
        let step = len.div_ceil(SAMPLED).max(1);
        // Not the same place in each part, for layouts that repeat themselves.
        let places = (0..len.div_ceil(step)).map(|n| n * step + n * 7919 % step);
        let sampled = count(&mut places.filter(|&block| block < len), step);
        let are_many = sampled.iter().sum::<u64>() >= u64::from(step * SAMPLED) / 8;
        if step == 1 || are_many || enough(&sampled) {
            return sampled;
        }
        count(&mut (0..len), 1)
    }

    /// Returns the whole pageblocks by order.
    fn whole_blocks_by_order(&self) -> Orders {
        let mut orders = [0; MAX_ORDER as usize + 1];
        for bits in self.blocks.whole().words() {
            let pairs = u64::from(bits::run_heads(bits, 1).count_ones());
            orders[usize::from(MAX_ORDER)] += pairs;
            orders[usize::from(PAGEBLOCK_ORDER)] += u64::from(bits.count_ones()) - 2 * pairs;
        }
        orders
    }

    /// Calls `each` with the free blocks of the zone: head, order, and type as in
    /// [`free_blocks`](Self::free_blocks). For a snapshot while nothing else runs.
    pub(crate) fn for_each_free(&self, mut each: impl FnMut(u32, u8, MigrateType)) {
        for block in 0..self.blocks.len() {
            let t = self.blocks.listed_type(block);
            let (first, whole) = (block * PAGEBLOCK_PAGES, self.blocks.whole());
            if whole.contains(block) {
                // Two that are a block of the largest order are one.
                match whole.contains(block ^ 1) {
                    false => each(first, PAGEBLOCK_ORDER, t),
                    true if block.is_multiple_of(2) => each(first, MAX_ORDER, t),
                    true => {}
                }
                continue;
            }
            let mut frame = first;
            while frame < first + PAGEBLOCK_PAGES {
                let free = |order: u8| {
                    frame.is_multiple_of(1 << order)
                        && (frame..frame + (1 << order)).all(|f| self.blocks.is_set(f))
                };
                match (0..=PAGEBLOCK_ORDER).rev().find(|&order| free(order)) {
                    Some(order) => {
                        each(frame, order, t);
                        frame += 1 << order;
                    }
                    None => frame += 1,
                }
            }
        }
    }

    /// Calls `each` with the blocks that a CPU keeps: in magazines, the run, and the frames that it
    /// has collected for the zone, which have the type of their pageblock.
    pub(crate) fn for_each_kept(&self, cpu: u32, mut each: impl FnMut(u32, u8, MigrateType)) {
        let Some(part) = self.cpus.get(cpu as usize) else { return };
        // `each` runs without the lock: it may ask about this CPU.
        for class in 0..CLASSES {
            let (order, t) =
                (order_of(class), MigrateType::from_bits((class % CACHED_TYPES) as u32));
            for which in 0..2 {
                let (entries, n) = {
                    let mut own = part.own.lock();
                    let slot = own.slot(class);
                    let halves = [(slot.loaded, slot.count), (slot.previous, slot.previous_count)];
                    let (magazine, n) = halves[which];
                    (self.entries(magazine), n)
                };
                entries.into_iter().take(n as usize).for_each(|frame| each(frame, order, t));
            }
            let (base, run) = {
                let mut own = part.own.lock();
                let slot = own.slot(class);
                (slot.run_base, slot.run)
            };
            ones(run).for_each(|bit| each(base + bit, order, t));
        }
        let (word, pending) = {
            let own = part.own.lock();
            (own.pending_word, own.pending)
        };
        for bit in ones(pending) {
            let frame = word * 64 + bit;
            each(frame, 0, self.blocks.block_type(frame / PAGEBLOCK_PAGES));
        }
    }

    /// Calls `each` with the blocks in depots.
    pub(crate) fn for_each_in_depots(&self, mut each: impl FnMut(u32, u8, MigrateType)) {
        self.depots.for_each_full(|magazine, class| {
            let (order, t) =
                (order_of(class), MigrateType::from_bits((class % CACHED_TYPES) as u32));
            let entries = self.entries(magazine).into_iter().take(capacity(order) as usize);
            entries.for_each(|frame| each(frame, order, t));
        });
    }

    fn entries(&self, magazine: u32) -> [u32; ENTRIES] {
        let entries = self.magazines.get(magazine as usize).map(|m| &m.0);
        core::array::from_fn(|i| entries.map_or(0, |entries| entries[i].load(Relaxed)))
    }

    /// Finds the next pageblocks of a search, of at least this bucket, as far as the other partly free
    /// ones have room for what is in them. At the end of the search some of `found` stay `None`.
    pub(crate) fn sparse_blocks(
        &self,
        search: &mut Sparsest,
        least: u32,
        found: &mut [Option<u32>],
    ) {
        let partial = |bucket| self.blocks.partial(search.migrate_type, bucket);
        // A pageblock needs room for what is in it, and what it has free is no room for that.
        let needed = u64::from(PAGEBLOCK_PAGES);
        for (n, slot) in (0..).zip(found) {
            let next = loop {
                if search.bucket < least {
                    return;
                }
                match partial(search.bucket).find(search.from).filter(|&b| b >= search.from) {
                    Some(block) => break block,
                    None => (search.bucket, search.from) = (search.bucket - 1, 0),
                }
            };
            search.from = next + 1;
            if search.room < needed {
                // Pageblocks that could not be emptied still have room. No more is summed than is needed.
                let all = (1..=BUCKETS).rev().flat_map(|bucket| partial(bucket).members());
                let mut free = all.map(|block| u64::from(self.blocks.free_in(block)));
                let most = search.most_room;
                let add = |room, free| Some(room + free).filter(|&room| room < most);
                let room = free.try_fold(0, add).unwrap_or(most);
                search.room = room.saturating_sub(n * needed);
            }
            if search.room < needed {
                search.bucket = 0;
                return;
            }
            search.room -= needed;
            *slot = Some(next);
        }
    }

    /// Returns the pageblocks that have memory, by type.
    pub(crate) fn pageblocks(&self) -> [u64; TYPES] {
        let mut counts = [0; TYPES];
        for block in 0..self.blocks.len() {
            let first = block * PAGEBLOCK_PAGES;
            let mut frames = first..first + PAGEBLOCK_PAGES;
            if frames.any(|frame| self.state(frame).is_some_and(|state| state.is_memory())) {
                counts[self.blocks.listed_type(block) as usize % TYPES] += 1;
            }
        }
        counts
    }

    /// Returns the pages that a CPU keeps. Waits for it if it is in a request.
    pub(crate) fn kept_by(&self, cpu: u32) -> u64 {
        self.cpus.get(cpu as usize).map_or(0, |part| part.own.lock().pages())
    }

    /// Returns the pages that CPUs in no request keep, and those in depots. Waits for no one.
    pub(crate) fn kept_by_idle(&self) -> u64 {
        let idle = self.cpus.iter().filter_map(|part| part.own.try_lock());
        idle.map(|own| own.pages()).sum::<u64>() + self.depots.pages()
    }

    /// Returns whether a CPU keeps a block of a class, or collected one of its order for a pageblock from which
    /// such requests are served.
    pub(crate) fn keeps(&self, own: &Cpu, class: usize) -> bool {
        let order = order_of(class);
        let collected = || order < 6 && bits::run_heads(own.pending, order) != 0;
        own.slots.get(class).is_some_and(|slot| slot.blocks() > 0)
            || collected() && self.blocks.is_open(own.pending_word / WORDS as u32)
    }

    /// Returns whether CPUs that are not in a request, or depots, keep a block of at least this order.
    pub(crate) fn idle_keeps_block(&self, order: u8) -> bool {
        let classes = (0..CLASSES).filter(|&class| order_of(class) >= order);
        let mut idle = self.cpus.iter().filter_map(|part| part.own.try_lock());
        self.depots.has_any_full(classes.clone())
            || idle.any(|own| classes.clone().any(|class| self.keeps(&own, class)))
    }

    /// Returns the pages that CPUs keep, and those in depots. Waits for CPUs in a request.
    pub(crate) fn kept_pages(&self) -> u64 {
        let cpus: u64 = self.cpus.iter().map(|part| part.own.lock().pages()).sum();
        cpus + self.depots.pages()
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    use super::*;
    use crate::base::units::{CpuId, Order, Pfn};
    use crate::packed::OwnedStorage;

    #[test]
    fn about_free_blocks_tell_how_fragmented_a_large_zone_is() {
        let blocks = 4 * SAMPLED + 7;
        let layouts: [fn(u32, u32) -> bool; 4] = [
            |_, n| n % 3 == 0,
            |block, n| block % 4 == 1 && n % 16 < 4,
            |block, n| n.wrapping_mul(block | 1) % 7 < 2,
            // Nothing that the sample sees.
            |block, n| block == 3 && n < 300,
        ];
        for is_free in layouts {
            let storage =
                OwnedStorage::<spin::Mutex<()>>::new(blocks * PAGEBLOCK_PAGES, 1, 1).unwrap();
            let region = storage.region(Pfn(0)).unwrap();
            region.add(Pfn(0)..Pfn((blocks * PAGEBLOCK_PAGES).into())).unwrap();
            while region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).is_some() {}
            for frame in 0..blocks * PAGEBLOCK_PAGES {
                if is_free(frame / PAGEBLOCK_PAGES, frame % PAGEBLOCK_PAGES) {
                    region.free(CpuId(0), Pfn(frame.into()), Order::ZERO).unwrap();
                }
            }
            region.drain_all();
            // The index depends on the mean size of a free block.
            let [all, about] =
                [region.free_blocks(None), region.about_free_blocks(|_| false)].map(|blocks| {
                    let pages: u64 = (0..).zip(blocks).map(|(order, n)| n << order).sum();
                    pages as f64 / blocks.iter().sum::<u64>() as f64
                });
            assert!((all / about - 1.0).abs() < 0.03, "{all}, {about}");
            // No more than is needed.
            let few = region.about_free_blocks(|orders| orders.iter().sum::<u64>() > 3);
            assert!((4..3000).contains(&few.iter().sum::<u64>()), "{few:?}");
        }
    }

    #[test]
    fn free_blocks_are_as_large_as_their_neighbours_allow() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(4096)).unwrap();
        assert_eq!(region.free_blocks(None), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
        let page = region.alloc(CpuId(0), Order::ZERO, MigrateType::Unmovable).unwrap();
        region.drain_all();
        // One page of a pageblock: a free block of each order below 9 is left of it.
        assert_eq!(region.free_blocks(None), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3]);
        let movable = region.free_blocks(Some(MigrateType::Movable));
        assert_eq!(movable, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3]);
        for order in 0..=10 {
            assert!(region.blocks.has_block(order, true), "{order}");
        }
        let pageblocks = region.pageblocks();
        assert_eq!(pageblocks[MigrateType::Unmovable as usize], 1);
        assert_eq!(pageblocks[MigrateType::Movable as usize], 7);
        region.free(CpuId(0), page, Order::ZERO).unwrap();
        assert_eq!(region.kept_pages(), 1);
    }

    #[test]
    fn blocks_of_each_order_are_found_where_no_pageblock_is_whole() {
        for order in 0..=8u8 {
            let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
            let region = storage.region(Pfn(0)).unwrap();
            let pages = 1u64 << order;
            // The last block of this order in the first pageblock, and a page after it.
            region.add(Pfn(512 - pages)..Pfn(512)).unwrap();
            for o in 0..=10 {
                assert_eq!(region.blocks.has_block(o, true), o <= order, "order {o} of {order}");
            }
            let block = region.alloc(CpuId(0), Order::new(order).unwrap(), MigrateType::Movable);
            assert_eq!(block, Some(Pfn(512 - pages)));
            assert!(!region.blocks.has_block(0, true));
        }
    }

    /// A request that must not wait looks at a few pageblocks, however large the zone is.
    #[test]
    fn a_short_search_may_miss_a_block() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(512 * 64, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        for block in 0..64 {
            region.add(Pfn(block * 512)..Pfn(block * 512 + 1)).unwrap();
        }
        assert!(!region.blocks.has_block(3, true));
        // As full as the others, but for a block that lies behind them.
        region.add(Pfn(40 * 512 + 8)..Pfn(40 * 512 + 16)).unwrap();
        assert!(region.blocks.has_block(3, true) && !region.blocks.has_block(3, false));
    }

    /// While memory is in pieces, every request for a larger block would look at all pageblocks.
    #[test]
    fn a_search_that_found_nothing_is_not_repeated_before_a_block_is_free() {
        type Free = fn(&crate::packed::Region<'_, spin::Mutex<()>>);
        let ways: [(&str, Free); 4] = [
            ("a neighbour is freed", |r| r.blocks.put(0, 0b10, 0)),
            ("a pageblock with free neighbours is open again", |r| {
                _ = r.blocks.unisolate(1, None);
            }),
            ("a whole pageblock is broken up", |r| r.blocks.open(2, MigrateType::Movable)),
            ("more than was asked for is freed", |r| r.blocks.put(5, !0, 0)),
        ];
        for (way, free) in ways {
            let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1).unwrap();
            let region = storage.region(Pfn(0)).unwrap();
            let blocks = &region.blocks;
            blocks.put(0, 0b1_0101, 0);
            blocks.put(8, 0b11, 0);
            assert!(blocks.isolate(1));
            region.add(Pfn(1024)..Pfn(1536)).unwrap();
            assert!(blocks.claim(0) == Some(2) && !blocks.has_block(1, false));
            assert!(!blocks.notes.is_missing(1), "a short search notes nothing: {way}");
            assert!(!blocks.has_block(1, true) && blocks.notes.is_missing(1), "{way}");
            // What is too small changes nothing.
            blocks.put(0, 1 << 8, 0);
            assert!(blocks.notes.is_missing(1) && !blocks.has_block(1, true), "{way}");
            free(&region);
            assert!(!blocks.notes.is_missing(1) && blocks.has_block(1, true), "{way}");
        }
    }

    #[test]
    fn sparse_pageblocks_are_found_once_and_the_emptiest_first() {
        extern crate std;
        use std::vec::Vec;
        let storage = OwnedStorage::<spin::Mutex<()>>::new(16384, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(16384)).unwrap();
        let t = MigrateType::Movable;
        let mut pages: Vec<Pfn> =
            (0..8192).map(|_| region.alloc(CpuId(0), Order::ZERO, t).unwrap()).collect();
        pages.sort_unstable();
        // Of each pageblock one page in eight stays; of the last, one in sixteen.
        let stays = |pfn: &Pfn| pfn.0 % if pfn.0 / 512 == 15 { 16 } else { 8 } == 3;
        let gone = pages.iter().filter(|pfn| !stays(pfn));
        gone.for_each(|&pfn| region.free(CpuId(0), pfn, Order::ZERO).unwrap());
        region.drain_all();
        let mut found = [None; 32];
        region.sparse_blocks(&mut Sparsest::new(t, 0, 5, usize::MAX), 5, &mut found);
        let all: Vec<u32> = found.into_iter().flatten().collect();
        // What is in sixteen pageblocks fits into two.
        assert_eq!(all[0], 15);
        assert_eq!(all.len(), 14, "{all:?}");
        let mut search = Sparsest::new(t, 0, 1, usize::MAX);
        for part in all[..8].chunks(4) {
            let mut few = [None; 4];
            region.sparse_blocks(&mut search, 5, &mut few);
            assert_eq!(few.map(Option::unwrap)[..], *part);
        }
    }
}
