//! Runs the cells of a plan on this machine.

use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pageyard_machine::Stop;

use crate::cell::{Cell, CellResult};
use crate::description::Plan;
use crate::error::SweepError;
use crate::store::Store;

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Cells of the plan.
    pub cells: usize,
    /// Cells that were finished before.
    pub cached: usize,
    /// Cells that this run computed.
    pub computed: usize,
}

/// The queue of cells, shared by the workers.
struct Queue {
    /// Indices of the cells to run, the last first.
    waiting: Vec<usize>,
    /// Estimated memory of the running cells.
    in_use: u64,
    running: usize,
    done: Done,
    failed: Vec<SweepError>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the cells of the plan that are not in the store, on `jobs` threads, and returns all results
/// in the plan's order. A cell begins when its estimated memory fits beside that of the others in
/// `memory` bytes, or when it is alone.
///
/// `progress` receives what is done so far. It may be called from any of the threads.
///
/// # Errors
/// Fails before any cell runs if a trace cannot be replayed. Otherwise fails with the first error of
/// a cell, after all other cells are finished and kept, or with [`SweepError::Stopped`]. A panic in a
/// cell is such an error.
pub fn run(
    plan: &Plan,
    store: &Store,
    program: &str,
    jobs: usize,
    memory: u64,
    stop: &Stop,
    progress: &(dyn Fn(Done) + Sync),
) -> Result<(Done, Vec<CellResult>), SweepError> {
    let compute = |cell: &Cell| {
        let file = cell.trace().and_then(|hash| plan.files.get(hash)).map(PathBuf::as_path);
        cell.run(program, file, stop)
    };
    run_with(plan, store, program, jobs, memory, stop, progress, &compute)
}

/// [`run()`], with this function in place of [`Cell::run`].
#[expect(clippy::too_many_arguments, reason = "those of `run`, and the function")]
fn run_with(
    plan: &Plan,
    store: &Store,
    program: &str,
    jobs: usize,
    memory: u64,
    stop: &Stop,
    progress: &(dyn Fn(Done) + Sync),
    compute: &(dyn Fn(&Cell) -> Result<CellResult, SweepError> + Sync),
) -> Result<(Done, Vec<CellResult>), SweepError> {
    let keys: Vec<String> = plan.cells.iter().map(|cell| cell.key(program)).collect();
    let cached = |i: &usize| store.get(&keys[*i], &plan.cells[*i]);
    let mut results: Vec<Option<CellResult>> = (0..keys.len()).map(|i| cached(&i)).collect();
    let mut waiting: Vec<usize> = (0..keys.len()).filter(|&i| results[i].is_none()).collect();
    // Two traces of one content are one cell.
    let mut seen = HashSet::new();
    waiting.retain(|&i| seen.insert(&keys[i]));
    plan.check(waiting.iter().map(|&i| &plan.cells[i]), stop)?;
    waiting.reverse();
    let done = Done { cells: keys.len(), cached: keys.len() - waiting.len(), computed: 0 };
    progress(done);
    let threads = jobs.min(waiting.len());
    let queue = Queue { waiting, in_use: 0, running: 0, done, failed: Vec::new() };
    let (queue, freed) = (Mutex::new(queue), Condvar::new());
    let found = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, needs)) = next(plan, &queue, &freed, memory, stop) {
            let cell = &plan.cells[at];
            let kept = || compute(cell).and_then(|result| store.put(&result).map(|()| result));
            // Other workers wait for this cell's memory: a panic must return it too.
            let result = catch_unwind(AssertUnwindSafe(kept));
            let result = result.unwrap_or_else(|panic| Err(panicked(cell, &*panic)));
            let mut q = lock(&queue);
            q.in_use -= needs;
            q.running -= 1;
            match result {
                Ok(result) => {
                    q.done.computed += 1;
                    lock(&found).push((at, result));
                }
                Err(e) => q.failed.push(e),
            }
            let done = q.done;
            drop(q);
            freed.notify_all();
            progress(done);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // If no further thread can be started, this thread does its work.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    if stop.is_requested() {
        return Err(SweepError::Stopped);
    }
    if let Some(e) = queue.failed.into_iter().next() {
        return Err(e);
    }
    for (at, result) in found.into_inner().unwrap_or_else(PoisonError::into_inner) {
        results[at] = Some(result);
    }
    let all = results.into_iter().enumerate().map(|(i, result)| {
        let twin = || store.get(&keys[i], &plan.cells[i]);
        result.or_else(twin).ok_or_else(|| SweepError::Cell {
            cell: plan.cells[i].name(),
            what: "its result has disappeared from the folder; run the sweep again".into(),
        })
    });
    Ok((queue.done, all.collect::<Result<_, _>>()?))
}

/// Returns the error of a cell that panicked. The panic's place is on stderr.
fn panicked(cell: &Cell, panic: &(dyn Any + Send)) -> SweepError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    let what = format!("panicked: {text}; this is a bug of pageyard: report it with this line");
    SweepError::Cell { cell: cell.name(), what }
}

/// Takes the next cell once there is memory for it, with its estimate. Returns `None` at the end.
fn next(
    plan: &Plan,
    queue: &Mutex<Queue>,
    freed: &Condvar,
    memory: u64,
    stop: &Stop,
) -> Option<(usize, u64)> {
    let mut q = lock(queue);
    loop {
        if stop.is_requested() {
            return None;
        }
        let at = *q.waiting.last()?;
        let needs = plan.cells[at].memory();
        if q.running == 0 || q.in_use.saturating_add(needs) <= memory {
            q.waiting.pop();
            q.in_use += needs;
            q.running += 1;
            return Some((at, needs));
        }
        q = freed.wait(q).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const FOUR: &str = "policies = [\"Base\"]\nseeds = [1, 2, 3, 4]\n[[workload]]\nname = \"micro\"\n\
                        machines = [\"desktop\"]\nmemory = \"256M\"\n";

    #[test]
    fn a_panicking_cell_is_an_error_and_the_other_cells_are_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let description = folder.path().join("sweep.toml");
        std::fs::write(&description, FOUR).unwrap();
        let plan = Plan::read(&description).unwrap();
        let cells = folder.path().join("cells");
        let store = Store::open(&cells).unwrap();
        let compute = |cell: &Cell| {
            assert!(cell.seed != 1, "seed 1 has no luck");
            Ok(CellResult { key: cell.key("p"), cell: cell.clone(), values: Vec::new() })
        };
        // In a thread of its own, so that a sweep that hangs fails this test.
        let (send, receive) = mpsc::channel();
        let sweep = move || {
            // Memory for one cell at a time: the second worker waits for that of the first.
            let stop = Stop::default();
            let ran = run_with(&plan, &store, "p", 2, 1, &stop, &|_| {}, &compute);
            send.send(ran.map(|_| ()).unwrap_err().to_string())
        };
        std::thread::spawn(sweep);
        let said = receive.recv_timeout(Duration::from_secs(60)).expect("the sweep ends");
        assert!(
            said.starts_with("cell micro (memory=256M) on desktop, Base, seed 1: panicked: "),
            "{said}"
        );
        assert!(said.contains("seed 1 has no luck"), "{said}");
        assert_eq!(std::fs::read_dir(&cells).unwrap().count(), 3);
    }
}
