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
use super::warm::{Warm, WarmUp};
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
    let warm = Warm::parse(params, "warm")?;
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
            stages: Default::default(),
            warm,
            warm_up: Mutex::default(),
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
    /// The zones after the warm-up and after the measured stage.
    stages: [Mutex<Vec<ZoneView>>; 2],
    warm: Warm,
    warm_up: Mutex<Warming>,
}

/// The warm-up, which is not counted in objects: its end depends on what the lists do.
#[derive(Debug, Default)]
struct Warming {
    /// Whether it goes on.
    on: bool,
    /// Objects built.
    built: usize,
    /// Its rounds; none before the first object.
    rounds: Option<WarmUp>,
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

    /// Returns whether the warm-up goes on.
    fn warms_up(&self) -> bool {
        let now = self.actor.now();
        let mut warming = lock(&self.build.warm_up);
        if warming.on {
            warming.rounds.get_or_insert_with(|| WarmUp::new(self.build.warm, now));
        }
        warming.on
    }

    /// Counts an object of the warm-up, and ends it when it has lasted long enough.
    fn warmed(&self) {
        self.actor.sync();
        let round = {
            let mut warming = lock(&self.build.warm_up);
            warming.built += 1;
            warming.on && warming.built.is_multiple_of(self.build.jobs)
        };
        if round {
            let high = self.actor.zones().iter().map(|zone| zone.high).sum();
            let now = self.actor.now();
            let mut warming = lock(&self.build.warm_up);
            let over = warming.rounds.as_mut().is_none_or(|rounds| rounds.round(high, now));
            warming.on = !over;
        }
    }

    /// Runs this job's part of a build that has [begun](Kbuild::begin), or of the warm-up.
    /// Returns whether it was the last job of its build.
    pub(super) fn run(&mut self) -> bool {
        let build = &self.build.builds[self.number % self.build.builds.len()];
        loop {
            self.actor.sync();
            let warming = self.warms_up();
            {
                let mut state = lock(build);
                if !warming && state.left == 0 {
                    break;
                }
                state.left = state.left.saturating_sub(1);
            }
            self.object();
            self.actor.done(1);
            if warming {
                self.warmed();
            }
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
        last.is_some()
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
            stages: Default::default(),
            warm: Warm::Rounds(1),
            warm_up: Mutex::default(),
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
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        lock(&self.warm_up).on = true;
        // Objects of the warm-up are not counted down, and it links nothing.
        self.spawn(stage, 0, &self.stages[0]);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.objects, &self.stages[1]);
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

    /// How long the warm-up took, and where the memory came from on a machine of several nodes.
    fn measures(&self) -> Vec<Measure> {
        let mut all = lock(&self.warm_up).rounds.as_ref().map_or(Vec::new(), WarmUp::measures);
        let [warmed, ended] = self.stages.each_ref().map(lock);
        let mut nodes = BTreeMap::new();
        for (before, after) in warmed.iter().zip(ended.iter()) {
            *nodes.entry(after.id.node.0).or_insert(0) +=
                after.stats.pages_taken - before.stats.pages_taken;
        }
        if nodes.len() < 2 {
            return all;
        }
        let measure = |(node, pages): (&u16, &u64)| Measure {
            name: format!("zone_pages-node{node}"),
            unit: "pages",
            better: Better::Lower,
            value: *pages as f64,
        };
        all.extend(nodes.iter().map(measure));
        all
    }
}
