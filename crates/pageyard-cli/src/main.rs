//! The program `pageyard`.
fn main() {}
