//! The same replay on the simulated machine. Each recorded CPU's operations run on a virtual CPU,
//! in the recorded order, one at a time. The counters must equal those of the plain replay. In
//! addition, the machine determines what the operations cost.

use std::cell::RefCell;

use pageyard::CpuId;
use pageyard_machine::{Machine, MachineSpec, Memory, Options, SimYard, Stats, Task};

use super::driver::{Driver, Seat};
use super::error::ReplayError;
use super::figures::Price;
use super::observer::Observer;
use super::restore::{Parts, refused, restore};
use super::setting::{Outcome, Setting};
use crate::policies::Choice;

/// Bytes that the simulated caches keep for each frame: for its contents, and for its part of a
/// line of descriptors.
pub(super) const PER_FRAME: u64 = 8 + 2;

/// The task that performs all operations. It migrates to the CPU of each operation.
struct OnCpus<'t, 's, 'env>(&'t Task<'s, 'env>);

impl Seat for OnCpus<'_, '_, '_> {
    #[inline]
    fn go(&self, cpu: u32) {
        if self.0.cpu() != CpuId(cpu) {
            self.0.migrate(CpuId(cpu));
        }
    }
}

/// Replays the plan under a policy on a simulated machine.
pub(super) fn run(
    setting: &Setting<'_>,
    choice: &Choice,
    spec: &MachineSpec,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let parts = Parts::of(setting.machine);
    fits(&parts, setting, spec)?;
    let phases = setting.phase.of_cpus(setting.machine.cpus.len(), seed);
    let observer = Observer::new(setting, None);
    let options = Options { seed, ..Options::default() };
    let machine = Machine::with_zones(spec, options, &parts.zones);
    let layout = parts.layout();
    let memory = Memory::for_layout_on(choice.rules.engine, &layout).map_err(refused)?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard: SimYard<'_, _, _> =
        SimYard::with_policy(machine.platform(&observer), &choice.rules);
    yard.init_blank(&layout, storage).map_err(refused)?;
    machine.adopt(&yard);
    restore(&mut yard, setting, &phases)?;
    choice.settings.apply(&yard)?;
    machine.reset_stats();
    let done = RefCell::new(None);
    let ran = machine.run(|scope| {
        let (yard, observer, phases, done) = (&yard, &observer, &phases, &done);
        scope.spawn(CpuId(0), move |task| {
            let mut driver = Driver::new(setting, yard, observer, OnCpus(task), phases, seed);
            let driven = driver.drive(setting, progress);
            *done.borrow_mut() = Some(driven.map(|()| driver.finish()));
        });
    });
    debug_assert!(ran.is_ok(), "a single task cannot be stuck");
    let figures = done.take().expect("the task has ended")?;
    let operations = figures.alloc_blocks + figures.free_blocks;
    let price = Some(Price::of(&machine.stats(), operations));
    Ok(Outcome {
        figures,
        explained: None,
        held: None,
        cases: None,
        track: None,
        timeline: None,
        price,
    })
}

/// Fails unless the machine has at least the recorded numbers of CPUs and nodes.
fn fits(parts: &Parts, setting: &Setting<'_>, spec: &MachineSpec) -> Result<(), ReplayError> {
    let cpus = setting.machine.cpus.len();
    let nodes = parts.zones.iter().map(|z| z.node.0 + 1).max().unwrap_or(1);
    if cpus > spec.cpus().len() || nodes > spec.nodes() {
        let what = format!(
            "{} has {} CPUs and {} nodes, but the trace has {cpus} and {nodes}",
            spec.name(),
            spec.cpus().len(),
            spec.nodes()
        );
        return Err(ReplayError::machine(what, "use --on with a machine of the same size"));
    }
    Ok(())
}

impl Price {
    fn of(stats: &Stats, operations: u64) -> Price {
        let per = |part: f64, all: u64| (all > 0).then(|| part / all as f64);
        let (mut held, mut acquired) = (0, 0);
        for lock in stats.zone_locks() {
            held += lock.held;
            acquired += lock.acquired;
        }
        let spent = stats.total().alloc;
        Price {
            operation_ns: per(spent as f64 / 1000.0, operations),
            hold_ns: per(held as f64 / 1000.0, acquired),
            held_percent: per(100.0 * held as f64, spent),
            miss_percent: stats.miss_share().map(|share| share as f64 / 10_000.0),
        }
    }
}
