//! Prints a recorded machine state as the kernel prints it. The state comes from a trace's state
//! files, or from the allocator restored from a recording of the real kernel.

mod error;
mod form;
mod json;
mod print;
mod source;

use std::path::Path;

use pageyard::{Hooked, Hooks, Yard};
use pageyard_report::text::{self, Extra};
use pageyard_trace::TraceError;
use pageyard_trace::state::{BuddyInfo, Counters, PageTypeInfo, Snapshot, ZoneInfo};
use serde_json::Value;

use crate::memory::Lock;
use source::Source;

pub use error::ShowError;
pub use form::{Form, Moment};
pub use print::text as snapshot_text;

/// Selects a state of a file. The default is the earliest state that the text can be printed from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// For a trace: the state at this moment.
    pub at: Option<Moment>,
    /// For a recording: the last state at or before this line, counted from 1.
    pub line: Option<u64>,
    /// For a trace: skip its damaged parts instead of failing.
    pub lenient: bool,
}

/// A text and its contents.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The printed state: a moment's name, or `line N`.
    pub state: String,
    /// The text, byte for byte as the kernel prints it.
    pub text: String,
    /// The same figures as data.
    pub json: Value,
    /// Parts of the trace that were damaged and skipped.
    pub skipped: Vec<String>,
}

/// Returns whether a file is a recording of the kernel's answers, not a trace.
pub fn is_recording(path: &Path) -> bool {
    matches!(Source::open(path, false), Ok(Source::Recording))
}

/// Prints a state of a trace or of a recording. A trace is a `.pgy` file with state files attached,
/// any trace with state files next to it, or their folder. A recording has JSON lines, plain or
/// compressed.
///
/// # Errors
/// Fails with [`ShowError`], which says what is wrong with the file or which states it has.
pub fn show(path: &Path, form: Form, when: When) -> Result<Shown, ShowError> {
    let missing = |what| ShowError::Missing { path: path.to_owned(), what };
    match Source::open(path, when.lenient)? {
        Source::Trace(states) => {
            if when.line.is_some() {
                let what = "--line does not apply to a trace; use --at".to_owned();
                return Err(missing(what));
            }
            let (at, snapshot) = states.find(form, when.at).map_err(missing)?;
            Ok(Shown {
                state: at.name().to_owned(),
                text: print::text(snapshot, form).unwrap_or_default(),
                json: json::value(snapshot, form),
                skipped: states.skipped,
            })
        }
        Source::Recording => {
            if when.at.is_some() {
                let what = "--at does not apply to a recording; use --line".to_owned();
                return Err(missing(what));
            }
            if when.lenient {
                let what = "--lenient does not apply to a recording; remove it".to_owned();
                return Err(missing(what));
            }
            let (line, state) = crate::conform::state_at(path, when.line.unwrap_or(1))?;
            let (text, snapshot) = crate::conform::with_yard(&state, (), |yard| {
                Ok::<_, TraceError>((yard_text(yard, form, &()), yard_snapshot(yard)?))
            })
            .map_err(|e| missing(format!("line {line}: in the state: {e}")))??;
            let json = json::value(&snapshot, form);
            Ok(Shown { state: format!("line {line}"), text, json, skipped: Vec::new() })
        }
    }
}

/// Returns an allocator's text.
pub fn yard_text<E: Hooks>(
    yard: &Yard<'_, Hooked<Lock, E>>,
    form: Form,
    extra: &impl Extra,
) -> String {
    let mut out = String::new();
    let written = match form {
        Form::Zoneinfo => text::write_zoneinfo(&mut out, yard, extra),
        Form::Buddyinfo => text::write_buddyinfo(&mut out, yard),
        Form::Pagetypeinfo => text::write_pagetypeinfo(&mut out, yard),
        Form::Vmstat => text::write_vmstat(&mut out, yard, extra),
        Form::ShowMem => text::write_show_mem(&mut out, yard, extra),
    };
    written.expect("a string takes any text");
    out
}

/// Parses an allocator's own texts, so that its figures take the same path as a kernel's.
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
