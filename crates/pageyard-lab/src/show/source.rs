//! Detects the kind of a file, and finds its states.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pageyard_trace::state::{Snapshot, StateDir};
use pageyard_trace::{Attachments, Decompressed, Options, TraceError, TraceReader};

use super::error::ShowError;
use super::form::{Form, Moment};

pub(super) enum Source {
    Trace(Box<States>),
    Recording,
}

pub(super) struct States {
    files: StateDir,
    pub(super) skipped: Vec<String>,
}

impl Source {
    pub(super) fn open(path: &Path, lenient: bool) -> Result<Source, ShowError> {
        let io = |source| ShowError::Io { path: path.to_owned(), source };
        let folder = path.metadata().map_err(io)?.is_dir();
        if !folder && is_recording(path).map_err(io)? {
            return Ok(Source::Recording);
        }
        let (mut attachments, mut fault, mut skipped) = (Attachments::new(), None, Vec::new());
        if !folder {
            match TraceReader::open(path, Options { lenient }) {
                Ok(reader) => {
                    attachments = reader.attachments().clone();
                    let damage = &reader.summary().malformed.first;
                    skipped.extend(damage.iter().map(TraceError::to_string));
                }
                // The file is not a readable trace, but state files next to it can still be used.
                Err(e) => fault = Some(e),
            }
        }
        let files = StateDir::of_trace(&attachments, Some(path))?;
        if files.is_empty() {
            return Err(match fault {
                Some(e) => e.into(),
                None => ShowError::Missing {
                    path: path.to_owned(),
                    what: format!(
                        "no state files are {} (before/zoneinfo, zoneinfo.traced_start and so on); \
                         name a trace that has them, their folder, or a recording",
                        if folder { "in this folder" } else { "attached to it or next to it" }
                    ),
                },
            });
        }
        Ok(Source::Trace(Box::new(States { files, skipped })))
    }
}

/// Returns whether the file has JSON lines, plain or compressed.
fn is_recording(path: &Path) -> io::Result<bool> {
    let mut input = Decompressed::new(File::open(path)?)?;
    let mut first = [0];
    // A file that cannot be decompressed is no recording. The next reader reports the error.
    while matches!(input.read(&mut first), Ok(1)) {
        if !first[0].is_ascii_whitespace() {
            return Ok(first[0] == b'{');
        }
    }
    Ok(false)
}

impl States {
    fn get(&self, at: Moment) -> &Snapshot {
        match at {
            Moment::Before => &self.files.before,
            Moment::TracedStart => &self.files.traced_start,
            Moment::TracedEnd => &self.files.traced_end,
            Moment::After => &self.files.after,
        }
    }

    /// Returns the state at a moment, or the first state that the text can be printed from.
    pub(super) fn find(
        &self,
        form: Form,
        at: Option<Moment>,
    ) -> Result<(Moment, &Snapshot), String> {
        let fits = |at: &Moment| has(self.get(*at), form);
        let found = match at {
            Some(at) => Some(at).filter(fits),
            None => Moment::ALL.into_iter().find(fits),
        };
        if let Some(at) = found {
            return Ok((at, self.get(at)));
        }
        let others: Vec<_> = Moment::ALL.into_iter().filter(fits).map(Moment::name).collect();
        let needs = match form {
            Form::ShowMem => "zoneinfo and buddyinfo (required for show_mem)",
            form => form.name(),
        };
        let when = at.map_or(String::new(), |at| format!(" at \"{at}\""));
        Err(if others.is_empty() {
            format!("no {needs} among the state files")
        } else {
            format!("no {needs}{when} among the state files; available at {}", others.join(", "))
        })
    }
}

fn has(s: &Snapshot, form: Form) -> bool {
    match form {
        Form::Zoneinfo => s.zoneinfo.is_some(),
        Form::Buddyinfo => s.buddyinfo.is_some(),
        Form::Pagetypeinfo => s.pagetypeinfo.is_some(),
        Form::Vmstat => s.vmstat.is_some(),
        Form::ShowMem => {
            s.zoneinfo.is_some() && (s.buddyinfo.is_some() || s.pagetypeinfo.is_some())
        }
    }
}
