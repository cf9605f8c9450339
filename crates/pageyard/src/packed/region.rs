//! A range of frames under the packed engine: allocation, free, drains, isolation.

use core::fmt;
use core::num::NonZeroU32;
use core::ops::Range;

use lock_api::RawMutex;

use crate::base::free_error::FreeError;
#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{AtomicI64, AtomicU64};
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{
    CACHED_TYPES, CpuId, MAX_ORDER, MigrateType, Order, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn,
};
use crate::packed::bits::words_of_frames;
use crate::packed::blocks::Blocks;
use crate::packed::class::{CLASSES, capacity, class_of, is_kept};
use crate::packed::cpu::{Cpu, CpuCounts, PerCpu, Place, Slot};
use crate::packed::domain::Depots;
use crate::packed::stack::Magazine;
use crate::packed::storage::{FrameState, Needs, RegionError, Storage};

/// Why frames were not added. Nothing has changed.
///
/// ```
/// use pageyard::Pfn;
/// use pageyard::packed::{AddError, OwnedStorage};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(4096, 1, 1)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(100))?;
/// assert_eq!(region.add(Pfn(99)..Pfn(200)), Err(AddError::Present(Pfn(99))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddError {
    /// The frame lies outside the region.
    Foreign(Pfn),
    /// The frame was added before.
    Present(Pfn),
    /// The block is not aligned to its size.
    Misaligned(Pfn),
    /// A pageblock of the block is isolated.
    Isolated(Pfn),
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::Foreign(pfn) => write!(f, "frame {pfn} lies outside the region"),
            AddError::Present(pfn) => write!(f, "frame {pfn} was added before"),
            AddError::Misaligned(pfn) => write!(f, "the block at {pfn} is not aligned to its size"),
            AddError::Isolated(pfn) => write!(f, "a pageblock of the block at {pfn} is isolated"),
        }
    }
}

impl core::error::Error for AddError {}

/// One contiguous range of frames under the packed engine.
///
/// All methods take `&self` and may run on all CPUs at once. A request names the CPU that it runs
/// on; if that CPU's lock is held (a request was interrupted, or another CPU drains it), it goes to
/// the zone, which takes no lock.
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// // 1 GiB for four CPUs, two of which share a cache.
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 18, 4, 2)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(256)..Pfn(1 << 18))?;
///
/// let page = region.alloc(CpuId(0), Order::ZERO, MigrateType::Unmovable).expect("plenty");
/// region.free(CpuId(3), page, Order::ZERO)?;
/// assert!(region.free(CpuId(3), page, Order::ZERO).is_err(), "a double free is an error");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region<'a, R: RawMutex> {
    states: &'a [FrameState],
    pub(crate) magazines: &'a [Magazine],
    pub(crate) cpus: &'a [PerCpu<R>],
    /// The frame of index 0: the start of the largest block with the first frame.
    base: u64,
    frames: Range<u32>,
    pub(crate) blocks: Blocks<'a>,
    pub(crate) depots: Depots<'a>,
    /// Pages that went to the zone, less those taken, that no CPU's counts have and the zone has not
    /// counted yet.
    loose: AtomicI64,
    /// Pageblocks of another type that served requests without a CPU's counts, in the lower half, and those
    /// among them that changed their type, since they were last [taken](Self::take_mixing).
    pub(super) mixing: AtomicU64,
}

impl<R: RawMutex> fmt::Debug for Region<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("base", &self.base)
            .field("frames", &self.frames)
            .field("cpus", &self.cpus.len())
            .finish_non_exhaustive()
    }
}

impl<'a, R: RawMutex> Region<'a, R> {
    /// Creates a region of `frames` frames from `first` on, none of which is there yet.
    ///
    /// `cpus_per_domain` CPUs with neighbouring numbers share a cache and hence a depot. `storage`
    /// must be of the size that [`Needs`] states for the same numbers, and unused.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn new(
        first: Pfn,
        frames: u32,
        cpus_per_domain: u32,
        storage: Storage<'a, R>,
    ) -> Result<Self, RegionError> {
        let cpus = storage.cpus.len() as u32;
        let needs = Needs::of(first, frames, cpus, cpus_per_domain)?;
        storage.check(&needs)?;
        let per_domain = NonZeroU32::new(cpus_per_domain).ok_or(RegionError::NoCpu)?;
        let Storage {
            states,
            words,
            faulty,
            labels,
            routes,
            index,
            magazines,
            links,
            cpus,
            domains,
        } = storage;
        let start = Needs::before(first);
        let base = first.0 - u64::from(start);
        let region = Region {
            states,
            magazines,
            cpus,
            base,
            frames: start..start + frames,
            blocks: Blocks::new(words, faulty, labels, routes, index, domains),
            depots: Depots::new(domains, links, per_domain, needs.depot_pages),
            loose: AtomicI64::new(0),
            mixing: AtomicU64::new(0),
        };
        let mut spare = 0..needs.magazines as u32;
        for (number, part) in cpus.iter().enumerate() {
            let mut cpu = part.own.try_lock().ok_or(RegionError::InUse)?;
            // The first CPU decides: of several calls, one finds it unused.
            if cpu.is_in_use() {
                return Err(RegionError::InUse);
            }
            cpu.number = number as u32;
            cpu.domain = cpu.number / per_domain;
            for class in 0..CLASSES {
                let slot = cpu.slot(class);
                slot.loaded = spare.next().ok_or(RegionError::InUse)?;
                slot.previous = spare.next().ok_or(RegionError::InUse)?;
            }
        }
        spare.for_each(|magazine| region.depots.add_spare(magazine));
        Ok(region)
    }

    /// Returns the number of CPUs.
    pub fn cpus(&self) -> u32 {
        self.cpus.len() as u32
    }

    /// Returns the region's frames, added or not.
    pub fn frames(&self) -> Range<Pfn> {
        self.pfn(self.frames.start)..self.pfn(self.frames.end)
    }

    #[inline(always)]
    pub(crate) fn pfn(&self, frame: u32) -> Pfn {
        Pfn(self.base.wrapping_add(u64::from(frame)))
    }

    #[inline(always)]
    pub(crate) fn state(&self, frame: u32) -> Option<&FrameState> {
        self.states.get(frame as usize)
    }

    /// Returns the index of a frame of the region.
    pub(crate) fn index_of(&self, pfn: Pfn) -> Option<u32> {
        let frame = u32::try_from(pfn.0.checked_sub(self.base)?).ok()?;
        self.frames.contains(&frame).then_some(frame)
    }

    /// Returns where an operation of a CPU runs that does not have the CPU's part.
    pub(crate) fn here(&self, cpu: u32) -> Place {
        Place { cpu, domain: self.depots.domain_of(cpu) }
    }

    /// Adds free frames: memory that the caller has and no longer uses. Pageblocks of which some
    /// frames are never added work; they never become whole.
    ///
    /// # Errors
    /// [`AddError`] for a frame that lies outside, or that was added before; nothing has changed.
    pub fn add(&self, range: Range<Pfn>) -> Result<(), AddError> {
        self.add_as(range, false)
    }

    /// Adds free frames that were reserved so far, or that were not there.
    pub(crate) fn add_as(&self, range: Range<Pfn>, reserved: bool) -> Result<(), AddError> {
        self.begin_add(range.clone(), reserved)?;
        self.note_loose(range.end.0.saturating_sub(range.start.0) as i64);
        let at = self.here(0);
        let mut next = range.start;
        while next < range.end {
            let Some(frame) = self.index_of(next) else { break };
            let block = frame / PAGEBLOCK_PAGES;
            let end = ((block + 1) * PAGEBLOCK_PAGES).min(frame + (range.end.0 - next.0) as u32);
            if end - frame == PAGEBLOCK_PAGES && !self.blocks.is_tainted(block) {
                self.blocks.add_whole(block, at.domain);
            } else {
                self.add_frames(frame..end, at);
            }
            next = self.pfn(end);
        }
        Ok(())
    }

    /// Marks frames that were not added as memory in use from the start.
    pub(crate) fn reserve(&self, range: Range<Pfn>) {
        let frames = (range.start.0..range.end.0).filter_map(|pfn| self.index_of(Pfn(pfn)));
        frames.filter_map(|frame| self.state(frame)).for_each(FrameState::reserve);
    }

    /// Marks all frames of a range as present, so that concurrent calls cannot add one twice.
    fn begin_add(&self, range: Range<Pfn>, reserved: bool) -> Result<(), AddError> {
        let frames = (range.start.0..range.end.0).map(Pfn);
        for (n, pfn) in frames.clone().enumerate() {
            let marked = match self.index_of(pfn).and_then(|frame| self.state(frame)) {
                None => Err(AddError::Foreign(pfn)),
                Some(state) if state.begin_add(reserved) => Ok(()),
                Some(_) => Err(AddError::Present(pfn)),
            };
            if marked.is_err() {
                self.roll_back_add(range.start..Pfn(range.start.0 + n as u64), reserved);
                return marked;
            }
        }
        Ok(())
    }

    fn roll_back_add(&self, range: Range<Pfn>, reserved: bool) {
        let frames = (range.start.0..range.end.0).filter_map(|pfn| self.index_of(Pfn(pfn)));
        let states = frames.filter_map(|frame| self.state(frame));
        states.for_each(|state| state.roll_back_add(reserved));
    }

    /// Adds frames as an allocated block: memory that its owner will free later, such as what a boot
    /// loader left.
    ///
    /// # Errors
    /// [`AddError`]; nothing has changed then.
    pub fn add_allocated(&self, pfn: Pfn, order: Order, t: MigrateType) -> Result<(), AddError> {
        let end = pfn.0.saturating_add(order.pages().into());
        if !pfn.0.is_multiple_of(order.pages().into()) {
            return Err(AddError::Misaligned(pfn));
        }
        self.begin_add(pfn..Pfn(end), false)?;
        let Some(frame) = self.index_of(pfn) else { return Ok(()) };
        let first = frame / PAGEBLOCK_PAGES;
        let blocks = first..first + order.pages() / PAGEBLOCK_PAGES;
        for block in blocks.clone() {
            if !self.blocks.activate(block) {
                (blocks.start..block).for_each(|block| self.blocks.deactivate(block));
                self.roll_back_add(pfn..Pfn(end), false);
                return Err(AddError::Isolated(pfn));
            }
        }
        if let Some(state) = self.state(frame) {
            state.set_allocated(order.get(), (t as usize).min(CACHED_TYPES - 1));
        }
        Ok(())
    }

    fn add_frames(&self, frames: Range<u32>, at: Place) {
        for (word, mask) in words_of_frames(frames) {
            let kept = self.keep_taken(word, mask);
            if mask != kept {
                self.blocks.put(word, mask & !kept, at.domain);
            }
        }
    }

    /// Allocates a block of 2^`order` frames, aligned to its size, for the CPU that the caller runs
    /// on.
    ///
    /// Frames of one type come from the same pageblocks, as far as memory allows. Pageblocks are
    /// unmovable, movable or reclaimable; requests of other types fail.
    ///
    /// A request that finds nothing else drains its own CPU and the depots and looks at every
    /// pageblock. Returns `None` if the CPU does not exist, or no block is free but for those that
    /// other CPUs keep: [drain](Region::drain_all) them and try again.
    #[inline]
    pub fn alloc(&self, cpu: CpuId, order: Order, t: MigrateType) -> Option<Pfn> {
        let part = self.cpus.get(cpu.0 as usize)?;
        match part.own.try_lock() {
            Some(mut own) => self.alloc_on(&mut own, order, t),
            None => self.alloc_direct(None, order, t, self.here(cpu.0)),
        }
    }

    #[inline(always)]
    pub(crate) fn alloc_on(&self, cpu: &mut Cpu, order: Order, t: MigrateType) -> Option<Pfn> {
        let (o, t) = (order.get(), t as usize);
        if !is_kept(o) || t >= CACHED_TYPES {
            let (t, at) = (MigrateType::from_bits(t as u32), cpu.at());
            return self.alloc_direct(Some(cpu), order, t, at);
        }
        let frame = match self.pop(cpu.slot(class_of(o, t))) {
            Some(frame) => frame,
            None => self.alloc_slow(cpu, o, t, true)?,
        };
        self.state(frame)?.set_allocated(o, t);
        Some(self.pfn(frame))
    }

    /// Allocates from the zone. `cpu` is the CPU's own part, if the caller has it.
    #[cold]
    #[inline(never)]
    fn alloc_direct(
        &self,
        cpu: Option<&mut Cpu>,
        order: Order,
        t: MigrateType,
        at: Place,
    ) -> Option<Pfn> {
        self.take_alone(cpu, at, order.get(), t, true).map(|frame| self.pfn(frame))
    }

    /// Takes a block of any order from the zone for a request that the CPU's magazines do not serve.
    /// Pageblocks of other types serve it if the request `mixes` types.
    pub(crate) fn take_alone(
        &self,
        cpu: Option<&mut Cpu>,
        at: Place,
        order: u8,
        t: MigrateType,
        mixes: bool,
    ) -> Option<u32> {
        let t = t as usize;
        if t >= CACHED_TYPES {
            return None;
        }
        let frame = self.take_direct(at, order, t, mixes);
        let last = || if mixes { self.take_last(cpu, at, order, t) } else { None };
        let frame = frame.or_else(last)?;
        self.note_loose(-(1i64 << order));
        self.state(frame)?.set_allocated(order, t);
        Some(frame)
    }

    /// Pops a block from the loaded magazine or the run.
    #[inline(always)]
    pub(crate) fn pop(&self, slot: &mut Slot) -> Option<u32> {
        if let Some(n) = slot.count.checked_sub(1) {
            let entries = &self.magazines.get(slot.loaded as usize)?.0;
            slot.count = n;
            return Some(entries[n as usize & 63].load(Relaxed));
        }
        if slot.run == 0 {
            return None;
        }
        let frame = slot.run_base + slot.run.trailing_zeros();
        slot.run &= slot.run - 1;
        Some(frame)
    }

    /// Pushes a block on the loaded magazine, which must have room.
    #[inline(always)]
    pub(crate) fn push(&self, slot: &mut Slot, frame: u32) {
        if let Some(Magazine(entries)) = self.magazines.get(slot.loaded as usize) {
            entries[slot.count as usize & 63].store(frame, Relaxed);
            slot.count += 1;
        }
    }

    /// Frees a block that [`alloc`](Region::alloc) allocated. If several threads free one block
    /// concurrently, one of them succeeds.
    ///
    /// # Errors
    /// [`FreeError`] if the block or its order is wrong; nothing has changed.
    #[inline]
    pub fn free(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_as::<false>(cpu, pfn, order)
    }

    /// Frees a block like [`free`](Region::free), but the caller guarantees that no other thread
    /// frees it concurrently, as a type that owns the block does. Saves one atomic exchange.
    ///
    /// If two threads do free one block at once, both may succeed. Two requests may then get it, or
    /// one of the neighbours in its group of 64 frames. [`double_frees`](Region::double_frees)
    /// counts those that were noticed later.
    ///
    /// # Errors
    /// As [`free`](Region::free).
    #[inline]
    pub fn free_owned(&self, cpu: CpuId, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.free_as::<true>(cpu, pfn, order)
    }

    #[inline(always)]
    fn free_as<const OWNED: bool>(
        &self,
        cpu: CpuId,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        let Some(part) = self.cpus.get(cpu.0 as usize) else {
            return Err(FreeError::UnknownCpu(cpu));
        };
        match part.own.try_lock() {
            Some(mut own) => self.free_on::<OWNED>(&mut own, pfn, order),
            None => self.free_direct(cpu.0, pfn, order),
        }
    }

    #[inline(always)]
    pub(crate) fn free_on<const OWNED: bool>(
        &self,
        cpu: &mut Cpu,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), FreeError> {
        let o = order.get();
        let Some((frame, t)) = self.begin_free::<OWNED>(pfn, o) else {
            return Err(self.why_not(pfn, order));
        };
        self.put_block(cpu, frame, o, t);
        Ok(())
    }

    /// Returns a block that has left its owner to the CPU's magazines or to the zone. Returns
    /// whether pages may have gone to the zone.
    #[inline(always)]
    pub(crate) fn put_block(&self, cpu: &mut Cpu, frame: u32, o: u8, t: usize) -> bool {
        if !is_kept(o) {
            self.free_large(frame, o, cpu.number);
            return true;
        }
        let block = frame / PAGEBLOCK_PAGES;
        if self.blocks.routes.bypasses(block, t) {
            if self.blocks.is_tainted(block) {
                return self.free_tainted(cpu, frame, o);
            }
            return self.free_to_zone(cpu, frame, o);
        }
        let class = class_of(o, t);
        let slot = cpu.slot(class);
        if slot.count < capacity(o) {
            self.push(slot, frame);
            return false;
        }
        if slot.skip != 0 {
            // No depot had room a while ago.
            slot.skip -= 1;
            return self.free_to_zone(cpu, frame, o);
        }
        self.free_slow(cpu, frame, o, class);
        true
    }

    /// Takes a block from its owner if it is allocated with this order. Returns its frame and type.
    #[inline(always)]
    pub(crate) fn begin_free<const OWNED: bool>(
        &self,
        pfn: Pfn,
        order: u8,
    ) -> Option<(u32, usize)> {
        let frame = pfn.0.wrapping_sub(self.base);
        let state = self.states.get(usize::try_from(frame).ok()?)?;
        let t = state.begin_free::<OWNED>(order)?;
        Some((frame as u32, t))
    }

    #[cold]
    #[inline(never)]
    fn free_direct(&self, number: u32, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let Some((frame, _)) = self.begin_free::<false>(pfn, order.get()) else {
            return Err(self.why_not(pfn, order));
        };
        self.free_large(frame, order.get(), number);
        Ok(())
    }

    /// Frees a block of any order to the zone.
    #[inline(never)]
    pub(crate) fn free_large(&self, frame: u32, order: u8, number: u32) {
        let pages = self.put_alone(frame, order, self.here(number).domain);
        self.note_loose(pages.into());
    }

    /// Counts pages that went to the zone, or were taken if negative, without a CPU's counts.
    pub(crate) fn note_loose(&self, pages: i64) {
        self.loose.fetch_add(pages, Relaxed);
    }

    /// Returns the pages of [`note_loose`](Self::note_loose) that the zone has not counted yet.
    pub(crate) fn loose_pages(&self) -> i64 {
        self.loose.load(Relaxed)
    }

    /// Returns the pages of [`note_loose`](Self::note_loose) since the last call.
    pub(crate) fn take_loose(&self) -> i64 {
        if self.loose.load(Relaxed) == 0 { 0 } else { self.loose.swap(0, Relaxed) }
    }

    /// Explains a free that was refused.
    #[cold]
    #[inline(never)]
    pub(crate) fn why_not(&self, pfn: Pfn, order: Order) -> FreeError {
        let Some(frame) = self.index_of(pfn) else { return FreeError::Foreign };
        let allocated = |frame: u32| self.state(frame).and_then(FrameState::allocated);
        if let Some(allocated) = allocated(frame) {
            // Equal if another thread freed the block, and it was allocated again meanwhile.
            return if allocated == order {
                FreeError::DoubleFree
            } else {
                FreeError::WrongOrder { allocated }
            };
        }
        if self.state(frame).is_some_and(FrameState::is_absent) {
            return FreeError::Reserved;
        }
        if self.state(frame).is_some_and(FrameState::is_faulty) {
            return FreeError::OutOfUse;
        }
        if !frame.is_multiple_of(1 << order.get()) {
            return FreeError::Misaligned;
        }
        for o in 1..=MAX_ORDER {
            let head = frame & !((1 << o) - 1);
            if let Some(allocated) = allocated(head)
                && allocated.get() >= o
            {
                return FreeError::NotHead { head: self.pfn(head), allocated };
            }
        }
        FreeError::DoubleFree
    }

    /// Returns all frames of a CPU to the zone. Returns false if the CPU is pinned or in a request:
    /// its owner drains it at its next refill or [`poll`](crate::packed::Pinned::poll) then.
    pub fn drain(&self, cpu: CpuId) -> bool {
        let Some(part) = self.cpus.get(cpu.0 as usize) else { return true };
        match part.own.try_lock() {
            Some(mut own) => {
                self.drain_cpu(&mut own);
                true
            }
            None => {
                part.shared.request_drain();
                false
            }
        }
    }

    /// Drains all CPUs, then the depots. Returns false if a CPU will be drained by its owner, as in
    /// [`drain`](Region::drain).
    pub fn drain_all(&self) -> bool {
        let mut all = true;
        for cpu in 0..self.cpus() {
            all &= self.drain(CpuId(cpu));
        }
        self.trim_depots(false, 0);
        all
    }

    /// Returns to the zone a part of what no CPU took from the depots since the last call. Call it
    /// once a second.
    pub fn tick(&self) {
        self.trim_depots(true, 0);
        self.set_levels();
    }

    /// Like [`tick`](Self::tick), but for the share of one CPU: see [`Depots::tick`]. Returns whether
    /// the depots that this CPU trims have pages left.
    pub(crate) fn tick_cpu(&self, cpu: u32, most: &mut u32) -> bool {
        let at = self.here(cpu);
        let spill = |magazine, class| self.spill_magazine(magazine, class, at.domain);
        let ticked = self.depots.tick(cpu, most, spill);
        if ticked.leads {
            self.set_levels();
            self.blocks.recount_set_apart();
        }
        ticked.keeps
    }

    fn set_levels(&self) {
        for t in [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable] {
            self.blocks.routes.set_level(t);
        }
    }

    /// Splits an allocated block into blocks of a smaller order, each freed on its own.
    ///
    /// # Errors
    /// [`FreeError`] if the block or its order is wrong; [`FreeError::WrongOrder`] also if `into`
    /// is larger than `from`. Nothing has changed.
    pub fn split(&self, pfn: Pfn, from: Order, into: Order) -> Result<(), FreeError> {
        if into > from {
            return Err(FreeError::WrongOrder { allocated: from });
        }
        let Some((head, t)) = self.begin_free::<false>(pfn, from.get()) else {
            return Err(self.why_not(pfn, from));
        };
        if from.get() >= PAGEBLOCK_ORDER && into.get() < PAGEBLOCK_ORDER {
            for block in 0..from.pages() / PAGEBLOCK_PAGES {
                let kind = MigrateType::from_bits(t as u32);
                self.blocks.break_up(head / PAGEBLOCK_PAGES + block, kind);
            }
        }
        for part in (head..head + from.pages()).step_by(into.pages() as usize) {
            if let Some(state) = self.state(part) {
                state.set_allocated(into.get(), t);
            }
        }
        Ok(())
    }

    /// Sets the type of a frame's pageblock if none of its frames is free and it is not in use as a
    /// whole. Returns whether it did.
    pub fn set_block_type(&self, pfn: Pfn, t: MigrateType) -> bool {
        let block = self.index_of(pfn).map(|frame| frame / PAGEBLOCK_PAGES);
        (t as usize) < CACHED_TYPES && block.is_some_and(|block| self.blocks.set_type(block, t))
    }

    /// Returns the type of a frame's pageblock; `None` outside the region.
    pub fn block_type(&self, pfn: Pfn) -> Option<MigrateType> {
        Some(self.blocks.block_type(self.index_of(pfn)? / PAGEBLOCK_PAGES))
    }

    /// Returns the free frames of a frame's pageblock that no CPU keeps; `None` outside the region.
    pub fn free_in_block(&self, pfn: Pfn) -> Option<u32> {
        let block = self.index_of(pfn)? / PAGEBLOCK_PAGES;
        let whole = self.blocks.whole().contains(block);
        Some(if whole { PAGEBLOCK_PAGES } else { self.blocks.free_in(block) })
    }

    /// Returns the number of pageblocks whose frames are all free. Counts them.
    pub fn whole_blocks(&self) -> u64 {
        self.blocks.whole().len()
    }

    /// Returns the number of free frames that no CPU or depot keeps. Counts them.
    pub fn free_frames(&self) -> u64 {
        let bits: u64 = (0..self.blocks.len()).map(|b| u64::from(self.blocks.free_in(b))).sum();
        bits + self.whole_blocks() * u64::from(PAGEBLOCK_PAGES)
    }

    /// Returns how many frames were found free when they were freed to the zone. Only
    /// [`free_owned`](Region::free_owned) of one block by two threads at once leads to them.
    pub fn double_frees(&self) -> u64 {
        self.blocks.double_frees()
    }

    /// Returns how many pages went from depots to the zone.
    pub fn depot_returned(&self) -> u64 {
        self.depots.returned()
    }

    /// Returns what a CPU did. `None` if the CPU does not exist or its lock is held.
    pub fn counts(&self, cpu: CpuId) -> Option<CpuCounts> {
        Some(self.cpus.get(cpu.0 as usize)?.own.try_lock()?.counts)
    }

    pub(crate) fn frame_state(&self, pfn: Pfn) -> Option<&FrameState> {
        self.state(self.index_of(pfn)?)
    }

    /// Returns the order of the block that is allocated at a frame; `None` if none begins there.
    pub fn allocated(&self, pfn: Pfn) -> Option<Order> {
        self.state(self.index_of(pfn)?)?.allocated()
    }
}

#[cfg(feature = "lines")]
impl<R: RawMutex> Region<'_, R> {
    /// Calls `each` with the memory that CPUs share. What a CPU's lock protects is not among it.
    pub(crate) fn for_each_shared(&self, each: &mut dyn FnMut(Piece)) {
        each(Piece::of(Part::States, self.states));
        each(Piece::of(Part::Magazines, self.magazines));
        each(Piece::of(Part::Cpus, self.cpus));
        self.blocks.for_each_shared(each);
        self.depots.for_each_shared(each);
        each(Piece::one(Part::Loose, &self.loose, 0));
    }
}
