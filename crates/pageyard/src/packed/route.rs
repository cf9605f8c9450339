//! Where freed frames go: to the freeing CPU's magazines, or past them to the zone, so that sparse
//! pageblocks empty and faulty frames are found.

#[cfg(feature = "lines")]
use crate::base::lines::{Part, Piece};
use crate::base::shared::{AtomicBool, AtomicU8};
use crate::base::sync::Ordering::{Relaxed, SeqCst};
use crate::base::units::MigrateType;
use crate::packed::domain::Domain;
use crate::packed::label::BUCKETS;
use crate::packed::planted::fence_for_loom;

/// A level that no bucket exceeds: all frames stay with the CPU that frees them.
const KEEP_ALL: u8 = BUCKETS as u8;

/// The route of pageblocks whose frames always go to the zone. No level reaches it.
pub(super) const ALWAYS_TO_ZONE: u8 = 0x40;

/// Set in the route of a pageblock that contains a faulty frame. Its frames go to the zone, too.
const TAINTED: u8 = 0x80;

/// The route of pageblocks of bucket 2 and above, for which a level may send frees to the zone.
const SPARSE: u8 = 2;

/// Where frees to a pageblock go: a hint, but for an isolated pageblock, whose frames always go to
/// the zone. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::Route;
///
/// static PART: [Route; 128] = [const { Route::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct Route(AtomicU8);

impl Route {
    /// Returns the route of a pageblock whose frames stay in magazines.
    pub const fn new() -> Self {
        Route(AtomicU8::new(0))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

impl Default for Route {
    fn default() -> Self {
        Route::new()
    }
}

/// On a line of its own: read by every free, written rarely.
#[derive(Debug)]
#[repr(align(128))]
struct Levels {
    /// A frame of a pageblock in a higher bucket goes to the zone when it is freed.
    of: [AtomicU8; 4],
    /// Whether a frame was ever marked as faulty.
    faulty: AtomicBool,
}

/// The routes of all pageblocks, and what decides on them.
#[derive(Debug)]
pub(crate) struct Routes<'a> {
    of: &'a [Route],
    domains: &'a [Domain],
    /// Sparse pageblocks of one type from which on frames are packed.
    enough: i32,
    levels: Levels,
}

impl<'a> Routes<'a> {
    pub(super) fn new(of: &'a [Route], domains: &'a [Domain]) -> Self {
        Routes {
            of,
            domains,
            enough: (of.len() / 128).clamp(4, 1 << 20) as i32,
            levels: Levels {
                of: [const { AtomicU8::new(KEEP_ALL) }; 4],
                faulty: AtomicBool::new(false),
            },
        }
    }

    /// Sets the route of a pageblock: where frees into it go. Every free reads a line of routes, so
    /// they change seldom: all sparse pageblocks have the same, and so do all others.
    pub(super) fn set(&self, block: u32, route: u8) {
        if let Some(r) = self.of.get(block as usize) {
            let route = match route {
                0 | 1 => 0,
                ALWAYS_TO_ZONE => ALWAYS_TO_ZONE,
                _ => SPARSE,
            };
            fence_for_loom();
            if r.0.load(SeqCst) & !TAINTED != route {
                // In one step with the taint, without which a free would miss a mark.
                _ = r.0.fetch_update(SeqCst, SeqCst, |seen| Some(seen & TAINTED | route));
            }
            fence_for_loom();
        }
    }

    /// Sets whether frees into a pageblock go to the zone whatever its route is.
    pub(super) fn set_taint(&self, block: u32, tainted: bool) {
        let Some(Route(route)) = self.of.get(block as usize) else { return };
        if tainted {
            route.fetch_or(TAINTED, SeqCst);
        } else {
            route.fetch_and(!TAINTED, SeqCst);
        }
    }

    /// Returns whether a frame was ever marked as faulty.
    #[inline(always)]
    pub(super) fn has_faulty(&self) -> bool {
        self.levels.faulty.load(SeqCst)
    }

    /// Notes that a frame is marked as faulty.
    pub(super) fn note_faulty(&self) {
        self.levels.faulty.store(true, SeqCst);
    }

    /// Returns whether a frame of this pageblock goes to the zone when it is freed.
    #[inline(always)]
    pub(crate) fn bypasses(&self, block: u32, t: usize) -> bool {
        let Some(route) = self.of.get(block as usize) else { return true };
        route.0.load(Relaxed) > self.levels.of[t & 3].load(Relaxed)
    }

    /// Counts a pageblock that has become sparse (more than 64 free frames) or no longer is, and
    /// sets the type's level: while there are enough sparse pageblocks that some could be emptied
    /// into others, their frames go to the zone.
    pub(super) fn note_sparse(&self, t: MigrateType, was: u32, now: u32, domain: usize) {
        let by = i32::from(now > 1) - i32::from(was > 1);
        let Some(own) = self.domains.get(domain).and_then(|d| d.sparse.get(t as usize)) else {
            return;
        };
        if by == 0 {
            return;
        }
        // Each domain counts on a line of its own, and may be below zero. It adds up all of them
        // only so often that the sum is read as often as one counter would be.
        let n = own.fetch_add(by, Relaxed).wrapping_add(by);
        if (n.unsigned_abs() as usize).is_multiple_of(self.domains.len().max(1)) {
            self.set_level(t);
        }
    }

    /// Recomputes the level of a type.
    pub(crate) fn set_level(&self, t: MigrateType) {
        let counts = self.domains.iter().filter_map(|d| d.sparse.get(t as usize));
        let sparse = counts.fold(0i32, |sum, n| sum.wrapping_add(n.load(Relaxed)));
        let level = if sparse > self.enough { 1 } else { KEEP_ALL };
        if let Some(l) = self.levels.of.get(t as usize)
            && l.load(Relaxed) != level
        {
            l.store(level, Relaxed);
        }
    }

    /// Calls `each` with the memory that CPUs share.
    #[cfg(feature = "lines")]
    pub(super) fn for_each_shared(&self, each: &mut dyn FnMut(Piece)) {
        each(Piece::of(Part::Routes, self.of));
        each(Piece::one(Part::Levels, &self.levels, 0));
    }
}
