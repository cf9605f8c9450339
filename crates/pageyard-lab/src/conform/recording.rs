//! The lines of a recording: JSON, plain or compressed.

use std::fs::File;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use pageyard_trace::Decompressed;
use serde::Deserialize;

use super::error::ConformError;
use super::state::States;

/// One line. Unknown keys are rejected, as they indicate an unknown form of recording.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line {
    pub(super) op: String,
    #[serde(default)]
    pub(super) got: Option<Vec<i64>>,
    #[serde(default)]
    pub(super) state: Option<States>,
    #[serde(default)]
    pub(super) error: bool,
}

/// An open recording.
pub(super) struct Lines {
    pub(super) path: PathBuf,
    pub(super) number: u64,
    input: Decompressed,
    text: Vec<u8>,
}

/// Limit of a line's length: a few compressed bytes could expand to any number.
const MOST_BYTES: u64 = 32 << 20;

impl Lines {
    pub(super) fn open(path: &Path) -> Result<Lines, ConformError> {
        let io = |source| ConformError::Io { path: path.to_owned(), source };
        let input = File::open(path).and_then(Decompressed::new).map_err(io)?;
        Ok(Lines { path: path.to_owned(), number: 0, input, text: Vec::new() })
    }

    pub(super) fn name(&self) -> String {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        file.trim_end_matches(".zst").trim_end_matches(".jsonl").to_owned()
    }

    pub(super) fn malformed(&self, what: impl Into<String>) -> ConformError {
        ConformError::Malformed { path: self.path.clone(), line: self.number, what: what.into() }
    }

    /// Returns the next line, or `None` at the end. Blank lines are skipped.
    pub(super) fn next(&mut self) -> Result<Option<Line>, ConformError> {
        loop {
            self.text.clear();
            self.number += 1;
            let n = (&mut self.input).take(MOST_BYTES).read_until(b'\n', &mut self.text).map_err(
                |e| self.malformed(format!("{e}; the file may be damaged or truncated")),
            )?;
            if n == 0 {
                return Ok(None);
            }
            if n as u64 == MOST_BYTES {
                let most = MOST_BYTES >> 20;
                return Err(self.malformed(format!("the line is longer than {most} MiB")));
            }
            if self.text.trim_ascii().is_empty() {
                continue;
            }
            return serde_json::from_slice(&self.text).map(Some).map_err(|e| {
                const EXPECTED: &str = r#"such as {"op":"f 0","got":[17]}"#;
                let text = self.text.trim_ascii();
                self.malformed(if text.starts_with(b"{") {
                    // The line's number in the file is in front of it.
                    let what = e.to_string().replace(" at line 1 column", " at column");
                    format!("{what}; expected a line {EXPECTED}")
                } else {
                    let start = &text[..text.len().min(40)];
                    let is_text = start.iter().all(|b| (b' '..=b'~').contains(b));
                    let found = is_text.then(|| format!("\"{}\"", String::from_utf8_lossy(start)));
                    format!(
                        "found {}; expected a line of JSON {EXPECTED}; traces are for `pageyard replay`",
                        found.as_deref().unwrap_or("other data")
                    )
                })
            });
        }
    }
}
