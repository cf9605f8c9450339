#![no_main]

#[path = "../bodies/trace.rs"]
#[allow(dead_code)]
mod trace;

libfuzzer_sys::fuzz_target!(|data: &[u8]| trace::recording(data));
