//! A kernel build (spec A.4): many short processes, each of which frees all its memory at once when
//! it exits.
//!
//! For each object a driver, a compiler, an assembler and small processes run, one at a time on
//! each job's CPU. Their proportions, the pages of all but the compiler, page tables, slab and file
//! pages are measured (recording `6.12-build`,
//! [`hygiene::build`](crate::hygiene::build)). The compiler of a kernel file is larger: log-normal,
//! median 12,000 pages, 99th percentile 60,000 (stated). When all objects of a build are done, it
//! is linked by one process of a million pages (stated) per 27,000 objects (assumed: the number in
//! an allmodconfig of Linux 5.4). The scheduler sometimes moves a process: 8% of the recorded pages
//! are freed on another CPU than the one that allocated them.
//!
//! A process's work between two page faults is derived from a build of an allmodconfig kernel on
//! another machine (mvermeulen.org/perf, `build-linux-kernel`; published): 2,366,940,384 page faults
//! in 66,455 s of CPU time, 28.08 us each. Its 16 CPUs were busy for 94.8% of the time. That two of
//! them share a core is assumed (the page's `smt-contention` says that they share something). With
//! the machine's slowdown of 1.6 a fault takes 28.08 / (1 + 0.6 * 0.948) = 17.9 us on a core without
//! a busy sibling. Of this the model accounts for 0.8 us itself: the fault, zeroing, unmapping, and
//! the allocator's part. That leaves 17.1 us for the program and the rest of the system. That each
//! fault takes one page is assumed: some map pages of files, and reading files takes pages without a
//! fault. This number has the largest influence on the share of time spent on the zone lock, so it is
//! a parameter.
//!
//! Pages of processes and files are on the LRU list of their node, or of their group and node: each of
//! `groups` builds has lists of its own, as a cgroup has. A list's lock is taken for `lru` pages at a
//! time. Kernels of 2023 gather 15 pages, newer ones 31: assumed, as is what the lock is held for
//! ([`LRU`](super::costs::LRU)).
//!
//! While a process works, lines arrive from the memory that the job's pages come from, at 1 GB/s.
//! Assumed, an order of magnitude: no program of SPEC CPU2017 uses more than 2.3 GB/s (Singh and
//! Awasthi, ICPE 2019; published). The figure of 502.gcc_r was not looked up.

mod job;
mod state;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{CpuId, NodeId};

use super::actor::{Actor, Measure, Plan, Stage, ZoneView};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::process::Memory;
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::{Seats, lock};
use super::slab::Slabs;
use super::warm::{Warm, WarmUp};
use crate::result::Better;

use job::Job;
pub(super) use state::Kbuild;
use state::{Build, Object, Outside};

pub(super) const RECIPE: Recipe = Recipe {
    name: "kbuild",
    summary: "a kernel build: short processes that exit in bursts, then a linker",
    params: &[
        param(
            "jobs",
            "all",
            "concurrent processes, each on its own CPU, one a core first; all: one per CPU",
        ),
        param("cpus", "all", "CPUs on which they run: all, or the number of a node"),
        param(
            "memory",
            "local",
            "their memory, whatever CPUs they run on: local, other (the next node), interleave, or \
             node:N",
        ),
        param(
            "groups",
            "1",
            "concurrent builds, which share the jobs; each has its own LRU lists, as a cgroup has",
        ),
        param(
            "lru",
            "15",
            "pages that enter or leave an LRU list in one hold of its lock; 0: no LRU",
        ),
        param(
            "work",
            "17100",
            "nanoseconds of work between two page faults of a process, alone on its core",
        ),
        param("traffic", "1000", "bytes read from memory per microsecond of this work"),
        param("objects", "3", "objects per job, after the warm-up"),
        param(
            "warm",
            "stationary",
            "objects per job before that: a number, or stationary: until the lists' high is, at \
             most 241",
        ),
        param(
            "idle",
            "0",
            "seconds without a process after the build, before its files are removed",
        ),
    ],
    score: Score::Time,
    plan,
};

pub(super) fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let mut cpus: Vec<CpuId> = if params.text("cpus") == "all" {
        (0..site.cpus.len() as u32).map(CpuId).collect()
    } else {
        let node = params.number("cpus", 0..=u64::from(site.nodes - 1))?;
        site.cpus_of(NodeId(node as u16))
    };
    let jobs = params.number_or_all("jobs", 1..=cpus.len() as u64)? as usize;
    let work = params.number("work", 0..=1 << 40)?;
    let traffic = params.number("traffic", 0..=1 << 20)?;
    let groups = params.number("groups", 1..=jobs as u64)? as usize;
    let lru = params.number("lru", 0..=1 << 10)? as usize;
    let objects = params.number("objects", 1..=1 << 20)? as usize;
    let idle = params.number("idle", 0..=1 << 20)?;
    let warm = Warm::parse(params, "warm")?;
    let cores = site.spread(&mut cpus);
    // A scheduler moves no process to the sibling of a busy thread while a core is idle.
    cpus.truncate(jobs.max(cores));
    // A job's memory stays bound to its node wherever the job runs, as with numactl.
    let memory = cpus.iter().map(|&cpu| memory(params, site, cpu)).collect::<Result<_, _>>()?;
    let builds = (0..groups)
        .map(|g| {
            let jobs = (0..jobs).filter(|j| j % groups == g).count();
            Mutex::new(Build::new(jobs))
        })
        .collect();
    let seats = Seats::new(cpus);
    Ok(vec![(
        String::new(),
        Box::new(Kbuild {
            jobs,
            work,
            traffic,
            lru,
            nodes: site.nodes.into(),
            objects,
            idle,
            memory,
            cpu_nodes: site.cpus.clone(),
            builds,
            seed: AtomicU64::default(),
            seats,
            kept: Mutex::default(),
            stages: Default::default(),
            slabs: Slabs::new(site.cpus.len() as u32),
            warm,
            warm_up: Mutex::default(),
            outside: Outside::default(),
        }),
    )])
}

/// Parses `memory` for a job that starts on this CPU.
fn memory(params: &Params, site: &Site, cpu: CpuId) -> Result<Memory, WorkloadError> {
    let text = params.text("memory");
    let most = site.nodes - 1;
    match text {
        "local" => Ok(Memory::Local),
        "other" => Ok(Memory::Node(NodeId((site.cpus[cpu.0 as usize].0 + 1) % site.nodes))),
        "interleave" => {
            Ok(Memory::Interleave { next: cpu.0 as u16 % site.nodes, nodes: site.nodes })
        }
        _ => text
            .strip_prefix("node:")
            .and_then(|n| n.parse().ok())
            .filter(|&n| n <= most)
            .map(|n| Memory::Node(NodeId(n)))
            .ok_or_else(|| {
                let want = format!("local, other, interleave, or node:N with N from 0 to {most}");
                params.wrong("memory", want)
            }),
    }
}

impl Kbuild {
    /// Returns a job, to be run by an actor that starts on the job's [CPU](Kbuild::cpu).
    pub(super) fn job<'j, 'env>(
        &'j self,
        actor: &'j dyn Actor<'env>,
        number: usize,
        objects: usize,
    ) -> Job<'j, 'env> {
        let (memory, kept, entering) = (self.memory[number], Vec::new(), Vec::new());
        // Replaced with each object.
        let demand = self.demand(number, Object::LINKER);
        Job { build: self, actor, number, objects, memory, kept, entering, demand }
    }

    fn spawn<'env>(
        &'env self,
        stage: &dyn Stage<'env>,
        objects: usize,
        after: &'env Mutex<Vec<ZoneView>>,
    ) {
        self.begin(objects);
        for number in 0..self.jobs {
            stage.spawn(
                self.cpu(number),
                Box::new(move |actor| {
                    if self.job(actor, number, objects).run() {
                        // With several builds, the last one to end sees the end of the stage.
                        actor.sync();
                        let zones = actor.zones();
                        *lock(after) = zones;
                    }
                }),
            );
        }
    }
}

impl Plan for Kbuild {
    fn lru_locks(&self) -> usize {
        if self.lru == 0 { 0 } else { self.builds.len() * self.nodes }
    }

    fn prepare<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            self.seats.cpu(0),
            Box::new(|actor| {
                self.choose(actor);
                self.outside.free_at_start.store(actor.zone_free(), Relaxed);
            }),
        );
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        lock(&self.warm_up).on = true;
        // Objects of the warm-up are not counted down, and it links nothing.
        self.spawn(stage, 0, &self.stages[0]);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.outside.peak.store(0, Relaxed);
        self.spawn(stage, self.objects, &self.stages[1]);
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            self.seats.cpu(0),
            Box::new(move |actor| {
                actor.sleep_until(actor.now() + self.idle * 1_000_000_000);
                self.outside.idle.store(self.outside.now(actor), Relaxed);
                actor.free_list(&self.left());
            }),
        );
    }

    /// How long the warm-up took and all jobs were busy, how much memory was outside the zones, and where
    /// it came from on a machine of several nodes.
    fn measures(&self) -> Vec<Measure> {
        let mut all = lock(&self.warm_up).rounds.as_ref().map_or(Vec::new(), WarmUp::measures);
        all.push(Measure {
            name: "busy_time".into(),
            unit: "s",
            better: Better::Lower,
            value: self.busy_ns().map(|ns| ns as f64 / 1e9),
        });
        let outside = |name: &str, pages: &AtomicU64| Measure {
            name: name.into(),
            unit: "pages",
            better: Better::Lower,
            value: Some(pages.load(Relaxed) as f64),
        };
        all.push(outside("peak_memory", &self.outside.peak));
        all.push(outside("idle_memory", &self.outside.idle));
        let [warmed, ended] = self.stages.each_ref().map(lock);
        let mut nodes = BTreeMap::new();
        for (before, after) in warmed.iter().zip(ended.iter()) {
            *nodes.entry(after.id.node.0).or_insert(0) += after.pages_taken - before.pages_taken;
        }
        if nodes.len() < 2 {
            return all;
        }
        let measure = |(node, pages): (&u16, &u64)| Measure {
            name: format!("zone_pages-node{node}"),
            unit: "pages",
            better: Better::Lower,
            value: Some(*pages as f64),
        };
        all.extend(nodes.iter().map(measure));
        all
    }
}
