//! The public functions of a crate, read from its sources, for the tests that have a row for each.

use std::collections::BTreeSet;
use std::path::Path;

/// The public functions of the sources under a folder: TYPE::NAME for those of types, MODULE::NAME for
/// others. What is `pub` in a private module counts too.
pub(crate) fn functions_under(folder: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            all.extend(functions_under(&path));
        } else if name != "tests" {
            all.extend(functions(name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    all
}

/// The public functions that a source file declares.
pub(crate) fn functions(module: &str, source: &str) -> BTreeSet<String> {
    let (mut of, mut names) = (String::new(), BTreeSet::new());
    for line in source.lines().take_while(|l| *l != "#[cfg(test)]") {
        let text = line.trim_start();
        if let Some(heading) = text.strip_prefix("impl") {
            of = implemented(heading);
        }
        let Some(mut function) = text.strip_prefix("pub ") else { continue };
        for word in ["const ", "unsafe ", "async "] {
            function = function.strip_prefix(word).unwrap_or(function);
        }
        if let Some(rest) = function.strip_prefix("fn ") {
            let name = rest.split(['(', '<']).next().unwrap();
            let of = if text == line { module } else { &of };
            names.insert(format!("{of}::{name}"));
        }
    }
    names
}

/// The type that an `impl` is of: what follows its parameters.
fn implemented(heading: &str) -> String {
    // The `>` of a function type's arrow closes no bracket.
    let heading = heading.replace("->", "  ");
    let mut depth = 0;
    let behind = heading.char_indices().find(|&(_, c)| {
        depth += i32::from(c == '<') - i32::from(c == '>');
        depth == 0 && c == ' '
    });
    let behind = behind.map_or("", |(at, _)| &heading[at + 1..]);
    behind.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Functions of all forms, and the names under which they are found.
#[test]
fn all_forms_of_functions_are_found() {
    let source = "impl<'y, P: StaticPolicy, F: Fn(u64) -> bool> Yard<P> {\n    pub const fn melt(&self) {}\n}\n\
                  pub unsafe fn melted() {}\nimpl Pinned<'_> {\n    pub fn dry<T>(&self) {}\n    \
                  pub(crate) fn own(&self) {}\n    fn hidden() {}\n}\n#[cfg(test)]\npub fn tested() {}\n";
    let found: Vec<String> = functions("module", source).into_iter().collect();
    assert_eq!(found, ["Pinned::dry", "Yard::melt", "module::melted"]);
}
