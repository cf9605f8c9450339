//! Ending work early, on request from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A request to end work early. Clones share one request, so one thread works with a clone and
/// another requests the end. Work that has ended early says so in its error, and its results are
/// lost.
///
/// ```
/// use pageyard_machine::Stop;
///
/// let stop = Stop::default();
/// let clone = stop.clone();
/// std::thread::spawn(move || clone.request()).join().unwrap();
/// assert!(stop.is_requested());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Requests the end. It cannot be withdrawn.
    pub fn request(&self) {
        // Nothing else is published with the request: the worker only reads the flag.
        self.0.store(true, Relaxed);
    }

    /// Returns whether the end was requested.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Two handles are equal if they share one request.
impl PartialEq for Stop {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Stop {}
