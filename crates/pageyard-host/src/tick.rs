//! The thread that ticks.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Does something again and again, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(crate) fn start(every: Duration, tick: impl Fn() + Send + 'static) -> io::Result<Ticker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let seen = stop.clone();
        let run = move || {
            let (stopped, rung) = &*seen;
            let mut guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
                let (back, timeout) =
                    rung.wait_timeout(guard, every).unwrap_or_else(PoisonError::into_inner);
                guard = back;
                if timeout.timed_out() && !*guard {
                    drop(guard);
                    tick();
                    guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        let thread = thread::Builder::new().name("pageyard-tick".into()).spawn(run)?;
        Ok(Ticker { stop, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let (stopped, rung) = &*self.stop;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        rung.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn ticks_until_dropped() {
        let (tell, told) = mpsc::channel();
        let ticker = Ticker::start(Duration::from_millis(1), move || {
            let _ = tell.send(());
        })
        .unwrap();
        (0..3).for_each(|_| told.recv().unwrap());
        drop(ticker);
        // The thread has ended, and its end of the channel with it.
        while told.try_recv().is_ok() {}
        assert_eq!(told.recv(), Err(mpsc::RecvError));
    }
}
