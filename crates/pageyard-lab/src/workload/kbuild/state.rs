//! The state of a build: what its jobs share.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pageyard::{CpuId, NodeId};
use pageyard_machine::Rng;

use super::super::actor::{Actor, Block, ZoneView};
use super::super::process::Memory;
use super::super::recipe::Site;
use super::super::seats::{Seats, lock};
use super::super::slab::Slabs;
use super::super::warm::{Warm, WarmUp};

/// One build.
#[derive(Debug)]
pub(super) struct Build {
    pub(super) jobs: usize,
    /// Jobs that are not done.
    pub(super) running: usize,
    /// Objects that no job has begun.
    left: usize,
    /// The object that was begun last.
    last: Object,
    /// When the first object was begun.
    began_ns: Option<u64>,
    /// When a job first found nothing left to begin.
    exhausted_ns: Option<u64>,
}

/// An object, by its number, of one of the builds that follow each other.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Object {
    build: u64,
    number: u64,
}

impl Object {
    /// The process that links all objects.
    pub(super) const LINKER: Object = Object { build: 0, number: u64::MAX };
}

impl Build {
    pub(super) fn new(jobs: usize) -> Build {
        let last = Object::default();
        Build { jobs, running: 0, left: 0, last, began_ns: None, exhausted_ns: None }
    }

    /// Begins another build, of this many objects.
    fn begin(&mut self, objects: usize) {
        let last = Object { build: self.last.build + 1, number: 0 };
        *self = Build { running: self.jobs, left: objects, last, ..Build::new(self.jobs) };
    }

    /// Returns the next object; `None` if none is left. A warm-up has no end here.
    pub(super) fn next(&mut self, warming: bool, now_ns: u64) -> Option<Object> {
        self.began_ns.get_or_insert(now_ns);
        if !warming && self.left == 0 {
            self.exhausted_ns.get_or_insert(now_ns);
            return None;
        }
        self.left = self.left.saturating_sub(1);
        self.last.number += 1;
        Some(self.last)
    }
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
    /// What the demand of all objects follows from.
    pub(super) seed: AtomicU64,
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
            builds: vec![Mutex::new(Build::new(jobs))],
            seed: AtomicU64::default(),
            seats: Seats::new((0..jobs.max(cpus as usize)).map(seat)),
            kept: Mutex::default(),
            stages: Default::default(),
            slabs: Slabs::new(site.cpus.len() as u32),
            warm: Warm::Rounds(1),
            warm_up: Mutex::default(),
            outside: Outside::default(),
        }
    }

    /// Chooses what the objects demand. Once in a run, before the first object.
    pub(in super::super) fn choose(&self, actor: &dyn Actor<'_>) {
        self.seed.store(actor.random(u64::MAX), Relaxed);
    }

    /// Returns the random numbers that an object's demand follows from. They depend on the run's seed and
    /// on the object alone: all policies build the same objects, after any warm-up and on any job.
    pub(super) fn demand(&self, job: usize, object: Object) -> Rng {
        let group = (job % self.builds.len()) as u64;
        let mut rng = Rng::new(self.seed.load(Relaxed));
        for n in [group, object.build, object.number] {
            rng = Rng::new(rng.next_u64() ^ n);
        }
        rng
    }

    /// Returns for how long all jobs were busy: from the first object of a build until a job found none
    /// left. Of several builds at once, until that of the last one.
    pub(super) fn busy_ns(&self) -> Option<u64> {
        let builds = self.builds.iter().map(lock);
        let times: Vec<_> =
            builds.map(|b| b.began_ns.zip(b.exhausted_ns)).collect::<Option<_>>()?;
        let began = times.iter().map(|t| t.0).min()?;
        Some(times.iter().map(|t| t.1).max()?.saturating_sub(began))
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
            let objects = build.jobs * objects;
            build.begin(objects);
        }
    }

    pub(in super::super) fn cpu(&self, number: usize) -> CpuId {
        self.seats.cpu(number)
    }
}

#[cfg(test)]
mod tests {
    use pageyard_machine::MachineSpec;

    use super::*;

    #[test]
    fn objects_differ_by_number_and_build_not_by_job() {
        let site = Site::new(&MachineSpec::shipped("desktop").unwrap(), None);
        let kbuild = Kbuild::on(&site, 4, 0, 1);
        let draw = |job, build, number| {
            let mut demand = kbuild.demand(job, Object { build, number });
            [demand.next_u64(), demand.next_u64()]
        };
        let first = draw(0, 1, 1);
        assert_eq!(first, draw(0, 1, 1));
        assert_eq!(first, draw(3, 1, 1), "another job of the same build");
        let mut all = vec![first, draw(0, 1, 2), draw(0, 2, 1)];
        kbuild.seed.store(1, Relaxed);
        all.push(draw(0, 1, 1));
        let mut draws = all.concat();
        draws.sort_unstable();
        draws.dedup();
        assert_eq!(draws.len(), 2 * all.len(), "{all:?}");
    }

    #[test]
    fn each_object_is_begun_once_and_the_clock_stops_at_the_last() {
        let mut build = Build::new(2);
        build.begin(0);
        let warmed = [10, 20].map(|now| build.next(true, now).unwrap().number);
        assert_eq!(warmed, [1, 2]);
        build.begin(2);
        let begun = [30, 40].map(|now| build.next(false, now).unwrap().number);
        assert_eq!(begun, [1, 2], "whatever the warm-up built");
        assert!([50, 60].map(|now| build.next(false, now)).iter().all(Option::is_none));
        assert_eq!((build.began_ns, build.exhausted_ns), (Some(30), Some(50)));
    }
}
