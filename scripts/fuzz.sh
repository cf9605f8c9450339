#!/usr/bin/env bash
# Fuzzes one target, or each in turn, for a number of seconds: scripts/fuzz.sh [TARGET|all] [SECONDS].
# `scripts/fuzz.sh pack TARGET` minimises what was found and packs it into fuzz/corpus/ for the tests
# that replay it on stable. Needs a nightly toolchain, cargo-fuzz (cargo install cargo-fuzz), and zstd.
# Failing inputs are written to fuzz/artifacts/.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/../fuzz"
targets=(ftrace perf perfetto pgy state machine knobs operations oracle results topology replay)
# Small corpora: tests of the crates read them all. Text is compressed.
most=40000 packed=150000

# Inputs and the lab's temporary files are kept in memory: on ext4, creating and deleting them takes up
# to a fifth of the time. They are gone after a reboot: `pack` what is worth keeping.
work=$PWD/corpus
if [ -w /dev/shm ]; then
    work=/dev/shm/pageyard-fuzz-$UID
    mkdir -p "$work"
    export TMPDIR=$work
fi

# Build options of a target. The lab takes minutes to build, so only its own targets depend on it.
# Tracing comparisons helps parsers. In a simulation it takes two thirds of the time and says little
# about the input.
built() {
    case $1 in
    oracle | results | topology | replay) echo --no-trace-compares --target-dir target/plain --features lab ;;
    knobs | operations) echo --no-trace-compares --target-dir target/plain ;;
    esac
}

# The longest input in bytes. An operation sequence is a machine and up to 60 steps of eight bytes;
# settings are at most 64 lines.
longest() {
    case $1 in
    operations) echo 488 ;;
    knobs) echo 2048 ;;
    *) echo 8192 ;;
    esac
}

# `pack` finds shorter inputs that reach the same. Weighing the inputs of `operations`, which reach tens of
# thousands of features, takes 40 % of the time.
options() { case $1 in operations) echo -entropic=0 ;; esac }

corpus() { cargo run --quiet --example corpus -- "$@"; }

unpacked() {
    if [ -f "corpus/$1.zst" ]; then
        zstd -q -d -f "corpus/$1.zst" -o "$work/$1.bin"
        corpus unpack "$work/$1.bin" "$work/$1"
        rm "$work/$1.bin"
    elif [ -f "corpus/$1.bin" ]; then
        corpus unpack "corpus/$1.bin" "$work/$1"
    fi
    mkdir -p "$work/$1"
}

run() {
    # shellcheck disable=SC2046
    cargo +nightly fuzz run -s none --fuzz-dir . $(built "$1") "$1" "${@:2}"
}

case ${1:-all} in
pack)
    target=${2:?which target? one of ${targets[*]}}
    unpacked "$target"
    least=$(mktemp -d)
    trap 'rm -rf "$least"' EXIT
    run "$target" -- -merge=1 "$least" "$work/$target"
    case $target in
    ftrace | perf | perfetto | pgy | state | oracle | results | topology | replay)
        corpus pack "$least" "corpus/$target.bin" "$packed"
        zstd -q -19 -f --rm "corpus/$target.bin" -o "corpus/$target.zst"
        ;;
    *) corpus pack "$least" "corpus/$target.bin" "$most" ;;
    esac
    exit
    ;;
all) ;;
*) targets=("$1") ;;
esac
for target in "${targets[@]}"; do
    unpacked "$target"
    # shellcheck disable=SC2046
    run "$target" "$work/$target" -- -max_total_time="${2:-300}" -rss_limit_mb=1024 -malloc_limit_mb=512 \
        -timeout=10 -max_len="$(longest "$target")" -reduce_inputs=0 $(options "$target") -print_final_stats=1
done
