//! How the allocator behaves: a policy gives its [`Rules`].
//!
//! The policies here are zero-sized types whose rules are constants, so a feature that such a
//! policy does not use costs nothing at run time. A reference to [`Rules`] is also a policy, chosen
//! at run time, with the same results.
//!
//! [`Linux612`] behaves like Linux 6.12. [`Base`] to [`Step10`] are the tuning series that led
//! there (spec §5.17). Each differs from `Linux612` only in the tuning of the per-CPU lists, so two
//! columns of an experiment differ only in the named step. [`Vanilla`], [`TwoPassBulkFree`] and
//! [`NoHighOrder`] change one thing of the policy they wrap and compose:
//! `TwoPassBulkFree<NoHighOrder<Base>>` is a policy. [`Linux61`] is a complete older kernel.

use core::marker::PhantomData;

use crate::base::gfp::Gfp;

/// Provides an allocator's rules.
///
/// ```
/// use pageyard::policy::{Linux612, Policy};
///
/// fn keeps_high_orders(policy: impl Policy) -> bool {
///     policy.rules().high_order_lists
/// }
/// assert!(keeps_high_orders(Linux612));
/// ```
pub trait Policy: Copy {
    /// The engine of the rules, if it is known at compile time. The common path then holds the code of
    /// one engine. `None` is always right.
    const ENGINE: Option<Engine> = None;

    /// Returns the allocator's rules: the same at every call.
    fn rules(&self) -> &Rules;
}

/// Rules chosen at run time.
///
/// ```
/// use pageyard::policy::{Linux612, Policy, Rules, StaticPolicy};
///
/// let chosen = Rules { high_order_lists: false, ..Linux612::RULES };
/// assert!(!(&chosen).rules().high_order_lists);
/// ```
impl Policy for &Rules {
    #[inline]
    fn rules(&self) -> &Rules {
        self
    }
}

/// A policy known at compile time.
///
/// ```
/// use pageyard::policy::{Linux61, StaticPolicy};
///
/// fn describe<P: StaticPolicy>() -> String {
///     format!("{}: types carried: {}", P::NAME, P::RULES.carried_types)
/// }
/// assert_eq!(describe::<Linux61>(), "Linux61: types carried: true");
/// ```
pub trait StaticPolicy: Policy {
    /// The policy's name in tables and on the command line.
    const NAME: &'static str;
    /// The policy's rules.
    const RULES: Rules;
    /// The only value of the type.
    const POLICY: Self;
}

/// Everything a policy may choose.
///
/// ```
/// # use pageyard::*;
/// # type Lock = spin::mutex::SpinMutex<()>;
/// use pageyard::policy::{Linux612, Rules, StaticPolicy};
///
/// // A policy chosen at run time is a reference to rules.
/// static RULES: Rules = Rules { high_order_lists: false, ..Linux612::RULES };
/// let yard: Yard<'_, Bare<Lock, (), &Rules>> = Yard::with_policy(Parts::new(()), &RULES);
/// assert!(!yard.policy().high_order_lists);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// The engine that keeps free memory.
    pub engine: Engine,
    /// Keep orders 1 to 3 and 9 on the per-CPU lists, not only order 0 (§5.2).
    pub high_order_lists: bool,
    /// How a bulk free walks the lists (§5.12, §5.12a).
    pub bulk_free: BulkFree,
    /// A page that enters a per-CPU list keeps its type and returns to the zone under that type,
    /// even if its block has changed type since. Off: the block's type is read under the zone lock
    /// when the page returns to the zone (§4.10a).
    pub carried_types: bool,
    /// How a request is served when the lists of its own type are empty (§4.4–4.6).
    pub fallback: Fallback,
    /// If a request may not claim a block, move the block's free pages to the lists of the
    /// request's type anyway. Later requests of that type find them there; only the block's label
    /// stays. Off: lists and labels change together, and the rest of a stolen block stays on its
    /// list (§4.10e).
    pub moves_unclaimed: bool,
    /// Boost the watermarks also for a fallback that only steals, as for a claim (before 6.12.29,
    /// §3.4).
    pub boost_on_steal: bool,
    /// Recompute the limits of the per-CPU lists with everything else that depends on the zone
    /// sizes (§8.3). Off: compute them once, at the start.
    pub limits_follow: bool,
    /// How the per-CPU lists are tuned.
    pub pcp: PcpRules,
    /// Compare block type and list type at every list operation and count mismatches (§4.8).
    pub type_checks: bool,
    /// Checks and defences against callers' mistakes and memory faults.
    pub safety: Safety,
}

/// How free memory is kept.
///
/// ```
/// use pageyard::policy::{Engine, Linux612, Packed, StaticPolicy};
///
/// assert_eq!(Linux612::RULES.engine, Engine::Exact);
/// assert_eq!(Packed::RULES.engine, Engine::Packed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// As in Linux: lists of free blocks under a zone lock, per-CPU lists that tune themselves.
    Exact,
    /// The [packed engine](crate::packed): bits, magazines, and the fullest pageblocks first.
    Packed,
}

/// Checks and defences (spec §11), all off by default. They are part of the policy so that a
/// disabled one compiles to nothing. The kernel uses boot parameters instead.
///
/// ```
/// use pageyard::policy::{Linux612, Rules, Safety, StaticPolicy};
///
/// let safety = Safety { poison: true, ..Safety::OFF };
/// assert!(safety.checks_pages());
/// let poisoned = Rules { safety, ..Linux612::RULES };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Safety {
    /// Check the embedder's own description of every page when it is freed and when it is allocated
    /// ([`Defences::page_state`](crate::Defences::page_state), §11.1). Every other check here
    /// except guards turns this on as well.
    pub page_checks: bool,
    /// Fill free memory with a pattern, and verify it before the memory is allocated (§11.4).
    pub poison: bool,
    /// Zero all memory that is allocated (§11.5). No effect if `poison` is on.
    pub init_on_alloc: bool,
    /// Zero memory when it is freed and never when it is allocated, not even for requests with ZERO
    /// (§11.5). No effect if `poison` is on.
    pub init_on_free: bool,
    /// Unmap memory while it is free (§11.6).
    pub unmap: bool,
    /// Turn the parts of orders below this that a split leaves over into guards (§11.6). 0 disables
    /// guards; at most [`MAX_GUARD_ORDER`].
    pub guard_min_order: u8,
}

/// The largest [`Safety::guard_min_order`], half of the largest order as in the kernel (spec §10).
pub const MAX_GUARD_ORDER: u8 = 5;
/// The largest [`PcpRules::scale_max`].
pub const MAX_SCALE: u8 = 6;

impl Rules {
    /// Returns the first rule that is out of range: its name, its value and the largest allowed
    /// value. Only an embedder's own policy can have one.
    pub(crate) const fn out_of_range(&self) -> Option<(&'static str, u8, u8)> {
        if self.pcp.scale_max > MAX_SCALE {
            return Some(("scale_max", self.pcp.scale_max, MAX_SCALE));
        }
        if self.safety.guard_min_order > MAX_GUARD_ORDER {
            return Some(("guard_min_order", self.safety.guard_min_order, MAX_GUARD_ORDER));
        }
        None
    }
}

impl Rules {
    /// Whether the policy asks for the packed engine. Without the feature `packed` none does that can
    /// create an allocator.
    #[inline(always)]
    pub(crate) const fn is_packed(&self) -> bool {
        cfg!(feature = "packed") && matches!(self.engine, Engine::Packed)
    }

    /// Returns the name of the first rule that the packed engine does not follow, if the policy asks
    /// for that engine.
    pub(crate) const fn not_on_packed(&self) -> Option<&'static str> {
        let safety = &self.safety;
        if matches!(self.engine, Engine::Exact) {
            None
        } else if !self.high_order_lists {
            Some("high_order_lists")
        } else if !matches!(self.bulk_free, BulkFree::SinglePass) {
            Some("bulk_free")
        } else if self.carried_types {
            Some("carried_types")
        } else if !matches!(self.fallback, Fallback::ClaimThenSteal) {
            Some("fallback")
        } else if self.moves_unclaimed {
            Some("moves_unclaimed")
        } else if self.boost_on_steal {
            Some("boost_on_steal")
        } else if !self.limits_follow {
            Some("limits_follow")
        } else if self.type_checks {
            Some("type_checks")
        } else if safety.checks_pages() || safety.guard_min_order > 0 {
            Some("safety")
        } else {
            self.pcp.differs_from(&LINUX612.pcp)
        }
    }
}

impl PcpRules {
    /// Returns `"pcp"` if a rule of the per-CPU lists differs.
    const fn differs_from(&self, other: &PcpRules) -> Option<&'static str> {
        let same = self.high as u8 == other.high as u8
            && self.scale_max == other.scale_max
            && self.free_high_twice == other.free_high_twice
            && self.keep_batch as u8 == other.keep_batch as u8
            && self.free_scale_capped == other.free_scale_capped
            && self.alloc_scale == other.alloc_scale
            && self.growth as u8 == other.growth as u8
            && self.below_high as u8 == other.below_high as u8
            && self.count_min == other.count_min
            && self.free_count == other.free_count
            && self.free_high_late == other.free_high_late
            && self.chunked_drain == other.chunked_drain
            && self.decay as u8 == other.decay as u8;
        if same { None } else { Some("pcp") }
    }
}

impl Safety {
    /// Every check and defence off.
    pub const OFF: Safety = Safety {
        page_checks: false,
        poison: false,
        init_on_alloc: false,
        init_on_free: false,
        unmap: false,
        guard_min_order: 0,
    };

    /// Returns whether pages are checked (§11.1).
    pub const fn checks_pages(&self) -> bool {
        self.page_checks || self.poison || self.init_on_alloc || self.init_on_free || self.unmap
    }

    /// Returns whether a free has work to do before the block reaches the lists.
    pub(crate) const fn at_free(&self) -> bool {
        self.checks_pages()
    }

    /// Returns whether memory is zeroed when it is freed. Poisoning overrides it (§11.4).
    pub(crate) const fn zeroes_free(&self) -> bool {
        self.init_on_free && !self.poison
    }

    /// Returns whether the contents or mapping of memory change when it becomes free.
    pub(crate) const fn fills(&self) -> bool {
        self.poison || self.zeroes_free() || self.unmap
    }

    /// Returns the flags with which a block is prepared: with or without ZERO (§11.5).
    pub(crate) const fn prepared_as(&self, gfp: Gfp) -> Gfp {
        if self.zeroes_free() {
            gfp.difference(Gfp::ZERO)
        } else if self.init_on_alloc && !self.poison {
            gfp.union(Gfp::ZERO)
        } else {
            gfp
        }
    }
}

/// How pages move from the per-CPU lists to the zone.
///
/// ```
/// use pageyard::policy::{BulkFree, Linux612, Rules, StaticPolicy, TwoPassBulkFree};
///
/// let rules = Rules { bulk_free: BulkFree::TwoPass, ..Linux612::RULES };
/// assert_eq!(rules, <TwoPassBulkFree>::RULES);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkFree {
    /// One pass under the zone lock: a list is emptied before the next is examined (§5.12).
    /// Neighbouring blocks that follow each other on it are freed as one.
    SinglePass,
    /// Like `SinglePass`, but block by block, as in the kernel: the same results at the kernel's
    /// cost.
    BlockByBlock,
    /// Pages are gathered first, then freed under the lock (§5.12a).
    TwoPass,
}

/// How a request is served when its own type has no free block.
///
/// ```
/// use pageyard::policy::{Fallback, LargestFirst, Linux612, StaticPolicy};
///
/// assert_eq!(Linux612::RULES.fallback, Fallback::ClaimThenSteal);
/// assert_eq!(<LargestFirst>::RULES.fallback, Fallback::LargestBlock);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallback {
    /// Look for a block to claim, from the largest order down. If there is none, steal, from the
    /// smallest order up (§4.4, §4.5).
    ClaimThenSteal,
    /// Search once for the largest block. If it cannot be claimed, steal from it (§4.6).
    LargestBlock,
}

/// The tuning of the per-CPU lists, step by step (spec §5.17).
///
/// ```
/// use pageyard::policy::{Linux612, PcpRules, Rules, StaticPolicy};
///
/// let pcp = PcpRules { scale_max: 0, ..Linux612::RULES.pcp };
/// let one_batch_at_a_time = Rules { pcp, ..Linux612::RULES };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcpRules {
    /// How `high` is computed: its fixed value, or its initial value if it is tuned.
    pub high: High,
    /// S of §5.8: how many times a batch may double, at most [`MAX_SCALE`].
    pub scale_max: u8,
    /// Step 1: a high-order free drains the lists only if the previous free was high-order too.
    pub free_high_twice: bool,
    /// Steps 2 and 3: how large the CPU's cache slice must be for one batch to stay cached in that
    /// drain.
    pub keep_batch: KeepBatch,
    /// Step 4: the number of pages freed at once doubles at most `scale_max` times.
    pub free_scale_capped: bool,
    /// Step 5: refills double as well.
    pub alloc_scale: bool,
    /// Step 7: `high` moves between its limits.
    pub growth: Growth,
    /// Step 8: how the lists react to the high watermark.
    pub below_high: BelowHigh,
    /// Step 9: `high` decays at most by the smallest count since the last tick.
    pub count_min: bool,
    /// Step 10: frees are counted in pages, not in doublings.
    pub free_count: bool,
    /// With `free_count`: high-order frees drain the lists only after enough pages were freed in a
    /// row: a batch plus half of `high_min`, as in Linux 6.16 and later (B.3).
    pub free_high_late: bool,
    /// A free that overflows a CPU's lists drains them a batch at a time, without a lock in between
    /// (B.4).
    pub chunked_drain: bool,
    /// How far `high` falls in each tick.
    pub decay: Decay,
}

/// How the `high` of a zone's per-CPU lists is computed (§5.4).
///
/// ```
/// use pageyard::policy::{High, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { high: High::SixBatches, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum High {
    /// The CPU's share of the low watermark, but at least four batches.
    ShareOfLow,
    /// Six batches, as in Linux up to 5.13; 0 if the batch is below one page.
    SixBatches,
}

/// When FREE_HIGH_BATCH is set for a CPU (§5.13).
///
/// ```
/// use pageyard::policy::{KeepBatch, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { keep_batch: KeepBatch::Never, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeepBatch {
    /// Never.
    Never,
    /// The CPU's slices of all data and unified caches hold more than four batches.
    AllLevelsAbove4,
    /// The CPU's slice of the last-level cache holds more than three batches.
    LastLevelAbove3,
}

/// When a refill raises `high`.
///
/// ```
/// use pageyard::policy::{Growth, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { growth: Growth::Fixed, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// Never: `high` is fixed.
    Fixed,
    /// Unless background reclaim is active (the series as first sent).
    UnlessReclaim,
    /// Unless the zone is below its high watermark.
    UnlessBelowHigh,
}

/// How the per-CPU lists use the high watermark.
///
/// ```
/// use pageyard::policy::{BelowHigh, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { below_high: BelowHigh::Ignored, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BelowHigh {
    /// They ignore it.
    Ignored,
    /// Every request tests the high watermark first.
    TestedAlways,
    /// The high watermark is tested only while the last test passed (§2.8 step 5).
    TestedWhileClear,
}

/// The decay of `high` in one tick (§5.14).
///
/// ```
/// use pageyard::policy::{Decay, Linux612, PcpRules, StaticPolicy};
///
/// let pcp = PcpRules { decay: Decay::None, ..Linux612::RULES.pcp };
/// assert_ne!(pcp, Linux612::RULES.pcp);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decay {
    /// None. The tick drains nothing.
    None,
    /// To four fifths. The excess is drained in one go.
    Fifth,
    /// By one eighth. The excess is drained batch by batch.
    Eighth,
}

const LINUX612: Rules = Rules {
    engine: Engine::Exact,
    high_order_lists: true,
    bulk_free: BulkFree::SinglePass,
    carried_types: false,
    fallback: Fallback::ClaimThenSteal,
    moves_unclaimed: false,
    boost_on_steal: false,
    limits_follow: true,
    pcp: PcpRules {
        high: High::ShareOfLow,
        scale_max: 5,
        free_high_twice: true,
        keep_batch: KeepBatch::LastLevelAbove3,
        free_scale_capped: true,
        alloc_scale: true,
        growth: Growth::UnlessBelowHigh,
        below_high: BelowHigh::TestedWhileClear,
        count_min: false,
        free_count: true,
        free_high_late: false,
        chunked_drain: false,
        decay: Decay::Eighth,
    },
    type_checks: false,
    safety: Safety::OFF,
};

const BASE: PcpRules = PcpRules {
    high: High::ShareOfLow,
    scale_max: 5,
    free_high_twice: false,
    keep_batch: KeepBatch::Never,
    free_scale_capped: false,
    alloc_scale: false,
    growth: Growth::Fixed,
    below_high: BelowHigh::Ignored,
    count_min: false,
    free_count: false,
    free_high_late: false,
    chunked_drain: false,
    decay: Decay::None,
};
const STEP1: PcpRules = PcpRules { free_high_twice: true, ..BASE };
const STEP3: PcpRules = PcpRules { keep_batch: KeepBatch::AllLevelsAbove4, ..STEP1 };
const STEP5: PcpRules = PcpRules { free_scale_capped: true, alloc_scale: true, ..STEP3 };
const STEP7: PcpRules = PcpRules { growth: Growth::UnlessReclaim, decay: Decay::Fifth, ..STEP5 };
const STEP8: PcpRules =
    PcpRules { growth: Growth::UnlessBelowHigh, below_high: BelowHigh::TestedAlways, ..STEP7 };
const STEP9: PcpRules = PcpRules { count_min: true, ..STEP8 };
const STEP10: PcpRules = PcpRules { free_count: true, ..STEP9 };

/// A policy or modifier that is chosen by name, for example on a command line.
///
/// ```
/// use pageyard::policy::POLICIES;
///
/// let old = POLICIES.iter().find(|p| p.name == "Linux61").unwrap();
/// assert!(old.makes.carried_types);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Named<T> {
    /// The name of the type.
    pub name: &'static str,
    /// The type's documentation.
    pub about: &'static str,
    /// The rules, or the function that changes another policy's rules.
    pub makes: T,
}

/// The packed engine: the zones, watermarks, reserves and reclaim of Linux 6.12, with free memory as
/// bits, magazines in place of per-CPU lists, and allocations in the fullest pageblocks. Modifiers
/// do not apply to it. Needs the feature `packed`, which is on by default.
///
/// ```
/// use pageyard::policy::Packed;
/// use pageyard::{Bare, Gfp, Order, Yard};
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// let usable = [0x1_0000_0000..0x1_0400_0000];
/// let yard: Yard<'_, Bare<Lock, (), Packed>> = Yard::from_memory_map(&usable, &[], 1, ())?;
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
/// yard.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Packed;

impl Policy for Packed {
    const ENGINE: Option<Engine> = Some(Self::RULES.engine);

    #[inline(always)]
    fn rules(&self) -> &Rules {
        const { &Self::RULES }
    }
}

impl StaticPolicy for Packed {
    const NAME: &'static str = "Packed";
    const RULES: Rules = Rules { engine: Engine::Packed, ..LINUX612 };
    const POLICY: Self = Packed;
}

/// Declares policies that are plain types.
macro_rules! policies {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $rules:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $name;
            impl Policy for $name {
                const ENGINE: Option<Engine> = Some(Self::RULES.engine);

                #[inline(always)]
                fn rules(&self) -> &Rules {
                    const { &Self::RULES }
                }
            }
            impl StaticPolicy for $name {
                const NAME: &'static str = $text;
                const RULES: Rules = $rules;
                const POLICY: Self = $name;
            }
        )*

        /// All complete policies, in the order of the kernel's history, for programs whose users
        /// choose one by name.
        pub const POLICIES: &[Named<&'static Rules>] = &[
            $(Named { name: $text, about: concat!($($doc, "\n"),*), makes: &$name::RULES },)*
        ];
    };
}

policies! {
    /// Linux 6.12 as it stands after its stable updates (6.12.117): what the oracle recorded.
    Linux612 = "Linux612", LINUX612;
    /// The per-CPU lists of Linux 6.6, before the auto-tuning series: `high` is fixed, refills
    /// take one batch, frees double without bound, any high-order free after a bulk free drains
    /// everything.
    Base = "Base", Rules { pcp: BASE, ..LINUX612 };
    /// [`Base`] and step 1 of the auto-tuning series (2023): two consecutive high-order frees are
    /// needed to drain the lists.
    Step1 = "Step1", Rules { pcp: STEP1, ..LINUX612 };
    /// [`Step1`] and steps 2 and 3: where the CPU's share of the caches (all levels, as the series
    /// first had it) holds more than four batches, one batch stays cached.
    Step3 = "Step3", Rules { pcp: STEP3, ..LINUX612 };
    /// [`Step3`] and steps 4 and 5: the number freed at once is capped at 2^5 batches, and refills
    /// double up to the same.
    Step5 = "Step5", Rules { pcp: STEP5, ..LINUX612 };
    /// [`Step5`] and steps 6 and 7: `high` grows by what is refilled (not while reclaim is active)
    /// and by what is freed, and decays to four fifths a second.
    Step7 = "Step7", Rules { pcp: STEP7, ..LINUX612 };
    /// [`Step7`] and step 8: below the high watermark `high` does not grow, and shrinks on frees.
    Step8 = "Step8", Rules { pcp: STEP8, ..LINUX612 };
    /// [`Step8`] and step 9: `high` decays by no more than the smallest count since the last tick.
    /// 6.12 dropped this step.
    Step9 = "Step9", Rules { pcp: STEP9, ..LINUX612 };
    /// [`Step9`] and step 10, the whole series as first sent: a count of freed pages takes the
    /// place of the doublings. 6.12 differs from it in the cache rule (last level, three
    /// batches), the decay (one eighth, batch by batch), the floor of the shrinking (a batch), and
    /// in testing the high watermark only while it held.
    Step10 = "Step10", Rules { pcp: STEP10, ..LINUX612 };
    /// Linux 6.1.192: no auto-tuning but for the cap of bulk frees at 2^5 batches, which its
    /// stable updates brought; types carried by cached pages; one fallback search, which boosts
    /// the watermarks even where it only takes a page. (Its bulk frees also stop looking at the
    /// lowest and highest lists once those are empty, §5.12; that changes no answer.)
    Linux61 = "Linux61", Rules {
        pcp: PcpRules { free_scale_capped: true, ..BASE },
        carried_types: true,
        fallback: Fallback::LargestBlock,
        moves_unclaimed: true,
        boost_on_steal: true,
        ..LINUX612
    };
}

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
            impl<P: StaticPolicy> Policy for $name<P> {
                const ENGINE: Option<Engine> = Some(Self::RULES.engine);

                #[inline(always)]
                fn rules(&self) -> &Rules {
                    const { &Self::RULES }
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
            impl<const N: u8, P: StaticPolicy> Policy for $name<N, P> {
                const ENGINE: Option<Engine> = Some(Self::RULES.engine);

                #[inline(always)]
                fn rules(&self) -> &Rules {
                    const { &Self::RULES }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_can_be_chosen_by_name() {
        let whole = |name| POLICIES.iter().find(|p| p.name == name).map(|p| *p.makes);
        assert_eq!(whole("Linux61"), Some(Linux61::RULES));
        for m in MODIFIERS {
            assert_ne!((m.makes)(Base::RULES), Base::RULES, "{}", m.name);
            assert!(m.about.len() > 20 && whole(m.name).is_none());
        }
        for m in NUMBERED {
            assert_ne!((m.makes)(m.most, Base::RULES), Base::RULES, "{}", m.name);
            assert!((m.makes)(m.most, Base::RULES).out_of_range().is_none(), "{}", m.name);
            assert!((m.makes)(m.most + 1, Base::RULES).out_of_range().is_some(), "{}", m.name);
        }
        assert_eq!((NUMBERED[0].makes)(3, Base::RULES), Guarded::<3, Base>::RULES);
        assert_eq!((NUMBERED[1].makes)(2, Base::RULES), Scale::<2, Base>::RULES);
    }

    #[test]
    fn policies_compose() {
        type P = TwoPassBulkFree<NoHighOrder<Vanilla<Base>>>;
        let r = P::RULES;
        assert_eq!(r.bulk_free, BulkFree::TwoPass);
        assert!(!r.high_order_lists && r.carried_types);
        assert_eq!(r.pcp, Base::RULES.pcp);
        assert_eq!(<Vanilla>::RULES.pcp, Linux612::RULES.pcp);
    }
}
