//! What the models of `verify/loom` change in this engine. In the product, nothing: the functions are
//! empty, or constant.

#[cfg(pageyard_loom)]
use crate::base::sync::{Ordering::SeqCst, fence};

/// A bug that a model plants, to see that it is found.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Bug {
    /// An entry of the index is removed without a second look at the label.
    NoSecondLook = 1,
    /// A pageblock leaves the index as empty without a second look at its words.
    NoRecount,
    /// A free into an empty word does not index the pageblock.
    NoPutCheck,
    /// A block of order 10 is taken when one of its pageblocks is whole.
    HalfPair,
    /// A pageblock that a CPU releases is not counted.
    NoReleaseCount,
    /// Words that were taken to make a pageblock whole are not restored.
    NoRollback,
    /// The head of a stack has no tag.
    NoTag,
    /// A free tests the state and stores it in two steps.
    NoExchange,
    /// A frame of an incomplete block is set free without the index.
    BareReturn,
    /// A whole pageblock is isolated though another CPU claimed it.
    NoOwnership,
    /// The route of a pageblock that was isolated meanwhile is left.
    LateRoute,
    /// A taker does not look again whether the pageblock was isolated.
    NoRecheck,
    /// Frames that become free do not take back that a search found none.
    NoTakingBack,
}

/// Returns whether a model planted this bug.
#[inline(always)]
pub(crate) fn planted(bug: Bug) -> bool {
    #[cfg(pageyard_loom)]
    return pageyard_loom_atomics::has_bug(bug as u32);
    #[cfg(not(pageyard_loom))]
    {
        _ = bug;
        false
    }
}

/// loom treats `SeqCst` operations as `AcqRel`, but its fences are exact.
#[inline(always)]
pub(crate) fn fence_for_loom() {
    #[cfg(pageyard_loom)]
    fence(SeqCst);
}
