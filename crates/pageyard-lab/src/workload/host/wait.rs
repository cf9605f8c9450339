//! Pipes and barriers on which threads wait for each other. When a thread fails, all others are
//! notified, so that none waits forever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::super::actor::Parcel;
use super::super::seats::lock;

/// Raised when a thread has failed; waiting threads then panic.
#[derive(Default, Debug)]
pub(super) struct Alarm(AtomicBool);

/// The panic message of a thread that stops because another failed; only the first failure is
/// reported.
const GIVEN_UP: &str = "another thread of the workload failed";

impl Alarm {
    pub(super) fn raise(&self) {
        self.0.store(true, Relaxed);
    }

    fn check(&self) {
        assert!(!self.0.load(Relaxed), "{GIVEN_UP}");
    }
}

/// Sleeps until `bell` is notified.
fn wait<'g, T>(bell: &Condvar, guard: MutexGuard<'g, T>, alarm: &Alarm) -> MutexGuard<'g, T> {
    alarm.check();
    let guard = bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
    alarm.check();
    guard
}

#[derive(Default, Debug)]
struct Queue {
    parcels: VecDeque<Parcel>,
    closed: bool,
}

/// A bounded pipe.
#[derive(Debug)]
pub(super) struct Pipe {
    queue: Mutex<Queue>,
    most: usize,
    senders: Condvar,
    receivers: Condvar,
}

impl Pipe {
    pub(super) fn new(most: usize) -> Pipe {
        Pipe {
            queue: Mutex::default(),
            most: most.max(1),
            senders: Condvar::new(),
            receivers: Condvar::new(),
        }
    }

    /// Sends a parcel. Returns it if the pipe is closed.
    pub(super) fn send(&self, parcel: Parcel, alarm: &Alarm) -> Result<(), Parcel> {
        let mut queue = lock(&self.queue);
        while queue.parcels.len() >= self.most && !queue.closed {
            queue = wait(&self.senders, queue, alarm);
        }
        if queue.closed {
            return Err(parcel);
        }
        queue.parcels.push_back(parcel);
        drop(queue);
        self.receivers.notify_one();
        Ok(())
    }

    pub(super) fn receive(&self, alarm: &Alarm) -> Option<Parcel> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(parcel) = queue.parcels.pop_front() {
                drop(queue);
                self.senders.notify_one();
                return Some(parcel);
            }
            if queue.closed {
                return None;
            }
            queue = wait(&self.receivers, queue, alarm);
        }
    }

    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.ring();
    }

    /// Wakes all waiting threads, so that they check their condition again.
    pub(super) fn ring(&self) {
        // A thread that has checked the condition but does not sleep yet still holds the lock.
        drop(lock(&self.queue));
        self.senders.notify_all();
        self.receivers.notify_all();
    }
}

/// A point at which threads meet.
#[derive(Debug)]
pub(super) struct Barrier {
    all: usize,
    /// The number of threads that have arrived, and how often all have met.
    here: Mutex<(usize, u64)>,
    bell: Condvar,
}

impl Barrier {
    pub(super) fn new(all: usize) -> Barrier {
        Barrier { all, here: Mutex::default(), bell: Condvar::new() }
    }

    pub(super) fn meet(&self, alarm: &Alarm) {
        let mut here = lock(&self.here);
        here.0 += 1;
        if here.0 >= self.all {
            *here = (0, here.1 + 1);
            self.bell.notify_all();
            return;
        }
        let met = here.1;
        while here.1 == met {
            here = wait(&self.bell, here, alarm);
        }
    }

    pub(super) fn ring(&self) {
        drop(lock(&self.here));
        self.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pageyard::{Order, Pfn};

    use super::*;

    #[test]
    fn a_pipe_is_ordered_and_returns_parcels_when_closed() {
        let (pipe, alarm) = (Pipe::new(2), Alarm::default());
        std::thread::scope(|s| {
            s.spawn(|| {
                for n in 0..1000 {
                    pipe.send(vec![(Pfn(n), Order::ZERO)], &alarm).unwrap();
                }
                pipe.close();
            });
            for n in 0..1000 {
                assert_eq!(pipe.receive(&alarm).unwrap()[0].0, Pfn(n));
            }
            assert_eq!(pipe.receive(&alarm), None);
        });
        assert_eq!(pipe.send(vec![(Pfn(1), Order::ZERO)], &alarm).unwrap_err().len(), 1);
    }

    #[test]
    fn a_barrier_is_reusable() {
        let (barrier, alarm) = (Barrier::new(3), Alarm::default());
        let rounds = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for round in 0..100 {
                        lock(&rounds).push(round);
                        barrier.meet(&alarm);
                    }
                });
            }
        });
        let rounds = rounds.into_inner().unwrap();
        assert!(rounds.is_sorted() && rounds.len() == 300);
    }

    #[test]
    fn waiting_ends_when_another_thread_fails() {
        let (pipe, barrier, alarm) = (Pipe::new(1), Barrier::new(2), Alarm::default());
        std::thread::scope(|s| {
            let waiting =
                [s.spawn(|| drop(pipe.receive(&alarm))), s.spawn(|| barrier.meet(&alarm))];
            std::thread::sleep(Duration::from_millis(20));
            alarm.raise();
            pipe.ring();
            barrier.ring();
            for thread in waiting {
                let said = thread.join().unwrap_err();
                assert_eq!(said.downcast_ref::<String>().unwrap(), GIVEN_UP);
            }
        });
    }
}
