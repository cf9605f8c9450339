//! Runs one policy with one seed: performs the plan on the real allocator.

use pageyard::{Hooked, Yard};

use super::blaming::Blaming;
use super::driver::Driver;
use super::error::ReplayError;
use super::held::held;
use super::observer::Observer;
use super::restore::{Parts, refused, restore};
use super::setting::{Outcome, Setting};
use super::timeline::Timeline;
use super::vitals::of_yard;
use crate::memory::{Lock, Memory};
use crate::policies::Choice;

/// Replays the plan under a policy.
pub(super) fn run(
    setting: &Setting<'_>,
    choice: &Choice,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let machine = setting.machine;
    let phases = setting.phase.of_cpus(machine.cpus.len(), seed);
    let timeline = setting.process.map(|number| {
        Timeline::new(machine, number, &choice.name, (setting.first_ns, setting.last_ns))
    });
    let timeline = timeline.transpose().map_err(ReplayError::Temporary)?;
    let observer = Observer::new(setting, timeline);
    let parts = Parts::of(machine);
    let layout = parts.layout();
    let memory = Memory::for_layout_on(choice.rules.engine, &layout).map_err(refused)?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard: Yard<'_, Hooked<Lock, _, _>> = Yard::with_policy(&observer, &choice.rules);
    yard.init_blank(&layout, storage).map_err(refused)?;
    restore(&mut yard, setting, &phases)?;
    choice.settings.apply(&yard)?;
    let mut driver = Driver::new(setting, &yard, &observer, (), &phases, seed);
    let explain = observer.notes.as_ref().map(|notes| (notes, notes.sample(&yard)));
    if setting.record {
        observer.course.begin(setting.first_ns, &yard);
    }
    driver.drive(setting, progress)?;
    let held = setting.requests.map(|r| held(machine, &yard, &driver.map, r));
    let figures = driver.finish();
    let track = observer.course.end(observer.now.get(), &yard);
    let ns = observer.now.get().saturating_sub(setting.first_ns);
    let explained = explain.map(|(notes, before)| notes.explain(&before, ns, &yard));
    let timeline = observer.timeline.take().map(|mut timeline| {
        timeline.sample(observer.now.get(), &of_yard(machine, &yard));
        timeline.finish(observer.now.get())
    });
    let timeline = timeline.transpose().map_err(ReplayError::Temporary)?;
    let cases = observer.blame.map(Blaming::finish);
    Ok(Outcome { figures, explained, held, cases, track, timeline, price: None })
}
