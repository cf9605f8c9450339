//! Workloads on this host: threads pinned to CPUs, real memory, the real clock.

mod spin;
mod times;
mod wait;
mod world;

use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use pageyard::policy::{
    Base, LateFreeHigh, Linux61, Linux612, Packed, Policy, StaticPolicy, Step1, Step3, Step5,
    Step7, Step9, Step10, TwoPassBulkFree, Vanilla,
};
use pageyard::{NodeId, PAGE_SIZE, Pfn};
use pageyard_host::topology::available_memory;
use pageyard_host::{BuildError, Builder, Region, Topology, cpu};

use super::actor::{Measure, Plan};
use super::metrics::{self, Counts, Observed};
use super::series::{Done, Series};
use super::{Recipe, Score, Site, WorkloadError};
use crate::policies::Choice;
use crate::result::{RunResult, World as Where};
use crate::settings::Settings;
use times::Moves;
use world::{HostYard, Pages, World, stage};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct HostOptions {
    /// The policies to run.
    pub policies: Vec<Choice>,
    /// Seeds all random draws; each iteration derives its own seed from it. Thread timing is not
    /// deterministic, so the same seed does not give the same result.
    pub seed: u64,
    /// Number of iterations.
    pub iterations: u32,
    /// Parameters that differ from their defaults.
    pub set: Vec<(String, String)>,
}

/// The default memory of a run: the available memory divided by `SHARE`, at most `MOST` bytes.
const SHARE: u64 = 4;
const MOST: u64 = 4 << 30;
/// Memory is allocated in multiples of this, so that it consists of whole blocks.
const UNIT: u64 = 4 << 20;
/// Pages taken from the system in one step.
const STEP: u64 = (64 << 20) / PAGE_SIZE;

/// Runs a workload on this host's threads and measures a policy's cost. The policy is compiled into
/// the core, which takes seconds of compile time for each policy.
type RealWork = fn(&Setting<'_>, &mut Room) -> Result<Vec<Measure>, WorkloadError>;

/// The policies that can run on this host.
const ON_HOSTS: [(&str, RealWork); 13] = [
    ("Base", run::<Base>),
    ("Step1", run::<Step1>),
    ("Step3", run::<Step3>),
    ("Step5", run::<Step5>),
    ("Step7", run::<Step7>),
    ("Step9", run::<Step9>),
    ("Step10", run::<Step10>),
    ("Linux612", run::<Linux612>),
    ("Packed", run::<Packed>),
    ("LateFreeHigh", run::<LateFreeHigh>),
    ("Linux61", run::<Linux61>),
    ("Vanilla", run::<Vanilla>),
    ("TwoPassBulkFree<Base>", run::<TwoPassBulkFree<Base>>),
];

/// Returns the names of the policies that can run on this host.
pub fn on_hosts() -> impl Iterator<Item = &'static str> {
    ON_HOSTS.iter().map(|&(name, _)| name)
}

/// Returns the function that runs workloads under a policy on this host.
///
/// # Errors
/// Fails if the core is not compiled for the policy.
fn real_work(policy: &Choice) -> Result<RealWork, WorkloadError> {
    let found = ON_HOSTS.iter().find(|&&(name, _)| name == policy.policy());
    found.map(|&(_, work)| work).ok_or_else(|| WorkloadError::MachineOnly {
        name: policy.name.clone(),
        known: on_hosts().collect::<Vec<_>>().join(", "),
    })
}

/// This host, with memory for runs.
#[derive(Debug)]
pub struct Host {
    room: Room,
    site: Site,
    description: String,
    is_populated: bool,
}

impl Host {
    /// Reserves addresses for `memory` bytes, or for a quarter of the available memory, at most
    /// 4 GiB. [`populate`](Self::populate) takes the memory from the system.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or if the system refuses.
    pub fn open(memory: Option<u64>) -> Result<Host, WorkloadError> {
        let available = available_memory().unwrap_or(u64::MAX);
        let memory = memory.unwrap_or((available / SHARE).min(MOST) / UNIT * UNIT);
        // Descriptors take 16 bytes per page, and other processes need memory too.
        let wanted = memory.saturating_add(memory / 64);
        if wanted > available {
            return Err(WorkloadError::Memory { wanted, available });
        }
        let cpus = cpu::allowed()?;
        let builder = Builder::new(memory).cpus(cpus.iter().copied());
        let region = builder.region()?;
        let topology = Topology::detect().map_err(BuildError::from)?;
        let nodes = cpus.iter().map(|&c| topology.node_of(c).unwrap_or(NodeId(0)));
        let site = Site {
            cpus: nodes.collect(),
            // Siblings are not known here: a scheduler's choice among CPUs is not modelled.
            cores: (0..cpus.len() as u16).collect(),
            nodes: topology.nodes.iter().map(|n| n.number + 1).max().unwrap_or(1),
            pages: region.pages(),
        };
        let description = describe(&site, region.pages() * PAGE_SIZE);
        let room = Room { builder, region: Some(region), cpus };
        Ok(Host { room, site, description, is_populated: false })
    }

    /// Takes the memory from the system before anything runs, so that no run waits for it. This
    /// takes seconds for a few GiB. `progress` receives the number of bytes populated and the total.
    ///
    /// # Errors
    /// Fails if the system refuses.
    pub fn populate(&mut self, progress: &mut dyn FnMut(u64, u64)) -> Result<(), WorkloadError> {
        if let Some(region) = self.room.region.as_ref().filter(|_| !self.is_populated) {
            populate(region, progress)?;
            spin::calibrate();
            self.is_populated = true;
        }
        Ok(())
    }

    /// Describes the host in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the number of bytes of memory that runs use.
    pub fn memory(&self) -> u64 {
        self.site.pages * PAGE_SIZE
    }

    /// Checks the options of a run, which [`run`](Self::run) does too. Takes no time, unlike
    /// [`populate`](Self::populate), and needs no memory.
    ///
    /// # Errors
    /// Returns [`WorkloadError`] if an option is invalid.
    pub fn check(&self, recipe: &Recipe, options: &HostOptions) -> Result<(), WorkloadError> {
        options.policies.iter().try_for_each(|policy| real_work(policy).map(drop))?;
        series(&self.site, &self.description, recipe, options).check()
    }

    /// Runs a workload under all policies in turn in each iteration, so that disturbances of the
    /// host affect all of them. Takes memory from the system first, if
    /// [`populate`](Self::populate) did not. `progress` receives the number of completed runs and
    /// the total.
    ///
    /// # Errors
    /// Returns [`WorkloadError`] if an option is invalid, or if the system refuses memory.
    ///
    /// # Panics
    /// Propagates a panic of a workload's thread.
    pub fn run(
        &mut self,
        recipe: &Recipe,
        options: &HostOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<RunResult>, WorkloadError> {
        self.check(recipe, options)?;
        self.populate(&mut |_, _| {})?;
        let Host { room, site, description, .. } = self;
        series(site, description, recipe, options).run(progress, &mut |turn| {
            let setting = Setting {
                seed: turn.seed,
                score: recipe.score,
                plan: turn.plan,
                settings: &turn.policy.settings,
            };
            let measures = real_work(turn.policy)?(&setting, room)?;
            Ok(Done { measures, lines: None, track: None })
        })
    }
}

/// The runs that these options describe.
fn series<'s>(
    site: &'s Site,
    description: &str,
    recipe: &'s Recipe,
    options: &'s HostOptions,
) -> Series<'s> {
    Series {
        recipe,
        policies: &options.policies,
        seed: options.seed,
        iterations: options.iterations,
        set: &options.set,
        site,
        world: Where::Host(description.to_owned()),
        of_world: vec![("host.memory", (site.pages * PAGE_SIZE).to_string())],
    }
}

/// Populates the whole region with the system's memory.
fn populate(region: &Region, progress: &mut dyn FnMut(u64, u64)) -> Result<(), WorkloadError> {
    let (first, all) = (region.first().0, region.pages());
    progress(0, all * PAGE_SIZE);
    for at in (0..all).step_by(STEP as usize) {
        let end = all.min(at + STEP);
        region
            .populate(&(Pfn(first + at)..Pfn(first + end)))
            .map_err(|error| BuildError::System { option: "memory", error })?;
        progress(end * PAGE_SIZE, all * PAGE_SIZE);
    }
    Ok(())
}

/// Describes the CPUs, the memory and the kernel.
fn describe(site: &Site, memory: u64) -> String {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown CPU", |m| m.1.trim());
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{} x {model}, {} node(s), {} MiB used, Linux {}",
        site.count(),
        site.nodes,
        memory >> 20,
        kernel.trim()
    )
}

/// One run.
#[derive(Clone, Copy)]
struct Setting<'s> {
    seed: u64,
    score: Score,
    plan: &'s dyn Plan,
    settings: &'s Settings,
}

/// Memory, kept from run to run: the system provides it more slowly than runs use it.
#[derive(Debug)]
struct Room {
    builder: Builder,
    region: Option<Region>,
    /// The CPUs that the process may use; the workload's CPUs, in this order.
    cpus: Vec<u32>,
}

/// Runs a plan under a policy: one of [`ON_HOSTS`]. Debug builds pass policies as values, so that the
/// compiler makes one copy of the core for all of them; reported times come from release builds.
fn run<P: StaticPolicy + Sync>(
    setting: &Setting<'_>,
    room: &mut Room,
) -> Result<Vec<Measure>, WorkloadError> {
    if cfg!(debug_assertions) {
        run_under(const { &P::RULES }, setting, room)
    } else {
        run_under(P::POLICY, setting, room)
    }
}

fn run_under<P: Policy + Sync>(
    policy: P,
    setting: &Setting<'_>,
    room: &mut Room,
) -> Result<Vec<Measure>, WorkloadError> {
    let &Setting { seed, score, plan, settings } = setting;
    let region = match room.region.take() {
        Some(region) => region,
        // A previous run failed.
        None => {
            let region = room.builder.region()?;
            populate(&region, &mut |_, _| {})?;
            region
        }
    };
    let builder = room.builder.clone().deferred(plan.deferred());
    let yard: HostYard<P> = builder.build_on(policy, region, Moves)?;
    while !yard.core().finish_deferred() {}
    yard.watch_zone_locks();
    if let Some(limits) = plan.limits() {
        for zone in yard.core().zone_ids() {
            yard.core().set_pcp_limits(zone, limits);
        }
    }
    settings.apply(yard.core())?;
    let before_all = yard.free_memory().all;
    let world = World::new(&yard, &room.cpus, seed, plan);
    let (mut measures, in_use) = std::thread::scope(|scope| -> Result<_, WorkloadError> {
        let (stop, over) = mpsc::channel();
        scope.spawn(|| {
            let over = over;
            world.watch(&over);
        });
        // Dropped at the end of this block, or earlier on an error; the watcher then ends.
        let _stop = stop;
        stage(&world, |stage| plan.prepare(stage))?;
        stage(&world, |stage| plan.setup(stage))?;
        world.begin();
        let before = Counts::of(yard.core());
        let times = stage(&world, |stage| plan.run(stage))?;
        world.look();
        let observed = Observed {
            stats: &times,
            before,
            after: Counts::of(yard.core()),
            work: world.work.load(Relaxed),
            failed: world.failed.load(Relaxed),
            peak_pages: world.peak.load(Relaxed),
            waits: None,
            engine: yard.core().policy().rules().engine,
        };
        let measures = metrics::of(&observed, score);
        stage(&world, |stage| plan.finish(stage))?;
        Ok((measures, world.in_use.load(Relaxed)))
    })?;
    drop(world);
    yard.core().drain_all(None);
    let missing = before_all as i64 - yard.free_memory().all as i64;
    if missing != 0 || in_use != 0 {
        return Err(WorkloadError::Leak { missing, in_use });
    }
    room.region = Some(yard.into_region());
    let at = usize::from(score != Score::Own);
    measures.splice(at..at, plan.measures());
    Ok(measures)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use pageyard::CpuId;

    use super::super::actor::Stage;
    use super::*;

    /// One thread that works for a moment, and how long that took by its own clock.
    struct Brief(AtomicU64);

    impl Plan for Brief {
        fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
            stage.spawn(
                CpuId(0),
                Box::new(|actor| {
                    let began = actor.now();
                    actor.think(1000);
                    self.0.store(actor.now() - began, Relaxed);
                }),
            );
        }
    }

    #[test]
    fn a_run_lasts_as_long_as_its_threads_work() {
        let mut host = Host::open(Some(64 << 20)).unwrap();
        host.populate(&mut |_, _| {}).unwrap();
        for _ in 0..20 {
            let plan = Brief(AtomicU64::new(0));
            let settings = &Settings::default();
            let setting = Setting { seed: 1, score: Score::Time, plan: &plan, settings };
            let measures = run::<Linux612>(&setting, &mut host.room).unwrap();
            let (time, worked) = (measures[0].value.unwrap(), plan.0.load(Relaxed) as f64 / 1e9);
            assert_eq!(measures[0].name, "time");
            assert!(time >= worked, "{time} {worked}");
        }
    }
}
