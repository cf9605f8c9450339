//! Requests that the loaded magazine cannot serve: the other magazine, the depots, then the zone,
//! whose fullest pageblocks come first.

use lock_api::RawMutex;

use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{CACHED_TYPES, MigrateType, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES};
use crate::packed::bits;
use crate::packed::class::{CLASSES, capacity, class_of, order_of, pages_of};
use crate::packed::cpu::{Cpu, CpuCounts, Mixing, NONE, Place, Slot};
use crate::packed::label::BUCKETS;
use crate::packed::region::Region;

/// Blocks that a refill aims at, for orders 0 to 3.
const BATCH: [u32; 4] = [64, 16, 8, 4];

/// Pageblocks of one bucket that a request looks at.
const PROBES: usize = 4;

/// The same for single pages, which every pageblock of the index can serve.
const PROBES_SINGLE: usize = 8;

/// A bucket from which on a pageblock that serves another type changes its type: more than half of
/// it is free.
const RELABEL_FROM: u32 = BUCKETS / 2 + 1;

impl<R: RawMutex> Region<'_, R> {
    /// Allocates a block of a kept order and type whose loaded magazine and run are empty. Unless
    /// the request `mixes` types, pageblocks of other types do not serve it.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(
        &self,
        cpu: &mut Cpu,
        order: u8,
        t: usize,
        mixes: bool,
    ) -> Option<u32> {
        self.poll(cpu);
        let at = cpu.at();
        let class = class_of(order, t);
        let Cpu { slots, backoff, .. } = cpu;
        let slot = &mut slots[class & 15];
        if slot.previous_count != 0 {
            core::mem::swap(&mut slot.loaded, &mut slot.previous);
            slot.count = core::mem::take(&mut slot.previous_count);
        } else if let Some(full) =
            self.depots.full_for_empty(at.domain, class, slot.loaded, backoff)
        {
            slot.loaded = full;
            slot.count = capacity(order);
            cpu.counts.depot_out += u64::from(pages_of(class));
        } else {
            self.refill(cpu, at, order, t, mixes);
            if cpu.slot(class).blocks() == 0 && cpu.pending != 0 {
                self.flush(cpu);
                self.refill(cpu, at, order, t, mixes);
            }
        }
        self.pop(cpu.slot(class)).or_else(|| {
            let frame = self.take_direct(at, order, t, mixes);
            let frame = frame
                .or_else(|| if mixes { self.take_last(Some(cpu), at, order, t) } else { None })?;
            cpu.counts.taken += 1 << order;
            Some(frame)
        })
    }

    /// Frees a block whose class has no room in the loaded magazine.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_slow(&self, cpu: &mut Cpu, frame: u32, order: u8, class: usize) {
        let drained = self.poll(cpu);
        let domain = cpu.domain as usize;
        let Cpu { slots, backoff, .. } = cpu;
        let slot = &mut slots[class & 15];
        if drained {
            // The loaded magazine has room now.
        } else if slot.previous_count == 0 {
            core::mem::swap(&mut slot.loaded, &mut slot.previous);
            slot.previous_count = core::mem::take(&mut slot.count);
        } else if slot.previous_count == capacity(order)
            && let Some(empty) = self.depots.empty_for_full(domain, class, slot.previous, backoff)
        {
            slot.previous = core::mem::replace(&mut slot.loaded, empty);
            slot.previous_count = core::mem::take(&mut slot.count);
            cpu.counts.depot_in += u64::from(pages_of(class));
        } else {
            // Only this block goes to the zone: a free that spilled a magazine would take as long
            // as 64 of them.
            slot.skip = capacity(order);
            self.free_to_zone(cpu, frame, order);
            return;
        }
        self.push(cpu.slot(class), frame);
    }

    /// Frees a block of a kept order to the zone. Blocks of one word are collected first. Returns
    /// whether any reached the zone.
    #[inline(always)]
    pub(crate) fn free_to_zone(&self, cpu: &mut Cpu, frame: u32, order: u8) -> bool {
        cpu.counts.returned += 1 << order;
        if order == PAGEBLOCK_ORDER {
            self.blocks.put_large(frame, order, cpu.domain as usize);
            return true;
        }
        let (word, mask) = (frame / 64, bits::block_mask(frame, order));
        if cpu.pending_word == word {
            cpu.pending |= mask;
            return false;
        }
        self.start_pending(cpu, word, mask);
        true
    }

    /// Frees the pending word and starts with the next one.
    #[inline(never)]
    fn start_pending(&self, cpu: &mut Cpu, word: u32, mask: u64) {
        // Fetches the line now: it is written when the next word follows.
        self.blocks.touch(word);
        self.flush(cpu);
        cpu.pending_word = word;
        cpu.pending = mask;
    }

    /// Frees the pending word.
    pub(crate) fn flush(&self, cpu: &mut Cpu) {
        let (word, mask) = (cpu.pending_word, core::mem::take(&mut cpu.pending));
        cpu.pending_word = NONE;
        if mask != 0 {
            self.blocks.put(word, mask, cpu.domain as usize);
        }
    }

    /// Frees all blocks of a magazine to the zone, words at a time where neighbours follow each
    /// other.
    fn spill(&self, magazine: u32, blocks: u32, order: u8, domain: usize) {
        let Some(magazine) = self.magazines.get(magazine as usize) else { return };
        let entries = magazine.0.iter().take(blocks as usize).map(|e| e.load(Relaxed));
        if order == PAGEBLOCK_ORDER {
            return entries.for_each(|frame| self.blocks.put_large(frame, order, domain));
        }
        let (mut word, mut mask) = (NONE, 0);
        for frame in entries {
            if frame / 64 != word {
                if mask != 0 {
                    self.blocks.put(word, mask, domain);
                }
                (word, mask) = (frame / 64, 0);
            }
            mask |= bits::block_mask(frame, order);
        }
        if mask != 0 {
            self.blocks.put(word, mask, domain);
        }
    }

    /// Returns all of a CPU's frames to the zone.
    pub(crate) fn drain_cpu(&self, cpu: &mut Cpu) {
        let at = cpu.at();
        cpu.counts.returned += cpu.pages() - u64::from(cpu.pending.count_ones());
        for class in 0..CLASSES {
            let order = order_of(class);
            let slot = cpu.slot(class);
            self.spill(slot.loaded, core::mem::take(&mut slot.count), order, at.domain);
            self.spill(slot.previous, core::mem::take(&mut slot.previous_count), order, at.domain);
            slot.skip = 0;
            let run = core::mem::take(&mut slot.run);
            if run != 0 {
                let mask = bits::fill_runs(run, order);
                self.blocks.put(slot.run_base / 64, mask, at.domain);
            }
        }
        self.flush(cpu);
        let Some(part) = self.cpus.get(at.cpu as usize) else { return };
        for current in part.shared.current() {
            let block = current.load(Relaxed);
            if block != NONE {
                current.store(NONE, Relaxed);
                self.blocks.release(block, at.domain);
            }
        }
    }

    /// Drains the CPU if another CPU asked its owner to. Returns whether it did.
    pub(crate) fn poll(&self, cpu: &mut Cpu) -> bool {
        let part = self.cpus.get(cpu.number as usize);
        let asked = part.is_some_and(|part| part.shared.take_request());
        if asked {
            self.drain_cpu(cpu);
        }
        asked
    }

    /// Returns all frames of depots to the zone, or with `surplus` a part of those that no CPU
    /// needed since the last call.
    pub(crate) fn trim_depots(&self, surplus: bool, domain: usize) {
        self.depots.trim(surplus, |magazine, class| self.spill_magazine(magazine, class, domain));
    }

    /// Returns the frames of the depot of a CPU's domain to the zone: no CPU of it is left to take them.
    pub(crate) fn empty_domain_of(&self, cpu: u32) {
        let number = self.here(cpu).domain;
        let spill = |magazine, class| self.spill_magazine(magazine, class, number);
        self.depots.empty_domain(number, spill);
    }

    /// Returns the blocks of a depot's full magazine to the zone.
    pub(crate) fn spill_magazine(&self, magazine: u32, class: usize, domain: usize) {
        let order = order_of(class);
        self.spill(magazine, capacity(order), order, domain);
        self.note_loose(pages_of(class).into());
    }

    /// Fills an empty slot from the zone.
    fn refill(&self, cpu: &mut Cpu, at: Place, order: u8, t: usize, mixes: bool) {
        let Cpu { slots, counts, .. } = cpu;
        let slot = &mut slots[class_of(order, t) & 15];
        counts.refills += 1;
        if order == PAGEBLOCK_ORDER {
            return self.refill_whole(slot, counts, at.domain);
        }
        let Some(part) = self.cpus.get(at.cpu as usize) else { return };
        let Some(kind) = part.shared.current.get(t) else { return };
        let current = &kind[usize::from(order > 0)];
        let batch = BATCH[usize::from(order) & 3];
        let enough = |want: u32| want <= batch / 2;
        let mut want = batch;
        // CPUs start their searches far from each other.
        let mut start = at.cpu.wrapping_mul(64).checked_rem(self.blocks.len()).unwrap_or(0);
        let block = current.load(Relaxed);
        if block != NONE {
            want = self.refill_from(slot, counts, block, order, want, at);
            if enough(want) {
                return;
            }
            current.store(NONE, Relaxed);
            self.blocks.release(block, at.domain);
            start = block;
        }
        let own_type = MigrateType::from_bits(t as u32);
        let probes = if order == 0 { PROBES_SINGLE } else { PROBES };
        for bucket in 1..=BUCKETS {
            let mut from = start;
            for _ in 0..probes {
                let Some(block) = self.blocks.partial(own_type, bucket).find(from) else { break };
                from = block + 1;
                if order > 0 && !self.blocks.has_run(block, order) {
                    continue;
                }
                if !self.blocks.adopt(block, own_type, at.domain) {
                    self.blocks.remove_stale(block, own_type, bucket);
                    continue;
                }
                want = self.refill_from(slot, counts, block, order, want, at);
                if enough(want) {
                    current.store(block, Relaxed);
                    return;
                }
                self.blocks.release(block, at.domain);
            }
        }
        if want < batch {
            return;
        }
        if let Some(block) = self.blocks.claim(start) {
            counts.claims += 1;
            self.blocks.open(block, own_type);
            self.refill_from(slot, counts, block, order, want, at);
            current.store(block, Relaxed);
            return;
        }
        for other in self.cpus {
            for current in &other.shared.current[t % CACHED_TYPES] {
                let block = current.load(Relaxed);
                if block != NONE && self.refill_from(slot, counts, block, order, want, at) != want {
                    return;
                }
            }
        }
        if mixes {
            self.steal(slot, counts, at, order, t, want, start);
        }
    }

    /// Fills an empty slot with whole pageblocks. Outlined: a request for any other order keeps none of
    /// this on its stack.
    #[inline(never)]
    fn refill_whole(&self, slot: &mut Slot, counts: &mut CpuCounts, domain: usize) {
        for _ in 0..capacity(PAGEBLOCK_ORDER) {
            let Some(frame) = self.claim_sound(domain) else { return };
            self.push(slot, frame);
            counts.taken += u64::from(PAGEBLOCK_PAGES);
            // Pageblocks whose memory is elsewhere are taken only for a request.
            if self.blocks.whole().fresh.find(0).is_none() {
                return;
            }
        }
    }

    /// Takes a whole pageblock without a faulty frame. Returns its first frame.
    fn claim_sound(&self, domain: usize) -> Option<u32> {
        let claim = || self.blocks.claim(0).map(|block| block * PAGEBLOCK_PAGES);
        core::iter::from_fn(claim).find(|&frame| self.is_sound(frame, PAGEBLOCK_ORDER, domain))
    }

    /// Fills a slot from a pageblock of another type, the emptiest first.
    #[cold]
    #[allow(clippy::too_many_arguments)]
    fn steal(
        &self,
        slot: &mut Slot,
        counts: &mut CpuCounts,
        at: Place,
        order: u8,
        t: usize,
        want: u32,
        start: u32,
    ) {
        let own_type = MigrateType::from_bits(t as u32);
        for other in own_type.fallbacks() {
            for bucket in (1..=BUCKETS).rev() {
                let Some(block) = self.blocks.partial(other, bucket).find(start) else { continue };
                if !self.blocks.adopt(block, other, at.domain) {
                    self.blocks.remove_stale(block, other, bucket);
                    continue;
                }
                let left = self.refill_from(slot, counts, block, order, want, at);
                if left != want {
                    counts.steals += 1;
                    if bucket >= RELABEL_FROM {
                        counts.relabels += 1;
                        self.blocks.relabel(block, other, own_type);
                    }
                }
                self.blocks.release(block, at.domain);
                if left != want {
                    return;
                }
            }
        }
    }

    /// Moves up to `want` blocks, a word of them at a time, from a pageblock to a slot. Returns how
    /// many are still wanted.
    fn refill_from(
        &self,
        slot: &mut Slot,
        counts: &mut CpuCounts,
        block: u32,
        order: u8,
        want: u32,
        at: Place,
    ) -> u32 {
        if !self.blocks.is_open(block) {
            return want;
        }
        let mut left = want;
        for (word, w) in self.blocks.numbered_words(block) {
            if left == 0 {
                break;
            }
            // A whole word in one exchange, rather than a part of it in more instructions.
            let most = if order == 0 && left > 32 { 64 } else { left };
            let mut heads = self.blocks.take((word, w), order, most, at.domain);
            if heads == 0 {
                continue;
            }
            if !self.blocks.is_open(block) {
                // The CPU that had it released it meanwhile, and another one isolated it.
                self.blocks.put(word, bits::fill_runs(heads, order), at.domain);
                break;
            }
            heads = self.sound_heads(word, heads, order, at.domain);
            counts.taken += u64::from(heads.count_ones()) << order;
            left = left.saturating_sub(heads.count_ones());
            let base = word * 64;
            if slot.run == 0 {
                slot.run_base = base;
                slot.run = heads;
                continue;
            }
            while heads != 0 && slot.count < capacity(order) {
                self.push(slot, base + heads.trailing_zeros());
                heads &= heads - 1;
            }
            if heads != 0 {
                counts.returned += u64::from(heads.count_ones()) << order;
                self.blocks.put(word, bits::fill_runs(heads, order), at.domain);
            }
        }
        left
    }

    /// Takes a block from the zone for the caller alone: orders that magazines do not keep, and
    /// the last attempt of those that they do.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_direct(&self, at: Place, order: u8, t: usize, mixes: bool) -> Option<u32> {
        let mut found = core::iter::from_fn(|| self.find_direct(at, order, t, mixes));
        found.find(|&frame| self.is_sound(frame, order, at.domain))
    }

    fn find_direct(&self, at: Place, order: u8, t: usize, mixes: bool) -> Option<u32> {
        if order > PAGEBLOCK_ORDER {
            return self.blocks.claim_pair().map(|block| block * PAGEBLOCK_PAGES);
        }
        if order == PAGEBLOCK_ORDER {
            return self.blocks.claim(0).map(|block| block * PAGEBLOCK_PAGES);
        }
        let own_type = MigrateType::from_bits(t as u32);
        if let Some(frame) = self.take_partial(at, order, own_type) {
            return Some(frame);
        }
        if let Some(block) = self.blocks.claim(0) {
            self.blocks.open(block, own_type);
            let frame = self.blocks.take_direct(block, order, at.domain);
            self.blocks.release(block, at.domain);
            if frame.is_some() {
                return frame;
            }
        }
        let frame = if mixes { self.steal_direct(at, order, own_type) } else { None };
        frame.or_else(|| self.take_active(at, order, own_type, mixes))
    }

    /// Takes a block from a pageblock of another type, the emptiest first. One that is more than half free
    /// changes its type.
    #[inline(never)]
    fn steal_direct(&self, at: Place, order: u8, own_type: MigrateType) -> Option<u32> {
        for other in own_type.fallbacks() {
            for bucket in (first_bucket(order)..=BUCKETS).rev() {
                let mut from = 0;
                for _ in 0..PROBES {
                    let Some(block) = self.blocks.partial(other, bucket).find(from) else { break };
                    from = block + 1;
                    if !self.blocks.adopt(block, other, at.domain) {
                        self.blocks.remove_stale(block, other, bucket);
                        continue;
                    }
                    let frame = self.blocks.take_direct(block, order, at.domain);
                    if frame.is_some() {
                        let relabels = bucket >= RELABEL_FROM;
                        if relabels {
                            self.blocks.relabel(block, other, own_type);
                        }
                        self.mixing.fetch_add(1 | u64::from(relabels) << 32, Relaxed);
                    }
                    self.blocks.release(block, at.domain);
                    if frame.is_some() {
                        return frame;
                    }
                }
            }
        }
        None
    }

    /// Returns what [`steal_direct`](Self::steal_direct) did since the last call, for the caller to count.
    #[inline]
    pub(crate) fn take_mixing(&self) -> Mixing {
        if self.mixing.load(Relaxed) == 0 {
            return Mixing::default();
        }
        let both = self.mixing.swap(0, Relaxed);
        Mixing { claims: 0, steals: both & u64::from(u32::MAX), relabels: both >> 32 }
    }

    /// Takes a block from a pageblock that CPUs allocate from. Not inlined, and loops rather than iterators: both
    /// would deepen the stack.
    #[inline(never)]
    fn take_active(&self, at: Place, order: u8, t: MigrateType, mixes: bool) -> Option<u32> {
        for part in self.cpus {
            for current in part.shared.current() {
                let block = current.load(Relaxed);
                if block == NONE || !mixes && self.blocks.block_type(block) != t {
                    continue;
                }
                if let frame @ Some(_) = self.blocks.take_direct(block, order, at.domain) {
                    return frame;
                }
            }
        }
        None
    }

    /// The last attempt of a request that would fail: drains the CPU and the depots, then looks at
    /// every pageblock. Long, but a request that fails takes longer elsewhere. Not for one that does
    /// not mix types: it tries elsewhere first, and comes back without that restriction.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_last(
        &self,
        cpu: Option<&mut Cpu>,
        at: Place,
        order: u8,
        t: usize,
    ) -> Option<u32> {
        if let Some(cpu) = cpu {
            self.drain_cpu(cpu);
        }
        self.trim_depots(false, at.domain);
        self.take_direct(at, order, t, true).or_else(|| {
            if order >= PAGEBLOCK_ORDER {
                let block = self.blocks.claim_unsummarized(order)?;
                let frame = block * PAGEBLOCK_PAGES;
                return self.is_sound(frame, order, at.domain).then_some(frame);
            }
            self.blocks.search(order, |block| {
                let taken = || self.blocks.take_direct(block, order, at.domain);
                let sound = |&frame: &u32| self.is_sound(frame, order, at.domain);
                self.blocks.take_while_there(block, order, || taken().filter(sound))
            })
        })
    }

    /// Takes a block from a partly free pageblock of a type, the fullest first, then from that where the last
    /// search of all pageblocks found one.
    fn take_partial(&self, at: Place, order: u8, t: MigrateType) -> Option<u32> {
        let fullest = (first_bucket(order)..=BUCKETS).find_map(|bucket| {
            let mut from = 0;
            (0..PROBES).find_map(|_| {
                let block = self.blocks.partial(t, bucket).find(from)?;
                from = block + 1;
                let taken = self.blocks.take_direct(block, order, at.domain);
                if taken.is_none() && self.blocks.place(block).0 != bucket {
                    self.blocks.remove_stale(block, t, bucket);
                }
                taken
            })
        });
        fullest.or_else(|| {
            let last = self.blocks.found_at.get(usize::from(order))?.load(Relaxed);
            let is_own = self.blocks.block_type(last) == t;
            is_own.then(|| self.blocks.take_direct(last, order, at.domain))?
        })
    }
}

/// The first bucket whose pageblocks may have a free block: one below holds pageblocks with fewer free
/// frames.
fn first_bucket(order: u8) -> u32 {
    ((1u32 << order) / 64).max(1)
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use std::collections::BTreeSet;

    use crate::base::units::{CpuId, MigrateType, Order, Pfn};
    use crate::packed::OwnedStorage;

    /// Found by a review: a request failed while another CPU was adding the pageblocks that could serve it.
    #[test]
    fn whole_pageblocks_serve_before_the_summary_says_so() {
        // Two words of pageblocks: the first word is read in any case.
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 16, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(1 << 16)).unwrap();
        let mut taken = BTreeSet::new();
        let mut alloc = |order: u8| {
            region.blocks.whole().fresh.forget_summary();
            let t = MigrateType::Movable;
            let pfn = region.alloc(CpuId(0), Order::new(order).unwrap(), t)?;
            let blocks = pfn.0 / 512..(pfn.0 + (1 << order)) / 512;
            assert!(pfn.0 % (1 << order) == 0 && blocks.into_iter().all(|b| taken.insert(b)));
            Some(pfn)
        };
        assert_eq!((0..40).filter(|_| alloc(10).is_some()).count(), 40);
        assert_eq!((0..48).filter(|_| alloc(9).is_some()).count(), 48);
        assert_eq!((alloc(9), alloc(10)), (None, None));
    }

    #[test]
    fn a_refill_looks_at_eight_pageblocks_for_single_pages_and_at_four_for_larger_blocks() {
        for (order, pageblocks) in [(0u8, 8), (1, 4)] {
            let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
            let region = storage.region(Pfn(0)).unwrap();
            (0..12).for_each(|block| region.blocks.put(block * 8, 0b1111 >> (2 * order), 0));
            let block = region.alloc(CpuId(0), Order::new(order).unwrap(), MigrateType::Movable);
            assert!(block.is_some());
            let counts = region.counts(CpuId(0)).unwrap();
            let each = 4 >> order;
            assert_eq!((counts.refills, counts.taken, counts.returned), (1, pageblocks * each, 0));
        }
    }

    /// Found by a review: the search left a pageblock at its first block if that had a faulty frame, and
    /// hid the next one.
    #[test]
    fn a_search_passes_over_a_block_with_a_faulty_frame() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        // More pageblocks in pieces than requests look at before they search.
        (0..20).for_each(|block| region.blocks.put(block * 8, 0x5555, 0));
        (0..2).for_each(|word| region.blocks.put(20 * 8 + word, 0xff, 0));
        let first = 20 * 512;
        assert!(region.mark(first) && region.blocks.is_marked(first));
        let order = Order::new(3).unwrap();
        let block = region.alloc(CpuId(0), order, MigrateType::Movable);
        assert_eq!(block, Some(Pfn(u64::from(first) + 64)));
        assert_eq!(region.alloc(CpuId(0), order, MigrateType::Movable), None);
    }

    #[test]
    fn pages_that_pass_through_depots_are_counted() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 14, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(region.frames()).unwrap();
        let t = MigrateType::Movable;
        let alloc = || region.alloc(CpuId(0), Order::ZERO, t).unwrap();
        let pages: [Pfn; 300] = core::array::from_fn(|_| alloc());
        for page in pages {
            region.free(CpuId(0), page, Order::ZERO).unwrap();
        }
        // Two magazines of the CPU are full; the third one has room.
        let counts = || region.counts(CpuId(0)).unwrap();
        assert_eq!((counts().refills, counts().depot_in, counts().depot_out), (5, 192, 0));
        _ = pages.map(|_| alloc());
        assert_eq!((counts().refills, counts().depot_in, counts().depot_out), (5, 192, 192));
    }

    #[test]
    fn a_request_removes_stale_entries_of_the_index() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        let (blocks, t) = (&region.blocks, MigrateType::Movable);
        blocks.partial(t, 1).insert(0);
        blocks.put(8, !0, 0);
        assert_eq!(region.alloc(CpuId(0), Order::new(4).unwrap(), t), Some(Pfn(512)));
        assert!(!blocks.partial(t, 1).contains(0) && blocks.partial(t, 1).contains(1));
        // One that has no run long enough stays.
        assert_eq!(region.take_direct(region.here(0), 6, t as usize, false), None);
        assert!(blocks.partial(t, 1).contains(1));
    }

    /// Of two frees by `free_owned`, the second finds free frames: it frees the others alone.
    #[test]
    fn a_free_of_free_frames_is_undone_and_counted() {
        let storage = OwnedStorage::<spin::Mutex<()>>::new(1024, 1, 1).unwrap();
        let region = storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(1024)).unwrap();
        let page = region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).unwrap();
        region.drain_all();
        let (word, bit) = (page.0 as u32 / 64, page.0 as u32 % 64);
        let block = page.0 as u32 / 512;
        assert!(bit < 63 && region.blocks.free_in(block) == 511);
        region.blocks.put(word, 1 << (bit + 1), 0);
        assert_eq!((region.double_frees(), region.blocks.free_in(block)), (1, 511));
        region.blocks.put(word, 3 << bit, 0);
        assert_eq!((region.double_frees(), region.whole_blocks()), (2, 2));
    }
}
