#![no_main]

#[path = "../../crates/pageyard/tests/all/common/mod.rs"]
mod common;
#[path = "../bodies/knobs.rs"]
mod knobs;

libfuzzer_sys::fuzz_target!(|data: &[u8]| knobs::knobs(data));
