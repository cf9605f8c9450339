#![no_main]

#[path = "../bodies/machine.rs"]
mod machine;

libfuzzer_sys::fuzz_target!(|data: &[u8]| machine::machine(data));
