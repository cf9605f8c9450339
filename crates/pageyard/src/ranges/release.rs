//! Boot memory that becomes free: frames reserved at the start, such as an initial ramdisk or the
//! sections of an image that only its start needs (spec §8.1, §8.3).

use core::cell::Cell;
use core::fmt::{self, Write};
use core::ops::Range;

use crate::allocator::yard::Yard;
use crate::base::frame::{Kind, State};
use crate::base::put::put;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MAX_ORDER, Pfn};
use crate::base::unwind::{Finally, Rollback};
use crate::embedder::config::Config;
use crate::zone::at::At;

/// Why reserved memory was not released. Nothing has changed.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// let (usable, initrd) = (0x1_0000_0000..0x1_0400_0000, 0x1_0010_0000..0x1_0020_0000);
/// let yard = Y::from_memory_map(&[usable], &[initrd.clone()], 1, ()).unwrap();
/// let (start, end) = (Pfn::containing(initrd.start), Pfn::containing(initrd.end));
/// // One frame too many.
/// let error = yard.release(start..Pfn(end.0 + 1)).unwrap_err();
/// assert_eq!(error, ReleaseError::NotReserved(end));
/// yard.release(start..end)?;
/// assert_eq!(yard.release(start..end), Err(ReleaseError::AlreadyReleased(start)));
/// # Ok::<(), ReleaseError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseError {
    /// The range is empty or ends before it starts.
    EmptyRange,
    /// This frame is in no zone.
    OutsideZone(Pfn),
    /// There is no memory at this frame: it was in no usable range, or its section is offline.
    Hole(Pfn),
    /// This frame was not reserved at the start. The allocator manages it already.
    NotReserved(Pfn),
    /// This frame was reserved and has been released before.
    AlreadyReleased(Pfn),
    /// [Deferred initialisation](Yard::deferred) is not finished.
    Deferred,
    /// A hook called from `online`, `offline` or `release` called `release`, which would wait for
    /// itself. Detected by [`Reclaim::task`](crate::Reclaim::task).
    Nested,
}

impl ReleaseError {
    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            ReleaseError::EmptyRange => put!(out, "the range has no frames"),
            ReleaseError::OutsideZone(p) => put!(out, "frame ", p, " is in no zone"),
            ReleaseError::Hole(p) => put!(out, "no memory at frame ", p),
            ReleaseError::NotReserved(p) => {
                put!(out, "frame ", p, " was not reserved at the start")
            }
            ReleaseError::AlreadyReleased(p) => put!(out, "frame ", p, " was released before"),
            ReleaseError::Deferred => put!(out, "deferred initialisation is not finished"),
            ReleaseError::Nested => {
                let what = "a hotplug operation is active further up on this task's stack; ";
                put!(out, what, "return from it first")
            }
        }
    }
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl core::error::Error for ReleaseError {}

impl<'a, C: Config> Yard<'a, C> {
    /// Frees memory that [`Layout::reserved`](crate::Layout::reserved) kept from the allocator: an
    /// initial ramdisk after it was unpacked, sections that only the start of an image needs, or
    /// memory that the first phase of a two-phase start had in use.
    ///
    /// `range` may span several zones. Every frame of it must be memory that is still reserved: in
    /// a usable range and in a reserved range of the layout, and not released before. The frames
    /// become free as memory does at the start, in naturally aligned blocks at the tails of the
    /// lists (§8.1), and merge with their neighbours. They count as managed from then on, so
    /// watermarks, reserves and limits of the per-CPU lists are computed anew (§8.3), and so is
    /// whether mobility grouping pays off (§2.4).
    ///
    /// Requests may run concurrently; calls of `release`, [`online`](Yard::online) and
    /// [`offline`](Yard::offline) wait for each other. Memory of a zone that was
    /// [restored](Yard::restore) from a snapshot cannot be released: snapshots do not tell reserved
    /// memory from holes.
    ///
    /// # Errors
    /// [`ReleaseError`], which names the first frame at fault; nothing has changed.
    ///
    /// ```
    /// # use pageyard::*;
    /// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
    /// // 64 MiB, of which a ramdisk takes the second MiB.
    /// let (usable, initrd) = (0x1_0000_0000..0x1_0400_0000, 0x1_0010_0000..0x1_0020_0000);
    /// let yard = Y::from_memory_map(&[usable], &[initrd.clone()], 1, ()).unwrap();
    /// assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().managed, 63 << 8);
    /// yard.release(Pfn::containing(initrd.start)..Pfn::containing(initrd.end))?;
    /// assert_eq!(yard.zone_info(ZoneKind::Normal).unwrap().managed, 64 << 8);
    /// # Ok::<(), ReleaseError>(())
    /// ```
    pub fn release(&self, range: Range<Pfn>) -> Result<(), ReleaseError> {
        let _busy = self.begin_hotplug().ok_or(ReleaseError::Nested)?;
        if self.deferred.as_ref().is_some_and(|d| !d.is_finished()) {
            return Err(ReleaseError::Deferred);
        }
        self.check_release(&range)?;
        // Also if a hook panics: what was released before counts as managed.
        let _adapted = Finally(|| {
            self.recalculate();
            self.update_grouping();
        });
        let mut from = range.start;
        // The check has found a zone for each frame.
        while from < range.end
            && let Some((zone, idx)) = self.locate(from)
        {
            let end = zone.end().min(range.end);
            let pages = end.0.wrapping_sub(from.0) as u32;
            if let Some(at) = self.at_any(zone) {
                match zone.region() {
                    Some(region) => at.release_reserved_packed(region, from..end),
                    None => at.release(idx, pages),
                }
            }
            from = end;
        }
        Ok(())
    }

    /// Checks that every frame of a range is reserved memory. It stays so: only hotplug and
    /// `release` change reserved frames, and they wait for each other.
    fn check_release(&self, range: &Range<Pfn>) -> Result<(), ReleaseError> {
        if range.start >= range.end {
            return Err(ReleaseError::EmptyRange);
        }
        let mut pfn = range.start;
        while pfn < range.end {
            let (zone, idx) = self.locate(pfn).ok_or(ReleaseError::OutsideZone(pfn))?;
            let frame = zone.map.frame(idx);
            let state = zone.state(idx);
            if state != State::RESERVED_MEMORY {
                return Err(match state.kind() {
                    Kind::Reserved => ReleaseError::Hole(pfn),
                    _ if frame.is_released() => ReleaseError::AlreadyReleased(pfn),
                    _ => ReleaseError::NotReserved(pfn),
                });
            }
            pfn.0 += 1;
        }
        Ok(())
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Frees reserved memory of one zone, block by block in ascending order. If a hook panics, the
    /// rest stays reserved.
    fn release(&self, idx: u32, pages: u32) {
        let end = idx.saturating_add(pages);
        let next = Cell::new(idx);
        let rest = Rollback::new(|| {
            let (from, _locked) = (next.get(), self.lock());
            self.zone.map.set_states(from, end.wrapping_sub(from), State::RESERVED_MEMORY);
        });
        while next.get() < end {
            let idx = next.get();
            let fits = end.wrapping_sub(idx).ilog2() as u8;
            let order = (idx.trailing_zeros() as u8).min(fits).min(MAX_ORDER);
            self.release_block(idx, order);
            next.set(idx.saturating_add(1 << order));
        }
        rest.disarm();
    }

    /// Outlined to keep its locals off the stack of [`release`](Self::release).
    #[inline(never)]
    fn release_block(&self, idx: u32, order: u8) {
        let zone = self.zone;
        {
            // Held while it is filled without the lock: isolation and hotplug wait for it, and
            // poisoning marks it.
            let _locked = self.lock();
            for f in zone.map.run(idx, 1 << order) {
                f.set_state(State::TAIL);
                f.set_released(true);
            }
            let held = State::new(Kind::Held, order, zone.map.block_type(idx));
            zone.map.frame(idx).set_state(held);
        }
        self.fill(idx, order);
        let locked = self.lock();
        zone.managed.fetch_add(1 << order, Relaxed);
        locked.free_block(idx, order);
    }
}
