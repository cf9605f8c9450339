#!/usr/bin/env bash
# Builds the C libraries and installs them with their headers, pkg-config files and CMake package.
#
#     scripts/install-capi.sh [--destdir DIR] [--libdir DIR] [--profile NAME] [--target TRIPLE]
#                             [--library FILE] [--core-target TRIPLE] [--core-only] [--packed] [--interrupt-lock]
#                             [--cpu-at OFFSET] [--opt-level s|3] [--without-text] [--without-hooks]
#                             [--without-relocate] [--merge-sections] PREFIX
#
# PREFIX             where they will be used from, an absolute path: /usr/local
# --destdir DIR      put them under DIR/PREFIX instead, for a package
# --libdir DIR       put libraries into this folder below PREFIX: lib64, lib/x86_64-linux-gnu; lib if not given
# --profile NAME     cargo's profile for the host library; release if not given
# --library FILE     the host library that cargo has built already, libpageyard_capi.a, in place of building it
# --target T         Rust's target for the libraries, installed with rustup; this machine's if not given.
#                    With it, CC, LD, AR and OBJCOPY name the tools of a cross compiler.
# --core-target T    the same for the core without std; what --target says if not given. A kernel for
#                    x86-64 wants x86_64-unknown-none: no red zone, no SSE.
# --core-only        installs the bare core alone, which takes a fraction of the time
# --interrupt-lock   builds the bare core for an x86-64 kernel with a lock of its own, which disables interrupts
#                    while it is held; `lock`, `try_lock` and `unlock` of the platform must then be null
# --cpu-at OFFSET    builds the bare core for an x86-64 kernel in which the 32-bit word at %gs:OFFSET is the number
#                    of the CPU; `cpu` of the platform must then be null
# --packed           includes the packed engine in the bare core (PAGEYARD_ENGINE_PACKED); without it, to ask
#                    for that engine is PAGEYARD_ERR_ENGINE. libpageyard always has both engines.
# --opt-level L      optimizes the bare core for speed (3, the default) or size (s)
# --without-text     leaves pageyard_core_text out of the bare core
# --without-hooks    leaves out the code of yards with pageyard_hooks, half of the bare core; to ask for
#                    one is then PAGEYARD_ERR_ARGUMENT
# --without-relocate leaves out the compaction that requests do; `relocate` of the platform must then be null
# --merge-sections   one section each of .text, .rodata, .data and .bss, for a linker script without
#                    patterns; the linker's --gc-sections can then drop no single function
#
# Under PREFIX come
#     include/{pageyard,pageyard_core}.h
#     lib/libpageyard.so*, lib/libpageyard.a      real memory on Linux, and the core's functions
#     lib/libpageyard-core.a                      the bare core, which needs no libc
#     lib/pkgconfig/{pageyard,pageyard-core}.pc
#     lib/cmake/pageyard/
#     share/doc/pageyard/examples/                programs that each say how to compile them
# Nothing is installed unless all of it was built. Needs cargo, a C compiler and binutils.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() { printf 'install-capi: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }

destdir="" libdir=lib profile=release library="" for_target="" core_target="" prefix=""
native="" core_only="" opt_level="" without_text="" without_hooks="" packed="" merge="" interrupt_lock="" cpu_at="" without_relocate=""
while [ $# -gt 0 ]; do
    case $1 in
    --core-only) core_only=1 ;;
    --packed) packed=1 ;;
    --interrupt-lock) interrupt_lock=1 ;;
    --without-text) without_text=1 ;;
    --without-hooks) without_hooks=1 ;;
    --without-relocate) without_relocate=1 ;;
    --merge-sections) merge=1 ;;
    --destdir | --libdir | --profile | --library | --target | --core-target | --opt-level | --cpu-at)
        [ $# -gt 1 ] || fail "$1 wants a value"
        case $1 in
        --destdir) destdir=$2 ;;
        --libdir) libdir=${2%/} ;;
        --profile) profile=$2 ;;
        --library) library=$2 ;;
        --target) for_target=$2 ;;
        --core-target) core_target=$2 ;;
        --cpu-at)
            cpu_at=$2
            [[ $cpu_at =~ ^(0|[1-9][0-9]{0,8})$ ]] || fail "--cpu-at is an offset in bytes, such as 8, not $2"
            ;;
        --opt-level)
            case $2 in s | 3) opt_level=$2 ;; *) fail "--opt-level is s or 3, not $2" ;; esac
            ;;
        esac
        shift
        ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
        [ -z "$prefix" ] || fail "one PREFIX, not also $1"
        prefix=$1
        ;;
    esac
    shift
done
case $prefix in
/*) prefix=${prefix%/} ;;
"") fail "PREFIX is missing, such as /usr/local; --help lists the options" ;;
*) fail "PREFIX must be an absolute path: $prefix" ;;
esac
case /$libdir/ in //* | */../*) fail "--libdir is a folder below PREFIX, such as lib64, not $libdir" ;; esac
case $prefix$destdir$libdir in *[\|\&\;\$[:space:]]*) fail "PREFIX and each DIR hold no blanks and none of | & ; \$" ;; esac
[ -z "$library" ] || [ -f "$library" ] || fail "--library $library: there is no such file"
library=${library:+$(realpath "$library")}
cc=${CC:-cc} ld=${LD:-ld} ar=${AR:-ar} objcopy=${OBJCOPY:-objcopy}
core_target=${core_target:-$for_target}
for tool in cargo "$cc" "$ld" "$ar" "$objcopy" install; do
    command -v "$tool" >/dev/null || fail "$tool is missing: install Rust, a C compiler and binutils"
done

target=${CARGO_TARGET_DIR:-$here/target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/Cargo.toml" | head -1)
minor=${version%.*}
soversion=${version%%.*}
package=$here/crates/pageyard-capi/package
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/lib/pkgconfig" "$stage/lib/cmake/pageyard" "$stage/include"

# The exported symbols of both levels, and those of the core alone.
grep -oE '\bpageyard_[a-z_]+' "$package/pageyard.map" | sort -u >"$stage/symbols"
grep -E '^pageyard_(core_|kernel_|page(_free)?$|strerror$)' "$stage/symbols" |
    grep -v ${without_text:+-e '^pageyard_core_text$'} -e '^$' >"$stage/core-symbols"

# One object of an archive's, of which only these symbols are to be seen from outside: a program may
# hold other libraries written in Rust, which have the rest too.
single_object() { # ARCHIVE SYMBOLS OBJECT [OBJCOPY-OPTION...]
    local archive=$1 symbols=$2 object=$3 wanted=()
    shift 3
    while read -r symbol; do wanted+=(-u "$symbol"); done <"$symbols"
    "$ld" -r --gc-sections "${wanted[@]}" --whole-archive "$archive" -o "$object"
    # (Embedded bitcode would have binutils ask an LLVM that may be another one's.)
    "$objcopy" --strip-debug --keep-global-symbols="$symbols" -R .llvmbc -R .llvmcmd "$@" "$object"
}

cd "$here"
if [ -z "$core_only" ]; then
if [ -z "$library" ]; then
    # What the static library needs of the system's, said by rustc.
    notes=$(cargo rustc --quiet -p pageyard-capi --lib --profile "$profile" --crate-type staticlib \
        ${for_target:+--target "$for_target"} -- \
        --print native-static-libs 2>&1) || { printf '%s\n' "$notes" >&2; fail "the host library did not build"; }
    native=$(sed -n 's/^note: native-static-libs: //p' <<<"$notes" | tail -1)
    directory=$profile
    [ "$profile" != dev ] || directory=debug
    library=$target/${for_target:+$for_target/}$directory/libpageyard_capi.a
fi
# The compiler adds its own library, and for -static another one than -lgcc_s.
[ -n "$native" ] || native="-lutil -lrt -lpthread -lm -ldl -lc"
native=${native//-lgcc_s/}
single_object "$library" "$stage/symbols" "$stage/pageyard.o"
"$ar" crs "$stage/lib/libpageyard.a" "$stage/pageyard.o"

# shellcheck disable=SC2086  # several libraries
"$cc" -shared -o "$stage/lib/libpageyard.so.$version" "$stage/pageyard.o" \
    -Wl,--version-script="$package/pageyard.map" -Wl,-soname,"libpageyard.so.$soversion" \
    -Wl,--gc-sections -Wl,-z,now,-z,relro -Wl,--no-undefined $native
ln -s "libpageyard.so.$version" "$stage/lib/libpageyard.so.$soversion"
ln -s "libpageyard.so.$soversion" "$stage/lib/libpageyard.so"
fi

features=freestanding${without_hooks:+,without-hooks}${without_relocate:+,without-relocate}${packed:+,packed}
features+=${interrupt_lock:+,interrupt-lock}${cpu_at:+,cpu-in-gs}
core=(cargo rustc --quiet -p pageyard-capi-core --features "$features" --profile freestanding --crate-type staticlib)
[ -z "$opt_level" ] || core+=(--config "profile.freestanding.opt-level=${opt_level/s/\"s\"}")
directory=freestanding
if [ -n "$core_target" ]; then
    core+=(--target "$core_target")
    directory=$core_target/freestanding
fi
PAGEYARD_CPU_AT=$cpu_at "${core[@]}" || fail "the core did not build; is its target installed? rustup target add ${core_target:-}"
# Nothing unwinds, and nothing runs before main: on aarch64 the compiler's own library would ask a libc what the
# processor has; atomics are then those of every aarch64. Removed before the rest is linked, so that what they need
# goes too.
"$objcopy" -R .eh_frame -R .rela.eh_frame -R '.init_array*' -R '.rela.init_array*' \
    "$target/$directory/libpageyard_capi_core.a" "$stage/core.a"
single_object "$stage/core.a" "$stage/core-symbols" "$stage/core.o" \
    --strip-unneeded-symbol=rust_eh_personality --strip-unneeded-symbol=getauxval
if [ -n "$merge" ]; then
    cat >"$stage/merge.ld" <<'EOF'
SECTIONS {
    .text : { *(.text .text.*) }
    .rodata : { *(.rodata .rodata.*) }
    .data : { *(.data.rel.ro .data.rel.ro.* .data .data.*) }
    .bss : { *(.bss .bss.* COMMON) }
}
EOF
    "$ld" -r -T "$stage/merge.ld" "$stage/core.o" -o "$stage/merged.o"
    mv "$stage/merged.o" "$stage/core.o"
fi
"$ar" crs "$stage/lib/libpageyard-core.a" "$stage/core.o"

if [ -n "$core_only" ]; then
    cp crates/pageyard-capi/include/pageyard_core.h "$stage/include/"
else
    cp crates/pageyard-capi/include/*.h "$stage/include/"
fi
fill() { # TEMPLATE DIRECTORY
    local name
    name=$(basename "$1" .in)
    # From the CMake package up to PREFIX; -s because /lib is a link on many systems.
    local up
    up=$(realpath -ms --relative-to="/$libdir/cmake/pageyard" /)
    sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@up@|$up|" \
        -e "s|@version@|$version|" -e "s|@minor@|$minor|" \
        -e "s|@soversion@|$soversion|" -e "s|@native@|$native|" "$1" >"$2/$name"
}
to=$destdir$prefix
install_examples() { # FILE...
    install -d "$to/share/doc/pageyard/examples"
    install -m 644 "$@" "$to/share/doc/pageyard/examples/"
}
# What the linker script of a kernel has to take in, and how much it is.
lines() {
    printf 'install-capi: the core has these sections; a linker script takes them in by\n'
    printf '    .text : { *(.text .text.*) }\n    .rodata : { *(.rodata .rodata.*) }\n'
    printf '    .data : { *(.data .data.* .got .got.*) }\n    .bss : { *(.bss .bss.* COMMON) }\n'
}
if [ -n "$core_only" ]; then
    fill "$package/pageyard-core.pc.in" "$stage/lib/pkgconfig"
    install -d "$to/$libdir/pkgconfig" "$to/include"
    install -m 644 "$stage/include/pageyard_core.h" "$to/include/"
    install -m 644 "$stage/lib/libpageyard-core.a" "$to/$libdir/"
    install -m 644 "$stage/lib/pkgconfig/pageyard-core.pc" "$to/$libdir/pkgconfig/"
    install_examples crates/pageyard-capi/examples/freestanding.c
    printf 'install-capi: pageyard-core %s is in %s\n' "$version" "$to"
    lines
    exit 0
fi
for file in pageyard.pc pageyard-core.pc; do fill "$package/$file.in" "$stage/lib/pkgconfig"; done
for file in "$package"/*.cmake.in; do fill "$file" "$stage/lib/cmake/pageyard"; done

install -d "$to/$libdir/pkgconfig" "$to/$libdir/cmake/pageyard" "$to/include"
install -m 644 "$stage"/include/*.h "$to/include/"
install -m 644 "$stage"/lib/*.a "$to/$libdir/"
install -m 755 "$stage/lib/libpageyard.so.$version" "$to/$libdir/"
cp -P "$stage/lib/libpageyard.so.$soversion" "$stage/lib/libpageyard.so" "$to/$libdir/"
install -m 644 "$stage"/lib/pkgconfig/*.pc "$to/$libdir/pkgconfig/"
install -m 644 "$stage"/lib/cmake/pageyard/*.cmake "$to/$libdir/cmake/pageyard/"
install_examples crates/pageyard-capi/examples/*.c
printf 'install-capi: pageyard %s is in %s\n' "$version" "$to"
lines
