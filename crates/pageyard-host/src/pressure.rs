//! Memory pressure: levels, causes and events.

use std::fmt;

/// How short memory is.
///
/// ```
/// use pageyard_host::{Builder, PressureEvent, Level};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let registration = yard.on_pressure(|event: &PressureEvent| {
///     if event.level >= Level::Moderate {
///         // Shrink caches.
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Level {
    /// No shortage.
    #[default]
    Calm = 0,
    /// Caches should shrink. Use is above the soft limit, free memory is below a LOW watermark, the
    /// system stalls, or the control group is close to its limits.
    Moderate = 1,
    /// Ordinary requests fail or are about to.
    ///
    /// - Either free memory of all nodes is at or below the MIN watermarks; what is left is for
    ///   requests that may use the reserves.
    /// - Or the control group is within a 32nd of its `memory.max`.
    Critical = 2,
}

impl Level {
    pub(crate) const ALL: [Level; 3] = [Level::Calm, Level::Moderate, Level::Critical];

    pub(crate) fn from_u8(n: u8) -> Level {
        Self::ALL[usize::from(n.min(2))]
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["calm", "moderate", "critical"][*self as usize])
    }
}

/// Why memory is short.
///
/// ```
/// use pageyard_host::{Builder, PressureEvent, Cause};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let registration = yard.on_pressure(|event: &PressureEvent| {
///     if event.causes.contains(&Cause::SoftLimit) {
///         // The yard itself is in use above its limit.
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// More is in use than the soft limit, or the hard limit if there is no soft one.
    SoftLimit,
    /// Free memory of a node is below its LOW watermark.
    LowMark,
    /// Free memory of every node is at or below its MIN watermark: the hard limit or the end of the
    /// memory is reached.
    MinMark,
    /// Tasks of this system wait for memory (PSI).
    Stall,
    /// The control group is close to a limit, or has reached one.
    Group,
}

/// A change of the pressure level, passed to listeners.
///
/// ```
/// use pageyard_host::{Builder, PressureEvent};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let registration = yard.on_pressure(|event: &PressureEvent| {
///     println!("{} pages in use: {} now, {} before", event.used, event.level, event.before);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PressureEvent {
    /// New level.
    pub level: Level,
    /// Previous level.
    pub before: Level,
    /// Causes; empty if the level is calm.
    pub causes: Vec<Cause>,
    /// Pages in use.
    pub used: u64,
    /// The soft and the hard limit in pages; `None` if there is none.
    pub soft: Option<u64>,
    /// See `soft`.
    pub hard: Option<u64>,
}

/// A listener for changes of the pressure level. The worker calls it without any of the yard's
/// locks. A panic ends the call, not the worker.
pub(crate) type Listener = dyn Fn(&PressureEvent) + Send + Sync;
