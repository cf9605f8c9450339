#!/usr/bin/env bash
# Looks into the machine code of every public function of the core, as the release profile builds it,
# for a call that can only lead to a panic. Prints them and fails if there is one.
#
# crates/pageyard/examples/calls/table.rs has a function for each, and every_call.rs for what makes a yard; one that
# they lack is named, and ends this with 2.
# Needs objdump (binutils) on x86-64 Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
calls=(crates/pageyard/examples/every_call.rs crates/pageyard/examples/calls/{table,packed}.rs)

fail() { printf 'no-panic: %s\n' "$*" >&2; exit 2; }

# TYPE::NAME for methods, MODULE::NAME for other functions, as the sources declare them. (What is `pub` and cannot be
# reached from outside is a lint's business.)
public() {
    find crates/pageyard/src -name '*.rs' ! -name tests.rs ! -path '*/tests/*' -exec awk '
        FNR == 1 { type = ""; tests = 0; file = FILENAME; sub(/.*\//, "", file); sub(/\.rs$/, "", file) }
        /^#\[cfg\(test\)\]/ { tests = 1 }
        tests { next }
        /^ *impl[< ]/ { type = $0; sub(/^ *impl(<([^<>]|<[^<>]*>)*>)? /, "", type); sub(/[< ].*/, "", type) }
        /^ *pub (const )?(unsafe )?fn / {
            name = $0; sub(/^.*fn /, "", name); sub(/[(<].*/, "", name)
            print ($0 ~ /^pub/ ? file : type) "::" name
        }' {} + | sort -u
}
missing=()
count=0
while IFS= read -r function; do
    count=$((count + 1))
    type=${function%%::*} name=${function##*::}
    case $type in
    Yard) called="(\\by\\.|\\bYard::)$name\\(" ;;
    [A-Z]*) called="\\b$type(::<[^>]*>)?::$name(::<[^>]*>)?\\(" ;;
    *) called="\\b[a-z_]+::$name\\(" ;;
    esac
    grep -qE "$called" "${calls[@]}" || missing+=("$function")
done < <(public)
[ "$count" -ge 230 ] || fail "only $count public functions are seen; the script no longer fits the sources"
[ ${#missing[@]} = 0 ] || fail "${calls[*]} lack ${missing[*]}"

target=${CARGO_TARGET_DIR:-target}/no-panic
# Without position independence a call names what it calls.
CARGO_TARGET_DIR=$target RUSTFLAGS="-C relocation-model=static" \
    cargo build --quiet --release -p pageyard --example every_call
# Names as the compiler mangles them: in the old way and in the new one, crates, modules and functions stand there
# as words, and not every binutils reads the new way.
code=$(objdump -d --no-show-raw-insn "$target/release/examples/every_call")
declared=$(grep -ohE '^    call_[a-z_]+\(|^fn call_[a-z_]+' "${calls[@]}" | grep -oE 'call_[a-z_]+' | sort -u)
seen=$(grep -oE '^[0-9a-f]+ <[^>]*>:' <<<"$code" | grep -oE '[0-9]call_[a-z_]+' | sed 's/^.//; s/17h.*//' | sort -u)
# (A function that compiles to what another one does is merged with it.)
[ $(($(wc -l <<<"$seen") * 10)) -ge $(($(wc -l <<<"$declared") * 9)) ] ||
    fail "not in the machine code: $(comm -23 <(echo "$declared") <(echo "$seen") | tr '\n' ' ')"

# (panic_in_cleanup ends a program that panics while a panic, of an embedder's hook, unwinds through
# a guard. Nothing in the core begins one.)
found=$(awk '/^[0-9a-f]+ </ { name = $2; next }
    !/call|jmp|\tj[a-z]+ / || /panic_in_cleanup/ { next }
    /panicking|unwrap_failed|expect_failed|capacity_overflow/ || (/_fail/ && !/8pageyard/) {
        if (name ~ /8pageyard|call_/) print name " -> " $NF
    }' <<<"$code" | sort | uniq -c)
if [ -n "$found" ]; then
    printf 'no-panic: these can panic:\n%s\n' "$found" | { c++filt 2>/dev/null || cat; } >&2
    exit 1
fi
echo "no-panic: $count public functions, none of which can panic"
