#!/usr/bin/env bash
# Builds the C libraries and installs them with their headers, pkg-config files and CMake package.
#
#     scripts/install-capi.sh [--destdir DIR] [--profile NAME] [--target TRIPLE] [--core-target TRIPLE]
#                             PREFIX
#
# PREFIX             where they will be used from, an absolute path: /usr/local
# --destdir DIR      put them under DIR/PREFIX instead, for a package
# --profile NAME     cargo's profile for the host library; release if not given
# --target T         Rust's target for the libraries, installed with rustup; this machine's if not given.
#                    With it, CC, LD, AR and OBJCOPY name the tools of a cross compiler.
# --core-target T    the same for the core without std; what --target says if not given. A kernel for
#                    x86-64 wants x86_64-unknown-none: no red zone, no SSE.
#
# Under PREFIX come
#     include/{pageyard,pageyard_core}.h
#     lib/libpageyard.so*, lib/libpageyard.a      real memory on Linux, and the core's functions
#     lib/libpageyard-core.a                      the bare core, which needs no libc
#     lib/pkgconfig/{pageyard,pageyard-core}.pc
#     lib/cmake/pageyard/
# Nothing is installed unless all of it was built. Needs cargo, a C compiler and binutils.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() { printf 'install-capi: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,15s/^# \{0,1\}//p' "$0"; }

destdir="" profile=release for_target="" core_target="" prefix=""
while [ $# -gt 0 ]; do
    case $1 in
    --destdir | --profile | --target | --core-target)
        [ $# -gt 1 ] || fail "$1 wants a value"
        case $1 in
        --destdir) destdir=$2 ;;
        --profile) profile=$2 ;;
        --target) for_target=$2 ;;
        --core-target) core_target=$2 ;;
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
"") usage >&2; exit 2 ;;
*) fail "PREFIX is an absolute path, not $prefix" ;;
esac
case $prefix$destdir in *[\|\&\;\$[:space:]]*) fail "PREFIX and DIR hold no blanks and none of | & ; \$" ;; esac
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
grep -E '^pageyard_(core_|strerror$)' "$stage/symbols" >"$stage/core-symbols"

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
# What the static library needs of the system's, said by rustc.
notes=$(cargo rustc --quiet -p pageyard-capi --lib --profile "$profile" --crate-type staticlib \
    ${for_target:+--target "$for_target"} -- \
    --print native-static-libs 2>&1) || { printf '%s\n' "$notes" >&2; fail "the host library did not build"; }
native=$(sed -n 's/^note: native-static-libs: //p' <<<"$notes" | tail -1)
[ -n "$native" ] || native="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"
directory=$profile
[ "$profile" != dev ] || directory=debug
directory=${for_target:+$for_target/}$directory
single_object "$target/$directory/libpageyard_capi.a" "$stage/symbols" "$stage/pageyard.o"
"$ar" crs "$stage/lib/libpageyard.a" "$stage/pageyard.o"

# shellcheck disable=SC2086  # several libraries
"$cc" -shared -o "$stage/lib/libpageyard.so.$version" "$stage/pageyard.o" \
    -Wl,--version-script="$package/pageyard.map" -Wl,-soname,"libpageyard.so.$soversion" \
    -Wl,--gc-sections -Wl,-z,now,-z,relro -Wl,--no-undefined $native
ln -s "libpageyard.so.$version" "$stage/lib/libpageyard.so.$soversion"
ln -s "libpageyard.so.$soversion" "$stage/lib/libpageyard.so"

core=(cargo rustc --quiet -p pageyard-capi-core --features freestanding --profile freestanding
    --crate-type staticlib)
directory=freestanding
if [ -n "$core_target" ]; then
    core+=(--target "$core_target")
    directory=$core_target/freestanding
fi
"${core[@]}" || fail "the core did not build; is its target installed? rustup target add ${core_target:-}"
# Nothing unwinds, and nothing runs before main: on aarch64 the compiler's own library would ask a libc what the
# processor has; atomics are then those of every aarch64. Removed before the rest is linked, so that what they need
# goes too.
"$objcopy" -R .eh_frame -R .rela.eh_frame -R '.init_array*' -R '.rela.init_array*' \
    "$target/$directory/libpageyard_capi_core.a" "$stage/core.a"
single_object "$stage/core.a" "$stage/core-symbols" "$stage/core.o" \
    --strip-unneeded-symbol=rust_eh_personality --strip-unneeded-symbol=getauxval
"$ar" crs "$stage/lib/libpageyard-core.a" "$stage/core.o"

cp crates/pageyard-capi/include/*.h "$stage/include/"
fill() { # TEMPLATE DIRECTORY
    local name
    name=$(basename "$1" .in)
    sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" -e "s|@minor@|$minor|" \
        -e "s|@soversion@|$soversion|" -e "s|@native@|$native|" "$1" >"$2/$name"
}
for file in pageyard.pc pageyard-core.pc; do fill "$package/$file.in" "$stage/lib/pkgconfig"; done
for file in "$package"/*.cmake.in; do fill "$file" "$stage/lib/cmake/pageyard"; done

to=$destdir$prefix
install -d "$to/lib/pkgconfig" "$to/lib/cmake/pageyard" "$to/include"
install -m 644 "$stage"/include/*.h "$to/include/"
install -m 644 "$stage"/lib/*.a "$to/lib/"
install -m 755 "$stage/lib/libpageyard.so.$version" "$to/lib/"
cp -P "$stage/lib/libpageyard.so.$soversion" "$stage/lib/libpageyard.so" "$to/lib/"
install -m 644 "$stage"/lib/pkgconfig/*.pc "$to/lib/pkgconfig/"
install -m 644 "$stage"/lib/cmake/pageyard/*.cmake "$to/lib/cmake/pageyard/"
printf 'install-capi: pageyard %s is in %s\n' "$version" "$to"
