//! The policy of the packed engine, and what other policies cannot ask of it.

use super::StaticPolicy;
use super::history::LINUX612;
use super::rules::{BulkFree, Engine, Fallback, Rules};

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

impl StaticPolicy for Packed {
    const NAME: &'static str = "Packed";
    const RULES: Rules = Rules { engine: Engine::Packed, ..LINUX612 };
    const POLICY: Self = Packed;
}

impl Rules {
    /// Returns the name of the first rule that the packed engine does not follow, if the policy asks
    /// for that engine.
    pub(crate) fn not_on_packed(&self) -> Option<&'static str> {
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
        } else if self.isolate_bit {
            Some("isolate_bit")
        } else if self.defrag_mode {
            Some("defrag_mode")
        } else if self.steered {
            Some("steered")
        } else if !self.limits_follow {
            Some("limits_follow")
        } else if self.type_checks {
            Some("type_checks")
        } else if safety.checks_pages() || safety.guard_min_order > 0 {
            Some("safety")
        } else if self.pcp != LINUX612.pcp {
            Some("pcp")
        } else {
            None
        }
    }
}
