//! Policies by name.

use pageyard::policy::{
    Base, BlockByBlock, Decay, EarlyLimits, LargestFirst, LateFreeHigh, Linux61, Linux612,
    NoHighOrder, Policy, SixBatches, Step1, Step3, Step5, Step7, Step8, Step9, Step10,
    TwoPassBulkFree, Vanilla,
};

use super::error::ReplayError;
use super::run::{Outcome, Setting, run};
use crate::workload::{Measure, WorkloadError, host, sim};

type Run = fn(&Setting<'_>, u64, &mut dyn FnMut(u64)) -> Result<Outcome, ReplayError>;

type Work = fn(&sim::Setting<'_>, &mut sim::Room) -> Result<Vec<Measure>, WorkloadError>;

type RealWork = fn(&host::Setting<'_>, &mut host::Room) -> Result<Vec<Measure>, WorkloadError>;

/// A policy that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// Whether ticks change what its lists hold, so that their phase matters.
    pub ticks_matter: bool,
    pub(super) run: Run,
    /// Runs a workload on the simulated machine.
    pub(crate) work: Work,
    /// Runs a workload on this host's threads; `None` for policies that are
    /// compiled for replays and machines alone: each takes seconds to compile for each world.
    pub(crate) real_work: Option<RealWork>,
}

macro_rules! choices {
    (
        everywhere { $($name:literal => $policy:ty,)* }
        not_on_hosts { $($virtual:literal => $simulated:ty,)* }
        on_machines { $($other:literal => $variant:ty, as $same:ty,)* }
    ) => {
        /// All policies that are compiled in.
        pub const POLICIES: &[Choice] = &[
            $(Choice {
                name: $name,
                ticks_matter: !matches!(<$policy as Policy>::RULES.pcp.decay, Decay::None),
                run: run::<$policy>,
                work: sim::run::<$policy>,
                real_work: Some(host::run::<$policy>),
            },)*
            $(Choice {
                name: $virtual,
                ticks_matter: !matches!(<$simulated as Policy>::RULES.pcp.decay, Decay::None),
                run: run::<$simulated>,
                work: sim::run::<$simulated>,
                real_work: None,
            },)*
            // A replay counts answers, which are the other's.
            $(Choice {
                name: $other,
                ticks_matter: !matches!(<$variant as Policy>::RULES.pcp.decay, Decay::None),
                run: run::<$same>,
                work: sim::run::<$variant>,
                real_work: None,
            },)*
        ];
    };
}

choices! {
    everywhere {
        "Base" => Base,
        "Step1" => Step1,
        "Step3" => Step3,
        "Step5" => Step5,
        "Step7" => Step7,
        "Step9" => Step9,
        "Step10" => Step10,
        "Linux612" => Linux612,
        "LateFreeHigh" => LateFreeHigh,
        "Linux61" => Linux61,
        "Vanilla" => Vanilla,
        "TwoPassBulkFree<Base>" => TwoPassBulkFree<Base>,
    }
    not_on_hosts {
        "Step8" => Step8,
        "SixBatches<Base>" => SixBatches<Base>,
        "EarlyLimits<SixBatches<Base>>" => EarlyLimits<SixBatches<Base>>,
        "LargestFirst" => LargestFirst,
        "Vanilla<Base>" => Vanilla<Base>,
        "TwoPassBulkFree" => TwoPassBulkFree,
        "NoHighOrder" => NoHighOrder,
        "NoHighOrder<Base>" => NoHighOrder<Base>,
        "TwoPassBulkFree<NoHighOrder>" => TwoPassBulkFree<NoHighOrder>,
        "TwoPassBulkFree<NoHighOrder<Base>>" => TwoPassBulkFree<NoHighOrder<Base>>,
    }
    on_machines {
        "BlockByBlock<Base>" => BlockByBlock<Base>, as Base,
        "BlockByBlock<Step1>" => BlockByBlock<Step1>, as Step1,
        "BlockByBlock<Step3>" => BlockByBlock<Step3>, as Step3,
        "BlockByBlock<Step5>" => BlockByBlock<Step5>, as Step5,
        "BlockByBlock<Step7>" => BlockByBlock<Step7>, as Step7,
        "BlockByBlock<Step9>" => BlockByBlock<Step9>, as Step9,
        "BlockByBlock<Step10>" => BlockByBlock<Step10>, as Step10,
        "LateFreeHigh<BlockByBlock<Step10>>" => LateFreeHigh<BlockByBlock<Step10>>, as LateFreeHigh<Step10>,
        "BlockByBlock<NoHighOrder<SixBatches<Base>>>" => BlockByBlock<NoHighOrder<SixBatches<Base>>>,
            as NoHighOrder<SixBatches<Base>>,
    }
}

/// What a replay runs unless told otherwise.
pub const DEFAULT_POLICIES: [&str; 4] = ["Base", "Step5", "Step10", "Linux612"];

/// The policy of this name; upper and lower case are one.
///
/// # Errors
/// [`ReplayError::UnknownPolicy`] lists those there are.
pub fn by_name(name: &str) -> Result<Choice, ReplayError> {
    let same = |c: &&Choice| c.name.eq_ignore_ascii_case(name.trim());
    POLICIES.iter().find(same).copied().ok_or_else(|| ReplayError::UnknownPolicy {
        name: name.trim().to_owned(),
        known: POLICIES.iter().map(|c| c.name).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(by_name("linux612").unwrap().name, "Linux612");
        assert!(by_name("Linux612").unwrap().ticks_matter);
        assert!(!by_name("TwoPassBulkFree<Base>").unwrap().ticks_matter);
        let text = by_name("Linux7").err().unwrap().to_string();
        assert!(text.starts_with("no policy Linux7; there are Base, Step1"), "{text}");
        DEFAULT_POLICIES.iter().for_each(|p| assert!(by_name(p).is_ok()));
    }
}
