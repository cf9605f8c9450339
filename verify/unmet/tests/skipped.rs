//! Prints the tests that were skipped in this run, after all other tests.
//!
//! A program of its own, without libtest, which would capture what it prints.

#![allow(clippy::print_stdout)]

fn main() {
    // `cargo test -- --list` asks only for the names of tests.
    if std::env::args().any(|a| a == "--list") {
        return;
    }
    let skipped = pageyard_unmet::take_skipped();
    let variable = pageyard_unmet::VARIABLE;
    println!("\ntests skipped: {} (with {variable}=1 they fail)", skipped.len());
    skipped.iter().for_each(|line| println!("    {line}"));
    println!();
}
