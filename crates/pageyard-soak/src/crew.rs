//! Threads that come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use fastrand::Rng;

use crate::SoakError;
use crate::shared::Shared;
use crate::thread::{Mail, work};

/// Where a thread of the crew sits.
enum Seat<'scope> {
    /// It works; the flag says that it will not use the yard any more, but for what it does on its
    /// way out: to give back what the front cache keeps for it.
    Taken(Arc<AtomicBool>, ScopedJoinHandle<'scope, Mail>),
    Empty(Mail),
    /// Its thread did not end well.
    Broken,
}

/// The threads that allocate.
pub(crate) struct Crew<'scope> {
    seats: Vec<Seat<'scope>>,
}

impl<'scope> Crew<'scope> {
    /// A seat for each of these, all empty.
    pub(crate) fn new(mails: impl IntoIterator<Item = Mail>) -> Self {
        Crew { seats: mails.into_iter().map(Seat::Empty).collect() }
    }

    /// Waits for those on their way out.
    pub(crate) fn join_ended(&mut self) {
        for seat in &mut self.seats {
            *seat = match std::mem::replace(seat, Seat::Broken) {
                Seat::Taken(ended, thread) if ended.load(SeqCst) => {
                    thread.join().map_or(Seat::Broken, Seat::Empty)
                }
                other => other,
            };
        }
    }

    /// Lets a thread sit on every empty seat.
    pub(crate) fn fill(
        &mut self,
        s: &'scope Scope<'scope, '_>,
        shared: &'scope Shared,
        rng: &mut Rng,
    ) -> Result<(), SoakError> {
        for seat in &mut self.seats {
            *seat = match std::mem::replace(seat, Seat::Broken) {
                Seat::Empty(mail) => {
                    let (seed, life) = (rng.u64(..), Duration::from_millis(rng.u64(500..5000)));
                    let ended = Arc::new(AtomicBool::new(false));
                    let ends = ended.clone();
                    let run = move || {
                        work(shared, seed, &mail, life, &ends);
                        mail
                    };
                    Seat::Taken(ended, thread::Builder::new().spawn_scoped(s, run)?)
                }
                other => other,
            };
        }
        Ok(())
    }
}
