#!/usr/bin/env bash
# Looks at what the workspace depends on: licences, sources, versions twice.
#
#     scripts/dependencies.sh
#
# With cargo-deny installed, and its database of advisories in reach, that does it by deny.toml.
# Without, this looks at licences and sources by itself, offline, from the lock file and what cargo has
# fetched; advisories are not looked at then, and it says so. Ends with 1 where something is not as it
# should be.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v cargo-deny >/dev/null; then
    checks=(bans licenses sources)
    if cargo deny fetch >/dev/null 2>&1; then
        checks+=(advisories)
    else
        echo "dependencies: the database of advisories is out of reach; the rest is checked"
    fi
    exec cargo deny --locked check --hide-inclusion-graph "${checks[@]}"
fi
echo "dependencies: no cargo-deny here: licences and sources are checked, advisories are not"

wrong=0
complain() { printf 'dependencies: %s\n' "$*" >&2; wrong=1; }

# The names between the quotes of deny.toml's list.
allowed=$(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml)
[ -n "$allowed" ] || complain "deny.toml: no list of allowed licences"
may() { grep -qxF "$1" <<<"$allowed"; }

# An expression is allowed if all of its ANDed parts are, each of which offers an allowed choice.
allows() {
    local part choice found
    while IFS= read -r part; do
        found=no
        while IFS= read -r choice; do
            if may "$choice"; then found=yes; fi
        done < <(sed 's/ OR /\n/g; s| */ *|\n|g' <<<"$part")
        [ $found = yes ] || return 1
    done < <(tr -d '()' <<<"$1" | sed 's/ AND /\n/g')
}

seen=0
while IFS='|' read -r name licence; do
    seen=$((seen + 1))
    [ "${name%% *}" != cbindgen ] || continue # deny.toml says why
    allows "$licence" || complain "$name: licence \"$licence\" is not among those of deny.toml"
done < <(cargo tree --workspace --all-features -e normal,build,dev --prefix none --locked -f '{p}|{l}' |
    sed '/^$/d; s/ (\*)$//; s/ (proc-macro)//' | sort -u)
[ $seen -gt 20 ] || complain "cargo tree names $seen crates only"

while IFS= read -r source; do
    complain "Cargo.lock: $source is not crates.io"
done < <(grep '^source = ' Cargo.lock | sort -u | grep -v 'registry+https://github.com/rust-lang/crates.io-index' || true)

echo "dependencies: $seen crates; in more than one version:"
cargo tree --workspace -d --depth 0 -e normal,build,dev --locked --prefix none | sort -u | sed '/^$/d; s/^/    /'
exit $wrong
