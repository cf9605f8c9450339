//! A recorded state of a machine, printed as the kernel prints it: the state files of a trace, or
//! the allocator restored from a recording of the real kernel.

mod json;
mod print;
mod source;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pageyard::text::Extra;
use pageyard::{Hooked, Hooks, Yard};
use pageyard_trace::state::{BuddyInfo, Counters, PageTypeInfo, Snapshot, ZoneInfo};
use pageyard_trace::{TraceError, printable};
use serde_json::Value;

use crate::conform::ConformError;
use crate::memory::Lock;
use crate::text::shown;
use source::Source;

/// Which text.
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
    /// The report on memory in the kernel's log.
    ShowMem,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 5] =
        [Form::Zoneinfo, Form::Buddyinfo, Form::Pagetypeinfo, Form::Vmstat, Form::ShowMem];

    /// Its name, as a user writes it.
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

/// When a trace's state was read.
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
    /// All of them, in the order of time.
    pub const ALL: [Moment; 4] =
        [Moment::Before, Moment::TracedStart, Moment::TracedEnd, Moment::After];

    /// Its name, as a user writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Moment::Before => "before",
            Moment::TracedStart => "traced_start",
            Moment::TracedEnd => "traced_end",
            Moment::After => "after",
        }
    }
}

fn by_name<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    wanted: &str,
) -> Result<T, String> {
    all.iter().copied().find(|&t| name(t) == wanted).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|&t| name(t)).collect();
        format!("there is no \"{wanted}\"; expected one of {}", names.join(", "))
    })
}

impl FromStr for Form {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        by_name(&Form::ALL, Form::name, s)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        by_name(&Moment::ALL, Moment::name, s)
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

/// Which state of a file. The default is the earliest that has what the text needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Of a trace's states, this one.
    pub at: Option<Moment>,
    /// Of a recording's states, the last one at or before this line, from 1.
    pub line: Option<u64>,
}

/// Why there is nothing to show. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum ShowError {
    /// The file cannot be read.
    #[error("{}: {source}; name a trace, a folder with state files, or a recording", shown(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A trace or state file is wrong.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A recording is wrong.
    #[error(transparent)]
    Recording(#[from] ConformError),
    /// The file is there and sound, but has not what was asked for.
    #[error("{}: {}", shown(.path), printable(.what))]
    Missing {
        /// The file.
        path: PathBuf,
        /// What it lacks, and what it has.
        what: String,
    },
}

/// A text and what it says.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Which state: a moment's name, or `line N`.
    pub state: String,
    /// The text, byte for byte as the kernel prints it.
    pub text: String,
    /// The same figures as data.
    pub json: Value,
}

/// Prints a state of a trace (a `.pgy` file with state files attached, any trace with state files
/// beside it, or their folder) or of a recording (JSON lines, plain or compressed).
///
/// # Errors
/// [`ShowError`] says what is wrong with the file, or which states it has.
pub fn show(path: &Path, form: Form, when: When) -> Result<Shown, ShowError> {
    let missing = |what| ShowError::Missing { path: path.to_owned(), what };
    match Source::open(path)? {
        Source::Trace(states) => {
            if when.line.is_some() {
                let what = "a trace has no lines to choose from; use --at".to_owned();
                return Err(missing(what));
            }
            let (at, snapshot) = states.find(form, when.at).map_err(missing)?;
            Ok(Shown {
                state: at.name().to_owned(),
                text: print::text(snapshot, form).unwrap_or_default(),
                json: json::value(snapshot, form),
            })
        }
        Source::Recording => {
            if when.at.is_some() {
                let what = "a recording's states stand on lines; use --line".to_owned();
                return Err(missing(what));
            }
            let (line, state) = crate::conform::state_at(path, when.line.unwrap_or(1))?;
            let (text, snapshot) = crate::conform::with_yard(&state, (), |yard| {
                Ok::<_, TraceError>((yard_text(yard, form, &()), yard_snapshot(yard)?))
            })
            .map_err(|e| missing(format!("line {line}: in the state: {e}")))??;
            let json = json::value(&snapshot, form);
            Ok(Shown { state: format!("line {line}"), text, json })
        }
    }
}

/// An allocator's text.
pub fn yard_text<E: Hooks>(
    yard: &Yard<'_, Hooked<Lock, E>>,
    form: Form,
    extra: &impl Extra,
) -> String {
    let mut out = String::new();
    let written = match form {
        Form::Zoneinfo => yard.write_zoneinfo(&mut out, extra),
        Form::Buddyinfo => yard.write_buddyinfo(&mut out),
        Form::Pagetypeinfo => yard.write_pagetypeinfo(&mut out),
        Form::Vmstat => yard.write_vmstat(&mut out, extra),
        Form::ShowMem => yard.write_show_mem(&mut out, extra),
    };
    written.expect("a string takes any text");
    out
}

/// What an allocator's texts say, read back: its figures take the same way as those of a kernel.
fn yard_snapshot<E: Hooks>(yard: &Yard<'_, Hooked<Lock, E>>) -> Result<Snapshot, TraceError> {
    let text = |form| yard_text(yard, form, &());
    Ok(Snapshot {
        zoneinfo: Some(ZoneInfo::parse("zoneinfo", text(Form::Zoneinfo).as_bytes())?),
        buddyinfo: Some(BuddyInfo::parse("buddyinfo", text(Form::Buddyinfo).as_bytes())?),
        pagetypeinfo: Some(PageTypeInfo::parse(
            "pagetypeinfo",
            text(Form::Pagetypeinfo).as_bytes(),
        )?),
        vmstat: Some(Counters::parse("vmstat", text(Form::Vmstat).as_bytes())?),
        ..Snapshot::default()
    })
}

pub use print::text as snapshot_text;
