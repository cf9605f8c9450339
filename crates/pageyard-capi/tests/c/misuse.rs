//! Null, garbage and stale pointers for every function: `misuse.c` has a row for each pointer in
//! the headers.

use std::collections::BTreeSet;

use super::abi::{HEADERS, declarations};
use super::header::made;
use super::here;
use super::install::run;
use super::programs::{ENGINES, built, flags, of_engine, threaded};

const HANDLES: [&str; 3] = ["pageyard", "pageyard_core", "pageyard_registration"];
const ROWS: [&str; 4] = ["BAD_HANDLE", "NULL_IS", "CANNOT_TELL", "NO_POINTER"];

/// Splits a list at its commas, except inside brackets.
fn parts(list: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in list.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
    }
    parts.into_iter().map(|p| p.trim().to_owned()).collect()
}

/// A parameter's name, if it is a pointer, and whether it is a handle.
fn pointer(parameter: &str) -> Option<(String, bool)> {
    if let Some((_, rest)) = parameter.split_once("(*") {
        return Some((rest.split(')').next()?.to_owned(), false));
    }
    let (of, name) = parameter.rsplit_once('*')?;
    let of = of.trim_start_matches("const ").trim_start_matches("struct ").trim();
    Some((name.trim().to_owned(), HANDLES.contains(&of)))
}

/// The required rows: kind, function and parameter.
fn wanted(declarations: &[String]) -> BTreeSet<(String, String)> {
    let mut wanted = BTreeSet::new();
    for d in declarations.iter().filter(|d| !d.starts_with("typedef")) {
        let (head, rest) = d.split_once('(').unwrap();
        let name = head.rsplit([' ', '*']).next().unwrap().to_owned();
        let pointers: Vec<_> =
            parts(rest.strip_suffix(')').unwrap()).iter().filter_map(|p| pointer(p)).collect();
        if pointers.is_empty() {
            wanted.insert((name, "NO_POINTER".into()));
            continue;
        }
        for (parameter, handle) in pointers {
            let row = if handle { "BAD_HANDLE".into() } else { parameter };
            wanted.insert((name.clone(), row));
        }
    }
    wanted
}

/// The rows of a program.
fn rows(program: &str) -> BTreeSet<(String, String)> {
    let row = |line: &str| {
        let (kind, rest) = line.trim().split_once('(')?;
        let mut words = rest.split([',', ')', ' ']).filter(|w| !w.is_empty());
        let name = words.next()?.to_owned();
        let what = match kind {
            "BAD_HANDLE" | "NO_POINTER" => kind.to_owned(),
            kind if ROWS.contains(&kind) => words.next()?.to_owned(),
            _ => return None,
        };
        Some((name, what))
    };
    program.lines().filter(|l| !l.starts_with("#define")).filter_map(row).collect()
}

fn program() -> String {
    std::fs::read_to_string(here().join("tests/c/misuse.c")).unwrap()
}

#[test]
fn every_pointer_has_a_row() {
    let mut all: Vec<String> = HEADERS.iter().flat_map(|h| declarations(&made(h))).collect();
    let rows = rows(&program());
    let missing = |all: &[String]| wanted(all).difference(&rows).cloned().collect::<Vec<_>>();
    assert_eq!(missing(&all), []);
    assert!(wanted(&all).len() > 100, "{}", wanted(&all).len());
    let odd: Vec<_> = rows.difference(&wanted(&all)).cloned().collect();
    assert_eq!(odd, [], "rows for undeclared functions");
    // A function without rows is found.
    all.push("pageyard_status pageyard_new(const struct pageyard *yard, void (*told)(int))".into());
    let row = |what: &str| ("pageyard_new".to_owned(), what.to_owned());
    assert_eq!(missing(&all), [row("BAD_HANDLE"), row("told")]);
}

#[test]
fn misuse_is_an_error() {
    for (engine, suffix) in ENGINES {
        let (compiler, name) = (of_engine(false, engine), format!("misuse{suffix}"));
        let mut program = built(compiler, "tests/c/misuse.c", &flags("pageyard"), &name);
        assert_eq!(run(&mut program), "misuse: all is well\n");
    }
}

#[test]
fn an_unchecked_pointer_is_detected() {
    for plant in ["PLANT_HANDLE", "PLANT_TWICE"] {
        let mut compiler = threaded(false);
        compiler.arg(format!("-D{plant}"));
        let name = format!("misuse-{plant}");
        let o = built(compiler, "tests/c/misuse.c", &flags("pageyard"), &name).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(1), "{plant}: {said}");
        assert!(said.contains("planted") && said.contains("done (0), not PAGEYARD_ERR_HANDLE"));
    }
}
