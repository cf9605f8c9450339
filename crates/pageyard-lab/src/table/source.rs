//! Reads and checks saved results.

use std::collections::BTreeSet;
use std::path::Path;

use pageyard_machine::spec::read_text;

use super::error::{TableError, wrong};
use super::replayed::Replayed;
use crate::result::{RunResult, World};
use crate::text::{clean, shown};

/// The maximum size of a results file in bytes.
const MOST_TEXT: u64 = 1 << 27;

/// Escapes control characters: names appear in tables and must fit on one line.
fn clean_names(r: &mut RunResult) {
    let (World::Simulated(world) | World::Host(world)) = &mut r.world;
    let metrics = r.metrics.iter_mut().flat_map(|m| [&mut m.name, &mut m.unit]);
    [&mut r.workload, &mut r.policy, &mut r.version, world]
        .into_iter()
        .chain(metrics)
        .for_each(clean);
    let parameters = std::mem::take(&mut r.parameters);
    r.parameters = parameters
        .into_iter()
        .map(|(mut name, mut value)| {
            clean(&mut name);
            clean(&mut value);
            (name, value)
        })
        .collect();
}

/// Results that belong together: a saved file, or the results of the current run.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's name as given; errors and columns are named after it.
    pub name: String,
    /// The results. Several results of one workload under one policy are samples of the same
    /// configuration.
    pub results: Vec<RunResult>,
}

impl Source {
    /// Reads a file of saved results: a JSON array of [`RunResult`]s, or one, or a saved replay, each
    /// of whose policies becomes a result.
    ///
    /// # Errors
    /// Fails with the file's name if the file cannot be read, is not such JSON, or fails
    /// [`Source::check`].
    pub fn read(path: &Path) -> Result<Source, TableError> {
        let name = shown(path);
        let text = match read_text(path, MOST_TEXT) {
            Ok(text) => text,
            Err(e) => return wrong(name, e.to_string(), "name a readable file"),
        };
        Source::parse(name, &text)
    }

    /// Parses results from text.
    ///
    /// # Errors
    /// Fails like [`Source::read`].
    pub fn parse(name: String, text: &str) -> Result<Source, TableError> {
        // Parse each shape separately, so that the error names the line and field of the intended
        // shape.
        let results = if text.trim_start().starts_with('[') {
            serde_json::from_str(text)
        } else {
            match serde_json::from_str::<Replayed>(text) {
                Ok(replay) => Ok(replay.results()),
                Err(e) if e.is_eof() => Err(e),
                Err(_) => serde_json::from_str(text).map(|one| vec![one]),
            }
        };
        let mut results: Vec<RunResult> = match results {
            Ok(results) => results,
            Err(e) => {
                let fix = match e.is_eof() {
                    true => "the file ends too early; save it again",
                    false => {
                        "name a file written by `pageyard run --json` or `pageyard replay --json`"
                    }
                };
                return wrong(name, e.to_string(), fix);
            }
        };
        results.iter_mut().for_each(clean_names);
        let source = Source { name, results };
        source.check()?;
        Ok(source)
    }

    /// Checks that there is something to compare, and that all samples are finite, or `None` where
    /// nothing was counted.
    ///
    /// # Errors
    /// Fails if there are no results, no metrics or no samples, if a sample is not finite, if a
    /// metric occurs twice, or if the series of a track do not match.
    pub fn check(&self) -> Result<(), TableError> {
        const AGAIN: &str = "run the workload again";
        if self.results.is_empty() {
            return wrong(&self.name, "no results", AGAIN);
        }
        for r in &self.results {
            let place = self.place(r);
            if r.metrics.is_empty() {
                return wrong(place, "no metrics", AGAIN);
            }
            let mut seen = BTreeSet::new();
            for m in &r.metrics {
                let place = format!("{place}: metric {}", m.name);
                if !seen.insert(&m.name) {
                    return wrong(place, "occurs twice", "use a different name for each");
                }
                if m.samples.is_empty() {
                    return wrong(place, "no samples", AGAIN);
                }
                let wrong_one = |(_, x): &(usize, &Option<f64>)| x.is_some_and(|x| !x.is_finite());
                if let Some((i, &Some(x))) = m.samples.iter().enumerate().find(wrong_one) {
                    let what = format!("sample {} is {x}", i + 1);
                    return wrong(place, what, "remove the sample, or run the workload again");
                }
            }
            for (i, track) in r.tracks.iter().enumerate() {
                if let Err(what) = track.check() {
                    return wrong(format!("{place}: track {}", i + 1), what, AGAIN);
                }
            }
        }
        Ok(())
    }

    pub(super) fn place(&self, r: &RunResult) -> String {
        format!("{}: workload {} under {}", self.name, r.workload, r.policy)
    }
}
