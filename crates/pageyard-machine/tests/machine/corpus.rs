//! Machine files that a fuzzer has found worth keeping (`fuzz/`), and changes of them: each is a
//! machine that can be, or refused with the file's name.

#[path = "../../../../fuzz/bodies/machine.rs"]
mod machine;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn machine_files() {
    let corpus = include_bytes!("../../../../fuzz/corpus/machine.bin");
    replay::replay(corpus, 20_000, machine::machine);
}
