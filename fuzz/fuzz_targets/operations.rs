#![no_main]

#[path = "../../crates/pageyard/tests/all/common/mod.rs"]
mod common;
#[path = "../../crates/pageyard/tests/all/model/mod.rs"]
#[allow(dead_code, unused_imports)]
mod model;
#[path = "../bodies/replay.rs"]
#[allow(dead_code)]
mod replay;

libfuzzer_sys::fuzz_target!(|data: &[u8]| model::from_bytes(data));
