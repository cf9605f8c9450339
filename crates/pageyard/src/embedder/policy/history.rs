//! Complete policies: kernels, and the steps between them.

use super::rules::{
    BelowHigh, BulkFree, Decay, Engine, Fallback, Growth, High, KeepBatch, PcpRules, Rules, Safety,
};
use super::{Named, StaticPolicy};

pub(super) const LINUX612: Rules = Rules {
    engine: Engine::Exact,
    high_order_lists: true,
    bulk_free: BulkFree::SinglePass,
    carried_types: false,
    fallback: Fallback::ClaimThenSteal,
    moves_unclaimed: false,
    boost_on_steal: false,
    isolate_bit: false,
    defrag_mode: false,
    steered: false,
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
        owned_blocks: false,
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
    owned_blocks: false,
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
const LATE: PcpRules = PcpRules { free_high_late: true, ..LINUX612.pcp };

/// Declares policies that are plain types.
macro_rules! policies {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal, $rules:expr;)*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default)]
            pub struct $name;
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
    /// Linux 6.18 with its default settings: high-order frees drain the lists later (6.16), and a
    /// pageblock keeps its type while it is isolated (6.17). From published rules, not recorded. (6.18
    /// may also make background reclaim try again when a zone rises above its high watermark; the
    /// source is not certain, and that is not modelled.)
    Linux618 = "Linux618", Rules { pcp: LATE, isolate_bit: true, ..LINUX612 };
    /// Linux 6.19 with its default settings: [`Linux618`], where a free that overflows a CPU's lists
    /// drains them a batch at a time (B.4). From published rules, not recorded.
    Linux619 = "Linux619", Rules {
        pcp: PcpRules { chunked_drain: true, ..LATE },
        isolate_bit: true,
        ..LINUX612
    };
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
