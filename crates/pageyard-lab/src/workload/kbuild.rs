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
//! A process's own work between two page faults is derived. The builds of A.5 took 13,249 s of user
//! time for 27,000 objects. An object needs a compiler with 15,200 pages (the mean of §8.5's
//! distribution) and about 2,000 pages of small processes: 28.5 us per page. This time includes the
//! slowdown by the core's other thread. In that build a busy thread's sibling worked 43% of the
//! time and spun for 25% (256 CPUs for 162 s; system time in excess of the other build's is counted
//! as spinning). In the other build, of 16,401 s, the sibling worked 68%. With the machine's
//! slowdown factors of 1.6 and 1.05, the two user times correspond to 10,450 and 11,630 s on cores
//! without a busy sibling. The mean is 23.8 us. This number has the largest influence on the share
//! of time spent on the zone lock, so it is a parameter.
//!
//! While a process works, lines arrive from the memory that the job's pages come from, at 1 GB/s.
//! Assumed, an order of magnitude: no program of SPEC CPU2017 uses more than 2.3 GB/s (Singh and
//! Awasthi, ICPE 2019; published). The figure of 502.gcc_r was not looked up.

use std::collections::BTreeMap;
use std::sync::Mutex;

use pageyard::{CpuId, NodeId, Order};

use super::actor::{Actor, Block, Measure, Plan, Stage, ZoneView};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::process::{Memory, Process};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::{Seats, lock};
use crate::hygiene::build::{CLASSES, Class, RECLAIMABLE_SLABS, SLABS, WRITTEN, flags, quantile};
use crate::result::Better;

/// Indices of the recording's process classes.
const AS: usize = 1;
const DRIVER: usize = 2;
const SMALL: usize = 4;
const COMPILER: usize = 0;
/// Small processes per compiler (measured: 203 to 124).
const SMALL_PER_OBJECT: f64 = 203.0 / 124.0;
/// Median and 99th percentile of a compiler's pages (stated).
const COMPILER_PAGES: (u64, u64) = (12_000, 60_000);
/// Pages of the linker, and the number of objects per linker (stated; derived).
const LINKER: (u64, u64) = (1_000_000, 27_000);
/// A process may move after every `LOOK` pages, with a chance of one in `MOVES`; another process
/// then takes its CPU. A compiler's 15,200 pages are 475 checks, so 8% of compilers move. Derived.
const LOOK: u64 = 32;
const MOVES: u64 = 12_000;

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
        param("groups", "1", "concurrent builds, which share the jobs"),
        param(
            "work",
            "23800",
            "nanoseconds of work between two page faults of a process, alone on its core",
        ),
        param("traffic", "1000", "bytes read from memory per microsecond of this work"),
        param("objects", "3", "objects per job, after one warm-up"),
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
    let objects = params.number("objects", 1..=1 << 20)? as usize;
    let cores = site.spread(&mut cpus);
    // A scheduler moves no process to the sibling of a busy thread while a core is idle.
    cpus.truncate(jobs.max(cores));
    // A job's memory stays bound to its node wherever the job runs, as with numactl.
    let memory = cpus.iter().map(|&cpu| memory(params, site, cpu)).collect::<Result<_, _>>()?;
    let builds = (0..groups)
        .map(|g| {
            let jobs = (0..jobs).filter(|j| j % groups == g).count();
            Mutex::new(Build { left: 0, running: 0, jobs })
        })
        .collect();
    let seats = Seats::new(cpus);
    Ok(vec![(
        String::new(),
        Box::new(Kbuild {
            jobs,
            work,
            traffic,
            objects,
            memory,
            cpu_nodes: site.cpus.clone(),
            builds,
            seats,
            kept: Mutex::default(),
            stages: Mutex::default(),
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

/// One build.
#[derive(Debug)]
struct Build {
    /// Objects that no job has begun.
    left: usize,
    /// Jobs that are not done.
    running: usize,
    jobs: usize,
}

#[derive(Debug)]
pub(super) struct Kbuild {
    jobs: usize,
    work: u64,
    /// Bytes per microsecond of that work.
    traffic: u64,
    objects: usize,
    /// Where each job's memory comes from.
    memory: Vec<Memory>,
    /// The node of each CPU.
    cpu_nodes: Vec<NodeId>,
    builds: Vec<Mutex<Build>>,
    seats: Seats,
    /// Blocks that outlive the processes: files and slab.
    pub(super) kept: Mutex<Vec<Block>>,
    /// The zones after the stage before the last one, and after the last one.
    stages: Mutex<[Vec<ZoneView>; 2]>,
}

/// One job of a build; runs one process at a time.
pub(super) struct Job<'j, 'env> {
    build: &'j Kbuild,
    actor: &'j dyn Actor<'env>,
    number: usize,
    objects: usize,
    memory: Memory,
    kept: Vec<Block>,
}

impl Job<'_, '_> {
    /// Returns a random number from 0 to 1.
    fn unit(&self) -> f64 {
        self.actor.random(1 << 32) as f64 / (1u64 << 32) as f64
    }

    fn keep(&mut self, order: Order, bits: u32) {
        self.kept.extend(self.memory.take(self.actor, order, bits));
    }

    /// Runs a process that maps `pages` pages; `inside` runs while they are mapped.
    fn process(&mut self, class: &Class, pages: u64, inside: impl FnOnce(&mut Self)) {
        let actor = self.actor;
        let mut process = Process::fork(actor, self.memory);
        // As many file pages as were measured for this class, and as much slab as for all classes.
        let files = actor.random_exponential((class.files * 1e6) as u64) as f64 / 1e6;
        let mut due = [self.unit(), self.unit(), self.unit()];
        let rates = [files, SLABS, RECLAIMABLE_SLABS].map(|n| n / pages.max(1) as f64);
        for page in 0..pages {
            if page.is_multiple_of(LOOK) {
                if actor.random(MOVES) == 0 {
                    self.build.seats.swap(actor, self.number);
                }
                self.build.seats.sit(actor, self.number);
            }
            // Uniform between zero and twice the mean.
            let work = actor.random(2 * self.build.work + 1);
            let here = self.build.cpu_nodes[actor.cpu().0 as usize];
            let memory_node = self.memory.node().unwrap_or(here);
            actor.work(work, work * self.build.traffic / 1000, memory_node);
            process.fault(actor);
            for (i, rate) in rates.iter().enumerate() {
                due[i] += rate;
                while due[i] >= 1.0 {
                    due[i] -= 1.0;
                    let written = i == 0 && self.unit() < WRITTEN;
                    let bits = [
                        if written { flags::WRITE } else { flags::READ },
                        flags::SLAB,
                        flags::RECLAIMABLE,
                    ][i];
                    self.keep(Order::ZERO, bits);
                }
            }
        }
        inside(self);
        process.exit(actor);
    }

    fn of_class(&mut self, class: usize, inside: impl FnOnce(&mut Self)) {
        let class = &CLASSES[class];
        let pages = quantile(&class.pages, self.unit()) as u64;
        self.process(class, pages, inside);
    }

    fn object(&mut self) {
        self.of_class(DRIVER, |job| {
            let pages = job.actor.random_log_normal(COMPILER_PAGES.0, COMPILER_PAGES.1);
            job.process(&CLASSES[COMPILER], pages, |_| {});
            job.of_class(AS, |_| {});
        });
        let small = SMALL_PER_OBJECT as u32 + u32::from(self.unit() < SMALL_PER_OBJECT.fract());
        for _ in 0..small {
            self.of_class(SMALL, |_| {});
        }
    }

    /// Runs this job's part of a build that has [begun](Kbuild::begin).
    pub(super) fn run(&mut self) {
        let build = &self.build.builds[self.number % self.build.builds.len()];
        loop {
            self.actor.sync();
            let mut state = lock(build);
            if state.left == 0 {
                break;
            }
            state.left -= 1;
            drop(state);
            self.object();
            self.actor.done(1);
            lock(&self.build.kept).append(&mut self.kept);
        }
        let last = {
            let mut state = lock(build);
            state.running -= 1;
            (state.running == 0).then_some((state.jobs * self.objects) as u64)
        };
        if let Some(objects) = last {
            self.process(&CLASSES[COMPILER], LINKER.0 * objects / LINKER.1, |_| {});
        }
        lock(&self.build.kept).append(&mut self.kept);
        if last.is_some() {
            let zones = self.actor.zones();
            let mut stages = lock(&self.build.stages);
            stages.swap(0, 1);
            stages[1] = zones;
        }
    }
}

impl Kbuild {
    /// Creates one build with `jobs` jobs on all CPUs: one job per CPU, or more if there are fewer
    /// CPUs. Its own work moves no bytes.
    pub(super) fn on(site: &Site, jobs: usize, work: u64, objects: usize) -> Kbuild {
        let cpus = site.count();
        let seat = |n: usize| CpuId((n as u64 % cpus) as u32);
        Kbuild {
            jobs,
            work,
            traffic: 0,
            objects,
            memory: vec![Memory::Local; jobs],
            cpu_nodes: site.cpus.clone(),
            builds: vec![Mutex::new(Build { left: 0, running: 0, jobs })],
            seats: Seats::new((0..jobs.max(cpus as usize)).map(seat)),
            kept: Mutex::default(),
            stages: Mutex::default(),
        }
    }

    /// Begins a new build with `objects` objects per job. No job of the previous build may still be
    /// running.
    pub(super) fn begin(&self, objects: usize) {
        for build in &self.builds {
            let mut build = lock(build);
            build.left = build.jobs * objects;
            build.running = build.jobs;
        }
    }

    /// Returns a job, to be run by an actor that starts on the job's [CPU](Kbuild::cpu).
    pub(super) fn job<'j, 'env>(
        &'j self,
        actor: &'j dyn Actor<'env>,
        number: usize,
        objects: usize,
    ) -> Job<'j, 'env> {
        let (memory, kept) = (self.memory[number], Vec::new());
        Job { build: self, actor, number, objects, memory, kept }
    }

    pub(super) fn cpu(&self, number: usize) -> CpuId {
        self.seats.cpu(number)
    }

    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, objects: usize) {
        self.begin(objects);
        for number in 0..self.jobs {
            stage.spawn(
                self.cpu(number),
                Box::new(move |actor| self.job(actor, number, objects).run()),
            );
        }
    }
}

impl Plan for Kbuild {
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, 1);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.objects);
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            self.seats.cpu(0),
            Box::new(move |actor| {
                let kept = std::mem::take(&mut *lock(&self.kept));
                actor.free_list(&kept);
            }),
        );
    }

    /// Where the memory came from, on a machine of several nodes.
    fn measures(&self) -> Vec<Measure> {
        let stages = lock(&self.stages);
        let mut nodes = BTreeMap::new();
        for (before, after) in stages[0].iter().zip(&stages[1]) {
            *nodes.entry(after.id.node.0).or_insert(0) +=
                after.stats.pages_taken - before.stats.pages_taken;
        }
        if nodes.len() < 2 {
            return Vec::new();
        }
        let measure = |(node, pages): (&u16, &u64)| Measure {
            name: format!("zone_pages-node{node}"),
            unit: "pages",
            better: Better::Lower,
            value: *pages as f64,
        };
        nodes.iter().map(measure).collect()
    }
}
