//! The kernel that recorded a trace, and the policy that stands for it. Its release is never
//! guessed: where nothing says it, a policy is assumed, and the report says why.

use std::fmt;

use pageyard_trace::state::{Snapshot, StateDir};
use pageyard_trace::{Release, printable};
use serde::Serialize;

use crate::policies::by_name;

/// Where the release of the recording kernel comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelSource {
    /// The option `--kernel`.
    Option,
    /// The trace.
    Trace,
    /// The state files.
    State,
    /// Nothing names it. The policy is assumed.
    Unknown,
}

/// The kernel that recorded a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Its release, as `uname -r` prints it; `None` if it is unknown.
    pub release: Option<String>,
    /// Where the release comes from.
    pub source: KernelSource,
    /// The policy that stands for this kernel; for an unknown kernel, the policy that is assumed.
    pub policy: &'static str,
    /// Why that policy.
    pub why: String,
    /// What the state files show about an unknown kernel.
    pub evidence: Vec<&'static str>,
    /// Whether a page on a per-CPU list carries its type, so that a drain event has that type and
    /// not its pageblock's.
    pub types_carried: bool,
    /// Whether the per-CPU lists tune their limits.
    pub tuned: bool,
}

/// A policy that stands for the kernels from a release on, up to that of the next entry.
struct Era {
    from: (u16, u16, u16),
    policy: &'static str,
    /// What the policy models, if it is only near to these kernels.
    near: Option<&'static str>,
}

const fn era(major: u16, minor: u16, patch: u16, policy: &'static str) -> Era {
    Era { from: (major, minor, patch), policy, near: None }
}

const fn near(major: u16, minor: u16, policy: &'static str, what: &'static str) -> Era {
    Era { from: (major, minor, 0), policy, near: Some(what) }
}

/// Why the oldest eras are only near.
const OLDER: &str = "no policy models this kernel exactly";
const PUBLISHED: &str = "from published rules, not compared with a recording";

/// All eras, in ascending order.
const ERAS: [Era; 13] = [
    near(0, 0, "TwoPassBulkFree<NoHighOrder<Vanilla<SixBatches<Base>>>>", OLDER),
    near(5, 14, "TwoPassBulkFree<Vanilla<Base>>", OLDER),
    near(5, 18, "Vanilla<Base>", OLDER),
    era(6, 1, 0, "Linux61"),
    era(6, 2, 0, "Vanilla<Base>"),
    era(6, 7, 0, "Vanilla"),
    era(6, 10, 0, "LargestFirst"),
    era(6, 12, 29, "Linux612"),
    near(6, 13, "LargestFirst", "stable updates of this kernel may search as Linux612 does"),
    era(6, 15, 0, "Linux612"),
    near(6, 16, "LateFreeHigh", PUBLISHED),
    near(6, 17, "Linux618", PUBLISHED),
    near(6, 19, "Linux619", PUBLISHED),
];

/// Returns the era of a release. An unknown stable update counts as the newest.
fn era_of(release: Release) -> &'static Era {
    let Release { major, minor, patch } = release;
    let version = (major, minor, patch.unwrap_or(u16::MAX));
    ERAS.iter().rfind(|era| era.from <= version).unwrap_or(&ERAS[0])
}

impl Kernel {
    /// Finds the kernel: the option takes precedence over the trace, and that over the state files.
    pub(super) fn find(option: Option<Release>, trace: Option<&str>, state: &StateDir) -> Kernel {
        let said = [
            (option.map(|release| release.to_string()), KernelSource::Option),
            (trace.map(str::to_owned), KernelSource::Trace),
            (state.kernel_release.clone(), KernelSource::State),
        ];
        let known = said.into_iter().find_map(|(text, source)| {
            let text = text?;
            let release: Release = text.parse().ok()?;
            Some((text, release, source))
        });
        match known {
            Some((text, release, source)) => {
                let Era { policy, near, .. } = era_of(release);
                let why = match near {
                    None => format!("{policy} stands for this kernel"),
                    Some(what) => format!("{policy} is nearest to this kernel: {what}"),
                };
                Kernel::new(Some(text), source, policy, why, Vec::new())
            }
            None => {
                let (policy, what, evidence) = assumed(state);
                let why = format!("{policy} is assumed, {what}");
                Kernel::new(None, KernelSource::Unknown, policy, why, evidence)
            }
        }
    }

    fn new(
        release: Option<String>,
        source: KernelSource,
        policy: &'static str,
        why: String,
        evidence: Vec<&'static str>,
    ) -> Self {
        let rules = by_name(policy).map(|choice| choice.rules);
        let rules = rules.expect("a test resolves the names of all eras");
        let tuned = !matches!(rules.pcp.growth, pageyard::policy::Growth::Fixed);
        Kernel { release, source, policy, why, evidence, types_carried: rules.carried_types, tuned }
    }

    /// Returns whether nothing says which kernel recorded.
    pub fn is_unknown(&self) -> bool {
        self.source == KernelSource::Unknown
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = match self.source {
            KernelSource::Option => "--kernel",
            KernelSource::Trace => "from the trace",
            KernelSource::State => "from the state files",
            KernelSource::Unknown => "use --kernel VERSION",
        };
        let release = self.release.as_deref().unwrap_or("unknown");
        write!(f, "{} ({from}); {}", printable(release), self.why)?;
        self.evidence.iter().try_for_each(|sign| write!(f, "\n           state files: {sign}"))
    }
}

/// Returns the policy to assume for an unknown kernel, what speaks for it, and what the state files
/// show. They narrow the releases down, but they do not name one.
fn assumed(state: &StateDir) -> (&'static str, &'static str, Vec<&'static str>) {
    let snapshots = || [&state.before, &state.traced_start, &state.traced_end, &state.after];
    let infos = || snapshots().into_iter().filter_map(|s| s.zoneinfo.as_ref());
    let zones = || infos().flat_map(|info| info.populated());
    if infos().next().is_none() {
        return ("Linux612", "the default policy", Vec::new());
    }
    let mut signs = Vec::new();
    let has_promo = zones().any(|z| z.watermarks.promo.is_some());
    signs.push(if has_promo {
        "zoneinfo has promo watermarks, as from 6.2 on"
    } else {
        "zoneinfo has no promo watermarks, as up to 6.1"
    });
    if zones().any(highs_differ) {
        signs.push("high differs between the CPUs of a zone, as from 6.7 on");
    }
    if snapshots().into_iter().any(has_signs_of_linux_6_15) {
        signs.push("nr_free_pages_blocks or defrag_mode is there, as from 6.15 on");
    }
    if has_promo {
        ("Linux612", "the policy of the newest kernel that was compared with recordings", signs)
    } else {
        ("Linux61", "the policy of the newest kernel that fits", signs)
    }
}

/// Returns whether the CPUs' lists of a zone have different limits, as those that tune themselves.
fn highs_differ(zone: &pageyard_trace::state::Zone) -> bool {
    zone.pagesets.windows(2).any(|pair| pair[0].high != pair[1].high)
}

/// Returns whether a snapshot has a counter or a setting that kernels have from 6.15 on.
fn has_signs_of_linux_6_15(snapshot: &Snapshot) -> bool {
    let counter = snapshot.vmstat.as_ref().is_some_and(|v| v.get("nr_free_pages_blocks").is_some());
    counter || snapshot.sys_vm.as_ref().is_some_and(|s| s.get("defrag_mode").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(release: &str) -> &'static str {
        Kernel::find(Some(release.parse().unwrap()), None, &StateDir::default()).policy
    }

    #[test]
    fn every_era_names_a_policy_and_begins_after_the_previous() {
        for era in &ERAS {
            assert_eq!(by_name(era.policy).unwrap().name, era.policy);
        }
        assert!(ERAS.iter().is_sorted_by(|a, b| a.from < b.from));
    }

    #[test]
    fn releases_map_to_the_policies_that_stand_for_them() {
        for (release, stands) in [
            ("4.19.200", "TwoPassBulkFree<NoHighOrder<Vanilla<SixBatches<Base>>>>"),
            ("5.14.0-427.el9", "TwoPassBulkFree<Vanilla<Base>>"),
            ("6.1.0-56-cloud-amd64", "Linux61"),
            ("6.2.0", "Vanilla<Base>"),
            ("6.6.99", "Vanilla<Base>"),
            ("6.8.0-45-generic", "Vanilla"),
            ("6.11.2", "LargestFirst"),
            ("6.12.28", "LargestFirst"),
            ("6.12.29", "Linux612"),
            ("6.12", "Linux612"),
            ("6.12.117+deb12-cloud-amd64", "Linux612"),
            ("6.14.1", "LargestFirst"),
            ("6.15-rc1", "Linux612"),
            ("6.16.2", "LateFreeHigh"),
            ("6.18.44", "Linux618"),
            ("7.0.1", "Linux619"),
        ] {
            assert_eq!(policy(release), stands, "{release}");
        }
    }

    #[test]
    fn types_are_carried_before_linux_6_10_and_lists_tune_themselves_from_linux_6_7() {
        let of = |release: &str| {
            let k = Kernel::find(Some(release.parse().unwrap()), None, &StateDir::default());
            (k.types_carried, k.tuned)
        };
        assert_eq!(of("6.1.5"), (true, false));
        assert_eq!(of("6.6.5"), (true, false));
        assert_eq!(of("6.8.5"), (true, true));
        assert_eq!(of("6.12.5"), (false, true));
    }

    #[test]
    fn the_option_precedes_the_trace_and_that_the_state_files() {
        let state = StateDir { kernel_release: Some("6.1.1".into()), ..StateDir::default() };
        let option = "6.12.30".parse().ok();
        let found = |option, trace| {
            let k = Kernel::find(option, trace, &state);
            (k.release.unwrap(), k.source)
        };
        assert_eq!(found(option, Some("6.6.1")), ("6.12.30".into(), KernelSource::Option));
        assert_eq!(found(None, Some("6.6.1")), ("6.6.1".into(), KernelSource::Trace));
        assert_eq!(found(None, None), ("6.1.1".into(), KernelSource::State));
        let unknown = Kernel::find(None, None, &StateDir::default());
        assert!(unknown.is_unknown() && unknown.release.is_none());
        assert!(
            unknown.to_string().starts_with("unknown (use --kernel VERSION); Linux612 is assumed")
        );
    }
}
