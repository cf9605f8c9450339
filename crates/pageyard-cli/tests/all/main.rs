//! Tests of the program from outside, in one test program, so that tests can share resources and
//! wait for each other.

mod cli;
mod compare;
mod failures;
mod fast_path;
mod figures;
mod manual;
mod picture;
mod policies;
mod record;
mod reproduce;
mod run;
mod state_files;
mod top;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pageyard");

/// Held while this process publishes statistics that its `top` must not see, and while `top` reads
/// it.
fn publishing() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pageyard(args: &[&str]) -> Output {
    Command::new(crate::PROGRAM).args(args).output().unwrap()
}

fn out(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

fn err(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(name)
}
