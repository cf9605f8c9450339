#!/usr/bin/env bash
# Looks into the machine code of every public method of the core, as the release profile builds it,
# for a call that can only lead to a panic. Prints them and fails if there is one.
# Needs objdump (binutils) on x86-64 Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}/no-panic
# Without position independence a call names what it calls.
CARGO_TARGET_DIR=$target RUSTFLAGS="-C relocation-model=static" \
    cargo build --quiet --release -p pageyard --example every_call
program=$target/release/examples/every_call
code=$(objdump -dC --no-show-raw-insn "$program")
calls=$(grep -cE '^[0-9a-f]+ <every_call::call_' <<<"$code" || true)
if [ "$calls" -lt 45 ]; then
    echo "no-panic: only $calls of the public methods are to be seen; the script no longer fits" >&2
    exit 2
fi
# (panic_in_cleanup ends a program that panics while a panic, of an embedder's hook, unwinds through
# a guard. Nothing in the core begins one.)
found=$(awk '/^[0-9a-f]+ </ { name = $0 }
    /panic_in_cleanup/ { next }
    /panicking|unwrap_failed|expect_failed|slice_.*_fail|capacity_overflow/ {
        if (name ~ /pageyard::|call_/ && $0 ~ /call|jmp/) print name " -> " $NF
    }' <<<"$code" | sort | uniq -c)
if [ -n "$found" ]; then
    printf 'no-panic: these can panic:\n%s\n' "$found" >&2
    exit 1
fi
echo "no-panic: $calls functions of the public interface, none of which can panic"
