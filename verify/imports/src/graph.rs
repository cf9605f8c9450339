//! Cycles of a crate's imports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::modules::Crate;

/// Returns the cycles among the files of `c`, and among its sibling modules. Each cycle is a list
/// of the imports that close it, such as `a.rs imports b.rs (crate::b::B)`. Of cycles that share a
/// file, only one of the shortest is returned.
///
/// File names are relative to `base`.
pub fn cycles(c: &Crate, base: &Path) -> Vec<Vec<String>> {
    let imports = c.imports();
    let files = c.files().into_iter().map(|file| BTreeSet::from([file])).collect();
    let mut found = Vec::new();
    for groups in [files].into_iter().chain(c.siblings()) {
        for cycle in cycles_among(&groups, &imports) {
            let name = |file: &Path| file.strip_prefix(base).unwrap_or(file).display().to_string();
            let line = |(from, to): (&Path, &Path)| {
                format!("{} imports {} ({})", name(from), name(to), imports[&(from, to)])
            };
            let cycle: Vec<String> = cycle.into_iter().map(line).collect();
            // A module without submodules is a file, whose cycles were already found.
            if !found.contains(&cycle) {
                found.push(cycle);
            }
        }
    }
    found
}

/// Returns the imports that close cycles among `groups`: the shortest cycles, without those that
/// share a group with a shorter one.
fn cycles_among<'a>(
    groups: &[BTreeSet<&'a Path>],
    imports: &BTreeMap<(&'a Path, &'a Path), String>,
) -> Vec<Vec<(&'a Path, &'a Path)>> {
    let group = |file| groups.iter().position(|r| r.contains(file));
    let mut edges: BTreeMap<(usize, usize), Vec<(&Path, &Path)>> = BTreeMap::new();
    for &(from, to) in imports.keys() {
        if let (Some(a), Some(b)) = (group(from), group(to))
            && a != b
        {
            edges.entry((a, b)).or_default().push((from, to));
        }
    }
    let mut all: Vec<Vec<usize>> = (0..groups.len()).filter_map(|a| shortest(a, &edges)).collect();
    all.sort_by_key(Vec::len);
    let mut named: BTreeSet<usize> = BTreeSet::new();
    let mut found = Vec::new();
    for cycle in all {
        if cycle.iter().all(|group| !named.contains(group)) {
            named.extend(&cycle);
            let next = cycle.iter().cycle().skip(1);
            let pairs = cycle.iter().zip(next).flat_map(|(&a, &b)| edges[&(a, b)].iter().copied());
            found.push(pairs.collect());
        }
    }
    found
}

/// Returns the shortest path from a group back to itself.
fn shortest<T>(group: usize, edges: &BTreeMap<(usize, usize), T>) -> Option<Vec<usize>> {
    let mut ways = VecDeque::from([vec![group]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        let at = way[way.len() - 1];
        for &(_, next) in edges.range((at, 0)..(at + 1, 0)).map(|(pair, _)| pair) {
            if next == group {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back([&way[..], &[next]].concat());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let read = |path: &Path| {
            let text = files.iter().find(|(name, _)| Path::new(name) == path)?.1;
            Some(text.to_owned())
        };
        let c = Crate::read(Path::new(files[0].0), &read);
        cycles(&c, Path::new("src"))
    }

    #[test]
    fn a_cycle_names_its_files() {
        let files = [
            ("src/lib.rs", "mod a; mod b; mod c; mod d; pub use c::C;"),
            ("src/a.rs", "use crate::b::B; pub struct A;"),
            ("src/b.rs", "use crate::C; pub struct B;"),
            ("src/c.rs", "use crate::a::A; pub struct C;"),
            ("src/d.rs", "use crate::a::A;"),
        ];
        let cycle = [
            "a.rs imports b.rs (crate::b::B)",
            "b.rs imports c.rs (crate::C)",
            "c.rs imports a.rs (crate::a::A)",
        ];
        assert_eq!(cycles_of(&files), [cycle]);
        let one_way = [files[0], files[1], files[2], ("src/c.rs", "pub struct C;"), files[4]];
        assert!(cycles_of(&one_way).is_empty());
    }

    #[test]
    fn modules_with_their_submodules_import_one_way() {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a/mod.rs", "mod x; mod y; pub use x::X;"),
            ("src/a/x.rs", "pub struct X;"),
            ("src/a/y.rs", "use crate::b::B;"),
            ("src/b.rs", "use crate::a::X; pub struct B;"),
        ];
        let cycle = ["a/y.rs imports b.rs (crate::b::B)", "b.rs imports a/x.rs (crate::a::X)"];
        assert_eq!(cycles_of(&files), [cycle]);
    }
}
