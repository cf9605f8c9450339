//! Replays the inputs that the fuzzers kept (`fuzz/`) on stable, with mutations. No input makes the
//! lab panic or hang, and an error names its input.

#[path = "../../../../fuzz/bodies/corpora.rs"]
mod corpora;
#[allow(missing_docs, unreachable_pub)]
#[path = "../../../../fuzz/bodies/lab.rs"]
mod lab;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

#[test]
fn recordings() {
    replay::replay(&corpora::read("oracle.zst"), 200, lab::oracle);
}

#[test]
fn results() {
    replay::replay(&corpora::read("results.zst"), 1000, lab::results);
}

#[test]
fn topologies() {
    replay::replay(&corpora::read("topology.zst"), 5000, lab::topology);
}

#[test]
fn traces() {
    replay::replay(&corpora::read("replay.zst"), 5000, lab::replay);
}

/// A reader that does not validate its input.
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
fn a_reader_that_trusts_its_input_is_detected() {
    replay::finds("memory that is no range", &corpora::read("topology.zst"), 4000, trusting);
}
