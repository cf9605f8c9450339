#!/usr/bin/env bash
# SQLite's own speed test, as it is, with SQLite's page cache and with a page cache on a yard.
#
#     scripts/sqlite-speedtest.sh [--jemalloc] [--rounds N] [--size N] [--json] [-- OPTION-OF-SPEEDTEST1...]
#
# --jemalloc   instead: on jemalloc, with its own extents and with extents from a yard
# --rounds N   how often each is run, in turn; 5 if not given
# --size N     speedtest1's relative size; 100 if not given
# --json       the figures as JSON, on standard output
#
# The library and its command-line program come from the system's packages (libsqlite3-dev), the test
# from the source package of the same version, by apt-get. The test prints a hash over all results of
# its queries (--verify); the two must print the same, or this fails. Databases are on /dev/shm, so
# that no disk is measured. Exits with 75 where the source cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'sqlite-speedtest: %s\n' "$*" >&2; exit "${code:-2}"; }
rounds=5 size=100 json="" subject=pcache
while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --size)
        [ $# -gt 1 ] || fail "$1 wants a number"
        [[ $2 =~ ^[1-9][0-9]*$ ]] || fail "$1: a number above 0, not $2"
        if [ "$1" = --rounds ]; then rounds=$2; else size=$2; fi
        shift
        ;;
    --jemalloc) subject=jemalloc ;;
    --json) json=1 ;;
    --) shift; break ;;
    -h | --help) sed -n '2,14s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
    esac
    shift
done
[ -e /usr/include/sqlite3.h ] || fail "sqlite3.h is missing: install libsqlite3-dev"

work=${CARGO_TARGET_DIR:-target}/sqlite-speedtest
mkdir -p "$work"
work=$(cd "$work" && pwd)
version=$(sed -n 's/^#define SQLITE_VERSION  *"\(.*\)"/\1/p' /usr/include/sqlite3.h)
if [ ! -e "$work/speedtest1-$version.c" ]; then
    apt="$work/apt"
    mkdir -p "$apt/lists/partial"
    # Where the system's packages come from, their sources come from too.
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    case $(. /etc/os-release && echo "$ID") in
    ubuntu) echo "deb-src http://archive.ubuntu.com/ubuntu $release main" ;;
    *) echo "deb-src http://deb.debian.org/debian $release main" ;;
    esac >"$apt/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::lists=$apt/lists")
    apt-get "${options[@]}" update >&2 || code=75 fail "apt-get finds no source packages"
    (cd "$apt" && apt-get "${options[@]}" source --download-only sqlite3 >&2) ||
        code=75 fail "apt-get does not get the source of sqlite3"
    # One file of the test directory; the package's other parts are not used.
    tar -xOf "$apt"/sqlite3_"$version".orig.tar.xz --wildcards '*/test/speedtest1.c' >"$apt/speedtest1.c" ||
        code=75 fail "the source package is not that of version $version"
    mv "$apt/speedtest1.c" "$work/speedtest1-$version.c"
fi

CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} scripts/install-capi.sh "$work/prefix" >&2
cc -O2 -w -o "$work/speedtest1" "$work/speedtest1-$version.c" -lsqlite3
library() { # SOURCE NAME LIBRARY
    cc -O2 -shared -fPIC -o "$work/$2" "crates/pageyard-capi/examples/$1" \
        -I"$work/prefix/include" -L"$work/prefix/lib" -lpageyard "$3" -Wl,-rpath,"$work/prefix/lib"
}
if [ $subject = pcache ]; then
    library sqlite_pcache.c pcache.so -lsqlite3
    before="" with=$work/pcache.so
    names="its own page cache|a page cache on a yard"
    proof='^pageyard: [1-9][0-9]* blocks handed out, 0 still in use'
else
    library jemalloc_extents.c extents.so -ljemalloc
    before=libjemalloc.so.2 with=libjemalloc.so.2:$work/extents.so
    names="jemalloc's own extents|extents from a yard"
    # (7 MiB and more are jemalloc's notes about them.)
    proof='^pageyard: [1-9][0-9]* extents of [1-9][0-9]+ MiB, 0 asked of jemalloc'
    export MALLOC_CONF=oversize_threshold:0
fi

place=/dev/shm
[ -w $place ] || place=$work
database=$place/pageyard-speedtest-$$
trap 'rm -f "$database"*' EXIT
run() { # WHICH: seconds and hash
    local preload=$before out
    [ "$1" = own ] || preload=$with
    shift
    out=$(LD_PRELOAD=$preload PAGEYARD_SQLITE_STATS=1 PAGEYARD_EXTENTS_STATS=1 "$work/speedtest1" --verify --size "$size" \
        "$@" "$database" 2>"$work/stderr") || { cat "$work/stderr" >&2; fail "speedtest1 failed"; }
    rm -f "$database"*
    if [ "$preload" = "$with" ] && ! grep -qE "$proof" "$work/stderr"; then
        fail "the pages were not the yard's: $(cat "$work/stderr")"
    fi
    awk '/ TOTAL\./ { t = $NF } /^Verification Hash:/ { h = $3 "-" $4 } END { sub("s", "", t); print t, h }' <<<"$out"
}

: >"$work/times"
hashes=""
for ((round = 1; round <= rounds; round++)); do
    [ ! -t 2 ] || printf '\rround %d of %d ' "$round" "$rounds" >&2
    for which in own yard; do
        answer=$(run $which "$@")
        echo "$which ${answer% *}" >>"$work/times"
        hashes+="${answer#* }"$'\n'
    done
done
[ ! -t 2 ] || printf '\r' >&2
distinct=$(sort -u <<<"${hashes%$'\n'}" | wc -l)
[ "$distinct" = 1 ] || fail "the results differ: $(sort -u <<<"$hashes")"

sort -k1,1 -k2,2n "$work/times" | awk -v names="$names" -v json="$json" -v version="$version" -v size="$size" -v hash="${hashes%%$'\n'*}" '
    { n[$1]++; t[$1, n[$1]] = $2 }
    function median(w) { m = n[w]; return (t[w, int((m + 1) / 2)] + t[w, int(m / 2) + 1]) / 2 }
    END {
        o = median("own"); y = median("yard"); split(names, name, "|")
        format = "%-28s median %.3f s, from %.3f to %.3f\n"
        if (json) {
            printf "{\"compared\": [\"%s\", \"%s\"], \"sqlite\": \"%s\", \"size\": %d, \"rounds\": %d, \"hash\": \"%s\", ", name[1], name[2], version, size, n["own"], hash
            printf "\"own_seconds\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}, ", o, t["own", 1], t["own", n["own"]]
            printf "\"yard_seconds\": {\"median\": %.3f, \"min\": %.3f, \"max\": %.3f}, \"ratio\": %.3f}\n", y, t["yard", 1], t["yard", n["yard"]], y / o
        } else {
            printf "SQLite %s, speedtest1 --size %d, %d rounds in turn; all results the same\n", version, size, n["own"]
            printf format, name[1], o, t["own", 1], t["own", n["own"]]
            printf format, name[2], y, t["yard", 1], t["yard", n["yard"]]
            printf "ratio of the medians %.3f\n", y / o
        }
    }'
