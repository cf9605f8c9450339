#!/usr/bin/env bash
# Instructions per operation of pageyard and its peers, counted exactly by callgrind.
#
#   scripts/instructions.sh                      a table of all contestants and patterns
#   scripts/instructions.sh NAME...              of these contestants only
#   scripts/instructions.sh --where NAME PATTERN where the instructions of one cell go, by function
#   scripts/instructions.sh --lines NAME PATTERN the same by source line
#   scripts/instructions.sh --names              the names of contestants and patterns
#
# A count is that of the function that holds the loop (3 instructions a turn are the loop's own):
# of four times the pattern less that of two times, so that what happens once (start-up, first
# growth of the lists) is not in it. A pair is one operation. `pageyard-opaque` is pageyard with an
# order and flags that the compiler does not know; everywhere else the order is a constant, as it
# is in most callers. Needs valgrind. The numbers are the same on every run of the same build.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

command -v valgrind >/dev/null || { echo "valgrind is not installed" >&2; exit 1; }
# Line numbers for --where and --lines; the code is the same without them.
export CARGO_PROFILE_RELEASE_DEBUG=1
cargo build --quiet --release -p pageyard-bench --bin instructions
bin=${CARGO_TARGET_DIR:-target}/release/instructions
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# count NAME PATTERN TIMES: instructions, operations
count() {
    valgrind --tool=callgrind --toggle-collect='*measured_*' --callgrind-out-file="$tmp/out" \
        "$bin" "$1" "$2" "$3" >"$tmp/ops" 2>"$tmp/log" || { grep -v '^==' "$tmp/log" >&2; return 1; }
    echo "$(awk '/Collected :/ { print $4 }' "$tmp/log") $(cat "$tmp/ops")"
}

names() { "$bin" | sed -n "s/^$1 //p"; }

case "${1:-}" in
--names)
    "$bin"
    exit
    ;;
--where | --lines)
    count "$2" "$3" 4 >/dev/null
    if [ "$1" = --where ]; then
        callgrind_annotate --auto=no --threshold=99 "$tmp/out"
    else
        callgrind_annotate --auto=yes --context=0 --threshold=99 "$tmp/out"
    fi
    exit
    ;;
-*)
    sed -n '2,/^set/{/^#/p}' "$0"
    exit
    ;;
esac

if [ $# -gt 0 ]; then contestants=("$@"); else mapfile -t contestants < <(names contestant); fi
mapfile -t patterns < <(names pattern)
printf '%-24s' ''
printf '%15s' "${patterns[@]}"
echo
for contestant in "${contestants[@]}"; do
    printf '%-24s' "$contestant"
    for pattern in "${patterns[@]}"; do
        two=$(count "$contestant" "$pattern" 2)
        four=$(count "$contestant" "$pattern" 4)
        awk -v two="${two% *}" -v four="${four% *}" -v ops="${four#* }" \
            'BEGIN { printf "%15.1f", (four - two) / 2 / ops }'
    done
    echo
done
