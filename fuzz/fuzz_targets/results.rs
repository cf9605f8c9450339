#![no_main]

#[path = "../bodies/lab.rs"]
#[allow(dead_code)]
mod lab;

libfuzzer_sys::fuzz_target!(|data: &[u8]| lab::results(data));
