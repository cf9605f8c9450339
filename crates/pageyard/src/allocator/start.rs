//! Start modes of an allocator: without memory, with all memory, or deferred (spec §8.2).

use crate::allocator::layout::{Layout, ZoneSpec, section_end};
use crate::base::sync::{AtomicBool, Ordering::Acquire};
use crate::base::units::{Pfn, SECTION_PAGES};

/// How much memory an allocator starts with.
#[derive(Clone, Copy)]
pub(crate) enum Start<'l, 'a> {
    /// No memory.
    Blank,
    /// All memory.
    Whole,
    /// All memory except the deferred part of each node's last populated zone (§8.2).
    Deferred(&'l Layout<'a>),
}

/// State of an allocator whose initialization is not complete.
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
    /// Returns where the deferred part of a node's last populated zone starts, and how many
    /// sections it touches. `None` for other zones, or if nothing can be deferred.
    pub(crate) fn deferred_part(&self, spec: &ZoneSpec) -> Option<(Pfn, u64)> {
        let first = |z: &ZoneSpec| Some(self.next_free(&z.span, z.span.start)?.start);
        let later = |z: &ZoneSpec| z.node == spec.node && z.kind > spec.kind;
        if self.zones.iter().any(|z| later(z) && first(z).is_some()) {
            return None;
        }
        // At least one whole section is initialized at once.
        let whole = first(spec)?.0.checked_next_multiple_of(SECTION_PAGES)?;
        let start = section_end(Pfn(whole));
        let pages = spec.span.end.0.checked_sub(start.0).filter(|&n| n > 0)?;
        Some((start, pages.div_ceil(SECTION_PAGES)))
    }
}
