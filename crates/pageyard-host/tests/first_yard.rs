//! A child that is forked while another thread of its parent builds the program's first yard, and builds a
//! yard of its own.
//!
//! A program with one test, which runs itself: a process builds its first yard once.

#![allow(unsafe_code)] // forks

use std::process::Command;
use std::time::Duration;

use pageyard_host::Builder;

const VARIABLE: &str = "PAGEYARD_FORK_AFTER";

fn build() -> bool {
    Builder::new(16 << 20).tick(None).publish(false).build().is_ok()
}

/// Forks some microseconds after another thread has begun to build a yard.
fn fork_after(us: u64) {
    // With several threads, registering for the barrier takes milliseconds.
    let _idle = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
    let builder = std::thread::spawn(build);
    std::thread::sleep(Duration::from_micros(us));
    // SAFETY: the child uses only yards, which document what it may do, and exits at once.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: take numbers; the signal ends a child that hangs.
            unsafe {
                libc::alarm(60);
                libc::_exit(i32::from(!build()))
            }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local number.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's wait status, forked after {us} us");
        }
    }
    assert!(builder.join().unwrap());
}

#[test]
fn a_child_builds_a_yard_while_its_parent_does() {
    if let Ok(us) = std::env::var(VARIABLE) {
        return fork_after(us.parse().unwrap());
    }
    for us in [0, 300, 600, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let done = again.env(VARIABLE, us.to_string()).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}
