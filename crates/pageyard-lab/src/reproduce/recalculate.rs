//! Limits of the per-CPU lists that are computed too early (A.5). Most of a zone is initialised
//! late, and lists sized for one section move 7 pages at a time on a machine of 256 CPUs.
//!
//! The pagesets are those of an allocator that starts like that machine. The builds then run with
//! the limits that it computed.

use pageyard::policy::{Base, EarlyLimits, Rules, SixBatches, StaticPolicy};
use pageyard::tuning::Limits;
use pageyard::{CpuId, Hooked, Knobs, Layout, NodeId, Pfn, Yard, ZoneKind, ZoneSpec};

use super::agree::{Column, Kind};
use super::auto_tuning::AGE;
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Comparison, Outcome, SIDES};
use super::simulated::Simulated;
use crate::{Lock, Memory};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "recalculate",
    summary: "limits computed before memory is available: batches of 7, and zone lock contention on \
              256 CPUs",
    source: "A.5",
    simulated: true,
    anchors: &[],
    run,
};

const CPUS: u32 = 256;
const POLICY: &str = "BlockByBlock<NoHighOrder<SixBatches<Base>>>";
/// Pages per GiB.
const GIB: u64 = 1 << 18;
/// Published: pagesets by batch and high, before and after.
const PAGESETS: [(i32, i32, [u32; 2]); 3] =
    [(1, 0, [256, 256]), (7, 42, [512, 0]), (63, 378, [256, 768])];
/// Published: duration of a build in seconds.
const ELAPSED: [f64; 2] = [162.42, 119.13];
const SYSTEM: [f64; 2] = [14_760.30, 4_448.39];

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let early = pagesets(&<EarlyLimits<SixBatches<Base>>>::RULES)?;
    let late = pagesets(&<SixBatches<Base>>::RULES)?;
    let count = |all: &[Limits], batch, high| {
        all.iter().filter(|l| (l.batch, l.high_min) == (batch, high)).count() as f64
    };
    let column = |i: usize, name: &str, all: &[Limits]| {
        let seed = PAGESETS.map(|p| Some(f64::from(p.2[i])));
        Column::new(name, "", Kind::Plain, &seed, &PAGESETS.map(|p| Some(count(all, p.0, p.1))))
    };
    let pagesets = Comparison {
        title: "pagesets of 256 CPUs in four zones, by batch/high".into(),
        world: "an allocator with this start; nothing is timed".into(),
        command: String::new(),
        sides: SIDES,
        rows: PAGESETS.map(|p| format!("{}/{}", p.0, p.1)).to_vec(),
        columns: vec![column(0, "before", &early), column(1, "after", &late)],
    };
    // The limits of the NORMAL zones of both nodes: the last of the list.
    let limits = [early.last(), late.last()].map(|l| l.copied().unwrap_or(Limits::DISABLED));
    Ok(Outcome {
        tables: vec![pagesets, builds(run, limits)?],
        claims: Vec::new(),
        notes: vec![
            "The published system time is that of a whole kernel; ours is the time in the allocator \
             and waiting for its locks."
                .into(),
            "The share of memory that has been in use before the builds is assumed. The machine prices \
             the kernel's instructions, as for --cost linux."
                .into(),
        ],
    })
}

/// Returns the limits of all pagesets of a machine whose NORMAL zones are initialised late: the DMA
/// and DMA32 memory that Linux's own start leaves, and two nodes.
fn pagesets(rules: &Rules) -> Result<Vec<Limits>, ReproduceError> {
    let spans = [
        (0, ZoneKind::Dma, 1..3841),
        (0, ZoneKind::Dma32, 4096..4096 + 176_128),
        (0, ZoneKind::Normal, 4 * GIB..6 * GIB),
        (1, ZoneKind::Normal, 6 * GIB..8 * GIB),
    ];
    let zones = spans.map(|(node, kind, r)| {
        let span = Pfn(r.start)..Pfn(r.end);
        ZoneSpec { kind, node: NodeId(node), span }
    });
    let usable = zones.each_ref().map(|z| z.span.clone());
    let cpus: Vec<NodeId> = (0..CPUS).map(|c| NodeId((c >= CPUS / 2).into())).collect();
    let layout = Layout {
        zones: &zones,
        usable: &usable,
        reserved: &[],
        cpus: &cpus,
        distances: &[],
        knobs: Knobs::default(),
    };
    let memory = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let mut yard: Yard<'_, Hooked<Lock, _, _>> = Yard::with_policy((), rules);
    yard.init_deferred(&layout, memory.storage(&mut rooms))?;
    while !yard.finish_deferred() {}
    let zones = yard.zone_ids().flat_map(|z| (0..CPUS).map(move |c| (z, CpuId(c))));
    let mut all: Vec<(ZoneKind, Limits)> =
        zones.filter_map(|(z, cpu)| Some((z.kind, yard.pageset(z, cpu)?.limits))).collect();
    all.sort_by_key(|(kind, _)| *kind);
    Ok(all.into_iter().map(|(_, limits)| limits).collect())
}

fn builds(run: &mut Run<'_>, limits: [Limits; 2]) -> Result<Comparison, ReproduceError> {
    let small = run.options.scale == Scale::Small;
    // One process per CPU.
    let [machine, objects, warm, title] = match small {
        true => ["2x20", "1", "1", "kbuild -j80"],
        false => ["2x64", "8", "stationary", "kbuild -j256"],
    };
    let mut found = Vec::new();
    for limits in limits {
        let build = Simulated {
            workload: "kbuild",
            machine,
            policies: &[POLICY],
            set: &[("objects", objects), ("warm", warm)],
            age: if small { 1 } else { AGE },
            linux: true,
            limits: Some(limits),
            ..Simulated::default()
        };
        found.push(build.run(run, &format!("kbuild, batch {}", limits.batch))?);
    }
    let ours = |metric: &str| found.iter().map(|f| f.means(metric)[0]).collect::<Vec<_>>();
    let index = |name: &str, seed: [f64; 2], ours: &[Option<f64>]| {
        Column::new(name, "", Kind::Index, &seed.map(Some), ours)
    };
    let rows = limits.map(|l| format!("{}/{}", l.batch, l.high_min));
    let columns = vec![
        index("elapsed", ELAPSED, &ours("busy_time")),
        index("system", SYSTEM, &ours("allocator")),
        Column::ours("zone lock", "%", &ours("zone_lock")),
    ];
    Ok(found[0].compare(title, rows, columns))
}
