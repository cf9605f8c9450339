//! A process that exits in a callback, in the middle of a request, ends with its exit code.
//!
//! A program of its own, without libtest: its global allocator is the yard.
#![allow(missing_docs)]

use std::alloc::System;
use std::process::{Command, exit};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use pageyard::{Gfp, Order, ReclaimJob};
use pageyard_host::{Builder, HostYard, PageAlloc, ThreadCache};

#[global_allocator]
static PAGES: PageAlloc<System> = PageAlloc::new(System);

const CHILD: &str = "PAGEYARD_EXIT_CHILD";
const CODE: i32 = 7;

fn main() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let program = std::env::current_exe().expect("the path of this program");
    let child = Command::new(program).env(CHILD, "1").output().expect("the child starts");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.code(), Some(CODE), "{}: {said}", child.status);
    println!("test a_process_may_end_in_a_shrinker ... ok");
}

fn child() {
    static ENDS: AtomicBool = AtomicBool::new(false);
    let yard =
        Builder::new(64 << 20).tick(None).thread_cache(ThreadCache::Auto).build().expect("a yard");
    let yard: &'static HostYard = Box::leak(Box::new(yard));
    PAGES.install(yard).expect("no yard was installed before");
    let shrinker = |_: &ReclaimJob| {
        if ENDS.load(SeqCst) {
            exit(CODE);
        }
        0
    };
    yard.register_shrinker(shrinker).keep();
    let full = Barrier::new(2);
    let mut all = Vec::with_capacity(1 << 16);
    std::thread::scope(|s| {
        s.spawn(|| {
            full.wait();
            ENDS.store(true, SeqCst);
            // The thread's first request: it joins the thread cache, which allocates from the yard.
            let _ = yard.alloc(Order::ZERO, Gfp::NOWAIT);
        });
        let gfp = Gfp::MEMALLOC | Gfp::NOWARN | Gfp::NOWAIT;
        for order in (0..=10).rev().filter_map(Order::new) {
            all.extend(std::iter::from_fn(|| yard.alloc(order, gfp).ok()));
        }
        full.wait();
    });
    unreachable!("no shrinker was called");
}
