#!/usr/bin/env bash
# Runs what is small enough under Miri: the core's unit tests, maps carved from one region, the host's magazines and other small parts, a yard with threads, and the
# C interface of the core. Miri sees undefined behaviour, data races and leaks, and lets loads see old values.
#
#     scripts/miri.sh [SEEDS [PART...]]
#
# Parts: core, carve, capi, host, yard; all of them if none is named. With SEEDS (64 if not given) the tests with
# threads (some of host, and yard) run that many times, each with other interleavings and other values of weak memory.
# `short` instead: one seed of the smallest, as CI does where Miri can be installed.
# Needs a nightly toolchain with Miri (rustup component add miri rust-src --toolchain nightly); without, ends with 75.
#
# Not seen: the statistics page, whose tests map files. crates/pageyard-host/src/miri.rs says what of the system is replaced. Files that are mapped, forks, the
# worker's waiting and membarrier itself do not run under it.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."
seeds=${1:-64}
if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "miri: not here: rustup component add miri rust-src --toolchain nightly" >&2
    exit 75
fi
target=${CARGO_TARGET_DIR:-$PWD/target}/miri
# Isolation off: the topology is read from /sys.
flags=-Zmiri-disable-isolation
export PROPTEST_CASES=3

step() { printf '\n== miri: %s\n' "$*"; }
run() { MIRIFLAGS="$flags $more" cargo +nightly miri test --target-dir "$target" "$@"; }
more=
# Unit tests that need no file, fork or wait of the system's: with threads, and with one thread, which one seed covers.
threads=(lock:: magazine::tests::a_limit_change_during_a_fill_keeps_blocks_intact)
single=(magazine:: known_zero:: wake_flag:: callback:: registry:: shrink:: relocate:: limits::)

if [ "$seeds" = short ]; then
    step "the host's magazines and known zeros"
    run -p pageyard-host --lib -- magazine:: known_zero::
    step "maps in one region"
    run -p pageyard-carve --test carve -- --skip one_byte_short --skip previous_contents
    exit
fi
parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(core carve capi host yard)
for part in "${parts[@]}"; do
    more=
    case $part in
    core)
        step "the core's unit tests"
        run -p pageyard --lib
        ;;
    carve)
        step "maps in one region"
        run -p pageyard-carve --test carve
        ;;
    capi)
        step "the core's C interface"
        run -p pageyard-capi-core
        ;;
    host)
        step "the host's protocols, $seeds seeds"
        more="-Zmiri-many-seeds=0..$seeds"
        # `lock::` is in `clock::` too, whose test waits for the thread's CPU time. Miri has no such clock.
        run -p pageyard-host --lib -- "${threads[@]}" --skip clock::
        more=
        run -p pageyard-host --lib -- "${single[@]}"
        ;;
    yard)
        step "a yard with threads, $seeds seeds"
        more="-Zmiri-many-seeds=0..$seeds"
        run -p pageyard-host --test all -- small::
        ;;
    *)
        echo "miri: $part: no such part (core, carve, capi, host, yard)" >&2
        exit 2
        ;;
    esac
done
