//! The available texts, and the moments of a trace.

use std::fmt;
use std::str::FromStr;

/// A text that the kernel prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/proc/zoneinfo`.
    Zoneinfo,
    /// `/proc/buddyinfo`.
    Buddyinfo,
    /// `/proc/pagetypeinfo`.
    Pagetypeinfo,
    /// `/proc/vmstat`.
    Vmstat,
    /// The memory report in the kernel's log.
    ShowMem,
}

impl Form {
    /// All texts.
    pub const ALL: [Form; 5] =
        [Form::Zoneinfo, Form::Buddyinfo, Form::Pagetypeinfo, Form::Vmstat, Form::ShowMem];

    /// Returns the name that a user writes.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Zoneinfo => "zoneinfo",
            Form::Buddyinfo => "buddyinfo",
            Form::Pagetypeinfo => "pagetypeinfo",
            Form::Vmstat => "vmstat",
            Form::ShowMem => "show_mem",
        }
    }
}

/// The time at which a trace's state was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the recording began.
    Before,
    /// Just after it began.
    TracedStart,
    /// Just before it ended.
    TracedEnd,
    /// After it ended.
    After,
}

impl Moment {
    /// All moments in order of time.
    pub const ALL: [Moment; 4] =
        [Moment::Before, Moment::TracedStart, Moment::TracedEnd, Moment::After];

    /// Returns the name that a user writes.
    pub const fn name(self) -> &'static str {
        match self {
            Moment::Before => "before",
            Moment::TracedStart => "traced_start",
            Moment::TracedEnd => "traced_end",
            Moment::After => "after",
        }
    }
}

/// Finds a text or a state by its name. `what` says in the error which of the two it is.
fn by_name<T: Copy>(
    what: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    wanted: &str,
) -> Result<T, String> {
    all.iter().copied().find(|&t| name(t) == wanted).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|&t| name(t)).collect();
        format!("unknown {what} \"{wanted}\"; expected one of {}", names.join(", "))
    })
}

impl FromStr for Form {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        by_name("text", &Form::ALL, Form::name, s)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        by_name("state", &Moment::ALL, Moment::name, s)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
