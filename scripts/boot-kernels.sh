#!/usr/bin/env bash
# Builds the example kernels and boots them in QEMU, each with 2 GiB or more and with 40 MiB of memory. docs/kernels.md.
#
#     scripts/boot-kernels.sh [--list | --list-ci | NAME...]
#
# Boots all of --list if none is named. .ci/run boots those of --list-ci, in which each language, processor, engine, way
# to own a CPU and kind of broken lock is there once. Prints a line per boot: what the kernel found, requests of all CPUs,
# instructions of an allocation and a free of one page (`-icount shift=0`: QEMU's clock counts instructions), bytes of
# stack. Kernels whose locks are broken on purpose must fail. Exits with 1 if one does not do as it must, after its
# serial output.
#
# Needs, on a Debian machine,
#
#     apt-get install qemu-system-x86 qemu-system-arm qemu-system-misc opensbi build-essential
#     rustup target add x86_64-unknown-none aarch64-unknown-none riscv64imac-unknown-none-elf
#
# and installs nothing itself: what is missing is named, and ends it with 2.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'boot-kernels: %s\n' "$*" >&2; exit 2; }

# NAME KIND IMAGE FEATURES-OR-DEFINES MEMORY QEMU-OPTION...   KIND: pass; count (pass, instructions counted); broken
# (must report a failure); stuck (must report a lock that is never released).
boots() {
    sed 's/ *#.*//; /^$/d' <<'LIST'
rust-locked         pass    x86_64  -               2G
rust-locked-40M     pass    x86_64  -               40M
rust-locked-icount  count   x86_64  -               2G   -icount shift=0
rust-pinned         pass    x86_64  pinned          2G
rust-pinned-40M     pass    x86_64  pinned          40M
rust-pinned-icount  count   x86_64  pinned          2G   -icount shift=0
rust-no-lock        broken  x86_64  broken-lock     2G   -icount shift=0
rust-open-lock      stuck   x86_64  broken-try-lock 2G
arm-locked          pass    aarch64 -               4G
arm-locked-40M      pass    aarch64 -               40M
arm-locked-icount   count   aarch64 -               2G   -icount shift=0
arm-pinned          pass    aarch64 pinned          4G
arm-pinned-40M      pass    aarch64 pinned          40M
arm-pinned-icount   count   aarch64 pinned          2G   -icount shift=0
arm-no-lock         broken  aarch64 broken-lock     2G   -icount shift=0
arm-open-lock       stuck   aarch64 broken-try-lock 2G
riscv-locked        pass    riscv64 -               4G
riscv-locked-40M    pass    riscv64 -               40M
riscv-locked-icount count   riscv64 -               2G   -icount shift=0
riscv-pinned        pass    riscv64 pinned          4G
riscv-pinned-icount count   riscv64 pinned          2G   -icount shift=0
riscv-no-lock       broken  riscv64 broken-lock     2G   -icount shift=0
riscv-open-lock     stuck   riscv64 broken-try-lock 2G
c                   pass    c       -               2G
c-40M               pass    c       -               40M
c-icount            count   c       -               2G   -icount shift=0
c-packed            pass    c       PACKED          2G
c-packed-40M        pass    c       PACKED          40M
c-packed-icount     count   c       PACKED          2G   -icount shift=0
c-own-lock          pass    c       OWN_LOCK        2G
c-own-lock-icount   count   c       OWN_LOCK        2G   -icount shift=0
c-no-lock           broken  c       BROKEN_LOCK     2G   -icount shift=0
c-open-lock         stuck   c       BROKEN_TRY_LOCK 2G
LIST
}

names=()
for what in "$@"; do
    case $what in
    --list) boots | awk '{print $1}'; exit ;;
    --list-ci)
        printf '%s\n' rust-locked-icount rust-no-lock arm-pinned riscv-locked riscv-open-lock c-packed-40M \
            c-own-lock-icount
        exit
        ;;
    *) names+=("$what") ;;
    esac
done
for name in "${names[@]}"; do boots | grep -q "^$name " || fail "$name: not in --list"; done

wanted() {
    [ ${#names[@]} -gt 0 ] || { boots; return; }
    for name in "${names[@]}"; do boots | grep "^$name "; done
}

triple() { # KIND
    case $1 in
    c) echo x86_64-unknown-none ;;
    riscv64) echo riscv64imac-unknown-none-elf ;; # no FP registers, which an interrupt would have to save
    *) echo "$1-unknown-none" ;;
    esac
}

missing=()
tool() { command -v "$1" >/dev/null || missing+=("$1: $2"); }
firmware() { # of RISC-V, where QEMU looks for it
    for folder in $(qemu-system-riscv64 -L help 2>/dev/null); do [ ! -e "$folder/$1" ] || return 0; done
    missing+=("$1: $2")
}
tool cargo "https://rustup.rs"
tool timeout "apt-get install coreutils"
tool size "apt-get install binutils"
kinds=$(wanted | awk '{print $3}' | sort -u)
for kind in $kinds; do
    case $kind in
    x86_64 | c) tool qemu-system-x86_64 "apt-get install qemu-system-x86" ;;
    aarch64) tool qemu-system-aarch64 "apt-get install qemu-system-arm" ;;
    riscv64)
        tool qemu-system-riscv64 "apt-get install qemu-system-misc"
        firmware opensbi-riscv64-generic-fw_dynamic.bin "apt-get install opensbi"
        ;;
    esac
    if [ "$kind" = c ]; then
        tool make "apt-get install make"
        tool "${CC:-cc}" "apt-get install build-essential"
    fi
    triple=$(triple "$kind")
    [ -d "$(rustc --print target-libdir --target "$triple" 2>/dev/null)" ] ||
        missing+=("the core library for $triple: rustup target add $triple")
done
if [ ${#missing[@]} -gt 0 ]; then
    printf 'boot-kernels: missing: %s\n' "${missing[@]}" | sort -u >&2
    exit 2
fi

target=${CARGO_TARGET_DIR:-$PWD/target}
case $target in /*) ;; *) target=$PWD/$target ;; esac
target=$target/kernels
mkdir -p "$target/images"
# Flags for the host are none for a kernel; those in .cargo/config.toml count.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS

# install_core DIRECTORY [OPTION...]
install_core() {
    local only=() to=$1
    shift
    if scripts/install-capi.sh --help | grep -q -- --core-only; then only=(--core-only); fi
    CARGO_TARGET_DIR=$target scripts/install-capi.sh "${only[@]}" "$@" --core-target x86_64-unknown-none \
        --destdir "$to" / >/dev/null
}

# image KIND FEATURE: prints its path.
image() { printf '%s/images/%s%s' "$target" "$1" "${2/#-/}"; }

build() { # KIND FEATURE
    local out features=()
    out=$(image "$1" "$2")
    if [ "$1" = c ]; then
        local defines="" prefix=$target/capi
        [ "$2" = - ] || defines=-D$2
        case $2 in
        PACKED) prefix=$target/capi-packed ;;
        OWN_LOCK) prefix=$target/capi-own-lock ;;
        esac
        make --silent -B -C examples/kernel-c PREFIX="$prefix" OUT="$out" DEFINES="$defines"
    else
        [ "$2" = - ] || features=(--features "$2")
        (cd examples/kernel-rust && cargo build --quiet --release --locked --target "$(triple "$1")" \
            --target-dir "$target" "${features[@]}")
        cp "$target/$(triple "$1")/release/kernel-rust" "$out"
    fi
}

echo "boot-kernels: building"
images=$(wanted | awk '{print $3, $4}' | sort -u)
if grep -E '^c ' <<<"$images" | grep -qvxE 'c (PACKED|OWN_LOCK)'; then install_core "$target/capi"; fi
if grep -qx 'c PACKED' <<<"$images"; then install_core "$target/capi-packed" --packed; fi
if grep -qx 'c OWN_LOCK' <<<"$images"; then install_core "$target/capi-own-lock" --interrupt-lock --cpu-at 0; fi
printf '%-20s %9s %9s\n' image text data+bss
while read -r kind feature; do
    build "$kind" "$feature"
    size "$(image "$kind" "$feature")" | awk -v name="$kind $feature" 'NR == 2 {printf "%-20s %9d %9d\n", name, $1, $2 + $3}'
done <<<"$images"

output=$(mktemp)
trap 'rm -f "$output"' EXIT
started=$SECONDS
failed=0
printf '%-20s %-8s %9s %6s %13s  %s\n' boot result requests instr. "stack, bytes" ""
while read -r name kind arch feature memory options; do
    status=0
    # shellcheck disable=SC2086  # several options
    MEMORY=$memory SECONDS_MOST=120 examples/boot/qemu.sh "$(image "$arch" "$feature")" $options >"$output" 2>&1 || status=$?
    requests=$(sed -n 's/^\([0-9]*\) requests,.*/\1/p' "$output")
    instructions=$(sed -n 's/^passed: .* \([0-9]*\) instructions per pair.*/\1/p' "$output")
    by_address=$(sed -n 's/^passed: .* instructions per pair, \([0-9]*\) by address.*/\1/p' "$output")
    stack=$(sed -n 's/^passed: .* \([0-9]*\) of \([0-9]*\) bytes of stack.*/\1 of \2/p' "$output")
    why=$(sed -n 's/^failed: //p' "$output" | cut -c1-76)
    result=wrong note=""
    case $kind:$status in
    pass:0 | count:0) [ "$kind:$instructions" = count:0 ] || [ -z "$stack" ] || result=passed ;;
    # With a damaged list a loop may not end.
    broken:1 | broken:124) grep -q ' CPUs,' "$output" && result=caught note=${why:-does not end} ;;
    stuck:1) case $why in *"lock is never released"*) result=caught note=$why ;; esac ;;
    esac
    [ "$instructions" != 0 ] || instructions=- by_address=""
    [ -z "$by_address" ] || note="$by_address by address"
    printf '%-20s %-8s %9s %6s %13s  %s\n' "$name" "$result" "${requests:--}" "${instructions:--}" "${stack:--}" "$note"
    if [ $result = wrong ]; then
        failed=1
        printf 'boot-kernels: %s: expected %s, QEMU ended with %d; its serial output:\n' "$name" "$kind" "$status" >&2
        cat "$output" >&2
    fi
done < <(wanted)
echo "boot-kernels: $((SECONDS - started)) s of booting"
exit $failed
