//! Failures around the program: no room for its output, a reader that is gone, signals in the
//! middle, hostile inputs. Each is tested with every command; a command or an option that is
//! missing in the tables fails the test.
//!
//! `PAGEYARD_SLOW=1` adds commands that take a minute before they write.

mod bounds;
pub(crate) mod folder;
mod full;
pub(crate) mod hostile;
mod places;
mod signals;
mod terminal;
mod unread;

use std::process::Command;

use crate::PROGRAM;

/// Whether to include commands that take long before they write.
fn slow_too() -> bool {
    std::env::var_os("PAGEYARD_SLOW").is_some()
}

/// All commands, as listed by the program's help.
fn commands() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(at) = open.pop() {
        let help = help(&at);
        let names = help.lines().skip_while(|l| *l != "Commands:").skip(1);
        let names = names.take_while(|l| l.starts_with("  "));
        // Wrapped lines of the help have a larger indentation.
        let names =
            names.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
        let below: Vec<Vec<String>> = names
            .filter(|n| *n != "help")
            .map(|n| at.iter().cloned().chain([n.to_owned()]).collect())
            .collect();
        if below.is_empty() || help.contains(&format!("Usage: pageyard {} [OPTIONS]", at.join(" ")))
        {
            all.push(at);
        }
        open.extend(below);
    }
    all
}

/// The short help of a command.
fn help(command: &[String]) -> String {
    let out = Command::new(PROGRAM).args(command).arg("-h").output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn commands_are_found_in_the_help() {
    let all: Vec<String> = commands().iter().map(|c| c.join(" ")).collect();
    for wanted in ["replay", "run", "run hygiene", "soak", "trace import", "top"] {
        assert!(all.iter().any(|c| c == wanted), "{wanted}: {all:?}");
    }
}
