//! Settings in text that a fuzzer has found worth keeping (`fuzz/`), and changes of them.

use crate::replay;

#[path = "../../../../fuzz/bodies/knobs.rs"]
mod knobs;

#[test]
fn settings_from_text() {
    let corpus = include_bytes!("../../../../fuzz/corpus/knobs.bin");
    replay::replay(corpus, 60, knobs::knobs);
}
