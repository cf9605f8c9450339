//! Long work: on a thread of its own, while the calling thread releases the interpreter, handles
//! signals and reports progress.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pageyard_machine::Stop;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

use crate::error::panicked;

/// How often the calling thread looks for signals and reports progress. The end of the work wakes it
/// at once.
const PERIOD: Duration = Duration::from_millis(50);

/// How far the work is: the stage, the position, and the end if it is known.
type Position = (&'static str, u64, Option<u64>);

/// What the worker last said.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Option<Position>>>);

impl Told {
    /// Records the progress. Called by the worker, which never waits for Python.
    pub(crate) fn set(&self, stage: &'static str, at: u64, all: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((stage, at, all));
    }

    fn take(&self) -> Option<Position> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Runs `work` on a new thread and returns its result. Meanwhile other Python threads run. Passes
/// the progress to `progress(stage, at, total)` in the calling thread.
///
/// A signal whose handler raises (Ctrl-C) and an exception of `progress` request `stop`; the
/// exception is raised once the work has ended. A panic of the work becomes an exception.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
    work: impl FnOnce(&Told) -> T + Send + 'static,
) -> PyResult<T> {
    let told = Told::default();
    let worker_told = told.clone();
    let (done, ended) = channel::<()>();
    let worker = std::thread::Builder::new().name("pageyard".into()).spawn(move || {
        // Dropped at the end, also in a panic: that wakes the receiver.
        let _done = done;
        work(&worker_told)
    });
    let worker = worker.map_err(|e| PyOSError::new_err(format!("a thread for the work: {e}")))?;
    let mut raised = None;
    // Only this thread receives, so the receiver can move in and out of the detached closure.
    let ended = Mutex::new(ended);
    loop {
        let result =
            py.detach(|| ended.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(PERIOD));
        if let (Some(progress), None, Some(now)) = (progress, &raised, told.take()) {
            raised = progress.call1(now).err();
        }
        if raised.is_none() {
            raised = py.check_signals().err();
        }
        if raised.is_some() {
            stop.request();
        }
        if matches!(result, Err(RecvTimeoutError::Disconnected)) {
            break;
        }
    }
    let result = py.detach(|| worker.join());
    match (raised, result) {
        (Some(raised), _) => Err(raised),
        (None, Ok(result)) => Ok(result),
        (None, Err(payload)) => Err(panicked(&*payload)),
    }
}

/// Panics as a bug in the work would, for the test that Python survives it.
#[pyfunction]
pub(crate) fn _panic(py: Python<'_>, text: String) -> PyResult<()> {
    wait(py, None, &Stop::default(), move |_| panic!("{text}"))
}
