#!/usr/bin/env bash
# Runs the tests on aarch64, in an emulator: of the core, of traces, of the C interface, and those of the host that the
# emulator can run.
#
#     scripts/aarch64.sh [--list] [core|trace|capi-core|capi|host]...
#
# All five if none is named. Needs, on a Debian machine,
#
#     rustup target add aarch64-unknown-linux-gnu
#     apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static
#
# and installs nothing itself: what is missing is named, and ends it with 2. What is skipped is listed at the end of
# each part. The kernel need not know programs for aarch64 (binfmt_misc): cargo runs the tests in the emulator
# (CARGO_TARGET_..._RUNNER), and the tests the programs they build (PAGEYARD_RUNNER, verify/unmet).
#
# The emulator translates instructions one thread at a time and does not reorder memory accesses beyond what this
# machine does: it finds wrong code, layouts and system calls, not missing barriers. The models are for those
# (scripts/interleavings.sh).
#
# What it cannot run, and why, stands at `skips` below.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0; }
cd "$(dirname "$0")/.."

fail() { printf 'aarch64: %s\n' "$*" >&2; exit 2; }
triple=aarch64-unknown-linux-gnu
list=false
parts=()
for what in "$@"; do
    case $what in
    --list) list=true ;;
    core | trace | capi-core | capi | host) parts+=("$what") ;;
    *) fail "$what: give core, trace, capi-core, capi or host" ;;
    esac
done
[ ${#parts[@]} -gt 0 ] || parts=(core trace capi-core capi host)

# skips PART: what the emulator cannot run, each a part of a test's path.
skips() {
    case $1 in
    host) sed 's/ *#.*//; /^$/d' <<'LIST' ;;
memory::tests::memory_is_resident_after_population  # MADV_POPULATE_WRITE is ignored
memory::tests::discarded_memory_is_zero       # MADV_DONTNEED and MADV_REMOVE may be, so nothing is given back
LIST
    esac
}

if $list; then
    for part in "${parts[@]}"; do
        while read -r test; do printf '%s: %s\n' "$part" "$test"; done < <(skips "$part")
    done
    exit
fi

missing=()
[ -d "$(rustc --print target-libdir --target $triple 2>/dev/null)" ] ||
    missing+=("the standard library for $triple: rustup target add $triple")
gcc=aarch64-linux-gnu-gcc
command -v $gcc >/dev/null || missing+=("$gcc: apt-get install gcc-aarch64-linux-gnu")
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
    missing+=("qemu-aarch64: apt-get install qemu-user-static")
case " ${parts[*]} " in *" capi "*)
    command -v aarch64-linux-gnu-g++ >/dev/null ||
        missing+=("aarch64-linux-gnu-g++: apt-get install g++-aarch64-linux-gnu") ;;
esac
if [ ${#missing[@]} -gt 0 ]; then
    printf 'aarch64: missing: %s\n' "${missing[@]}" >&2
    exit 2
fi

# The cross compiler's C library, which the emulator looks for there before it looks in /.
libraries=/usr/aarch64-linux-gnu
export PAGEYARD_RUNNER="$qemu -L $libraries"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$PAGEYARD_RUNNER

# run PART CARGO-ARGUMENT...: the tests of a part. The list of what they skipped is of the same run of cargo.
run() {
    local part=$1 skip=()
    shift
    while read -r test; do skip+=(--skip "$test"); done < <(skips "$part")
    echo "== $part"
    cargo test --target $triple -p pageyard-unmet --test skipped "$@" -- "${skip[@]}"
}

for part in "${parts[@]}"; do
    case $part in
    core) run core -p pageyard --lib --test all ;;
    trace) run trace -p pageyard-trace --lib --test all ;;
    capi-core) run capi-core -p pageyard-capi-core --lib ;;
    capi) run capi -p pageyard-capi --lib --test c ;;
    # Of the host, its unit tests: the programs in tests/ have not been tried. One maps more than there is, and in the
    # emulator takes it.
    host) CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="prlimit --as=4294967296 $PAGEYARD_RUNNER" \
        run host -p pageyard-host --lib ;;
    esac
done
echo "aarch64: ${parts[*]}: passed"
