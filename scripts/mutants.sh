#!/usr/bin/env bash
# Mutants: each is one small change of the code that some test has to notice.
#
#     scripts/mutants.sh                          tries those that were not tried yet
#     scripts/mutants.sh packed hotplug compact   of these files and folders alone
#     scripts/mutants.sh --again                  also those that survived without a reason
#     scripts/mutants.sh --seconds 5              runs tests of 5 seconds for each mutant; 60 unless told
#     scripts/mutants.sh --minutes 30             begins nothing new after that time
#     scripts/mutants.sh --summary                what was found so far, by file
#
# verify/mutants compiles all mutants into one build, in target/mutants, and runs the tests that reach each of
# them. scripts/mutants.tsv records the verdict, the mutant, and for a survivor the reason why it may. A mutant is named
# by its file, its change and the text of its line, so a verdict holds until that line changes.
#
# Needs cargo-mutants, which lists the mutants (cargo install --locked cargo-mutants).
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."
if ! command -v cargo-mutants >/dev/null; then
    echo "mutants: cargo-mutants is not installed; run cargo install --locked cargo-mutants" >&2
    exit 2
fi
export RUST_BACKTRACE=0 CARGO_INCREMENTAL=0
exec cargo run --quiet --locked --manifest-path verify/mutants/Cargo.toml \
    --target-dir "${CARGO_TARGET_DIR:-target}/mutants/tool" -- "$@"
