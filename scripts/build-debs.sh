#!/usr/bin/env bash
# Builds Debian packages of this tree: pageyard (the program), libpageyard0 (the shared library) and libpageyard-dev.
#
#     scripts/build-debs.sh [--profile NAME] [--ignore-build-depends] FOLDER
#
# FOLDER                  where the packages go, created if it does not exist
# --profile NAME          cargo's profile; release if not given
# --ignore-build-depends  do not ask for Debian's own cargo and rustc: those of rustup are in use
#
# Works on a copy, in which packaging/debian is debian. Without network if the tree has been vendored
# (docs/packaging.md) or cargo's cache has the dependencies (`cargo fetch`). CARGO_TARGET_DIR keeps what was built.
# Needs dpkg-dev, debhelper, libzstd-dev, liblzma-dev, pkgconf, a C compiler and Rust. Runs lintian where it is.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

fail() { printf 'build-debs: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"; }

profile=release folder="" options=()
while [ $# -gt 0 ]; do
    case $1 in
    --profile)
        [ $# -gt 1 ] || fail "$1 wants a value"
        profile=$2
        shift
        ;;
    --ignore-build-depends) options=(-d) ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
        [ -z "$folder" ] || fail "one FOLDER, not also $1"
        folder=$1
        ;;
    esac
    shift
done
[ -n "$folder" ] || { usage >&2; exit 2; }
command -v dpkg-buildpackage >/dev/null || fail "dpkg-buildpackage is missing: apt-get install dpkg-dev"
command -v dh >/dev/null || fail "dh is missing: apt-get install debhelper"
mkdir -p "$folder"
folder=$(realpath "$folder")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/pageyard"
tar -C "$here" --anchored --exclude=./target --exclude=./.git -cf - . | tar -C "$work/pageyard" -xf -
cp -R "$here/packaging/debian" "$work/pageyard/debian"
cd "$work/pageyard"
# debhelper gives each step another home folder.
export PROFILE=$profile CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
dpkg-buildpackage -b -us -uc ${options[@]+"${options[@]}"}
cp "$work"/*.deb "$folder/"
if command -v lintian >/dev/null; then
    lintian --fail-on error "$work"/*.changes
fi
printf 'build-debs: %s\n' "$folder"/*.deb
