#!/usr/bin/env bash
# Looks into the machine code of every public function of the core and of pageyard-report, as the release profile
# builds it, for a call that can only lead to a panic. Prints them and fails if there is one.
#
# verify/calls has a function for each of them; one that it lacks is named, and ends this with 2.
# Needs objdump (binutils) on x86-64 Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { printf 'no-panic: %s\n' "$*" >&2; exit 2; }

target=${CARGO_TARGET_DIR:-target}/no-panic

# TYPE::NAME for methods, MODULE::NAME for other functions, as the sources of a crate declare them. (What is `pub` and
# cannot be reached from outside is a lint's business. The files `lines.rs` are compiled with the feature of that name
# only, for simulators; they need std.)
public() {
    find "crates/$1/src" -name '*.rs' ! -name tests.rs ! -name lines.rs ! -path '*/tests/*' -exec awk '
        FNR == 1 { type = ""; tests = 0; file = FILENAME; sub(/.*\//, "", file); sub(/\.rs$/, "", file) }
        /^#\[cfg\(test\)\]/ { tests = 1 }
        tests { next }
        /^ *impl[< ]/ { type = $0; sub(/^ *impl(<([^<>]|<[^<>]*>)*>)? /, "", type); sub(/[< ].*/, "", type) }
        /^ *pub (const )?(unsafe )?fn / {
            name = $0; sub(/^.*fn /, "", name); sub(/[(<].*/, "", name)
            print ($0 ~ /^pub/ ? file : type) "::" name
        }' {} + | sort -u
}

# check CRATE FOLDER PROGRAM LEAST: a crate, the program in verify/calls/FOLDER that calls every function, and how many
# there are at least.
check() {
    local calls=("verify/calls/$2"/*.rs)
    local missing=() count=0 function type name called code declared seen found
    while IFS= read -r function; do
        count=$((count + 1))
        type=${function%%::*} name=${function##*::}
        case $type in
        Yard) called="(\\by\\.|\\bYard::)$name\\(" ;;
        [A-Z]*) called="\\b$type(::<[^>]*>)?::$name(::<[^>]*>)?\\(" ;;
        *) called="\\b[a-z_]+::$name\\(" ;;
        esac
        grep -qE "$called" "${calls[@]}" || missing+=("$function")
    done < <(public "$1")
    [ "$count" -ge "$4" ] || fail "only $count public functions of $1 are seen; the script no longer fits the sources"
    [ ${#missing[@]} = 0 ] || fail "${calls[*]} lack ${missing[*]}"

    # Names as the compiler mangles them: in the old way and in the new one, crates, modules and functions stand there
    # as words, and not every binutils reads the new way.
    code=$(objdump -d --no-show-raw-insn "$target/release/$3")
    declared=$(grep -ohE '^    call_[a-z_]+\(|^fn call_[a-z_]+' "${calls[@]}" | grep -oE 'call_[a-z_]+' | sort -u)
    seen=$(grep -oE '^[0-9a-f]+ <[^>]*>:' <<<"$code" | grep -oE '[0-9]call_[a-z_]+' | sed 's/^.//; s/17h.*//' | sort -u)
    # (A function that compiles to what another one does is merged with it.)
    [ $(($(wc -l <<<"$seen") * 10)) -ge $(($(wc -l <<<"$declared") * 9)) ] ||
        fail "not in the machine code: $(comm -23 <(echo "$declared") <(echo "$seen") | tr '\n' ' ')"

    # (panic_in_cleanup ends a program that panics while a panic, of an embedder's hook, unwinds through
    # a guard. Nothing in these crates begins one.)
    found=$(awk '/^[0-9a-f]+ </ { name = $2; next }
        !/call|jmp|\tj[a-z]+ / || /panic_in_cleanup/ { next }
        /panicking|unwrap_failed|expect_failed|capacity_overflow/ || (/_fail/ && !/[0-9]pageyard/) {
            if (name ~ /[0-9]pageyard|call_/) print name " -> " $NF
        }' <<<"$code" | sort | uniq -c)
    if [ -n "$found" ]; then
        printf 'no-panic: these can panic:\n%s\n' "$found" | { c++filt 2>/dev/null || cat; } >&2
        exit 1
    fi
    echo "no-panic: $1: $count public functions, none of which can panic"
}

# Without position independence a call names what it calls.
CARGO_TARGET_DIR=$target RUSTFLAGS="-C relocation-model=static" cargo build --quiet --release -p pageyard-calls
check pageyard core every_call 230
check pageyard-report report every_report 35
