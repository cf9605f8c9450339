#!/usr/bin/env bash
# Mutants of the core's buddy, pcp, tuning, mobility and watermark: each is one small change of the code that some test
# has to notice. Prints those that none does, and how many there were.
#
#     scripts/mutants.sh                  a tenth of them
#     scripts/mutants.sh 3/10             another tenth: every tenth, from the fourth on
#     scripts/mutants.sh pcp [3/10]       one file alone: all of it, or such a part
#
# Needs cargo-mutants (cargo install --locked cargo-mutants). Works on copies of the last commit, in target/mutants.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-mutants >/dev/null; then
    echo "mutants: cargo-mutants is not there (cargo install --locked cargo-mutants)" >&2
    exit 2
fi
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
export CARGO_TARGET_DIR=$work/target RUST_BACKTRACE=0

shard='' pure=() whole=()
for arg; do
    case $arg in
    tuning | watermark) pure+=("$arg") ;;
    area | buddy | mobility | pcp) whole+=("$arg") ;;
    [0-9]*/[1-9]*) shard=$arg ;;
    *) echo "mutants: '$arg' is neither a file (tuning watermark area buddy mobility pcp) nor a part such as 3/10" >&2; exit 2 ;;
    esac
done
if [ ${#pure[@]} = 0 ] && [ ${#whole[@]} = 0 ]; then
    pure=(tuning watermark) whole=(area buddy mobility pcp)
    shard=${shard:-0/10}
fi

rm -rf "$work/tree" "$work/pure" "$work/found"
mkdir -p "$work/found"
git clone --quiet --shared . "$work/tree"
core=$work/tree/crates/pageyard/src

# mutants OUT ARGS...: what tests leave over is in $work/found/OUT then. Codes 2 and 3: some are left, or never end.
mutants() {
    local out=$work/found/$1 code=0
    shift
    mkdir -p "$out"
    cargo mutants --in-place --profile mutants --build-timeout 600 --output "$out" "$@" || code=$?
    case $code in 0 | 2 | 3) ;; *) exit "$code" ;; esac
}
# Names of mutants as expressions that fit them alone.
exactly() { sed 's/[][\.*^$()+?{}|]/\\&/g; s/.*/--re=^&$/' "$1"; }

part=()
if [ -n "$shard" ]; then part=(--shard "$shard" --sharding round-robin); fi
if [ ${#pure[@]} != 0 ]; then
    # Nothing but arithmetic: a crate of these files and what they name is built in no time.
    mkdir -p "$work/pure/src"
    cp -r "$core"/{tuning,tuning.rs,watermark.rs,policy.rs,units.rs,gfp.rs,sync.rs} "$work/pure/src"
    sed -n '/^pub enum HighReason/,/^}/p' "$core/history.rs" |
        sed '1i #[derive(Clone, Copy, PartialEq, Eq, Debug)]' >"$work/pure/src/history.rs"
    echo '#![allow(dead_code, unexpected_cfgs)]
        pub mod gfp; pub mod history; pub mod policy; pub mod sync; pub mod tuning; pub mod units; pub mod watermark;
        pub use gfp::Gfp;' >"$work/pure/src/lib.rs"
    echo '[package]
        name = "pure"
        edition = "2024"
        [dependencies]
        bitflags = "2"
        [workspace]
        [profile.mutants]
        inherits = "dev"' >"$work/pure/Cargo.toml"
    files=("${pure[@]/#/--file=src/}")
    mutants pure --dir "$work/pure" "${files[@]/%/.rs}" "${part[@]}" --cargo-arg=--lib
fi

if [ ${#whole[@]} != 0 ]; then
    files=("${whole[@]/#/--file=crates/pageyard/src/}")
    of() { mutants "$1" --dir "$work/tree" --package pageyard "${files[@]/%/.rs}" "${@:2}"; }
    tests=(--test-package pageyard-tests --cargo-arg=--test)
    # First what is not changed; cargo-mutants would do it for the package that it changes.
    (cd "$work/tree" && cargo test --quiet --package pageyard-tests --test mutants --profile mutants)
    of few --baseline skip --timeout 60 "${part[@]}" "${tests[@]}" --cargo-arg=mutants
    # Whoever is left meets more and more tests.
    last=few
    for next in lib quick all; do
        mapfile -t left < <(exactly "$work/found/$last/mutants.out/missed.txt")
        if [ ${#left[@]} = 0 ]; then break; fi
        case $next in
        lib) how=(--cargo-arg=--lib) ;;
        quick) how=("${tests[@]}" --cargo-arg=quick) ;;
        # (Without optimisation these two take minutes.)
        all) how=(--cargo-arg=--test --cargo-arg=all -- -- --skip everybody_lying --skip every_rung) ;;
        esac
        of "$next" --baseline skip --timeout 300 "${left[@]}" "${how[@]}"
        last=$next
    done
fi

cd "$work/found"
of_both() { cat "${@/#/pure/mutants.out/}" "${@/#/few/mutants.out/}" 2>/dev/null || true; }
left=$(cat pure/mutants.out/missed.txt "${last:-none}/mutants.out/missed.txt" 2>/dev/null || true)
printf 'mutants: %d, of which %d do not compile; not found: %d\n' \
    "$(of_both caught.txt missed.txt timeout.txt unviable.txt | wc -l)" "$(of_both unviable.txt | wc -l)" \
    "$(grep -c . <<<"$left" || true)"
[ -z "$left" ] || printf '%s\n' "$left"
