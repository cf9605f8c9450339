//! How a yard starts: with no memory, all of it, or a part (spec §8.2).

use crate::allocator::layout::{Layout, ZoneSpec, section_end};
use crate::base::sync::{AtomicBool, Ordering::Acquire};
use crate::base::units::{Pfn, SECTION_PAGES};

/// What a yard begins with.
#[derive(Clone, Copy)]
pub(crate) enum Start<'l, 'a> {
    /// No memory.
    Blank,
    /// All of it.
    Whole,
    /// One section of each node's last zone (§8.2).
    Deferred(&'l Layout<'a>),
}

/// A yard that is not all there yet.
#[derive(Debug)]
pub(crate) struct Deferred<'a> {
    pub(crate) layout: Layout<'a>,
    pub(crate) finished: AtomicBool,
}

impl<'a> Deferred<'a> {
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Acquire)
    }

    pub(crate) fn new(layout: Layout<'a>) -> Self {
        Deferred { layout, finished: AtomicBool::new(false) }
    }
}

impl Layout<'_> {
    /// Of a node's last zone with memory: where the part begins that can be initialised later, and
    /// how many sections it touches. `None` where that is nothing.
    pub(crate) fn deferred_part(&self, spec: &ZoneSpec) -> Option<(Pfn, u64)> {
        let first = |z: &ZoneSpec| Some(self.next_free(&z.span, z.span.start)?.start);
        let later = |z: &ZoneSpec| z.node == spec.node && z.kind > spec.kind;
        if self.zones.iter().any(|z| later(z) && first(z).is_some()) {
            return None;
        }
        // A whole section at least is there at once.
        let whole = first(spec)?.0.checked_next_multiple_of(SECTION_PAGES)?;
        let start = section_end(Pfn(whole));
        let pages = spec.span.end.0.checked_sub(start.0).filter(|&n| n > 0)?;
        Some((start, pages.div_ceil(SECTION_PAGES)))
    }
}
