#!/usr/bin/env bash
# What is outside the workspace (Cargo.toml says why): compiles the side bench, the fuzz targets, the mutants' runner and
# the example kernel, runs loom's models.
#
#     scripts/outside.sh [lint|loom]      both if none is named
#
# On stable, and without the C and C++ of other allocators and of libFuzzer, which nothing here links.
set -euo pipefail
cd "$(dirname "$0")/.."
part=${1:-both}
case $part in
lint | loom | both) ;;
*) echo "outside: $part: no such part (lint, loom)" >&2; exit 2 ;;
esac
base=${CARGO_TARGET_DIR:-$PWD/target}

if [ "$part" != lint ]; then
    # A backtrace is larger than the stacks of loom's coroutines: a model that fails would hang.
    export RUST_BACKTRACE=0
    # Not --all-targets: the unit tests of the files that the library shares with the host runtime run there.
    cargo clippy --manifest-path verify/loom/Cargo.toml --target-dir "$base/loom" --locked --lib --tests -- -D warnings
    cargo test --manifest-path verify/loom/Cargo.toml --target-dir "$base/loom" --locked
fi
[ "$part" != loom ] || exit 0

# As the workspace is compiled, whose dependencies are there already: in the same versions (a lock file is made anew by
# copying the workspace's; cargo leaves out what is not needed) and with the same profile.
mkdir -p "$base"
profile=$base/outside-profile.toml
sed -n '/^\[profile\.dev/,/^$/p' Cargo.toml >"$profile"
lint() { cargo clippy --target-dir "$base" --config "$profile" "$@" -- -D warnings; }
host=$(rustc -vV | sed -n 's/^host: //p')
# In place of build scripts that compile jemalloc and mimalloc; snmalloc's calls CMake.
CMAKE=true lint --manifest-path bench/host/Cargo.toml --locked --all-targets \
    --config "target.$host.jemalloc.rustc-link-lib=['c']" --config "target.$host.mimalloc.rustc-link-lib=['c']"
CUSTOM_LIBFUZZER_PATH=/nowhere/libfuzzer.a \
    lint --manifest-path fuzz/Cargo.toml --locked --features lab --bins --examples
lint --manifest-path verify/mutants/Cargo.toml --locked --all-targets
cargo test --target-dir "$base" --config "$profile" --manifest-path verify/mutants/Cargo.toml --locked

# The example kernel, for targets without an operating system (rustup target add): its flags are in its folder.
# `.ci/run` says where these cannot be had.
[ "${PAGEYARD_KERNELS:-yes}" = no ] || (
    kernels=$(realpath -m "$base/kernels")
    cd examples/kernel-rust
    cargo fmt --check
    for kernel in "x86_64-unknown-none default" "aarch64-unknown-none default" "riscv64imac-unknown-none-elf default" \
        "x86_64-unknown-none pinned" "x86_64-unknown-none broken-lock" "x86_64-unknown-none broken-try-lock"; do
        read -r triple feature <<<"$kernel"
        case $triple in riscv*) [ "${PAGEYARD_RISCV:-yes}" = yes ] || continue ;; esac
        cargo clippy --locked --target-dir "$kernels" --target "$triple" --features "$feature" -- -D warnings
    done
)
