//! How the tuning of the per-CPU lists did in a run: the allocator's verdicts, and the changes of
//! `high`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use pageyard::{Config, CpuId, Event, HighReason, Yard, ZoneId};
use pageyard_report::{CpuSample, Ring, Verdict, verdicts};
use serde::Serialize;

use super::machine::{Machine, id_of};
use crate::format::{grouped, number};

/// Number of changes of `high` that are kept for each CPU and zone.
const CHANGES: usize = 16;

/// One CPU's lists of one zone in a run. CPUs without findings are left out.
#[derive(Clone, Debug, Serialize)]
pub struct Explained {
    /// The zone's node.
    pub node: u16,
    /// The zone.
    pub zone: String,
    /// The CPU.
    pub cpu: u32,
    /// The allocator's verdicts on the lists.
    pub verdicts: Vec<ExplainedVerdict>,
    /// `high` at the start and at the end.
    pub high: (i32, i32),
    /// Number of changes of `high`, by reason.
    pub changes: BTreeMap<&'static str, u64>,
    /// The last changes, oldest first.
    pub last: Vec<Change>,
}

/// A verdict.
#[derive(Clone, Debug, Serialize)]
pub struct ExplainedVerdict {
    /// Its name.
    pub finding: &'static str,
    /// The text of the verdict.
    pub text: String,
    /// The evidence for the verdict.
    pub evidence: BTreeMap<&'static str, u64>,
}

/// A change of `high`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Change {
    /// Time in nanoseconds, in the trace's clock.
    pub t_ns: u64,
    /// The old value.
    pub from: i32,
    /// The new value.
    pub to: i32,
    /// Pages on the lists.
    pub count: i32,
    /// Refills so far.
    pub refills: u64,
    /// Bulk frees so far.
    pub drains: u64,
    /// The reason.
    pub reason: &'static str,
}

impl ExplainedVerdict {
    fn new(v: &Verdict) -> ExplainedVerdict {
        let mut evidence = BTreeMap::new();
        v.finding.evidence(|name, n| _ = evidence.insert(name, n));
        ExplainedVerdict { finding: v.finding.name(), text: v.to_string(), evidence }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for said in &self.verdicts {
            writeln!(f, "  node {} {}: {}", self.node, self.zone, said.text)?;
        }
        let all: u64 = self.changes.values().sum();
        let (from, to) = (number(self.high.0.into()), number(self.high.1.into()));
        write!(f, "    high {from} -> {to}, {} changes", grouped(all))?;
        for (i, (reason, n)) in self.changes.iter().enumerate() {
            write!(f, "{} {} {reason}", if i == 0 { ":" } else { "," }, grouped(*n))?;
        }
        writeln!(f)
    }
}

/// Bytes for each CPU's lists of a zone.
pub(super) const PER_LIST: usize = size_of::<Ring<CHANGES>>();

/// Observations of a run from which it is explained.
pub(super) struct Notes {
    zones: Vec<ZoneId>,
    cpus: usize,
    /// By zone, then by CPU.
    rings: RefCell<Vec<Ring<CHANGES>>>,
}

type Samples = Vec<Vec<CpuSample>>;

impl Notes {
    pub(super) fn new(machine: &Machine) -> Notes {
        let zones: Vec<ZoneId> = machine.zones.iter().map(id_of).collect();
        let cpus = machine.cpus.len();
        Notes { cpus, rings: RefCell::new(vec![Ring::new(); zones.len() * cpus]), zones }
    }

    pub(super) fn note(&self, now: u64, cpu: CpuId, event: &Event) {
        let Event::High { zone, change } = event else { return };
        if let Some(zone) = self.zones.iter().position(|z| z == zone) {
            self.rings.borrow_mut()[zone * self.cpus + cpu.0 as usize].note(now, *change);
        }
    }

    /// Samples all CPUs in all zones.
    pub(super) fn sample<C: Config>(&self, yard: &Yard<'_, C>) -> Samples {
        let cpus = |zone: usize| {
            let sample = |cpu| CpuSample::of(yard, self.zones[zone], CpuId(cpu as u32));
            (0..self.cpus).map(|cpu| sample(cpu).unwrap_or_default()).collect()
        };
        (0..self.zones.len()).map(cpus).collect()
    }

    pub(super) fn explain<C: Config>(
        &self,
        before: &Samples,
        ns: u64,
        yard: &Yard<'_, C>,
    ) -> Vec<Explained> {
        let after = self.sample(yard);
        let mut all = Vec::new();
        for (number, zone) in self.zones.iter().enumerate() {
            let mut said: Vec<Vec<ExplainedVerdict>> = vec![Vec::new(); self.cpus];
            let (before, after) = (&before[number], &after[number]);
            verdicts(yard, *zone, before, after, ns, |v| {
                said[v.cpu.0 as usize].push(ExplainedVerdict::new(&v));
            });
            for (cpu, verdicts) in said.into_iter().enumerate() {
                if verdicts.is_empty() {
                    continue;
                }
                let ring = &self.rings.borrow()[number * self.cpus + cpu];
                let counts = HighReason::ALL.iter().map(|r| (r.name(), ring.count(*r)));
                all.push(Explained {
                    node: zone.node.0,
                    zone: zone.kind.to_string(),
                    cpu: cpu as u32,
                    verdicts,
                    high: (before[cpu].tuning.high, after[cpu].tuning.high),
                    changes: counts.filter(|&(_, n)| n > 0).collect(),
                    last: ring
                        .iter()
                        .map(|&(t_ns, c)| Change {
                            t_ns,
                            from: c.from,
                            to: c.to,
                            count: c.count,
                            refills: c.refills,
                            drains: c.drains,
                            reason: c.reason.name(),
                        })
                        .collect(),
                });
            }
        }
        all
    }
}
