//! A forked child that replaces its parent's yard, with a worker thread.
//!
//! A program with one test: the standard library's threads take a lock when they begin and end. A
//! child that starts a thread waits forever if a thread of its parent held that lock at the fork.

#![allow(unsafe_code)] // forks

use std::time::Duration;

use pageyard::{Gfp, Order};
use pageyard_host::{Builder, HostYard};

/// Builds a yard and waits until its worker has run. Returns at which step it failed.
fn own_yard() -> Result<(), i32> {
    let builder = Builder::new(32 << 20).tick(Some(Duration::from_millis(5)));
    let own: HostYard = builder.build().map_err(|_| 1)?;
    let mut block = own.alloc(Order::ZERO, Gfp::KERNEL).map_err(|_| 2)?;
    block.fill(1);
    let mut waits = (0..2000).inspect(|_| std::thread::sleep(Duration::from_millis(5)));
    if waits.any(|_| own.status().ticks > 2) { Ok(()) } else { Err(3) }
}

#[test]
fn a_child_can_replace_the_yard() {
    let yard = Builder::new(64 << 20).tick(Some(Duration::from_millis(5))).build().unwrap();
    // The worker thread has begun.
    while yard.status().ticks == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
    let mut yard = Some(yard);
    // SAFETY: the child uses only yards, which document what it may do, and exits at once.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: take numbers; the signal ends a child that hangs.
            unsafe { libc::alarm(60) };
            drop(yard.take());
            // SAFETY: as above.
            unsafe { libc::_exit(own_yard().err().unwrap_or(0)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local number.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child's wait status");
        }
    }
    assert!(yard.is_some_and(|yard| yard.alloc(Order::ZERO, Gfp::KERNEL).is_ok()));
}
