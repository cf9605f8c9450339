//! State files under other names than those that are looked for, such as `zoneinfo` beside the
//! trace. One whose meaning is clear is used; any other is named. None is ignored silently.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::names::{FILES, SUFFIXES};

/// Maximum number of directory entries that are looked at, and of bytes of a name.
const MOST: usize = 1 << 16;
const MAX_NAME: usize = 255;

/// What a recording script may call a moment, and the place of its files.
const MOMENTS: [(&str, &str, &str); 8] = [
    ("", "before/", ""),
    ("before", "before/", ""),
    ("start", "before/", ""),
    ("begin", "before/", ""),
    ("after", "after/", ""),
    ("end", "after/", ""),
    ("traced_start", "", ".traced_start"),
    ("traced_end", "", ".traced_end"),
];
/// Extensions that say nothing.
const EXTENSIONS: [&str; 3] = [".txt", ".log", ".out"];

/// A file that looks like a state file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// The file at this relative path is the state file of this name.
    Is(String, String),
    /// It is not clear what the file at this path is.
    Unclear(String),
}

/// Finds files in the folder of a trace that look like state files. `trace` is the name of the
/// trace's file, if it is known.
pub(super) fn find(folder: &Path, trace: Option<&str>) -> Vec<Near> {
    let mut found = BTreeMap::new();
    let names = names_in(folder);
    let stems: Vec<&str> = names.iter().map(|name| stem(name)).collect();
    for name in &names {
        if let Some(near) = classify(name, trace.map(stem), &stems) {
            found.insert(name.clone(), near);
        }
    }
    // A file with an unusual name inside before/ or after/.
    for moment in ["before", "after"] {
        for name in names_in(&folder.join(moment)) {
            let path = format!("{moment}/{name}");
            let near = match classify(&name, trace.map(stem), &[]) {
                // No other moment than that of the folder.
                Some(Near::Is(_, expected)) => {
                    let own = format!("{moment}/");
                    match expected.strip_prefix("before/").or(expected.strip_prefix(&own)) {
                        Some(file) if is_called(&name, file) => continue,
                        Some(file) => Near::Is(path.clone(), own + file),
                        None => Near::Unclear(path.clone()),
                    }
                }
                Some(Near::Unclear(_)) => Near::Unclear(path.clone()),
                None => continue,
            };
            found.insert(path, near);
        }
    }
    found.into_values().collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.take(MOST).filter_map(Result::ok);
    let files = entries.filter(|e| e.file_type().is_ok_and(|t| !t.is_dir()));
    let names = files.filter_map(|e| e.file_name().into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.len() <= MAX_NAME).collect();
    names.sort_unstable();
    names
}

/// Returns the name up to its first dot.
fn stem(name: &str) -> &str {
    name.split_once('.').map_or(name, |(stem, _)| stem)
}

/// Returns what a file in the folder is; `None` if it does not look like a state file, has an
/// expected name, or belongs to another trace.
fn classify(name: &str, trace: Option<&str>, stems: &[&str]) -> Option<Near> {
    let plain = SUFFIXES.iter().rev().find_map(|end| name.strip_suffix(end))?;
    let plain = EXTENSIONS.iter().find_map(|end| plain.strip_suffix(end)).unwrap_or(plain);
    let words = plain.to_ascii_lowercase().replace(['.', '-', ' '], "_");
    let (file, rest) = FILES.iter().find_map(|&file| Some((file, around(&words, file)?)))?;
    let is = |moment: &str| MOMENTS.iter().find(|(word, ..)| *word == moment);
    let own = trace.map(|stem| stem.to_ascii_lowercase().replace(['-', ' '], "_"));
    let without_own = own.as_deref().and_then(|own| around(&rest, own));
    match is(&rest).or(without_own.as_deref().and_then(is)) {
        Some((_, before, behind)) => {
            let expected = format!("{before}{file}{behind}");
            (!is_called(name, &expected)).then(|| Near::Is(name.to_owned(), expected))
        }
        // That of another trace in this folder.
        None if stems.iter().any(|other| {
            Some(*other) != trace
                && stem(name) == *other
                && *other != stem(file)
                && stems.iter().filter(|s| *s == other).count() > 1
        }) =>
        {
            None
        }
        None => Some(Near::Unclear(name.to_owned())),
    }
}

/// Returns whether a file has this name, compressed or not.
fn is_called(name: &str, expected: &str) -> bool {
    name.strip_prefix(expected).is_some_and(|end| SUFFIXES.contains(&end))
}

/// Returns the words before and after `part`, joined, if it is there as whole words.
fn around(words: &str, part: &str) -> Option<String> {
    let mut from = 0;
    while let Some(at) = words[from..].find(part).map(|at| from + at) {
        let (before, after) = (&words[..at], &words[at + part.len()..]);
        let whole = (before.is_empty() || before.ends_with('_'))
            && (after.is_empty() || after.starts_with('_'));
        if whole {
            let parts = [before.trim_matches('_'), after.trim_matches('_')];
            let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            return Some(parts.join("_"));
        }
        from = at + part.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Option<Near> {
        classify(name, Some("build"), &["build", "other", "other"])
    }

    #[test]
    fn names_with_one_meaning_are_used() {
        for (name, expected) in [
            ("zoneinfo", "before/zoneinfo"),
            ("zoneinfo.txt", "before/zoneinfo"),
            ("zoneinfo.txt.gz", "before/zoneinfo"),
            ("build.zoneinfo", "before/zoneinfo"),
            ("build.zoneinfo.before.xz", "before/zoneinfo"),
            ("before_cpu_cache", "before/cpu_cache"),
            ("sys_vm-after.log", "after/sys_vm"),
            ("vmstat-before", "before/vmstat"),
            ("ZoneInfo_traced_start", "zoneinfo.traced_start"),
            ("build-buddyinfo-end", "after/buddyinfo"),
        ] {
            let near = Near::Is(name.to_owned(), expected.to_owned());
            assert_eq!(of(name), Some(near), "{name}");
        }
    }

    #[test]
    fn other_names_are_named_or_are_not_state_files() {
        for name in ["zoneinfo.old", "zoneinfo.2", "run3_vmstat", "zoneinfo.before.after"] {
            assert_eq!(of(name), Some(Near::Unclear(name.to_owned())), "{name}");
        }
        // Expected names, other files, and those of another trace.
        for name in [
            "zoneinfo.traced_start",
            "zoneinfo.traced_end.xz",
            "build.txt",
            "zoneinfos",
            "myvmstat",
            "other.zoneinfo",
            "",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
