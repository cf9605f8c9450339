//! The program from outside, in one test program: what one test waits for, another one can use.

mod cli;
mod compare;
mod failures;
mod fast_path;
mod picture;
mod reproduce;
mod run;
mod top;

use std::sync::{Mutex, MutexGuard, PoisonError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pageyard");

/// Held while this process publishes statistics that `top` of it must not see, and while `top` looks at it.
fn publishing() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
