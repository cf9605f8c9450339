//! The state of a build: what its jobs share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{CpuId, NodeId};

use super::super::actor::{Actor, Block, ZoneView};
use super::super::process::Memory;
use super::super::recipe::Site;
use super::super::seats::{Seats, lock};
use super::super::slab::Slabs;
use super::super::warm::{Warm, WarmUp};

/// One build.
#[derive(Debug)]
pub(super) struct Build {
    /// Objects that no job has begun.
    pub(super) left: usize,
    /// Jobs that are not done.
    pub(super) running: usize,
    pub(super) jobs: usize,
}

#[derive(Debug)]
pub(in super::super) struct Kbuild {
    pub(super) jobs: usize,
    pub(super) work: u64,
    /// Bytes per microsecond of that work.
    pub(super) traffic: u64,
    /// Pages in one hold of an LRU lock.
    pub(super) lru: usize,
    pub(super) nodes: usize,
    pub(super) objects: usize,
    /// Seconds.
    pub(super) idle: u64,
    /// Where each job's memory comes from.
    pub(super) memory: Vec<Memory>,
    /// The node of each CPU.
    pub(super) cpu_nodes: Vec<NodeId>,
    pub(super) builds: Vec<Mutex<Build>>,
    pub(super) seats: Seats,
    /// Blocks that outlive the processes: files and slab.
    pub(in super::super) kept: Mutex<Vec<Block>>,
    /// The zones after the warm-up and after the measured stage.
    pub(super) stages: [Mutex<Vec<ZoneView>>; 2],
    /// The slabs of the running processes.
    pub(super) slabs: Slabs,
    pub(super) warm: Warm,
    pub(super) warm_up: Mutex<Warming>,
    pub(super) outside: Outside,
}

/// Pages outside the zones' free lists: in use or on per-CPU lists.
#[derive(Debug, Default)]
pub(super) struct Outside {
    /// Pages on the free lists before the warm-up.
    pub(super) free_at_start: AtomicU64,
    /// The most outside during the measured stage, more than at the start. Frees alone make it fall,
    /// so it is read whenever a process begins to exit.
    pub(super) peak: AtomicU64,
    /// Outside after the idle phase, more than at the start.
    pub(super) idle: AtomicU64,
}

impl Outside {
    pub(super) fn now(&self, actor: &dyn Actor<'_>) -> u64 {
        actor.sync();
        self.free_at_start.load(Relaxed).saturating_sub(actor.zone_free())
    }
}

/// The warm-up, which is not counted in objects: its end depends on what the lists do.
#[derive(Debug, Default)]
pub(super) struct Warming {
    /// Whether it goes on.
    pub(super) on: bool,
    /// Objects built.
    pub(super) built: usize,
    /// Its rounds; none before the first object.
    pub(super) rounds: Option<WarmUp>,
}

impl Kbuild {
    /// Creates one build with `jobs` jobs on all CPUs: one job per CPU, or more if there are fewer
    /// CPUs. Its own work moves no bytes.
    pub(in super::super) fn on(site: &Site, jobs: usize, work: u64, objects: usize) -> Kbuild {
        let cpus = site.count();
        let seat = |n: usize| CpuId((n as u64 % cpus) as u32);
        Kbuild {
            jobs,
            work,
            traffic: 0,
            lru: 0,
            nodes: site.nodes.into(),
            objects,
            idle: 0,
            memory: vec![Memory::Local; jobs],
            cpu_nodes: site.cpus.clone(),
            builds: vec![Mutex::new(Build { left: 0, running: 0, jobs })],
            seats: Seats::new((0..jobs.max(cpus as usize)).map(seat)),
            kept: Mutex::default(),
            stages: Default::default(),
            slabs: Slabs::new(site.cpus.len() as u32),
            warm: Warm::Rounds(1),
            warm_up: Mutex::default(),
            outside: Outside::default(),
        }
    }

    /// Takes what outlives all processes: files and slabs.
    pub(in super::super) fn left(&self) -> Vec<Block> {
        let mut all = std::mem::take(&mut *lock(&self.kept));
        all.extend(self.slabs.take_all());
        all
    }

    /// Begins a new build with `objects` objects per job. No job of the previous build may still be
    /// running.
    pub(in super::super) fn begin(&self, objects: usize) {
        for build in &self.builds {
            let mut build = lock(build);
            build.left = build.jobs * objects;
            build.running = build.jobs;
        }
    }

    pub(in super::super) fn cpu(&self, number: usize) -> CpuId {
        self.seats.cpu(number)
    }
}
