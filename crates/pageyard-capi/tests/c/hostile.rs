//! Every function with invalid and extreme numbers: `hostile_core.c` and `hostile_host.c` have a
//! row for each function in the headers. A function runs in its own process with little memory, so
//! that one that aborts or hangs is named.

use std::collections::BTreeSet;

use super::abi::{HEADERS, declarations};
use super::header::made;
use super::here;
use super::install::run;
use super::programs::{ENGINES, built, flags, of_engine, threaded};

/// The test program of each header.
const PROGRAMS: [(&str, &str); 2] =
    [("pageyard_core.h", "hostile_core"), ("pageyard.h", "hostile_host")];

/// The functions in a list of declarations.
fn functions(declarations: &[String]) -> BTreeSet<String> {
    let named = |d: &String| Some(d.split_once('(')?.0.rsplit([' ', '*']).next()?.to_owned());
    declarations.iter().filter(|d| !d.starts_with("typedef")).filter_map(named).collect()
}

/// The functions that have rows.
fn rows(program: &str) -> BTreeSet<String> {
    let row = |line: &str| Some(line.trim().strip_prefix("ROW(")?.split(')').next()?.to_owned());
    program.lines().filter_map(row).collect()
}

fn source(program: &str) -> String {
    std::fs::read_to_string(here().join(format!("tests/c/{program}.c"))).unwrap()
}

#[test]
fn every_function_has_a_row_of_argument_values() {
    assert_eq!(HEADERS, PROGRAMS.map(|(header, _)| header));
    for (header, program) in PROGRAMS {
        let mut declared = functions(&declarations(&made(header)));
        assert!(declared.len() > 25, "{declared:?}");
        let rows = rows(&source(program));
        assert_eq!(rows, declared, "the rows of {program}.c and the functions of {header}");
        // A function without a row is found.
        declared.extend(functions(&["pageyard_status pageyard_new(uint64_t n)".into()]));
        let missing: Vec<_> = declared.difference(&rows).collect();
        assert_eq!(missing, ["pageyard_new"]);
    }
}

fn invalid_and_extreme_numbers(program: &str, (engine, suffix): (&str, &str)) {
    let (path, name) = (format!("tests/c/{program}.c"), format!("{program}{suffix}"));
    let built = built(of_engine(false, engine), &path, &flags("pageyard"), &name);
    for function in rows(&source(program)) {
        let mut one = std::process::Command::new(built.get_program());
        one.args(built.get_args());
        one.envs(built.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert_eq!(run(one.arg(&function)), "hostile: all is well\n", "{function}");
    }
}

#[test]
fn invalid_and_extreme_numbers_of_the_core_are_errors_or_served() {
    ENGINES.into_iter().for_each(|engine| invalid_and_extreme_numbers("hostile_core", engine));
}

#[test]
fn invalid_and_extreme_numbers_of_the_host_are_errors_or_served() {
    invalid_and_extreme_numbers("hostile_host", ENGINES[0]);
}

#[test]
fn a_function_that_aborts_is_named() {
    let mut compiler = threaded(false);
    compiler.arg("-DPLANT");
    let mut program =
        built(compiler, "tests/c/hostile_core.c", &flags("pageyard"), "hostile-plant");
    let output = program.arg("pageyard_core_compact").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("pageyard_core_compact: signal 6, of 0,"), "{said}");
}
