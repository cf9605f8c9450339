//! The C interface as used by programs in C and C++: headers, libraries, packages, ABI.
//!
//! `PAGEYARD_RENEW=1 cargo test -p pageyard-capi` regenerates the files derived from the sources:
//! the headers in `include/` and the description in `abi/`. Review the changes before a commit.

mod abi;
mod header;
mod hostile;
mod install;
mod jemalloc;
mod misuse;
mod programs;
mod sqlite;
#[cfg(target_arch = "x86_64")]
mod stack;

/// Replaces the module `stack`, which needs x86-64.
#[cfg(not(target_arch = "x86_64"))]
#[test]
fn stack() {
    _ = pageyard_unmet::met("x86-64, whose instructions the tests of the stack read", false);
}

use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of the C compiler or binutils; of the cross compiler if the tests are emulated.
fn tool(name: &str) -> Command {
    if !pageyard_unmet::is_emulated() {
        return Command::new(name);
    }
    let name = match name {
        "cc" => "gcc",
        "c++" => "g++",
        name => name,
    };
    Command::new(format!("{}-linux-gnu-{name}", std::env::consts::ARCH))
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a file of the repository with its generated contents, or writes it.
fn hold_current(file: &str, made: &str) {
    let path: PathBuf = here().join(file);
    if std::env::var_os("PAGEYARD_RENEW").is_some() {
        std::fs::write(&path, made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept == made {
        return;
    }
    let same = kept.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
    let show = |text: &str, sign| -> String {
        text.lines().skip(same).take(5).map(|line| format!("{sign} {line}\n")).collect()
    };
    panic!(
        "{file} is not what the sources say, from line {}:\n{}{}Renew it by\n    \
         PAGEYARD_RENEW=1 cargo test -p pageyard-capi",
        same + 1,
        show(&kept, '-'),
        show(made, '+'),
    );
}
