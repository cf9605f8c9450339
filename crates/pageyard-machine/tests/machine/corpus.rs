//! Machine files that a fuzzer kept (`fuzz/`), and mutations of them: each describes a possible
//! machine, or is refused with the file's name.

#[path = "../../../../fuzz/bodies/machine.rs"]
mod machine;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn machine_files() {
    let corpus = include_bytes!("../../../../fuzz/corpus/machine.bin");
    replay::replay(corpus, 20_000, machine::machine);
}
