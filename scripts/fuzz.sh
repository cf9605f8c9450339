#!/usr/bin/env bash
# Fuzzes one target, or each in turn, for so many seconds: scripts/fuzz.sh [TARGET|all] [SECONDS].
# `scripts/fuzz.sh pack TARGET` minimises what was found and packs it into fuzz/corpus/ for the tests
# that replay it on stable. Needs a nightly toolchain, cargo-fuzz (cargo install cargo-fuzz), and zstd.
# What fails lies in fuzz/artifacts/ then.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
targets=(ftrace pgy state machine knobs operations oracle results topology replay)
# The lab's targets need it built, which takes minutes; the others do without.
features() { case $1 in oracle | results | topology | replay) echo --features=lab ;; esac }
# Small corpora: tests of the crates read them all. Text is compressed.
most=40000 packed=150000

corpus() { cargo run --quiet --example corpus -- "$@"; }

unpacked() {
    if [ -f "corpus/$1.zst" ]; then
        zstd -q -d -f "corpus/$1.zst" -o "corpus/$1.bin"
        corpus unpack "corpus/$1.bin" "corpus/$1"
        rm "corpus/$1.bin"
    elif [ -f "corpus/$1.bin" ]; then
        corpus unpack "corpus/$1.bin" "corpus/$1"
    fi
    mkdir -p "corpus/$1"
}

run() {
    # shellcheck disable=SC2046
    cargo +nightly fuzz run -s none --fuzz-dir . $(features "$1") "$1" "corpus/$1" -- "${@:2}"
}

if [ "${1:-all}" = pack ]; then
    target=${2:?which target? one of ${targets[*]}}
    unpacked "$target"
    least=$(mktemp -d)
    trap 'rm -rf "$least"' EXIT
    # shellcheck disable=SC2046
    cargo +nightly fuzz run -s none --fuzz-dir . $(features "$target") "$target" -- -merge=1 "$least" "corpus/$target"
    case $target in
    ftrace | pgy | state | oracle | results | topology | replay)
        corpus pack "$least" "corpus/$target.bin" "$packed"
        zstd -q -19 -f --rm "corpus/$target.bin" -o "corpus/$target.zst"
        ;;
    *) corpus pack "$least" "corpus/$target.bin" "$most" ;;
    esac
    exit
fi
if [ "${1:-all}" != all ]; then
    targets=("$1")
fi
for target in "${targets[@]}"; do
    unpacked "$target"
    # An operation sequence is a machine and up to 60 steps of four bytes.
    run "$target" -max_total_time="${2:-300}" -rss_limit_mb=1024 -malloc_limit_mb=512 -timeout=10 \
        -max_len=$([ "$target" = operations ] && echo 244 || echo 8192) -print_final_stats=1
done
