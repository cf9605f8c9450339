//! Every public type of the crates for embedders has an example in its documentation.
//!
//! Reads the sources: a type counts as public if its `lib.rs` names it in a `pub use`, or if it is in a
//! module that `lib.rs` exports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 3] = ["pageyard", "pageyard-host", "pageyard-carve"];

/// Types without an example, each with the type whose example shows it. At most 15.
const SHOWN_ELSEWHERE: &[(&str, &str)] = &[
    ("Excerpt", "a field of KnobError"),
    ("CmaError", "an error; CmaArea has the example"),
    ("IsolateError", "an error, which ContigError contains"),
    ("PlaceError", "an error; Place has the example"),
    ("PoisonError", "an error; Poisoned has the example"),
    ("LimitError", "an error; Limits has the example"),
    ("PageError", "an error of a function"),
    ("TopologyError", "an error; Topology has the example"),
    ("Stack", "public for the models of verify/loom only"),
    ("ModelStack", "as Stack"),
    ("Constant", "seals Policy, which has the example"),
];

fn sources(of: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(of).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") && !entry.ends_with("tests.rs") {
            found.push(entry);
        }
    }
}

/// What `lib.rs` exports: types by name, and modules.
fn exported(lib: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut types, mut modules) = (BTreeSet::new(), BTreeSet::new());
    let code: String = lib.lines().filter(|l| !l.trim_start().starts_with("//")).collect();
    for statement in code.split(';') {
        let word = |text: &str| text.rsplit("::").next().unwrap().trim().to_owned();
        if let Some((_, path)) = statement.rsplit_once("pub use ") {
            let list = path.split_once('{').map_or(path, |(_, list)| list.trim_end_matches('}'));
            let names = list.split(',').map(|n| word(n.split(" as ").next().unwrap()));
            for name in names.filter(|n| !n.is_empty()) {
                let kind =
                    if name.starts_with(char::is_uppercase) { &mut types } else { &mut modules };
                kind.insert(name);
            }
        } else if let Some((_, name)) = statement.rsplit_once("pub mod ") {
            modules.insert(word(name));
        }
    }
    (types, modules)
}

/// The types that a file defines: name, and whether the documentation has an example.
fn types(text: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = text.lines().collect();
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
        let kinds = ["struct ", "enum ", "trait ", "union "];
        let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
        // `$name` in a macro gives an empty name.
        let name = rest.split(|c: char| !c.is_alphanumeric()).next()?;
        (!name.is_empty()).then(|| name.to_owned())
    };
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        // The lines back to the end of the item before it.
        let before = lines[..i].iter().rev().take_while(|l| {
            let l = l.trim();
            !l.is_empty() && (l.starts_with("///") || !l.ends_with([';', '}', '{']))
        });
        found.push((name, before.into_iter().any(|l| l.trim_start().starts_with("/// ```"))));
    }
    found
}

/// The public types of a crate: name, file, and whether it has an example.
fn public(name: &str) -> Vec<(String, PathBuf, bool)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let (exported, modules) = exported(&fs::read_to_string(source.join("lib.rs")).unwrap());
    let mut files = Vec::new();
    sources(&source, &mut files);
    let mut found = Vec::new();
    for file in files {
        let within = |m: &String| {
            let folder = file.parent().is_some_and(|p| p.ends_with(m));
            folder || file.file_stem().is_some_and(|stem| stem == m.as_str())
        };
        let whole = modules.iter().any(within);
        for (name, example) in types(&fs::read_to_string(&file).unwrap()) {
            if whole || exported.contains(&name) {
                found.push((name, file.clone(), example));
            }
        }
    }
    found
}

#[test]
fn every_public_type_has_an_example() {
    let all: Vec<_> = CRATES.iter().flat_map(|name| public(name)).collect();
    assert!(all.len() > 140, "only {} types seen", all.len());
    let listed = |name: &str| SHOWN_ELSEWHERE.iter().any(|(n, _)| *n == name);
    let missing: Vec<_> = all
        .iter()
        .filter(|(name, _, example)| !example && !listed(name))
        .map(|(name, file, _)| format!("{name} in {}", file.display()))
        .collect();
    assert!(missing.is_empty(), "without an example: {missing:#?}");
    let stale: Vec<_> = SHOWN_ELSEWHERE
        .iter()
        .filter(|(n, _)| !all.iter().any(|(name, _, example)| name == n && !example))
        .collect();
    assert!(stale.is_empty() && SHOWN_ELSEWHERE.len() <= 15, "{stale:?}");
}

#[test]
fn a_type_without_an_example_is_found() {
    let text = "/// A page.\n/// ```\n/// ```\n#[derive(Debug)]\npub struct A;\n\n/// ```\n/// ```\nfn f() {}\n\
                /// Nothing.\n#[derive(\n    Debug,\n)]\npub(crate) struct P;\n/// A.\npub unsafe trait B: Sync {\n\
                \x20   /// ```\n    /// ```\n    fn g();\n}\n/// C.\n#[repr(C)]\npub enum C<'a> {}\n";
    let found = types(text);
    let found: Vec<_> = found.iter().map(|(n, e)| (n.as_str(), *e)).collect();
    assert_eq!(found, [("A", true), ("B", false), ("C", false)]);
    let lib = "pub use a::b::{One, Two as Three};\npub use c::d;\npub mod e;\n// pub use x::Y;\nuse z::Z;\n";
    let (types, modules) = exported(lib);
    assert_eq!(types.into_iter().collect::<Vec<_>>(), ["One", "Two"]);
    assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["d", "e"]);
}
