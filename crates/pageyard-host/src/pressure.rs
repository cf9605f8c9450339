//! How short memory is, and who wants to be told.

use std::fmt;

/// How short memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Level {
    /// It is not.
    #[default]
    Calm = 0,
    /// Caches had better shrink: use is above the soft limit, free memory is below a LOW mark, the
    /// system stalls, or the control group comes near its limits.
    Moderate = 1,
    /// Ordinary requests fail or are about to: free memory of all nodes is below the MIN marks, and
    /// what is left is for requests that may use the reserves; or the control group is within a 32nd
    /// of its `memory.max`.
    Critical = 2,
}

impl Level {
    pub(crate) fn from_u8(n: u8) -> Level {
        [Level::Calm, Level::Moderate, Level::Critical][usize::from(n.min(2))]
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["calm", "moderate", "critical"][*self as usize])
    }
}

/// Why memory is short.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// More is in use than the soft limit, or where there is none the hard one, says.
    SoftLimit,
    /// A node has less free than its LOW mark.
    LowMark,
    /// No node has more free than its MIN mark: the hard limit, or the end of the memory, is reached.
    MinMark,
    /// Tasks of this system wait for memory (PSI).
    Stall,
    /// The control group comes near a limit of its, or has run into one.
    Group,
}

/// What a listener is told when the level changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PressureEvent {
    /// The level now.
    pub level: Level,
    /// The level before.
    pub before: Level,
    /// Why; nothing where it is calm.
    pub causes: Vec<Cause>,
    /// Pages in use.
    pub used: u64,
    /// The limits, in pages.
    pub soft: Option<u64>,
    /// See `soft`.
    pub hard: Option<u64>,
}

/// A listener for changes of the level. Called by the worker, without any of the yard's locks. A panic
/// ends the call, not the worker.
pub(crate) type Listener = dyn Fn(&PressureEvent) + Send + Sync;
