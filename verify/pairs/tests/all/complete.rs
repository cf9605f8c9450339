//! Checks that every public function of the core that works on a yard is part of an operation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Types whose functions must be operations.
const TYPES: [&str; 3] = ["Yard<", "CmaArea<", "Kswapd<"];

/// Functions that no operation calls, with the reason.
const EXEMPT: [(&str, &str); 26] = [
    ("for_each_shared", "addresses"),
    ("pass_cpu_lock", "takes a lock and releases it"),
    ("pass_zone_lock", "takes a lock and releases it"),
    ("alloc_bulk_ready", "a part of alloc_bulk_each"),
    ("alloc_ready", "a part of alloc"),
    ("alloc_rest", "a part of alloc"),
    ("free_ready", "a part of free"),
    ("free_rest", "a part of free"),
    ("init", "takes the yard for itself"),
    ("hooks_mut", "takes the yard for itself"),
    ("set_policy", "takes the yard for itself"),
    ("restore", "takes the yard for itself"),
    ("without_memory", "states begin with it"),
    ("with_policy", "states begin with it"),
    ("blank", "states begin with it"),
    ("init_blank", "takes the yard for itself"),
    ("init_deferred", "takes the yard for itself"),
    ("policy", "a constant"),
    ("deferred", "states begin with it"),
    ("from_memory_map", "states begin with a yard"),
    ("new", "states begin with it"),
    ("zones", "a constant"),
    ("zone_ids", "constants"),
    ("hooks", "a constant"),
    ("words", "a calculation"),
    ("distance", "a constant"),
];

/// Returns the public functions in one source file.
fn public(source: &str) -> BTreeSet<String> {
    let mut is_ours = false;
    let mut names = BTreeSet::new();
    for line in source.lines() {
        if line.starts_with("impl") {
            let of = line.rsplit(" for ").next().unwrap_or(line);
            is_ours = TYPES.iter().any(|t| of.contains(t));
        }
        let function = line.strip_prefix("    pub fn ").or(line.strip_prefix("    pub const fn "));
        if let Some(rest) = function.filter(|_| is_ours) {
            names.extend(rest.split(['(', '<']).next().map(str::to_owned));
        }
    }
    names
}

fn sources(dir: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, names);
        } else if path.extension().is_some_and(|e| e == "rs") {
            names.extend(public(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn every_public_function_is_part_of_an_operation() {
    let mut all = BTreeSet::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/pageyard/src"), &mut all);
    assert!(all.len() > 100, "{}: the sources have changed their form", all.len());
    let exempt: BTreeMap<&str, &str> = EXEMPT.into();
    let called = |name: &str| include_str!("ops.rs").contains(&format!(".{name}("));
    let missing = |all: &BTreeSet<String>| -> Vec<String> {
        all.iter().filter(|n| !called(n) && !exempt.contains_key(n.as_str())).cloned().collect()
    };
    assert_eq!(missing(&all), [""; 0], "functions without an operation in ops.rs");
    let stale: Vec<_> = exempt.keys().filter(|n| !all.contains(**n) || called(n)).collect();
    assert!(stale.is_empty(), "exempt without need: {stale:?}");
    // A function that no operation calls must be found.
    all.extend(public("impl<R, E, P> Yard<'_, Hooked<R, E, P>> {\n    pub fn melt(&self) {}\n"));
    assert_eq!(missing(&all), ["melt"]);
}
