//! The flag in front of a wake event; it saves the system call of every signal but the first.
//!
//! `verify/loom` runs this file under loom, with the eventfd as a counter.

use crate::sync::{AtomicBool, Ordering::SeqCst};

/// Set from a signal until the waiter has taken it.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag {
    pending: AtomicBool,
}

impl WakeFlag {
    /// Calls `write`, which makes the event readable, unless an earlier signal is still pending.
    /// `write` returns whether it succeeded; if not, the next signal tries again.
    pub(crate) fn signal(&self, write: impl FnOnce() -> bool) {
        if !self.pending.swap(true, SeqCst) && !write() {
            self.pending.store(false, SeqCst);
        }
    }

    /// Takes the pending signal: `read` empties the event, then signals are written again. Only the
    /// waiter calls this.
    ///
    /// A signal between the two is not written, but the exchange orders it before everything that
    /// the waiter does next. In the other order `read` could take a signal that set the flag again:
    /// every later signal would be suppressed.
    pub(crate) fn take(&self, read: impl FnOnce()) {
        read();
        // Not a store: the waiter has to see what was written before a suppressed signal.
        self.pending.swap(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_signal_while_the_event_is_read_is_not_lost() {
        let flag = WakeFlag::default();
        let event = Cell::new(0);
        let write = || {
            event.set(event.get() + 1);
            true
        };
        flag.signal(write);
        flag.signal(write);
        assert_eq!(event.get(), 1, "the second signal makes no system call");
        flag.take(|| {
            flag.signal(write);
            event.set(0);
        });
        flag.signal(write);
        assert_eq!(event.get(), 1);
    }

    #[test]
    fn a_failed_write_does_not_suppress_the_next_signal() {
        let flag = WakeFlag::default();
        let written = Cell::new(false);
        flag.signal(|| false);
        flag.signal(|| {
            written.set(true);
            true
        });
        assert!(written.get());
    }
}
