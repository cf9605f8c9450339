//! What the fuzzers have found worth keeping (`fuzz/`), replayed on stable with changes: nothing that
//! the lab reads makes it panic or hang, and what it refuses it names.
#![allow(missing_docs, unreachable_pub)]

#[path = "../../../fuzz/bodies/lab.rs"]
mod lab;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

fn corpus(name: &str) -> Vec<u8> {
    let path = format!("{}/../../fuzz/corpus/{name}.zst", env!("CARGO_MANIFEST_DIR"));
    let packed = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    zstd::decode_all(packed).unwrap()
}

#[test]
fn recordings() {
    replay::replay(&corpus("oracle"), 200, lab::oracle);
}

#[test]
fn results() {
    replay::replay(&corpus("results"), 1000, lab::results);
}

#[test]
fn topologies() {
    replay::replay(&corpus("topology"), 5000, lab::topology);
}

#[test]
fn traces() {
    replay::replay(&corpus("replay"), 5000, lab::replay);
}

/// A reader that takes what it reads for what it should be.
fn trusting(data: &[u8]) {
    let text = std::str::from_utf8(data).unwrap_or_default();
    for line in text.lines().filter(|l| l.starts_with("memory = [\"")) {
        let range = line["memory = [\"".len()..].split('"').next().unwrap();
        let ends = range.split_once("..").and_then(|(from, to)| {
            Some((pageyard_machine::size(from).ok()?, pageyard_machine::size(to).ok()?))
        });
        assert!(ends.is_some_and(|(from, to)| from < to), "memory that is no range");
    }
}

#[test]
fn a_reader_that_trusts_its_input_is_found_out() {
    replay::finds("memory that is no range", &corpus("topology"), 4000, trusting);
}
