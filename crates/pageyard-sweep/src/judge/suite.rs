//! What a proposal is tried on: the workloads of the published experiments on their machines, among
//! them those that a published change made slower, and further workloads of the lab.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use pageyard_lab::replay::columns;

use crate::cell::Work;
use crate::description::{Plan, Trace, Word, Workload};
use crate::error::SweepError;

/// Bytes of a frame descriptor in the kernels whose figures were published.
const DESCRIPTOR: u32 = 64;
/// Memory of the simulated machines, unless a workload needs more. Less memory makes a run shorter;
/// limits of lists are derived from it, as on a real machine of that size.
const MEMORY: &str = "64G";

type Params = &'static [(&'static str, &'static str)];

/// A workload on a machine.
struct Entry {
    /// What it stands for, with the section of the specification.
    about: &'static str,
    /// A published change made it slower (a known regression).
    regression: bool,
    name: &'static str,
    machine: &'static str,
    set: Params,
    /// Parameters of a short run in addition.
    short: Params,
}

#[rustfmt::skip]
const SUITE: [Entry; 13] = [
    Entry { about: "files removed from the page cache (A.1)", regression: false,
        name: "trunc", machine: "1x36", set: &[], short: &[("files", "2")] },
    Entry { about: "page faults on all CPUs (A.1)", regression: false,
        name: "page_fault1", machine: "2x20", set: &[], short: &[("pages", "4096")] },
    Entry { about: "kernel build with the memory of one node (A.4)", regression: false,
        name: "kbuild", machine: "2x56", set: &[("jobs", "112"), ("memory", "node:1")],
        short: &[("objects", "2"), ("warm", "2")] },
    Entry { about: "kernel build on all CPUs (A.5); 6.12 lost 1.2 % (B.3)", regression: true,
        name: "kbuild", machine: "2x64", set: &[], short: &[("objects", "2"), ("warm", "2")] },
    Entry { about: "SCTP, 64 pairs (A.4): step 7 lost 3.2 %; 6.12 lost 1.5 % (B.3)", regression: true,
        name: "sctp", machine: "2x32", set: &[], short: &[("messages", "4000")] },
    Entry { about: "UNIX sockets, 16 pairs in one zone (A.4): step 7 lost 3.8 %", regression: true,
        name: "unix", machine: "2x32", set: &[("cpus", "0")], short: &[("writes", "4000")] },
    Entry { about: "network streams: 6.12 lost 31 % with 64 (B.3)", regression: true,
        name: "stream", machine: "2x96", set: &[("streams", "32,64"), ("window", "512")],
        short: &[("mib", "64")] },
    Entry { about: "a network stream on a desktop: a loss of 18.9 % was reported (B.3)", regression: true,
        name: "stream", machine: "desktop", set: &[("window", "128,512,2048")], short: &[("mib", "256")] },
    Entry { about: "buffers of a cache server, 3,100 a second", regression: false,
        name: "memcached", machine: "2x20", set: &[], short: &[("seconds", "3")] },
    Entry { about: "forks and pipes: bursts on all CPUs", regression: false,
        name: "hackbench", machine: "2x20", set: &[], short: &[("loops", "30")] },
    Entry { about: "one request at a time", regression: false,
        name: "tbench", machine: "2x20", set: &[], short: &[("requests", "2000")] },
    Entry { about: "allocated everywhere, freed on one CPU", regression: false,
        name: "sysbench", machine: "2x20", set: &[], short: &[("reads", "1000")] },
    Entry { about: "one task, all orders", regression: false,
        name: "micro", machine: "desktop", set: &[("rounds", "5")], short: &[] },
];

/// Which proposal is tried, against what, and on what.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The policy that is judged, with its settings.
    pub policy: String,
    /// The policy that it is compared with.
    pub against: String,
    /// Seeds; both policies get the same.
    pub seeds: Vec<u64>,
    /// Recordings that are replayed too.
    pub traces: Vec<PathBuf>,
    /// Run the workloads at their full length.
    pub full: bool,
    /// Run the workloads with these names alone; empty for all.
    pub only: Vec<String>,
}

/// The cells of a judgement, and what each of its works stands for.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The cells: for each work, the seeds of `against`, then those of `policy`.
    pub plan: Plan,
    /// The policy that is judged, by its full name.
    pub policy: String,
    /// The policy that it is compared with.
    pub against: String,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// For each work what it stands for, and whether it is a known regression.
    pub(super) about: Vec<(String, bool)>,
}

impl Suite {
    /// Returns the suite for a proposal. Everything it names is checked here.
    ///
    /// # Errors
    /// Fails with the policy or trace that is invalid.
    pub fn new(proposal: &Proposal) -> Result<Suite, SweepError> {
        let wrong = |file: &Path, what| SweepError::Description {
            file: file.to_owned(),
            place: "judge".into(),
            what,
        };
        let one = |text: &str| {
            let mut all = columns(text).map_err(|e| e.to_string())?;
            let choice = all.pop().filter(|_| all.is_empty());
            choice.map(|c| c.name).ok_or_else(|| format!("{text}: expected one policy"))
        };
        let policy = one(&proposal.policy).map_err(SweepError::Argument)?;
        let against = one(&proposal.against).map_err(SweepError::Argument)?;
        if policy == against {
            let what = format!("{policy} is compared with itself; name another one with --against");
            return Err(SweepError::Argument(what));
        }
        let (mut works, mut about, mut files): (Vec<Work>, Vec<_>, _) =
            (Vec::new(), Vec::new(), HashMap::new());
        for path in &proposal.traces {
            let trace = Trace::of(path.clone());
            let of = trace.works(Path::new(""), &mut files).map_err(|what| wrong(path, what))?;
            about.extend(of.iter().map(|_| ("replay of a recording".to_owned(), false)));
            works.extend(of);
        }
        let known = |name: &&String| SUITE.iter().any(|e| e.name == **name);
        if let Some(name) = proposal.only.iter().find(|name| !known(name)) {
            let mut names: Vec<_> = SUITE.iter().map(|e| e.name).collect();
            names.dedup();
            let names = names.join(", ");
            return Err(SweepError::Argument(format!(
                "{name} is not in the suite; expected one of {names}"
            )));
        }
        let wanted =
            |e: &&Entry| proposal.only.is_empty() || proposal.only.iter().any(|n| n == e.name);
        for entry in SUITE.iter().filter(wanted) {
            let of =
                entry.workload(proposal.full).works(Path::new("")).map_err(SweepError::Argument)?;
            about.extend(of.iter().map(|_| (entry.about.to_owned(), entry.regression)));
            works.extend(of);
        }
        let policies = [against, policy];
        let plan =
            Plan::of(&works, &policies, &proposal.seeds, files).map_err(SweepError::Argument)?;
        let [against, policy] = policies;
        Ok(Suite { plan, policy, against, seeds: proposal.seeds.clone(), about })
    }
}

impl Entry {
    fn workload(&self, full: bool) -> Workload {
        let short = self.short.iter().filter(|_| !full);
        let word =
            |(name, value): &(&str, &str)| ((*name).to_owned(), Word::Text((*value).to_owned()));
        let set: BTreeMap<_, _> = self.set.iter().chain(short).map(word).collect();
        Workload {
            name: self.name.to_owned(),
            machines: vec![self.machine.to_owned()],
            memory: (self.machine != "desktop").then(|| MEMORY.to_owned()),
            descriptor: DESCRIPTOR,
            iterations: 1,
            set,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{CellResult, Value};
    use crate::judge::{Aspect, Judgement, Verdict};
    use pageyard_lab::result::Better;

    fn proposal(policy: &str, against: &str) -> Proposal {
        let (policy, against) = (policy.to_owned(), against.to_owned());
        let (traces, only) = (Vec::new(), Vec::new());
        Proposal { policy, against, seeds: vec![1, 2], traces, full: false, only }
    }

    #[test]
    fn every_workload_takes_its_parameters_short_and_full() {
        for full in [false, true] {
            let suite = Suite::new(&Proposal { full, ..proposal("Linux612", "Vanilla") }).unwrap();
            assert_eq!(suite.plan.cells.len(), SUITE.len() * 2 * 2);
            assert_eq!(suite.about.len(), SUITE.len());
        }
        assert!(SUITE.iter().any(|e| e.regression));
        let only = vec!["stream".to_owned()];
        let suite = Suite::new(&Proposal { only, ..proposal("Linux612", "Vanilla") }).unwrap();
        assert!(suite.plan.cells.iter().all(|cell| cell.input().starts_with("stream ")));
        assert_eq!(suite.plan.cells.len(), 2 * 2 * 2);
    }

    #[test]
    fn invalid_proposals_are_named() {
        let wrong = |p: &Proposal| Suite::new(p).unwrap_err().to_string();
        let error = wrong(&proposal("Linux612", "Linux612"));
        assert!(error.contains("compared with itself") && error.contains("--against"), "{error}");
        let error = wrong(&proposal("Linux999", "Linux612"));
        assert!(error.contains("Linux999"), "{error}");
        let error = wrong(&proposal("Base,Step5", "Linux612"));
        assert!(error.contains("expected one policy"), "{error}");
        let only = vec!["stream".to_owned(), "strem".to_owned()];
        let error = wrong(&Proposal { only, ..proposal("Base", "Linux612") });
        assert!(error.contains("strem is not in the suite; expected one of trunc, "), "{error}");
        let traces = vec![PathBuf::from("/nowhere/x.pgy")];
        let error = wrong(&Proposal { traces, ..proposal("Base", "Linux612") });
        assert!(error.contains("/nowhere/x.pgy"), "{error}");
    }

    /// Results whose values tell which policy and seed they belong to.
    fn results(suite: &Suite) -> Vec<CellResult> {
        let result = |cell: &crate::Cell| {
            let judged = cell.policy == suite.policy;
            let value = |metric: &str, better, value: f64| Value {
                metric: metric.into(),
                unit: String::new(),
                better: Some(better),
                value: Some(value),
            };
            let seed = cell.seed as f64;
            let mut values = vec![
                // Each seed is a fifth faster, though seeds differ by more than that.
                value("rate", Better::Higher, 100.0 * seed * if judged { 1.2 } else { 1.0 }),
                value("peak_pcp-64", Better::Lower, 100.0 * seed * if judged { 1.5 } else { 1.0 }),
                value("hits", Better::Higher, if judged { 1.0 } else { 99.0 }),
            ];
            if judged {
                values.push(value("failed", Better::Lower, 1.0));
            }
            CellResult { key: String::new(), cell: cell.clone(), values }
        };
        suite.plan.cells.iter().map(result).collect()
    }

    #[test]
    fn seeds_are_paired_and_each_work_is_judged_by_its_own_cells() {
        let suite = Suite::new(&proposal("Step5", "Base")).unwrap();
        let judgement = Judgement::new(&suite, &results(&suite));
        // `hits` explains a result and is none.
        assert_eq!(judgement.figures.len(), SUITE.len() * 3);
        for (figures, entry) in judgement.figures.chunks(3).zip(&SUITE) {
            let found: Vec<_> =
                figures.iter().map(|f| (f.metric.as_str(), f.aspect, f.verdict)).collect();
            let expected = [
                ("rate", Aspect::Result, Verdict::Better),
                ("peak_pcp-64", Aspect::IdleMemory, Verdict::Worse),
                ("failed", Aspect::Failures, Verdict::Missing),
            ];
            assert_eq!(found, expected);
            assert!(figures.iter().all(|f| f.about == entry.about && f.machine == entry.machine));
            let (low, high) = figures[0].changes().unwrap();
            assert!((low - 0.2).abs() < 1e-9 && (high - 0.2).abs() < 1e-9, "{low} {high}");
        }
        let text = judgement.to_string();
        assert!(text.starts_with("Step5 against Base\n2 seeds (1, 2); machines are simulated\n"));
        assert!(text.contains("    rate: 150 -> 180 (+20.0 %), better\n"), "{text}");
        assert!(text.contains("fragmentation  not measured: add --trace FILE\n"), "{text}");
        assert!(text.contains("\nunclear: none\n"), "{text}");
    }

    #[test]
    fn a_build_is_judged_by_the_time_in_which_all_jobs_are_busy() {
        let suite = Suite::new(&proposal("Step5", "Base")).unwrap();
        let mut results = results(&suite);
        let time = |metric: &str, value: f64| Value {
            metric: metric.into(),
            unit: "s".into(),
            better: Some(Better::Lower),
            value: Some(value),
        };
        for result in &mut results {
            let judged = result.cell.policy == suite.policy;
            let busy = time("busy_time", if judged { 2.0 } else { 3.0 });
            result.values = vec![time("time", 9.0), busy];
        }
        let judgement = Judgement::new(&suite, &results);
        let found = judgement.figures.iter().map(|f| (f.metric.as_str(), f.aspect, f.verdict));
        let expected = ("busy_time", Aspect::Result, Verdict::Better);
        assert_eq!(found.collect::<Vec<_>>(), vec![expected; SUITE.len()]);
    }
}
