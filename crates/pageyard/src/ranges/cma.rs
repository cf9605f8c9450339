//! Contiguous memory areas (spec §4.12): pageblocks that serve only movable pages until a caller
//! allocates a range of the area, and a bitmap of the allocated ranges.

use core::cell::Cell;
use core::fmt;
use core::ops::Range;

use lock_api::{Mutex, RawMutex};

use crate::allocator::vm_events::VmEvent;
use crate::allocator::yard::Yard;
use crate::base::frame::Kind;
use crate::base::gfp::Gfp;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{MigrateType, Order, PAGEBLOCK_PAGES, Pfn, each_block};
use crate::base::unwind::{Finally, Rollback};
use crate::embedder::config::Config;
use crate::ranges::contig::ContigError;
use crate::ranges::isolate::{IsolateError, Purpose};
use crate::request::free::BatchError;
use crate::zone::at::Locked;
use crate::zone::state::Zone;

/// Why an area could not be made, or memory from one not be allocated or freed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CmaError {
    /// The area does not consist of whole pageblocks, or does not begin at a multiple of the pages
    /// per bit.
    Misaligned(Range<Pfn>),
    /// The range is invalid, or contains pages that are reserved, isolated or unmovable.
    Isolate(IsolateError),
    /// The bitmap has too few words.
    TooSmall {
        /// Words needed.
        needed: usize,
        /// Words given.
        given: usize,
    },
    /// The request is for 0 pages.
    NoPages,
    /// The alignment is not a power of two, in pages.
    BadAlign(u64),
    /// No free part of the area is large enough.
    Full,
    /// [`Yard::alloc_contig`] failed. If every place was busy, this is the last error.
    Contig(ContigError),
    /// The range was not allocated from this area.
    NotOurs(Pfn),
    /// A page of the range is not allocated, so it cannot be freed.
    Free(BatchError),
}

impl fmt::Display for CmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CmaError::Misaligned(r) => write!(
                f,
                "the area from {} to {} does not consist of whole pageblocks, or its start is not \
                 aligned to the pages of one bit",
                r.start, r.end
            ),
            CmaError::Isolate(e) => e.fmt(f),
            CmaError::TooSmall { needed, given } => {
                write!(f, "bitmap of {given} words, but the area requires {needed}")
            }
            CmaError::NoPages => f.write_str("no pages requested"),
            CmaError::BadAlign(n) => {
                write!(f, "alignment of {n} pages; expected a power of two")
            }
            CmaError::Full => f.write_str("no free part of the area is large enough"),
            CmaError::Contig(e) => e.fmt(f),
            CmaError::NotOurs(p) => write!(f, "the range at {p} was not allocated from this area"),
            CmaError::Free(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for CmaError {}

/// Attempts to make pageblocks CMA ones while pages of theirs are on their way.
const TRIES: usize = 8;

impl<'a, C: Config> Yard<'a, C> {
    /// Turns whole pageblocks into CMA ones: from then on only movable requests are served from
    /// them. At start-up all of their pages are free; later, pages in use there must be movable.
    ///
    /// # Errors
    /// [`CmaError::Misaligned`] or [`CmaError::Isolate`]; after the latter the pageblocks that were
    /// isolated are movable. A busy pageblock ([`IsolateError::errno`]) may succeed later.
    pub fn make_cma(&self, range: Range<Pfn>) -> Result<(), CmaError> {
        let whole = |p: Pfn| p.0 & u64::from(PAGEBLOCK_PAGES - 1) == 0;
        if !whole(range.start) || !whole(range.end) {
            return Err(CmaError::Misaligned(range));
        }
        let movable = MigrateType::Movable;
        let (at, frames) = self.frames_of(range, movable).map_err(CmaError::Isolate)?;
        at.isolate(frames.clone(), movable, Purpose::Use).map_err(CmaError::Isolate)?;
        // Cached pages could be allocated again for any type; pages allocated since the check
        // already were. `make_cma` checks again. On the packed engine, it also finds pages that another CPU
        // is about to free or to receive.
        let mut labelled = Ok(());
        let tries = if at.zone.is_packed() { TRIES } else { 1 };
        for _ in 0..tries {
            self.drain_zone(&at);
            labelled = at.lock().make_cma(&frames);
            if !matches!(labelled, Err(IsolateError::Isolated(_))) {
                break;
            }
        }
        labelled.map_err(|e| {
            at.unisolate(frames, movable);
            CmaError::Isolate(e)
        })
    }
}

impl<C: Config> Locked<'_, '_, C> {
    /// Turns isolated pageblocks that hold only movable blocks into CMA ones, all of them or none.
    fn make_cma(&self, frames: &Range<u32>) -> Result<(), IsolateError> {
        let zone = self.zone;
        let unmovable = zone
            .unmovable_over(frames.start)
            .or_else(|| zone.unmovable_in(frames.clone(), MigrateType::Movable, Purpose::Use));
        if let Some(idx) = unmovable {
            return Err(IsolateError::Unmovable(zone.pfn(idx)));
        }
        let in_transit = match zone.region() {
            Some(region) => region.first_in_transit(frames.clone()),
            None => zone.first_in_no_block(frames),
        };
        if let Some(idx) = in_transit {
            return Err(IsolateError::Isolated(zone.pfn(idx)));
        }
        let blocks = || each_block(frames.clone());
        // A failed contiguous range may have ended the isolation of some.
        if let Some(lost) = blocks().find(|&b| zone.block_type(b) != MigrateType::Isolate) {
            return Err(IsolateError::Isolated(zone.pfn(lost)));
        }
        if !zone.is_packed() {
            let reserved = |&block: &u32| zone.map.own_type(block) == MigrateType::HighAtomic;
            zone.shrink_reserve(blocks().filter(reserved).count() as u64);
        }
        blocks().for_each(|block| self.unisolate_block(block, MigrateType::Cma));
        Ok(())
    }
}

impl<R: RawMutex> Zone<'_, R> {
    /// Returns the first frame that is in no block: a contiguous range took it, and has not handed it
    /// out yet. Zone lock.
    fn first_in_no_block(&self, frames: &Range<u32>) -> Option<u32> {
        let mut idx = frames.start;
        if let Some((head, state)) = self.block_over(idx) {
            idx = head.saturating_add(1 << state.order());
        }
        while idx < frames.end {
            let state = self.map.frame(idx).state();
            if state.kind() == Kind::Tail {
                return Some(idx);
            }
            idx = idx.saturating_add(1 << state.order());
        }
        None
    }
}

/// Statistics of an area.
///
/// ```
/// use pageyard::CmaStats;
///
/// // As `CmaArea::stats` returns it.
/// let stats = CmaStats { alloc_success: 3, alloc_fail: 1, used: 96 };
/// assert_eq!(stats.alloc_success + stats.alloc_fail, 4);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmaStats {
    /// Requests served (`cma_alloc_success`).
    pub alloc_success: u64,
    /// Requests that failed (`cma_alloc_fail`).
    pub alloc_fail: u64,
    /// Pages allocated at the moment, rounded up to whole bits.
    pub used: u64,
}

/// One contiguous memory area of a yard.
///
/// `M` is the type of its two locks. One guards the bitmap and is held briefly. The other is held
/// while a range is emptied, because two concurrent attempts in one pageblock would refuse each
/// other. That includes [migrating](crate::Reclaim::relocate) pages and allocating room for them, with
/// every hook that such a request may call: it may reclaim.
/// If those may sleep, `M` must be a lock whose holder may sleep. They must not allocate from the
/// area, nor wait for a thread that does. The pages of the range itself are
/// [prepared](crate::Platform::prepare) without the lock.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// # use std::sync::atomic::AtomicU64;
/// let start = yard.zone_info(ZoneKind::Normal).unwrap().start;
/// let range = start..Pfn(start.0 + 4096);
/// let words = [const { AtomicU64::new(0) }; 64];
/// let area = CmaArea::<spin::mutex::SpinMutex<()>>::new(&yard, range, Order::ZERO, &words)?;
/// let buffer = area.alloc(&yard, 100, 1, Gfp::KERNEL)?;
/// assert_eq!(area.stats().used, 100);
/// area.free(&yard, buffer, 100)?;
/// # Ok::<(), CmaError>(())
/// ```
#[derive(Debug)]
pub struct CmaArea<'b, M: RawMutex> {
    base: Pfn,
    bits: u64,
    bit: Order,
    bitmap: &'b [AtomicU64],
    map_lock: Mutex<M, ()>,
    turn: Mutex<M, ()>,
    success: AtomicU64,
    fail: AtomicU64,
}

impl<'b, M: RawMutex> CmaArea<'b, M> {
    /// Returns the bitmap words needed for an area of `pages` pages with one bit per block of order
    /// `bit`.
    pub const fn words(pages: u64, bit: Order) -> usize {
        (pages >> bit.get()).div_ceil(64) as usize
    }

    /// Makes an area of a range of a yard ([`Yard::make_cma`]). The area allocates in multiples of
    /// 2^`bit` pages.
    ///
    /// # Errors
    /// [`CmaError::TooSmall`] if the bitmap is too small, and the errors of [`Yard::make_cma`].
    pub fn new<C: Config>(
        yard: &Yard<'_, C>,
        range: Range<Pfn>,
        bit: Order,
        bitmap: &'b [AtomicU64],
    ) -> Result<Self, CmaError> {
        let pages = range.end.0.saturating_sub(range.start.0);
        if (range.start.0 | pages) & u64::from(bit.pages() - 1) != 0 {
            return Err(CmaError::Misaligned(range));
        }
        let (needed, given) = (Self::words(pages, bit), bitmap.len());
        if given < needed {
            return Err(CmaError::TooSmall { needed, given });
        }
        yard.make_cma(range.clone())?;
        bitmap.iter().for_each(|w| w.store(0, Relaxed));
        Ok(CmaArea {
            base: range.start,
            bits: pages >> bit.get(),
            bit,
            bitmap,
            map_lock: Mutex::new(()),
            turn: Mutex::new(()),
            success: AtomicU64::new(0),
            fail: AtomicU64::new(0),
        })
    }

    /// Returns the area's frames.
    pub fn range(&self) -> Range<Pfn> {
        self.base..self.pfn(self.bits)
    }

    /// Returns the area's counters.
    pub fn stats(&self) -> CmaStats {
        let used: u32 = self.bitmap.iter().map(|w| w.load(Relaxed).count_ones()).sum();
        CmaStats {
            alloc_success: self.success.load(Relaxed),
            alloc_fail: self.fail.load(Relaxed),
            used: u64::from(used) << self.bit.get(),
        }
    }

    /// Allocates `pages` pages, the first a multiple of `align`. First fit: if a place turns out to
    /// be busy, the next aligned one is tried (spec §4.12). `gfp` is as in [`Yard::alloc_contig`].
    ///
    /// `yard` must be the one that the area was made of.
    ///
    /// # Errors
    /// [`CmaError::Full`], [`CmaError::Contig`], or an error that names what is wrong with the
    /// request.
    pub fn alloc<C: Config>(
        &self,
        yard: &Yard<'_, C>,
        pages: u64,
        align: u64,
        gfp: Gfp,
    ) -> Result<Pfn, CmaError> {
        let answer = self.first_fit(yard, pages, align, gfp);
        let (counter, event) = match answer {
            Ok(_) => (&self.success, VmEvent::CmaAllocSuccess),
            Err(_) => (&self.fail, VmEvent::CmaAllocFail),
        };
        counter.fetch_add(1, Relaxed);
        yard.count_event(event, 1);
        answer
    }

    fn first_fit<C: Config>(
        &self,
        yard: &Yard<'_, C>,
        pages: u64,
        align: u64,
        gfp: Gfp,
    ) -> Result<Pfn, CmaError> {
        if pages == 0 {
            return Err(CmaError::NoPages);
        }
        if !align.is_power_of_two() {
            return Err(CmaError::BadAlign(align));
        }
        // One block, so aligned to its size.
        let align = if gfp.contains(Gfp::COMP) { align.max(pages) } else { align };
        let mut from = 0;
        let mut last = CmaError::Full;
        loop {
            let Some(bits) = self.claim(from, pages, align) else { return Err(last) };
            let pfn = self.pfn(bits.start);
            let range = pfn..Pfn(pfn.0.saturating_add(pages));
            let refused = Rollback::new(|| self.release(bits.clone()));
            let turn = self.turn.lock();
            let taken = yard.take_contig(range, MigrateType::Cma, gfp);
            drop(turn);
            let e = match taken {
                Ok(taken) => {
                    yard.prepare_contig(taken, MigrateType::Cma, gfp);
                    refused.disarm();
                    return Ok(pfn);
                }
                Err(e) => e,
            };
            drop(refused);
            from = bits.start + 1;
            if !e.is_busy() {
                return Err(CmaError::Contig(e));
            }
            last = CmaError::Contig(e);
        }
    }

    /// Frees pages allocated by [`alloc`](Self::alloc), or part of them, in whole bits. A range
    /// allocated as one block ([`Gfp::COMP`]) must be freed as a whole.
    ///
    /// If a hook panics, pages that it was not called for stay allocated. Pages in a bit of which
    /// another page is already free must then be freed with [`Yard::free`], all others with this.
    ///
    /// # Errors
    /// [`CmaError::NotOurs`] or [`CmaError::Free`]; nothing has changed.
    pub fn free<C: Config>(
        &self,
        yard: &Yard<'_, C>,
        pfn: Pfn,
        pages: u64,
    ) -> Result<(), CmaError> {
        let bits = self.bits_of(pfn, pages).ok_or(CmaError::NotOurs(pfn))?;
        {
            let _lock = self.map_lock.lock();
            if self.run(bits.clone(), false).is_some() {
                return Err(CmaError::NotOurs(pfn));
            }
        }
        let freed = Cell::new(0);
        let _release = Finally(|| {
            let end = bits.start.saturating_add(self.bits_for(freed.get()));
            if end > bits.start {
                self.release(bits.start..end);
            }
        });
        let range = pfn..Pfn(pfn.0.saturating_add(pages));
        yard.free_contig_each(range, || freed.set(freed.get() + 1)).map_err(CmaError::Free)
    }

    fn pfn(&self, bit: u64) -> Pfn {
        Pfn(self.base.0.wrapping_add(bit << self.bit.get()))
    }

    fn bits_for(&self, pages: u64) -> u64 {
        pages.div_ceil(self.bit.pages().into())
    }

    fn bits_of(&self, pfn: Pfn, pages: u64) -> Option<Range<u64>> {
        let offset = pfn.0.checked_sub(self.base.0)?;
        let start = offset >> self.bit.get();
        let end = start.checked_add(self.bits_for(pages))?;
        let whole = start << self.bit.get() == offset;
        (whole && pages > 0 && end <= self.bits).then_some(start..end)
    }

    /// Sets the bits of the first aligned free place at or after `from`.
    fn claim(&self, from: u64, pages: u64, align: u64) -> Option<Range<u64>> {
        let _lock = self.map_lock.lock();
        let bits = self.bits_for(pages);
        let align = align.max(self.bit.pages().into());
        let mut from = from;
        loop {
            let pfn = self.pfn(from).0.checked_next_multiple_of(align)?;
            let start = pfn.checked_sub(self.base.0)? >> self.bit.get();
            let end = start.checked_add(bits)?;
            if end > self.bits {
                return None;
            }
            match self.run(start..end, true) {
                None => {
                    self.set(start..end, true);
                    return Some(start..end);
                }
                Some(taken) => from = taken + 1,
            }
        }
    }

    fn release(&self, bits: Range<u64>) {
        let _lock = self.map_lock.lock();
        self.set(bits, false);
    }

    /// Returns the last bit in the range that has this value.
    fn run(&self, bits: Range<u64>, value: bool) -> Option<u64> {
        words(bits).rev().find_map(|(i, mask)| {
            let word = self.bitmap.get(i).map_or(0, |w| w.load(Relaxed));
            let hits = mask & if value { word } else { !word };
            let last = 63u32.checked_sub(hits.leading_zeros())?;
            Some((i as u64) << 6 | u64::from(last))
        })
    }

    fn set(&self, bits: Range<u64>, value: bool) {
        for (i, mask) in words(bits) {
            let Some(w) = self.bitmap.get(i) else { continue };
            let word = w.load(Relaxed);
            w.store(if value { word | mask } else { word & !mask }, Relaxed);
        }
    }
}

/// Iterates over the bitmap words of a non-empty range of bits, each with the mask of its bits.
fn words(bits: Range<u64>) -> impl DoubleEndedIterator<Item = (usize, u64)> {
    let last = bits.end.saturating_sub(1);
    (bits.start >> 6..(last >> 6) + 1).map(move |i| {
        let below = if i == bits.start >> 6 { !0 << (bits.start & 63) } else { !0 };
        let above = if i == last >> 6 { !0 >> (63 - (last & 63)) } else { !0u64 };
        (i as usize, below & above)
    })
}
