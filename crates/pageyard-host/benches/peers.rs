//! `cargo bench -p pageyard-host [-- --only pair-4k --rounds 9 --json FILE]`: pages from here beside
//! what a program would take them from today. The others are C and C++ and take minutes to build,
//! so they are in a package of their own (`bench/host`), outside the workspace, which this
//! builds and runs.

use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/host/Cargo.toml");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--locked", "--manifest-path", package, "--"])
        .args(std::env::args_os().skip(1))
        .status();
    match run {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => {
            eprintln!("error: {}: {error}; is cargo still there?", env!("CARGO"));
            ExitCode::from(2)
        }
    }
}
