//! Policies by name.

use pageyard::policy::{
    Base, BlockByBlock, Decay, EarlyLimits, LargestFirst, LateFreeHigh, Linux61, Linux612,
    NoHighOrder, Rules, SixBatches, StaticPolicy, Step1, Step3, Step5, Step7, Step8, Step9, Step10,
    TwoPassBulkFree, Vanilla,
};

use super::error::ReplayError;
use crate::workload::{Measure, WorkloadError, host};

type RealWork = fn(&host::Setting<'_>, &mut host::Room) -> Result<Vec<Measure>, WorkloadError>;

/// A policy that can be run.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Its name on the command line and in tables.
    pub name: &'static str,
    /// What it does. Replays and the simulated machine have the core once, with rules that are a value.
    pub rules: &'static Rules,
    /// Runs a workload on this host's threads, where what a policy costs is measured: with rules that are
    /// known when the core is compiled. `None` for policies that it is not compiled for: each takes
    /// seconds.
    pub(crate) real_work: Option<RealWork>,
}

impl Choice {
    /// Whether ticks change what its lists hold, so that their phase matters.
    pub fn ticks_matter(&self) -> bool {
        !matches!(self.rules.pcp.decay, Decay::None)
    }
}

macro_rules! choices {
    (
        everywhere { $($name:literal => $policy:ty,)* }
        not_on_hosts { $($other:literal => $variant:ty,)* }
    ) => {
        /// All policies that there are.
        pub const POLICIES: &[Choice] = &[
            $(Choice {
                name: $name,
                rules: &<$policy>::RULES,
                real_work: Some(host::run::<$policy>),
            },)*
            $(Choice { name: $other, rules: &<$variant>::RULES, real_work: None },)*
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
        "BlockByBlock<Base>" => BlockByBlock<Base>,
        "BlockByBlock<Step1>" => BlockByBlock<Step1>,
        "BlockByBlock<Step3>" => BlockByBlock<Step3>,
        "BlockByBlock<Step5>" => BlockByBlock<Step5>,
        "BlockByBlock<Step7>" => BlockByBlock<Step7>,
        "BlockByBlock<Step9>" => BlockByBlock<Step9>,
        "BlockByBlock<Step10>" => BlockByBlock<Step10>,
        "LateFreeHigh<BlockByBlock<Step10>>" => LateFreeHigh<BlockByBlock<Step10>>,
        "BlockByBlock<NoHighOrder<SixBatches<Base>>>" =>
            BlockByBlock<NoHighOrder<SixBatches<Base>>>,
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
        assert!(by_name("Linux612").unwrap().ticks_matter());
        assert!(!by_name("TwoPassBulkFree<Base>").unwrap().ticks_matter());
        let text = by_name("Linux7").err().unwrap().to_string();
        assert!(text.starts_with("no policy Linux7; there are Base, Step1"), "{text}");
        DEFAULT_POLICIES.iter().for_each(|p| assert!(by_name(p).is_ok()));
    }
}
