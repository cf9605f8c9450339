//! Tests of code that aborts the process.

use std::env;
use std::os::unix::process::ExitStatusExt;

/// Runs the test of this path in a process of its own, where it calls `breaks`, and checks that
/// this aborts after writing `says` to stderr.
pub(crate) fn aborts(test: &str, says: &str, breaks: impl FnOnce()) {
    const PLANTED: &str = "PAGEYARD_PLANTED";
    if env::var_os(PLANTED).is_some() {
        return breaks();
    }
    let mut child = pageyard_unmet::command(env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--nocapture"]).env(PLANTED, "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{told}");
    assert!(told.contains(says), "{told}");
}
