//! A turn that one takes at a time and that is no lock: whoever has it may call the embedder, which
//! may sleep, and whoever waits for it does so in [`Platform::pause`].

use crate::sync::AtomicBool;
use crate::sync::Ordering::{Acquire, Relaxed, Release};

use crate::platform::Platform;

/// Whether somebody has the turn.
#[derive(Debug, Default)]
pub(crate) struct Turn(AtomicBool);

/// Gives the turn back when dropped.
#[derive(Debug)]
pub(crate) struct Taken<'t>(&'t AtomicBool);

impl Turn {
    pub(crate) const fn new() -> Turn {
        Turn(AtomicBool::new(false))
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_take(&self) -> Option<Taken<'_>> {
        self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok().then_some(Taken(&self.0))
    }

    /// The turn, once nobody has it.
    pub(crate) fn take(&self, platform: &impl Platform) -> Taken<'_> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            platform.pause();
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}
