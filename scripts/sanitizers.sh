#!/usr/bin/env bash
# Runs the host's and the C interface's tests under LLVM's sanitizers, and the C programs under valgrind.
#
#     scripts/sanitizers.sh [address|thread|valgrind]...
#
# All three if none is named. The sanitizers need a nightly toolchain (rustup toolchain install nightly),
# thread also its sources (rustup component add rust-src --toolchain nightly): the standard library is
# built with it too. What is missing is named, and ends it with 2. Each has a target directory of its own.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

fail() { printf 'sanitizers: %s\n' "$*" >&2; exit 2; }
[ $# -gt 0 ] || set -- address thread valgrind
for what in "$@"; do
    case $what in
    address | thread | valgrind) ;;
    *) fail "$what: give address, thread or valgrind" ;;
    esac
done

target=$(rustc -vV | sed -n 's/^host: //p')
base=${CARGO_TARGET_DIR:-$PWD/target}

nightly() {
    cargo +nightly --version >/dev/null 2>&1 || fail "no nightly toolchain: rustup toolchain install nightly"
}

# Tests with threads of their own, locks, mappings, forks: where unsafe code is. `global` brings an allocator of its
# own, and `refusals` a filter that the sanitizer's own calls would meet. Of the others these have not been tried:
# `hostile` limits the address space, of which sanitizers reserve more, and `guest_memory` runs an example that cargo
# may build without them.
tests=(--lib --test all --test fork -- --skip hostile:: --skip guest_memory:: --skip flags:: --skip small::
    --skip forked_children_of_private_memory --skip forked_children_of_shared_memory --skip a_child_that_waits_or_meddles)

# found WORDS COMMAND...: a mistake that is made on purpose, and must be seen.
found() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1) || ! grep -qF "$words" <<<"$said"; then
        printf '%s\nsanitizers: %s: a mistake on purpose was not found\n' "$said" "$*" >&2
        exit 1
    fi
    echo "found, as planted: $words"
}

for what in "$@"; do
    echo "== $what"
    case $what in
    address)
        nightly
        # Yards live as long as the process where shrinkers keep their blocks.
        ASAN_OPTIONS=detect_leaks=0 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$base/address \
            cargo +nightly test -p pageyard-host --target "$target" "${tests[@]}"
        RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=$base/address \
            found heap-use-after-free \
            cargo +nightly run -q -p pageyard-host --target "$target" --example mistakes freed
        ;;
    thread)
        nightly
        [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] ||
            fail "no sources: rustup component add rust-src --toolchain nightly"
        # Tests fork, and their children start threads.
        TSAN_OPTIONS=die_after_fork=0 RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$base/thread \
            cargo +nightly test -Zbuild-std -p pageyard-host --target "$target" "${tests[@]}"
        RUSTFLAGS=-Zsanitizer=thread CARGO_TARGET_DIR=$base/thread \
            found 'data race' \
            cargo +nightly run -q -Zbuild-std -p pageyard-host --target "$target" --example mistakes raced
        ;;
    valgrind)
        command -v valgrind >/dev/null || fail "no valgrind: apt-get install valgrind"
        cargo test -p pageyard-capi --test c
        programs=$base/tmp
        # Of leaks, what nothing points to any more: std keeps the main thread's name by its middle.
        export LD_LIBRARY_PATH=$programs/capi/lib
        check=(valgrind --quiet --error-exitcode=1 --leak-check=full
            --show-leak-kinds=definite --errors-for-leak-kinds=definite)
        for program in host-{c,cpp} core-{c,cpp,shared} pageyard{,_core}.h-static pool-{c,cpp} freestanding upkeep races misuse; do
            [ -x "$programs/$program" ] || fail "$programs/$program was not built"
            "${check[@]}" "$programs/$program"
        done
        cc -I "$programs/capi/include" crates/pageyard-capi/tests/c/mistakes.c -L "$programs/capi/lib" \
            -lpageyard -o "$programs/mistakes"
        found 'Invalid write' "${check[@]}" "$programs/mistakes"
        unset LD_LIBRARY_PATH
        ;;
    esac
done
