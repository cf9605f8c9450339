//! Replays the inputs that the fuzzers kept (`fuzz/`) on stable, with mutations. No reader panics
//! or hangs, and an input read without an error is written and read back unchanged.

#[path = "../../../../fuzz/bodies/corpora.rs"]
mod corpora;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;
#[allow(missing_docs, unreachable_pub)]
#[path = "../../../../fuzz/bodies/trace.rs"]
mod trace;

#[test]
fn recordings() {
    replay::replay(&corpora::read("ftrace.zst"), 10_000, trace::recording);
}

#[test]
fn perf_recordings() {
    replay::replay(&corpora::read("perf.zst"), 4000, trace::recording);
}

#[test]
fn perfetto_traces() {
    replay::replay(&corpora::read("perfetto.zst"), 10_000, trace::recording);
}

#[test]
fn binary_recordings() {
    replay::replay(&corpora::read("trace_dat.zst"), 10_000, trace::recording);
}

#[test]
fn compact_traces() {
    replay::replay(&corpora::read("pgy.zst"), 10_000, trace::pgy);
}

#[test]
fn state_files() {
    replay::replay(&corpora::read("state.zst"), 20_000, trace::state);
}

/// A reader that does not validate its input.
fn trusting(data: &[u8]) {
    let text = std::str::from_utf8(data).unwrap_or_default();
    for line in text.lines().filter(|l| l.starts_with("Node ")) {
        let number = line["Node ".len()..].split(',').next().unwrap();
        assert!(number.parse::<u16>().is_ok(), "a node that is no number");
    }
}

#[test]
fn a_reader_that_trusts_its_input_is_detected() {
    let trusting = |data: &[u8]| trusting(data.get(1..).unwrap_or_default());
    replay::finds("a node that is no number", &corpora::read("state.zst"), 4000, trusting);
}
