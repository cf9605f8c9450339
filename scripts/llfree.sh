#!/usr/bin/env bash
# Times pageyard beside LLFree and the peers of bench/core, in one run.
#
#     scripts/llfree.sh CHECKOUT [--quick] [--rounds N] [--seed N] [--only PATTERN] [--json FILE]
#
# CHECKOUT   a checkout of https://github.com/luhsra/llfree-rs, whose crate is its folder `core`.
#            Nothing of it is copied into this repository. It wants Rust 1.95 or newer.
#
# The other arguments are those of `cargo bench -p pageyard-bench`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

fail() { printf 'llfree: %s\n' "$*" >&2; exit 2; }
case ${1:-} in
-h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
"") fail "no CHECKOUT; see --help" ;;
esac
[ -f "$1/core/Cargo.toml" ] && grep -q '^name = "llfree"' "$1/core/Cargo.toml" ||
    fail "$1: no crate llfree in its folder core; git clone https://github.com/luhsra/llfree-rs"
checkout=$(cd "$1" && pwd)
shift
case $checkout$root in *[\"\\]*) fail "the paths hold no \" and no \\" ;; esac

base=${CARGO_TARGET_DIR:-$root/target}
mkdir -p "$base/llfree"
cat >"$base/llfree/Cargo.toml" <<TOML
[package]
name = "pageyard-bench-llfree"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[[bin]]
name = "compare-llfree"
path = "$root/bench/llfree/main.rs"

[dependencies]
llfree = { path = "$checkout/core", features = ["std"] }
pageyard-bench = { path = "$root/bench/core" }

[profile.release]
codegen-units = 1
TOML
cargo build --quiet --release --manifest-path "$base/llfree/Cargo.toml" --target-dir "$base/llfree/target"
exec "$base/llfree/target/release/compare-llfree" "$@"
