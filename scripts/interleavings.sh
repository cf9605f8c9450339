#!/usr/bin/env bash
# Interleavings, from the smallest protocol to whole workloads: loom, shuttle, the simulated machine.
# Each prints how many schedules it tried, and for one that fails what repeats it.
#
#     scripts/interleavings.sh          a minute or two, and the builds
#     scripts/interleavings.sh 10       ten times as many schedules
#
# CI runs loom's models (scripts/outside.sh), shuttle's and the machine's tests in their short form.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."
times=${1:-1}

step() { printf '\n== %s\n' "$*"; }
# Panics of planted bugs are told on stderr; what counts is on stdout.
run() { cargo test "$@" -- --nocapture 2> >(grep -v '^ \|^stack\|^note' >&2); }

# A backtrace is larger than the stacks of loom's coroutines: a model that fails would hang.
export RUST_BACKTRACE=0
step "loom: the small protocols, every interleaving and reordering"
PAGEYARD_SCHEDULES=1 run --manifest-path verify/loom/Cargo.toml \
    --target-dir "${CARGO_TARGET_DIR:-target}/loom"
step "loom: the models that take minutes"
cargo test --manifest-path verify/loom/Cargo.toml --target-dir "${CARGO_TARGET_DIR:-target}/loom" \
    --test packed -- --ignored --nocapture
step "shuttle: whole requests"
PAGEYARD_SCHEDULES=$((2000 * times)) run -p pageyard-shuttle
step "the simulated machine: whole workloads, with stalls and failures"
PAGEYARD_SCHEDULES=$((2000 * times)) run -p pageyard-machine --test machine explore
PAGEYARD_SCHEDULES=$((2000 * times)) run -p pageyard-machine --test machine mixed
