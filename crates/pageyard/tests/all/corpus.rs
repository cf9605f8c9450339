//! Textual settings that the fuzzer kept (`fuzz/`), and mutations of them.

use crate::replay;

#[path = "../../../../fuzz/bodies/knobs.rs"]
mod knobs;

#[test]
fn settings_from_text() {
    let corpus = include_bytes!("../../../../fuzz/corpus/knobs.bin");
    replay::replay(corpus, 60, knobs::knobs);
}
