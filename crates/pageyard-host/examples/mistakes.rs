//! Planted mistakes, which the sanitizers in `scripts/sanitizers.sh` must find. `mistakes freed`
//! uses a yard after it was freed; `mistakes raced` writes to one block from two threads. Other
//! builds need not detect them.

#![allow(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::thread;

use pageyard::{Gfp, Order};
use pageyard_host::{Builder, HostYard};

fn yard() -> Box<HostYard> {
    Box::new(Builder::new(64 << 20).build().expect("64 MiB"))
}

fn freed() {
    let yard = Box::into_raw(yard());
    // SAFETY: none; that is the mistake.
    unsafe {
        drop(Box::from_raw(yard));
        black_box((*yard).status());
    }
}

fn raced() {
    let yard = yard();
    let block = yard.alloc(Order::ZERO, Gfp::KERNEL).expect("a page");
    let at = block.as_ptr().as_ptr() as usize;
    let write = move |byte: u8| {
        // SAFETY: inside the block; none for the two concurrent writers, which is the mistake.
        (0..1000).for_each(|_| unsafe { (at as *mut u8).write_volatile(byte) });
    };
    thread::scope(|s| [1, 2].map(|byte| s.spawn(move || write(byte))).into_iter().count());
}

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("freed") => freed(),
        Some("raced") => raced(),
        _ => {
            eprintln!("mistakes: which? give freed or raced");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
