//! A job of a build: one process after another, on a CPU that the scheduler chooses.

use std::sync::atomic::Ordering::Relaxed;

use pageyard::{CpuId, NodeId, Order};
use pageyard_machine::Rng;

use super::super::actor::{Actor, Block};
use super::super::costs::LRU;
use super::super::process::{Memory, Process};
use super::super::seats::lock;
use super::super::slab::{DENTRY, slab_order};
use super::super::warm::WarmUp;
use super::state::{Kbuild, Object};
use crate::hygiene::build::{CLASSES, RECLAIMABLE_SLABS, WRITTEN, flags, order, quantile};

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

/// One job of a build; runs one process at a time.
pub(in super::super) struct Job<'j, 'env> {
    pub(super) build: &'j Kbuild,
    pub(super) actor: &'j dyn Actor<'env>,
    pub(super) number: usize,
    pub(super) objects: usize,
    pub(super) memory: Memory,
    pub(super) kept: Vec<Block>,
    /// The nodes of pages that are about to enter an LRU list.
    pub(super) entering: Vec<NodeId>,
    /// What the object at hand demands.
    pub(super) demand: Rng,
}

impl Job<'_, '_> {
    /// Returns a random number from 0 to 1, from the object's demand.
    fn unit(&mut self) -> f64 {
        self.demand.below(1 << 32) as f64 / (1u64 << 32) as f64
    }

    fn keep(&mut self, order: Order, bits: u32) {
        self.kept.extend(self.memory.take(self.actor, order, bits));
    }

    /// Keeps a page of a file.
    fn keep_file(&mut self, bits: u32) {
        let node = self.next_node(self.memory.node());
        self.keep(Order::ZERO, bits);
        self.enter_lru(node);
    }

    /// Returns the node of the next page.
    fn next_node(&self, bound: Option<NodeId>) -> NodeId {
        bound.unwrap_or_else(|| self.build.cpu_nodes[self.actor.cpu().0 as usize])
    }

    /// Puts a page on the LRU list of its node, with the pages before it when they are enough.
    fn enter_lru(&mut self, node: NodeId) {
        self.entering.push(node);
        if self.entering.len() >= self.build.lru {
            self.hold_lru(&self.entering);
            self.entering.clear();
        }
    }

    /// Takes the LRU locks for pages on these nodes: one hold for each run of a node.
    fn hold_lru(&self, nodes: &[NodeId]) {
        if self.build.lru == 0 {
            return;
        }
        let group = self.number % self.build.builds.len();
        for run in nodes.chunk_by(|a, b| a == b) {
            let lock = group * self.build.nodes + usize::from(run[0].0);
            self.actor.hold_lru(lock, LRU * run.len() as u64);
        }
    }

    /// Returns the CPU of the process that forks one of this class. Drivers fork compilers and
    /// assemblers on this job's CPU. All others are forked by make, which runs on the CPU of any job
    /// (assumed: each directory has a make of its own, and a scheduler moves what it forks).
    fn parent(&mut self, class: usize) -> CpuId {
        if matches!(class, COMPILER | AS) {
            return self.actor.cpu();
        }
        self.build.seats.cpu(self.demand.below(self.build.jobs as u64) as usize)
    }

    /// Runs a process that maps `pages` pages; `inside` runs while they are mapped.
    fn process(&mut self, class: usize, pages: u64, inside: impl FnOnce(&mut Self)) {
        let actor = self.actor;
        let mut process = Process::fork(actor, self.memory);
        let parent = self.parent(class);
        let objects = self.build.slabs.fork(actor, &mut self.memory, parent, class == COMPILER);
        let class = &CLASSES[class];
        // As many file pages as were measured for this class, and as much reclaimable slab as for all
        // classes. Unmovable slab is that of the process's objects.
        let files = self.demand.exponential((class.files * 1e6) as u64) as f64 / 1e6;
        let mut due = [self.unit(), self.unit()];
        let mut nodes = Vec::new();
        let rates = [files, RECLAIMABLE_SLABS].map(|n| n / pages.max(1) as f64);
        for page in 0..pages {
            if page.is_multiple_of(LOOK) {
                if self.demand.below(MOVES) == 0 {
                    let other = self.demand.below(1 << 32);
                    self.build.seats.swap(actor, self.number, other);
                }
                self.build.seats.sit(actor, self.number);
            }
            // Uniform between zero and twice the mean.
            let work = self.demand.below(2 * self.build.work + 1);
            let here = self.build.cpu_nodes[actor.cpu().0 as usize];
            let memory_node = self.memory.node().unwrap_or(here);
            actor.work(work, work * self.build.traffic / 1000, memory_node);
            let node = self.next_node(process.node());
            process.fault(actor);
            nodes.push(node);
            self.enter_lru(node);
            for (i, rate) in rates.iter().enumerate() {
                due[i] += rate;
                while due[i] >= 1.0 {
                    due[i] -= 1.0;
                    let written = i == 0 && self.unit() < WRITTEN;
                    match i {
                        0 if written => self.keep_file(flags::WRITE),
                        0 => self.keep_file(flags::READ),
                        _ => self.reclaimable_slab(),
                    }
                }
            }
        }
        inside(self);
        let outside = &self.build.outside;
        outside.peak.fetch_max(outside.now(actor), Relaxed);
        let mut nodes = nodes.into_iter();
        process.exit(actor, |pages| {
            let nodes: Vec<NodeId> = nodes.by_ref().take(pages).collect();
            nodes.chunks(self.build.lru.max(1)).for_each(|nodes| self.hold_lru(nodes));
        });
        self.build.slabs.exit(actor, objects);
    }

    /// Keeps a slab of directory entries or inodes: orders as measured (of 237 such slabs of the
    /// recording, on 4 CPUs, 34 were of order 3 and 23 of order 2), except that those of order 0
    /// follow the rule for this number of CPUs, with as many pages in all.
    fn reclaimable_slab(&mut self) {
        let draw = self.unit();
        let order = if draw < 0.14 {
            order(3)
        } else if draw < 0.24 {
            order(2)
        } else {
            let order = slab_order(DENTRY, self.build.cpu_nodes.len() as u32);
            if self.demand.below(order.pages().into()) != 0 {
                return;
            }
            order
        };
        self.keep(order, flags::RECLAIMABLE);
    }

    fn of_class(&mut self, class: usize, inside: impl FnOnce(&mut Self)) {
        let pages = quantile(&CLASSES[class].pages, self.unit()) as u64;
        self.process(class, pages, inside);
    }

    fn object(&mut self) {
        self.of_class(DRIVER, |job| {
            let pages = job.demand.log_normal(COMPILER_PAGES.0, COMPILER_PAGES.1);
            job.process(COMPILER, pages, |_| {});
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
    pub(in super::super) fn run(&mut self) -> bool {
        let build = &self.build.builds[self.number % self.build.builds.len()];
        loop {
            self.actor.sync();
            let (warming, now) = (self.warms_up(), self.actor.now());
            let Some(object) = lock(build).next(warming, now) else { break };
            self.demand = self.build.demand(self.number, object);
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
            self.demand = self.build.demand(self.number, Object::LINKER);
            self.process(COMPILER, LINKER.0 * objects / LINKER.1, |_| {});
        }
        lock(&self.build.kept).append(&mut self.kept);
        last.is_some()
    }
}
