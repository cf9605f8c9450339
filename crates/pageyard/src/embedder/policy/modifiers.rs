//! Policies that change one thing of another policy.

use core::marker::PhantomData;

use super::history::Linux612;
use super::rules::{
    BulkFree, Fallback, Growth, High, MAX_GUARD_ORDER, MAX_SCALE, PcpRules, Rules, Safety,
};
use super::{Named, StaticPolicy};

/// Declares policies that change one thing of another policy.
macro_rules! modifiers {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, |$rules:ident| $change:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $name<P = Linux612>(PhantomData<P>);
            impl<P> $name<P> {
                const fn change($rules: Rules) -> Rules {
                    $change
                }
            }
            impl<P: StaticPolicy> StaticPolicy for $name<P> {
                const NAME: &'static str = $text;
                const RULES: Rules = Self::change(P::RULES);
                const POLICY: Self = $name(PhantomData);
            }
        )*

        /// All policies that change one thing of another, except those that take a number:
        /// [`NUMBERED`].
        ///
        /// ```
        /// use pageyard::policy::{Base, MODIFIERS, StaticPolicy, Vanilla};
        ///
        /// let vanilla = MODIFIERS.iter().find(|m| m.name == "Vanilla").unwrap();
        /// assert_eq!((vanilla.makes)(Base::RULES), Vanilla::<Base>::RULES);
        /// ```
        pub const MODIFIERS: &[Named<fn(Rules) -> Rules>] = &[
            $(Named {
                name: $text,
                about: concat!($($doc, "\n"),*),
                makes: $name::<Linux612>::change,
            },)*
        ];
    };
}

modifiers! {
    /// The fallback of Linux 6.12.0, with the hygiene series in place (§4.6).
    LargestFirst = "LargestFirst", |r| Rules {
        fallback: Fallback::LargestBlock,
        boost_on_steal: true,
        ..r
    };
    /// Mobility grouping before the hygiene series of 2024: [`LargestFirst`], where cached pages
    /// carry their type and a block's free pages change lists without it, so that lists come to
    /// hold pages of other types' blocks (§4.10).
    Vanilla = "Vanilla", |r| Rules {
        carried_types: true,
        moves_unclaimed: true,
        fallback: Fallback::LargestBlock,
        boost_on_steal: true,
        ..r
    };
    /// Bulk frees as in Linux 5.0 to 5.17: pages are gathered on a private list first and freed
    /// under the zone lock afterwards (§5.12a; "vanilla" of the 2022 series, seed figures A.1).
    TwoPassBulkFree = "TwoPassBulkFree", |r| Rules { bulk_free: BulkFree::TwoPass, ..r };
    /// Bulk frees block by block (§5.12): for comparisons with what kernels spend under a zone's lock.
    BlockByBlock = "BlockByBlock", |r| Rules { bulk_free: BulkFree::BlockByBlock, ..r };
    /// High-order pages kept off the per-CPU lists: the "revert" column of the 2022 series (seed
    /// figures A.1), and Linux before 5.14.
    NoHighOrder = "NoHighOrder", |r| Rules { high_order_lists: false, ..r };
    /// Limits of the per-CPU lists that are computed at the start alone, and so for the one early
    /// section of a zone that is [initialised later](crate::Yard::deferred): the defect of Linux
    /// 5.4 (§8.3, seed figures A.5).
    EarlyLimits = "EarlyLimits", |r| Rules { limits_follow: false, ..r };
    /// High-order frees drain the lists later, as from Linux 6.16 on: what gave back the network
    /// throughput that step 10 had cost (B.3).
    LateFreeHigh = "LateFreeHigh", |r| Rules {
        pcp: PcpRules { free_high_late: true, ..r.pcp },
        ..r
    };
    /// A free that overflows a CPU's lists drains them a batch at a time and releases both locks in
    /// between, as from Linux 6.19 on. The drain ends early if the lists are busy then, or if the
    /// caller runs on another CPU (B.4). From published rules, not recorded.
    ChunkedDrain = "ChunkedDrain", |r| Rules {
        pcp: PcpRules { chunked_drain: true, ..r.pcp },
        ..r
    };
    /// Isolation is a bit beside a pageblock's type, as from Linux 6.17 on: when it ends, each
    /// pageblock has the type it had before, whatever the caller names. From published rules, not
    /// recorded.
    IsolateBit = "IsolateBit", |r| Rules { isolate_bit: true, ..r };
    /// The setting `vm.defrag_mode` of Linux 6.15 and later (B.1). A request does not mix types in a
    /// pageblock until reclaim and compaction declined to try again; one that cannot reclaim does so
    /// on its second attempt, and one with [`NORETRY`](crate::Gfp::NORETRY) fails instead. Background
    /// reclaim is woken for whole pageblocks and counts only free
    /// pages in them. From published rules, not recorded.
    DefragMode = "DefragMode", |r| Rules { defrag_mode: true, ..r };
    /// Requests that are not movable are steered into 1 GiB regions that hold such pages already
    /// (tainted regions), a proposal of 2026. Where such a request has to claim a pageblock, it
    /// claims a whole free one of a tainted region if there is one, before any other. [Background
    /// compaction](crate::Yard::compact_background) evacuates movable pages from each tainted region
    /// with at most one free pageblock, until it has two. Under
    /// [`Fallback::LargestBlock`] nothing is steered. From published rules, not recorded.
    Steered = "Steered", |r| Rules { steered: true, ..r };
    /// A fixed `high` of six batches, as in Linux 5.4, where the defect of [`EarlyLimits`] hurt:
    /// `EarlyLimits<SixBatches<Base>>` is the machine of seed figures A.5.
    SixBatches = "SixBatches", |r| Rules {
        pcp: PcpRules { high: High::SixBatches, growth: Growth::Fixed, ..r.pcp },
        ..r
    };
    /// Every list operation compares the block's type with the list's (§4.8) and counts what
    /// differs in [`ZoneStats::type_check_failures`](crate::ZoneStats::type_check_failures).
    TypeChecked = "TypeChecked", |r| Rules { type_checks: true, ..r };
    /// The embedder's description of each page is looked at on its way in and out (§11.1).
    PageChecked = "PageChecked", |r| Rules {
        safety: Safety { page_checks: true, ..r.safety },
        ..r
    };
    /// Free memory holds a pattern that is verified before it is handed out (§11.4).
    Poisoned = "Poisoned", |r| Rules { safety: Safety { poison: true, ..r.safety }, ..r };
    /// All memory is zeroed when it is handed out (§11.5).
    InitOnAlloc = "InitOnAlloc", |r| Rules {
        safety: Safety { init_on_alloc: true, ..r.safety },
        ..r
    };
    /// All memory is zeroed when it is freed, and at no other time (§11.5).
    InitOnFree = "InitOnFree", |r| Rules {
        safety: Safety { init_on_free: true, ..r.safety },
        ..r
    };
    /// Free memory is unmapped (§11.6, the kernel's `debug_pagealloc`).
    Unmapped = "Unmapped", |r| Rules { safety: Safety { unmap: true, ..r.safety }, ..r };
    /// A CPU claims whole pageblocks and splits them without the zone lock. A page of an owned block is
    /// freed to the owner's lists, whichever CPU frees it, and merges with its neighbours there before
    /// it is drained. A refill prefers fragments of own blocks that were drained earlier, then a whole
    /// block, then parts of blocks of its type. Proposed for Linux on 2026-04-03 ("pcp buddy
    /// allocator"). From published rules, not recorded.
    OwnedBlocks = "OwnedBlocks", |r| Rules {
        pcp: PcpRules { owned_blocks: true, ..r.pcp },
        ..r
    };
}

/// A modifier with a number that is chosen by name, as in `Guarded<3, Base>`.
///
/// ```
/// use pageyard::policy::{Base, Guarded, NUMBERED, StaticPolicy};
///
/// let guarded = NUMBERED.iter().find(|m| m.name == "Guarded").unwrap();
/// assert_eq!((guarded.makes)(3, Base::RULES), Guarded::<3, Base>::RULES);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// The name of the type.
    pub name: &'static str,
    /// The type's documentation.
    pub about: &'static str,
    /// What the number is, such as "an order".
    pub number: &'static str,
    /// The largest number.
    pub most: u8,
    /// The function that changes another policy's rules. Creating an allocator fails for a number
    /// above `most`.
    pub makes: fn(u8, Rules) -> Rules,
}

/// Declares policies that change one thing of another policy by a number.
macro_rules! numbered {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $number:literal up to $most:expr,
        |$n:ident, $rules:ident| $change:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $name<const N: u8, P = Linux612>(PhantomData<P>);
            impl<const N: u8, P> $name<N, P> {
                const fn change($n: u8, $rules: Rules) -> Rules {
                    $change
                }
            }
            impl<const N: u8, P: StaticPolicy> StaticPolicy for $name<N, P> {
                const NAME: &'static str = $text;
                const RULES: Rules = {
                    assert!(N <= $most, "the number is too large");
                    Self::change(N, P::RULES)
                };
                const POLICY: Self = $name(PhantomData);
            }
        )*

        /// All policies that change one thing of another by a number.
        pub const NUMBERED: &[Numbered] = &[
            $(Numbered {
                name: $text,
                about: concat!($($doc, "\n"),*),
                number: $number,
                most: $most,
                makes: $name::<0, Linux612>::change,
            },)*
        ];
    };
}

numbered! {
    /// Turns the parts of orders below `N` that a split leaves over into guards (§11.6, the
    /// kernel's `debug_guardpage_minorder`). An `N` above [`MAX_GUARD_ORDER`] does not compile.
    ///
    /// ```
    /// use pageyard::policy::{Guarded, PageChecked, StaticPolicy};
    ///
    /// type Debugging = Guarded<3, PageChecked>;
    /// assert_eq!(Debugging::RULES.safety.guard_min_order, 3);
    /// ```
    Guarded = "Guarded", "an order" up to MAX_GUARD_ORDER, |n, r| Rules {
        safety: Safety { guard_min_order: n, ..r.safety },
        ..r
    };
    /// The batch of the per-CPU lists doubles at most `N` times in one hold of the zone lock (S of
    /// §5.8, the kernel's build option `PCP_BATCH_SCALE_MAX`). An `N` above [`MAX_SCALE`] does not
    /// compile.
    ///
    /// ```
    /// use pageyard::policy::{Linux612, Scale, StaticPolicy};
    ///
    /// assert_eq!(Linux612::RULES.pcp.scale_max, 5);
    /// assert_eq!(<Scale<0>>::RULES.pcp.scale_max, 0);
    /// ```
    Scale = "Scale", "a number of doublings" up to MAX_SCALE, |n, r| Rules {
        pcp: PcpRules { scale_max: n, ..r.pcp },
        ..r
    };
}
