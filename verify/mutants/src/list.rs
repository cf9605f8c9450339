//! The mutants of cargo-mutants, and their names in the record.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::error::Result;

/// One small change of the code.
pub struct Mutant {
    /// Path from the root of the repository.
    pub file: String,
    pub genre: Genre,
    /// Byte range of the replaced text in the file.
    pub range: Range<usize>,
    pub replacement: String,
    /// File, change and text of the line. The name is stable across versions of the file that
    /// contain the line.
    pub name: String,
    /// Name and position as printed by cargo-mutants.
    pub place: String,
}

/// The kinds of change that cargo-mutants makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

#[derive(Deserialize)]
struct Listed {
    file: String,
    genre: Genre,
    name: String,
    replacement: String,
    span: Span,
}

#[derive(Deserialize)]
struct Span {
    start: Place,
    end: Place,
}

#[derive(Deserialize)]
struct Place {
    line: usize,
    column: usize,
}

/// Lists the mutants of `files`, which are paths or patterns relative to the root.
pub fn list(root: &Path, packages: &[&str], files: &[&str]) -> Result<Vec<Mutant>> {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--list", "--json", "--no-config", "--dir"]).arg(root);
    command.args(packages.iter().flat_map(|package| ["--package", package]));
    command.args(files.iter().flat_map(|file| ["--file", file]));
    let output = command.output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo mutants --list: {error}").into());
    }
    let mut texts = HashMap::new();
    let mut seen = HashMap::new();
    serde_json::from_slice::<Vec<Listed>>(&output.stdout)?
        .into_iter()
        .map(|listed| {
            let text = match texts.get(&listed.file) {
                Some(text) => text,
                None => {
                    let text = fs::read_to_string(root.join(&listed.file))?;
                    texts.entry(listed.file.clone()).or_insert(text)
                }
            };
            let mut name = name(&listed, text);
            let count: &mut u32 = seen.entry(name.clone()).or_default();
            *count += 1;
            if *count > 1 {
                name = format!("{name} #{count}");
            }
            Ok(Mutant {
                range: offset(text, &listed.span.start)..offset(text, &listed.span.end),
                file: listed.file,
                genre: listed.genre,
                replacement: listed.replacement,
                name,
                place: listed.name,
            })
        })
        .collect()
}

fn name(listed: &Listed, text: &str) -> String {
    let change = listed.name.splitn(4, ':').nth(3).unwrap_or(&listed.name).trim();
    let line = text.lines().nth(listed.span.start.line - 1).unwrap_or_default();
    format!("{} | {change} | {}", listed.file, line.trim()).replace('\t', " ")
}

/// Returns the byte offset of a line and column. Both are counted from 1; columns are characters.
fn offset(text: &str, place: &Place) -> usize {
    let line: usize = text.split_inclusive('\n').take(place.line - 1).map(str::len).sum();
    let column: usize = text[line..].chars().take(place.column - 1).map(char::len_utf8).sum();
    line + column
}
