//! Detects the kind of a file, and finds its states.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pageyard_trace::state::{Snapshot, StateDir};
use pageyard_trace::{Attachments, Decompressed, Options, TraceReader};

use super::error::ShowError;
use super::form::{Form, Moment};

pub(super) enum Source {
    Trace(Box<States>),
    Recording,
}

pub(super) struct States(StateDir);

impl Source {
    pub(super) fn open(path: &Path) -> Result<Source, ShowError> {
        let io = |source| ShowError::Io { path: path.to_owned(), source };
        let folder = path.metadata().map_err(io)?.is_dir();
        if !folder && is_recording(path).map_err(io)? {
            return Ok(Source::Recording);
        }
        let (mut attachments, mut fault) = (Attachments::new(), None);
        if !folder {
            match TraceReader::open(path, Options::default()) {
                Ok(reader) => attachments = reader.attachments().clone(),
                // The file is not a readable trace, but state files next to it can still be used.
                Err(e) => fault = Some(e),
            }
        }
        let states = StateDir::of_trace(&attachments, Some(path))?;
        if states.is_empty() {
            return Err(match fault {
                Some(e) => e.into(),
                None => ShowError::Missing {
                    path: path.to_owned(),
                    what:
                        "no state files (before/zoneinfo, zoneinfo.traced_start and so on) in this \
                         folder, next to this trace or attached to it"
                            .to_owned(),
                },
            });
        }
        Ok(Source::Trace(Box::new(States(states))))
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
            Moment::Before => &self.0.before,
            Moment::TracedStart => &self.0.traced_start,
            Moment::TracedEnd => &self.0.traced_end,
            Moment::After => &self.0.after,
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
