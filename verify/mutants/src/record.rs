//! Results so far: `scripts/mutants.tsv`, one line per mutant.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::Result;

/// Result of a mutant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Killed,
    Timeout,
    Unviable,
    Constant,
    Survived,
}

const VERDICTS: [(Verdict, &str); 5] = [
    (Verdict::Killed, "killed"),
    (Verdict::Timeout, "timeout"),
    (Verdict::Unviable, "unviable"),
    (Verdict::Constant, "constant"),
    (Verdict::Survived, "survived"),
];

/// Verdicts by mutant name.
#[derive(Default)]
pub struct Record {
    lines: HashMap<String, (Verdict, String)>,
}

impl Record {
    pub fn read(path: &Path) -> Result<Record> {
        let mut lines = HashMap::new();
        let text = if path.exists() { fs::read_to_string(path)? } else { String::new() };
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let word = fields.next().unwrap_or_default();
            let found = VERDICTS.iter().find(|(_, name)| *name == word);
            let (Some((verdict, _)), Some(name)) = (found, fields.next()) else {
                return Err(
                    format!("{}: not a verdict and a mutant: {line}", path.display()).into()
                );
            };
            let reason = fields.next().unwrap_or_default();
            lines.insert(name.to_owned(), (*verdict, reason.to_owned()));
        }
        Ok(Record { lines })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let mut sorted: Vec<_> = self.lines.iter().collect();
        sorted.sort();
        let mut text = String::new();
        for (name, (verdict, reason)) in sorted {
            let word = VERDICTS[*verdict as usize].1;
            let tab = if reason.is_empty() { "" } else { "\t" };
            writeln!(text, "{word}\t{name}{tab}{reason}")?;
        }
        Ok(fs::write(path, text)?)
    }

    pub fn get(&self, name: &str) -> Option<Verdict> {
        self.lines.get(name).map(|(verdict, _)| *verdict)
    }

    /// Returns whether there is a reason why the mutant survives.
    pub fn is_explained(&self, name: &str) -> bool {
        self.lines.get(name).is_some_and(|(_, reason)| !reason.is_empty())
    }

    /// Records a verdict. A survivor keeps its recorded reason.
    pub fn set(&mut self, name: &str, verdict: Verdict) {
        let line = self.lines.entry(name.to_owned()).or_insert((verdict, String::new()));
        line.0 = verdict;
        if verdict != Verdict::Survived {
            line.1.clear();
        }
    }

    /// Drops mutants that no longer exist.
    pub fn keep(&mut self, names: &HashSet<&str>) {
        self.lines.retain(|name, _| names.contains(&**name));
    }

    /// Returns a table by file, and the number of survivors without a reason.
    pub fn summary(&self) -> String {
        let mut files: BTreeMap<&str, [usize; VERDICTS.len()]> = BTreeMap::new();
        let mut all = [0; VERDICTS.len()];
        for (name, (verdict, _)) in &self.lines {
            let file = name.split(" | ").next().unwrap_or_default();
            files.entry(file).or_default()[*verdict as usize] += 1;
            all[*verdict as usize] += 1;
        }
        let mut text = format!(
            "{:<42}{:>8}{:>9}{:>9}{:>8}{:>8}{:>9}{:>8}\n",
            "file", "mutants", "unviable", "constant", "killed", "timeout", "survived", "found"
        );
        let short = |file: &str| file.trim_start_matches("crates/").replace("/src/", "/");
        let rows = files.iter().map(|(file, counts)| (short(file), counts));
        for (file, counts) in rows.chain([("all".to_owned(), &all)]) {
            let [killed, timeout, unviable, constant, survived] = *counts;
            let found = killed + timeout;
            let percent = match found + survived {
                0 => "-".to_owned(),
                tried => format!("{:.1}%", 100.0 * found as f64 / tried as f64),
            };
            let sum: usize = counts.iter().sum();
            text += &format!(
                "{file:<42}{sum:>8}{unviable:>9}{constant:>9}{killed:>8}{timeout:>8}{survived:>9}{percent:>8}\n"
            );
        }
        let open = self.lines.values().filter(|(v, why)| *v == Verdict::Survived && why.is_empty());
        text + &format!("survivors without a reason: {}\n", open.count())
    }
}
